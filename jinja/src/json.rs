//! transformers' filter `tojson`, which is Python's `json.dumps`.

use crate::failure::{fail, Result};
use crate::interpreter::{Args, Interpreter};
use crate::value::{check_depth, float_repr, Value};
use std::cmp::Ordering;
use std::fmt::Write as _;

struct Writer<'a> {
    ascii: bool,
    indent: Option<String>,
    item: String,
    key: String,
    sort: bool,
    out: String,
    limit: usize,
    interpreter: &'a mut Interpreter,
}

pub fn dumps(interpreter: &mut Interpreter, value: Value, args: Args) -> Result<Value> {
    let bound = args.bind("tojson", ["ensure_ascii", "indent", "separators", "sort_keys"])?;
    let [ascii, indent, separators, sort] = bound;
    let indent = match indent {
        None | Some(Value::None) => None,
        Some(Value::Str(text)) => Some(text.to_string()),
        Some(width) => {
            let Some(width) = width.as_int() else {
                return fail("tojson: indent: expected a number or a string");
            };
            let width = usize::try_from(width.max(0)).unwrap_or(usize::MAX);
            interpreter.room(width)?;
            Some(" ".repeat(width))
        }
    };
    let (mut item, mut key) = match indent {
        Some(_) => (",".to_string(), ": ".to_string()),
        None => (", ".to_string(), ": ".to_string()),
    };
    if let Some(separators) = separators.filter(|value| !matches!(value, Value::None)) {
        let parts = interpreter.iterate(&separators)?;
        let [Value::Str(a), Value::Str(b)] = parts.as_slice() else {
            return fail("tojson: separators: expected two strings");
        };
        (item, key) = (a.to_string(), b.to_string());
    }
    let ascii = ascii.is_some_and(|value| value.is_true());
    let sort = sort.is_some_and(|value| value.is_true());
    let limit = interpreter.size_limit;
    let mut writer =
        Writer { ascii, indent, item, key, sort, out: String::new(), limit, interpreter };
    writer.value(&value, 0)?;
    let out = writer.out;
    interpreter.text(out)
}

impl Writer<'_> {
    fn value(&mut self, value: &Value, depth: u32) -> Result<()> {
        check_depth(depth)?;
        self.interpreter.charge(1)?;
        if self.out.len() > self.limit {
            return fail("tojson: the text gets too long");
        }
        match value {
            Value::None => self.out.push_str("null"),
            Value::Bool(yes) => self.out.push_str(if *yes { "true" } else { "false" }),
            Value::Int(number) => drop(write!(self.out, "{number}")),
            Value::Float(number) => self.out.push_str(&float(*number)),
            Value::Str(text) => self.string(text),
            Value::List(items) | Value::Tuple(items) => {
                if items.is_empty() {
                    self.out.push_str("[]");
                    return Ok(());
                }
                self.out.push('[');
                for (at, item) in items.iter().enumerate() {
                    self.between(at, depth + 1)?;
                    self.value(item, depth + 1)?;
                }
                self.line(depth)?;
                self.out.push(']');
            }
            Value::Dict(dict) => {
                let mut entries: Vec<(Value, Value)> = dict.entries().to_vec();
                if entries.is_empty() {
                    self.out.push_str("{}");
                    return Ok(());
                }
                if self.sort {
                    let mut failed = None;
                    let interpreter = &mut *self.interpreter;
                    entries.sort_by(|a, b| match interpreter.order(&a.0, &b.0) {
                        Ok(order) => order.unwrap_or(Ordering::Equal),
                        Err(error) => {
                            failed.get_or_insert(error);
                            Ordering::Equal
                        }
                    });
                    if let Some(error) = failed {
                        return Err(error);
                    }
                }
                self.out.push('{');
                for (at, (key, value)) in entries.iter().enumerate() {
                    self.between(at, depth + 1)?;
                    let name = match key {
                        Value::Str(text) => text.to_string(),
                        Value::None => "null".into(),
                        Value::Bool(yes) => yes.to_string(),
                        Value::Int(number) => number.to_string(),
                        Value::Float(number) => float(*number),
                        key => {
                            return fail(format!(
                                "keys must be str, int, float, bool or None, not {}",
                                key.type_name()
                            ))
                        }
                    };
                    self.string(&name);
                    self.out.push_str(&self.key.clone());
                    self.value(value, depth + 1)?;
                }
                self.line(depth)?;
                self.out.push('}');
            }
            value => {
                return fail(format!(
                    "Object of type {} is not JSON serializable",
                    value.type_name()
                ))
            }
        }
        Ok(())
    }

    /// Writes the separator before an item.
    fn between(&mut self, at: usize, depth: u32) -> Result<()> {
        if at > 0 {
            self.out.push_str(&self.item.clone());
        }
        self.line(depth)
    }

    fn line(&mut self, depth: u32) -> Result<()> {
        if let Some(indent) = &self.indent {
            let bytes = indent.len().saturating_mul(depth as usize);
            if self.out.len().saturating_add(bytes) > self.limit {
                return fail("tojson: the text gets too long");
            }
            self.out.push('\n');
            for _ in 0..depth {
                self.out.push_str(indent);
            }
            self.interpreter.charge(bytes / 32)?;
        }
        Ok(())
    }

    fn string(&mut self, text: &str) {
        let out = &mut self.out;
        out.push('"');
        for c in text.chars() {
            match c {
                '"' => out.push_str("\\\""),
                '\\' => out.push_str("\\\\"),
                '\n' => out.push_str("\\n"),
                '\r' => out.push_str("\\r"),
                '\t' => out.push_str("\\t"),
                '\x08' => out.push_str("\\b"),
                '\x0c' => out.push_str("\\f"),
                c if (c as u32) < 0x20 => drop(write!(out, "\\u{:04x}", c as u32)),
                c if self.ascii && (c as u32) > 0x7e => {
                    if c == '\x7f' {
                        out.push(c);
                        continue;
                    }
                    for unit in c.encode_utf16(&mut [0; 2]) {
                        let _ = write!(out, "\\u{unit:04x}");
                    }
                }
                c => out.push(c),
            }
        }
        out.push('"');
    }
}

fn float(number: f64) -> String {
    match () {
        () if number.is_nan() => "NaN".into(),
        () if number == f64::INFINITY => "Infinity".into(),
        () if number == f64::NEG_INFINITY => "-Infinity".into(),
        () => float_repr(number),
    }
}
