//! Tests that a request gets the same answer at any load, no matter what other requests there are.

use crate::running_server::{body, Server, COMPLETIONS};
use serde_json::{json, Value};
use std::sync::Arc;

/// Number of concurrent requests: enough to fill the server, and a few more that wait.
const TOGETHER: usize = 32;

/// Prompts of various lengths, from one word to about a hundred tokens.
fn prompt(i: usize) -> String {
    let word = ["Once", "Lily", "The dog", "One day", "Tom and his ball", "It was"][i % 6];
    format!("{word}{}", " and they went to the park".repeat(i * 5 % 17))
}

/// Request `i`. Every other request is sampled, with its own seed.
fn asked(i: usize) -> Value {
    let sampled = json!({"temperature": 0.9, "top_p": 0.95, "seed": i, "max_tokens": 40 - i});
    let greedy = json!({"max_tokens": 12 + i});
    body(&prompt(i), if i.is_multiple_of(2) { &greedy } else { &sampled })
}

fn choice(server: &Server, i: usize) -> Value {
    server.answer(COMPLETIONS, &asked(i))["choices"][0].clone()
}

/// Sends all prompts in one request. On a busy machine, several requests may arrive one after the
/// other. Each text begins as that of the greedy request alone.
fn at_once(server: &Server, alone: &[Value]) {
    let prompts: Vec<String> = (0..TOGETHER).map(prompt).collect();
    let longest = 12 + TOGETHER;
    let all = body("", &json!({"prompt": prompts, "max_tokens": longest}));
    let (status, answer) = server.post("/v1/completions", &all);
    assert_eq!(status, 200, "{answer}");
    for i in (0..TOGETHER).step_by(2) {
        let text = |choice: &Value| choice["text"].as_str().unwrap().to_string();
        let (whole, begun) = (text(&answer["choices"][i]), text(&alone[i]));
        assert!(whole.starts_with(&begun), "request {i}: {whole} but {begun} alone");
    }
}

#[test]
fn requests_at_once_get_what_each_gets_alone() {
    for flags in [
        &["--max-num-seqs", "32"][..],
        &["--max-batch", "5"],
        &["--max-num-batched-tokens", "8"],
        &["--num-gpu-blocks-override", "24"],
        &["--num-gpu-blocks-override", "24", "--no-enable-prefix-caching"],
        &["--num-blocks", "100", "--block-size", "4", "--max-num-batched-tokens", "50"],
        &["--scheduler", "day15", "--max-num-seqs", "5"],
        &["--scheduler", "day15", "--max-batch-tokens", "600"],
    ] {
        let server = Arc::new(Server::start(flags));
        let alone: Vec<Value> = (0..TOGETHER).map(|i| choice(&server, i)).collect();
        let threads: Vec<_> = (0..TOGETHER)
            .map(|i| {
                let server = server.clone();
                std::thread::spawn(move || choice(&server, i))
            })
            .collect();
        for (i, thread) in threads.into_iter().enumerate() {
            assert_eq!(thread.join().unwrap(), alone[i], "request {i}, {flags:?}");
        }
        server.wait_for("num_blocks_used", 0.0);
        if flags.contains(&"24") {
            at_once(&server, &alone);
            assert!(server.metric("num_preemptions_total") > 0.0, "{flags:?}: blocks were enough");
        }
    }
}
