//! Tokens to a tree, with the grammar of Jinja2's parser.

use crate::ast::*;
use crate::failure::{Error, Result};
use crate::lexer::Token;
use std::collections::HashSet;
use std::sync::Arc;

/// The deepest nesting of brackets and blocks. Parsing, rendering and dropping recurse this deeply.
const MAX_NESTING: usize = 200;
/// The most named arguments of a call, and the most parameters of a macro.
const MAX_NAMES: usize = 1000;
/// The longest chain of `.a[b]|c`.
const MAX_POSTFIX: usize = 50;

pub struct Parser {
    tokens: Vec<(Token, usize)>,
    at: usize,
    depth: usize,
    loops: usize,
    /// The names that are assigned to, a set for each scope and each branch of an `if`.
    assigned: Vec<HashSet<String>>,
    /// The names that are read where nothing has assigned to them.
    pub free: Vec<String>,
    /// All names that are read.
    read: Vec<String>,
}

type Ends<'a> = &'a [&'a str];

impl Parser {
    pub fn new(tokens: Vec<(Token, usize)>) -> Self {
        let assigned = vec![HashSet::new()];
        Self { tokens, at: 0, depth: 0, loops: 0, assigned, free: Vec::new(), read: Vec::new() }
    }

    pub fn template(&mut self) -> Result<Body> {
        let body = self.body(&[])?;
        match self.peek() {
            Token::End => Ok(body),
            token => self.fail(format!("unexpected {}", shown(token))),
        }
    }

    fn peek(&self) -> &Token {
        &self.tokens[self.at].0
    }

    fn line(&self) -> usize {
        self.tokens[self.at].1
    }

    fn look(&self) -> &Token {
        &self.tokens[(self.at + 1).min(self.tokens.len() - 1)].0
    }

    fn next(&mut self) -> Token {
        let token = self.tokens[self.at].0.clone();
        self.at = (self.at + 1).min(self.tokens.len() - 1);
        token
    }

    fn fail<T>(&self, message: impl Into<String>) -> Result<T> {
        Err(Error { line: Some(self.line()), message: message.into() })
    }

    fn is_name(&self, name: &str) -> bool {
        matches!(self.peek(), Token::Name(found) if found == name)
    }

    fn skip_name(&mut self, name: &str) -> bool {
        let found = self.is_name(name);
        if found {
            self.next();
        }
        found
    }

    fn is(&self, operator: &str) -> bool {
        matches!(self.peek(), Token::Operator(found) if *found == operator)
    }

    fn skip(&mut self, operator: &str) -> bool {
        let found = self.is(operator);
        if found {
            self.next();
        }
        found
    }

    fn expect(&mut self, operator: &str) -> Result<()> {
        match self.skip(operator) {
            true => Ok(()),
            false => self.fail(format!("unexpected {}, expected {operator:?}", shown(self.peek()))),
        }
    }

    fn expect_token(&mut self, token: Token) -> Result<()> {
        if *self.peek() != token {
            let message = format!("unexpected {}, expected {}", shown(self.peek()), shown(&token));
            return self.fail(message);
        }
        self.next();
        Ok(())
    }

    fn name(&mut self) -> Result<String> {
        match self.peek() {
            Token::Name(_) => match self.next() {
                Token::Name(name) => Ok(name),
                _ => self.fail("unexpected end"),
            },
            token => self.fail(format!("unexpected {}, expected a name", shown(token))),
        }
    }

    /// Calls a part of the grammar that may contain itself.
    fn nested<T>(&mut self, part: impl FnOnce(&mut Self) -> Result<T>) -> Result<T> {
        self.depth += 1;
        if self.depth > MAX_NESTING {
            return self.fail("it is nested too deeply");
        }
        let parsed = part(self);
        self.depth -= 1;
        parsed
    }

    fn assign(&mut self, target: &Target) {
        match target {
            Target::Name(name) => {
                if let Some(scope) = self.assigned.last_mut() {
                    scope.insert(name.clone());
                }
            }
            Target::Attribute(name, _) => self.read_name(&name.clone()),
            Target::Tuple(parts) => parts.iter().for_each(|part| self.assign(part)),
        }
    }

    fn read_name(&mut self, name: &str) {
        self.read.push(name.to_string());
        if !self.assigned.iter().any(|scope| scope.contains(name)) {
            self.free.push(name.to_string());
        }
    }

    fn scoped<T>(&mut self, part: impl FnOnce(&mut Self) -> Result<T>) -> Result<T> {
        self.assigned.push(HashSet::new());
        let parsed = part(self);
        self.assigned.pop();
        parsed
    }

    /// Statements up to a tag of one of these names, which is the next token then.
    fn body(&mut self, ends: Ends) -> Result<Body> {
        self.nested(|parser| parser.statements(ends))
    }

    fn statements(&mut self, ends: Ends) -> Result<Body> {
        let mut body = Vec::new();
        loop {
            let line = self.line();
            match self.peek() {
                Token::Data(_) => {
                    if let Token::Data(text) = self.next() {
                        body.push((Stmt::Data(text), line));
                    }
                }
                Token::VariableBegin => {
                    self.next();
                    let value = self.tuple(true, &[])?;
                    self.expect_token(Token::VariableEnd)?;
                    body.push((Stmt::Print(value), line));
                }
                Token::BlockBegin => {
                    self.next();
                    if ends.iter().any(|end| self.is_name(end)) {
                        return Ok(body);
                    }
                    let statement = self.statement(line)?;
                    self.expect_token(Token::BlockEnd)?;
                    match statement {
                        Stmt::Scope(parts) if parts.is_empty() => {}
                        statement => body.push((statement, line)),
                    }
                }
                Token::End if ends.is_empty() => return Ok(body),
                Token::End => return self.fail(format!("unexpected end, expected {:?}", ends[0])),
                token => return self.fail(format!("unexpected {}", shown(token))),
            }
        }
    }

    /// The end of a tag, a body, and the tag that ends it, up to its name.
    fn block(&mut self, ends: Ends) -> Result<Body> {
        self.skip(":");
        self.expect_token(Token::BlockEnd)?;
        self.body(ends)
    }

    fn whole_block(&mut self, end: &str) -> Result<Body> {
        let body = self.block(&[end])?;
        self.next();
        Ok(body)
    }

    fn statement(&mut self, line: usize) -> Result<Stmt> {
        let name = match self.peek() {
            Token::Name(name) => name.clone(),
            _ => return self.fail("tag name expected"),
        };
        if name == "if" {
            return self.conditional();
        }
        self.next();
        Ok(match name.as_str() {
            "for" => return self.for_loop(),
            "set" => {
                let target = self.target(&[], true)?;
                if self.skip("=") {
                    let value = self.tuple(true, &[])?;
                    self.assign(&target);
                    return Ok(Stmt::Set(target, value));
                }
                let filters = self.filters(Expr::Captured)?;
                let body = self.scoped(|parser| parser.whole_block("endset"))?;
                self.assign(&target);
                Stmt::SetBlock(target, filters, body)
            }
            "print" => {
                let mut parts = Vec::new();
                while *self.peek() != Token::BlockEnd {
                    if !parts.is_empty() {
                        self.expect(",")?;
                    }
                    parts.push((Stmt::Print(self.expression()?), line));
                }
                Stmt::If(vec![(Expr::Bool(true), parts)], Vec::new())
            }
            "with" => {
                let mut values = Vec::new();
                while *self.peek() != Token::BlockEnd && !self.is(":") {
                    if !values.is_empty() {
                        self.expect(",")?;
                    }
                    let target = self.target(&[], false)?;
                    self.expect("=")?;
                    values.push((target, self.expression()?));
                }
                let body = self.scoped(|parser| {
                    values.iter().for_each(|(target, _)| parser.assign(target));
                    parser.whole_block("endwith")
                })?;
                Stmt::With(values, body)
            }
            "macro" => {
                let name = self.name()?;
                self.assign(&Target::Name(name.clone()));
                Stmt::Macro(self.macro_body(Some(name), "endmacro")?)
            }
            "call" => {
                // The parameters are in a scope of their own.
                let loops = std::mem::take(&mut self.loops);
                let first = self.scoped(|parser| {
                    let parameters = parser.is("(").then(|| parser.signature()).transpose()?;
                    Ok((parameters.unwrap_or_default(), parser.expression()?))
                });
                let (parameters, call) = first?;
                if !matches!(call, Expr::Call(..)) {
                    return self.fail("expected a call");
                }
                let body = self.macro_of(None, parameters, "endcall")?;
                self.loops = loops;
                Stmt::Call(call, body)
            }
            "filter" => {
                let filters = self.first_filter()?;
                Stmt::Filter(filters, self.scoped(|parser| parser.whole_block("endfilter"))?)
            }
            "generation" => {
                let loops = std::mem::take(&mut self.loops);
                let body = self.scoped(|parser| parser.whole_block("endgeneration"))?;
                self.loops = loops;
                Stmt::Scope(body)
            }
            "block" => {
                let name = self.name()?;
                let scoped = self.skip_name("scoped");
                let _ = self.skip_name("required");
                let loops = std::mem::take(&mut self.loops);
                let body = self.scoped(|parser| parser.whole_block("endblock"))?;
                self.loops = loops;
                self.skip_name(&name);
                if scoped {
                    Stmt::Scope(body)
                } else {
                    Stmt::Block(body)
                }
            }
            "autoescape" => {
                let on = self.expression()?;
                let body = self.scoped(|parser| parser.whole_block("endautoescape"))?;
                let refusal = vec![(Stmt::Elsewhere("autoescape".into()), line)];
                Stmt::If(vec![(on, refusal)], vec![(Stmt::Scope(body), line)])
            }
            "break" | "continue" if self.loops == 0 => {
                return self.fail(format!("{name} outside of a loop"))
            }
            "break" => Stmt::Break,
            "continue" => Stmt::Continue,
            "extends" | "include" | "import" | "from" => {
                while !matches!(self.peek(), Token::BlockEnd | Token::End) {
                    self.next();
                }
                Stmt::Elsewhere(name)
            }
            _ => return self.fail(format!("unknown tag {name:?}")),
        })
    }

    fn conditional(&mut self) -> Result<Stmt> {
        let mut branches = Vec::new();
        loop {
            self.next(); // if, elif
            let test = self.tuple(false, &[])?;
            let ends = ["elif", "else", "endif"];
            branches.push((test, self.scoped(|parser| parser.block(&ends))?));
            if self.is_name("elif") {
                continue;
            }
            let otherwise = match self.next() == Token::Name("else".into()) {
                true => self.scoped(|parser| parser.whole_block("endif"))?,
                false => Vec::new(),
            };
            return Ok(Stmt::If(branches, otherwise));
        }
    }

    fn for_loop(&mut self) -> Result<Stmt> {
        let target = self.target(&["in"], false)?;
        if !self.skip_name("in") {
            return self.fail(format!("unexpected {}, expected \"in\"", shown(self.peek())));
        }
        let items = self.tuple(false, &["recursive"])?;
        let (test, recursive, body) = self.scoped(|parser| {
            parser.assign(&target);
            let test = match parser.skip_name("if") {
                true => Some(parser.expression()?),
                false => None,
            };
            parser.assign(&Target::Name("loop".into()));
            let recursive = parser.skip_name("recursive");
            parser.loops += 1;
            let body = parser.block(&["endfor", "else"])?;
            parser.loops -= 1;
            Ok((test, recursive, body))
        })?;
        let otherwise = match self.next() == Token::Name("else".into()) {
            true => self.scoped(|parser| parser.whole_block("endfor"))?,
            false => Vec::new(),
        };
        Ok(Stmt::For(Arc::new(For { target, items, test, body, otherwise, recursive })))
    }

    fn macro_body(&mut self, name: Option<String>, end: &str) -> Result<Arc<Macro>> {
        let loops = std::mem::take(&mut self.loops);
        let parameters = self.scoped(Self::signature)?;
        let parsed = self.macro_of(name, parameters, end);
        self.loops = loops;
        parsed
    }

    fn macro_of(
        &mut self,
        name: Option<String>,
        parameters: Vec<(String, Option<Expr>)>,
        end: &str,
    ) -> Result<Arc<Macro>> {
        let start = self.read.len();
        let body = self.scoped(|parser| {
            for name in ["varargs", "kwargs", "caller"] {
                parser.assign(&Target::Name(name.into()));
            }
            parameters.iter().for_each(|(name, _)| parser.assign(&Target::Name(name.clone())));
            parser.whole_block(end)
        })?;
        let uses = |name: &str| {
            self.read[start..].iter().any(|read| read == name)
                && !parameters.iter().any(|(parameter, _)| parameter == name)
        };
        let (uses_varargs, uses_kwargs) = (uses("varargs"), uses("kwargs"));
        let uses_caller = uses("caller");
        Ok(Arc::new(Macro { name, parameters, body, uses_varargs, uses_kwargs, uses_caller }))
    }

    fn signature(&mut self) -> Result<Vec<(String, Option<Expr>)>> {
        let mut parameters: Vec<(String, Option<Expr>)> = Vec::new();
        self.expect("(")?;
        while !self.is(")") {
            if !parameters.is_empty() {
                self.expect(",")?;
            }
            let name = self.name()?;
            self.assign(&Target::Name(name.clone()));
            let default = match self.skip("=") {
                true => Some(self.expression()?),
                false if parameters.last().is_some_and(|(_, default)| default.is_some()) => {
                    return self.fail("a parameter without a default follows one with a default")
                }
                false => None,
            };
            parameters.push((name, default));
            if parameters.len() > MAX_NAMES {
                return self.fail("it has too many parameters");
            }
        }
        self.expect(")")?;
        Ok(parameters)
    }

    /// Parses an assignment's target: a name, an attribute of a namespace, or a tuple of them.
    fn target(&mut self, ends: Ends, namespace: bool) -> Result<Target> {
        self.nested(|parser| {
            let mut parts = Vec::new();
            let mut tuple = false;
            loop {
                let ended = matches!(parser.peek(), Token::BlockEnd | Token::VariableEnd)
                    || parser.is(")")
                    || ends.iter().any(|end| parser.is_name(end));
                if ended && !parts.is_empty() {
                    break;
                }
                if parser.skip("(") {
                    parts.push(parser.target(&[], namespace)?);
                    parser.expect(")")?;
                } else {
                    let name = parser.name()?;
                    if ["true", "false", "none", "True", "False", "None"].contains(&name.as_str()) {
                        return parser.fail(format!("cannot assign to {name}"));
                    }
                    parts.push(match namespace && parser.skip(".") {
                        true => Target::Attribute(name, parser.name()?),
                        false => Target::Name(name),
                    });
                }
                if !parser.skip(",") {
                    break;
                }
                tuple = true;
            }
            match (tuple, parts.pop()) {
                (false, Some(one)) => Ok(one),
                (_, last) => {
                    parts.extend(last);
                    Ok(Target::Tuple(parts))
                }
            }
        })
    }

    /// One expression, or several with commas between, which are a tuple.
    fn tuple(&mut self, choices: bool, ends: Ends) -> Result<Expr> {
        let mut parts = Vec::new();
        let mut tuple = false;
        loop {
            let ended = matches!(self.peek(), Token::BlockEnd | Token::VariableEnd)
                || self.is(")")
                || ends.iter().any(|end| self.is_name(end));
            if ended {
                break;
            }
            parts.push(if choices { self.expression()? } else { self.nested(Self::or)? });
            if !self.skip(",") {
                break;
            }
            tuple = true;
        }
        match (tuple, parts.len()) {
            (false, 0) => self.fail(format!("expected an expression, got {}", shown(self.peek()))),
            (false, _) => match parts.pop() {
                Some(one) => Ok(one),
                None => self.fail("expected an expression"),
            },
            _ => Ok(Expr::Tuple(parts)),
        }
    }

    fn expression(&mut self) -> Result<Expr> {
        self.nested(|parser| {
            let mut value = parser.or()?;
            let mut choices = 0;
            while parser.skip_name("if") {
                choices += 1;
                if choices > MAX_POSTFIX {
                    return parser.fail("it is nested too deeply");
                }
                let test = parser.or()?;
                let other = match parser.skip_name("else") {
                    true => Some(Box::new(parser.expression()?)),
                    false => None,
                };
                value = Expr::Choice(Box::new((value, test)), other);
            }
            Ok(value)
        })
    }

    fn or(&mut self) -> Result<Expr> {
        let mut parts = vec![self.and()?];
        while self.skip_name("or") {
            parts.push(self.and()?);
        }
        Ok(one_or(parts, Expr::Or))
    }

    fn and(&mut self) -> Result<Expr> {
        let mut parts = vec![self.not()?];
        while self.skip_name("and") {
            parts.push(self.not()?);
        }
        Ok(one_or(parts, Expr::And))
    }

    fn not(&mut self) -> Result<Expr> {
        if self.skip_name("not") {
            return Ok(Expr::Not(Box::new(self.nested(Self::not)?)));
        }
        let first = self.sum()?;
        let mut rest = Vec::new();
        loop {
            let comparison = match self.peek() {
                Token::Operator("==") => Comparison::Eq,
                Token::Operator("!=") => Comparison::Ne,
                Token::Operator("<") => Comparison::Lt,
                Token::Operator("<=") => Comparison::Le,
                Token::Operator(">") => Comparison::Gt,
                Token::Operator(">=") => Comparison::Ge,
                Token::Name(name) if name == "in" => Comparison::In,
                Token::Name(name) if name == "not" => match self.look() {
                    Token::Name(next) if next == "in" => {
                        self.next();
                        Comparison::NotIn
                    }
                    _ => break,
                },
                _ => break,
            };
            self.next();
            rest.push((comparison, self.sum()?));
        }
        Ok(if rest.is_empty() { first } else { Expr::Compare(Box::new(first), rest) })
    }

    fn chain(
        &mut self,
        operators: &[(&str, Binary)],
        operand: fn(&mut Self) -> Result<Expr>,
    ) -> Result<Expr> {
        let first = operand(self)?;
        let mut rest = Vec::new();
        'more: loop {
            for (sign, operator) in operators {
                if self.skip(sign) {
                    rest.push((*operator, operand(self)?));
                    continue 'more;
                }
            }
            break;
        }
        Ok(if rest.is_empty() { first } else { Expr::Chain(Box::new(first), rest) })
    }

    fn sum(&mut self) -> Result<Expr> {
        self.chain(&[("+", Binary::Add), ("-", Binary::Sub)], Self::concat)
    }

    fn concat(&mut self) -> Result<Expr> {
        let mut parts = vec![self.product()?];
        while self.skip("~") {
            parts.push(self.product()?);
        }
        Ok(one_or(parts, Expr::Concat))
    }

    fn product(&mut self) -> Result<Expr> {
        let operators =
            [("*", Binary::Mul), ("//", Binary::FloorDiv), ("/", Binary::Div), ("%", Binary::Mod)];
        self.chain(&operators, |parser| {
            parser.chain(&[("**", Binary::Pow)], |parser| parser.unary(true))
        })
    }

    fn unary(&mut self, filters: bool) -> Result<Expr> {
        let mut value = if self.skip("-") {
            Expr::Negative(Box::new(self.nested(|parser| parser.unary(false))?))
        } else if self.skip("+") {
            Expr::Positive(Box::new(self.nested(|parser| parser.unary(false))?))
        } else {
            self.primary()?
        };
        let mut length = 0;
        value = self.postfix(value, &mut length)?;
        if !filters {
            return Ok(value);
        }
        loop {
            value = if self.is("|") {
                self.next();
                self.filter(value)?
            } else if self.skip_name("is") {
                self.test(value)?
            } else if self.is("(") {
                Expr::Call(Box::new(value), self.arguments()?)
            } else {
                break;
            };
            self.longer(&mut length)?;
        }
        Ok(value)
    }

    fn longer(&self, length: &mut usize) -> Result<()> {
        *length += 1;
        match *length > MAX_POSTFIX {
            true => self.fail("it is nested too deeply"),
            false => Ok(()),
        }
    }

    fn postfix(&mut self, mut value: Expr, length: &mut usize) -> Result<Expr> {
        loop {
            value = if self.skip(".") {
                match self.next() {
                    Token::Name(name) => Expr::Attribute(Box::new(value), name),
                    Token::Int(number) => Expr::Index(Box::new(value), Box::new(Expr::Int(number))),
                    token => return self.fail(format!("unexpected {} after a dot", shown(&token))),
                }
            } else if self.skip("[") {
                self.subscript(value)?
            } else if self.is("(") {
                Expr::Call(Box::new(value), self.arguments()?)
            } else {
                return Ok(value);
            };
            self.longer(length)?;
        }
    }

    fn subscript(&mut self, value: Expr) -> Result<Expr> {
        let mut parts = Vec::new();
        let mut sliced = None;
        while !self.is("]") {
            if !parts.is_empty() || sliced.is_some() {
                self.expect(",")?;
            }
            let first = match self.is(":") {
                true => None,
                false => Some(self.expression()?),
            };
            if !self.skip(":") {
                parts.extend(first);
                continue;
            }
            let mut slice = [first, None, None];
            for (at, place) in [1, 2].into_iter().enumerate() {
                if at == 1 && !self.skip(":") {
                    break;
                }
                if !self.is(":") && !self.is("]") && !self.is(",") {
                    slice[place] = Some(self.expression()?);
                }
            }
            sliced = Some(slice);
        }
        self.expect("]")?;
        match (sliced, parts.len()) {
            (Some(slice), 0) => Ok(Expr::Slice(Box::new(value), Box::new(slice))),
            (None, 1) => match parts.pop() {
                Some(one) => Ok(Expr::Index(Box::new(value), Box::new(one))),
                None => self.fail("expected an index"),
            },
            (None, _) => Ok(Expr::Index(Box::new(value), Box::new(Expr::Tuple(parts)))),
            _ => self.fail("an index is a slice or a value"),
        }
    }

    fn primary(&mut self) -> Result<Expr> {
        Ok(match self.peek() {
            Token::Name(_) => {
                let name = self.name()?;
                match name.as_str() {
                    "true" | "True" => Expr::Bool(true),
                    "false" | "False" => Expr::Bool(false),
                    "none" | "None" => Expr::None,
                    _ => {
                        self.read_name(&name);
                        Expr::Name(name)
                    }
                }
            }
            Token::Str(_) => {
                let mut text = String::new();
                while let Token::Str(part) = self.peek() {
                    text.push_str(part);
                    self.next();
                }
                Expr::Str(text)
            }
            Token::Int(number) => {
                let number = *number;
                self.next();
                Expr::Int(number)
            }
            Token::Float(number) => {
                let number = *number;
                self.next();
                Expr::Float(number)
            }
            Token::Operator("(") => {
                self.next();
                let value = match self.is(")") {
                    true => Expr::Tuple(Vec::new()),
                    false => self.nested(|parser| parser.tuple(true, &[]))?,
                };
                self.expect(")")?;
                value
            }
            Token::Operator("[") => {
                self.next();
                let mut items = Vec::new();
                while !self.is("]") {
                    items.push(self.expression()?);
                    if !self.skip(",") {
                        break;
                    }
                }
                self.expect("]")?;
                Expr::List(items)
            }
            Token::Operator("{") => {
                self.next();
                let mut entries = Vec::new();
                while !self.is("}") {
                    let key = self.expression()?;
                    self.expect(":")?;
                    entries.push((key, self.expression()?));
                    if !self.skip(",") {
                        break;
                    }
                }
                self.expect("}")?;
                Expr::Dict(entries)
            }
            token => return self.fail(format!("unexpected {}", shown(token))),
        })
    }

    fn arguments(&mut self) -> Result<Arguments> {
        self.expect("(")?;
        let mut arguments = Arguments::default();
        while !self.is(")") {
            if self.skip("*") {
                if arguments.rest.is_some() || arguments.named_rest.is_some() {
                    return self.fail("invalid arguments of a call");
                }
                arguments.rest = Some(Box::new(self.expression()?));
            } else if self.skip("**") {
                if arguments.named_rest.is_some() {
                    return self.fail("invalid arguments of a call");
                }
                arguments.named_rest = Some(Box::new(self.expression()?));
            } else if matches!(self.peek(), Token::Name(_)) && *self.look() == Token::Operator("=")
            {
                let name = self.name()?;
                self.next();
                if arguments.named_rest.is_some() || arguments.named.iter().any(|(n, _)| *n == name)
                {
                    return self.fail("invalid arguments of a call");
                }
                arguments.named.push((name, self.expression()?));
                if arguments.named.len() > MAX_NAMES {
                    return self.fail("a call has too many arguments");
                }
            } else {
                let late = arguments.rest.is_some() || arguments.named_rest.is_some();
                if late || !arguments.named.is_empty() {
                    return self.fail("invalid arguments of a call");
                }
                arguments.positional.push(self.expression()?);
            }
            if !self.skip(",") {
                break;
            }
        }
        self.expect(")")?;
        Ok(arguments)
    }

    fn filters(&mut self, mut value: Expr) -> Result<Expr> {
        let mut length = 0;
        while self.skip("|") {
            value = self.filter(value)?;
            self.longer(&mut length)?;
        }
        Ok(value)
    }

    fn first_filter(&mut self) -> Result<Expr> {
        let value = self.filter(Expr::Captured)?;
        self.filters(value)
    }

    fn dotted(&mut self) -> Result<String> {
        let mut name = self.name()?;
        while self.skip(".") {
            name = name + "." + &self.name()?;
        }
        Ok(name)
    }

    fn filter(&mut self, value: Expr) -> Result<Expr> {
        let name = self.dotted()?;
        let arguments = match self.is("(") {
            true => self.arguments()?,
            false => Arguments::default(),
        };
        Ok(Expr::Filter(Box::new(value), name, arguments))
    }

    fn test(&mut self, value: Expr) -> Result<Expr> {
        let negated = self.skip_name("not");
        let name = self.dotted()?;
        let mut arguments = Arguments::default();
        if self.is("(") {
            arguments = self.arguments()?;
        } else {
            let begins = match self.peek() {
                Token::Name(name) => !["else", "or", "and"].contains(&name.as_str()),
                Token::Str(_) | Token::Int(_) | Token::Float(_) => true,
                _ => self.is("[") || self.is("{"),
            };
            if begins {
                if self.is_name("is") {
                    return self.fail("tests cannot be chained with is");
                }
                let operand = self.nested(Self::primary)?;
                arguments.positional.push(self.postfix(operand, &mut 0)?);
            }
        }
        let test = Expr::Test(Box::new(value), name, arguments);
        Ok(if negated { Expr::Not(Box::new(test)) } else { test })
    }
}

fn one_or(mut parts: Vec<Expr>, several: fn(Vec<Expr>) -> Expr) -> Expr {
    if parts.len() > 1 {
        return several(parts);
    }
    parts.pop().unwrap_or(Expr::None)
}

fn shown(token: &Token) -> String {
    match token {
        Token::Data(_) => "text".into(),
        Token::VariableBegin => "\"{{\"".into(),
        Token::VariableEnd => "\"}}\"".into(),
        Token::BlockBegin => "\"{%\"".into(),
        Token::BlockEnd => "\"%}\"".into(),
        Token::Name(name) => format!("{name:?}"),
        Token::Str(_) => "a string".into(),
        Token::Int(_) | Token::Float(_) => "a number".into(),
        Token::Operator(sign) => format!("{sign:?}"),
        Token::End => "end".into(),
    }
}
