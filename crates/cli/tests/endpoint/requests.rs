//! What is sent to a server: flags as the protocol's fields, and flags that it has no field for.

use crate::{run, talk};
use candecode_remote::test_servers::loopback::Loopback;
use candecode_remote::test_servers::openai::{event, stream_of, OpenAi, DONE};
use serde_json::{json, Value};

/// Returns the body of the only request for text that a run with these flags makes.
fn body(owner: &str, flags: &[&str]) -> Value {
    let server = OpenAi::owned_by(owner).start();
    let (_, errors, code) = run(&server, &[&["-p", "Once"], flags].concat());
    assert_eq!(code, 0, "{errors}");
    sent(&server, 1)
}

fn words(flags: &str) -> Vec<&str> {
    flags.split_whitespace().collect()
}

/// Returns the body of this request.
fn sent(server: &Loopback, number: usize) -> Value {
    serde_json::from_str(&server.asked()[number].body).unwrap()
}

/// Greedy is requested explicitly, by temperature 0.
#[test]
fn flags_are_sent_under_the_protocols_names() {
    let with = |fields: Value| {
        let mut all = json!({
            "model": "small", "prompt": "Once", "max_tokens": 128, "temperature": 0.0,
            "stream": true, "stream_options": {"include_usage": true},
        });
        all.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        all
    };
    assert_eq!(body("other", &[]), with(json!({})));
    let flags = "--max-new-tokens 9 --temperature 0.7 --top-p 0.9 --seed 3 --stop x --stop y \
        --presence-penalty 0.1 --frequency-penalty 0.2 --num-return-sequences 2 --format json";
    let server = OpenAi::owned_by("other").start();
    run(&server, &[&["-p", "Once"], &words(flags)[..]].concat());
    let fields = json!({
        "max_tokens": 9, "temperature": 0.7, "top_p": 0.9, "seed": 3, "stop": ["x", "y"],
        "presence_penalty": 0.1, "frequency_penalty": 0.2, "n": 2, "logprobs": 1,
    });
    assert_eq!(sent(&server, 1), with(fields));
}

/// Extra fields have vLLM's names. Servers fill in missing fields differently, so those that this
/// server would fill in are sent, too.
#[test]
fn each_server_gets_the_fields_that_it_has_or_fills_in() {
    for (owner, flags, fields) in [
        ("vllm", "", json!({"top_k": null, "repetition_penalty": 1.0})),
        ("vllm", "--temperature 1", json!({"top_k": -1, "min_p": 0.0, "repetition_penalty": 1.0})),
        (
            "vllm",
            "--top-k 5 --min-p 0.1 --repetition-penalty 1.1 --allow-regex a+",
            json!({
                "top_k": 5, "min_p": 0.1, "repetition_penalty": 1.1,
                "structured_outputs": {"regex": "a+"},
            }),
        ),
        ("sglang", "--allow-regex a+", json!({"regex": "a+", "structured_outputs": null})),
        (
            "llamacpp",
            "--temperature 1",
            json!({"top_k": -1, "min_p": 0.0, "repetition_penalty": null}),
        ),
        ("vllm", "--format json", json!({"logprobs": 1, "return_token_ids": true})),
    ] {
        let body = body(owner, &words(flags));
        for (name, value) in fields.as_object().unwrap() {
            assert_eq!(&body[name], value, "{owner} {flags}: {name}");
        }
    }
    let (_, errors, _) = run(&OpenAi::owned_by("me").start(), &["-p", "Once", "--top-k", "5"]);
    assert!(errors.contains("note: top_k"), "{errors}");
}

/// Flags that no server has a field for don't even parse.
#[test]
fn flags_without_a_field_are_refused_by_name() {
    for (owner, flags) in [
        ("llamacpp", "--repetition-penalty 1.1"),
        ("llamacpp", "--allow-regex a+"),
        // Only a chat has a template.
        ("vllm", "--template-set enable_thinking=false"),
    ] {
        let (server, flags) = (OpenAi::owned_by(owner).start(), words(flags));
        let (_, errors, code) = run(&server, &[&["-p", "Once"], &flags[..]].concat());
        assert!(code == 2 && errors.contains(flags[0]), "{flags:?}: {errors}");
        assert!(!server.lines().iter().any(|line| line.starts_with("POST")), "{flags:?}");
    }
}

#[test]
fn a_prompt_is_text_or_ids_and_the_address_may_end_in_v1() {
    let mut server = OpenAi::default().start();
    server.address += "/v1/";
    let (out, errors, code) = run(&server, &["-p", "There was", "--stats"]);
    assert_eq!((out.as_str(), code), ("There was a dog.\n", 0), "{errors}");
    assert!(errors.contains("prompt 4 tokens, new 2"), "{errors}");
    assert_eq!(server.lines(), ["GET /v1/models", "POST /v1/completions"]);
    let (out, _, code) = run(&server, &["--prompt-ids", "5,9,77"]);
    assert_eq!((out.as_str(), code), (" a dog.\n", 0));
    assert_eq!(sent(&server, 1)["prompt"], json!([5, 9, 77]));
}

/// Completions have parallel lists of tokens, llama.cpp has entries, as chats do.
#[test]
fn ids_and_log_probabilities_are_read_if_the_server_sends_them() {
    let with = |text: &str, tokens: &str| {
        event(text, "null").replace("\"text\"", &(tokens.to_string() + ",\"text\""))
    };
    let entries = with(" a", r#""logprobs":{"content":[{"id":5,"token":" a","logprob":-0.5}]}"#);
    let lists = with(
        " dog.",
        r#""prompt_token_ids":[1],"token_ids":[9],"logprobs":{"tokens":[" dog."],"token_logprobs":[-0.5]}"#,
    );
    let server = OpenAi::sends(stream_of(entries + &lists + DONE)).start();
    let (out, errors, code) = run(&server, &["-p", "There was", "--format", "json"]);
    assert_eq!(code, 0, "{errors}");
    let line: Value = serde_json::from_str(&out).unwrap();
    assert_eq!((&line["prompt_ids"], &line["new_ids"]), (&json!([1]), &json!([5, 9])));
    assert_eq!(line["tokens"], json!([" a", " dog."]));
    assert_eq!((&line["text"], &line["logprobs"]), (&json!(" a dog."), &json!([-0.5, -0.5])));
}

#[test]
fn a_chat_sends_the_whole_conversation() {
    let server = OpenAi::default().start();
    let flags = ["--chat", "--system", "Be brief.", "--template-set", "enable_thinking=false"];
    let (out, errors, code) = talk(&server, &flags, "Hello\n/foo\nAnd you?\n/reset\nBye\n");
    assert_eq!((out.as_str(), code), (" a dog.\n a dog.\n a dog.\n", 0), "{errors}");
    assert!(errors.contains("no command \"/foo\""), "{errors}");
    let asked = server.asked();
    assert_eq!(asked[1].line, "POST /v1/chat/completions");
    let sent = |i: usize| serde_json::from_str::<Value>(&asked[i].body).unwrap();
    let message = |role: &str, text: &str| json!({"role": role, "content": text});
    assert_eq!(sent(1)["chat_template_kwargs"], json!({"enable_thinking": false}));
    let second = [
        message("system", "Be brief."),
        message("user", "Hello"),
        message("assistant", " a dog."),
        message("user", "And you?"),
    ];
    assert_eq!(sent(2)["messages"], json!(second));
    assert_eq!(sent(3)["messages"].as_array().unwrap().len(), 2);
}
