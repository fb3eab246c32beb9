//! Jinja as transformers sets it up for chat templates, built on the minijinja crate.
//!
//! This adds the tag `{% generation %}`, transformers' functions and its `tojson`, Python's string
//! methods, and limits. Templates come from strangers, so fuel limits the work, which also limits
//! the memory. Code that recurses through a value or a syntax tree runs on a large stack, and no
//! value can nest deeper than that stack allows.
//!
//! Jinja2 features that minijinja lacks are rejected: `%` with a string, `block` and other
//! templates, `varargs`, `cycler`.

use jiff::civil::DateTime;
use jiff::fmt::strtime::{BrokenDownTime, Config, PosixCustom};
use minijinja::syntax::SyntaxConfig;
use minijinja::value::{from_args, Kwargs, Rest, ValueKind};
use minijinja::{escape_formatter, filters, Environment, Error, ErrorKind, State, Value};
use minijinja_contrib::pycompat::unknown_method_callback;
use std::collections::BTreeMap;

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
#[cfg(not(target_arch = "wasm32"))]
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
/// The filter applied to values before a loop iterates over them.
const LOOPED: &str = "looped_over";

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
    environment.set_formatter(|out, state, value| match value.kind() {
        ValueKind::Number => out.write_str(&number(value)).map_err(Error::from),
        _ => escape_formatter(out, state, value),
    });
    environment.remove_global("debug");
    // These behave differently in Jinja2.
    ["attr", "e", "escape", "pprint"].iter().for_each(|name| environment.remove_filter(name));
    environment.add_function("raise_exception", |words: &Value| refuse::<()>(words.to_string()));
    environment.add_filter("tojson", tojson);
    environment.add_filter("indent", indent);
    environment.add_filter("default", default);
    environment.add_filter("d", default);
    environment.add_filter(STORED, stored);
    environment.add_filter(LOOPED, |value: Value| {
        if value.is_none() {
            refuse("None cannot be looped over")
        } else {
            Ok(value)
        }
    });
    let comparing: [(&str, Filter); 4] = [
        ("sort", filters::sort),
        ("unique", filters::unique),
        ("min", filters::min),
        ("max", filters::max),
    ];
    for (name, filter) in comparing {
        environment.add_filter(name, move |state: &State, items: Value, options: Kwargs| {
            compared(state, &items).and_then(|()| filter(state, items, options))
        });
    }
    let items = |value: &Value| !value.is_none() && value.try_iter().is_ok();
    environment.add_test("iterable", items);
    environment.add_test("sequence", items);
    let is_map = |value: &Value| value.kind() == ValueKind::Map && !is_namespace(value);
    environment.add_test("mapping", is_map);
    Ok(environment)
}

/// Returns a template with its tags [`rewritten`] and its line endings normalized as in Jinja2.
fn prepared(source: &str) -> String {
    let source = source.replace("\r\n", "\n").replace('\r', "\n");
    let mut out = String::with_capacity(source.len() * 2);
    let mut rest = source.as_str();
    let opens =
        |at: &usize, rest: &str| matches!(rest.as_bytes().get(at + 1), Some(b'%' | b'{' | b'#'));
    while let Some(at) = rest.match_indices('{').map(|(at, _)| at).find(|at| opens(at, rest)) {
        let (open, body) = rest[at..].split_at(2);
        let end = match open {
            "{%" => bare(body, "%}").len(),
            "{{" => bare(body, "}}").len(),
            _ => body.find("#}").unwrap_or(body.len()),
        };
        let (tag, after) = body.split_at(end);
        out.push_str(&rest[..at + 2]);
        rest = after;
        match (open, tag.trim_matches(['-', '+']).trim()) {
            ("{%", "raw") => {
                let (raw, after) = rest.split_at(rest.find("endraw").unwrap_or(rest.len()));
                out.extend([tag, raw]);
                rest = after;
            }
            ("{%", _) => out.push_str(&rewritten(tag, &source)),
            _ => out.push_str(tag),
        }
    }
    out + rest
}

/// Rewrites a tag so that minijinja behaves like Jinja2 and transformers: `generation` and the
/// block forms of `set` and `filter` get scopes, and values pass through a filter before a
/// namespace stores them or a loop iterates over them.
fn rewritten(tag: &str, source: &str) -> String {
    let (left, inner) = tag.split_at(usize::from(tag.starts_with(['-', '+'])));
    let (inner, right) = inner.split_at(inner.len() - usize::from(inner.ends_with(['-', '+'])));
    let bare = bare(inner, "%}");
    let first = words(&bare).next().map_or("", |(_, word)| word);
    match (first, bare.find('=')) {
        ("generation" | "endgeneration", _) => tag.replacen("generation", "with", 1),
        ("set", Some(at)) if inner[..at].contains('.') && !inner[at + 1..].trim().is_empty() => {
            format!("{left}{}= ({})|{STORED} {right}", &inner[..at], &inner[at + 1..])
        }
        ("set", None) | ("filter", _) => format!("{tag}%}}{{% with {right}"),
        ("endset" | "endfilter", _) => format!("{left} endwith %}}{{%{inner}{right}"),
        ("for", _) => {
            let from =
                words(&bare).find(|(_, word)| *word == "in").map_or(inner.len(), |(at, _)| at + 2);
            let ends =
                |(at, word): &(usize, &str)| *at > from && ["if", "recursive"].contains(word);
            let (head, rest) = inner.split_at(from);
            let (items, condition) =
                rest.split_at(words(&bare).find(ends).map_or(inner.len(), |(at, _)| at) - from);
            // minijinja tests all items before the loop; Jinja2 tests each before its iteration.
            let changed =
                words(condition).any(|(_, name)| source.contains(&format!("set {name}.")));
            match items.trim() {
                "" => tag.to_string(),
                _ if changed => format!(
                    "{left}{head} raise_exception('a loop with a condition \
                    that the loop may change'){right}"
                ),
                _ => format!("{left}{head} ({items})|{LOOPED} {condition}{right}"),
            }
        }
        _ => tag.to_string(),
    }
}

/// Copies the text up to the end of the tag, with every byte in quotes or brackets replaced by a
/// zero.
fn bare(text: &str, closes: &str) -> String {
    let mut bare = String::with_capacity(text.len());
    let (mut depth, mut quote, mut escaped) = (0usize, None, false);
    for (at, c) in text.char_indices() {
        let outside = depth == 0 && quote.is_none();
        match (quote, c) {
            (Some(_), _) if escaped => escaped = false,
            (Some(_), '\\') => escaped = true,
            (Some(open), _) => quote = quote.filter(|_| c != open),
            (None, '\'' | '"') => quote = Some(c),
            _ if outside && text[at..].starts_with(closes) => break,
            (None, '(' | '[' | '{') => depth += 1,
            (None, ')' | ']' | '}') => depth = depth.saturating_sub(1),
            _ => {}
        }
        if outside && depth == 0 && quote.is_none() {
            bare.push(c)
        } else {
            bare.extend(std::iter::repeat_n('\0', c.len_utf8()))
        }
    }
    bare
}

/// Returns the words of a text and their offsets.
fn words(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    let begins = move |(at, c): &(usize, char)| is_word(*c) && !text[..*at].ends_with(is_word);
    text.char_indices()
        .filter(begins)
        .map(move |(at, _)| (at, text[at..].split(|c| !is_word(c)).next().unwrap_or_default()))
}

/// Returns a value that a namespace can store, turning generators into lists. Rejects values that
/// are too deep or could contain themselves.
fn stored(state: &State, value: Value) -> Result<Value, Error> {
    let value = match value.kind() {
        ValueKind::Iterable => value.try_iter()?.collect(),
        _ => value,
    };
    let mut open = vec![(value.clone(), 0)];
    while let Some((value, depth)) = open.pop() {
        state.consume_fuel(1)?;
        let Some(object) = value.as_object() else { continue };
        if depth == MAX_DEPTH {
            return refuse(format!("a value gets deeper than {MAX_DEPTH}"));
        }
        if is_namespace(&value) || object.type_name().ends_with("::Loop") {
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

fn is_namespace(value: &Value) -> bool {
    value.as_object().is_some_and(|object| object.type_name().ends_with("::Namespace"))
}

/// Charges fuel for comparing the items of a list with each other, in proportion to their bytes.
fn compared(state: &State, items: &Value) -> Result<(), Error> {
    for item in items.try_iter()? {
        let bytes = item.as_str().map_or(0, str::len);
        state.consume_fuel(1 + bytes as u64 / 8)?;
    }
    Ok(())
}

/// Formats a number as Python does.
fn number(value: &Value) -> String {
    let Some(float) = f64::try_from(value.clone()).ok().filter(|_| !value.is_integer()) else {
        return value.to_string();
    };
    let science = format!("{float:e}");
    match science.split_once('e').map(|(digits, power)| (digits, power.parse::<i32>())) {
        Some((digits, Ok(power))) if !(-4..16).contains(&power) => {
            format!("{digits}e{}{:02}", if power < 0 { '-' } else { '+' }, power.abs())
        }
        Some(_) => format!("{float:?}"),
        None => science.to_lowercase(), // infinite, or not a number
    }
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

/// Jinja2's filter `indent`. minijinja's drops a trailing newline.
fn indent(
    state: &State,
    text: &str,
    width: Option<Value>,
    first: Option<bool>,
    options: Kwargs,
) -> Result<String, Error> {
    let width = width.or(options.get("width")?).unwrap_or(4.into());
    let first = first.or(options.get("first")?).unwrap_or(false);
    let blank = options.get::<Option<bool>>("blank")?.unwrap_or(false);
    options.assert_all_used()?;
    let indent = indent_of(&width)?;
    let mut out = String::new();
    for (at, line) in text.split('\n').enumerate() {
        state.consume_fuel(1 + indent.len() as u64 / 64)?;
        let indented = if at == 0 { first } else { blank || !line.is_empty() };
        out.extend([if at > 0 { "\n" } else { "" }, if indented { &indent } else { "" }, line]);
    }
    Ok(out)
}

/// Returns the indent, given as a string or a width.
fn indent_of(width: &Value) -> Result<String, Error> {
    match (width.as_str(), width.as_usize()) {
        (Some(text), _) => Ok(text.to_string()),
        (None, Some(width @ 0..=1000)) => Ok(" ".repeat(width)),
        _ => refuse(format!("an indent of {width}")),
    }
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
        ("removeprefix" | "removesuffix", Some(text)) => {
            let (part,): (&str,) = from_args(args)?;
            let rest = if name == "removeprefix" {
                text.strip_prefix(part)
            } else {
                text.strip_suffix(part)
            };
            Ok(rest.unwrap_or(text).into())
        }
        ("title", Some(text)) => {
            let (mut title, mut inside) = (String::with_capacity(text.len()), false);
            for c in text.chars() {
                title += &if inside {
                    c.to_lowercase().to_string()
                } else {
                    c.to_uppercase().to_string()
                };
                inside = c.is_lowercase() || c.is_uppercase();
            }
            Ok(title.into())
        }
        _ => unknown_method_callback(state, value, name, args),
    }
}

/// transformers' filter: Python's `json.dumps`, except that non-ASCII characters aren't escaped.
fn tojson(state: &State, value: &Value, options: Kwargs) -> Result<String, Error> {
    let indent =
        options.get::<Option<Value>>("indent")?.map(|width| indent_of(&width)).transpose()?;
    let comma = if indent.is_some() { "," } else { ", " };
    let (mut comma, mut colon) = (comma.to_string(), ": ".to_string());
    if let Some(separators) = options.get::<Option<Value>>("separators")? {
        comma = separators.get_item_by_index(0)?.to_string();
        colon = separators.get_item_by_index(1)?.to_string();
    }
    let ascii = options.get::<Option<bool>>("ensure_ascii")?.unwrap_or(false);
    options.assert_all_used()?;
    let mut json = Json { state, text: String::new(), indent, comma, colon, ascii };
    json.write(value, 0)?;
    Ok(json.text)
}

/// A JSON writer.
struct Json<'a, 't, 'e> {
    state: &'a State<'t, 'e>,
    text: String,
    indent: Option<String>,
    comma: String,
    colon: String,
    ascii: bool,
}

impl Json<'_, '_, '_> {
    fn write(&mut self, value: &Value, depth: usize) -> Result<(), Error> {
        self.state.consume_fuel(1 + self.comma.len() as u64 / 64 + self.colon.len() as u64 / 64)?;
        match (value.kind(), value.as_object()) {
            (ValueKind::None, _) => self.text += "null",
            (ValueKind::Bool, _) => self.text += if value.is_true() { "true" } else { "false" },
            (ValueKind::Number, _) => {
                self.text += &number(value).replace("inf", "Infinity").replace("nan", "NaN")
            }
            (ValueKind::String, _) => self.string(value.as_str().unwrap_or_default())?,
            (ValueKind::Map, Some(object)) if !is_namespace(value) => {
                self.text.push('{');
                let mut first = true;
                for (key, value) in object.try_iter_pairs().into_iter().flatten() {
                    self.item(std::mem::take(&mut first), depth + 1)?;
                    match key.kind() {
                        ValueKind::String => self.write(&key, depth)?,
                        ValueKind::None | ValueKind::Bool | ValueKind::Number => {
                            self.text.push('"');
                            self.write(&key, depth)?;
                            self.text.push('"');
                        }
                        kind => return refuse(format!("tojson: a key cannot be a {kind}")),
                    }
                    self.text += &self.colon;
                    self.write(&value, depth + 1)?;
                }
                self.close('}', first, depth)?;
            }
            (ValueKind::Seq | ValueKind::Iterable, _) => {
                self.text.push('[');
                let mut first = true;
                for item in value.try_iter()?.checked() {
                    self.item(std::mem::take(&mut first), depth + 1)?;
                    self.write(&item?, depth + 1)?;
                }
                self.close(']', first, depth)?;
            }
            (kind, _) => return refuse(format!("tojson: JSON has no {kind}")),
        }
        Ok(())
    }

    /// Moves on to the next item of a container.
    fn item(&mut self, first: bool, depth: usize) -> Result<(), Error> {
        if !first {
            self.text += &self.comma;
        }
        self.line(depth)
    }

    fn close(&mut self, bracket: char, empty: bool, depth: usize) -> Result<(), Error> {
        if !empty {
            self.line(depth)?;
        }
        self.text.push(bracket);
        Ok(())
    }

    fn line(&mut self, depth: usize) -> Result<(), Error> {
        if let Some(indent) = &self.indent {
            self.state.consume_fuel((depth * indent.len()) as u64 / 64)?;
            self.text.push('\n');
            self.text += &indent.repeat(depth);
        }
        Ok(())
    }

    fn string(&mut self, text: &str) -> Result<(), Error> {
        self.state.consume_fuel(text.len() as u64 / 64)?;
        for c in serde_json::Value::from(text).to_string().chars() {
            match c {
                _ if c.is_ascii() || !self.ascii => self.text.push(c),
                _ => c
                    .encode_utf16(&mut [0; 2])
                    .iter()
                    .for_each(|unit| self.text += &format!("\\u{unit:04x}")),
            }
        }
        Ok(())
    }
}

/// Runs a closure on a stack large enough for the deepest value.
#[cfg(not(target_arch = "wasm32"))]
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

#[cfg(target_arch = "wasm32")]
fn on_stack<T>(part: impl FnOnce() -> Result<T, Error>) -> Result<T, Error> {
    part()
}
