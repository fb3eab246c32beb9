//! What llguidance doesn't check about a schema: whether a text of it can ever be complete, and
//! whether its numbers and patterns need too much memory and time.

use serde_json::{Map, Value};
use std::collections::BTreeMap;

/// Maximum least common multiple of all `multipleOf`. An integer's automaton has that many states.
const MOST_STATES: f64 = 10_000.0;

/// Returns the objects in a schema, itself included.
fn objects(schema: &Value) -> Vec<&Map<String, Value>> {
    let (mut found, mut rest) = (Vec::new(), vec![schema]);
    while let Some(value) = rest.pop() {
        match value {
            Value::Object(fields) => {
                found.push(fields);
                rest.extend(fields.values());
            }
            Value::Array(items) => rest.extend(items),
            _ => {}
        }
    }
    found
}

/// Returns true if the multiples in a schema need too many states.
pub fn has_large_multiples(schema: &Value) -> bool {
    let multiples = objects(schema).into_iter().filter_map(|fields| fields.get("multipleOf"));
    let found: Vec<f64> = multiples.filter_map(Value::as_f64).filter(|x| *x > 0.0).collect();
    // As whole numbers: 0.25 and 5 are 25 and 500 hundredths.
    let is_whole = |x: f64| (x - x.round()).abs() < 1e-9 * x.abs();
    let mut scales = [1.0, 10.0, 100.0, 1e3, 1e4, 1e5, 1e6].into_iter();
    let Some(scale) = scales.find(|scale| found.iter().all(|x| is_whole(x * scale))) else {
        return true;
    };
    let common = found.iter().fold(1.0, |common, multiple| {
        let number = (multiple * scale).round();
        let (mut a, mut b) = (common, number);
        while b > 0.0 {
            (a, b) = (b, a % b);
        }
        common * (number / a)
    });
    common > MOST_STATES
}

/// Returns the total length of the patterns in a schema, in bytes.
pub fn pattern_bytes(schema: &Value) -> usize {
    let of = |fields: &Map<String, Value>| {
        let own = fields.get("pattern").and_then(Value::as_str).map_or(0, str::len);
        let names = fields.get("patternProperties").and_then(Value::as_object);
        own + names.into_iter().flat_map(Map::keys).map(String::len).sum::<usize>()
    };
    objects(schema).into_iter().map(of).sum()
}

/// Returns false if every text of the schema contains another one of the same schema, and so on
/// without end.
pub fn has_end(schema: &Value) -> bool {
    // What a reference leads to has no end until proven otherwise.
    let references = objects(schema).into_iter().filter_map(reference);
    let mut ends: BTreeMap<&str, bool> = references.map(|name| (name, false)).collect();
    let mut names: Vec<&str> = ends.keys().copied().collect();
    loop {
        let known = ends.values().filter(|end| **end).count();
        names.reverse(); // chains of references in either order take few rounds
        for name in &names {
            // A wrong reference is refused where the schema is compiled.
            let target = name.strip_prefix('#').and_then(|path| schema.pointer(path));
            let end = target.is_none_or(|target| ends_with(target, &ends));
            ends.insert(name, end);
        }
        if ends.values().filter(|end| **end).count() == known {
            return ends_with(schema, &ends);
        }
    }
}

fn reference(fields: &Map<String, Value>) -> Option<&str> {
    fields.get("$ref").and_then(Value::as_str).map(|name| if name == "#/" { "#" } else { name })
}

/// Returns whether a text of this schema can be complete, if those of the references in `ends` can.
fn ends_with(schema: &Value, ends: &BTreeMap<&str, bool>) -> bool {
    let Some(fields) = schema.as_object() else { return true };
    let list = |name: &str| fields.get(name).and_then(Value::as_array).map(Vec::as_slice);
    let all = |name: &str| list(name).unwrap_or_default().iter().all(|one| ends_with(one, ends));
    let any = |name: &str| {
        list(name).is_none_or(|of| of.is_empty() || of.iter().any(|one| ends_with(one, ends)))
    };
    let required = list("required").unwrap_or_default().iter().filter_map(Value::as_str);
    let property = |name: &str| fields.get("properties").and_then(|all| all.get(name));
    let number = |name: &str| fields.get(name).and_then(Value::as_u64).unwrap_or(0) as usize;
    // Every item that must be there: the first ones have schemas of their own.
    let first = list("prefixItems").unwrap_or_default();
    let least = number("minItems");
    let items = first.iter().take(least).chain(fields.get("items").filter(|_| least > first.len()));
    reference(fields).is_none_or(|name| ends.get(name) == Some(&true))
        && required.filter_map(property).all(|one| ends_with(one, ends))
        && items.into_iter().all(|one| ends_with(one, ends))
        && all("allOf")
        && any("anyOf")
        && any("oneOf")
}
