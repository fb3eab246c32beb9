//! Tests the client without the command: a request goes in, events come out. Run with
//! `cargo test --package candecode-remote --features test-servers`.

use candecode_kit::SamplingParams;
use candecode_remote::endpoint::{Client, Event, Prompt, Request, What};
use candecode_remote::test_servers::openai::{Manner, OpenAiServer};

/// Sends a prompt, and returns each event as a line, and the error at the end, if there is one.
fn events(manner: Manner, stop: fn() -> bool) -> (Vec<String>, Option<String>, bool) {
    let server = OpenAiServer::start(manner);
    let client = Client::new(&server.address, None).unwrap();
    let model = client.choose_model("").unwrap();
    let (params, prompt) = (SamplingParams::default(), Prompt::Text("There was".into()));
    let what = What::Completion { prompt: &prompt, n: 1, with_ids: true };
    let mut events = client.ask(&Request { server: &model, params: &params, what }, stop);
    let (mut lines, mut error) = (vec![], None);
    for event in events.by_ref() {
        match event {
            Ok(event) => lines.push(match event {
                Event::Text { at, text } => format!("text {at} {text:?}"),
                Event::Prompt { at, ids } => format!("prompt {at} {ids:?}"),
                Event::Tokens { at, ids, texts, logprobs } => {
                    format!("tokens {at} {ids:?} {texts:?} {logprobs:?}")
                }
                Event::Finish { at, reason } => format!("finish {at} {reason}"),
                Event::Usage { prompt, new } => format!("usage {prompt} {new}"),
            }),
            Err(failed) => error = Some(format!("{failed:#}")),
        }
    }
    assert!(events.next().is_none(), "nothing comes after the end");
    (lines, error, events.stopped())
}

#[test]
fn a_response_is_a_list_of_events() {
    let (lines, error, stopped) = events(Manner::WithTokens, || false);
    let want = [
        r#"tokens 0 [5] [" a"] [-0.5]"#,
        r#"text 0 " a""#,
        r#"tokens 0 [9] [" dog."] [-0.5]"#,
        "finish 0 stop",
        r#"text 0 " dog.""#,
        "usage 4 2",
    ];
    assert_eq!((lines, error, stopped), (want.map(String::from).to_vec(), None, false));
}

#[test]
fn an_error_is_the_last_event() {
    for (manner, words) in [
        (Manner::Breaks, "the stream was cut off after 1 event with text"),
        (Manner::EndsEarly, "the stream ended early, after 1 event(s) with text"),
        (Manner::ErrorInside, "the engine has died"),
        (Manner::Status(500, "", "oh no"), "the server failed (500: oh no)"),
    ] {
        let (lines, error, stopped) = events(manner, || false);
        let text = lines.iter().filter(|line| line.starts_with("text")).count();
        assert_eq!(text, usize::from(!matches!(manner, Manner::Status(..))), "{lines:?}");
        assert!(error.as_ref().is_some_and(|error| error.contains(words)), "{error:?}");
        assert!(!stopped);
    }
}

#[test]
fn a_stop_ends_the_response_without_an_error() {
    let (_, error, stopped) = events(Manner::Silent, || true);
    assert_eq!((error, stopped), (None, true));
    let endless = Manner::Endless("data: {\"choices\":[{\"index\":0,\"text\":\"a\"}]}\n\n");
    let (lines, error, stopped) = events(endless, || true);
    assert_eq!((lines.len(), error, stopped), (1, None, true));
}
