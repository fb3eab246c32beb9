//! The methods of Python's strings, lists, dicts and numbers.

use crate::failure::{fail, Result};
use crate::interpreter::{Args, Interpreter};
use crate::lexer::is_space;
use crate::value::{escape, printable, range_len, Dict, Value, View};
use std::rc::Rc;

const STR: [&str; 45] = [
    "capitalize",
    "casefold",
    "center",
    "count",
    "encode",
    "endswith",
    "expandtabs",
    "find",
    "format",
    "format_map",
    "index",
    "isalnum",
    "isalpha",
    "isascii",
    "isdecimal",
    "isdigit",
    "isidentifier",
    "islower",
    "isnumeric",
    "isprintable",
    "isspace",
    "istitle",
    "isupper",
    "join",
    "ljust",
    "lower",
    "lstrip",
    "partition",
    "removeprefix",
    "removesuffix",
    "replace",
    "rfind",
    "rindex",
    "rjust",
    "rpartition",
    "rsplit",
    "rstrip",
    "split",
    "splitlines",
    "startswith",
    "strip",
    "swapcase",
    "title",
    "upper",
    "zfill",
];
const DICT: [&str; 6] = ["keys", "values", "items", "get", "copy", "fromkeys"];
const LIST: [&str; 3] = ["index", "count", "copy"];
const SEQUENCE: [&str; 2] = ["index", "count"];

/// An attribute of a value, most often a method. What would change the value isn't there, as in Jinja2's sandbox.
pub fn attribute(value: &Value, name: &str) -> Option<Value> {
    let known: &[&'static str] = match value {
        Value::Str(_) => &STR,
        Value::Dict(_) => &DICT,
        Value::List(_) => &LIST,
        Value::Tuple(_) => &SEQUENCE,
        Value::Range { start, stop, step } => match name {
            "start" => return Some(Value::Int(*start)),
            "stop" => return Some(Value::Int(*stop)),
            "step" => return Some(Value::Int(*step)),
            _ => &SEQUENCE,
        },
        Value::View(..) => &["isdisjoint"],
        Value::Cycler(_) => &["next", "reset"],
        Value::Function("dict") => &["fromkeys"],
        Value::Bool(_) | Value::Int(_) => match name {
            "real" | "numerator" => return value.as_int().map(Value::Int),
            "imag" => return Some(Value::Int(0)),
            "denominator" => return Some(Value::Int(1)),
            _ => &["bit_length", "is_integer", "conjugate"],
        },
        Value::Float(number) => match name {
            "real" => return Some(Value::Float(*number)),
            "imag" => return Some(Value::Float(0.0)),
            _ => &["is_integer", "conjugate"],
        },
        _ => &[],
    };
    let name = known.iter().find(|known| **known == name)?;
    Some(Value::Method(Rc::new((value.clone(), name))))
}

/// Calls a method.
pub fn call(interpreter: &mut Interpreter, value: &Value, name: &str, args: Args) -> Result<Value> {
    match value {
        Value::Str(text) => {
            interpreter.charge(text.len() / 16)?;
            interpreter.charge_args(&args)?;
            match text.safe {
                true => markup_method(interpreter, text, name, args),
                false => text_method(interpreter, text, name, args),
            }
        }
        Value::Dict(dict) => match name {
            "keys" | "values" | "items" => {
                let [] = args.bind(name, [])?;
                let view = match name {
                    "keys" => View::Keys,
                    "values" => View::Values,
                    _ => View::Items,
                };
                Ok(Value::View(view, dict.clone()))
            }
            "get" => {
                let [key, default] = args.bind("get", ["/key", "/default"])?;
                let Some(key) = key else { return fail("get expected at least 1 argument, got 0") };
                let found = dict.get(&key.key(&mut interpreter.fuel)?).cloned();
                Ok(found.or(default).unwrap_or(Value::None))
            }
            "copy" => Ok(value.clone()),
            _ => from_keys(interpreter, args),
        },
        Value::Function(_) => from_keys(interpreter, args),
        Value::List(_) if name == "copy" => Ok(value.clone()),
        Value::List(_) | Value::Tuple(_) | Value::Range { .. } => {
            let [wanted, start, stop] = args.bind(name, ["/value", "/start", "/stop"])?;
            let Some(wanted) = wanted else { return fail(format!("{name} takes a value")) };
            let values = interpreter.iterate(value)?;
            let (start, stop) = bounds(start, stop, values.len())?;
            let mut count = 0;
            for (at, one) in values.iter().enumerate().take(stop).skip(start) {
                if interpreter.equal(one, &wanted)? {
                    if name == "index" {
                        return Ok(Value::Int(at as i128));
                    }
                    count += 1;
                }
            }
            match name {
                "index" => fail("the value is not in the list"),
                _ => Ok(Value::Int(count)),
            }
        }
        Value::View(..) => {
            let [other] = args.bind(name, ["/other"])?;
            let Some(other) = other else { return fail("isdisjoint takes a value") };
            let mine = interpreter.iterate(value)?;
            for other in interpreter.iterate(&other)? {
                for one in &mine {
                    if interpreter.equal(one, &other)? {
                        return Ok(Value::Bool(false));
                    }
                }
            }
            Ok(Value::Bool(true))
        }
        Value::Cycler(cycler) => {
            let (items, at) = &**cycler;
            if name == "reset" {
                at.set(0);
                return Ok(Value::None);
            }
            let item = items[at.get() % items.len()].clone();
            at.set((at.get() + 1) % items.len());
            Ok(item)
        }
        Value::Float(number) => Ok(match name {
            "is_integer" => Value::Bool(number.fract() == 0.0),
            _ => value.clone(),
        }),
        value => Ok(match name {
            "bit_length" => {
                let number = value.as_int().unwrap_or(0).unsigned_abs();
                Value::Int(i128::from(128 - number.leading_zeros()))
            }
            "is_integer" => return fail("'int' object has no attribute 'is_integer'"),
            _ => value.clone(),
        }),
    }
}

/// A method of a `Markup`: what it is given is escaped, and what it returns is one, too.
fn markup_method(
    interpreter: &mut Interpreter,
    text: &str,
    name: &str,
    mut args: Args,
) -> Result<Value> {
    let mark = |value: &Value| match value {
        Value::Str(text) if !text.safe => Value::markup(escape(text)),
        value => value.clone(),
    };
    match name {
        "join" => {
            for parts in &mut args.positional {
                let escaped = interpreter.iterate(parts)?.iter().map(mark).collect();
                *parts = interpreter.list(escaped)?;
            }
        }
        "format" | "replace" | "center" | "ljust" | "rjust" | "strip" | "lstrip" | "rstrip"
        | "removeprefix" | "removesuffix" => {
            args.positional = args.positional.iter().map(mark).collect();
            args.named =
                args.named.iter().map(|(name, value)| (name.clone(), mark(value))).collect();
        }
        _ => {}
    }
    let again = |value: &Value| match value {
        Value::Str(text) => Value::markup(&***text),
        value => value.clone(),
    };
    match text_method(interpreter, text, name, args)? {
        Value::List(parts) => interpreter.list(parts.iter().map(again).collect()),
        Value::Tuple(parts) => Value::tuple(parts.iter().map(again).collect()),
        value => Ok(again(&value)),
    }
}

fn from_keys(interpreter: &mut Interpreter, args: Args) -> Result<Value> {
    let [keys, value] = args.bind("fromkeys", ["/iterable", "/value"])?;
    let Some(keys) = keys else { return fail("fromkeys expected at least 1 argument, got 0") };
    let mut dict = Dict::new();
    for key in interpreter.iterate(&keys)? {
        interpreter.room(160)?;
        dict.insert(key, value.clone().unwrap_or(Value::None), &mut interpreter.fuel)?;
    }
    Ok(Value::dict(dict))
}

/// Python's optional start and end, as places from 0 to `length`.
fn bounds(start: Option<Value>, stop: Option<Value>, length: usize) -> Result<(usize, usize)> {
    let place = |value: Option<Value>, default: usize| match value {
        None | Some(Value::None) => Ok(default),
        Some(value) => match value.as_int() {
            Some(at) if at < 0 => Ok((at + length as i128).max(0) as usize),
            Some(at) => Ok(at.min(length as i128 + 1) as usize),
            None => fail("slice indices must be integers or None"),
        },
    };
    Ok((place(start, 0)?, place(stop, length)?.min(length)))
}

/// An argument that must be a string.
fn wants_text(value: Option<Value>, method: &str) -> Result<Rc<crate::value::Text>> {
    match value {
        Some(Value::Str(text)) => Ok(text),
        Some(value) => {
            value.defined()?;
            fail(format!("{method}: expected a string, got {}", value.type_name()))
        }
        None => fail(format!("{method}: expected a string")),
    }
}

fn wants_number(value: Option<Value>, default: i128, method: &str) -> Result<i128> {
    match value {
        None => Ok(default),
        Some(value) => match value.defined()?.as_int() {
            Some(number) => Ok(number),
            None => fail(format!("{method}: expected an integer, got {}", value.type_name())),
        },
    }
}

/// Strips characters from the ends of a text: white space, if none are named.
pub fn strip(text: &str, chars: Option<Value>, left: bool, right: bool) -> Result<String> {
    let chars: Option<std::collections::HashSet<char>> = match chars {
        None | Some(Value::None) => None,
        chars => Some(wants_text(chars, "strip")?.chars().collect()),
    };
    let drop = |c: char| chars.as_ref().map_or_else(|| is_space(c), |chars| chars.contains(&c));
    let text = if left { text.trim_start_matches(drop) } else { text };
    Ok(if right { text.trim_end_matches(drop) } else { text }.to_string())
}

/// Python's `str.replace`.
pub fn replace(
    interpreter: &mut Interpreter,
    text: &str,
    old: &str,
    new: &str,
    count: i128,
) -> Result<Value> {
    let limit = usize::try_from(count).unwrap_or(usize::MAX);
    let found = match old.is_empty() {
        true => text.chars().count() + 1,
        false => text.matches(old).count(),
    };
    let found = found.min(limit);
    interpreter.room(text.len().saturating_add(found.saturating_mul(new.len())))?;
    Ok(Value::str(text.replacen(old, new, found)))
}

pub fn center(interpreter: &mut Interpreter, text: &str, width: i128, fill: &str) -> Result<Value> {
    let length = text.chars().count();
    let missing = usize::try_from(width).unwrap_or(0).saturating_sub(length);
    interpreter.room(text.len().saturating_add(missing.saturating_mul(4)))?;
    let width = length + missing;
    let left = missing / 2 + (missing & width & 1);
    Ok(Value::str(fill.repeat(left) + text + &fill.repeat(missing - left)))
}

/// Python's `str.title`.
fn title(text: &str) -> String {
    let (mut out, mut inside) = (String::new(), false);
    for c in text.chars() {
        match inside {
            true => out.extend(c.to_lowercase()),
            false => out.push_str(&titlecase(c)),
        }
        inside = c.is_alphabetic() && (c.is_lowercase() || c.is_uppercase() || cased(c));
    }
    out
}

fn cased(c: char) -> bool {
    c.to_lowercase().ne(c.to_uppercase())
}

fn titlecase(c: char) -> String {
    match c {
        'Ǆ' | 'ǅ' | 'ǆ' => "ǅ".into(),
        'Ǉ' | 'ǈ' | 'ǉ' => "ǈ".into(),
        'Ǌ' | 'ǋ' | 'ǌ' => "ǋ".into(),
        'Ǳ' | 'ǲ' | 'ǳ' => "ǲ".into(),
        'ß' => "Ss".into(),
        'ﬁ' => "Fi".into(),
        'ﬂ' => "Fl".into(),
        'ŉ' => "ʼN".into(),
        c => c.to_uppercase().collect(),
    }
}

pub fn capitalize(text: &str) -> String {
    let mut chars = text.chars();
    match chars.next() {
        Some(first) => titlecase(first) + &chars.as_str().to_lowercase(),
        None => String::new(),
    }
}

/// Python's `str.splitlines`.
pub fn split_lines(text: &str, keep: bool) -> Vec<String> {
    let mut lines = Vec::new();
    let mut start = 0;
    let mut chars = text.char_indices().peekable();
    while let Some((at, c)) = chars.next() {
        if !matches!(
            c,
            '\n' | '\r' | '\x0b' | '\x0c' | '\x1c'..='\x1e' | '\u{85}' | '\u{2028}' | '\u{2029}'
        ) {
            continue;
        }
        let mut end = at + c.len_utf8();
        if c == '\r' && chars.next_if(|(_, next)| *next == '\n').is_some() {
            end += 1;
        }
        lines.push(text[start..if keep { end } else { at }].to_string());
        start = end;
    }
    if start < text.len() {
        lines.push(text[start..].to_string());
    }
    lines
}

fn split(text: &str, separator: Option<&str>, most: i128, from_right: bool) -> Vec<String> {
    let most = usize::try_from(most).unwrap_or(usize::MAX);
    let mut parts: Vec<String> = Vec::new();
    match (separator, from_right) {
        (Some(separator), false) => {
            parts.extend(text.splitn(most.saturating_add(1), separator).map(str::to_string));
        }
        (Some(separator), true) => {
            parts.extend(text.rsplitn(most.saturating_add(1), separator).map(str::to_string));
            parts.reverse();
        }
        (None, false) => {
            let mut rest = text.trim_start_matches(is_space);
            while !rest.is_empty() {
                let end = rest.find(is_space).filter(|_| parts.len() < most);
                parts.push(rest[..end.unwrap_or(rest.len())].to_string());
                rest = end.map_or("", |end| rest[end..].trim_start_matches(is_space));
            }
        }
        (None, true) => {
            let mut rest = text.trim_end_matches(is_space);
            while !rest.is_empty() {
                let start = rest.rfind(is_space).filter(|_| parts.len() < most);
                let begin =
                    start.map_or(0, |at| at + rest[at..].chars().next().map_or(1, char::len_utf8));
                parts.push(rest[begin..].to_string());
                rest = start.map_or("", |at| rest[..at].trim_end_matches(is_space));
            }
            parts.reverse();
        }
    }
    parts
}

fn texts(interpreter: &mut Interpreter, parts: Vec<String>) -> Result<Value> {
    let bytes: usize = parts.iter().map(|part| part.len() + 80).sum();
    interpreter.room(bytes)?;
    Value::list(parts.into_iter().map(Value::str).collect())
}

fn text_method(interpreter: &mut Interpreter, text: &str, name: &str, args: Args) -> Result<Value> {
    let all = |test: fn(char) -> bool| Value::Bool(!text.is_empty() && text.chars().all(test));
    match name {
        "format" => {
            let text = crate::format::format(interpreter, text, &args)?;
            return interpreter.text(text);
        }
        "format_map" => {
            let [map] = args.bind(name, ["/mapping"])?;
            let Some(Value::Dict(map)) = map else { return fail("format_map: expected a mapping") };
            let entries = map.entries().iter();
            let named =
                entries.filter_map(|(key, value)| Some((key.as_str()?.to_string(), value.clone())));
            let args = Args { positional: Vec::new(), named: named.collect() };
            let text = crate::format::format(interpreter, text, &args)?;
            return interpreter.text(text);
        }
        _ => {}
    }
    let value = match name {
        "strip" | "lstrip" | "rstrip" => {
            let [chars] = args.bind(name, ["/chars"])?;
            Value::str(strip(text, chars, name != "rstrip", name != "lstrip")?)
        }
        "split" | "rsplit" => {
            let [separator, most] = args.bind(name, ["sep", "maxsplit"])?;
            let separator = match separator {
                None | Some(Value::None) => None,
                separator => Some(wants_text(separator, name)?),
            };
            if separator.as_ref().is_some_and(|separator| separator.is_empty()) {
                return fail("empty separator");
            }
            let most = wants_number(most, -1, name)?;
            let parts = split(text, separator.as_ref().map(|s| &***s), most, name == "rsplit");
            return texts(interpreter, parts);
        }
        "splitlines" => {
            let [keep] = args.bind(name, ["keepends"])?;
            let lines = split_lines(text, keep.is_some_and(|keep| keep.is_true()));
            return texts(interpreter, lines);
        }
        "partition" | "rpartition" => {
            let [separator] = args.bind(name, ["/sep"])?;
            let separator = wants_text(separator, name)?;
            if separator.is_empty() {
                return fail("empty separator");
            }
            let found = match name {
                "partition" => text.split_once(&**separator),
                _ => text.rsplit_once(&**separator),
            };
            interpreter.room(text.len())?;
            let (before, middle, after) = match (found, name) {
                (Some((before, after)), _) => (before, &**separator, after),
                (None, "partition") => (text, "", ""),
                _ => ("", "", text),
            };
            return Value::tuple(vec![Value::str(before), Value::str(middle), Value::str(after)]);
        }
        "startswith" | "endswith" => {
            let [parts, start, stop] = args.bind(name, ["/prefix", "/start", "/end"])?;
            let parts = match parts {
                Some(Value::Tuple(parts)) => {
                    interpreter.charge(parts.len())?;
                    parts.to_vec()
                }
                parts => vec![Value::Str(wants_text(parts, name)?)],
            };
            let (start, stop) = bounds(start, stop, text.chars().count())?;
            if start > stop {
                return Ok(Value::Bool(false));
            }
            let part: String = text.chars().skip(start).take(stop - start).collect();
            for wanted in parts {
                let wanted = wants_text(Some(wanted), name)?;
                let found = match name {
                    "startswith" => part.starts_with(&**wanted),
                    _ => part.ends_with(&**wanted),
                };
                if found {
                    return Ok(Value::Bool(true));
                }
            }
            Value::Bool(false)
        }
        "find" | "rfind" | "index" | "rindex" | "count" => {
            let [part, start, stop] = args.bind(name, ["/sub", "/start", "/end"])?;
            let wanted = wants_text(part, name)?;
            let (start, stop) = bounds(start, stop, text.chars().count())?;
            let part: String = text.chars().skip(start).take(stop.saturating_sub(start)).collect();
            if name == "count" {
                let count = match wanted.is_empty() {
                    true if start > stop => 0,
                    true => part.chars().count() + 1,
                    false => part.matches(&**wanted).count(),
                };
                return Ok(Value::Int(count as i128));
            }
            let found = match name {
                _ if start > stop => None,
                "find" | "index" => part.find(&**wanted),
                _ => part.rfind(&**wanted),
            };
            match found {
                Some(at) => Value::Int((start + part[..at].chars().count()) as i128),
                None if name.ends_with("index") => return fail("substring not found"),
                None => Value::Int(-1),
            }
        }
        "removeprefix" | "removesuffix" => {
            let [part] = args.bind(name, ["/part"])?;
            let part = wants_text(part, name)?;
            Value::str(match name {
                "removeprefix" => text.strip_prefix(&**part).unwrap_or(text),
                _ => text.strip_suffix(&**part).unwrap_or(text),
            })
        }
        "replace" => {
            let [old, new, count] = args.bind(name, ["/old", "/new", "/count"])?;
            let (old, new) = (wants_text(old, name)?, wants_text(new, name)?);
            let count = wants_number(count, -1, name)?;
            return replace(interpreter, text, &old, &new, count);
        }
        "join" => {
            let [parts] = args.bind(name, ["/iterable"])?;
            let Some(parts) = parts else {
                return fail("join: expected something to iterate over");
            };
            let mut out = String::new();
            for (at, part) in interpreter.iterate(&parts)?.into_iter().enumerate() {
                let part = wants_text(Some(part), name)?;
                interpreter.longer(&out, part.len() + text.len())?;
                out.push_str(if at > 0 { text } else { "" });
                out.push_str(&part);
            }
            return interpreter.text(out);
        }
        "center" | "ljust" | "rjust" => {
            let [width, fill] = args.bind(name, ["/width", "/fillchar"])?;
            if width.is_none() {
                return fail(format!("{name}: expected a width"));
            }
            let width = wants_number(width, 0, name)?;
            let fill = match fill {
                None => " ".to_string(),
                fill => wants_text(fill, name)?.to_string(),
            };
            if fill.chars().count() != 1 {
                return fail("The fill character must be exactly one character long");
            }
            if name == "center" {
                return center(interpreter, text, width, &fill);
            }
            let missing = usize::try_from(width).unwrap_or(0).saturating_sub(text.chars().count());
            interpreter.room(text.len().saturating_add(missing.saturating_mul(fill.len())))?;
            Value::str(match name {
                "ljust" => text.to_string() + &fill.repeat(missing),
                _ => fill.repeat(missing) + text,
            })
        }
        "zfill" => {
            let [width] = args.bind(name, ["/width"])?;
            if width.is_none() {
                return fail("zfill: expected a width");
            }
            let width = usize::try_from(wants_number(width, 0, name)?).unwrap_or(0);
            let missing = width.saturating_sub(text.chars().count());
            interpreter.room(text.len().saturating_add(missing))?;
            let (sign, digits) = text.split_at(usize::from(text.starts_with(['+', '-'])));
            Value::str(sign.to_string() + &"0".repeat(missing) + digits)
        }
        "expandtabs" => {
            let [size] = args.bind(name, ["tabsize"])?;
            let size = usize::try_from(wants_number(size, 8, name)?).unwrap_or(0);
            interpreter
                .room(text.matches('\t').count().saturating_mul(size).saturating_add(text.len()))?;
            let (mut out, mut column) = (String::new(), 0);
            for c in text.chars() {
                match c {
                    '\t' if size > 0 => {
                        let width = size - column % size;
                        out.extend(std::iter::repeat_n(' ', width));
                        column += width;
                    }
                    '\t' => {}
                    c => {
                        out.push(c);
                        column = if c == '\n' || c == '\r' { 0 } else { column + 1 };
                    }
                }
            }
            Value::str(out)
        }
        "encode" => return fail("bytes: not in a chat template"),
        _ => {
            let [] = args.bind(name, [])?;
            match name {
                "upper" => Value::str(text.to_uppercase()),
                "lower" => Value::str(text.to_lowercase()),
                "casefold" => Value::str(text.to_lowercase().replace('ß', "ss").replace('ς', "σ")),
                "title" => Value::str(title(text)),
                "capitalize" => Value::str(capitalize(text)),
                "swapcase" => {
                    let mut out = String::new();
                    for c in text.chars() {
                        match c.is_uppercase() {
                            true => out.extend(c.to_lowercase()),
                            false => out.extend(c.to_uppercase()),
                        }
                    }
                    Value::str(out)
                }
                "isalpha" => all(char::is_alphabetic),
                "isalnum" => all(char::is_alphanumeric),
                "isascii" => Value::Bool(text.is_ascii()),
                "isdecimal" => {
                    all(|c| c.is_ascii_digit() || (c.is_numeric() && !c.is_ascii() && decimal(c)))
                }
                "isdigit" => {
                    all(|c| c.is_ascii_digit() || decimal(c) || "²³¹⁰⁴⁵⁶⁷⁸⁹₀₁₂₃₄₅₆₇₈₉".contains(c))
                }
                "isnumeric" => all(char::is_numeric),
                "isspace" => all(is_space),
                "isprintable" => Value::Bool(text.chars().all(|c| c == ' ' || printable(c))),
                "isidentifier" => {
                    let first = text.chars().next().is_some_and(|c| c == '_' || c.is_alphabetic());
                    Value::Bool(first && text.chars().all(|c| c == '_' || c.is_alphanumeric()))
                }
                "islower" => Value::Bool(is_lower(text)),
                "isupper" => Value::Bool(is_upper(text)),
                _ => {
                    let has_case = text.chars().any(cased);
                    Value::Bool(has_case && title(text) == text)
                }
            }
        }
    };
    if let Value::Str(text) = &value {
        interpreter.room(text.len())?;
    }
    Ok(value)
}

pub fn is_lower(text: &str) -> bool {
    text.chars().any(char::is_lowercase) && !text.chars().any(char::is_uppercase)
}

pub fn is_upper(text: &str) -> bool {
    text.chars().any(char::is_uppercase) && !text.chars().any(char::is_lowercase)
}

/// Digits of other scripts, in blocks of ten.
fn decimal(c: char) -> bool {
    ZEROS.iter().any(|zero| (*zero..zero + 10).contains(&(c as u32)))
}

/// The zeros of other scripts than Latin.
const ZEROS: [u32; 20] = [
    0x660, 0x6F0, 0x7C0, 0x966, 0x9E6, 0xA66, 0xAE6, 0xB66, 0xBE6, 0xC66, 0xCE6, 0xD66, 0xE50,
    0xED0, 0xF20, 0x1040, 0x17E0, 0x1810, 0xFF10, 0x1090,
];

/// Python's `int(text, base)`.
pub fn parse_int(text: &str, base: u32) -> Option<i128> {
    let text = text.trim_matches(is_space);
    let (negative, digits) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    let prefix = |mark: &str| {
        digits.strip_prefix(mark).or_else(|| digits.strip_prefix(&mark.to_uppercase()))
    };
    let (digits, base) = match base {
        0 if prefix("0x").is_some() => (prefix("0x")?, 16),
        0 if prefix("0o").is_some() => (prefix("0o")?, 8),
        0 if prefix("0b").is_some() => (prefix("0b")?, 2),
        0 => (digits, 10),
        16 => (prefix("0x").unwrap_or(digits), 16),
        8 => (prefix("0o").unwrap_or(digits), 8),
        2 => (prefix("0b").unwrap_or(digits), 2),
        base => (digits, base),
    };
    let broken = digits.starts_with('_') || digits.ends_with('_') || digits.contains("__");
    if broken || digits.starts_with(['+', '-']) || !(2..=36).contains(&base) {
        return None;
    }
    let digits: String = digits.chars().filter(|c| *c != '_').map(ascii_digit).collect();
    let number = i128::from_str_radix(&digits, base).ok()?;
    Some(if negative { -number } else { number })
}

/// A digit of any script as an ASCII one; other characters as they are.
fn ascii_digit(c: char) -> char {
    let zero = ZEROS.iter().find(|zero| (**zero..**zero + 10).contains(&(c as u32)));
    zero.and_then(|zero| char::from_digit(c as u32 - zero, 10)).unwrap_or(c)
}

/// Python's `float(text)`.
pub fn parse_float(text: &str) -> Option<f64> {
    let text: String = text.trim_matches(is_space).chars().map(ascii_digit).collect();
    let digit = |c: Option<char>| c.is_some_and(|c| c.is_ascii_digit());
    let between = text
        .match_indices('_')
        .all(|(at, _)| digit(text[..at].chars().last()) && digit(text[at + 1..].chars().next()));
    if !between {
        return None;
    }
    text.replace('_', "").parse().ok()
}

/// The length of a range, for `len`.
pub fn length(value: &Value) -> Option<usize> {
    match value {
        Value::Range { start, stop, step } => Some(range_len(*start, *stop, *step)),
        value => value.len(),
    }
}
