//! Prepares a request's JSON for `ApiRequest::parse`: refuses unsupported fields, renames those of other servers, and removes
//! values that ask for nothing.

use super::api_error::ApiError;
use super::json_fields::Fields;
use super::known_fields::{
    asks_for_nothing, FieldRule, FIELDS, STREAM_OPTIONS, STRUCTURED_OUTPUTS,
};
use candecode::kit::error::shown;
use candecode::kit::SamplingParams;
use serde_json::{json, Map, Value};

/// A prepared body.
#[derive(Debug, Default)]
pub struct PreparedBody {
    /// The fields left to read.
    pub object: Map<String, Value>,
    /// Unknown fields inside `stream_options`, by path. ([`Fields::unread`] finds those at the top level.)
    pub ignored: Vec<String>,
}

/// Temperatures below this are greedy (vLLM's `_SAMPLING_EPS`).
const LOWEST_TEMPERATURE: f64 = 1e-5;
/// The lowest repetition penalty: dividing by a much smaller one overflows a logit.
const LOWEST_REPETITION_PENALTY: f64 = 1e-4;

/// Reads the body of a request.
///
/// # Errors
/// 400 if it isn't a JSON object, or asks for something unsupported. The error names the field.
pub fn read(chat: bool, body: &[u8]) -> Result<PreparedBody, ApiError> {
    let value: Value = serde_json::from_slice(body)
        .map_err(|e| ApiError::unreadable(format!("the body is not JSON: {e}")))?;
    let Value::Object(mut object) = value else {
        return Err(ApiError::unreadable("the body must be a JSON object"));
    };
    object.retain(|name, value| {
        !value.is_null() || FIELDS.binary_search_by(|(known, _)| (*known).cmp(name)).is_err()
    });
    whole_seed(&object, body)?;
    whole_numbers(&mut object);
    tools(&mut object)?;
    refuse(&mut object, FIELDS, "")?;
    other_endpoint(&object, chat)?;
    if chat {
        messages(&object)?;
    }
    let ignored = stream_options(&mut object)?;
    response_format(&mut object)?;
    structured_outputs(&mut object)?;
    rename(&mut object, chat)?;
    numbers(&mut object)?;
    values_for_nothing(&mut object, chat)?;
    Ok(PreparedBody { object, ignored })
}

fn wrong(name: &str, must_be: &str, got: &Value) -> ApiError {
    Fields::new(&Map::new()).wrong(name, must_be, got)
}

/// Refuses a seed of more than 64 bits. serde_json parses it as a float, so the message takes its digits from the body.
fn whole_seed(object: &Map<String, Value>, body: &[u8]) -> Result<(), ApiError> {
    #[derive(serde::Deserialize)]
    struct Seed {
        seed: i128,
    }
    if object.get("seed").is_some_and(Value::is_f64) {
        if let Ok(Seed { seed }) = serde_json::from_slice(body) {
            let message = format!("seed must be a whole number of 64 bits, got {seed}");
            return Err(ApiError::invalid("seed", message));
        }
    }
    Ok(())
}

/// Turns floats without a fraction, such as 8.0, into integers: Python clients send them, and vLLM takes them.
fn whole_numbers(object: &mut Map<String, Value>) {
    const EXACT: f64 = 9_007_199_254_740_992.0; // 2^53: f64 holds all integers below
    for value in object.values_mut().filter(|value| value.is_f64()) {
        if let Some(number) = value.as_f64().filter(|x| x.fract() == 0.0 && x.abs() < EXACT) {
            *value = json!(number as i64);
        }
    }
}

/// Refuses fields of the other endpoint that would change the answer there.
fn other_endpoint(object: &Map<String, Value>, chat: bool) -> Result<(), ApiError> {
    let (there, names) = match chat {
        true => ("/v1/completions", &["prompt", "echo"][..]),
        false => ("/v1/chat/completions", &["messages", "top_logprobs"][..]),
    };
    for name in names {
        let value = object.get(*name).unwrap_or(&Value::Null);
        if !asks_for_nothing(value) && value.as_f64() != Some(0.0) {
            let message = format!("{name} is for {there}; leave it out here");
            return Err(ApiError::invalid(name, message));
        }
    }
    Ok(())
}

/// Drops `tools` under `"tool_choice": "none"`, as vLLM does. Refuses a choice that requires tools if there are none.
fn tools(object: &mut Map<String, Value>) -> Result<(), ApiError> {
    for (choice, tools) in [("tool_choice", "tools"), ("function_call", "functions")] {
        let Some(chosen) = object.remove(choice) else { continue };
        match chosen.as_str() {
            Some("none") => drop(object.remove(tools)),
            Some("auto") => {}
            _ if chosen.is_object() || chosen == "required" => {
                if object.get(tools).is_none_or(asks_for_nothing) {
                    let message = format!("{choice} is only allowed when {tools} are specified");
                    return Err(ApiError::invalid(choice, message));
                }
            }
            _ => {
                return Err(wrong(choice, "\"none\", \"auto\", \"required\" or an object", &chosen))
            }
        }
    }
    Ok(())
}

/// Applies the rules for refused fields, and removes those that ask for nothing.
fn refuse(
    object: &mut Map<String, Value>,
    rules: &[(&str, FieldRule)],
    within: &str,
) -> Result<(), ApiError> {
    for (name, rule) in rules {
        let FieldRule::Refused(neutral) = rule else { continue };
        let Some(value) = object.remove(*name) else { continue };
        if !neutral.accepts(&value) {
            let param = if within.is_empty() { name } else { within.trim_end_matches('.') };
            let message = format!("{within}{name} is not supported here; leave it out");
            return Err(ApiError::invalid(param, message));
        }
    }
    Ok(())
}

/// Refuses parts of messages that would change the prompt and aren't supported.
fn messages(object: &Map<String, Value>) -> Result<(), ApiError> {
    let list = object.get("messages").and_then(Value::as_array);
    for message in list.into_iter().flatten() {
        for name in ["tool_calls", "function_call", "audio"] {
            if !asks_for_nothing(&message[name]) {
                let text = format!("messages with {name} are not supported here; leave it out");
                return Err(ApiError::invalid("messages", text));
            }
        }
    }
    Ok(())
}

/// Checks `stream_options`. Returns the unknown names in it.
fn stream_options(object: &mut Map<String, Value>) -> Result<Vec<String>, ApiError> {
    let Some(value) = object.get_mut("stream_options") else { return Ok(Vec::new()) };
    let Value::Object(options) = value else {
        return Err(wrong("stream_options", "an object", value));
    };
    refuse(options, STREAM_OPTIONS, "stream_options.")?;
    options.retain(|_, value| !value.is_null());
    for name in ["include_usage", "continuous_usage_stats"] {
        if let Some(value) = options.get(name).filter(|value| !value.is_boolean()) {
            let error = wrong(&format!("stream_options.{name}"), "true or false", value);
            return Err(ApiError { param: Some("stream_options".to_string()), ..error });
        }
    }
    let unknown = |name: &&String| STREAM_OPTIONS.iter().all(|(known, _)| known != name);
    let ignored = options.keys().filter(unknown).map(|name| format!("stream_options.{name}"));
    let ignored = ignored.collect();
    if options.is_empty() {
        object.remove("stream_options");
    }
    Ok(ignored)
}

/// Accepts a `response_format` of text, the default, and refuses all others.
fn response_format(object: &mut Map<String, Value>) -> Result<(), ApiError> {
    let Some(value) = object.remove("response_format") else { return Ok(()) };
    let name = "response_format";
    let must_be = "an object with a type";
    let inner = value.as_object().ok_or_else(|| wrong(name, must_be, &value))?;
    let kind = inner.get("type").and_then(Value::as_str);
    match kind.ok_or_else(|| wrong(name, must_be, &value))? {
        "text" if inner.iter().all(|(key, value)| key == "type" || value.is_null()) => Ok(()),
        "text" => Err(wrong(name, "no more than {\"type\": \"text\"}", &value)),
        kind => {
            let kind = shown(kind);
            let message = format!(
                "response_format {kind} is not supported; take structured_outputs: regex or choice"
            );
            Err(ApiError::invalid(name, message))
        }
    }
}

/// Reduces `structured_outputs` to what `allowed_regex` reads: `regex`, `choice`, and unknown fields, which it refuses.
fn structured_outputs(object: &mut Map<String, Value>) -> Result<(), ApiError> {
    let Some(Value::Object(inner)) = object.get_mut("structured_outputs") else { return Ok(()) };
    inner.retain(|_, value| !value.is_null());
    refuse(inner, STRUCTURED_OUTPUTS, "structured_outputs.")?;
    for (name, rule) in STRUCTURED_OUTPUTS {
        if matches!(rule, FieldRule::NoEffect(_)) {
            inner.remove(*name);
        }
    }
    Ok(())
}

/// Renames fields of llama.cpp, and older ones of vLLM, to those that `ApiRequest::parse` reads.
fn rename(object: &mut Map<String, Value>, chat: bool) -> Result<(), ApiError> {
    if let Some(count) = object.get("n_predict") {
        if count.as_i64() == Some(-1) {
            object.insert("n_predict".into(), json!(i64::MAX)); // no limit but the context
        } else if count.as_i64().is_none_or(|count| count < 1) {
            return Err(wrong("n_predict", "-1 or a whole number of 1 or above", count));
        }
        // llama.cpp's own name takes precedence over OpenAI's two.
        object.remove("max_tokens");
        object.remove("max_completion_tokens");
    }
    if !chat {
        alias(object, "max_completion_tokens", "max_tokens")?;
    }
    alias(object, "n_predict", "max_tokens")?;
    alias(object, "n_cmpl", "n")?;
    alias(object, "repeat_penalty", "repetition_penalty")?;
    alias(object, "penalty_last_n", "repeat_last_n")?;
    if let Some(regex) = object.get("guided_regex") {
        if !regex.is_string() {
            return Err(wrong("guided_regex", "a string", regex));
        }
        let wanted = json!({ "regex": regex });
        object.insert("guided_regex".into(), wanted);
    }
    if let Some(choices) = object.get("guided_choice") {
        let texts = choices.as_array().filter(|list| !list.is_empty());
        if !texts.is_some_and(|list| list.iter().all(Value::is_string)) {
            return Err(wrong("guided_choice", "a list of at least one string", choices));
        }
        let wanted = json!({ "choice": choices });
        object.insert("guided_choice".into(), wanted);
    }
    for name in ["guided_regex", "guided_choice"] {
        let given = object.get(name).cloned();
        alias(object, name, "structured_outputs")?;
        if let Some(given) = given {
            object.insert(name.into(), given); // `extras` notes which name the client used
        }
    }
    Ok(())
}

/// Renames a field. Both names may be given if their values agree.
fn alias(object: &mut Map<String, Value>, name: &str, ours: &str) -> Result<(), ApiError> {
    let Some(value) = object.remove(name) else { return Ok(()) };
    match object.get(ours) {
        Some(other) if *other != value => {
            let message =
                format!("{name} and {ours} are two names for one field, and their values differ");
            Err(ApiError::invalid(name, message))
        }
        _ => {
            object.insert(ours.into(), value);
            Ok(())
        }
    }
}

/// Range-checks numbers both as sent and after rounding to f32, which is what the engine computes with.
fn numbers(object: &mut Map<String, Value>) -> Result<(), ApiError> {
    let in_range = |low: f64, high: f64| move |x: f64| (low..=high).contains(&x);
    type Fits = Box<dyn Fn(f64) -> bool>;
    let checks: [(&str, &str, Fits); 6] = [
        ("temperature", "of 0 or above that fits 32 bits", Box::new(|t| t >= 0.0)),
        ("top_p", "above 0 and at most 1", Box::new(|p| p > 0.0 && p <= 1.0)),
        ("min_p", "in 0 to 1", Box::new(in_range(0.0, 1.0))),
        ("presence_penalty", "in -2 to 2", Box::new(in_range(-2.0, 2.0))),
        ("frequency_penalty", "in -2 to 2", Box::new(in_range(-2.0, 2.0))),
        (
            "repetition_penalty",
            "of 0.0001 or above that fits 32 bits",
            Box::new(|x| x >= LOWEST_REPETITION_PENALTY),
        ),
    ];
    if let Some(temperature) = object.get("temperature").and_then(Value::as_f64) {
        if temperature > 0.0 && temperature < LOWEST_TEMPERATURE {
            object.insert("temperature".into(), json!(0));
        }
    }
    for (name, range, fits) in checks {
        let Some(value) = object.get(name) else { continue };
        let number = value.as_f64().filter(|x| fits(*x)).map(|x| x as f32);
        let held = number.filter(|x| x.is_finite() && (*x > 0.0 || name != "top_p"));
        if held.is_none() {
            return Err(wrong(name, &format!("a number {range}"), value));
        }
    }
    Ok(())
}

/// Removes values that clients send to mean "nothing", but that would change the answer.
fn values_for_nothing(object: &mut Map<String, Value>, chat: bool) -> Result<(), ApiError> {
    if object.get("model").is_some_and(|model| model == "") {
        object.remove("model"); // the served one
    }
    if object.get("seed").and_then(Value::as_i64) == Some(-1) {
        object.remove("seed"); // random, as in vLLM and llama.cpp
    }
    if !chat && object.get("logprobs").is_some_and(|wanted| wanted == false) {
        object.remove("logprobs");
    }
    let wanted = object.get("logprobs").is_some_and(|wanted| wanted == true);
    if chat && !wanted && object.get("top_logprobs").and_then(Value::as_i64) == Some(0) {
        object.remove("top_logprobs");
    }
    let n = object.get("n").map_or(Some(1), Value::as_i64);
    if let Some(best_of) = object.remove("best_of") {
        match (best_of.as_i64(), n) {
            (None, _) => return Err(wrong("best_of", "a whole number", &best_of)),
            (Some(best), Some(n)) if best < n => {
                return Err(wrong("best_of", &format!("at least n, which is {n}"), &best_of));
            }
            (Some(best), Some(n)) if best > n => {
                let message = "best_of above n is not supported here: ask for n, and choose among them yourself";
                return Err(ApiError::invalid("best_of", message));
            }
            _ => {} // equal to n, so there's nothing to choose; an invalid n is reported later
        }
    }
    Ok(())
}

/// Options of a request that only the server acts on.
#[derive(Debug, Clone, PartialEq)]
pub struct Extras {
    /// Start a completion with its prompt.
    pub echo: bool,
    /// Add BOS and the like to text prompts.
    pub add_special_tokens: bool,
    /// The client's name for the pattern, if it is an older one than `structured_outputs`.
    pub pattern_field: Option<&'static str>,
    /// Keep the stop string in the text.
    pub include_stop: bool,
    /// Report the usage so far with every event.
    pub continuous_usage: bool,
    /// The client's own id for the answer.
    pub request_id: Option<String>,
    /// End the rendered chat with the start of an answer.
    pub add_generation_prompt: bool,
    /// Continue the last message instead of answering it.
    pub continue_final_message: bool,
    /// Variables for the chat template.
    pub template_kwargs: Map<String, Value>,
}

impl Default for Extras {
    fn default() -> Self {
        Self {
            echo: false,
            add_special_tokens: true,
            pattern_field: None,
            include_stop: false,
            continuous_usage: false,
            request_id: None,
            add_generation_prompt: true,
            continue_final_message: false,
            template_kwargs: Map::new(),
        }
    }
}

/// The longest `request_id` accepted, in bytes.
const LONGEST_ID: usize = 128;

/// Reads the fields that `sampling_params` doesn't: rules for tokens go into `params`, and the rest is returned.
///
/// # Errors
/// 400 if a value is of another type or out of range.
pub fn extras(
    fields: &Fields,
    chat: bool,
    params: &mut SamplingParams,
) -> Result<Extras, ApiError> {
    params.logit_bias = logit_bias(fields)?;
    params.allowed_token_ids = token_ids(fields, "allowed_token_ids")?;
    params.stop_token_ids = token_ids(fields, "stop_token_ids")?.unwrap_or_default();
    params.bad_words = fields.strings("bad_words")?;
    params.ignore_eos = fields.flag("ignore_eos")?;
    let least = fields.integer("min_tokens", "of 0 or above", |n| n >= 0)?;
    params.min_new_tokens = least.unwrap_or(0) as usize;
    let window = fields.integer("repeat_last_n", "of -1 or above", |n| n >= -1)?;
    params.penalty_window = window.and_then(|n| usize::try_from(n).ok());

    let echo = fields.flag("echo")?;
    if echo && fields.value("logprobs").is_some() {
        let message =
            "echo with logprobs is not supported here: those of the prompt aren't computed";
        return Err(ApiError::invalid("echo", message));
    }
    let guided = ["guided_regex", "guided_choice"];
    let pattern_field = guided.into_iter().filter(|name| fields.value(name).is_some()).last();
    let with_special = or(fields, "add_special_tokens", !chat)?;
    if chat && with_special {
        let message = "add_special_tokens is for completions: a chat's template writes them";
        return Err(ApiError::invalid("add_special_tokens", message));
    }
    let options = fields.value("stream_options").and_then(Value::as_object);
    let continuous = options
        .is_some_and(|options| options.get("continuous_usage_stats") == Some(&Value::Bool(true)));
    let mut extras = Extras {
        echo,
        add_special_tokens: with_special || chat,
        pattern_field,
        include_stop: fields.flag("include_stop_str_in_output")?,
        continuous_usage: continuous,
        request_id: request_id(fields)?,
        add_generation_prompt: or(fields, "add_generation_prompt", true)?,
        continue_final_message: fields.flag("continue_final_message")?,
        template_kwargs: template_kwargs(fields)?,
    };
    if !chat {
        for (name, asked) in [
            ("add_generation_prompt", !extras.add_generation_prompt),
            ("continue_final_message", extras.continue_final_message),
            ("chat_template_kwargs", !extras.template_kwargs.is_empty()),
        ] {
            if asked {
                let message = format!("{name} is for chats: a completion has no template");
                return Err(ApiError::invalid(name, message));
            }
        }
    }
    if extras.continue_final_message {
        if fields.value("add_generation_prompt").is_some() && extras.add_generation_prompt {
            let message =
                "continue_final_message and add_generation_prompt exclude each other: an \
                           answer is continued, or a new one begun";
            return Err(ApiError::invalid("continue_final_message", message));
        }
        extras.add_generation_prompt = false;
    }
    Ok(extras)
}

/// `true` or `false`, or this if the field is missing.
fn or(fields: &Fields, name: &str, missing: bool) -> Result<bool, ApiError> {
    match fields.value(name) {
        Some(_) => fields.flag(name),
        None => Ok(missing),
    }
}

/// A list of token ids.
fn token_ids(fields: &Fields, name: &str) -> Result<Option<Vec<u32>>, ApiError> {
    let Some(value) = fields.value(name) else { return Ok(None) };
    let id = |id: &Value| u32::try_from(id.as_u64()?).ok();
    let ids = value.as_array().and_then(|list| list.iter().map(id).collect());
    ids.map(Some).ok_or_else(|| wrong(name, "a list of token ids", value))
}

/// `{"id": bias}`, as OpenAI has it, or `[[id, bias]]`, as llama.cpp does, where `false` forbids a token.
fn logit_bias(fields: &Fields) -> Result<Vec<(u32, f32)>, ApiError> {
    let Some(value) = fields.value("logit_bias") else { return Ok(Vec::new()) };
    let must_be = "an object of token ids, each with a number in -100 to 100";
    let one = |id: Option<u32>, bias: &Value| match bias {
        Value::Bool(false) => Some((id?, f32::NEG_INFINITY)),
        _ => {
            let bias = bias.as_f64().filter(|bias| (-100.0..=100.0).contains(bias))?;
            Some((id?, bias as f32))
        }
    };
    let read: Option<Vec<_>> = match value {
        Value::Object(map) => map.iter().map(|(id, bias)| one(id.parse().ok(), bias)).collect(),
        Value::Array(pairs) => {
            let pair = |pair: &Value| match pair.as_array().map(Vec::as_slice) {
                Some([id, bias]) => one(id.as_u64().and_then(|id| id.try_into().ok()), bias),
                _ => None,
            };
            pairs.iter().map(pair).collect()
        }
        _ => None,
    };
    read.ok_or_else(|| wrong("logit_bias", must_be, value))
}

fn request_id(fields: &Fields) -> Result<Option<String>, ApiError> {
    let Some(value) = fields.value("request_id") else { return Ok(None) };
    let fits = |id: &&str| {
        !id.is_empty() && id.len() <= LONGEST_ID && id.bytes().all(|byte| byte.is_ascii_graphic())
    };
    match value.as_str().filter(fits) {
        Some(id) => Ok(Some(id.to_string())),
        None => Err(wrong("request_id", "a string of 1 to 128 visible ASCII characters", value)),
    }
}

fn template_kwargs(fields: &Fields) -> Result<Map<String, Value>, ApiError> {
    match fields.value("chat_template_kwargs") {
        None => Ok(Map::new()),
        Some(Value::Object(map)) => Ok(map.clone()),
        Some(other) => Err(wrong("chat_template_kwargs", "an object", other)),
    }
}
