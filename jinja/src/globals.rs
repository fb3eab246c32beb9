//! The functions that every template has.

use crate::failure::{fail, Result};
use crate::interpreter::{Args, Interpreter};
use crate::value::{range_len, Dict, Value};
use std::cell::Cell;
use std::rc::Rc;

/// Their names.
pub const GLOBALS: [&str; 7] =
    ["range", "dict", "namespace", "cycler", "joiner", "raise_exception", "strftime_now"];

/// The longest range, as in Jinja2's sandbox.
const MAX_RANGE: usize = 100_000;

pub fn global(name: &str) -> Option<Value> {
    let name = GLOBALS.into_iter().find(|known| *known == name)?;
    Some(Value::Function(name))
}

pub fn call(interpreter: &mut Interpreter, name: &str, args: Args) -> Result<Value> {
    match name {
        "range" => {
            let bounds = args.bind("range", ["/start", "/stop", "/step"])?;
            let mut numbers = [0, 0, 1];
            for (number, bound) in numbers.iter_mut().zip(&bounds) {
                let Some(bound) = bound else { continue };
                let Some(found) = bound.defined()?.as_int() else {
                    return fail("range: expected integers");
                };
                *number = found;
            }
            let [mut start, mut stop, step] = numbers;
            match (&bounds[0], &bounds[1]) {
                (None, _) => return fail("range expected at least 1 argument, got 0"),
                (_, None) => (start, stop) = (0, start),
                _ => {}
            }
            if step == 0 {
                return fail("range: the step must not be zero");
            }
            if [start, stop, step].iter().any(|n| n.abs() > 1 << 62)
                || range_len(start, stop, step) > MAX_RANGE
            {
                return fail(format!("range: more than {MAX_RANGE} numbers"));
            }
            Ok(Value::Range { start, stop, step })
        }
        "dict" => Ok(Value::dict(dict(interpreter, args)?)),
        "namespace" => {
            let dict = dict(interpreter, args)?;
            if dict
                .entries()
                .iter()
                .any(|(key, _)| key.as_str().is_some_and(|k| k.starts_with('_')))
            {
                return fail("an attribute of a namespace cannot begin with an underscore");
            }
            Ok(interpreter.new_namespace(dict))
        }
        "cycler" => {
            if args.positional.is_empty() || !args.named.is_empty() {
                return fail("at least one item has to be provided");
            }
            match interpreter.list(args.positional)? {
                Value::List(items) => Ok(Value::Cycler(Rc::new((items, Cell::new(0))))),
                _ => fail("no list"),
            }
        }
        "joiner" => {
            let [separator] = args.bind("joiner", ["sep"])?;
            match separator.unwrap_or_else(|| Value::str(", ")) {
                Value::Str(text) => Ok(Value::Joiner(Rc::new((text, Cell::new(false))))),
                _ => fail("joiner: expected a string"),
            }
        }
        "raise_exception" => {
            let [message] = args.bind("raise_exception", ["message"])?;
            match message {
                Some(message) => fail(message.to_text()?),
                None => fail("raise_exception: expected a message"),
            }
        }
        _ => {
            let [format] = args.bind("strftime_now", ["format"])?;
            match format {
                Some(Value::Str(format)) => {
                    let now = interpreter.now;
                    interpreter.text(now.format(&format)?)
                }
                _ => fail("strftime_now: expected a format"),
            }
        }
    }
}

/// Python's `dict`: of a mapping or of pairs, and of keywords.
pub fn dict(interpreter: &mut Interpreter, args: Args) -> Result<Dict> {
    let mut dict = Dict::new();
    if args.positional.len() > 1 {
        return fail("dict expected at most 1 argument");
    }
    match args.positional.first() {
        None => {}
        Some(Value::Dict(other)) => {
            interpreter.room(other.entries().len() * 160)?;
            for (key, value) in other.entries() {
                dict.insert(key.clone(), value.clone(), &mut interpreter.fuel)?;
            }
        }
        Some(pairs) => {
            for pair in interpreter.iterate(pairs)? {
                let pair = interpreter.iterate(&pair)?;
                let [key, value] = pair.as_slice() else {
                    return fail("dict: expected pairs of a key and a value");
                };
                interpreter.room(160)?;
                dict.insert(key.clone(), value.clone(), &mut interpreter.fuel)?;
            }
        }
    }
    for (name, value) in args.named {
        interpreter.room(160)?;
        dict.insert(Value::str(name), value, &mut interpreter.fuel)?;
    }
    Ok(dict)
}
