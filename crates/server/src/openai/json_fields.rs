//! The fields of a JSON object, read one by one: what their values may be, and which nobody read.

use super::api_error::{cut, ApiError};
use serde_json::{Map, Value};
use std::cell::RefCell;
use std::collections::BTreeSet;

/// The fields of a JSON object. A reader returns None where its field is missing or `null`, and an
/// error that names the field if the value has another type or is out of range.
/// [`Fields::unread`] lists the fields that no reader asked for.
pub struct Fields<'a> {
    object: &'a Map<String, Value>,
    asked: RefCell<BTreeSet<String>>,
}

impl<'a> Fields<'a> {
    /// Reads this object.
    pub fn new(object: &'a Map<String, Value>) -> Self {
        Self { object, asked: RefCell::default() }
    }

    /// Returns the value of a field, whatever its type.
    pub fn value(&self, name: &str) -> Option<&'a Value> {
        self.asked.borrow_mut().insert(name.to_string());
        self.object.get(name).filter(|value| !value.is_null())
    }

    /// Returns a number that `fits`; `range` describes in words what does, such as "in 0 to 1".
    ///
    /// # Errors
    /// 400, if it isn't a number or doesn't fit.
    pub fn number(
        &self,
        name: &str,
        range: &str,
        fits: impl Fn(f64) -> bool,
    ) -> Result<Option<f64>, ApiError> {
        let Some(value) = self.value(name) else { return Ok(None) };
        match value.as_f64() {
            Some(number) if fits(number) => Ok(Some(number)),
            _ => Err(self.wrong(name, &format!("a number {range}"), value)),
        }
    }

    /// Returns a whole number that `fits`; `range` describes in words what does.
    ///
    /// # Errors
    /// 400, if it isn't a whole number or doesn't fit.
    pub fn integer(
        &self,
        name: &str,
        range: &str,
        fits: impl Fn(i64) -> bool,
    ) -> Result<Option<i64>, ApiError> {
        let Some(value) = self.value(name) else { return Ok(None) };
        match value.as_i64() {
            Some(number) if fits(number) => Ok(Some(number)),
            _ => Err(self.wrong(name, &format!("a whole number {range}"), value)),
        }
    }

    /// Returns `true` or `false`; false if the field is missing.
    ///
    /// # Errors
    /// 400, if it is neither.
    pub fn flag(&self, name: &str) -> Result<bool, ApiError> {
        let Some(value) = self.value(name) else { return Ok(false) };
        value.as_bool().ok_or_else(|| self.wrong(name, "true or false", value))
    }

    /// Returns a list of strings, or one string as a list of one; empty if the field is missing.
    ///
    /// # Errors
    /// 400, if it is something else.
    pub fn strings(&self, name: &str) -> Result<Vec<String>, ApiError> {
        let Some(value) = self.value(name) else { return Ok(Vec::new()) };
        let wrong = || self.wrong(name, "a string or a list of strings", value);
        match value {
            Value::String(text) => Ok(vec![text.clone()]),
            Value::Array(values) => {
                let texts = values.iter().map(|v| v.as_str().map(str::to_string));
                texts.collect::<Option<Vec<String>>>().ok_or_else(wrong)
            }
            _ => Err(wrong()),
        }
    }

    /// Returns the error for a field with an invalid value: 400.
    pub fn wrong(&self, name: &str, must_be: &str, got: &Value) -> ApiError {
        let shown = cut(&got.to_string(), 60);
        ApiError::invalid(name, format!("{name} must be {must_be}, got {shown}"))
    }

    /// Returns the names of the fields that no reader asked for.
    pub fn unread(&self) -> Vec<String> {
        let asked = self.asked.borrow();
        self.object.keys().filter(|name| !asked.contains(*name)).cloned().collect()
    }
}
