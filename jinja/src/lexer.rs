//! A template's text, cut into tokens, as Jinja2's lexer does with `trim_blocks` and `lstrip_blocks`.

use crate::failure::{Error, Result};

#[derive(Debug, Clone, PartialEq)]
pub enum Token {
    /// Text to be written as it is.
    Data(String),
    VariableBegin,
    VariableEnd,
    BlockBegin,
    BlockEnd,
    Name(String),
    Str(String),
    Int(i128),
    Float(f64),
    Operator(&'static str),
    End,
}

const OPERATORS: [&str; 26] = [
    "//", "**", "==", "!=", ">=", "<=", "+", "-", "/", "*", "%", "~", "[", "]", "(", ")", "{", "}",
    ">", "<", "=", ".", ":", "|", ",", ";",
];

struct Lexer<'a> {
    source: &'a str,
    at: usize,
    line: usize,
    tokens: Vec<(Token, usize)>,
}

/// The tokens of a template, each with its line.
pub fn tokens(source: &str) -> Result<Vec<(Token, usize)>> {
    let mut source = source.replace("\r\n", "\n").replace('\r', "\n");
    if source.ends_with('\n') {
        source.pop();
    }
    let mut lexer = Lexer { source: &source, at: 0, line: 1, tokens: Vec::new() };
    lexer.root()?;
    let line = lexer.line;
    lexer.tokens.push((Token::End, line));
    Ok(lexer.tokens)
}

impl Lexer<'_> {
    fn rest(&self) -> &str {
        &self.source[self.at..]
    }

    fn fail<T>(&self, message: impl Into<String>) -> Result<T> {
        Err(Error { line: Some(self.line), message: message.into() })
    }

    fn skip(&mut self, bytes: usize) {
        self.line += self.source[self.at..self.at + bytes].matches('\n').count();
        self.at += bytes;
    }

    fn push(&mut self, token: Token) {
        self.tokens.push((token, self.line));
    }

    fn data(&mut self, end: usize, sign: &str, strip_line: bool) {
        let text = &self.source[self.at..end];
        let kept = match sign {
            "-" => python_trim_end(text),
            "+" => text,
            _ if strip_line => {
                let start = text.rfind('\n').map_or(0, |at| at + 1);
                let begins_line =
                    start > 0 || self.at == 0 || self.source[..self.at].ends_with('\n');
                let blank = start < text.len() && text[start..].chars().all(is_space);
                if begins_line && blank {
                    &text[..start]
                } else {
                    text
                }
            }
            _ => text,
        };
        if !kept.is_empty() {
            self.tokens.push((Token::Data(kept.to_string()), self.line));
        }
        self.skip(end - self.at);
    }

    fn root(&mut self) -> Result<()> {
        while self.at < self.source.len() {
            let rest = self.rest();
            let found = rest.match_indices('{').map(|(at, _)| at);
            let begin = found
                .into_iter()
                .find(|&at| matches!(rest.as_bytes().get(at + 1), Some(b'%' | b'{' | b'#')));
            let Some(begin) = begin else {
                self.data(self.source.len(), "", false);
                return Ok(());
            };
            let kind = rest.as_bytes()[begin + 1];
            let sign = match rest.as_bytes().get(begin + 2) {
                Some(b'-') => "-",
                Some(b'+') => "+",
                _ => "",
            };
            self.data(self.at + begin, sign, kind != b'{');
            let opened = 2 + sign.len();
            match kind {
                b'#' => self.comment(opened)?,
                b'{' => {
                    self.push(Token::VariableBegin);
                    self.skip(opened);
                    self.inside("}}", Token::VariableEnd)?;
                }
                _ if self.raw(opened)? => {}
                _ => {
                    self.push(Token::BlockBegin);
                    self.skip(opened);
                    self.inside("%}", Token::BlockEnd)?;
                }
            }
        }
        Ok(())
    }

    /// Steps over the end of a tag, here: with a minus the space after it too, else one line's end.
    fn close(&mut self, length: usize, sign: &str, trim: bool) {
        self.skip(length);
        let rest = self.rest();
        let skipped = match sign {
            "-" => rest.len() - rest.trim_start_matches(is_space).len(),
            "" if trim && rest.starts_with('\n') => 1,
            _ => 0,
        };
        self.skip(skipped);
    }

    fn comment(&mut self, opened: usize) -> Result<()> {
        self.skip(opened);
        let Some(end) = self.rest().find("#}") else { return self.fail("a comment has no end") };
        let sign = match self.rest()[..end].chars().last() {
            Some('-') => "-",
            Some('+') => "+",
            _ => "",
        };
        self.close(end + 2, sign, true);
        Ok(())
    }

    /// `{% raw %}…{% endraw %}`: whether there was one.
    fn raw(&mut self, opened: usize) -> Result<bool> {
        let inner = &self.rest()[opened..];
        let word = inner.trim_start_matches(is_space);
        let Some(after) = word.strip_prefix("raw") else { return Ok(false) };
        let after = after.trim_start_matches(is_space);
        let minus = after.starts_with("-%}");
        if !minus && !after.starts_with("%}") {
            return Ok(false);
        }
        let end = self.rest().len() - after.len() + if minus { 3 } else { 2 };
        self.skip(end);
        if minus {
            let rest = self.rest();
            self.skip(rest.len() - rest.trim_start_matches(is_space).len());
        }
        let rest = self.rest();
        if rest.is_empty() {
            return Ok(true);
        }
        for (at, _) in rest.match_indices("{%") {
            let sign = match rest.as_bytes().get(at + 2) {
                Some(b'-') => "-",
                Some(b'+') => "+",
                _ => "",
            };
            let word = rest[at + 2 + sign.len()..].trim_start_matches(is_space);
            let Some(after) = word.strip_prefix("endraw") else { continue };
            let after = after.trim_start_matches(is_space);
            let close = ["-%}", "+%}", "%}"].into_iter().find(|close| after.starts_with(close));
            let Some(close) = close else { continue };
            let length = rest.len() - after.len() - at + close.len();
            self.data(self.at + at, sign, true);
            self.close(length, &close[..close.len() - 2], true);
            return Ok(true);
        }
        self.fail("a raw block has no end")
    }

    /// The tokens of a tag, up to its end.
    fn inside(&mut self, end: &str, token: Token) -> Result<()> {
        let mut open: Vec<&str> = Vec::new();
        loop {
            let rest = self.rest();
            let Some(c) = rest.chars().next() else {
                return self.fail("a tag has no end");
            };
            if is_space(c) {
                self.skip(c.len_utf8());
                continue;
            }
            if open.is_empty() {
                let block = end == "%}";
                let sign = match c {
                    '-' if rest[1..].starts_with(end) => Some("-"),
                    '+' if block && rest[1..].starts_with(end) => Some("+"),
                    _ if rest.starts_with(end) => Some(""),
                    _ => None,
                };
                if let Some(sign) = sign {
                    self.push(token);
                    self.close(sign.len() + 2, sign, block);
                    return Ok(());
                }
            }
            if c.is_ascii_digit() {
                self.number()?;
            } else if c == '_' || c.is_alphabetic() {
                let length = rest.find(|c: char| c != '_' && !c.is_alphanumeric());
                let name = rest[..length.unwrap_or(rest.len())].to_string();
                let length = name.len();
                self.push(Token::Name(name));
                self.skip(length);
            } else if c == '"' || c == '\'' {
                self.string(c)?;
            } else {
                let Some(operator) = OPERATORS.into_iter().find(|o| rest.starts_with(o)) else {
                    return self.fail(format!("unexpected character {c:?}"));
                };
                match operator {
                    "{" => open.push("}"),
                    "(" => open.push(")"),
                    "[" => open.push("]"),
                    "}" | ")" | "]" if open.pop() != Some(operator) => {
                        return self.fail(format!("unexpected {operator:?}"));
                    }
                    _ => {}
                }
                self.push(Token::Operator(operator));
                self.skip(operator.len());
            }
        }
    }

    fn number(&mut self) -> Result<()> {
        let rest = self.rest();
        let bytes = rest.as_bytes();
        let digits = |from: usize| {
            let part = rest[from..].find(|c: char| !c.is_ascii_digit() && c != '_');
            from + part.unwrap_or(rest.len() - from)
        };
        if bytes[0] == b'0' && matches!(bytes.get(1), Some(b'x' | b'X' | b'o' | b'O' | b'b' | b'B'))
        {
            let base = match bytes[1] {
                b'x' | b'X' => 16,
                b'o' | b'O' => 8,
                _ => 2,
            };
            let length = rest[2..].find(|c: char| !c.is_digit(base) && c != '_');
            let length = 2 + length.unwrap_or(rest.len() - 2);
            let number = i128::from_str_radix(&rest[2..length].replace('_', ""), base);
            let Ok(number) = number else {
                return self.fail("a number is too large, or no number");
            };
            self.push(Token::Int(number));
            self.skip(length);
            return Ok(());
        }
        let mut end = digits(0);
        let mut float = false;
        // `a.0.1` has a number after a dot; that one has no fraction.
        let after_dot = matches!(self.tokens.last(), Some((Token::Operator("."), _)));
        if !after_dot
            && bytes.get(end) == Some(&b'.')
            && bytes.get(end + 1).is_some_and(u8::is_ascii_digit)
        {
            end = digits(end + 1);
            float = true;
        }
        if !after_dot && matches!(bytes.get(end), Some(b'e' | b'E')) {
            let sign = usize::from(matches!(bytes.get(end + 1), Some(b'+' | b'-')));
            if bytes.get(end + 1 + sign).is_some_and(u8::is_ascii_digit) {
                end = digits(end + 1 + sign);
                float = true;
            }
        }
        let text = rest[..end].replace('_', "");
        let token = match float {
            true => text.parse().map(Token::Float).ok(),
            false => text.parse().map(Token::Int).ok(),
        };
        let Some(token) = token else { return self.fail("a number is too large") };
        self.push(token);
        self.skip(end);
        Ok(())
    }

    fn string(&mut self, mark: char) -> Result<()> {
        let rest = &self.rest()[1..];
        let (mut text, mut length) = (String::new(), 0);
        let mut chars = rest.chars();
        loop {
            let Some(c) = chars.next() else { return self.fail("a string has no end") };
            length += c.len_utf8();
            if c == mark {
                break;
            }
            if c != '\\' {
                text.push(c);
                continue;
            }
            let Some(escaped) = chars.next() else { return self.fail("a string has no end") };
            length += escaped.len_utf8();
            let mut code = |digits: usize| -> Option<char> {
                let mut number = 0;
                for _ in 0..digits {
                    let c = chars.next()?;
                    length += c.len_utf8();
                    number = number * 16 + c.to_digit(16)?;
                }
                char::from_u32(number)
            };
            match escaped {
                'n' => text.push('\n'),
                't' => text.push('\t'),
                'r' => text.push('\r'),
                'a' => text.push('\x07'),
                'b' => text.push('\x08'),
                'f' => text.push('\x0c'),
                'v' => text.push('\x0b'),
                '\n' => {}
                '\\' | '\'' | '"' => text.push(escaped),
                'x' | 'u' | 'U' => {
                    let digits = match escaped {
                        'x' => 2,
                        'u' => 4,
                        _ => 8,
                    };
                    match code(digits) {
                        Some(c) => text.push(c),
                        None => return self.fail("a string has a broken escape"),
                    }
                }
                '0'..='7' => {
                    let mut number = escaped.to_digit(8).unwrap_or(0);
                    for _ in 0..2 {
                        let next = chars.clone().next().and_then(|c| c.to_digit(8));
                        let Some(digit) = next else { break };
                        chars.next();
                        length += 1;
                        number = number * 8 + digit;
                    }
                    text.extend(char::from_u32(number));
                }
                'N' => return self.fail("a string has a broken escape"),
                other => {
                    text.push('\\');
                    text.push(other);
                }
            }
        }
        self.push(Token::Str(text));
        self.skip(1 + length);
        Ok(())
    }
}

/// Python's idea of white space.
pub fn is_space(c: char) -> bool {
    c.is_whitespace() || ('\x1c'..='\x1f').contains(&c)
}

pub fn python_trim_end(text: &str) -> &str {
    text.trim_end_matches(is_space)
}
