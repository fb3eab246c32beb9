//! Requests of OpenAI's clients: every field, its defaults and its range, and what is refused.

use super::equal;
use crate::openai::api_request::{
    allowed_regex, chat_messages, logprobs_asked, prompts, sampling_params, stop_strings,
};
use crate::openai::json_fields::Fields;
use crate::openai::{prompt_ids, ApiError, ApiRequest, ChatMessage, Endpoint, Extras, PromptInput};
use candecode::formats::ModelFiles;
use candecode::kit::{ModelConfig, SamplingParams, Tokenizer};
use serde_json::{json, Value};

/// Lets a function read the fields of this object.
fn fields<T>(value: &Value, read: impl Fn(&Fields) -> T) -> T {
    read(&Fields::new(value.as_object().unwrap()))
}

fn endpoint(chat: bool) -> Endpoint {
    match chat {
        true => Endpoint::Chat,
        false => Endpoint::Completions,
    }
}

fn message(role: &str, content: &str) -> ChatMessage {
    ChatMessage { role: role.to_string(), content: content.to_string() }
}

/// An answer that can be compared: a refusal is its status and the field at fault.
fn short<T>(answer: Result<T, ApiError>) -> Result<T, (u16, Option<String>)> {
    answer.map_err(|error| (error.status, error.param))
}

fn blames<T>(status: u16, param: &str) -> Result<T, (u16, Option<String>)> {
    Err((status, Some(param.to_string())))
}

#[test]
fn stop_in_three_forms() {
    for (body, want) in [
        (json!({}), vec![]),
        (json!({"stop": null}), vec![]),
        (json!({"stop": "\n"}), vec!["\n"]),
        (json!({"stop": ["END", "\n\n"]}), vec!["END", "\n\n"]),
    ] {
        let want = Ok(want.into_iter().map(str::to_string).collect::<Vec<_>>());
        equal(&format!("stop_strings of {body}"), short(fields(&body, stop_strings)), &want);
    }
}

#[test]
fn stop_is_refused() {
    for body in [
        json!({"stop": ""}),
        json!({"stop": ["END", ""]}),
        json!({"stop": 7}),
        json!({"stop": [7]}),
        json!({"stop": {"a": "b"}}),
    ] {
        let got = short(fields(&body, stop_strings));
        equal(&format!("stop_strings of {body}"), got, &blames(400, "stop"));
    }
    for (what, stops, taken) in [
        ("64 strings", vec!["ab".to_string(); 64], true),
        ("65 strings", vec!["ab".to_string(); 65], false),
        ("a string of 4096 bytes", vec!["é".repeat(2048)], true),
        ("4097 bytes in two strings", vec!["é".repeat(2048), "a".to_string()], false),
    ] {
        let got = short(fields(&json!({ "stop": stops }), stop_strings));
        let want = if taken { Ok(stops) } else { blames(400, "stop") };
        equal(&format!("stop_strings of {what}"), got, &want);
    }
}

#[test]
fn regex_and_choice() {
    for (body, want) in [
        (json!({}), None),
        (json!({"response_format": {"type": "text"}}), None),
        (json!({"structured_outputs": {"regex": "[0-9]+"}}), Some("[0-9]+")),
        (json!({"structured_outputs": {"choice": ["yes", "no"]}}), Some("(?:yes|no)")),
        (json!({"structured_outputs": {"choice": ["a.b"], "regex": null}}), Some(r"(?:a\.b)")),
        (
            json!({"structured_outputs": {"choice": ["1+1", "(2)"]},
                   "response_format": {"type": "text"}}),
            Some(r"(?:1\+1|\(2\))"),
        ),
    ] {
        let got = short(fields(&body, allowed_regex));
        equal(&format!("allowed_regex of {body}"), got, &Ok(want.map(str::to_string)));
    }
}

#[test]
fn other_formats_are_refused() {
    for (body, param) in [
        (json!({"response_format": {"type": "json_object"}}), "response_format"),
        (
            json!({"response_format": {"type": "json_schema", "json_schema": {"name": "x"}}}),
            "response_format",
        ),
        (json!({"response_format": "json"}), "response_format"),
        (json!({"response_format": {}}), "response_format"),
        (json!({"structured_outputs": {}}), "structured_outputs"),
        (json!({"structured_outputs": "[0-9]+"}), "structured_outputs"),
        (json!({"structured_outputs": {"grammar": "root ::= x"}}), "structured_outputs"),
        (json!({"structured_outputs": {"regex": "a", "json": {}}}), "structured_outputs"),
        (json!({"structured_outputs": {"regex": "a", "choice": ["b"]}}), "structured_outputs"),
        (json!({"structured_outputs": {"choice": []}}), "structured_outputs"),
        (json!({"structured_outputs": {"choice": ["a", 1]}}), "structured_outputs"),
        (json!({"structured_outputs": {"choice": "a"}}), "structured_outputs"),
        (json!({"structured_outputs": {"regex": 5}}), "structured_outputs"),
    ] {
        let got = short(fields(&body, allowed_regex));
        equal(&format!("allowed_regex of {body}"), got, &blames(400, param));
    }
    let body = json!({"response_format": {"type": "json_object"}});
    let words = fields(&body, allowed_regex).err().map(|e| e.message).unwrap_or_default();
    assert!(words.contains("json_object"), "{words}");
}

/// The defaults of OpenAI.
fn openai(max_new_tokens: usize) -> SamplingParams {
    SamplingParams { temperature: 1.0, max_new_tokens, seed: 99, ..SamplingParams::default() }
}

#[test]
fn defaults_are_openais() {
    for (chat, most) in [(false, 16), (true, usize::MAX)] {
        let input = format!("sampling_params of {{}}, chat: {chat}, seed 99");
        let got = short(fields(&json!({}), |all| sampling_params(all, endpoint(chat), 99)));
        equal(&input, got, &Ok(openai(most)));
    }
}

#[test]
fn every_parameter_arrives() {
    let body = json!({
        "temperature": 0.5, "top_p": 0.25, "top_k": 7, "min_p": 0.125, "seed": 3,
        "presence_penalty": -1.5, "frequency_penalty": 1.25, "repetition_penalty": 1.5,
        "max_tokens": 5, "stop": "END", "structured_outputs": {"regex": "a*"},
    });
    let want = SamplingParams {
        max_new_tokens: 5,
        temperature: 0.5,
        top_k: Some(7),
        top_p: 0.25,
        min_p: 0.125,
        seed: 3,
        repetition_penalty: 1.5,
        presence_penalty: -1.5,
        frequency_penalty: 1.25,
        stop: vec!["END".to_string()],
        allow_regex: Some("a*".to_string()),
        ..SamplingParams::default()
    };
    for chat in [false, true] {
        let input = format!("sampling_params of {body}, chat: {chat}");
        equal(
            &input,
            short(fields(&body, |all| sampling_params(all, endpoint(chat), 99))),
            &Ok(want.clone()),
        );
    }
    for (body, chat, want) in [
        (json!({"temperature": 0}), false, SamplingParams { temperature: 0.0, ..openai(16) }),
        (json!({"temperature": 3.5}), false, SamplingParams { temperature: 3.5, ..openai(16) }),
        (json!({"top_k": 0}), false, openai(16)),
        (
            json!({"top_k": -1, "top_p": 1, "min_p": 1}),
            false,
            SamplingParams { min_p: 1.0, ..openai(16) },
        ),
        (json!({"seed": 0}), false, SamplingParams { seed: 0, ..openai(16) }),
        (json!({"seed": -1}), false, SamplingParams { seed: u64::MAX, ..openai(16) }),
        (json!({"seed": null, "max_tokens": null}), false, openai(16)),
        (json!({"max_tokens": 3}), true, openai(3)),
        (json!({"max_completion_tokens": 4}), true, openai(4)),
        (json!({"max_tokens": 3, "max_completion_tokens": 4}), true, openai(4)),
        (json!({"max_completion_tokens": 4}), false, openai(16)),
        (json!({"max_tokens": 1}), false, openai(1)),
        (json!({"max_completion_tokens": 1}), true, openai(1)),
        (json!({"top_k": 1}), false, SamplingParams { top_k: Some(1), ..openai(16) }),
        (
            json!({"repetition_penalty": 0.5}),
            false,
            SamplingParams { repetition_penalty: 0.5, ..openai(16) },
        ),
        (
            json!({"presence_penalty": 2, "frequency_penalty": -2}),
            false,
            SamplingParams { presence_penalty: 2.0, frequency_penalty: -2.0, ..openai(16) },
        ),
    ] {
        let input = format!("sampling_params of {body}, chat: {chat}, seed 99");
        equal(
            &input,
            short(fields(&body, |all| sampling_params(all, endpoint(chat), 99))),
            &Ok(want),
        );
    }
}

#[test]
fn out_of_range_is_refused() {
    for (body, param) in [
        (json!({"temperature": -0.1}), "temperature"),
        (json!({"temperature": "hot"}), "temperature"),
        (json!({"top_p": 0}), "top_p"),
        (json!({"top_p": 1.01}), "top_p"),
        (json!({"top_k": -2}), "top_k"),
        (json!({"top_k": 2.5}), "top_k"),
        (json!({"min_p": -0.1}), "min_p"),
        (json!({"min_p": 1.1}), "min_p"),
        (json!({"seed": "x"}), "seed"),
        (json!({"seed": 0.5}), "seed"),
        (json!({"presence_penalty": 2.1}), "presence_penalty"),
        (json!({"frequency_penalty": -2.1}), "frequency_penalty"),
        (json!({"repetition_penalty": 0}), "repetition_penalty"),
        (json!({"repetition_penalty": -0.5}), "repetition_penalty"),
        (json!({"max_tokens": 0}), "max_tokens"),
        (json!({"max_tokens": -5}), "max_tokens"),
        (json!({"max_completion_tokens": 0}), "max_completion_tokens"),
        (json!({"stop": ""}), "stop"),
        (json!({"response_format": {"type": "json_object"}}), "response_format"),
    ] {
        let input = format!("sampling_params of {body}, in a chat");
        equal(
            &input,
            short(fields(&body, |all| sampling_params(all, endpoint(true), 99))),
            &blames(400, param),
        );
    }
}

#[test]
fn a_prompt_in_four_forms() {
    let text = |text: &str| PromptInput::Text(text.to_string());
    for (body, want) in [
        (json!({"prompt": "Once"}), vec![text("Once")]),
        (json!({"prompt": ""}), vec![text("")]),
        (json!({"prompt": ["Once", "The", ""]}), vec![text("Once"), text("The"), text("")]),
        (json!({"prompt": [7]}), vec![PromptInput::Ids(vec![7])]),
        (json!({"prompt": [7, 8, 9]}), vec![PromptInput::Ids(vec![7, 8, 9])]),
        (
            json!({"prompt": [[7, 8], [9]]}),
            vec![PromptInput::Ids(vec![7, 8]), PromptInput::Ids(vec![9])],
        ),
        (json!({"prompt": [[]]}), vec![PromptInput::Ids(vec![])]),
    ] {
        equal(&format!("prompts of {body}"), short(fields(&body, prompts)), &Ok(want));
    }
}

#[test]
fn other_prompts_are_refused() {
    for body in [
        json!({}),
        json!({"prompt": null}),
        json!({"prompt": []}),
        json!({"prompt": 7}),
        json!({"prompt": {"text": "Once"}}),
        json!({"prompt": ["Once", 7]}),
        json!({"prompt": [7, "Once"]}),
        json!({"prompt": [[7], "Once"]}),
        json!({"prompt": ["Once", [7]]}),
        json!({"prompt": [-7]}),
        json!({"prompt": [7.5]}),
        json!({"prompt": [4_294_967_296_u64]}),
        json!({"prompt": [null]}),
    ] {
        let got = short(fields(&body, prompts));
        equal(&format!("prompts of {body}"), got, &blames(400, "prompt"));
    }
}

#[test]
fn messages_by_role() {
    let body = json!({"messages": [
        {"role": "developer", "content": "Be short."},
        {"role": "user", "content": "Hi", "name": "Lily"},
        {"role": "assistant", "content": null},
        {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]},
        {"role": "assistant", "content": ""},
        {"role": "system", "content": []},
    ]});
    let want: Vec<ChatMessage> = [
        ("system", "Be short."),
        ("user", "Hi"),
        ("assistant", ""),
        ("user", "a\nb"),
        ("assistant", ""),
        ("system", ""),
    ]
    .map(|(role, content)| message(role, content))
    .into();
    equal(&format!("chat_messages of {body}"), short(fields(&body, chat_messages)), &Ok(want));
}

#[test]
fn other_messages_are_refused() {
    for messages in [
        json!(null),
        json!([]),
        json!("Hi"),
        json!(["Hi"]),
        json!([{"role": "tool", "content": "4"}]),
        json!([{"content": "Hi"}]),
        json!([{"role": "user"}]),
        json!([{"role": "user", "content": null}]),
        json!([{"role": "user", "content": 4}]),
        json!([{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}]),
        json!([{"role": "user", "content": [{"type": "image_url", "text": "a cat"}]}]),
        json!([{"role": "user", "content": [{"type": "text"}]}]),
        json!([{"role": "user", "content": ["Hi"]}]),
    ] {
        let body = json!({"messages": messages});
        let got = short(fields(&body, chat_messages));
        equal(&format!("chat_messages of {body}"), got, &blames(400, "messages"));
    }
}

#[test]
fn logprobs_are_asked_in_two_ways() {
    for (body, chat, want) in [
        (json!({}), false, Ok(None)),
        (json!({"logprobs": 0}), false, Ok(Some(0))),
        (json!({"logprobs": 20}), false, Ok(Some(20))),
        (json!({"logprobs": 21}), false, blames(400, "logprobs")),
        (json!({"logprobs": -1}), false, blames(400, "logprobs")),
        (json!({"logprobs": true}), false, blames(400, "logprobs")),
        (json!({}), true, Ok(None)),
        (json!({"logprobs": false}), true, Ok(None)),
        (json!({"logprobs": true}), true, Ok(Some(0))),
        (json!({"logprobs": true, "top_logprobs": 20}), true, Ok(Some(20))),
        (json!({"logprobs": true, "top_logprobs": 21}), true, blames(400, "top_logprobs")),
        (json!({"top_logprobs": 2}), true, blames(400, "top_logprobs")),
        (json!({"logprobs": false, "top_logprobs": 2}), true, blames(400, "top_logprobs")),
        (json!({"logprobs": 3}), true, blames(400, "logprobs")),
    ] {
        let input = format!("logprobs_asked of {body}, chat: {chat}");
        equal(&input, short(fields(&body, |all| logprobs_asked(all, endpoint(chat)))), &want);
    }
}

#[test]
fn a_whole_request() {
    let body = json!({
        "model": "story-3m", "prompt": ["Once", "The"], "n": 2, "stream": true, "logprobs": 2,
        "stream_options": {"include_usage": true}, "mystery": "a", "user": "x", "best_of": 2,
        "ignore_eos": true, "echo": false, "logit_bias": {},
    });
    let want = ApiRequest {
        endpoint: Endpoint::Completions,
        prompts: vec![PromptInput::Text("Once".into()), PromptInput::Text("The".into())],
        params: SamplingParams { ignore_eos: true, ..openai(16) },
        n: 2,
        logprobs: Some(2),
        extras: Extras::default(),
        stream: true,
        include_usage: true,
        ignored: vec!["mystery".into(), "user".into()],
    };
    equal(&format!("parse of {body}"), short(parse(&body, false)), &Ok(want));
    let body = json!({"messages": [{"role": "user", "content": "Hi"}]});
    let want = ApiRequest {
        endpoint: Endpoint::Chat,
        prompts: vec![PromptInput::Messages(vec![message("user", "Hi")])],
        params: openai(usize::MAX),
        n: 1,
        logprobs: None,
        extras: Extras::default(),
        stream: false,
        include_usage: false,
        ignored: vec![],
    };
    equal(&format!("parse of {body}, a chat"), short(parse(&body, true)), &Ok(want));
    for (name, value) in [
        ("suffix", json!("")),
        ("bad_words", json!([])),
        ("logit_bias", json!({})),
        ("tools", json!(null)),
        ("use_beam_search", json!(false)),
        ("add_generation_prompt", json!(true)),
        ("min_tokens", json!(0)),
        ("length_penalty", json!(1.0)),
        ("prompt_logprobs", json!(null)),
    ] {
        let mut body = json!({"prompt": "Once"});
        body[name] = value;
        let got = parse(&body, false).map(|parsed| (parsed.params, parsed.ignored));
        equal(
            &format!("parse of {body}: its parameters, and what is ignored"),
            short(got),
            &Ok((openai(16), vec![])),
        );
    }
}

/// Parses a request to a server of story-3m.
fn parse(body: &Value, chat: bool) -> Result<ApiRequest, ApiError> {
    ApiRequest::parse(endpoint(chat), body.to_string().as_bytes(), "story-3m", 99)
}

#[test]
fn prompts_times_n_have_a_bound() {
    for (prompts, n, temperature, fits) in [
        (1, 0, 1.0, false),
        (1, 1, 1.0, true),
        (1, 128, 1.0, true),
        (1, 129, 1.0, false),
        (2, 64, 1.0, true),
        (2, 65, 1.0, false),
        (128, 1, 1.0, true),
        (129, 1, 1.0, false),
        // Greedy choices of one prompt would all be the same text.
        (1, 2, 0.0, false),
        (1, 3, 0.0, false),
        (3, 1, 0.0, true),
        (1, 2, 0.5, true),
    ] {
        let body = json!({"prompt": vec!["Once"; prompts], "n": n, "temperature": temperature});
        let got = parse(&body, false).map(|parsed| (parsed.prompts.len(), parsed.n));
        let want = if fits { Ok((prompts, n)) } else { blames(400, "n") };
        let input = format!("parse of {prompts} prompts, n = {n}, temperature {temperature}");
        equal(&format!("{input}: prompts and n"), short(got), &want);
    }
}

#[test]
fn other_requests_are_refused() {
    for (name, value, status) in [
        ("model", json!("story-7b"), 404),
        ("model", json!(7), 400),
        ("n", json!("2"), 400),
        ("suffix", json!("The end."), 400),
        ("bad_words", json!([5]), 400),
        ("logit_bias", json!({"405": -101}), 400),
        ("grammar", json!("root ::= \"a\""), 400),
        ("use_beam_search", json!(true), 400),
        ("add_generation_prompt", json!(false), 400),
        ("min_tokens", json!(-1), 400),
        ("length_penalty", json!(0), 400),
        ("best_of", json!(2), 400),
        // 0 asks for the prompt's own logprobs.
        ("prompt_logprobs", json!(0), 400),
        ("prompt_logprobs", json!(5), 400),
        ("stream_options", json!({"include_usage": true}), 400),
    ] {
        let mut body = json!({"prompt": "Once"});
        body[name] = value;
        let got = short(parse(&body, false));
        equal(&format!("parse of {body}, model story-3m"), got, &blames(status, name));
    }
    let body = json!({"prompt": "Once", "stream": true, "stream_options": true});
    let got = short(parse(&body, false));
    equal(&format!("parse of {body}"), got, &blames(400, "stream_options"));
    for body in ["{\"prompt\": ", "[\"Once\"]"] {
        let got = short(ApiRequest::parse(Endpoint::Completions, body.as_bytes(), "story-3m", 99));
        equal(&format!("parse of the body {body}"), got, &Err((400, None)));
    }
}

fn in_turns(messages: &[ChatMessage]) -> Result<String, String> {
    if messages.iter().any(|message| message.role == "system") {
        return Err("a story has no system prompt".to_string());
    }
    Ok(messages.iter().map(|said| format!("{}: {}\n", said.role, said.content)).collect())
}

fn tokenizer_json() -> Value {
    let text = std::fs::read_to_string("../../models/story-3m/tokenizer.json").unwrap();
    serde_json::from_str(&text).unwrap()
}

/// A tokenizer that begins every text with token 0, unless a template wrote the text.
fn tokenizer_with_bos() -> Tokenizer {
    let mut value = tokenizer_json();
    value["post_processor"] = json!({
        "type": "TemplateProcessing",
        "single": [{"SpecialToken": {"id": "<|endoftext|>", "type_id": 0}},
                   {"Sequence": {"id": "A", "type_id": 0}}],
        "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
        "special_tokens": {"<|endoftext|>": {
            "id": "<|endoftext|>", "ids": [0], "tokens": ["<|endoftext|>"]}},
    });
    Tokenizer::from_bytes(value.to_string().as_bytes()).unwrap()
}

/// A model of 2048 tokens with a context of 16.
fn config() -> ModelConfig {
    let files = ModelFiles::at(std::path::Path::new("../../models/story-3m")).unwrap();
    ModelConfig { vocab_size: 2048, max_position_embeddings: 16, ..files.config().clone() }
}

/// Encodes the prompts of a request.
fn encode(prompts: Vec<PromptInput>, tokenizer: &Tokenizer) -> Result<Vec<Vec<u32>>, ApiError> {
    let chat = matches!(prompts.first(), Some(PromptInput::Messages(_)));
    let mut request = parse(&json!({"prompt": "Once"}), false).unwrap();
    request.endpoint = endpoint(chat);
    request.prompts = prompts;
    prompt_ids(&request, tokenizer, &config(), &in_turns)
}

#[test]
fn prompts_become_tokens() {
    let tokenizer = tokenizer_with_bos();
    let user = |text: &str| PromptInput::Messages(vec![message("user", text)]);
    let with_bos = tokenizer.encode("Once upon").unwrap();
    let without = tokenizer.encode_rendered("user: Hi\n").unwrap();
    for (sent, want) in [
        (PromptInput::Text("Once upon".into()), with_bos),
        (PromptInput::Ids(vec![7, 2047]), vec![7, 2047]),
        (PromptInput::Ids(vec![5; 16]), vec![5; 16]), // exactly the context
        (user("Hi"), without),                        // the template has written the special tokens
    ] {
        let input =
            format!("prompt_ids of {sent:?}, with a tokenizer that begins each text with 0");
        let got = short(encode(vec![sent], &tokenizer));
        equal(&input, got, &Ok(vec![want]));
    }
    let several = vec![PromptInput::Text("Once".into()), PromptInput::Text("The".into())];
    let want = vec![tokenizer.encode("Once").unwrap(), tokenizer.encode("The").unwrap()];
    let got = short(encode(several, &tokenizer));
    equal("prompt_ids of two prompts", got, &Ok(want));
}

#[test]
fn prompts_that_do_not_fit() {
    let tokenizer = Tokenizer::from_bytes(tokenizer_json().to_string().as_bytes()).unwrap();
    let one = |role: &str, text: &str| PromptInput::Messages(vec![message(role, text)]);
    for (sent, param) in [
        (PromptInput::Ids(vec![5; 17]), "prompt"),
        (PromptInput::Ids(vec![2048]), "prompt"),
        (PromptInput::Ids(vec![]), "prompt"),
        (PromptInput::Text(String::new()), "prompt"),
        (PromptInput::Text("Once upon a time ".repeat(9)), "prompt"),
        (one("system", "Be short."), "messages"),
        (one("user", &"Hi ".repeat(30)), "messages"),
    ] {
        let input = format!("prompt_ids of {sent:?}, 2048 tokens, a context of 16");
        let got = short(encode(vec![sent], &tokenizer));
        equal(&input, got, &blames(400, param));
    }
    let asked = |sent| encode(vec![sent], &tokenizer);
    let code = |sent| asked(sent).err().and_then(|error| error.code);
    let input = "a prompt of 17 tokens, a context of 16: the code of the error";
    equal(input, code(PromptInput::Ids(vec![5; 17])), &Some("context_length_exceeded"));
    equal(
        "an id that is not in the vocabulary: the code",
        code(PromptInput::Ids(vec![2048])),
        &None,
    );
    let words = asked(one("system", "Be short.")).unwrap_err().message;
    assert!(words.contains("a story has no system prompt"), "{words}");
}
