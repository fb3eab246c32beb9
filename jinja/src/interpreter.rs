//! Runs a template.

use crate::ast::{self, Arguments, Binary, Body, Comparison, Expr, For, Stmt, Target};
use crate::date::Date;
use crate::failure::{fail, Error, Result};
use crate::value::{escape, live_bytes, range_len, Dict, Items, Text, Value, View};
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;

/// The deepest nesting of calls, loops and expressions.
const MAX_DEPTH: usize = 1500;

/// Variables, and the scope around them.
pub struct Scope {
    variables: RefCell<HashMap<String, Value>>,
    parent: Option<Rc<Scope>>,
}

impl Scope {
    pub fn new(parent: Option<Rc<Scope>>) -> Rc<Self> {
        Rc::new(Self { variables: RefCell::default(), parent })
    }

    fn get(&self, name: &str) -> Option<Value> {
        let mut scope = self;
        loop {
            if let Some(value) = scope.variables.borrow().get(name) {
                return Some(value.clone());
            }
            scope = scope.parent.as_ref()?;
        }
    }

    pub fn set(&self, name: &str, value: Value) {
        self.variables.borrow_mut().insert(name.to_string(), value);
    }
}

pub struct Macro {
    pub definition: Arc<ast::Macro>,
    scope: Rc<Scope>,
}

impl Macro {
    pub fn name(&self) -> Option<&str> {
        self.definition.name.as_deref()
    }
}

/// The variable `loop`.
pub struct Loop {
    id: u64,
    source: RefCell<Rc<Items>>,
    at: Cell<usize>,
    filtered: Cell<bool>,
    drained: Cell<Option<usize>>,
    pub index0: Cell<i128>,
    depth0: i128,
    pub depth: u32,
    after: RefCell<Option<Value>>,
    current: RefCell<Option<Value>>,
    before: RefCell<Option<Value>>,
    code: Arc<For>,
    scope: Rc<Scope>,
    error: RefCell<Option<Error>>,
}

impl Loop {
    pub fn total(&self) -> usize {
        self.drained.get().unwrap_or_else(|| self.source.borrow().len())
    }
}

/// The arguments of a call.
#[derive(Default)]
pub struct Args {
    pub positional: Vec<Value>,
    pub named: Vec<(String, Value)>,
}

impl Args {
    /// The arguments of a function with these parameters, as Python binds them. A name that begins with `/` can't be used as
    /// one.
    pub fn bind<const N: usize>(self, what: &str, names: [&str; N]) -> Result<[Option<Value>; N]> {
        let mut bound = [const { None }; N];
        if self.positional.len() > N {
            return fail(format!("{what} takes at most {N} arguments"));
        }
        for (place, value) in bound.iter_mut().zip(self.positional) {
            *place = Some(value);
        }
        for (name, value) in self.named {
            let Some(at) = names.iter().position(|known| *known == name) else {
                return fail(format!("{what} takes no argument {name}"));
            };
            if bound[at].is_some() {
                return fail(format!("{what} got two values for {name}"));
            }
            bound[at] = Some(value);
        }
        Ok(bound)
    }
}

/// How to go on after a statement.
enum Flow {
    Next,
    Break,
    Continue,
}

pub struct Interpreter {
    pub fuel: u64,
    live_limit: usize,
    pub size_limit: usize,
    pub now: Date,
    out: String,
    line: usize,
    depth: usize,
    scope: Rc<Scope>,
    captured: Vec<Value>,
    loops: u64,
    changed: HashMap<u64, Vec<Value>>,
    /// Scopes and namespaces can contain themselves, so they are emptied one by one at the end.
    scopes: Vec<Rc<Scope>>,
    namespaces: Vec<Rc<RefCell<Dict>>>,
}

impl Drop for Interpreter {
    fn drop(&mut self) {
        self.changed.clear();
        for scope in self.scopes.iter().chain([&self.scope]) {
            let variables = scope.variables.take();
            drop(variables);
        }
        for namespace in &self.namespaces {
            let entries = namespace.replace(Dict::new());
            drop(entries);
        }
    }
}

impl Interpreter {
    /// `fuel` is the number of steps it can take, `size` the number of bytes its values can hold.
    pub fn new(fuel: u64, size: usize, now: Date) -> Self {
        Self {
            fuel,
            live_limit: live_bytes() + size,
            size_limit: size,
            now,
            out: String::new(),
            line: 1,
            depth: 0,
            scope: Scope::new(None),
            captured: Vec::new(),
            loops: 0,
            changed: HashMap::new(),
            scopes: Vec::new(),
            namespaces: Vec::new(),
        }
    }

    pub fn set(&mut self, name: &str, value: Value) {
        self.scope.set(name, value);
    }

    pub fn run(&mut self, body: &Body) -> Result<String> {
        let ran = self.body(body);
        ran.map_err(|mut error| {
            error.line.get_or_insert(self.line);
            error
        })?;
        Ok(std::mem::take(&mut self.out))
    }

    /// Spends steps.
    pub fn charge(&mut self, steps: usize) -> Result<()> {
        match self.fuel.checked_sub(steps as u64) {
            Some(left) => self.fuel = left,
            None => {
                return fail(
                    "it takes too long: this many steps are more than a chat template needs",
                )
            }
        }
        if live_bytes() > self.live_limit {
            return fail("it takes too much memory");
        }
        Ok(())
    }

    /// Checks that a value of this many bytes fits, before it is created.
    pub fn room(&mut self, bytes: usize) -> Result<()> {
        if live_bytes().saturating_add(bytes) > self.live_limit {
            return fail("it takes too much memory");
        }
        self.charge(1 + bytes / 32)
    }

    /// Checks that a text can grow by this many bytes.
    pub fn longer(&mut self, text: &str, part: usize) -> Result<()> {
        if live_bytes().saturating_add(text.len()).saturating_add(part) > self.live_limit {
            return fail("it takes too much memory");
        }
        self.charge(part / 32)
    }

    pub fn text(&mut self, text: String) -> Result<Value> {
        self.room(text.len())?;
        Ok(Value::str(text))
    }

    pub fn list(&mut self, values: Vec<Value>) -> Result<Value> {
        self.room(values.len() * 32)?;
        Value::list(values)
    }

    /// Returns a value's text and checks its size.
    pub fn text_of(&mut self, value: &Value) -> Result<String> {
        let text = value.to_text()?;
        self.room(text.len())?;
        Ok(text)
    }

    pub fn deeper<T>(&mut self, part: impl FnOnce(&mut Self) -> Result<T>) -> Result<T> {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            self.depth -= 1;
            return fail("its calls are nested too deeply");
        }
        let value = part(self);
        self.depth -= 1;
        value
    }

    fn write(&mut self, text: &str) -> Result<()> {
        if self.out.len() + text.len() > self.size_limit {
            return fail("its text gets too long");
        }
        self.charge(text.len() / 32)?;
        self.out.push_str(text);
        Ok(())
    }

    /// Captures the output of a part as a text.
    fn capture(&mut self, part: impl FnOnce(&mut Self) -> Result<()>) -> Result<Value> {
        let before = std::mem::take(&mut self.out);
        let limit = self.size_limit;
        self.size_limit = limit.saturating_sub(before.len());
        let done = part(self);
        self.size_limit = limit;
        let text = std::mem::replace(&mut self.out, before);
        done?;
        self.text(text)
    }

    /// Runs a part in a new scope inside `parent`.
    fn scoped<T>(
        &mut self,
        parent: Rc<Scope>,
        part: impl FnOnce(&mut Self) -> Result<T>,
    ) -> Result<T> {
        let outer = std::mem::replace(&mut self.scope, Scope::new(Some(parent)));
        let done = part(self);
        self.scope = outer;
        done
    }

    fn here(&self) -> Rc<Scope> {
        self.scope.clone()
    }

    fn body(&mut self, body: &Body) -> Result<Flow> {
        self.deeper(|me| {
            for (statement, line) in body {
                me.line = *line;
                match me.statement(statement)? {
                    Flow::Next => {}
                    flow => return Ok(flow),
                }
            }
            Ok(Flow::Next)
        })
    }

    fn statement(&mut self, statement: &Stmt) -> Result<Flow> {
        self.charge(1)?;
        match statement {
            Stmt::Data(text) => self.write(text)?,
            Stmt::Print(expr) => {
                let value = self.eval(expr)?;
                match &value {
                    Value::Str(text) => self.write(text)?,
                    value => {
                        let text = self.text_of(value)?;
                        self.write(&text)?;
                    }
                }
            }
            Stmt::If(branches, otherwise) => {
                for (test, body) in branches {
                    if self.eval(test)?.is_true() {
                        return self.body(body);
                    }
                }
                return self.body(otherwise);
            }
            Stmt::For(code) => {
                let items = self.eval(&code.items)?;
                let scope = self.here();
                self.run_loop(code, &items, scope, 0)?;
            }
            Stmt::Set(target, expr) => {
                let value = self.eval(expr)?;
                self.assign(target, value)?;
            }
            Stmt::SetBlock(target, filters, body) => {
                let text = self.capture_body(body)?;
                let value = self.filtered(filters, text)?;
                self.assign(target, value)?;
            }
            Stmt::With(values, body) => {
                let mut evaluated = Vec::new();
                for (target, value) in values {
                    evaluated.push((target, self.eval(value)?));
                }
                let here = self.here();
                self.scoped(here, |me| {
                    for (target, value) in evaluated {
                        me.assign(target, value)?;
                    }
                    me.body(body)
                })?;
            }
            Stmt::Macro(definition) => {
                let value = self.new_macro(definition)?;
                if let Some(name) = &definition.name {
                    self.scope.set(name, value);
                }
            }
            Stmt::Call(call, definition) => {
                let Expr::Call(function, arguments) = call else { return fail("expected a call") };
                let caller = self.new_macro(definition)?;
                let function = self.eval(function)?;
                let mut args = self.arguments(arguments)?;
                args.named.push(("caller".into(), caller));
                let value = self.call(&function, args)?;
                let text = self.text_of(&value)?;
                self.write(&text)?;
            }
            Stmt::Filter(filters, body) => {
                let text = self.capture_body(body)?;
                let value = self.filtered(filters, text)?;
                let text = self.text_of(&value)?;
                self.write(&text)?;
            }
            Stmt::Scope(body) => {
                let here = self.here();
                self.scoped(here, |me| me.body(body))?;
            }
            Stmt::Block(body) => {
                let mut root = self.here();
                while let Some(parent) = root.parent.clone() {
                    root = parent;
                }
                self.scoped(root, |me| me.body(body))?;
            }
            Stmt::Break => return Ok(Flow::Break),
            Stmt::Continue => return Ok(Flow::Continue),
            Stmt::Elsewhere(tag) => return fail(format!("{tag}: not in a chat template")),
        }
        Ok(Flow::Next)
    }

    fn capture_body(&mut self, body: &Body) -> Result<Value> {
        let here = self.here();
        self.capture(|me| me.scoped(here, |me| me.body(body)).map(drop))
    }

    fn filtered(&mut self, filters: &Expr, text: Value) -> Result<Value> {
        self.captured.push(text);
        let value = self.eval(filters);
        self.captured.pop();
        value
    }

    fn new_macro(&mut self, definition: &Arc<ast::Macro>) -> Result<Value> {
        let scope = self.here();
        self.charge(50)?; // it stays until the end
        if !self.scopes.last().is_some_and(|last| Rc::ptr_eq(last, &scope)) {
            self.scopes.push(scope.clone());
        }
        Ok(Value::Macro(Rc::new(Macro { definition: definition.clone(), scope })))
    }

    fn assign(&mut self, target: &Target, value: Value) -> Result<()> {
        match target {
            Target::Name(name) => self.scope.set(name, value),
            Target::Attribute(name, attribute) => {
                let Some(Value::Namespace(namespace)) = self.scope.get(name) else {
                    return fail("cannot assign attribute on non-namespace object");
                };
                if attribute.starts_with('_') {
                    return fail("an attribute of a namespace cannot begin with an underscore");
                }
                namespace.borrow_mut().insert(Value::str(attribute), value, &mut self.fuel)?;
            }
            Target::Tuple(targets) => {
                let values = self.iterate(&value)?;
                if values.len() != targets.len() {
                    let (wanted, found) = (targets.len(), values.len());
                    return fail(format!("cannot unpack {found} values into {wanted}"));
                }
                for (target, value) in targets.iter().zip(values) {
                    self.assign(target, value)?;
                }
            }
        }
        Ok(())
    }

    // Loops

    fn run_loop(
        &mut self,
        code: &Arc<For>,
        items: &Value,
        scope: Rc<Scope>,
        depth0: i128,
    ) -> Result<()> {
        let (items, error) = self.items(items)?;
        let Value::List(source) = self.list(items)? else { return fail("no list") };
        self.loops += 1;
        if code.recursive {
            self.charge(50)?; // as of a macro
            self.scopes.push(scope.clone());
        }
        let depth = Value::List(source.clone()).depth();
        let state = Rc::new(Loop {
            id: self.loops,
            source: RefCell::new(source),
            at: Cell::new(0),
            filtered: Cell::new(code.test.is_some()),
            drained: Cell::new(None),
            index0: Cell::new(-1),
            depth0,
            depth,
            after: RefCell::default(),
            current: RefCell::default(),
            before: RefCell::default(),
            code: code.clone(),
            scope: scope.clone(),
            error: RefCell::new(error),
        });
        while let Some(item) = self.advance(&state)? {
            let flow = self.scoped(scope.clone(), |me| {
                me.charge(1)?;
                me.assign(&code.target, item)?;
                me.scope.set("loop", Value::Loop(state.clone()));
                me.body(&code.body)
            })?;
            if matches!(flow, Flow::Break) {
                break;
            }
        }
        self.changed.remove(&state.id);
        if state.index0.get() < 0 {
            self.scoped(scope, |me| me.body(&code.otherwise).map(drop))?;
        }
        Ok(())
    }

    fn advance(&mut self, state: &Rc<Loop>) -> Result<Option<Value>> {
        let peeked = state.after.take();
        let item = match peeked {
            Some(item) => Some(item),
            None => self.pull(state)?,
        };
        if let Some(item) = &item {
            state.index0.set(state.index0.get() + 1);
            let current = state.current.replace(Some(item.clone()));
            state.before.replace(current);
        }
        Ok(item)
    }

    /// Returns the next item that passes the loop's test.
    fn pull(&mut self, state: &Rc<Loop>) -> Result<Option<Value>> {
        loop {
            let item = state.source.borrow().get(state.at.get()).cloned();
            let Some(item) = item else {
                return match state.error.take() {
                    Some(error) => Err(error),
                    None => Ok(None),
                };
            };
            state.at.set(state.at.get() + 1);
            let Some(test) = state.code.test.as_ref().filter(|_| state.filtered.get()) else {
                return Ok(Some(item));
            };
            let passes = self.scoped(state.scope.clone(), |me| {
                me.charge(1)?;
                me.assign(&state.code.target, item.clone())?;
                Ok(me.eval(test)?.is_true())
            })?;
            if passes {
                return Ok(Some(item));
            }
        }
    }

    fn peek(&mut self, state: &Rc<Loop>) -> Result<Option<Value>> {
        if state.after.borrow().is_none() {
            let item = self.pull(state)?;
            *state.after.borrow_mut() = item;
        }
        Ok(state.after.borrow().clone())
    }

    fn loop_length(&mut self, state: &Rc<Loop>) -> Result<i128> {
        if let Some(length) = state.drained.get() {
            return Ok(length as i128);
        }
        if !state.filtered.get() && state.error.borrow().is_none() {
            return Ok(state.source.borrow().len() as i128);
        }
        let mut rest = Vec::new();
        while let Some(item) = self.pull(state)? {
            rest.push(item);
        }
        let peeked = usize::from(state.after.borrow().is_some());
        let length = rest.len() + (state.index0.get() + 1) as usize + peeked;
        let Value::List(rest) = self.list(rest)? else { return fail("no list") };
        state.source.replace(rest);
        state.at.set(0);
        state.filtered.set(false);
        state.drained.set(Some(length));
        Ok(length as i128)
    }

    fn loop_attribute(&mut self, state: &Rc<Loop>, name: &str) -> Result<Option<Value>> {
        let index0 = state.index0.get();
        Ok(Some(match name {
            "index0" => Value::Int(index0),
            "index" => Value::Int(index0 + 1),
            "first" => Value::Bool(index0 == 0),
            "last" => Value::Bool(self.peek(state)?.is_none()),
            "length" => Value::Int(self.loop_length(state)?),
            "revindex" => Value::Int(self.loop_length(state)? - index0),
            "revindex0" => Value::Int(self.loop_length(state)? - index0 - 1),
            "depth" => Value::Int(state.depth0 + 1),
            "depth0" => Value::Int(state.depth0),
            "nextitem" => {
                let next = self.peek(state)?;
                next.unwrap_or_else(|| Value::undefined("there is no next item"))
            }
            "previtem" => match state.before.borrow().clone().filter(|_| index0 > 0) {
                Some(item) => item,
                None => Value::undefined("there is no previous item"),
            },
            "cycle" => Value::Method(Rc::new((Value::Loop(state.clone()), "cycle"))),
            "changed" => Value::Method(Rc::new((Value::Loop(state.clone()), "changed"))),
            _ => return Ok(None),
        }))
    }

    // Expressions

    pub fn eval(&mut self, expr: &Expr) -> Result<Value> {
        self.charge(1)?;
        self.deeper(|me| me.evaluated(expr))
    }

    fn evaluated(&mut self, expr: &Expr) -> Result<Value> {
        Ok(match expr {
            Expr::None => Value::None,
            Expr::Bool(yes) => Value::Bool(*yes),
            Expr::Int(number) => Value::Int(*number),
            Expr::Float(number) => Value::Float(*number),
            Expr::Str(text) => self.text(text.clone())?,
            Expr::Captured => match self.captured.last() {
                Some(text) => text.clone(),
                None => return fail("nothing was written"),
            },
            Expr::Name(name) => match self.scope.get(name) {
                Some(value) => value,
                None => match crate::globals::global(name) {
                    Some(value) => value,
                    None => Value::undefined(format!("'{name}' is undefined")),
                },
            },
            Expr::List(parts) => {
                let values = self.values(parts)?;
                self.list(values)?
            }
            Expr::Tuple(parts) => {
                let values = self.values(parts)?;
                self.room(values.len() * 32)?;
                Value::tuple(values)?
            }
            Expr::Dict(parts) => {
                let mut dict = Dict::new();
                for (key, value) in parts {
                    let (key, value) = (self.eval(key)?, self.eval(value)?);
                    dict.insert(key, value, &mut self.fuel)?;
                }
                Value::dict(dict)
            }
            Expr::Chain(first, rest) => {
                let mut value = self.eval(first)?;
                for (operator, other) in rest {
                    let other = self.eval(other)?;
                    value = self.binary(*operator, &value, &other)?;
                }
                value
            }
            Expr::Concat(parts) => {
                let mut text = String::new();
                for part in parts {
                    let value = self.eval(part)?;
                    match &value {
                        Value::Str(part) => {
                            self.longer(&text, part.len())?;
                            text.push_str(part);
                        }
                        value => text.push_str(&self.text_of(value)?),
                    }
                }
                self.text(text)?
            }
            Expr::And(parts) => {
                let mut value = Value::None;
                for part in parts {
                    value = self.eval(part)?;
                    if !value.is_true() {
                        break;
                    }
                }
                value
            }
            Expr::Or(parts) => {
                let mut value = Value::None;
                for part in parts {
                    value = self.eval(part)?;
                    if value.is_true() {
                        break;
                    }
                }
                value
            }
            Expr::Not(value) => Value::Bool(!self.eval(value)?.is_true()),
            Expr::Negative(value) => {
                let value = self.eval(value)?;
                match (value.as_int(), value.defined()?) {
                    (Some(number), _) => match number.checked_neg() {
                        Some(number) => Value::Int(number),
                        None => return too_large(),
                    },
                    (_, Value::Float(number)) => Value::Float(-number),
                    (_, value) => {
                        return fail(format!(
                            "bad operand type for unary -: '{}'",
                            value.type_name()
                        ))
                    }
                }
            }
            Expr::Positive(value) => {
                let value = self.eval(value)?;
                match (value.as_int(), value.defined()?) {
                    (Some(number), _) => Value::Int(number),
                    (_, Value::Float(number)) => Value::Float(*number),
                    (_, value) => {
                        return fail(format!(
                            "bad operand type for unary +: '{}'",
                            value.type_name()
                        ))
                    }
                }
            }
            Expr::Compare(first, rest) => {
                let mut left = self.eval(first)?;
                for (comparison, right) in rest {
                    let right = self.eval(right)?;
                    if !self.compare(*comparison, &left, &right)? {
                        return Ok(Value::Bool(false));
                    }
                    left = right;
                }
                Value::Bool(true)
            }
            Expr::Choice(parts, other) => {
                if self.eval(&parts.1)?.is_true() {
                    return self.eval(&parts.0);
                }
                match other {
                    Some(other) => self.eval(other)?,
                    None => Value::undefined(
                        "the inline if-expression evaluated to false and no else section was defined",
                    ),
                }
            }
            Expr::Attribute(value, name) => {
                let value = self.eval(value)?;
                self.attribute(&value, name)?
            }
            Expr::Index(value, index) => {
                let (value, index) = (self.eval(value)?, self.eval(index)?);
                self.index(&value, &index)?
            }
            Expr::Slice(value, parts) => {
                let value = self.eval(value)?;
                let mut bounds = [None; 3];
                for (bound, part) in bounds.iter_mut().zip(parts.iter()) {
                    let Some(part) = part else { continue };
                    let part = self.eval(part)?;
                    *bound = match &part {
                        Value::None => None,
                        part => match part.as_int() {
                            Some(number) => Some(number),
                            None => return fail("slice indices must be integers or None"),
                        },
                    };
                }
                self.slice(&value, bounds)?
            }
            Expr::Call(function, arguments) => {
                let function = self.eval(function)?;
                let args = self.arguments(arguments)?;
                self.call(&function, args)?
            }
            Expr::Filter(value, name, arguments) => {
                let value = self.eval(value)?;
                let args = self.arguments(arguments)?;
                self.filter(name, value, args)?
            }
            Expr::Test(value, name, arguments) => {
                let value = self.eval(value)?;
                let args = self.arguments(arguments)?;
                Value::Bool(self.test(name, &value, args)?)
            }
        })
    }

    fn values(&mut self, parts: &[Expr]) -> Result<Vec<Value>> {
        parts.iter().map(|part| self.eval(part)).collect()
    }

    fn arguments(&mut self, arguments: &Arguments) -> Result<Args> {
        let mut args = Args { positional: self.values(&arguments.positional)?, named: Vec::new() };
        for (name, value) in &arguments.named {
            args.named.push((name.clone(), self.eval(value)?));
        }
        if let Some(rest) = &arguments.rest {
            let rest = self.eval(rest)?;
            args.positional.extend(self.iterate(&rest)?);
        }
        if let Some(rest) = &arguments.named_rest {
            let Value::Dict(rest) = self.eval(rest)? else {
                return fail("argument after ** must be a mapping");
            };
            self.charge(rest.entries().len())?;
            for (key, value) in rest.entries() {
                let Some(name) = key.as_str() else { return fail("keywords must be strings") };
                self.charge(args.named.len())?;
                if args.named.iter().any(|(known, _)| known == name) {
                    return fail(format!("got two values for {name}"));
                }
                args.named.push((name.to_string(), value.clone()));
            }
        }
        Ok(args)
    }

    /// Collects the items of an iterable, and the error that ends it, if one does. A generator is used up.
    pub fn items(&mut self, value: &Value) -> Result<(Vec<Value>, Option<Error>)> {
        let mut error = None;
        let values: Vec<Value> = match value {
            Value::Undefined(_) => Vec::new(),
            Value::List(items) | Value::Tuple(items) => {
                self.room(items.len() * 32)?;
                items.to_vec()
            }
            Value::Str(text) => {
                self.room(text.len() * 64)?;
                text.chars().map(Value::str).collect()
            }
            Value::Dict(dict) | Value::View(View::Keys, dict) => {
                self.room(dict.entries().len() * 32)?;
                dict.entries().iter().map(|(key, _)| key.clone()).collect()
            }
            Value::View(View::Values, dict) => {
                self.room(dict.entries().len() * 32)?;
                dict.entries().iter().map(|(_, value)| value.clone()).collect()
            }
            Value::View(View::Items, dict) => {
                self.room(dict.entries().len() * 128)?;
                let pair =
                    |(key, value): &(Value, Value)| Value::tuple(vec![key.clone(), value.clone()]);
                dict.entries().iter().map(pair).collect::<Result<_>>()?
            }
            Value::Range { start, stop, step } => {
                let length = range_len(*start, *stop, *step);
                self.room(length * 32)?;
                (0..length).map(|at| Value::Int(start + step * at as i128)).collect()
            }
            Value::Generator(generator) => {
                error = generator.error.take();
                generator.rest.take().into()
            }
            Value::Loop(state) => {
                let mut rest = Vec::new();
                while let Some(item) = self.advance(&state.clone())? {
                    rest.push(self.pair(item, Value::Loop(state.clone()))?);
                }
                rest
            }
            value => return fail(format!("'{}' object is not iterable", value.type_name())),
        };
        self.charge(values.len())?;
        Ok((values, error))
    }

    fn pair(&mut self, a: Value, b: Value) -> Result<Value> {
        self.room(64)?;
        Value::tuple(vec![a, b])
    }

    pub fn iterate(&mut self, value: &Value) -> Result<Vec<Value>> {
        match self.items(value)? {
            (_, Some(error)) => Err(error),
            (values, None) => Ok(values),
        }
    }

    pub fn equal(&mut self, a: &Value, b: &Value) -> Result<bool> {
        let size = |value: &Value| match value {
            Value::Str(text) => text.len() / 32,
            Value::List(items) | Value::Tuple(items) => 4 * items.len(),
            Value::Dict(dict) => 8 * dict.entries().len(),
            _ => 0,
        };
        self.charge(size(a).min(size(b)))?;
        a.equals(b, &mut self.fuel)
    }

    /// Python's `<`, as an order.
    pub fn order(&mut self, a: &Value, b: &Value) -> Result<Option<std::cmp::Ordering>> {
        a.compare(b, &mut self.fuel)
    }

    fn compare(&mut self, comparison: Comparison, a: &Value, b: &Value) -> Result<bool> {
        use std::cmp::Ordering::{Greater, Less};
        Ok(match comparison {
            Comparison::Eq => self.equal(a, b)?,
            Comparison::Ne => !self.equal(a, b)?,
            Comparison::In => self.contains(b, a)?,
            Comparison::NotIn => !self.contains(b, a)?,
            comparison => {
                let order = self.order(a, b)?;
                match comparison {
                    Comparison::Lt => order == Some(Less),
                    Comparison::Gt => order == Some(Greater),
                    Comparison::Le => order.is_some_and(|order| order != Greater),
                    _ => order.is_some_and(|order| order != Less),
                }
            }
        })
    }

    pub fn contains(&mut self, whole: &Value, part: &Value) -> Result<bool> {
        Ok(match whole {
            Value::Str(text) => {
                self.charge(text.len() / 32)?;
                match part {
                    Value::Str(part) => text.contains(&***part),
                    part => {
                        part.defined()?;
                        return fail(format!(
                            "'in <string>' requires string as left operand, not {}",
                            part.type_name()
                        ));
                    }
                }
            }
            Value::Dict(dict) | Value::View(View::Keys, dict) => {
                dict.get(&part.key(&mut self.fuel)?).is_some()
            }
            whole => {
                for value in self.iterate(whole)? {
                    if self.equal(&value, part)? {
                        return Ok(true);
                    }
                }
                false
            }
        })
    }

    pub fn binary(&mut self, operator: Binary, a: &Value, b: &Value) -> Result<Value> {
        if let (Binary::Mod, Value::Str(format)) = (operator, a) {
            self.charge(format.len() / 16)?;
            let text = crate::format::percent(self, format, b)?;
            return self.text(text);
        }
        a.defined()?;
        b.defined()?;
        if let (Some(x), Some(y)) = (a.as_int(), b.as_int()) {
            return integers(operator, x, y);
        }
        if let (Some(x), Some(y)) = (a.as_number(), b.as_number()) {
            return floats(operator, x, y);
        }
        match (operator, a, b) {
            (Binary::Add, Value::Str(a), Value::Str(b)) if a.safe || b.safe => {
                self.room(6 * (a.len() + b.len()))?;
                let part = |text: &Text| match text.safe {
                    true => text.to_string(),
                    false => escape(text),
                };
                Ok(Value::markup(part(a) + &part(b)))
            }
            (Binary::Add, Value::Str(a), Value::Str(b)) => {
                self.room(a.len() + b.len())?;
                Ok(Value::str([&***a, &***b].concat()))
            }
            (Binary::Add, Value::List(a), Value::List(b)) => {
                self.room((a.len() + b.len()) * 32)?;
                Value::list([&***a, &***b].concat())
            }
            (Binary::Add, Value::Tuple(a), Value::Tuple(b)) => {
                self.room((a.len() + b.len()) * 32)?;
                Value::tuple([&***a, &***b].concat())
            }
            (Binary::Mul, value, times) | (Binary::Mul, times, value)
                if times.as_int().is_some()
                    && matches!(value, Value::Str(_) | Value::List(_) | Value::Tuple(_)) =>
            {
                let times =
                    usize::try_from(times.as_int().unwrap_or(0).max(0)).unwrap_or(usize::MAX);
                match value {
                    Value::Str(text) => {
                        self.room(text.len().saturating_mul(times))?;
                        let times = if text.is_empty() { 0 } else { times };
                        let repeated = text.repeat(times);
                        Ok(if text.safe { Value::markup(repeated) } else { Value::str(repeated) })
                    }
                    Value::List(items) | Value::Tuple(items) => {
                        self.room(items.len().saturating_mul(times).saturating_mul(32))?;
                        let times = if items.is_empty() { 0 } else { times };
                        let items = (0..times).flat_map(|_| items.iter().cloned()).collect();
                        if matches!(value, Value::List(_)) {
                            Value::list(items)
                        } else {
                            Value::tuple(items)
                        }
                    }
                    _ => fail("no sequence"),
                }
            }
            _ => fail(format!(
                "unsupported operand type(s) for {}: '{}' and '{}'",
                match operator {
                    Binary::Add => "+",
                    Binary::Sub => "-",
                    Binary::Mul => "*",
                    Binary::Div => "/",
                    Binary::FloorDiv => "//",
                    Binary::Mod => "%",
                    Binary::Pow => "**",
                },
                a.type_name(),
                b.type_name()
            )),
        }
    }

    // Attributes and items

    /// `value.name`: an attribute, else an item.
    pub fn attribute(&mut self, value: &Value, name: &str) -> Result<Value> {
        if let Some(found) = self.own_attribute(value.defined()?, name)? {
            return Ok(found);
        }
        if let Value::Dict(dict) = value {
            if let Some(found) = dict.get_str(name) {
                return Ok(found.clone());
            }
        }
        Ok(missing(value, &format!("'{name}'")))
    }

    /// `value[key]`: an item, else an attribute.
    pub fn index(&mut self, value: &Value, key: &Value) -> Result<Value> {
        match value.defined()? {
            Value::Dict(dict) => {
                if let Ok(key) = key.key(&mut self.fuel) {
                    if let Some(found) = dict.get(&key) {
                        return Ok(found.clone());
                    }
                }
            }
            Value::List(items) | Value::Tuple(items) => {
                if let Some(at) = place(key, items.len()) {
                    return Ok(items[at].clone());
                }
            }
            Value::Str(text) if key.as_int().is_some() => {
                self.charge(text.len() / 16)?;
                let length = text.chars().count();
                if let Some(c) = place(key, length).and_then(|at| text.chars().nth(at)) {
                    return Ok(Value::str(c));
                }
            }
            Value::Range { start, stop, step } => {
                if let Some(at) = place(key, range_len(*start, *stop, *step)) {
                    return Ok(Value::Int(start + step * at as i128));
                }
            }
            _ => {}
        }
        if let Some(name) = key.as_str() {
            if let Some(found) = self.own_attribute(value, name)? {
                return Ok(found);
            }
        }
        let name = key.repr()?;
        Ok(missing(value, &name))
    }

    /// Python's `getattr`, in the sandbox.
    pub fn own_attribute(&mut self, value: &Value, name: &str) -> Result<Option<Value>> {
        let found = match value {
            Value::Namespace(namespace) => namespace.borrow().get_str(name).cloned(),
            Value::Loop(state) => self.loop_attribute(&state.clone(), name)?,
            Value::Macro(one) => match name {
                "name" => Some(one.name().map_or(Value::None, Value::str)),
                "arguments" => {
                    let names = one.definition.parameters.iter().map(|(name, _)| Value::str(name));
                    Some(Value::tuple(names.collect())?)
                }
                "catch_kwargs" => Some(Value::Bool(one.definition.uses_kwargs)),
                "catch_varargs" => Some(Value::Bool(one.definition.uses_varargs)),
                "caller" => Some(Value::Bool(one.definition.uses_caller)),
                _ => None,
            },
            Value::Cycler(cycler) if name == "current" => {
                cycler.0.get(cycler.1.get() % cycler.0.len().max(1)).cloned()
            }
            Value::Tuple(items) if items.len() == 2 && name == "grouper" => items.first().cloned(),
            Value::Tuple(items) if items.len() == 2 && name == "list" => items.get(1).cloned(),
            value => crate::methods::attribute(value, name),
        };
        Ok(found)
    }

    fn slice(&mut self, value: &Value, bounds: [Option<i128>; 3]) -> Result<Value> {
        let step = bounds[2].unwrap_or(1);
        if step == 0 {
            return fail("slice step cannot be zero");
        }
        let Some(length) = value.defined()?.len() else {
            return Ok(missing(value, "slice"));
        };
        let length = length as i128;
        let clamp = |bound: i128, low: i128, high: i128| {
            (if bound < 0 { bound + length } else { bound }).clamp(low, high)
        };
        let (start, stop) = if step > 0 {
            (
                bounds[0].map_or(0, |b| clamp(b, 0, length)),
                bounds[1].map_or(length, |b| clamp(b, 0, length)),
            )
        } else {
            let start = bounds[0].map_or(length - 1, |b| clamp(b, -1, length - 1));
            (start, bounds[1].map_or(-1, |b| clamp(b, -1, length - 1)))
        };
        let count = range_len(start, stop, step);
        self.charge(count)?;
        let at = |n: usize| (start + step * n as i128) as usize;
        match value {
            Value::Str(text) => {
                self.charge(text.len() / 8)?;
                if step == 1 {
                    let begin =
                        text.char_indices().nth(start as usize).map_or(text.len(), |(at, _)| at);
                    let part = &text[begin..];
                    let end = part.char_indices().nth(count).map_or(part.len(), |(at, _)| at);
                    return self.text(part[..end].to_string());
                }
                self.room(text.len() * 4)?;
                let chars: Vec<char> = text.chars().collect();
                self.text((0..count).map(|n| chars[at(n)]).collect())
            }
            Value::List(items) | Value::Tuple(items) => {
                self.room(count * 32)?;
                let part = (0..count).map(|n| items[at(n)].clone()).collect();
                if matches!(value, Value::List(_)) {
                    Value::list(part)
                } else {
                    Value::tuple(part)
                }
            }
            Value::Range { start: first, step: by, .. } => Ok(Value::Range {
                start: first + by * start,
                stop: first + by * stop,
                step: by * step,
            }),
            value => Ok(missing(value, "slice")),
        }
    }

    // Calls

    pub fn call(&mut self, function: &Value, args: Args) -> Result<Value> {
        self.charge(1)?;
        match function.defined()? {
            Value::Macro(one) => self.call_macro(&one.clone(), args),
            Value::Method(method) => match &**method {
                (Value::Loop(state), "cycle") => {
                    if args.positional.is_empty() {
                        return fail("no items for cycling given");
                    }
                    let at = state.index0.get() as usize % args.positional.len();
                    Ok(args.positional[at].clone())
                }
                (Value::Loop(state), _) => {
                    let last = self.changed.get(&state.id);
                    let mut same = last.is_some_and(|last| last.len() == args.positional.len());
                    if let Some(last) = last.cloned().filter(|_| same) {
                        for (a, b) in last.iter().zip(&args.positional) {
                            same = same && self.equal(a, b)?;
                        }
                    }
                    self.changed.insert(state.id, args.positional);
                    Ok(Value::Bool(!same))
                }
                (value, name) => crate::methods::call(self, value, name, args),
            },
            Value::Function(name) => crate::globals::call(self, name, args),
            Value::Joiner(joiner) => {
                let first = !joiner.1.replace(true);
                Ok(if first { Value::str("") } else { Value::Str(joiner.0.clone()) })
            }
            Value::Loop(state) => {
                let state = state.clone();
                if !state.code.recursive {
                    return fail("the loop must have the 'recursive' marker to be called");
                }
                let [items] = args.bind("loop", ["iterable"])?;
                let Some(items) = items else {
                    return fail("a loop is called with what it loops over");
                };
                self.deeper(|me| {
                    me.capture(|me| {
                        me.run_loop(&state.code, &items, state.scope.clone(), state.depth0 + 1)
                    })
                })
            }
            value => fail(format!("'{}' object is not callable", value.type_name())),
        }
    }

    fn call_macro(&mut self, one: &Rc<Macro>, mut args: Args) -> Result<Value> {
        let definition = one.definition.clone();
        let name = definition.name.clone().unwrap_or_else(|| "caller".into());
        let count = definition.parameters.len();
        self.charge(count * (1 + args.named.len()))?;
        let extra = args.positional.split_off(args.positional.len().min(count));
        if !extra.is_empty() && !definition.uses_varargs {
            return fail(format!("macro '{name}' takes not more than {count} argument(s)"));
        }
        let mut positional = args.positional.into_iter();
        let line = self.line;
        let text = self.deeper(|me| {
            me.scoped(one.scope.clone(), |me| {
                let mut named = args.named;
                let mut given: Vec<Option<Value>> = Vec::new();
                for (parameter, _) in &definition.parameters {
                    let value = positional.next().or_else(|| {
                        let at = named.iter().position(|(name, _)| name == parameter)?;
                        Some(named.remove(at).1)
                    });
                    given.push(value);
                }
                for ((parameter, default), value) in definition.parameters.iter().zip(given) {
                    let value = match (value, default) {
                        (Some(value), _) => value,
                        (None, Some(default)) => me.eval(default)?,
                        (None, None) => {
                            Value::undefined(format!("parameter '{parameter}' was not provided"))
                        }
                    };
                    me.scope.set(parameter, value);
                }
                if definition.uses_caller {
                    let at = named.iter().position(|(name, _)| name == "caller");
                    let caller = at.map(|at| named.remove(at).1);
                    let none = || Value::undefined("No caller defined");
                    me.scope.set("caller", caller.unwrap_or_else(none));
                }
                if definition.uses_varargs {
                    me.scope.set("varargs", Value::tuple(extra)?);
                }
                if definition.uses_kwargs {
                    let mut dict = Dict::new();
                    for (name, value) in named {
                        dict.insert(Value::str(name), value, &mut me.fuel)?;
                    }
                    me.scope.set("kwargs", Value::dict(dict));
                } else if let Some((argument, _)) = named.first() {
                    return fail(format!("macro '{name}' takes no keyword argument '{argument}'"));
                }
                me.capture(|me| me.body(&definition.body).map(drop))
            })
        })?;
        self.line = line;
        Ok(text)
    }

    pub fn new_namespace(&mut self, dict: Dict) -> Value {
        let namespace = Rc::new(RefCell::new(dict));
        self.namespaces.push(namespace.clone());
        Value::Namespace(namespace)
    }

    /// Looks up `a.b.0`, as filters do that take the name of an attribute.
    pub fn path(&mut self, value: &Value, path: &Value, default: Option<&Value>) -> Result<Value> {
        let mut value = value.clone();
        let parts: Vec<Value> = match path {
            Value::None => Vec::new(),
            Value::Str(path) => path
                .split('.')
                .map(|part| match part.parse() {
                    Ok(number) if part.chars().all(|c| c.is_ascii_digit()) => Value::Int(number),
                    _ => Value::str(part),
                })
                .collect(),
            path => vec![path.clone()],
        };
        for part in parts {
            self.charge(1)?;
            value = self.index(&value, &part)?;
            if let (true, Some(default)) = (value.is_undefined(), default) {
                value = default.clone();
            }
        }
        Ok(value)
    }
}

fn missing(value: &Value, name: &str) -> Value {
    Value::undefined(format!("'{} object' has no attribute {}", value.type_name(), cut(name)))
}

fn cut(text: &str) -> String {
    text.chars().take(80).collect()
}

fn place(key: &Value, length: usize) -> Option<usize> {
    let at = key.as_int()?;
    let at = if at < 0 { at + length as i128 } else { at };
    (0..length as i128).contains(&at).then_some(at as usize)
}

fn too_large<T>() -> Result<T> {
    fail("a number gets too large")
}

fn integers(operator: Binary, a: i128, b: i128) -> Result<Value> {
    let number =
        match operator {
            Binary::Add => a.checked_add(b),
            Binary::Sub => a.checked_sub(b),
            Binary::Mul => a.checked_mul(b),
            Binary::Div | Binary::FloorDiv | Binary::Mod if b == 0 => {
                return fail("division by zero")
            }
            Binary::Div => return Ok(Value::Float(a as f64 / b as f64)),
            Binary::FloorDiv => a.checked_div(b).map(|quotient| {
                if a % b != 0 && (a < 0) != (b < 0) {
                    quotient - 1
                } else {
                    quotient
                }
            }),
            Binary::Mod => a.checked_rem(b).map(|rest| {
                if rest != 0 && (rest < 0) != (b < 0) {
                    rest + b
                } else {
                    rest
                }
            }),
            Binary::Pow if b < 0 => {
                if a == 0 {
                    return fail("0.0 cannot be raised to a negative power");
                }
                return Ok(Value::Float((a as f64).powf(b as f64)));
            }
            Binary::Pow => match a {
                0 | 1 => Some(if b == 0 { 1 } else { a }),
                -1 => Some(if b % 2 == 0 { 1 } else { -1 }),
                _ => u32::try_from(b).ok().and_then(|b| a.checked_pow(b)),
            },
        };
    number.map_or_else(too_large, |number| Ok(Value::Int(number)))
}

fn floats(operator: Binary, a: f64, b: f64) -> Result<Value> {
    Ok(Value::Float(match operator {
        Binary::Add => a + b,
        Binary::Sub => a - b,
        Binary::Mul => a * b,
        Binary::Div | Binary::FloorDiv | Binary::Mod if b == 0.0 => {
            return fail("division by zero")
        }
        Binary::Div => a / b,
        Binary::FloorDiv => (a / b).floor(),
        Binary::Mod => {
            let rest = a % b;
            if rest != 0.0 && (rest < 0.0) != (b < 0.0) {
                rest + b
            } else {
                rest
            }
        }
        Binary::Pow if a == 0.0 && b < 0.0 => {
            return fail("0.0 cannot be raised to a negative power")
        }
        Binary::Pow if a < 0.0 && b.fract() != 0.0 => {
            return fail("complex numbers: not in a chat template")
        }
        Binary::Pow => {
            let power = a.powf(b);
            if power.is_infinite() && a.is_finite() && b.is_finite() {
                return too_large();
            }
            power
        }
    }))
}
