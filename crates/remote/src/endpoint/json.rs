//! The JSON that servers send, in all its dialects.

use serde_json::Value;

/// Parses JSON. Half a surrogate pair, which servers send if they cut a text between its halves,
/// becomes U+FFFD.
///
/// # Errors
/// If it's not JSON.
pub fn parse(text: &str) -> serde_json::Result<Value> {
    serde_json::from_str(text)
        .or_else(|error| serde_json::from_str(&without_halves(text)).map_err(|_| error))
}

/// Replaces each escaped half of a surrogate pair whose other half is missing.
fn without_halves(json: &str) -> String {
    let unit = |text: &str| u16::from_str_radix(text.strip_prefix("\\u")?.get(..4)?, 16).ok();
    let (mut out, mut rest) = (String::with_capacity(json.len()), json);
    while let Some(at) = rest.find('\\') {
        let (before, escape) = rest.split_at(at);
        let (length, is_half) = match (unit(escape), escape.get(6..).and_then(unit)) {
            (Some(0xd800..=0xdbff), Some(0xdc00..=0xdfff)) => (12, false),
            (Some(0xd800..=0xdfff), _) => (6, true),
            // The rest of a longer escape, such as the digits of \u00e9, contains no backslash.
            _ => (1 + escape[1..].chars().next().map_or(0, char::len_utf8), false),
        };
        out += before;
        out += if is_half { "\\ufffd" } else { &escape[..length] };
        rest = &escape[length..];
    }
    out + rest
}

/// Returns the text of a message's content: a string, or a list of parts. Thoughts are left out.
pub fn text(content: &Value) -> String {
    match content {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        Value::Array(parts) => parts.iter().map(text).collect(),
        Value::Object(part) => match part.get("type").and_then(Value::as_str) {
            Some("thinking" | "reasoning") => String::new(),
            _ => part.get("text").or(part.get("refusal")).map(text).unwrap_or_default(),
        },
        other => other.to_string(),
    }
}

/// Returns what a JSON error says, if it is one: `error.message` (OpenAI), another form of `error`,
/// or if there are no `choices`, `message`, `detail` (FastAPI) or `errors`. An empty `error`
/// doesn't count.
pub fn error_message(json: &Value) -> Option<String> {
    let json = json.get(0).unwrap_or(json); // Google's are in a list
    let no_choices = json["choices"].is_null();
    let names = ["error", "message", "detail", "errors"];
    let names = &names[..if no_choices { names.len() } else { 1 }];
    let of_choices =
        json["choices"].as_array().into_iter().flatten().map(|choice| &choice["error"]);
    let found = names.iter().map(|name| &json[*name]).chain(of_choices);
    found.filter_map(said).next()
}

/// Returns the words of an error, or all of it if it has none.
fn said(error: &Value) -> Option<String> {
    match error {
        Value::Null | Value::Bool(false) => None,
        Value::String(text) => Some(text.clone()).filter(|text| !text.trim().is_empty()),
        Value::Array(list) if list.is_empty() => None,
        Value::Object(fields) if fields.is_empty() => None,
        error => error.get("message").and_then(said).or_else(|| Some(error.to_string())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn half_a_surrogate_pair_is_replaced() {
        for (sent, want) in [
            (r#""a\ud83d""#, "a\u{fffd}"),
            (r#""\ude00b""#, "\u{fffd}b"),
            (r#""\ud83d\ud83d\ude00""#, "\u{fffd}😀"),
            (r#""\ud83dé\n\\ud83d\ud83d\"""#, "\u{fffd}é\n\\ud83d\u{fffd}\""),
        ] {
            assert_eq!(parse(sent).unwrap(), want, "{sent}");
        }
        for invalid in ["\"\\", "\"\\ud8", "\\é", "{\"a\": \\ud83d}"] {
            assert!(parse(invalid).is_err(), "{invalid}");
        }
    }

    #[test]
    fn an_error_has_many_forms() {
        for (sent, want) in [
            (json!({"error": {"message": "a", "code": 1}}), Some("a")),
            (json!({"error": "a"}), Some("a")),
            (json!({"error": {"message": {"message": "a"}}}), Some("a")),
            (json!({"error": {"code": 500}}), Some(r#"{"code":500}"#)),
            (json!([{"error": {"message": "a"}}]), Some("a")),
            (json!({"object": "error", "message": "a"}), Some("a")),
            (json!({"detail": [{"msg": "a"}]}), Some(r#"[{"msg":"a"}]"#)),
            (json!({"errors": ["a"]}), Some(r#"["a"]"#)),
            (json!({"error": {"message": "a"}, "choices": [{"text": "b"}]}), Some("a")),
            (json!({"choices": [{"text": "b", "error": {"message": "a"}}]}), Some("a")),
            (json!({"error": "", "message": "b", "choices": [{"text": "b"}]}), None),
            (json!({"error": {}, "errors": [], "detail": null}), None),
            (json!({"error": false}), None),
            (json!({}), None),
        ] {
            assert_eq!(error_message(&sent).as_deref(), want, "{sent}");
        }
    }
}
