//! Tools: the checks of a request's tools, and the schema of a call that it requires.

use super::api_error::ApiError;
use super::fields::Fields;
use super::tool_fields::{Function, Tool, ToolChoice};
use candecode::kit::error::quoted;
use serde_json::{json, Map, Value};

/// The maximum number of tools in a request, as in OpenAI's API.
const MOST_TOOLS: usize = 128;
/// The maximum size of all tools, as JSON, in bytes.
const MOST_BYTES: usize = 1 << 17;
/// The longest name of a tool, in bytes.
const LONGEST_NAME: usize = 128;
/// The maximum number of calls in an answer that requires one. A model with nothing to say would
/// call tools until its tokens run out.
const MOST_CALLS: usize = 8;
/// The keywords of a schema whose values are named schemas.
const NAMED_SCHEMAS: [&str; 4] = ["properties", "patternProperties", "$defs", "definitions"];

/// The keywords of a schema that say, or can say, which other properties an object has.
const OPENING: [&str; 5] =
    ["additionalProperties", "patternProperties", "unevaluatedProperties", "allOf", "$ref"];

/// Rejects tools that can't be called, and a choice that can't be made.
///
/// # Errors
/// 400, naming the field.
pub fn check(fields: &Fields) -> Result<(), ApiError> {
    let tools = &fields.tools;
    let invalid = |message: String| Err(ApiError::invalid("tools", message));
    let bytes = json!(tools).to_string().len();
    for (what, got, most) in [("tools", tools.len(), MOST_TOOLS), ("bytes", bytes, MOST_BYTES)] {
        if got > most {
            return invalid(format!("tools may have at most {most} {what}, got {got}"));
        }
    }
    for (i, Tool { function: Function { name, parameters, .. }, .. }) in tools.iter().enumerate() {
        if name.is_empty() || name.len() > LONGEST_NAME {
            let message = format!("tools[{i}].function.name must have 1 to {LONGEST_NAME} bytes");
            return invalid(message);
        }
        if tools[..i].iter().any(|other| other.function.name == *name) {
            return invalid(format!("tools[{i}] is a second tool named {}", quoted(name)));
        }
        if !parameters.as_ref().is_none_or(is_object_schema) {
            return invalid(format!(
                "tools[{i}].function.parameters must be the JSON schema of an object; the values \
                 of properties and $defs are schemas"
            ));
        }
    }
    let has = |name: &str| tools.iter().any(|tool| tool.function.name == name);
    let message = match &fields.tool_choice {
        Some(ToolChoice::Mode(_)) if tools.is_empty() => {
            "tool_choice \"required\" needs tools".to_string()
        }
        Some(ToolChoice::Named { function, .. }) if !has(&function.name) => {
            format!("tool_choice names {}, which is none of the tools", quoted(&function.name))
        }
        _ => return Ok(()),
    };
    Err(ApiError::invalid("tool_choice", message))
}

/// Returns true for what can be the schema of a tool's parameters, at first sight.
fn is_object_schema(schema: &Map<String, Value>) -> bool {
    let is_schema = |value: &Value| value.is_object() || value.is_boolean();
    let are_schemas =
        |named: &Value| named.as_object().is_some_and(|named| named.values().all(is_schema));
    schema.get("type").is_none_or(|kind| kind == "object")
        && NAMED_SCHEMAS.iter().filter_map(|key| schema.get(*key)).all(are_schemas)
}

/// The JSON schema of an answer to a request that requires a call: a list of `{"name": …,
/// "parameters": …}`, as in vLLM, or the arguments alone if it names a tool. None: the model is
/// free.
pub fn schema(fields: &Fields) -> Option<Value> {
    let parameters = |tool: &Tool, place: &str| {
        let mut schema = match &tool.function.parameters {
            Some(parameters) if !parameters.is_empty() => json!(parameters),
            _ => json!({"type": "object", "properties": {}}),
        };
        prepare(&mut schema, place, true);
        schema
    };
    if let ToolChoice::Named { function, .. } = fields.tool_choice.as_ref()? {
        let tool = fields.tools.iter().find(|tool| tool.function.name == function.name);
        return tool.map(|tool| parameters(tool, "#"));
    }
    // Each tool's schema is a definition, and what it refers to is in there.
    let (mut definitions, mut calls) = (Map::new(), Vec::new());
    for (i, tool) in fields.tools.iter().enumerate() {
        let place = format!("#/$defs/{i}");
        definitions.insert(i.to_string(), parameters(tool, &place));
        calls.push(json!({
            "type": "object",
            "properties": {"name": {"const": tool.function.name}, "parameters": {"$ref": place}},
            "required": ["name", "parameters"],
            "additionalProperties": false,
        }));
    }
    let most = if fields.parallel_tool_calls == Some(false) { 1 } else { MOST_CALLS };
    Some(json!({
        "$defs": definitions,
        "type": "array",
        "minItems": 1,
        "maxItems": most,
        "items": {"anyOf": calls},
    }))
}

/// Makes references to a schema's own parts start at its new place, and closes objects that list
/// their properties, as vLLM does: otherwise any other would be allowed, and some models go on
/// inventing them. `closes`: not for the parts of an `allOf`, which add up.
fn prepare(schema: &mut Value, place: &str, closes: bool) {
    match schema {
        Value::Object(map) => {
            if let Some(Value::String(to)) = map.get_mut("$ref") {
                if let Some(path) = to.strip_prefix('#') {
                    *to = format!("{place}{path}");
                }
            }
            let is_open = OPENING.iter().any(|key| map.contains_key(*key));
            if closes && map.get("properties").is_some_and(Value::is_object) && !is_open {
                map.insert("additionalProperties".into(), json!(false));
            }
            for (key, value) in map {
                match value {
                    // The keys of these are names.
                    Value::Object(named) if NAMED_SCHEMAS.contains(&key.as_str()) => {
                        named.values_mut().for_each(|value| prepare(value, place, true));
                    }
                    value => prepare(value, place, key != "allOf"),
                }
            }
        }
        Value::Array(list) => list.iter_mut().for_each(|value| prepare(value, place, closes)),
        _ => {}
    }
}
