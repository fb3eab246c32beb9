//! Tests `--endpoint` against simulated servers: what is sent, rejected, and printed.

#![cfg(all(feature = "ref", feature = "hub"))]

use candecode_remote::test_servers::openai::{Manner, OpenAiServer};
use serde_json::{json, Value};
use std::io::Write as _;
use std::process::{Command, Stdio};

/// Runs the command against this server. Returns its standard output, standard error and exit code.
fn run(server: &OpenAiServer, flags: &[&str]) -> (String, String, i32) {
    talk(server, flags, "")
}

fn talk(server: &OpenAiServer, flags: &[&str], lines: &str) -> (String, String, i32) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_candecode"));
    command.args(["--endpoint", &server.address]).args(flags).env_remove("OPENAI_API_KEY");
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let _ = child.stdin.take().unwrap().write_all(lines.as_bytes());
    let out = child.wait_with_output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (text(out.stdout), text(out.stderr), out.status.code().unwrap_or(-1))
}

/// Returns the body of the only completion request made by a run with these flags.
fn body(owner: &'static str, flags: &[&str]) -> Value {
    let server = OpenAiServer::start(Manner::Well(owner));
    let (_, errors, code) = run(&server, &[&["-p", "Once"], flags].concat());
    assert_eq!(code, 0, "{errors}");
    let questions = server.questions();
    assert_eq!(questions.len(), 1);
    serde_json::from_str(&questions[0].body).unwrap()
}

#[test]
fn the_streamed_text_follows_its_prompt() {
    let server = OpenAiServer::start(Manner::Well("vllm"));
    let (out, errors, code) = run(&server, &["-p", "There was", "--stats"]);
    assert_eq!((out.as_str(), code), ("There was a dog.\n", 0), "{errors}");
    assert!(errors.contains("prompt 4 tokens, new 2"), "{errors}");
    assert_eq!(server.questions()[0].path, "/v1/completions");
}

#[test]
fn greedy_is_requested_explicitly_with_temperature_0() {
    let sent = body("other", &[]);
    let want = json!({
        "model": "small", "prompt": "Once", "max_tokens": 128, "temperature": 0.0,
        "stream": true, "stream_options": {"include_usage": true},
    });
    assert_eq!(sent, want);
}

#[test]
fn flags_are_sent_under_the_protocols_names() {
    let flags = [
        "--max-new-tokens",
        "9",
        "--temperature",
        "0.7",
        "--top-p",
        "0.9",
        "--seed",
        "3",
        "--stop",
        "x",
        "--stop",
        "y",
        "--presence-penalty",
        "0.1",
        "--frequency-penalty",
        "0.2",
        "--num-return-sequences",
        "2",
        "--format",
        "json",
    ];
    let server = OpenAiServer::start(Manner::Well("other"));
    run(&server, &[&["-p", "Once"], &flags[..]].concat());
    let sent: Value = serde_json::from_str(&server.questions()[0].body).unwrap();
    let want = json!({
        "model": "small", "prompt": "Once", "max_tokens": 9, "temperature": 0.7, "top_p": 0.9,
        "seed": 3, "stop": ["x", "y"], "presence_penalty": 0.1, "frequency_penalty": 0.2, "n": 2,
        "logprobs": 1, "stream": true, "stream_options": {"include_usage": true},
    });
    assert_eq!(sent, want);
}

/// Servers fill in missing fields differently, so those that this server would fill in are sent
/// explicitly.
#[test]
fn fields_the_server_would_fill_in_are_sent_explicitly() {
    let sent = body("vllm", &["--temperature", "1"]);
    assert_eq!((&sent["top_k"], &sent["min_p"]), (&json!(-1), &json!(0.0)));
    assert_eq!(sent["repetition_penalty"], 1.0);
    let greedy = body("vllm", &[]);
    assert_eq!((&greedy["top_k"], &greedy["repetition_penalty"]), (&Value::Null, &json!(1.0)));
    let llama = body("llamacpp", &["--temperature", "1"]);
    assert_eq!((&llama["top_k"], &llama["min_p"]), (&json!(-1), &json!(0.0)));
    assert_eq!(llama["repetition_penalty"], Value::Null);
}

#[test]
fn extra_fields_are_sent_under_vllms_names() {
    let flags = ["--top-k", "5", "--min-p", "0.1", "--repetition-penalty", "1.1"];
    let sent = body("vllm", &[&flags[..], &["--allow-regex", "a+"]].concat());
    assert_eq!((&sent["top_k"], &sent["min_p"]), (&json!(5), &json!(0.1)));
    assert_eq!(sent["repetition_penalty"], 1.1);
    assert_eq!(sent["structured_outputs"], json!({"regex": "a+"}));
    assert_eq!(body("sglang", &["--allow-regex", "a+"])["regex"], "a+");
    let server = OpenAiServer::start(Manner::Well("somebody"));
    let (_, errors, _) = run(&server, &["-p", "Once", "--top-k", "5"]);
    assert!(errors.contains("note: top_k sent under vLLM's name"), "{errors}");
}

#[test]
fn flags_that_llama_cpp_lacks_are_refused_by_name() {
    let server = OpenAiServer::start(Manner::Well("llamacpp"));
    for flags in [["--repetition-penalty", "1.1"], ["--allow-regex", "a+"]] {
        let (_, errors, code) = run(&server, &[&["-p", "Once"], &flags[..]].concat());
        assert_eq!(code, 2, "{errors}");
        assert!(errors.contains(flags[0]) && errors.contains("llama.cpp"), "{errors}");
    }
    assert!(server.questions().is_empty());
}

#[test]
fn flags_that_no_protocol_supports_are_refused_by_name() {
    let server = OpenAiServer::start(Manner::Well("vllm"));
    for flags in [
        &["--dtype", "bf16"][..],
        &["--no-cache"],
        &["--cache", "static"],
        &["--loop", "day10"],
        &["--draft-ngram", "2"],
        &["--block", "dog"],
        &["--no-repeat-ngram", "3"],
        &["--penalty-window", "9", "--presence-penalty", "1"],
        &["--num-beams", "2"],
        &["--rng", "chacha", "--temperature", "1"],
        &["--offline"],
    ] {
        let (_, errors, code) = run(&server, &[&["-p", "Once"], flags].concat());
        assert_eq!(code, 2, "{errors}");
        assert!(errors.contains("cannot be used with") && errors.contains(flags[0]), "{errors}");
    }
    assert!(server.questions().is_empty());
}

/// The name is an instruct model's, whose prompts have a template if it runs here.
#[test]
fn template_variables_are_refused_without_a_chat() {
    let server = OpenAiServer::start(Manner::NoList);
    let flags = ["-p", "Once", "--model", "x-instruct", "--template-set", "enable_thinking=false"];
    let (_, errors, code) = run(&server, &flags);
    assert_eq!(code, 2, "{errors}");
    assert!(errors.contains("--template-set: --endpoint sends prompts as they are"), "{errors}");
    assert!(server.questions().is_empty());
}

#[test]
fn ids_and_log_probabilities_are_read_if_the_server_sends_them() {
    let server = OpenAiServer::start(Manner::WithTokens);
    let (out, errors, code) = run(&server, &["-p", "There was", "--format", "json"]);
    assert_eq!(code, 0, "{errors}");
    let line: Value = serde_json::from_str(&out).unwrap();
    assert_eq!(line["new_ids"], json!([5, 9]));
    assert_eq!(line["tokens"], json!([" a", " dog."]));
    assert_eq!(line["logprobs"], json!([-0.5, -0.5]));
    assert_eq!((&line["text"], &line["finish_reason"]), (&json!(" a dog."), &json!("stop")));
}

#[test]
fn prompt_ids_are_sent_as_the_prompt() {
    let server = OpenAiServer::start(Manner::Well("vllm"));
    let (out, _, code) = run(&server, &["--prompt-ids", "5,9,77"]);
    assert_eq!((out.as_str(), code), (" a dog.\n", 0));
    let sent: Value = serde_json::from_str(&server.questions()[0].body).unwrap();
    assert_eq!(sent["prompt"], json!([5, 9, 77]));
}

#[test]
fn a_chat_sends_the_whole_conversation() {
    let server = OpenAiServer::start(Manner::Well("vllm"));
    let flags = ["--chat", "--system", "Be brief.", "--template-set", "enable_thinking=false"];
    let (out, errors, code) = talk(&server, &flags, "Hello\n/foo\nAnd you?\n/reset\nBye\n");
    assert_eq!((out.as_str(), code), (" a dog.\n a dog.\n a dog.\n", 0), "{errors}");
    assert!(errors.contains("no command \"/foo\""), "{errors}");
    let questions = server.questions();
    assert_eq!(questions[0].path, "/v1/chat/completions");
    let sent = |i: usize| serde_json::from_str::<Value>(&questions[i].body).unwrap();
    let message = |role: &str, text: &str| json!({"role": role, "content": text});
    assert_eq!(sent(0)["chat_template_kwargs"], json!({"enable_thinking": false}));
    let second = [
        message("system", "Be brief."),
        message("user", "Hello"),
        message("assistant", " a dog."),
        message("user", "And you?"),
    ];
    assert_eq!(sent(1)["messages"], json!(second));
    assert_eq!(sent(2)["messages"].as_array().unwrap().len(), 2);
}

#[test]
fn the_key_comes_from_the_flag_or_the_environment() {
    let server = OpenAiServer::start(Manner::Key);
    let (_, errors, code) = run(&server, &["-p", "Once"]);
    assert_eq!(code, 1);
    assert!(errors.contains("asks for a key") && errors.contains("OPENAI_API_KEY"), "{errors}");
    let (_, errors, code) = run(&server, &["-p", "Once", "--api-key", "wrong"]);
    assert_eq!(code, 1);
    assert!(errors.contains("refuses the key"), "{errors}");
    assert!(!errors.contains("wrong"), "the key was printed: {errors}");
    assert_eq!(run(&server, &["-p", "Once", "--api-key", "right"]).2, 0);
    let mut command = Command::new(env!("CARGO_BIN_EXE_candecode"));
    command.args(["--endpoint", &server.address, "-p", "Once"]).env("OPENAI_API_KEY", "right");
    assert!(command.output().unwrap().status.success());
}

#[test]
fn a_server_with_several_models_requires_a_model_name() {
    let server = OpenAiServer::start(Manner::TwoModels);
    let (_, errors, code) = run(&server, &["-p", "Once"]);
    assert_eq!(code, 2);
    assert!(errors.contains("choose one with --model: small, large"), "{errors}");
    let (_, _, code) = run(&server, &["-p", "Once", "--model", "large"]);
    assert_eq!(code, 0);
    assert!(server.questions()[0].body.contains(r#""model":"large""#));
    let (_, errors, code) = run(&server, &["-p", "Once", "--model", "huge"]);
    assert_eq!(code, 1);
    assert!(errors.contains("no model \"huge\"; it has small, large"), "{errors}");
    let (out, _, code) = run(&server, &["--models"]);
    assert_eq!((out.as_str(), code), ("small\nlarge\n", 0));
}

#[test]
fn a_server_without_a_model_list_requires_a_model_name() {
    let server = OpenAiServer::start(Manner::NoList);
    let (_, errors, code) = run(&server, &["-p", "Once"]);
    assert_eq!(code, 2, "{errors}");
    assert_eq!(run(&server, &["-p", "Once", "--model", "small"]).2, 0);
}

#[test]
fn an_endpoint_address_may_end_in_v1() {
    let mut server = OpenAiServer::start(Manner::Well("vllm"));
    server.address += "/v1/";
    assert_eq!(run(&server, &["-p", "Once"]).2, 0);
    assert_eq!(server.questions()[0].path, "/v1/completions");
}

#[test]
fn text_received_before_a_stream_breaks_is_kept() {
    for (manner, words) in [
        (Manner::Breaks, "the stream was cut off after 1 event"),
        (Manner::EndsEarly, "the stream ended early, after "),
        (Manner::ErrorInside, "the engine has died"),
    ] {
        let server = OpenAiServer::start(manner);
        let (out, errors, code) = run(&server, &["-p", "There was"]);
        assert_eq!((out.as_str(), code), ("There was a\n", 1), "{errors}");
        assert!(errors.contains(words), "{errors}");
    }
}

#[test]
#[cfg(unix)]
fn control_c_interrupts_a_wait_for_a_silent_server() {
    for (flags, words, code) in [(&["-p", "Once"][..], "", 130), (&["--chat"], "[stopped]\n", 0)] {
        let server = OpenAiServer::start(Manner::Silent);
        let mut command = Command::new(env!("CARGO_BIN_EXE_candecode"));
        command.args(["--endpoint", &server.address]).args(flags).env_remove("OPENAI_API_KEY");
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        child.stdin.take().unwrap().write_all(b"Hello\n").unwrap();
        while server.questions().is_empty() {
            assert_eq!(child.try_wait().unwrap(), None, "{flags:?}");
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
        let id = child.id().to_string();
        assert!(Command::new("kill").args(["-INT", &id]).status().unwrap().success());
        let out = child.wait_with_output().unwrap();
        let said = String::from_utf8(out.stderr).unwrap();
        assert!(said.ends_with(words) && !said.contains("error"), "{flags:?}: {said}");
        assert_eq!(out.status.code(), Some(code), "{flags:?}: {said}");
    }
}

#[test]
fn a_refusal_quotes_the_servers_message() {
    for (manner, words) in [
        (
            Manner::Status(400, "", r#"{"error":{"message":"max_tokens is too large"}}"#),
            "refuses the request (400: max_tokens is too large)",
        ),
        (Manner::Status(422, "", r#"{"detail":"no such field"}"#), "(422: no such field)"),
        (Manner::Status(500, "", "oh no"), "the server failed (500: oh no)"),
        (
            Manner::Status(
                429,
                "retry-after: 2\r\n",
                r#"{"error":{"message":"the queue is full"}}"#,
            ),
            "busy (429: the queue is full); it asks to wait 2 s",
        ),
    ] {
        let server = OpenAiServer::start(manner);
        let (_, errors, code) = run(&server, &["-p", "Once"]);
        assert_eq!(code, 1);
        assert!(errors.contains(words), "{errors}");
    }
}

#[test]
fn a_chat_continues_after_the_server_refuses_a_request() {
    let manner = Manner::Status(400, "", r#"{"error":{"message":"too long"}}"#);
    let server = OpenAiServer::start(manner);
    let (_, errors, code) = talk(&server, &["--chat"], "Hello\nAgain\n");
    assert_eq!((errors.matches("too long").count(), code), (2, 1), "{errors}");
}

/// `ulimit -v` limits the address space, in KiB, so a client that buffers everything fails.
#[test]
#[cfg(unix)]
fn an_endless_stream_is_cut_off() {
    let text =
        r#"data: {"choices":[{"index":0,"text":"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"}]}"#;
    let streams = [
        (format!("{text}\n\n"), "the server keeps sending: "),
        ("data: aaaaaaaaaaaaaaaaaaaaaaaaaaaa\n".to_string(), "an event that is not JSON"),
        ("aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa".to_string(), "an event is longer than 4 MiB"),
        (": keep-alive\n".to_string(), "the stream is longer than any answer to this request"),
        ("\n".to_string(), "the stream is longer than any answer to this request"),
        ("data: {}\n\n".to_string(), "the stream is longer than any answer to this request"),
        (
            "data: {\"choices\":[{\"index\":0,\"text\":\"\"}]}\n\n".to_string(),
            "the stream is longer than any answer to this request",
        ),
    ];
    for (events, words) in streams {
        let events: &'static str = events.leak();
        for flags in [&["-p", "Once"][..], &["-p", "Once", "--format", "json"], &["--chat"]] {
            let server = OpenAiServer::start(Manner::Endless(events));
            let mut command = Command::new("sh");
            let line = r#"ulimit -v 2000000; printf 'Once\n' | exec "$C" --endpoint "$A" "$@""#;
            command.args(["-c", line, "sh", "--max-new-tokens", "16"]).args(flags);
            command.env("C", env!("CARGO_BIN_EXE_candecode")).env("A", &server.address);
            let out = command.env_remove("OPENAI_API_KEY").output().unwrap();
            let said = String::from_utf8_lossy(&out.stderr).into_owned();
            assert!(said.contains(words), "{events:?} {flags:?}: {said}");
            assert_eq!(out.status.code(), Some(1), "{events:?} {flags:?}: {said}");
        }
    }
}

/// Model names and error messages from a server are escaped, so that they can't send control
/// sequences to the terminal, and long ones are cut.
#[test]
fn text_from_a_server_is_escaped_and_truncated() {
    let long: &'static str =
        format!(r#"{{"error":{{"message":"{}"}}}}"#, "long ".repeat(100_000)).leak();
    let evil = r#"{"error":{"message":"a\u001b]0;title\u0007b\u009b2J\u202ec"}}"#;
    for manner in [
        Manner::Status(400, "", evil),
        Manner::Status(400, "", "\x1b[2J\x1b]0;title\x07 plain"),
        Manner::Status(500, "", long),
        Manner::Status(401, "", long),
        Manner::Status(429, "retry-after: 1\r\n", evil),
        Manner::Endless("data: {\"error\":{\"message\":\"\\u001b[2Jdead\"}}\n\n"),
        Manner::Endless("data: no \x1b[2J json\n\n"),
        Manner::Named(r"\u001b[2J\u0007small"),
    ] {
        for flags in [&["-p", "Once"][..], &["--models"], &["--model", "x", "-p", "Once"]] {
            let server = OpenAiServer::start(manner);
            let (out, said, _) = run(&server, flags);
            let shown = format!("{out}{said}");
            let control = |c: char| c.is_control() && c != '\n';
            assert!(
                !shown.contains(control) && !shown.contains('\u{202e}'),
                "{flags:?}: {shown:?}"
            );
            assert!(shown.len() < 1000, "{flags:?}: {} bytes", shown.len());
        }
    }
}

#[test]
fn an_api_key_not_allowed_in_a_header_is_refused() {
    let server = OpenAiServer::start(Manner::Key);
    for key in ["a\r\nX: y", "a\n", "é", "a b", "a\tb", "\u{7f}"] {
        let (_, said, code) = run(&server, &["-p", "Once", "--api-key", key]);
        assert!(said.starts_with("error: --api-key: an API key can't contain"), "{key:?}: {said}");
        assert_eq!(code, 2, "{key:?}");
        let mut command = Command::new(env!("CARGO_BIN_EXE_candecode"));
        command.args(["--endpoint", &server.address, "-p", "Once"]).env("OPENAI_API_KEY", key);
        let said = String::from_utf8(command.output().unwrap().stderr).unwrap();
        assert!(said.starts_with("error: OPENAI_API_KEY: an API key can't"), "{key:?}: {said}");
    }
    assert_eq!(run(&server, &["-p", "Once", "--api-key", "right"]).2, 0);
}
