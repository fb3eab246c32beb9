//! Jinja2's filters and tests, and transformers' `tojson`.

use crate::ast::Binary;
use crate::failure::{fail, Error, Result};
use crate::format::percent;
use crate::interpreter::{Args, Interpreter};
use crate::lexer::is_space;
use crate::methods::{
    capitalize, center, is_lower, is_upper, length, parse_float, parse_int, replace, split_lines,
    strip,
};
use crate::value::{escape, same, Dict, Value};
use std::cmp::Ordering;

const FILTERS: [&str; 54] = [
    "abs",
    "attr",
    "batch",
    "capitalize",
    "center",
    "count",
    "d",
    "default",
    "dictsort",
    "e",
    "escape",
    "filesizeformat",
    "first",
    "float",
    "forceescape",
    "format",
    "groupby",
    "indent",
    "int",
    "items",
    "join",
    "last",
    "length",
    "list",
    "lower",
    "map",
    "max",
    "min",
    "pprint",
    "random",
    "reject",
    "rejectattr",
    "replace",
    "reverse",
    "round",
    "safe",
    "select",
    "selectattr",
    "slice",
    "sort",
    "string",
    "striptags",
    "sum",
    "title",
    "tojson",
    "trim",
    "truncate",
    "unique",
    "upper",
    "urlencode",
    "urlize",
    "wordcount",
    "wordwrap",
    "xmlattr",
];
const TESTS: [&str; 39] = [
    "!=",
    "<",
    "<=",
    "==",
    ">",
    ">=",
    "boolean",
    "callable",
    "defined",
    "divisibleby",
    "eq",
    "equalto",
    "escaped",
    "even",
    "false",
    "filter",
    "float",
    "ge",
    "greaterthan",
    "gt",
    "in",
    "integer",
    "iterable",
    "le",
    "lessthan",
    "lower",
    "lt",
    "mapping",
    "ne",
    "none",
    "number",
    "odd",
    "sameas",
    "sequence",
    "string",
    "test",
    "true",
    "undefined",
    "upper",
];

const PLAIN: [&str; 20] = [
    "abs",
    "capitalize",
    "count",
    "e",
    "escape",
    "first",
    "forceescape",
    "items",
    "last",
    "length",
    "list",
    "lower",
    "pprint",
    "reverse",
    "safe",
    "string",
    "striptags",
    "title",
    "upper",
    "wordcount",
];

fn wants(value: Option<Value>, what: &str) -> Result<Value> {
    value.map_or_else(|| fail(format!("{what}: an argument is missing")), Ok)
}

fn flag(value: Option<Value>) -> bool {
    value.is_some_and(|value| value.is_true())
}

fn whole(value: Option<Value>, default: i128, what: &str) -> Result<i128> {
    match value {
        None => Ok(default),
        Some(value) => match value.defined()?.as_int() {
            Some(number) => Ok(number),
            None => fail(format!("{what}: expected an integer, got {}", value.type_name())),
        },
    }
}

fn string(value: &Value, what: &str) -> Result<String> {
    match value.defined()? {
        Value::Str(text) => Ok(text.to_string()),
        value => fail(format!("{what}: expected a string, got {}", value.type_name())),
    }
}

fn lowered(value: Value, case_sensitive: bool) -> Value {
    match &value {
        Value::Str(text) if !case_sensitive => Value::str(text.to_lowercase()),
        _ => value,
    }
}

fn url_quote(text: &str, query: bool) -> String {
    let mut out = String::new();
    for byte in text.bytes() {
        match byte {
            b'/' if !query => out.push('/'),
            b' ' if query => out.push('+'),
            b if b.is_ascii_alphanumeric() || b"_.-~".contains(&b) => out.push(char::from(b)),
            b => out.push_str(&format!("%{b:02X}")),
        }
    }
    out
}

fn is_word(c: char) -> bool {
    c == '_' || c.is_alphanumeric()
}

/// Finds the start of the word at a position.
fn word_begin(chars: &[char], at: usize) -> usize {
    chars[..at].iter().rposition(|c| is_space(*c)).map_or(0, |at| at + 1)
}

/// Python's `textwrap.wrap` of one line.
fn wrap(line: &str, width: usize, break_words: bool, break_hyphens: bool) -> Vec<String> {
    let mut chunks: Vec<String> = Vec::new();
    let chars: Vec<char> = line.chars().collect();
    let mut at = 0;
    while at < chars.len() {
        let space = is_space(chars[at]);
        let begin = word_begin(&chars, at);
        let mut end = at + 1;
        while end < chars.len() && is_space(chars[end]) == space {
            let letter = |at: Option<usize>| {
                at.and_then(|at| chars.get(at)).is_some_and(|c| c.is_alphabetic() || *c == '_')
            };
            let part = |at: Option<usize>| {
                at.and_then(|at| chars.get(at))
                    .is_some_and(|c| is_word(*c) || "!\"'&.,?".contains(*c))
            };
            let back = |steps: usize| end.checked_sub(steps).filter(|at| *at >= begin);
            let word_before = letter(back(2)) && letter(back(3));
            let parts_before =
                part(back(2)) && back(3).is_some_and(|at| chars[at] == '-') && letter(back(4));
            let hyphen = break_hyphens
                && !space
                && chars[end - 1] == '-'
                && (word_before || parts_before)
                && letter(Some(end))
                && (letter(Some(end + 1))
                    || (chars.get(end + 1) == Some(&'-') && letter(Some(end + 2))));
            if hyphen {
                break;
            }
            end += 1;
        }
        chunks.push(chars[at..end].iter().collect());
        at = end;
    }
    chunks.reverse();
    let blank = |chunk: &String| chunk.trim_matches(is_space).is_empty();
    let mut lines = Vec::new();
    while !chunks.is_empty() {
        if !lines.is_empty() && chunks.last().is_some_and(blank) {
            chunks.pop();
        }
        let (mut line, mut used) = (Vec::new(), 0);
        while let Some(chunk) = chunks.pop() {
            let size = chunk.chars().count();
            if used + size <= width {
                used += size;
                line.push(chunk);
                continue;
            }
            if size > width {
                let room = width.saturating_sub(used).max(usize::from(line.is_empty()));
                if break_words && room > 0 {
                    let mut head: String = chunk.chars().take(room).collect();
                    let hyphen = head.rfind('-').filter(|_| break_hyphens);
                    if let Some(at) = hyphen.filter(|at| head[..*at].contains(|c| c != '-')) {
                        head.truncate(at + 1);
                    }
                    chunks.push(chunk[head.len()..].to_string());
                    line.push(head);
                } else if line.is_empty() {
                    line.push(chunk);
                } else {
                    chunks.push(chunk);
                }
            } else {
                chunks.push(chunk);
            }
            break;
        }
        if line.last().is_some_and(blank) {
            line.pop();
        }
        if !line.is_empty() {
            lines.push(line.concat());
        }
    }
    lines
}

impl Interpreter {
    /// Applies a function to each value, up to the first error. Jinja2's filters are generators, so the error only surfaces
    /// when a reader gets that far.
    fn lazily(
        &mut self,
        values: Vec<Value>,
        error: Option<Error>,
        mut part: impl FnMut(&mut Self, Value) -> Result<Option<Value>>,
    ) -> Result<Value> {
        let mut out = Vec::new();
        for value in values {
            match part(self, value) {
                Ok(found) => out.extend(found),
                Err(error) => return Value::generator(out, Some(error)),
            }
        }
        Value::generator(out, error)
    }

    /// Spends the steps of reading a call's arguments.
    pub fn charge_args(&mut self, args: &Args) -> Result<()> {
        let named = args.named.iter().map(|(_, value)| value);
        let bytes: usize = args
            .positional
            .iter()
            .chain(named)
            .map(|value| 32 + value.as_str().map_or(0, str::len))
            .sum();
        self.charge(bytes / 32)
    }

    /// Python's `sorted`, by keys.
    fn sorted(&mut self, mut keyed: Vec<(Value, Value)>, reverse: bool) -> Result<Vec<Value>> {
        if reverse {
            keyed.reverse();
        }
        let mut width = 1;
        while width < keyed.len() {
            let mut merged = Vec::with_capacity(keyed.len());
            for run in keyed.chunks(2 * width) {
                let (mut left, mut right) = run.split_at(width.min(run.len()));
                while let (Some(a), Some(b)) = (left.first(), right.first()) {
                    self.charge(1)?;
                    if self.order(&b.0, &a.0)? == Some(Ordering::Less) {
                        merged.push(b.clone());
                        right = &right[1..];
                    } else {
                        merged.push(a.clone());
                        left = &left[1..];
                    }
                }
                merged.extend_from_slice(left);
                merged.extend_from_slice(right);
            }
            keyed = merged;
            width *= 2;
        }
        if keyed.len() == 1 {
            return Ok(keyed.into_iter().map(|(_, value)| value).collect());
        }
        if reverse {
            keyed.reverse();
        }
        Ok(keyed.into_iter().map(|(_, value)| value).collect())
    }

    /// Pairs each value with its sort key: one attribute, or several separated by commas.
    fn keyed(
        &mut self,
        values: Vec<Value>,
        attribute: Option<Value>,
        case_sensitive: bool,
    ) -> Result<Vec<(Value, Value)>> {
        let paths: Vec<Value> = match &attribute {
            Some(Value::Str(paths)) => paths.split(',').map(Value::str).collect(),
            other => vec![other.clone().unwrap_or(Value::None)],
        };
        let mut keyed = Vec::new();
        for value in values {
            let mut keys = Vec::new();
            for path in &paths {
                keys.push(lowered(self.path(&value, path, None)?, case_sensitive));
            }
            keyed.push((self.list(keys)?, value));
        }
        Ok(keyed)
    }

    pub fn filter(&mut self, name: &str, value: Value, args: Args) -> Result<Value> {
        const KEEP: [&str; 8] =
            ["capitalize", "center", "indent", "lower", "reverse", "trim", "truncate", "upper"];
        let marked = matches!(&value, Value::Str(text) if text.safe) && KEEP.contains(&name);
        self.charge_args(&args)?;
        self.charge(value.as_str().map_or(0, str::len) / 32)?;
        match self.deeper(|me| me.filtered_by(name, value, args))? {
            Value::Str(text) if marked => Ok(Value::markup(&**text)),
            value => Ok(value),
        }
    }

    fn filtered_by(&mut self, name: &str, value: Value, args: Args) -> Result<Value> {
        self.charge(1)?;
        if PLAIN.contains(&name) {
            let [] = args.bind(name, [])?;
            return self.plain_filter(name, value);
        }
        Ok(match name {
            "attr" => {
                let [name] = args.bind("attr", ["name"])?;
                let name = string(&wants(name, "attr")?, "attr")?;
                value.defined()?;
                match self.own_attribute(&value, &name)? {
                    Some(found) => found,
                    None => Value::undefined(format!("no attribute '{name}'")),
                }
            }
            "batch" => {
                let [count, fill] = args.bind("batch", ["linecount", "fill_with"])?;
                let count = whole(Some(wants(count, "batch")?), 0, "batch")?;
                let values = self.iterate(&value)?;
                let mut batches = Vec::new();
                let mut batch = Vec::new();
                for value in values {
                    if batch.len() as i128 == count {
                        batches.push(self.list(std::mem::take(&mut batch))?);
                    }
                    batch.push(value);
                }
                if !batch.is_empty() {
                    if let Some(fill) = fill.filter(|fill| !matches!(fill, Value::None)) {
                        let missing = usize::try_from(count - batch.len() as i128).unwrap_or(0);
                        self.room(missing.saturating_mul(32))?;
                        batch.extend(std::iter::repeat_n(fill, missing));
                    }
                    batches.push(self.list(batch)?);
                }
                Value::generator(batches, None)?
            }
            "slice" => {
                let [count, fill] = args.bind("slice", ["slices", "fill_with"])?;
                let count = whole(Some(wants(count, "slice")?), 0, "slice")?;
                let values = self.iterate(&value)?;
                if count == 0 {
                    return fail("integer division or modulo by zero");
                }
                let count = usize::try_from(count).unwrap_or(0);
                self.room(count.saturating_mul(64))?;
                let fill = fill.filter(|fill| !matches!(fill, Value::None));
                let (each, extra) = (values.len() / count.max(1), values.len() % count.max(1));
                let mut slices = Vec::new();
                let mut rest = values.into_iter();
                for at in 0..count {
                    let mut part: Vec<Value> =
                        rest.by_ref().take(each + usize::from(at < extra)).collect();
                    part.extend(fill.clone().filter(|_| at >= extra));
                    slices.push(self.list(part)?);
                }
                Value::generator(slices, None)?
            }
            "center" => {
                let [width] = args.bind("center", ["width"])?;
                let width = whole(width, 80, "center")?;
                let text = self.text_of(&value)?;
                center(self, &text, width, " ")?
            }
            "d" | "default" => {
                let [default, boolean] = args.bind("default", ["default_value", "boolean"])?;
                if value.is_undefined() || (flag(boolean) && !value.is_true()) {
                    return Ok(default.unwrap_or_else(|| Value::str("")));
                }
                value
            }
            "dictsort" => {
                let names = ["case_sensitive", "by", "reverse"];
                let [case, by, reverse] = args.bind("dictsort", names)?;
                let at = match by.as_ref().map(|by| by.as_str()) {
                    None | Some(Some("key")) => 0,
                    Some(Some("value")) => 1,
                    _ => return fail("You can only sort by either \"key\" or \"value\""),
                };
                let Value::Dict(dict) = value.defined()? else {
                    return fail("dictsort: expected a mapping");
                };
                let case = flag(case);
                let mut keyed = Vec::new();
                for (key, value) in dict.entries() {
                    self.room(128)?;
                    let by = if at == 0 { key } else { value };
                    let pair = Value::tuple(vec![key.clone(), value.clone()])?;
                    keyed.push((lowered(by.clone(), case), pair));
                }
                let sorted = self.sorted(keyed, flag(reverse))?;
                self.list(sorted)?
            }
            "filesizeformat" => {
                let [binary] = args.bind("filesizeformat", ["binary"])?;
                let Value::Float(bytes) = self.filter("float", value, Args::default())? else {
                    return fail("filesizeformat: expected a number");
                };
                let binary = flag(binary);
                let base: f64 = if binary { 1024.0 } else { 1000.0 };
                Value::str(if bytes == 1.0 {
                    "1 Byte".into()
                } else if bytes < base {
                    format!("{} Bytes", bytes.trunc() as i64)
                } else {
                    let mut unit = base;
                    let mut letter = 'Y';
                    for prefix in "kMGTPEZY".chars() {
                        unit *= base;
                        letter = prefix;
                        if bytes < unit {
                            break;
                        }
                    }
                    let letter = if binary { letter.to_ascii_uppercase() } else { letter };
                    format!(
                        "{:.1} {letter}{}",
                        base * bytes / unit,
                        if binary { "iB" } else { "B" }
                    )
                })
            }
            "random" | "urlize" => {
                return fail(format!("the filter {name}: not in a chat template"))
            }
            "float" => {
                let [default] = args.bind("float", ["default"])?;
                match value.defined()? {
                    Value::Str(text) => match parse_float(text) {
                        Some(number) => Value::Float(number),
                        None => default.unwrap_or(Value::Float(0.0)),
                    },
                    value => match value.as_number() {
                        Some(number) => Value::Float(number),
                        None => default.unwrap_or(Value::Float(0.0)),
                    },
                }
            }
            "int" => {
                let [default, base] = args.bind("int", ["default", "base"])?;
                let base = u32::try_from(whole(base, 10, "int")?).unwrap_or(1);
                let default = default.unwrap_or(Value::Int(0));
                let float = match value.defined()? {
                    Value::Str(text) => {
                        if let Some(number) = parse_int(text, base) {
                            return Ok(Value::Int(number));
                        }
                        parse_float(text)
                    }
                    Value::Float(number) if number.is_infinite() => {
                        return fail("cannot convert float infinity to integer")
                    }
                    Value::Float(number) => Some(*number),
                    value => match value.as_int() {
                        Some(number) => return Ok(Value::Int(number)),
                        None => None,
                    },
                };
                match float.filter(|number: &f64| number.is_finite()) {
                    Some(number) if number.abs() < 1e38 => Value::Int(number.trunc() as i128),
                    _ => default,
                }
            }
            "format" => {
                let text = self.text_of(&value)?;
                let values = match args.named.is_empty() {
                    true => Value::tuple(args.positional)?,
                    false if !args.positional.is_empty() => {
                        return fail(
                            "can't handle positional and keyword arguments at the same time",
                        )
                    }
                    false => {
                        let mut dict = Dict::new();
                        for (name, value) in args.named {
                            dict.insert(Value::str(name), value, &mut self.fuel)?;
                        }
                        Value::dict(dict)
                    }
                };
                let text = percent(self, &text, &values)?;
                self.text(text)?
            }
            "groupby" => {
                let names = ["attribute", "default", "case_sensitive"];
                let [attribute, default, case] = args.bind("groupby", names)?;
                let (attribute, case) = (wants(attribute, "groupby")?, flag(case));
                let default = default.filter(|default| !matches!(default, Value::None));
                let mut keyed = Vec::new();
                for value in self.iterate(&value)? {
                    let key = self.path(&value, &attribute, default.as_ref())?;
                    let pair = Value::tuple(vec![key.clone(), value])?;
                    keyed.push((lowered(key, case), pair));
                }
                let mut groups: Vec<(Value, Value, Vec<Value>)> = Vec::new();
                for pair in self.sorted(keyed, false)? {
                    let Value::Tuple(pair) = pair else { continue };
                    let key = lowered(pair[0].clone(), case);
                    let again = match groups.last() {
                        Some((last, _, _)) => self.equal(last, &key)?,
                        None => false,
                    };
                    match groups.last_mut().filter(|_| again) {
                        Some((_, _, values)) => values.push(pair[1].clone()),
                        None => groups.push((key, pair[0].clone(), vec![pair[1].clone()])),
                    }
                }
                let mut out = Vec::new();
                for (_, key, values) in groups {
                    let values = self.list(values)?;
                    out.push(Value::tuple(vec![key, values])?);
                }
                self.list(out)?
            }
            "indent" => {
                let [width, first, blank] = args.bind("indent", ["width", "first", "blank"])?;
                let text = string(&value, "indent")?;
                let lines = split_lines(&(text + "\n"), false);
                let indent = match width {
                    Some(Value::Str(text)) => text.to_string(),
                    width => {
                        let width = usize::try_from(whole(width, 4, "indent")?.max(0))
                            .unwrap_or(usize::MAX);
                        self.room(width)?;
                        " ".repeat(width)
                    }
                };
                let (first, blank) = (flag(first), flag(blank));
                let bytes: usize = lines.iter().map(|line| line.len() + 1).sum();
                self.room(bytes.saturating_add(lines.len().saturating_mul(indent.len())))?;
                let mut out = String::new();
                for (at, line) in lines.iter().enumerate() {
                    out.push_str(if at > 0 { "\n" } else { "" });
                    if (at == 0 && first) || (at > 0 && (blank || !line.is_empty())) {
                        out.push_str(&indent);
                    }
                    out.push_str(line);
                }
                Value::str(out)
            }
            "join" => {
                let [separator, attribute] = args.bind("join", ["d", "attribute"])?;
                let separator = match separator {
                    Some(separator) => self.text_of(&separator)?,
                    None => String::new(),
                };
                let attribute = attribute.unwrap_or(Value::None);
                let mut out = String::new();
                for (at, item) in self.iterate(&value)?.into_iter().enumerate() {
                    let item = self.path(&item, &attribute, None)?;
                    let text = self.text_of(&item)?;
                    self.charge(1)?;
                    if out.len() + text.len() + separator.len() > self.size_limit {
                        return fail("join: the text gets too long");
                    }
                    out.push_str(if at > 0 { &separator } else { "" });
                    out.push_str(&text);
                }
                self.text(out)?
            }
            "map" => {
                if !value.is_true() {
                    return Value::generator(Vec::new(), None);
                }
                let (values, error) = self.items(&value)?;
                if args.positional.is_empty()
                    && args.named.iter().any(|(name, _)| name == "attribute")
                {
                    let [attribute, default] = args.bind("map", ["attribute", "default"])?;
                    let attribute = attribute.unwrap_or(Value::None);
                    let default = default.filter(|default| !matches!(default, Value::None));
                    return self.lazily(values, error, |me, item| {
                        Ok(Some(me.path(&item, &attribute, default.as_ref())?))
                    });
                }
                let Some(name) = args.positional.first() else {
                    return fail("map requires a filter argument");
                };
                let name = string(name, "map")?;
                self.lazily(values, error, |me, item| {
                    let args = Args {
                        positional: args.positional[1..].to_vec(),
                        named: args.named.clone(),
                    };
                    Ok(Some(me.filter(&name, item, args)?))
                })?
            }
            "min" | "max" => {
                let [case, attribute] = args.bind(name, ["case_sensitive", "attribute"])?;
                let (case, attribute) = (flag(case), attribute.unwrap_or(Value::None));
                let mut best: Option<(Value, Value)> = None;
                for item in self.iterate(&value)? {
                    let key = lowered(self.path(&item, &attribute, None)?, case);
                    let better = match &best {
                        None => true,
                        Some((old, _)) if name == "min" => {
                            self.order(&key, old)? == Some(Ordering::Less)
                        }
                        Some((old, _)) => self.order(&key, old)? == Some(Ordering::Greater),
                    };
                    if better {
                        best = Some((key, item));
                    }
                }
                match best {
                    Some((_, item)) => item,
                    None => Value::undefined("No aggregated item, sequence was empty."),
                }
            }
            "reject" | "rejectattr" | "select" | "selectattr" => {
                if !value.is_true() {
                    return Value::generator(Vec::new(), None);
                }
                let (values, error) = self.items(&value)?;
                let mut positional = args.positional.into_iter();
                let attribute = match name.ends_with("attr") {
                    true => wants(positional.next(), name)?,
                    false => Value::None,
                };
                let test = positional.next();
                let positional: Vec<Value> = positional.collect();
                let wanted = name.starts_with("select");
                self.lazily(values, error, |me, item| {
                    let part = me.path(&item, &attribute, None)?;
                    let passes = match &test {
                        None => part.is_true(),
                        Some(test) => {
                            let args =
                                Args { positional: positional.clone(), named: args.named.clone() };
                            me.test(&string(test, "select")?, &part, args)?
                        }
                    };
                    Ok(Some(item).filter(|_| passes == wanted))
                })?
            }
            "replace" => {
                let [old, new, count] = args.bind("replace", ["old", "new", "count"])?;
                let text = self.text_of(&value)?;
                let old = self.text_of(&wants(old, "replace")?)?;
                let new = self.text_of(&wants(new, "replace")?)?;
                let count = match count {
                    None | Some(Value::None) => -1,
                    count => whole(count, -1, "replace")?,
                };
                replace(self, &text, &old, &new, count)?
            }
            "round" => {
                let [digits, method] = args.bind("round", ["precision", "method"])?;
                let digits = whole(digits, 0, "round")?.clamp(-400, 400) as i32;
                let method = match &method {
                    None => "common",
                    Some(method) => method.as_str().unwrap_or(""),
                };
                let (integer, number) = (value.defined()?.as_int(), value.as_number());
                let Some(number) = number else {
                    return fail(format!(
                        "type {} doesn't define __round__ method",
                        value.type_name()
                    ));
                };
                match (method, integer) {
                    ("common", Some(integer)) if digits >= 0 => Value::Int(integer),
                    ("common", Some(integer)) => {
                        let Some(unit) = 10i128.checked_pow(digits.unsigned_abs()) else {
                            return Ok(Value::Int(0));
                        };
                        let (low, rest) = (integer.div_euclid(unit), integer.rem_euclid(unit));
                        let up = 2 * rest > unit || (2 * rest == unit && low % 2 != 0);
                        Value::Int((low + i128::from(up)) * unit)
                    }
                    ("common", None) if digits >= 0 || !number.is_finite() => {
                        let text = format!("{number:.*}", digits.max(0) as usize);
                        Value::Float(text.parse().unwrap_or(number))
                    }
                    ("common", None) => {
                        let unit = 10f64.powi(-digits);
                        Value::Float((number / unit).round_ties_even() * unit)
                    }
                    ("ceil" | "floor", _) => {
                        let unit = 10f64.powi(digits);
                        let scaled = number * unit;
                        Value::Float(
                            if method == "ceil" { scaled.ceil() } else { scaled.floor() } / unit,
                        )
                    }
                    _ => return fail("method must be common, ceil or floor"),
                }
            }
            "sort" => {
                let names = ["reverse", "case_sensitive", "attribute"];
                let [reverse, case, attribute] = args.bind("sort", names)?;
                let values = self.iterate(&value)?;
                let attribute = attribute.filter(|attribute| !matches!(attribute, Value::None));
                let keyed = self.keyed(values, attribute, flag(case))?;
                let sorted = self.sorted(keyed, flag(reverse))?;
                self.list(sorted)?
            }
            "sum" => {
                let [attribute, start] = args.bind("sum", ["attribute", "start"])?;
                let attribute = attribute.unwrap_or(Value::None);
                let mut total = start.unwrap_or(Value::Int(0));
                if matches!(total, Value::Str(_)) {
                    return fail("sum() can't sum strings");
                }
                for item in self.iterate(&value)? {
                    let item = self.path(&item, &attribute, None)?;
                    total = self.binary(Binary::Add, &total, &item)?;
                }
                total
            }
            "tojson" => return crate::json::dumps(self, value, args),
            "trim" => {
                let [chars] = args.bind("trim", ["chars"])?;
                let text = self.text_of(&value)?;
                Value::str(strip(&text, chars, true, true)?)
            }
            "truncate" => {
                let names = ["length", "killwords", "end", "leeway"];
                let [length, kill, end, leeway] = args.bind("truncate", names)?;
                if value.is_undefined() {
                    return Ok(value); // its length is 0
                }
                let text = string(&value, "truncate")?;
                let end = match end {
                    Some(end) => string(&end, "truncate")?,
                    None => "...".into(),
                };
                let length = whole(length, 255, "truncate")?;
                let leeway = match leeway {
                    None | Some(Value::None) => 5,
                    leeway => whole(leeway, 5, "truncate")?,
                };
                let ending = end.chars().count() as i128;
                if length < ending || leeway < 0 {
                    return fail(format!("truncate: expected length >= {ending}, got {length}"));
                }
                if text.chars().count() as i128 <= length.saturating_add(leeway) {
                    return Ok(value);
                }
                let cut: String = text.chars().take((length - ending) as usize).collect();
                let kept = match flag(kill) {
                    true => &cut,
                    false => cut.rsplit_once(' ').map_or(&*cut, |(before, _)| before),
                };
                self.text(kept.to_string() + &end)?
            }
            "unique" => {
                let [case, attribute] = args.bind("unique", ["case_sensitive", "attribute"])?;
                let (case, attribute) = (flag(case), attribute.unwrap_or(Value::None));
                let (values, error) = self.items(&value)?;
                let mut seen = std::collections::HashSet::new();
                self.lazily(values, error, |me, item| {
                    me.charge(1)?;
                    let key = lowered(me.path(&item, &attribute, None)?, case).key(&mut me.fuel)?;
                    Ok(seen.insert(key).then_some(item))
                })?
            }
            "urlencode" => {
                let mut parts = Vec::new();
                let pairs = match &value {
                    Value::Dict(dict) => {
                        self.iterate(&Value::View(crate::value::View::Items, dict.clone()))?
                    }
                    Value::List(_) | Value::Tuple(_) | Value::Generator(_) | Value::View(..) => {
                        self.iterate(&value)?
                    }
                    value => {
                        let text = self.text_of(value)?;
                        return self.text(url_quote(&text, false));
                    }
                };
                for pair in pairs {
                    let pair = self.iterate(&pair)?;
                    let [key, value] = pair.as_slice() else {
                        return fail("urlencode: expected pairs");
                    };
                    let (key, value) = (self.text_of(key)?, self.text_of(value)?);
                    parts.push(format!("{}={}", url_quote(&key, true), url_quote(&value, true)));
                }
                self.text(parts.join("&"))?
            }
            "wordwrap" => {
                let names = ["width", "break_long_words", "wrapstring", "break_on_hyphens"];
                let [width, words, join, hyphens] = args.bind("wordwrap", names)?;
                let width = usize::try_from(whole(width, 79, "wordwrap")?).unwrap_or(0);
                if width == 0 {
                    return fail("wordwrap: invalid width (must be > 0)");
                }
                let join = match join {
                    None | Some(Value::None) => "\n".to_string(),
                    Some(join) => string(&join, "wordwrap")?,
                };
                let words = words.is_none_or(|value| value.is_true());
                let hyphens = hyphens.is_none_or(|value| value.is_true());
                let text = string(&value, "wordwrap")?;
                self.charge(text.len())?;
                self.room(text.len().saturating_mul(32 + join.len()))?;
                let lines = split_lines(&text, false);
                // A word that is longer than the width is cut again and again.
                for line in &lines {
                    self.charge(line.len().saturating_mul(line.len()) / 256)?;
                }
                let wrapped =
                    lines.iter().map(|line| wrap(line, width, words, hyphens).join(&join));
                let text = wrapped.collect::<Vec<_>>().join(&join);
                self.text(text)?
            }
            "xmlattr" => {
                let [space] = args.bind("xmlattr", ["autospace"])?;
                let Value::Dict(dict) = value.defined()? else {
                    return fail("xmlattr: expected a mapping");
                };
                let mut out = String::new();
                for (key, value) in dict.entries() {
                    if matches!(value, Value::None | Value::Undefined(_)) {
                        continue;
                    }
                    let key = string(key, "xmlattr")?;
                    if key.contains(|c: char| c.is_ascii_whitespace() || "/>=".contains(c)) {
                        return fail("Invalid character in attribute name");
                    }
                    let value = self.text_of(value)?;
                    if !out.is_empty() {
                        out.push(' ');
                    }
                    self.longer(&out, 0)?;
                    out.push_str(&format!("{}=\"{}\"", escape(&key), escape(&value)));
                }
                if !out.is_empty() && space.is_none_or(|space| space.is_true()) {
                    out.insert(0, ' ');
                }
                self.text(out)?
            }
            name => return fail(format!("No filter named '{name}'.")),
        })
    }

    /// The filters without arguments.
    fn plain_filter(&mut self, name: &str, value: Value) -> Result<Value> {
        Ok(match name {
            "abs" => match value.defined()? {
                Value::Float(number) => Value::Float(number.abs()),
                value => match value.as_int() {
                    Some(number) => Value::Int(number.saturating_abs()),
                    None => {
                        return fail(format!("bad operand type for abs(): '{}'", value.type_name()))
                    }
                },
            },
            "capitalize" => {
                let text = self.text_of(&value)?;
                self.text(capitalize(&text))?
            }
            "count" | "length" => {
                let length = match &value {
                    Value::Loop(_) => {
                        let length = self.attribute(&value, "length")?;
                        return Ok(length);
                    }
                    Value::Str(text) => {
                        self.charge(text.len() / 32)?;
                        value.len()
                    }
                    value => length(value),
                };
                match length {
                    Some(length) => Value::Int(length as i128),
                    None => {
                        return fail(format!("object of type '{}' has no len()", value.type_name()))
                    }
                }
            }
            "e" | "escape" | "forceescape" | "safe" => {
                let marked = matches!(&value, Value::Str(text) if text.safe);
                let text = self.text_of(&value)?;
                let text = match marked && name != "forceescape" || name == "safe" {
                    true => text,
                    false => escape(&text),
                };
                self.room(text.len())?;
                Value::markup(text)
            }
            "string" => match value {
                Value::Str(_) => value,
                value => Value::str(self.text_of(&value)?),
            },
            "striptags" => {
                let text = self.text_of(&value)?;
                let (mut out, mut rest) = (String::new(), text.as_str());
                while let Some(at) = rest.find('<') {
                    let tag = &rest[at..];
                    let end = match tag.starts_with("<!--") {
                        true => tag.find("-->").map(|end| end + 3),
                        false => tag.find('>').map(|end| end + 1),
                    };
                    let Some(end) = end else { break };
                    out.push_str(&rest[..at]);
                    rest = &tag[end..];
                }
                out.push_str(rest);
                let words: Vec<&str> =
                    out.split(is_space).filter(|word| !word.is_empty()).collect();
                let text = words.join(" ").replace("&lt;", "<").replace("&gt;", ">");
                Value::str(text.replace("&#34;", "\"").replace("&#39;", "'").replace("&amp;", "&"))
            }
            "first" => {
                // Only the first is read: what comes after it stays in a generator.
                if let Value::Generator(generator) = &value {
                    if let Some(first) = generator.rest.borrow_mut().pop_front() {
                        return Ok(first);
                    }
                }
                match &value {
                    Value::Str(text) => text.chars().next().map(Value::str),
                    value => self.iterate(value)?.into_iter().next(),
                }
                .unwrap_or_else(|| Value::undefined("No first item, sequence was empty."))
            }
            "last" => {
                let last = match &value {
                    Value::Str(text) => text.chars().last().map(Value::str),
                    Value::Generator(_) => return fail("'generator' object is not reversible"),
                    value => self.iterate(value)?.pop(),
                };
                last.unwrap_or_else(|| Value::undefined("No last item, sequence was empty."))
            }
            "items" => match &value {
                Value::Undefined(_) => Value::generator(Vec::new(), None)?,
                Value::Dict(dict) => {
                    let (pairs, _) =
                        self.items(&Value::View(crate::value::View::Items, dict.clone()))?;
                    Value::generator(pairs, None)?
                }
                _ => Value::generator(
                    Vec::new(),
                    fail::<()>("Can only get item pairs from a mapping.").err(),
                )?,
            },
            "list" => {
                let values = self.iterate(&value)?;
                self.list(values)?
            }
            "lower" => Value::str(self.text_of(&value)?.to_lowercase()),
            "upper" => Value::str(self.text_of(&value)?.to_uppercase()),
            "pprint" => Value::str(value.repr()?),
            "reverse" => match &value {
                Value::Str(text) => {
                    self.room(text.len())?;
                    Value::str(text.chars().rev().collect::<String>())
                }
                Value::Generator(_) => {
                    let mut values = self.iterate(&value)?;
                    values.reverse();
                    self.list(values)?
                }
                value => {
                    let mut values = self.iterate(value)?;
                    values.reverse();
                    Value::generator(values, None)?
                }
            },
            "title" => {
                let text = self.text_of(&value)?;
                let border = |c: char| is_space(c) || "-({[<".contains(c);
                let (mut out, mut start) = (String::new(), true);
                for c in text.chars() {
                    match (border(c), start) {
                        (true, _) => out.push(c),
                        (false, true) => out.extend(c.to_uppercase()),
                        (false, false) => out.extend(c.to_lowercase()),
                    }
                    start = border(c);
                }
                self.text(out)?
            }
            "wordcount" => {
                let text = self.text_of(&value)?;
                let words = text.split(|c| !is_word(c)).filter(|word| !word.is_empty());
                Value::Int(words.count() as i128)
            }
            name => return fail(format!("No filter named '{name}'.")),
        })
    }

    pub fn test(&mut self, name: &str, value: &Value, args: Args) -> Result<bool> {
        self.charge(1 + value.as_str().map_or(0, str::len) / 32)?;
        self.charge_args(&args)?;
        let unary = |args: Args| args.bind::<0>(name, []).map(drop);
        let operand = |args: Args| {
            let [operand] = args.bind(name, ["other"])?;
            wants(operand, name)
        };
        Ok(match name {
            "defined" => {
                unary(args)?;
                !value.is_undefined()
            }
            "undefined" => value.is_undefined(),
            "none" => {
                unary(args)?;
                matches!(value, Value::None)
            }
            "boolean" => matches!(value, Value::Bool(_)),
            "false" => matches!(value, Value::Bool(false)),
            "true" => matches!(value, Value::Bool(true)),
            "integer" => matches!(value, Value::Int(_)),
            "float" => matches!(value, Value::Float(_)),
            "number" => matches!(value, Value::Bool(_) | Value::Int(_) | Value::Float(_)),
            "string" => {
                unary(args)?;
                matches!(value, Value::Str(_))
            }
            "mapping" => {
                unary(args)?;
                matches!(value, Value::Dict(_))
            }
            "sequence" => matches!(
                value,
                Value::Undefined(_)
                    | Value::Str(_)
                    | Value::List(_)
                    | Value::Tuple(_)
                    | Value::Dict(_)
                    | Value::Range { .. }
            ),
            "iterable" => !matches!(
                value,
                Value::None
                    | Value::Bool(_)
                    | Value::Int(_)
                    | Value::Float(_)
                    | Value::Namespace(_)
                    | Value::Method(_)
                    | Value::Function(_)
                    | Value::Macro(_)
                    | Value::Cycler(_)
                    | Value::Joiner(_)
            ),
            "callable" => matches!(
                value,
                Value::Undefined(_)
                    | Value::Method(_)
                    | Value::Function(_)
                    | Value::Macro(_)
                    | Value::Joiner(_)
                    | Value::Loop(_)
            ),
            "escaped" => matches!(value, Value::Str(text) if text.safe),
            "odd" | "even" => match self.binary(Binary::Mod, value, &Value::Int(2))?.as_number() {
                Some(rest) => rest == f64::from(u8::from(name == "odd")),
                None => false,
            },
            "divisibleby" => {
                let by = operand(args)?;
                self.binary(Binary::Mod, value, &by)?.as_number() == Some(0.0)
            }
            "lower" => is_lower(&self.text_of(value)?),
            "upper" => is_upper(&self.text_of(value)?),
            "filter" => value.as_str().is_some_and(|name| FILTERS.contains(&name)),
            "test" => value.as_str().is_some_and(|name| TESTS.contains(&name)),
            "sameas" => same(value, &operand(args)?),
            "in" => {
                let whole = operand(args)?;
                self.contains(&whole, value)?
            }
            "eq" | "equalto" | "==" => {
                let other = operand(args)?;
                self.equal(value, &other)?
            }
            "ne" | "!=" => {
                let other = operand(args)?;
                !self.equal(value, &other)?
            }
            "lt" | "lessthan" | "<" => self.order(value, &operand(args)?)? == Some(Ordering::Less),
            "gt" | "greaterthan" | ">" => {
                self.order(value, &operand(args)?)? == Some(Ordering::Greater)
            }
            "le" | "<=" => {
                self.order(value, &operand(args)?)?.is_some_and(|order| order != Ordering::Greater)
            }
            "ge" | ">=" => {
                self.order(value, &operand(args)?)?.is_some_and(|order| order != Ordering::Less)
            }
            name => return fail(format!("No test named '{name}'.")),
        })
    }
}
