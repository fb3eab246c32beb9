//! Jinja, as transformers sets it up to render chat templates: Jinja2's sandbox with `trim_blocks` and `lstrip_blocks`, its
//! loop controls, `{% generation %}`, `tojson`, `raise_exception` and `strftime_now`. Values behave as Python's do.
//!
//! Templates come from strangers, so everything is bounded: the length and nesting of the source, the number of steps, and the
//! bytes that values hold. Exceeding a bound is an [`Error`]. A crate for Jinja exists (minijinja), but its operators can be
//! neither metered nor given Python's behaviour from outside.
//!
//! Left out, and refused: other templates (`extends`, `include`, `import`), escaping for HTML (`autoescape`; `escape` and `safe`
//! return plain strings), `random`, `urlize`, bytes, integers beyond 128 bits.

mod ast;
mod date;
mod failure;
mod filters;
mod format;
mod globals;
mod interpreter;
mod json;
mod lexer;
mod methods;
mod parser;
mod value;

pub use date::Date;
pub use failure::{Error, Result};

use interpreter::Interpreter;
use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde::ser::{Serialize, Serializer};
use value::{Dict, Value};

/// The longest template, in bytes. Those that models ship have less than 100,000.
pub const MAX_SOURCE: usize = 1 << 20;

/// The number of steps every template can take.
const STEPS: u64 = 10_000_000;
/// The further steps for each byte of its variables.
const STEPS_PER_BYTE: u64 = 30;
/// The number of bytes every template's values can hold.
const BYTES: usize = 64 << 20;
/// The further bytes for each byte of its variables.
const BYTES_PER_BYTE: usize = 32;

/// The stack for the deepest nesting.
#[cfg(not(target_arch = "wasm32"))]
const STACK: usize = 64 << 20;

/// A variable for a template: JSON whose objects keep the order of their keys.
#[derive(Debug, Clone, PartialEq)]
pub enum Data {
    Null,
    Bool(bool),
    Int(i64),
    Float(f64),
    Str(String),
    List(Vec<Data>),
    Dict(Vec<(String, Data)>),
}

impl From<&str> for Data {
    fn from(text: &str) -> Self {
        Self::Str(text.to_string())
    }
}

impl From<&serde_json::Value> for Data {
    fn from(value: &serde_json::Value) -> Self {
        match value {
            serde_json::Value::Null => Self::Null,
            serde_json::Value::Bool(yes) => Self::Bool(*yes),
            serde_json::Value::Number(number) => match number.as_i64() {
                Some(number) => Self::Int(number),
                None => Self::Float(number.as_f64().unwrap_or(f64::NAN)),
            },
            serde_json::Value::String(text) => Self::Str(text.clone()),
            serde_json::Value::Array(items) => Self::List(items.iter().map(Self::from).collect()),
            serde_json::Value::Object(entries) => {
                Self::Dict(entries.iter().map(|(key, value)| (key.clone(), value.into())).collect())
            }
        }
    }
}

impl<'de> Deserialize<'de> for Data {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
        struct Json;
        impl<'de> Visitor<'de> for Json {
            type Value = Data;

            fn expecting(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
                f.write_str("JSON")
            }
            fn visit_unit<E>(self) -> std::result::Result<Data, E> {
                Ok(Data::Null)
            }
            fn visit_bool<E>(self, yes: bool) -> std::result::Result<Data, E> {
                Ok(Data::Bool(yes))
            }
            fn visit_i64<E>(self, number: i64) -> std::result::Result<Data, E> {
                Ok(Data::Int(number))
            }
            fn visit_u64<E>(self, number: u64) -> std::result::Result<Data, E> {
                Ok(i64::try_from(number).map_or(Data::Float(number as f64), Data::Int))
            }
            fn visit_f64<E>(self, number: f64) -> std::result::Result<Data, E> {
                Ok(Data::Float(number))
            }
            fn visit_str<E>(self, text: &str) -> std::result::Result<Data, E> {
                Ok(Data::Str(text.to_string()))
            }
            fn visit_seq<A: SeqAccess<'de>>(
                self,
                mut seq: A,
            ) -> std::result::Result<Data, A::Error> {
                let mut items = Vec::new();
                while let Some(item) = seq.next_element()? {
                    items.push(item);
                }
                Ok(Data::List(items))
            }
            fn visit_map<A: MapAccess<'de>>(
                self,
                mut map: A,
            ) -> std::result::Result<Data, A::Error> {
                let mut entries = Vec::new();
                while let Some(entry) = map.next_entry()? {
                    entries.push(entry);
                }
                Ok(Data::Dict(entries))
            }
        }
        deserializer.deserialize_any(Json)
    }
}

impl Serialize for Data {
    fn serialize<S: Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        match self {
            Self::Null => serializer.serialize_unit(),
            Self::Bool(yes) => serializer.serialize_bool(*yes),
            Self::Int(number) => serializer.serialize_i64(*number),
            Self::Float(number) => serializer.serialize_f64(*number),
            Self::Str(text) => serializer.serialize_str(text),
            Self::List(items) => serializer.collect_seq(items),
            Self::Dict(entries) => {
                serializer.collect_map(entries.iter().map(|(key, value)| (key, value)))
            }
        }
    }
}

impl Data {
    /// Estimates its size in bytes.
    fn size(&self) -> usize {
        64 + match self {
            Self::Str(text) => text.len(),
            Self::List(items) => items.iter().map(Self::size).sum(),
            Self::Dict(entries) => {
                entries.iter().map(|(key, value)| key.len() + value.size()).sum()
            }
            _ => 0,
        }
    }

    fn value(&self) -> Result<Value> {
        Ok(match self {
            Self::Null => Value::None,
            Self::Bool(yes) => Value::Bool(*yes),
            Self::Int(number) => Value::Int(i128::from(*number)),
            Self::Float(number) => Value::Float(*number),
            Self::Str(text) => Value::str(text),
            Self::List(items) => {
                Value::list(items.iter().map(Self::value).collect::<Result<_>>()?)?
            }
            Self::Dict(entries) => {
                let (mut dict, mut fuel) = (Dict::new(), u64::MAX);
                for (key, value) in entries {
                    dict.insert(Value::str(key), value.value()?, &mut fuel)?;
                }
                Value::dict(dict)
            }
        })
    }
}

/// A template, read.
#[derive(Debug)]
pub struct Template {
    body: ast::Body,
    variables: Vec<String>,
}

impl Template {
    /// Reads a template.
    ///
    /// # Errors
    /// If it isn't Jinja, or longer than [`MAX_SOURCE`].
    pub fn new(source: &str) -> Result<Self> {
        if source.len() > MAX_SOURCE {
            return failure::fail(format!(
                "it has {} bytes, and {MAX_SOURCE} are the most",
                source.len()
            ));
        }
        on_stack(|| {
            let mut parser = parser::Parser::new(lexer::tokens(source)?);
            let body = parser.template()?;
            let mut variables = std::mem::take(&mut parser.free);
            variables.retain(|name| globals::global(name).is_none());
            variables.sort();
            variables.dedup();
            Ok(Self { body, variables })
        })
    }

    /// Returns the names that it reads without setting them first.
    pub fn variables(&self) -> &[String] {
        &self.variables
    }

    /// Renders it. `strftime_now` shows `now`.
    ///
    /// # Errors
    /// If it calls `raise_exception`, fails, or exceeds the bounds on steps, memory or depth.
    pub fn render(&self, variables: &[(&str, &Data)], now: Date) -> Result<String> {
        let size: usize = variables.iter().map(|(_, value)| value.size()).sum();
        let steps = STEPS.saturating_add(STEPS_PER_BYTE.saturating_mul(size as u64));
        let bytes = BYTES.saturating_add(BYTES_PER_BYTE.saturating_mul(size));
        on_stack(|| {
            let mut interpreter = Interpreter::new(steps, bytes, now);
            for (name, value) in variables {
                interpreter.set(name, value.value()?);
            }
            interpreter.run(&self.body)
        })
    }
}

impl Drop for Template {
    fn drop(&mut self) {
        // Dropping a deeply nested tree takes a deep stack.
        let body = std::mem::take(&mut self.body);
        let _ = on_stack(move || {
            drop(body);
            Ok(())
        });
    }
}

/// Runs a part on a stack large enough for the deepest nesting.
#[cfg(not(target_arch = "wasm32"))]
fn on_stack<T: Send>(part: impl FnOnce() -> Result<T> + Send) -> Result<T> {
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().stack_size(STACK).spawn_scoped(scope, part);
        match thread.map(|thread| thread.join()) {
            Ok(Ok(done)) => done,
            Ok(Err(_)) => failure::fail("its renderer stopped"),
            Err(error) => failure::fail(format!("no thread could be started: {error}")),
        }
    })
}

#[cfg(target_arch = "wasm32")]
fn on_stack<T>(part: impl FnOnce() -> Result<T>) -> Result<T> {
    part()
}
