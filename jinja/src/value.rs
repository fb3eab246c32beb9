//! Python's values, as far as a template sees them.
//!
//! Strings, lists and dicts count the bytes they hold, so that a limit can be set on what is alive. Lists and dicts also know
//! how deeply they are nested, and are refused beyond [`MAX_DEPTH`]: nothing that walks a value, its destructor included, needs
//! more stack than that.

use crate::failure::{fail, Error, Result};
use crate::interpreter::{Loop, Macro};
use std::cell::{Cell, RefCell};
use std::collections::{HashMap, VecDeque};
use std::fmt::Write as _;
use std::rc::Rc;

/// The most steps that one key of a dict takes: its parts, and a step for every 32 bytes of text.
const MAX_KEY: u64 = 100_000;

/// How deeply lists and dicts can be nested.
pub const MAX_DEPTH: u32 = 200;

thread_local! {
    /// Values are `Rc`, so what a thread has made stays with it, and is counted there.
    static LIVE: Cell<usize> = const { Cell::new(0) };
}

/// The bytes that values of this thread hold.
pub fn live_bytes() -> usize {
    LIVE.with(Cell::get)
}

/// A part of [`live_bytes`], until it is dropped.
struct Share(usize);

impl Share {
    fn new(bytes: usize) -> Self {
        LIVE.with(|live| live.set(live.get() + bytes));
        Self(bytes)
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        LIVE.with(|live| live.set(live.get().saturating_sub(self.0)));
    }
}

/// A string.
pub struct Text {
    text: String,
    /// Whether it is a `Markup`: what is added to it is escaped for HTML.
    pub safe: bool,
    _share: Share,
}

impl std::ops::Deref for Text {
    type Target = str;
    fn deref(&self) -> &str {
        &self.text
    }
}

/// A list's or tuple's items.
pub struct Items {
    items: Vec<Value>,
    depth: u32,
    _share: Share,
}

impl std::ops::Deref for Items {
    type Target = [Value];
    fn deref(&self) -> &[Value] {
        &self.items
    }
}

/// A dict, in the order of insertion.
pub struct Dict {
    entries: Vec<(Value, Value)>,
    index: HashMap<Key, usize>,
    depth: u32,
    share: Share,
}

/// A dict's key, equal for values that are equal: 1, 1.0 and True are one key.
#[derive(Clone, PartialEq, Eq, Hash)]
pub enum Key {
    None,
    Undefined,
    Int(i128),
    Float(u64),
    Str(Rc<str>),
    Tuple(Vec<Key>),
    Object(usize),
}

impl Dict {
    pub fn new() -> Self {
        let share = Share::new(64);
        Self { entries: Vec::new(), index: HashMap::new(), depth: 1, share }
    }

    /// Inserts an entry. Takes its steps off `fuel`.
    pub fn insert(&mut self, key: Value, value: Value, fuel: &mut u64) -> Result<()> {
        let hashed = key.key(fuel)?;
        self.depth = self.depth.max(1 + value.depth()).max(1 + key.depth());
        check_depth(self.depth)?;
        match self.index.get(&hashed) {
            Some(&at) => self.entries[at].1 = value,
            None => {
                self.share.0 += 160;
                LIVE.with(|live| live.set(live.get() + 160));
                self.index.insert(hashed, self.entries.len());
                self.entries.push((key, value));
            }
        }
        Ok(())
    }

    pub fn get(&self, key: &Key) -> Option<&Value> {
        self.index.get(key).map(|&at| &self.entries[at].1)
    }

    pub fn get_str(&self, name: &str) -> Option<&Value> {
        self.get(&Key::Str(name.into()))
    }

    pub fn entries(&self) -> &[(Value, Value)] {
        &self.entries
    }
}

/// A generator: the items left, and the error at its end, if any. It can be read once.
pub struct Generator {
    pub rest: RefCell<VecDeque<Value>>,
    pub error: RefCell<Option<Error>>,
    depth: u32,
}

/// The parts of a dict that a view shows.
#[derive(Clone, Copy, PartialEq)]
pub enum View {
    Keys,
    Values,
    Items,
}

#[derive(Clone)]
pub enum Value {
    /// Holds the message of the error that its use causes.
    Undefined(Rc<str>),
    None,
    Bool(bool),
    Int(i128),
    Float(f64),
    Str(Rc<Text>),
    List(Rc<Items>),
    Tuple(Rc<Items>),
    Dict(Rc<Dict>),
    View(View, Rc<Dict>),
    Range {
        start: i128,
        stop: i128,
        step: i128,
    },
    Generator(Rc<Generator>),
    Namespace(Rc<RefCell<Dict>>),
    /// A method of a value, as `text.upper`.
    Method(Rc<(Value, &'static str)>),
    /// A function that every template has, by its name.
    Function(&'static str),
    Macro(Rc<Macro>),
    Loop(Rc<Loop>),
    Cycler(Rc<(Rc<Items>, Cell<usize>)>),
    Joiner(Rc<(Rc<Text>, Cell<bool>)>),
}

pub fn check_depth(depth: u32) -> Result<()> {
    if depth > MAX_DEPTH {
        return fail("its values are nested too deeply");
    }
    Ok(())
}

fn items(items: Vec<Value>) -> Result<Rc<Items>> {
    let depth = 1 + items.iter().map(Value::depth).max().unwrap_or(0);
    check_depth(depth)?;
    let bytes = 48 + items.len() * std::mem::size_of::<Value>();
    Ok(Rc::new(Items { items, depth, _share: Share::new(bytes) }))
}

impl Value {
    pub fn str(text: impl Into<String>) -> Self {
        let text = text.into();
        let share = Share::new(48 + text.len());
        Self::Str(Rc::new(Text { text, safe: false, _share: share }))
    }

    /// A `Markup`: what the filters `safe` and `escape` return.
    pub fn markup(text: impl Into<String>) -> Self {
        let text = text.into();
        let share = Share::new(48 + text.len());
        Self::Str(Rc::new(Text { text, safe: true, _share: share }))
    }

    pub fn undefined(why: impl Into<Rc<str>>) -> Self {
        Self::Undefined(why.into())
    }

    pub fn list(values: Vec<Value>) -> Result<Self> {
        Ok(Self::List(items(values)?))
    }

    pub fn tuple(values: Vec<Value>) -> Result<Self> {
        Ok(Self::Tuple(items(values)?))
    }

    pub fn dict(dict: Dict) -> Self {
        Self::Dict(Rc::new(dict))
    }

    pub fn generator(values: Vec<Value>, error: Option<Error>) -> Result<Self> {
        let depth = 1 + values.iter().map(Value::depth).max().unwrap_or(0);
        check_depth(depth)?;
        let (rest, error) = (RefCell::new(values.into()), RefCell::new(error));
        Ok(Self::Generator(Rc::new(Generator { rest, error, depth })))
    }

    /// Returns how deeply it is nested. Namespaces and macros count as flat: the interpreter empties them itself.
    pub fn depth(&self) -> u32 {
        match self {
            Self::List(items) | Self::Tuple(items) => items.depth,
            Self::Dict(dict) | Self::View(_, dict) => dict.depth,
            Self::Generator(generator) => generator.depth,
            Self::Method(method) => 1 + method.0.depth(),
            Self::Loop(state) => 1 + state.depth,
            Self::Cycler(cycler) => 1 + cycler.0.depth,
            _ => 0,
        }
    }

    pub fn type_name(&self) -> &'static str {
        match self {
            Self::Undefined(_) => "Undefined",
            Self::None => "NoneType",
            Self::Bool(_) => "bool",
            Self::Int(_) => "int",
            Self::Float(_) => "float",
            Self::Str(_) => "str",
            Self::List(_) => "list",
            Self::Tuple(_) => "tuple",
            Self::Dict(_) => "dict",
            Self::View(View::Keys, _) => "dict_keys",
            Self::View(View::Values, _) => "dict_values",
            Self::View(View::Items, _) => "dict_items",
            Self::Range { .. } => "range",
            Self::Generator(_) => "generator",
            Self::Namespace(_) => "Namespace",
            Self::Method(_) | Self::Function(_) => "function",
            Self::Macro(_) => "Macro",
            Self::Loop(_) => "LoopContext",
            Self::Cycler(_) => "Cycler",
            Self::Joiner(_) => "Joiner",
        }
    }

    pub fn is_undefined(&self) -> bool {
        matches!(self, Self::Undefined(_))
    }

    /// Returns itself, or an error if it is undefined.
    pub fn defined(&self) -> Result<&Self> {
        match self {
            Self::Undefined(why) => fail(why.to_string()),
            value => Ok(value),
        }
    }

    pub fn as_str(&self) -> Option<&str> {
        match self {
            Self::Str(text) => Some(text),
            _ => None,
        }
    }

    /// An integer; Python's booleans are some.
    pub fn as_int(&self) -> Option<i128> {
        match self {
            Self::Int(number) => Some(*number),
            Self::Bool(yes) => Some(i128::from(*yes)),
            _ => None,
        }
    }

    pub fn as_number(&self) -> Option<f64> {
        match self {
            Self::Float(number) => Some(*number),
            value => value.as_int().map(|number| number as f64),
        }
    }

    pub fn is_true(&self) -> bool {
        match self {
            Self::Undefined(_) | Self::None => false,
            Self::Bool(yes) => *yes,
            Self::Int(number) => *number != 0,
            Self::Float(number) => *number != 0.0,
            Self::Str(text) => !text.is_empty(),
            value => value.len().is_none_or(|len| len > 0),
        }
    }

    /// Python's `len`; None for what has none.
    pub fn len(&self) -> Option<usize> {
        Some(match self {
            Self::Undefined(_) => 0,
            Self::Str(text) => text.chars().count(),
            Self::List(items) | Self::Tuple(items) => items.len(),
            Self::Dict(dict) | Self::View(_, dict) => dict.entries.len(),
            Self::Range { start, stop, step } => range_len(*start, *stop, *step),
            _ => return None,
        })
    }

    /// Returns it as a dict's key. Takes its steps off `fuel`.
    pub fn key(&self, fuel: &mut u64) -> Result<Key> {
        let mut left = (*fuel).min(MAX_KEY);
        let before = left;
        let key = self.bounded_key(&mut left);
        *fuel -= before - left;
        key
    }

    fn bounded_key(&self, left: &mut u64) -> Result<Key> {
        spend(left, 1 + self.as_str().map_or(0, str::len) / 32)?;
        Ok(match self {
            Self::None => Key::None,
            Self::Undefined(_) => Key::Undefined,
            Self::Str(text) => Key::Str((&***text).into()),
            Self::Float(number) if number.fract() == 0.0 && number.abs() < 1e30 => {
                Key::Int(*number as i128)
            }
            Self::Float(number) => Key::Float(number.to_bits()),
            Self::Tuple(items) => Key::Tuple({
                items.iter().map(|item| item.bounded_key(left)).collect::<Result<_>>()?
            }),
            Self::Namespace(one) => Key::Object(Rc::as_ptr(one) as usize),
            Self::Macro(one) => Key::Object(Rc::as_ptr(one) as usize),
            Self::Function(name) => Key::Object(name.as_ptr() as usize),
            value => match value.as_int() {
                Some(number) => Key::Int(number),
                None => return fail(format!("unhashable type: '{}'", value.type_name())),
            },
        })
    }

    /// Python's `str`.
    pub fn to_text(&self) -> Result<String> {
        match self {
            Self::Str(text) => Ok(text.to_string()),
            Self::Undefined(_) => Ok(String::new()),
            value => value.repr(),
        }
    }

    /// Python's `repr`.
    pub fn repr(&self) -> Result<String> {
        let mut out = String::new();
        self.write_repr(&mut out, 0)?;
        Ok(out)
    }

    fn write_repr(&self, out: &mut String, depth: u32) -> Result<()> {
        check_depth(depth)?;
        if out.len() > 1 << 26 {
            return fail("a text gets too long");
        }
        let list = |out: &mut String, open: &str, items: &[Value], close: &str| -> Result<()> {
            out.push_str(open);
            for (at, item) in items.iter().enumerate() {
                out.push_str(if at > 0 { ", " } else { "" });
                item.write_repr(out, depth + 1)?;
            }
            out.push_str(close);
            Ok(())
        };
        match self {
            Self::Undefined(_) => out.push_str("Undefined"),
            Self::None => out.push_str("None"),
            Self::Bool(true) => out.push_str("True"),
            Self::Bool(false) => out.push_str("False"),
            Self::Int(number) => drop(write!(out, "{number}")),
            Self::Float(number) => out.push_str(&float_repr(*number)),
            Self::Str(text) if text.safe => {
                out.push_str("Markup(");
                quote(text, out);
                out.push(')');
            }
            Self::Str(text) => quote(text, out),
            Self::List(items) => list(out, "[", items, "]")?,
            Self::Tuple(items) => list(out, "(", items, if items.len() == 1 { ",)" } else { ")" })?,
            Self::Dict(dict) => write_dict(dict, out, depth)?,
            Self::View(view, dict) => {
                let _ = write!(out, "{}([", self.type_name());
                for (at, (key, value)) in dict.entries.iter().enumerate() {
                    out.push_str(if at > 0 { ", " } else { "" });
                    match view {
                        View::Keys => key.write_repr(out, depth + 1)?,
                        View::Values => value.write_repr(out, depth + 1)?,
                        View::Items => {
                            out.push('(');
                            key.write_repr(out, depth + 1)?;
                            out.push_str(", ");
                            value.write_repr(out, depth + 1)?;
                            out.push(')');
                        }
                    }
                }
                out.push_str("])");
            }
            Self::Range { start, stop, step: 1 } => drop(write!(out, "range({start}, {stop})")),
            Self::Range { start, stop, step } => {
                let _ = write!(out, "range({start}, {stop}, {step})");
            }
            Self::Namespace(dict) => {
                out.push_str("<Namespace ");
                write_dict(&dict.borrow(), out, depth)?;
                out.push('>');
            }
            Self::Macro(one) => {
                out.push_str("<Macro ");
                match one.name() {
                    Some(name) => quote(name, out),
                    None => out.push_str("anonymous"),
                }
                out.push('>');
            }
            Self::Loop(state) => {
                let _ = write!(out, "<LoopContext {}/{}>", state.index0.get() + 1, state.total());
            }
            value => drop(write!(out, "<{} object>", value.type_name())),
        }
        Ok(())
    }

    /// Python's `==`. Takes its steps off `fuel`.
    pub fn equals(&self, other: &Self, fuel: &mut u64) -> Result<bool> {
        equal(self, other, 0, fuel)
    }

    /// Python's `<`, as an order. Takes its steps off `fuel`.
    pub fn compare(&self, other: &Self, fuel: &mut u64) -> Result<Option<std::cmp::Ordering>> {
        let texts = self.as_str().zip(other.as_str());
        spend(fuel, 1 + texts.map_or(0, |(a, b)| a.len().min(b.len())) / 32)?;
        if let (Some(a), Some(b)) = (self.as_int(), other.as_int()) {
            return Ok(Some(a.cmp(&b)));
        }
        if let (Some(a), Some(b)) = (self.as_number(), other.as_number()) {
            return Ok(a.partial_cmp(&b));
        }
        match (self.defined()?, other.defined()?) {
            (Self::Str(a), Self::Str(b)) => Ok(Some((***a).cmp(&***b))),
            (Self::List(a), Self::List(b)) | (Self::Tuple(a), Self::Tuple(b)) => {
                for (a, b) in a.iter().zip(b.iter()) {
                    if !a.equals(b, fuel)? {
                        return a.compare(b, fuel);
                    }
                }
                Ok(Some(a.len().cmp(&b.len())))
            }
            _ => fail(format!(
                "'<' not supported between instances of '{}' and '{}'",
                self.type_name(),
                other.type_name()
            )),
        }
    }
}

fn write_dict(dict: &Dict, out: &mut String, depth: u32) -> Result<()> {
    out.push('{');
    for (at, (key, value)) in dict.entries.iter().enumerate() {
        out.push_str(if at > 0 { ", " } else { "" });
        key.write_repr(out, depth + 1)?;
        out.push_str(": ");
        value.write_repr(out, depth + 1)?;
    }
    out.push('}');
    Ok(())
}

fn spend(fuel: &mut u64, steps: usize) -> Result<()> {
    match fuel.checked_sub(steps as u64) {
        Some(left) => *fuel = left,
        None => return fail("it takes too long"),
    }
    Ok(())
}

fn equal(a: &Value, b: &Value, depth: u32, fuel: &mut u64) -> Result<bool> {
    check_depth(depth)?;
    let texts = a.as_str().zip(b.as_str()).filter(|(a, b)| a.len() == b.len());
    spend(fuel, 1 + texts.map_or(0, |(a, _)| a.len()) / 32)?;
    if let (Some(a), Some(b)) = (a.as_int(), b.as_int()) {
        return Ok(a == b);
    }
    if let (Some(a), Some(b)) = (a.as_number(), b.as_number()) {
        return Ok(a == b);
    }
    Ok(match (a, b) {
        (Value::Undefined(_), Value::Undefined(_)) | (Value::None, Value::None) => true,
        (Value::Str(a), Value::Str(b)) => ***a == ***b,
        (Value::List(a), Value::List(b)) | (Value::Tuple(a), Value::Tuple(b)) => {
            if Rc::ptr_eq(a, b) {
                return Ok(true);
            }
            if a.len() != b.len() {
                return Ok(false);
            }
            for (a, b) in a.iter().zip(b.iter()) {
                if !equal(a, b, depth + 1, fuel)? {
                    return Ok(false);
                }
            }
            true
        }
        (Value::Dict(a), Value::Dict(b)) => {
            if Rc::ptr_eq(a, b) {
                return Ok(true);
            }
            if a.entries.len() != b.entries.len() {
                return Ok(false);
            }
            for (key, value) in &a.entries {
                match b.get(&key.key(fuel)?) {
                    Some(other) if equal(value, other, depth + 1, fuel)? => {}
                    _ => return Ok(false),
                }
            }
            true
        }
        (Value::Range { .. }, Value::Range { .. }) => a.repr()? == b.repr()?,
        (Value::View(kind, a), Value::View(other, b)) if kind == other => {
            if *kind == View::Keys {
                let same = a.entries.len() == b.entries.len();
                return Ok(same && a.index.keys().all(|key| b.index.contains_key(key)));
            }
            *kind == View::Items
                && equal(&Value::Dict(a.clone()), &Value::Dict(b.clone()), depth + 1, fuel)?
        }
        (Value::Function(a), Value::Function(b)) => a == b,
        _ => same(a, b),
    })
}

/// Python's `is`.
pub fn same(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::None, Value::None) => true,
        (Value::Bool(a), Value::Bool(b)) => a == b,
        (Value::Int(a), Value::Int(b)) => a == b && (-5..=256).contains(a),
        (Value::Str(a), Value::Str(b)) => Rc::ptr_eq(a, b) || ***a == ***b,
        (Value::List(a), Value::List(b)) | (Value::Tuple(a), Value::Tuple(b)) => Rc::ptr_eq(a, b),
        (Value::Dict(a), Value::Dict(b)) => Rc::ptr_eq(a, b),
        (Value::Namespace(a), Value::Namespace(b)) => Rc::ptr_eq(a, b),
        (Value::Generator(a), Value::Generator(b)) => Rc::ptr_eq(a, b),
        (Value::Macro(a), Value::Macro(b)) => Rc::ptr_eq(a, b),
        (Value::Loop(a), Value::Loop(b)) => Rc::ptr_eq(a, b),
        (Value::Function(a), Value::Function(b)) => a == b,
        _ => false,
    }
}

pub fn range_len(start: i128, stop: i128, step: i128) -> usize {
    let (low, high, step) = if step > 0 { (start, stop, step) } else { (stop, start, -step) };
    if low >= high {
        0
    } else {
        ((high - low - 1) / step + 1) as usize
    }
}

/// Python's `repr` of a float: the shortest digits that are read as the same number.
pub fn float_repr(number: f64) -> String {
    if number.is_nan() {
        return "nan".into();
    }
    if number.is_infinite() {
        return if number > 0.0 { "inf" } else { "-inf" }.into();
    }
    let text = format!("{number:e}");
    let (digits, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    if (-4..16).contains(&exponent) {
        let text = format!("{number}");
        return if text.contains('.') { text } else { text + ".0" };
    }
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{digits}e{sign}{:02}", exponent.abs())
}

/// Whether Python's `repr` shows a character as it is.
pub fn printable(c: char) -> bool {
    if c.is_ascii() {
        return !c.is_ascii_control();
    }
    !(c.is_control()
        || c.is_whitespace()
        || matches!(c as u32,
            0xAD | 0x600..=0x605 | 0x61C | 0x6DD | 0x70F | 0x180E | 0x200B..=0x200F | 0x202A..=0x202E
            | 0x2060..=0x206F | 0xE000..=0xF8FF | 0xFEFF | 0xFFF0..=0xFFFB | 0xFFFE | 0xFFFF | 0xE0000..=0x10FFFF))
}

/// Escapes text for HTML.
pub fn escape(text: &str) -> String {
    let mut out = String::new();
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&#34;"),
            '\'' => out.push_str("&#39;"),
            c => out.push(c),
        }
    }
    out
}

fn quote(text: &str, out: &mut String) {
    let mark = if text.contains('\'') && !text.contains('"') { '"' } else { '\'' };
    out.push(mark);
    for c in text.chars() {
        match c {
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            c if c == mark => {
                out.push('\\');
                out.push(c);
            }
            c if printable(c) => out.push(c),
            c => {
                let code = c as u32;
                let _ = match code {
                    0..=0xFF => write!(out, "\\x{code:02x}"),
                    0x100..=0xFFFF => write!(out, "\\u{code:04x}"),
                    _ => write!(out, "\\U{code:08x}"),
                };
            }
        }
    }
    out.push(mark);
}
