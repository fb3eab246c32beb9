//! Tools: the checks of a request's tools, and the schema of a call that it requires.

use super::api_error::ApiError;
use super::fields::Fields;
use super::tool_fields::{Tool, ToolChoice, ToolMode};
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

/// The tool choice in effect: without one, `auto`, if there are tools.
pub fn choice(fields: &Fields) -> ToolChoice {
    let default = if fields.tools.is_empty() { ToolMode::None } else { ToolMode::Auto };
    fields.tool_choice.clone().unwrap_or(ToolChoice::Mode(default))
}

/// Rejects tools that can't be called, and a choice that can't be made.
///
/// # Errors
/// 400, naming the field.
pub fn check(fields: &Fields) -> Result<(), ApiError> {
    let tools = &fields.tools;
    let invalid = |message: String| Err(ApiError::invalid("tools", message));
    if tools.len() > MOST_TOOLS {
        return invalid(format!("tools may have at most {MOST_TOOLS} tools, got {}", tools.len()));
    }
    let bytes = if tools.is_empty() { 0 } else { json!(tools).to_string().len() };
    if bytes > MOST_BYTES {
        return invalid(format!("tools may have at most {MOST_BYTES} bytes, got {bytes}"));
    }
    for (i, Tool { function, .. }) in tools.iter().enumerate() {
        let name = &function.name;
        if name.is_empty() || name.len() > LONGEST_NAME {
            let message = format!("tools[{i}].function.name must have 1 to {LONGEST_NAME} bytes");
            return invalid(message);
        }
        if tools[..i].iter().any(|other| other.function.name == *name) {
            return invalid(format!("tools[{i}] is a second tool named {}", quoted(name)));
        }
        let parameters = function.parameters.as_ref();
        let kind = parameters.and_then(|parameters| parameters.get("type"));
        if let Some(kind) = kind.filter(|kind| **kind != "object") {
            let message = format!(
                "tools[{i}].function.parameters must be a JSON schema with the type \"object\", \
                 got the type {:.60}",
                kind.to_string()
            );
            return invalid(message);
        }
        let properties = parameters.and_then(|parameters| parameters.get("properties"));
        let is_schema = |schema: &Value| schema.is_object() || schema.is_boolean();
        let good = properties.is_none_or(|properties| {
            properties.as_object().is_some_and(|properties| properties.values().all(is_schema))
        });
        if !good {
            let message = format!(
                "tools[{i}].function.parameters.properties must be an object of JSON schemas"
            );
            return invalid(message);
        }
    }
    let named = match choice(fields) {
        ToolChoice::Named { function, .. } => Some(function.name),
        ToolChoice::Mode(ToolMode::Required) if tools.is_empty() => None,
        ToolChoice::Mode(_) => return Ok(()),
    };
    let message = match named {
        Some(name) if tools.iter().any(|tool| tool.function.name == name) => return Ok(()),
        Some(name) => format!("tool_choice names {}, which is none of the tools", quoted(&name)),
        None => "tool_choice \"required\" needs tools".to_string(),
    };
    Err(ApiError::invalid("tool_choice", message))
}

/// The JSON schema of an answer to a request that requires a call: a list of `{"name": …,
/// "parameters": …}`, as in vLLM, or the arguments alone if it names a tool. None: the model is
/// free.
pub fn schema(fields: &Fields) -> Option<Value> {
    let empty = || json!({"type": "object", "properties": {}, "additionalProperties": false});
    let parameters = |tool: &Tool, place: &str| {
        let mut schema = match &tool.function.parameters {
            Some(parameters) if !parameters.is_empty() => json!(parameters),
            _ => empty(),
        };
        prepare(&mut schema, place, true);
        schema
    };
    let name = match choice(fields) {
        ToolChoice::Mode(ToolMode::Required) if fields.tools.is_empty() => return None,
        ToolChoice::Mode(ToolMode::Required) => None,
        ToolChoice::Named { function, .. } => Some(function.name),
        ToolChoice::Mode(_) => return None,
    };
    if let Some(name) = name {
        let tool = fields.tools.iter().find(|tool| tool.function.name == name);
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
            let open = ["additionalProperties", "patternProperties", "unevaluatedProperties"];
            let is_open = open.iter().chain(&["allOf", "$ref"]).any(|key| map.contains_key(*key));
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
