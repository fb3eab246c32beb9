//! Jinja as transformers sets it up for chat templates, built on the minijinja crate.
//!
//! This adds the tag `{% generation %}`, transformers' functions and its `tojson`, a few of
//! Python's string methods, and limits. Templates come from strangers, so fuel limits the work,
//! which also limits the memory. Code that recurses through a value or a syntax tree runs on a
//! large stack, and no value can nest deeper than that stack allows.
//!
//! Where minijinja differs from Jinja2, templates render as in minijinja.
//! `tests/oracle/minijinja.json` lists the known differences.

use jiff::civil::DateTime;
use jiff::fmt::strtime::{BrokenDownTime, Config, PosixCustom};
use minijinja::syntax::SyntaxConfig;
use minijinja::value::{from_args, Kwargs, Rest, ValueKind, ValueOrKwargs};
use minijinja::{filters, functions, Environment, Error, ErrorKind, State, Value};
use minijinja_contrib::pycompat::unknown_method_callback;
use serde::Serialize as _;
use serde_json::ser::{Formatter, PrettyFormatter, Serializer};
use std::collections::BTreeMap;
use std::io::{self, Write};

/// A filter with keyword arguments.
type Filter = fn(&State, Value, Kwargs) -> Result<Value, Error>;

/// The longest template, in bytes. Published models' templates stay under 100,000.
const MAX_SOURCE: usize = 1 << 18;
/// The maximum number of brackets and bars in a template. Published models' templates have fewer
/// than 700.
const MAX_BRACKETS: usize = 4_000;
/// The deepest recursion, as minijinja counts it: a macro is 4, a loop 1.
const MAX_RECURSION: usize = 250;
/// The deepest value that a namespace stores.
const MAX_DEPTH: usize = 200;
/// Stack size for the deepest value, which nests once for each open bracket and macro.
const STACK: usize = 256 << 20;
/// Fuel for every template: one unit is one instruction or 64 bytes of data. This limits strings
/// built by the template to 6 MB, so that an instruction that reads a whole one finishes within
/// seconds.
const FUEL: u64 = 100_000;
/// Additional fuel for each byte of a template's variables, because long conversations take many
/// steps.
const FUEL_PER_BYTE: u64 = 20;
/// The maximum fuel, no matter how large the variables are: half a gigabyte of data.
const MOST_FUEL: u64 = 8_000_000;

/// The name of the only template in the environment.
const NAME: &str = "chat";
/// The filter applied to values before a namespace stores them.
const STORED: &str = "stored_in_namespace";
/// The filter applied to a variable before a loop iterates over it.
const LOOPED: &str = "looped_over";
/// A key that every namespace has and no name in a template can be.
const NAMESPACE: &str = "\0namespace";

/// A compiled template.
#[derive(Debug)]
pub struct Jinja {
    environment: Environment<'static>,
    variables: Vec<String>,
}

impl Jinja {
    /// Compiles a template.
    ///
    /// # Errors
    /// If it isn't Jinja, or is too large.
    pub fn new(source: &str) -> Result<Self, Error> {
        let brackets = source.matches(['(', '[', '{', '|']).count();
        if source.len() > MAX_SOURCE || brackets > MAX_BRACKETS {
            return refuse(format!(
                "it has {} bytes and {brackets} brackets, and the most are {MAX_SOURCE} and \
                    {MAX_BRACKETS}",
                source.len()
            ));
        }
        on_stack(|| {
            let mut environment = environment()?;
            environment.add_template_owned(NAME, prepared(source))?;
            let read = environment.get_template(NAME)?.undeclared_variables(false);
            let given: Vec<&str> = environment.globals().map(|(name, _)| name).collect();
            let mut variables = Vec::from_iter(read);
            let own = |name: &str| ["strftime_now", "varargs", "kwargs", "caller"].contains(&name);
            variables.retain(|name| !given.contains(&name.as_str()) && !own(name));
            variables.sort();
            Ok(Self { environment, variables })
        })
    }

    /// Returns the names that the template reads without setting them first.
    pub fn variables(&self) -> &[String] {
        &self.variables
    }

    /// Renders the template. `strftime_now` shows `now`.
    ///
    /// # Errors
    /// If the template calls `raise_exception`, fails, or exceeds the limits on work, memory or
    /// depth.
    pub fn render(
        &self,
        variables: BTreeMap<String, Value>,
        now: DateTime,
    ) -> Result<String, Error> {
        let bytes: usize = variables.values().map(|value| value.to_string().len()).sum();
        let mut environment = self.environment.clone();
        environment.set_fuel(Some((FUEL + FUEL_PER_BYTE * bytes as u64).min(MOST_FUEL)));
        environment.add_function("strftime_now", move |format: &str| strftime(now, format));
        on_stack(move || environment.get_template(NAME)?.render(variables))
    }
}

/// Describes a template error in one line.
pub fn message(error: &Error) -> String {
    match (error.kind(), error.detail()) {
        (ErrorKind::OutOfFuel, _) => "it takes too many steps or too much memory".to_string(),
        (_, Some(detail)) => detail.to_string(),
        (kind, None) => kind.to_string(),
    }
}

fn refuse<T>(message: impl Into<String>) -> Result<T, Error> {
    Err(Error::new(ErrorKind::InvalidOperation, message.into()))
}

fn environment() -> Result<Environment<'static>, Error> {
    let mut environment = Environment::new();
    let mut syntax = SyntaxConfig::builder();
    environment.set_syntax(syntax.trim_blocks(true).lstrip_blocks(true).build()?);
    environment.set_recursion_limit(MAX_RECURSION);
    environment.set_unknown_method_callback(method);
    environment.remove_global("debug");
    environment.add_function("raise_exception", |words: &Value| refuse::<()>(words.to_string()));
    environment.add_function("namespace", namespace);
    environment.add_filter(STORED, stored);
    environment.add_filter("tojson", tojson);
    environment.add_filter("default", default);
    environment.add_filter("d", default);
    let comparing: [(&str, Filter); 3] =
        [("unique", filters::unique), ("min", filters::min), ("max", filters::max)];
    for (name, filter) in comparing {
        environment.add_filter(name, move |state: &State, items: Value, options: Kwargs| {
            compared(state, &items).and_then(|()| filter(state, items, options))
        });
    }
    // minijinja takes None for an empty list. Templates that need tools, and get none, loop over
    // it.
    environment.add_filter(LOOPED, |value: Value| {
        if value.is_none() {
            refuse("None cannot be looped over")
        } else {
            Ok(value)
        }
    });
    let items = |value: &Value| !value.is_none() && value.try_iter().is_ok();
    environment.add_test("iterable", items);
    environment.add_test("sequence", items);
    Ok(environment)
}

/// Returns a template with its tags [`rewritten`] and its line endings normalized as in Jinja2.
fn prepared(source: &str) -> String {
    let source = source.replace("\r\n", "\n").replace('\r', "\n");
    let mut out = String::with_capacity(source.len());
    let mut rest = source.as_str();
    let opens = |text: &str| ["{%", "{{", "{#"].iter().any(|open| text.starts_with(open));
    while let Some((at, _)) = rest.match_indices('{').find(|(at, _)| opens(&rest[*at..])) {
        let (text, part) = rest.split_at(at);
        let (part, after) = part.split_at(part_length(part));
        out.push_str(text);
        rest = after;
        let Some(tag) = part.strip_prefix("{%").and_then(|tag| tag.strip_suffix("%}")) else {
            out.push_str(part);
            continue;
        };
        out.extend(["{%", &rewritten(tag), "%}"]);
        if tag.trim_matches(['-', '+']).trim() == "raw" {
            let (text, after) = rest.split_at(raw_length(rest));
            out.push_str(text);
            rest = after;
        }
    }
    out + rest
}

/// Returns the length of the tag, expression or comment at the start of `part`. Strings and
/// brackets can contain what would end it elsewhere.
fn part_length(part: &str) -> usize {
    if let Some(comment) = part.strip_prefix("{#") {
        return comment.find("#}").map_or(part.len(), |end| end + 4);
    }
    let end = if part.starts_with("{%") { "%}" } else { "}}" };
    let (mut quote, mut escaped, mut brackets) = (None, false, 0);
    for (at, c) in part.char_indices().skip(2) {
        match (quote, c) {
            _ if escaped => escaped = false,
            (Some(_), '\\') => escaped = true,
            (Some(open), _) if c == open => quote = None,
            (Some(_), _) => {}
            (None, '\'' | '"') => quote = Some(c),
            _ if brackets == 0 && part[at..].starts_with(end) => return at + 2,
            (None, '(' | '[' | '{') => brackets += 1,
            (None, ')' | ']' | '}') => brackets -= 1,
            _ => {}
        }
    }
    part.len()
}

/// Returns the length of the text before the tag `endraw`.
fn raw_length(text: &str) -> usize {
    let is_end = |at: &usize| {
        let tag = text[at + 2..].trim_start_matches(['-', '+']).trim_start();
        tag.starts_with("endraw")
    };
    text.match_indices("{%").map(|(at, _)| at).find(is_end).unwrap_or(text.len())
}

/// Rewrites three tags: `generation`, which minijinja doesn't have, as a scope; `set` of a
/// namespace's attribute and `for` over a variable, whose values pass through a filter.
fn rewritten(tag: &str) -> String {
    let (left, inner) = tag.split_at(usize::from(tag.starts_with(['-', '+'])));
    let (inner, right) = inner.split_at(inner.len() - usize::from(inner.ends_with(['-', '+'])));
    match (inner.split_whitespace().next(), inner.split_once('=')) {
        (Some("generation" | "endgeneration"), _) => tag.replacen("generation", "with", 1),
        (Some("set"), Some((target, value)))
            // With a bar, it's a block, and the filter's arguments have the "=".
            if target.contains('.') && !target.contains('|') && !value.trim().is_empty() =>
        {
            format!("{left}{target}= ({value})|{STORED} {right}")
        }
        (Some("for"), _) => {
            let Some((head, items)) = inner.split_once(" in ") else { return tag.to_string() };
            let of_name = |c: char| c.is_alphanumeric() || ['_', '.'].contains(&c);
            let items = items.trim_start();
            let (name, rest) = items.split_at(items.find(|c| !of_name(c)).unwrap_or(items.len()));
            let next = rest.split_whitespace().next();
            let is_variable = !name.is_empty() && matches!(next, None | Some("if" | "recursive"));
            match is_variable {
                true => format!("{left}{head} in {name}|{LOOPED}{rest}{right}"),
                false => tag.to_string(),
            }
        }
        _ => tag.to_string(),
    }
}

/// minijinja's function, with a mark in every namespace.
fn namespace(defaults: Option<ValueOrKwargs>) -> Result<Value, Error> {
    let mut pairs = vec![(Value::from(NAMESPACE), Value::from(true))];
    match defaults {
        Some(defaults) if defaults.kind() != ValueKind::Map => {
            return functions::namespace(Some(defaults));
        }
        defaults => {
            let object = defaults.as_ref().and_then(|defaults| defaults.as_object());
            let all = object.and_then(|object| object.try_iter_pairs());
            pairs.extend(all.into_iter().flatten());
        }
    }
    let (marked,) = from_args(&[Value::from_pairs(pairs)])?;
    functions::namespace(Some(marked))
}

/// Returns a value that a namespace can store, turning generators into lists. Rejects values that
/// are too deep or could contain themselves.
fn stored(state: &State, value: Value) -> Result<Value, Error> {
    let value = match value.kind() {
        ValueKind::Iterable => value.try_iter()?.collect(),
        _ => value,
    };
    let has = |value: &Value, key: &str| value.get_attr(key).is_ok_and(|v| !v.is_undefined());
    let mut open = vec![(value.clone(), 0)];
    while let Some((value, depth)) = open.pop() {
        state.consume_fuel(1)?;
        let Some(object) = value.as_object() else { continue };
        if depth == MAX_DEPTH {
            return refuse(format!("a value gets deeper than {MAX_DEPTH}"));
        }
        if has(&value, NAMESPACE) || has(&value, "revindex0") {
            return refuse("a namespace cannot store another, or a loop");
        }
        let items: Vec<Value> = match object.try_iter_pairs() {
            Some(pairs) if value.kind() == ValueKind::Map => {
                pairs.flat_map(<[Value; 2]>::from).collect()
            }
            _ => object.try_iter().into_iter().flatten().collect(),
        };
        let objects = items.into_iter().filter(|item| item.as_object().is_some());
        open.extend(objects.map(|item| (item, depth + 1)));
    }
    Ok(value)
}

/// Charges fuel for comparing the items of a list with each other, in proportion to their bytes.
fn compared(state: &State, items: &Value) -> Result<(), Error> {
    for item in items.try_iter()? {
        let bytes = item.as_str().map_or(0, str::len);
        state.consume_fuel(1 + bytes as u64 / 8)?;
    }
    Ok(())
}

/// Python's `strftime` for a time without a time zone.
fn strftime(now: DateTime, format: &str) -> Result<String, Error> {
    let config = Config::new().custom(PosixCustom::new());
    let text = BrokenDownTime::from(now).to_string_with_config(&config, format);
    text.or_else(|e| refuse(format!("strftime_now: {e}")))
}

/// Jinja2's filter `default`: minijinja's, with named arguments.
fn default(state: &State, value: &Value, args: Rest<Value>) -> Result<Value, Error> {
    let mut args = args.0;
    if args.last().is_some_and(Value::is_kwargs) {
        let options = Kwargs::try_from(args.pop().unwrap_or_default())?;
        if args.is_empty() {
            args.push(options.get::<Option<Value>>("default_value")?.unwrap_or("".into()));
        }
        args.push(options.get::<Option<bool>>("boolean")?.unwrap_or(false).into());
        options.assert_all_used()?;
    }
    minijinja::filters::default(state, value, Rest(args))
}

/// Calls a Python method: one that minijinja has, or one that it lacks or implements differently.
fn method(state: &mut State, value: &Value, name: &str, args: &[Value]) -> Result<Value, Error> {
    match (name, value.as_str()) {
        ("split" | "rsplit", Some(text)) => {
            let (separator, most, options): (Option<Value>, Option<i64>, Kwargs) = from_args(args)?;
            let separator = separator.or(options.get("sep")?).unwrap_or(().into());
            let most = most.or(options.get("maxsplit")?).unwrap_or(-1);
            options.assert_all_used()?;
            match (name, separator.as_str()) {
                (_, Some("")) => refuse("a separator cannot be empty"),
                ("rsplit", Some(separator)) => {
                    let parts = usize::try_from(most).map_or(usize::MAX, |most| most + 1);
                    let parts: Vec<&str> = text.rsplitn(parts, separator).collect();
                    Ok(parts.into_iter().rev().map(Value::from).collect())
                }
                ("rsplit", None) if most >= 0 => Err(ErrorKind::UnknownMethod.into()),
                _ => unknown_method_callback(state, value, "split", &[separator, most.into()]),
            }
        }
        // minijinja makes a field as wide as asked for before it takes fuel for it.
        ("format", Some(text)) => {
            let numbers = text.split(|c: char| !c.is_ascii_digit()).filter(|n| !n.is_empty());
            let widths = numbers.map(|n| n.parse().unwrap_or(u64::MAX));
            state.consume_fuel(widths.fold(0, u64::saturating_add) / 64)?;
            unknown_method_callback(state, value, name, args)
        }
        ("removeprefix" | "removesuffix", Some(text)) => {
            let (part,): (&str,) = from_args(args)?;
            let rest = match name {
                "removeprefix" => text.strip_prefix(part),
                _ => text.strip_suffix(part),
            };
            Ok(rest.unwrap_or(text).into())
        }
        _ => unknown_method_callback(state, value, name, args),
    }
}

/// transformers' filter: Python's `json.dumps`, except that non-ASCII characters aren't escaped.
fn tojson(state: &State, value: &Value, options: Kwargs) -> Result<String, Error> {
    let indent: Option<Value> = options.get("indent")?;
    let separators: Option<Value> = options.get("separators")?;
    let ascii: Option<bool> = options.get("ensure_ascii")?;
    options.assert_all_used()?;
    if ascii == Some(true) || (indent.is_some() && separators.is_some()) || value.is_undefined() {
        return refuse(
            "tojson: candecode has neither ensure_ascii=True, nor separators with an \
            indent, nor JSON for an undefined value",
        );
    }
    let mut out = Metered { state, bytes: Vec::new() };
    let written = match indent {
        Some(indent) => {
            let spaces = indent.as_usize().filter(|spaces| *spaces <= 1000).map(|n| " ".repeat(n));
            let indent = spaces.or(indent.as_str().map(String::from));
            let Some(indent) = indent else { return refuse("tojson: an indent that is too wide") };
            let pretty = PrettyFormatter::with_indent(indent.as_bytes());
            value.serialize(&mut Serializer::with_formatter(&mut out, pretty))
        }
        None => {
            let separators = separators.unwrap_or_else(|| Value::from([", ", ": "].to_vec()));
            let separator = |at| separators.get_item_by_index(at).map(|text| text.to_string());
            let compact = Separated { comma: separator(0)?, colon: separator(1)? };
            value.serialize(&mut Serializer::with_formatter(&mut out, compact))
        }
    };
    match written {
        Ok(()) => Ok(String::from_utf8_lossy(&out.bytes).into_owned()),
        Err(error) if error.is_io() => Err(ErrorKind::OutOfFuel.into()),
        Err(error) => refuse(format!("tojson: {error}")),
    }
}

/// JSON on one line, with these between items, and between a key and its value.
struct Separated {
    comma: String,
    colon: String,
}

impl Formatter for Separated {
    fn begin_array_value<W: Write + ?Sized>(&mut self, out: &mut W, first: bool) -> io::Result<()> {
        out.write_all(if first { b"" } else { self.comma.as_bytes() })
    }

    fn begin_object_key<W: Write + ?Sized>(&mut self, out: &mut W, first: bool) -> io::Result<()> {
        self.begin_array_value(out, first)
    }

    fn begin_object_value<W: Write + ?Sized>(&mut self, out: &mut W) -> io::Result<()> {
        out.write_all(self.colon.as_bytes())
    }
}

/// A buffer that takes fuel for every write.
struct Metered<'a, 't, 'e> {
    state: &'a State<'t, 'e>,
    bytes: Vec<u8>,
}

impl Write for Metered<'_, '_, '_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.state.consume_fuel(1 + bytes.len() as u64 / 16).map_err(io::Error::other)?;
        self.bytes.extend(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Runs a closure on a stack large enough for the deepest value.
fn on_stack<T: Send>(part: impl FnOnce() -> Result<T, Error> + Send) -> Result<T, Error> {
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().stack_size(STACK).spawn_scoped(scope, part);
        match thread.map(|thread| thread.join()) {
            Ok(Ok(done)) => done,
            Ok(Err(_)) => refuse("its renderer stopped"),
            Err(error) => refuse(format!("no thread could be started: {error}")),
        }
    })
}
