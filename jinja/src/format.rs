//! Python's two ways to format: `'%s' % value` and `'{}'.format(value)`.

use crate::failure::{fail, Result};
use crate::interpreter::{Args, Interpreter};
use crate::value::{float_repr, Value};

/// The most digits after a point.
const MAX_PRECISION: usize = 1000;

/// Python's format specification.
#[derive(Default, Clone)]
struct Spec {
    fill: Option<char>,
    align: Option<char>,
    sign: Option<char>,
    alternate: bool,
    zero: bool,
    width: usize,
    grouping: Option<char>,
    precision: Option<usize>,
    kind: Option<char>,
}

fn number(chars: &mut std::iter::Peekable<std::str::Chars>) -> Result<Option<usize>> {
    let mut digits = String::new();
    while let Some(digit) = chars.next_if(char::is_ascii_digit) {
        digits.push(digit);
    }
    match digits.parse() {
        Ok(number) => Ok(Some(number)),
        Err(_) if digits.is_empty() => Ok(None),
        Err(_) => fail("a format's number is too large"),
    }
}

fn precision(found: Option<usize>) -> Result<usize> {
    match found {
        Some(digits) if digits > MAX_PRECISION => fail("a format's precision is too large"),
        Some(digits) => Ok(digits),
        None => Ok(0),
    }
}

/// Groups digits in threes, or in fours for bases other than ten.
fn grouped(digits: &str, sign: char, size: usize) -> String {
    let mut out = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(size) {
            out.push(sign);
        }
        out.push(digit);
    }
    out
}

fn exponent(text: &str, upper: bool) -> String {
    let (digits, exponent) = text.split_once('e').unwrap_or((text, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    let sign = if exponent < 0 { '-' } else { '+' };
    let e = if upper { 'E' } else { 'e' };
    format!("{digits}{e}{sign}{:02}", exponent.abs())
}

/// Formats a float that isn't negative.
fn float_digits(number: f64, kind: char, precision: Option<usize>, alternate: bool) -> String {
    let upper = kind.is_ascii_uppercase();
    if !number.is_finite() {
        let text = if number.is_nan() { "nan" } else { "inf" };
        return if upper { text.to_uppercase() } else { text.into() };
    }
    let digits = precision.unwrap_or(6);
    match kind.to_ascii_lowercase() {
        'f' => format!("{number:.digits$}"),
        '%' => format!("{:.digits$}%", number * 100.0),
        'e' => exponent(&format!("{number:.digits$e}"), upper),
        _ => {
            let digits = digits.max(1);
            let text = format!("{number:.*e}", digits - 1);
            let power: i32 = text.split_once('e').and_then(|(_, e)| e.parse().ok()).unwrap_or(0);
            let strip = |text: &str| match text.contains('.') && !alternate {
                true => text.trim_end_matches('0').trim_end_matches('.').to_string(),
                false => text.to_string(),
            };
            if (-4..digits as i32).contains(&power) {
                return strip(&format!("{number:.*}", (digits as i32 - 1 - power) as usize));
            }
            let (mantissa, _) = text.split_once('e').unwrap_or((&text, ""));
            exponent(&format!("{}e{power}", strip(mantissa)), upper)
        }
    }
}

impl Spec {
    fn parse(text: &str) -> Result<Self> {
        let mut spec = Self::default();
        let mut chars = text.chars().peekable();
        let is_align = |c: Option<char>| matches!(c, Some('<' | '>' | '^' | '='));
        if is_align(text.chars().nth(1)) {
            spec.fill = chars.next();
            spec.align = chars.next();
        } else if is_align(text.chars().next()) {
            spec.align = chars.next();
        }
        spec.sign = chars.next_if(|c| matches!(c, '+' | '-' | ' '));
        let _ = chars.next_if_eq(&'z');
        spec.alternate = chars.next_if_eq(&'#').is_some();
        spec.zero = chars.next_if_eq(&'0').is_some();
        spec.width = number(&mut chars)?.unwrap_or(0);
        spec.grouping = chars.next_if(|c| matches!(c, ',' | '_'));
        if chars.next_if_eq(&'.').is_some() {
            match number(&mut chars)? {
                None => return fail("Format specifier missing precision"),
                found => spec.precision = found,
            }
        }
        spec.kind = chars.next();
        match chars.next() {
            Some(_) => fail("Invalid format specifier"),
            None => Ok(spec),
        }
    }

    fn pad(
        &self,
        interpreter: &mut Interpreter,
        sign: &str,
        text: String,
        align: char,
    ) -> Result<String> {
        let length = sign.chars().count() + text.chars().count();
        let missing = self.width.saturating_sub(length);
        interpreter.room(text.len().saturating_add(missing.saturating_mul(4)))?;
        let zero = self.zero && self.align.is_none();
        let fill = self.fill.unwrap_or(if self.zero { '0' } else { ' ' });
        let (left, inner, right) = match self.align.unwrap_or(if zero { '=' } else { align }) {
            '<' => (0, 0, missing),
            '^' => (missing / 2, 0, missing - missing / 2),
            '=' => (0, missing, 0),
            _ => (missing, 0, 0),
        };
        let mut out = String::new();
        out.extend(std::iter::repeat_n(fill, left));
        out.push_str(sign);
        out.extend(std::iter::repeat_n(fill, inner));
        out.push_str(&text);
        out.extend(std::iter::repeat_n(fill, right));
        Ok(out)
    }

    fn sign_of(&self, negative: bool) -> &'static str {
        match (negative, self.sign) {
            (true, _) => "-",
            (_, Some('+')) => "+",
            (_, Some(' ')) => " ",
            _ => "",
        }
    }

    fn integer(&self, interpreter: &mut Interpreter, value: i128) -> Result<String> {
        if self.precision.is_some() {
            return fail("Precision not allowed in integer format specifier");
        }
        let size = value.unsigned_abs();
        let (prefix, digits, group) = match self.kind.unwrap_or('d') {
            'd' | 'n' => ("", size.to_string(), 3),
            'b' => ("0b", format!("{size:b}"), 4),
            'o' => ("0o", format!("{size:o}"), 4),
            'x' => ("0x", format!("{size:x}"), 4),
            'X' => ("0X", format!("{size:X}"), 4),
            'c' => {
                let c = u32::try_from(value).ok().and_then(char::from_u32);
                let Some(c) = c else { return fail("%c arg not in range(0x110000)") };
                return self.pad(interpreter, "", c.to_string(), '<');
            }
            _ => return fail("Unknown format code for object of type 'int'"),
        };
        let digits = match self.grouping {
            Some(sign) => grouped(&digits, sign, group),
            None => digits,
        };
        let sign = self.sign_of(value < 0).to_string() + if self.alternate { prefix } else { "" };
        self.pad(interpreter, &sign, digits, '>')
    }

    fn float(&self, interpreter: &mut Interpreter, value: f64) -> Result<String> {
        let precision_given = self.precision.map(|digits| precision(Some(digits))).transpose()?;
        let size = value.abs();
        let text = match (self.kind, precision_given) {
            (None, None) => float_repr(size),
            (None, Some(digits)) => {
                let text = float_digits(size, 'g', Some(digits), false);
                let whole = !text.contains(['.', 'e', 'n']);
                if whole {
                    text + ".0"
                } else {
                    text
                }
            }
            (Some(kind @ ('f' | 'F' | 'e' | 'E' | 'g' | 'G' | '%')), digits) => {
                float_digits(size, kind, digits, self.alternate)
            }
            (Some('n'), digits) => float_digits(size, 'g', digits, self.alternate),
            _ => return fail("Unknown format code for object of type 'float'"),
        };
        let text = match self.grouping {
            Some(sign) => {
                let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
                grouped(&text[..end], sign, 3) + &text[end..]
            }
            None => text,
        };
        self.pad(interpreter, self.sign_of(value.is_sign_negative() && !value.is_nan()), text, '>')
    }

    fn text(&self, interpreter: &mut Interpreter, text: &str) -> Result<String> {
        let numeric = self.sign.is_some() || self.alternate || self.grouping.is_some();
        if numeric || self.align == Some('=') || !matches!(self.kind, None | Some('s')) {
            return fail("Invalid format specifier for object of type 'str'");
        }
        let text = match self.precision {
            Some(length) => text.chars().take(length).collect(),
            None => text.to_string(),
        };
        let spec = Self { align: self.align.or(Some('<')), ..self.clone() };
        spec.pad(interpreter, "", text, '<')
    }
}

/// Python's `format(value, spec)`.
fn format_value(interpreter: &mut Interpreter, value: &Value, spec: &str) -> Result<String> {
    if spec.is_empty() {
        return interpreter.text_of(value);
    }
    let spec = Spec::parse(spec)?;
    match value {
        Value::Str(text) => spec.text(interpreter, text),
        Value::Float(number) => spec.float(interpreter, *number),
        value => match value.as_int() {
            Some(number) => match spec.kind {
                Some('f' | 'F' | 'e' | 'E' | 'g' | 'G' | '%') => {
                    spec.float(interpreter, number as f64)
                }
                _ => spec.integer(interpreter, number),
            },
            None => fail(format!(
                "unsupported format string passed to {}.__format__",
                value.type_name()
            )),
        },
    }
}

/// `template.format(…)`.
pub fn format(interpreter: &mut Interpreter, template: &str, args: &Args) -> Result<String> {
    let mut automatic = Some(0);
    braces(interpreter, template, args, &mut automatic, 2)
}

fn braces(
    interpreter: &mut Interpreter,
    template: &str,
    args: &Args,
    automatic: &mut Option<usize>,
    depth: usize,
) -> Result<String> {
    if depth == 0 && template.contains('{') {
        return fail("Max string recursion exceeded");
    }
    let mut out = String::new();
    let mut rest = template;
    while let Some(at) = rest.find(['{', '}']) {
        out.push_str(&rest[..at]);
        let brace = &rest[at..at + 1];
        rest = &rest[at + 1..];
        if let Some(after) = rest.strip_prefix(brace) {
            out.push_str(brace);
            rest = after;
            continue;
        }
        if brace == "}" {
            return fail("Single '}' encountered in format string");
        }
        let mut open = 1;
        let end = rest.find(|c| {
            open += i32::from(c == '{') - i32::from(c == '}');
            open == 0
        });
        let Some(end) = end else { return fail("expected '}' before end of string") };
        let field = &rest[..end];
        rest = &rest[end + 1..];
        // A colon or an exclamation mark inside of brackets belongs to a key.
        let mut bracket = false;
        let cut = field.find(|c| {
            bracket = (bracket || c == '[') && c != ']';
            !bracket && (c == ':' || c == '!')
        });
        let (name, after) = field.split_at(cut.unwrap_or(field.len()));
        let (conversion, spec) = match after.strip_prefix('!') {
            Some(after) => match after.split_once(':') {
                Some((conversion, spec)) => (conversion, spec),
                None => (after, ""),
            },
            None => ("", after.strip_prefix(':').unwrap_or("")),
        };
        let value = lookup(interpreter, name, args, automatic)?;
        let value = match conversion {
            "" => value,
            "s" => Value::str(interpreter.text_of(&value)?),
            "r" | "a" => Value::str(value.repr()?),
            _ => return fail("Unknown conversion specifier"),
        };
        let spec = braces(interpreter, spec, args, automatic, depth.saturating_sub(1))?;
        let text = format_value(interpreter, &value, &spec)?;
        interpreter.longer(&out, text.len())?;
        out.push_str(&text);
    }
    out.push_str(rest);
    Ok(out)
}

fn lookup(
    interpreter: &mut Interpreter,
    name: &str,
    args: &Args,
    automatic: &mut Option<usize>,
) -> Result<Value> {
    interpreter.charge(1 + args.named.len())?;
    let end = name.find(['.', '[']).unwrap_or(name.len());
    let (first, mut rest) = name.split_at(end);
    let at = match (first.parse::<usize>(), *automatic) {
        (Ok(at), Some(0) | None) => {
            *automatic = None;
            Some(at)
        }
        (Ok(_), Some(_)) => {
            return fail(
                "cannot switch from automatic field numbering to manual field specification",
            )
        }
        (Err(_), Some(at)) if first.is_empty() => {
            *automatic = Some(at + 1);
            Some(at)
        }
        (Err(_), None) if first.is_empty() => {
            return fail(
                "cannot switch from manual field specification to automatic field numbering",
            )
        }
        _ => None,
    };
    let found = match at {
        Some(at) => args.positional.get(at),
        None => args.named.iter().find(|(known, _)| known == first).map(|(_, value)| value),
    };
    let Some(mut value) = found.cloned() else {
        return fail("a format names an argument that it isn't given");
    };
    while !rest.is_empty() {
        interpreter.charge(1)?;
        if let Some(after) = rest.strip_prefix('.') {
            let end = after.find(['.', '[']).unwrap_or(after.len());
            value = interpreter.attribute(&value, &after[..end])?;
            rest = &after[end..];
        } else if let Some((key, after)) =
            rest[1..].split_once(']').filter(|_| rest.starts_with('['))
        {
            let key = match key.parse() {
                Ok(number) => Value::Int(number),
                Err(_) => Value::str(key),
            };
            value = interpreter.index(&value, &key)?;
            rest = after;
        } else {
            return fail("a format has a broken field");
        }
    }
    Ok(value)
}

/// `format % values`.
pub fn percent(interpreter: &mut Interpreter, format: &str, values: &Value) -> Result<String> {
    let (positional, single): (Vec<Value>, bool) = match values {
        Value::Tuple(items) => (items.to_vec(), false),
        value => (vec![value.clone()], true),
    };
    let mut next = positional.iter();
    let mut used = 0;
    let mut out = String::new();
    let mut chars = format.chars().peekable();
    while let Some(c) = chars.next() {
        if c != '%' {
            out.push(c);
            continue;
        }
        let mut spec = Spec::default();
        let mut named = None;
        if chars.next_if_eq(&'(').is_some() {
            let (mut name, mut open) = (String::new(), 1);
            for c in chars.by_ref() {
                open += i32::from(c == '(') - i32::from(c == ')');
                if open == 0 {
                    break;
                }
                name.push(c);
            }
            let Value::Dict(dict) = values else { return fail("format requires a mapping") };
            let Some(value) = dict.get_str(&name) else {
                return fail(format!("a format names {name}, which isn't given"));
            };
            named = Some(value.clone());
        }
        while let Some(flag) = chars.next_if(|c| matches!(c, '-' | '+' | ' ' | '#' | '0')) {
            match flag {
                '-' => spec.align = Some('<'),
                '+' => spec.sign = Some('+'),
                ' ' => spec.sign = spec.sign.or(Some(' ')),
                '#' => spec.alternate = true,
                _ => spec.zero = true,
            }
        }
        let mut value = || {
            let value = named.clone().or_else(|| {
                used += 1;
                next.next().cloned()
            });
            value.map_or_else(|| fail("not enough arguments for format string"), Ok)
        };
        if chars.next_if_eq(&'*').is_some() {
            let Some(width) = value()?.as_int() else { return fail("* wants int") };
            spec.align = if width < 0 { Some('<') } else { spec.align };
            spec.width = usize::try_from(width.unsigned_abs()).unwrap_or(usize::MAX);
        } else {
            spec.width = number(&mut chars)?.unwrap_or(0);
        }
        if chars.next_if_eq(&'.').is_some() {
            let found = match chars.next_if_eq(&'*') {
                Some(_) => {
                    value()?.as_int().map(|p| usize::try_from(p.max(0)).unwrap_or(usize::MAX))
                }
                None => number(&mut chars)?,
            };
            spec.precision = Some(found.unwrap_or(0));
        }
        while chars.next_if(|c| matches!(c, 'h' | 'l' | 'L')).is_some() {}
        let Some(kind) = chars.next() else { return fail("incomplete format") };
        if kind == '%' {
            out.push('%');
            continue;
        }
        let value = value()?;
        if spec.align == Some('<') {
            spec.zero = false;
        }
        let text = match kind {
            's' | 'r' | 'a' => {
                let text = if kind == 's' { value.to_text()? } else { value.repr()? };
                let align = spec.align.or(Some('>'));
                let plain =
                    Spec { align, width: spec.width, precision: spec.precision, ..Spec::default() };
                plain.text(interpreter, &text)?
            }
            'c' => {
                let c = match &value {
                    Value::Str(text) if text.chars().count() == 1 => text.to_string(),
                    value => match value
                        .as_int()
                        .and_then(|n| u32::try_from(n).ok())
                        .and_then(char::from_u32)
                    {
                        Some(c) => c.to_string(),
                        None => return fail("%c requires int or char"),
                    },
                };
                let align = spec.align.or(Some('>'));
                Spec { align, width: spec.width, ..Spec::default() }.text(interpreter, &c)?
            }
            'd' | 'i' | 'u' | 'x' | 'X' | 'o' => {
                let integer = match &value {
                    Value::Float(number)
                        if matches!(kind, 'd' | 'i' | 'u') && number.is_finite() =>
                    {
                        Some(number.trunc() as i128)
                    }
                    value => value.defined()?.as_int(),
                };
                let Some(integer) = integer else {
                    return fail(format!(
                        "%{kind} format: a real number is required, not {}",
                        value.type_name()
                    ));
                };
                // A precision is the least number of digits.
                let digits = precision(spec.precision)?;
                let kind = if matches!(kind, 'i' | 'u') { 'd' } else { kind };
                let bare = Spec { kind: Some(kind), ..Spec::default() };
                let plain = bare.integer(interpreter, integer.saturating_abs())?;
                let filled = "0".repeat(digits.saturating_sub(plain.len())) + &plain;
                let prefix = match (spec.alternate, kind) {
                    (true, 'x') => "0x",
                    (true, 'X') => "0X",
                    (true, 'o') => "0o",
                    _ => "",
                };
                let sign = spec.sign_of(integer < 0).to_string() + prefix;
                spec.pad(interpreter, &sign, filled, '>')?
            }
            'e' | 'E' | 'f' | 'F' | 'g' | 'G' => {
                let Some(number) = value.defined()?.as_number() else {
                    return fail(format!("must be real number, not {}", value.type_name()));
                };
                Spec { kind: Some(kind), ..spec }.float(interpreter, number)?
            }
            other => return fail(format!("unsupported format character '{other}'")),
        };
        interpreter.longer(&out, text.len())?;
        out.push_str(&text);
    }
    let lenient = single && matches!(values, Value::Dict(_) | Value::List(_) | Value::Undefined(_));
    if used < positional.len() && !lenient {
        return fail("not all arguments converted during string formatting");
    }
    Ok(out)
}
