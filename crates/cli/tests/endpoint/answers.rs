//! Servers' answers, byte for byte, and what the user sees of them.

use crate::{run, talk};
use candecode_remote::test_servers::hub::{story, Hub, Large};
use candecode_remote::test_servers::loopback::Loopback;
use candecode_remote::test_servers::openai::{
    broken_stream_of, event, json, response, stream_of, OpenAi, DONE,
};
use serde_json::Value;

/// An answer to a request for text, the text that the user sees of it, the exit code, and words of
/// the message.
struct Row(Vec<u8>, &'static str, i32, &'static str);

/// The rows for streams that aren't written with `event`.
fn stream(events: impl AsRef<[u8]>, shows: &'static str, code: i32, says: &'static str) -> Row {
    Row(stream_of(events), shows, code, says)
}

/// An event with this choice, and the end of the stream.
fn choice(json: &str) -> String {
    format!("data: {{\"choices\":[{json}]}}\n\n{DONE}")
}

fn status(status: &str, headers: &str, body: &str, says: &'static str) -> Row {
    Row(response(status, headers, body), "", 1, says)
}

fn rows() -> Vec<Row> {
    let (ab, c) = (event("ab", "null"), event("c", "\"stop\""));
    let abc = ab.clone() + &c;
    let good = |events: &str| stream(events, "abc", 0, "");
    let breaks = |events: &str, says| stream(ab.clone() + events, "ab", 1, says);
    vec![
        // Streams of all forms that WHATWG's rules allow.
        good(&(abc.clone() + DONE)),
        good(&("\u{feff}".to_string() + &abc + DONE)),
        good(&(abc.clone() + DONE).replace('\n', "\r")),
        good(&(abc.clone() + DONE).replace('\n', "\r\n")),
        good(&(abc.clone() + DONE).replace("data: ", "data:")),
        good(&(abc.clone() + DONE).replace("\"choices\"", "\ndata: \"choices\"")),
        good(&(format!("data:\n\n: a comment\n\nevent: ping\ndata: \n\n{ab}id: 5\nretry: 9\n{c}"))),
        // Without [DONE], without a finish reason, without the last line break.
        good(&abc),
        good(&(ab.clone() + &event("c", "null") + DONE)),
        good(&(ab.clone() + c.trim_end())),
        good(&(abc.clone() + DONE.trim_end())),
        // Text that isn't UTF-8, and half a character in each of two events.
        stream(
            b"data: {\"choices\":[{\"text\":\"\xe9\",\"finish_reason\":\"stop\"}]}\n\n",
            "\u{fffd}",
            0,
            "",
        ),
        stream(
            event(r"a\ud83d", "null") + &event(r"\ude00b", "\"stop\""),
            "a\u{fffd}\u{fffd}b",
            0,
            "",
        ),
        stream(event(r"\ud83d\ude00", "\"stop\""), "😀", 0, ""),
        // Text in other places.
        good(&choice(
            r#"{"delta":{"content":[{"type":"text","text":"ab"},{"type":"text","text":"c"}]}}"#,
        )),
        good(&choice(
            r#"{"delta":{"content":[{"type":"thinking","thinking":[{"type":"text","text":"?"}]},"abc"]}}"#,
        )),
        good(&choice(r#"{"message":{"role":"assistant","content":"abc"}}"#)),
        good(&choice(
            r#"{"delta":{"content":"abc"},"message":{"content":"the text so far: abc"}}"#,
        )),
        good(&choice(r#"{"delta":{"content":null,"refusal":"abc"}}"#)),
        // The whole answer in place of a stream.
        Row(json(r#"{"choices":[{"text":"abc","finish_reason":"stop"}]}"#), "abc", 0, ""),
        Row(json("{\r\n\"choices\": [\n\n{\"message\": {\"content\": \"abc\"}}]}"), "abc", 0, ""),
        Row(json(r#"{"choices":[{"text":"abc"#), "", 1, "not JSON"),
        // Errors in a good status: in place of a stream, in an event, in llama.cpp's field.
        Row(json(r#"{"error":{"message":"no capacity","code":503}}"#), "", 1, "no capacity"),
        Row(json(r#"[{"error":{"message":"no capacity"}}]"#), "", 1, "no capacity"),
        breaks("data: {\"error\":{\"message\":\"the engine died\"}}\n\n", "the engine died"),
        breaks("data: {\"error\":\"the engine died\"}\n\ndata: [DONE]\n\n", "the engine died"),
        breaks("data: {\"error\":{\"code\":500,\"type\":\"server_error\"}}\n\n", "server_error"),
        breaks(
            "data: {\"object\":\"error\",\"message\":\"the engine died\"}\n\n",
            "the engine died",
        ),
        breaks(
            "error: {\"code\":400,\"message\":\"it does not fit\"}\n\ndata: [DONE]\n\n",
            "it does not fit",
        ),
        breaks("error: it does not fit\n\ndata: [DONE]\n\n", "it does not fit"),
        breaks("event: error\ndata: it does not fit\n\ndata: [DONE]\n\n", "it does not fit"),
        breaks(
            &choice(
                r#"{"text":"c","finish_reason":"error","error":{"message":"the engine died"}}"#,
            ),
            "the engine died",
        ),
        // A field `error` that is empty isn't one.
        good(&abc.replace("\"choices\"", "\"error\":\"\",\"message\":\"hi\",\"choices\"")),
        good(&abc.replace("\"choices\"", "\"error\":null,\"detail\":\"hi\",\"choices\"")),
        // Texts that the server breaks off, in its own words.
        stream(ab.clone() + &event("c", "\"error\"") + DONE, "abc", 1, "\"error\""),
        stream(ab.clone() + &event("c", "\"abort\"") + DONE, "abc", 1, "\"abort\""),
        stream(ab.clone() + &event("c", r#"{"type":"abort"}"#) + DONE, "abc", 1, "\"abort\""),
        stream(ab.clone() + &event("c", "\"content_filter\"") + DONE, "abc", 0, "content_filter"),
        stream(ab.clone() + &event("c", "\"eos\"") + DONE, "abc", 0, ""),
        // Streams that end too early.
        breaks("", "the stream ended early, after 1 event"),
        breaks(&event("", "\"\""), "the stream ended early"),
        breaks(&event("", "\"null\""), "the stream ended early"),
        breaks(&c[..c.len() / 2], "the stream ended early"),
        Row(broken_stream_of(&ab), "ab", 1, "the stream was cut off after 1 event"),
        stream("", "", 1, "the stream ended early"),
        // Answers that aren't one.
        stream(DONE, "", 1, "without text"),
        stream("data: {\"response\":\"abc\"}\n\n".to_string() + DONE, "", 1, "without text"),
        stream(event("a", "null").replace(":0", ":1"), "", 1, "index 1"),
        breaks("data: no \x1b[2J json\n\n", "not JSON"),
        stream("<html>The router's settings</html>", "", 1, "The router's settings"),
        // Refusals.
        status("400 No", "", r#"{"error":{"message":"it is too long"}}"#, "(400: it is too long)"),
        status("422 No", "", r#"{"detail":"no such field"}"#, "(422: no such field)"),
        status("400 No", "", r#"[{"error":{"message":"it is too long"}}]"#, "it is too long"),
        status("404 No", "", r#"{"detail":"Not Found"}"#, "(404: Not Found)"),
        status("500 No", "", "oh no", "(500: oh no)"),
        status("500 No", "", &"long ".repeat(100_000), "(500: long long"),
        status(
            "400 No",
            "",
            r#"{"error":{"message":"a\u001b]0;t\u0007b\u009b2J\u202ec"}}"#,
            "(400: a",
        ),
        status("400 No", "", "\x1b[2J\x1b]0;title\x07 plain", "plain"),
        breaks("data: {\"error\":{\"message\":\"\\u001b[2Jdead\"}}\n\n", "dead"),
        // A busy server's wait is obeyed up to a minute, five times.
        status(
            "429 No",
            "retry-after: 0\r\n",
            r#"{"error":"the queue is full"}"#,
            "(429: the queue is full)",
        ),
        status("503 No", "retry-after: 90\r\n", "", "asks to wait 90 s"),
        status(
            "429 No",
            "retry-after: Wed, 21 Oct 2099 07:28:00 GMT\r\n",
            "",
            "wait until Wed, 21 Oct 2099",
        ),
        status("429 No", "retry-after: soon\r\n", "no", "(429: no)\n"),
    ]
}

/// Each answer looks the same as text, as JSON and in a chat. A chat continues after an error, and
/// forgets what was said.
#[test]
fn answers_are_shown_whole_or_end_in_an_error() {
    for Row(sends, shows, code, says) in rows() {
        let row = String::from_utf8_lossy(&sends);
        let row: String = row.chars().skip_while(|c| *c != '\n').take(400).collect();
        let server = OpenAi::sends(sends.clone()).start();
        let check = |seen: (String, String, i32), want: &str| {
            assert_eq!((seen.0.as_str(), seen.2), (want, code), "{row}\n{}", seen.1);
            assert!(seen.1.contains(says), "expected {says:?} in {:?}: {row}", seen.1);
            assert_eq!(seen.1.contains("error: "), code != 0, "{row}\n{}", seen.1);
            let odd = |c: char| (c.is_control() && c != '\n') || c == '\u{202e}';
            assert!(!seen.1.contains(odd) && seen.1.len() < 2000, "{row}\n{}", seen.1);
        };
        let line =
            |text: &str| if text.is_empty() { String::new() } else { text.to_string() + "\n" };
        let echo = if shows.is_empty() { "" } else { "P" };
        check(run(&server, &["-p", "P"]), &line(&format!("{echo}{shows}")));
        server.asked();
        check(talk(&server, &["--chat"], "Hi\nAgain\n"), &line(shows).repeat(2));
        let asked = server.asked();
        let last: Value = serde_json::from_str(&asked.last().unwrap().body).unwrap();
        let messages = last["messages"].as_array().unwrap().len();
        assert_eq!(messages, if code == 0 { 3 } else { 1 }, "{row}");
        let (out, errors, exit) = run(&server, &["-p", "P", "--format", "json"]);
        let texts = out.lines().map(|line| serde_json::from_str(line).unwrap());
        let texts: Vec<_> = texts.map(|json: Value| json["text"].clone()).collect();
        assert_eq!(texts, if shows.is_empty() { vec![] } else { vec![shows] }, "{row}");
        assert!(exit == code && errors.contains(says), "{row}\n{errors}");
    }
}

#[test]
fn every_requested_text_has_to_come() {
    let flags = ["-p", "P", "--num-return-sequences", "2", "--temperature", "1"];
    let two = event("a", "null") + &event("b", "\"stop\"").replace("index\":0", "index\":1");
    for (events, shows, says) in [
        (event("a", "\"stop\"") + DONE, "Pa\n", "1 of 2 texts"),
        (two.clone(), "Pa\n\nPb\n", "the stream ended early"),
        (two + &event("", "\"stop\"") + DONE, "Pa\n\nPb\n", ""),
    ] {
        let (out, errors, code) = run(&OpenAi::sends(stream_of(&events)).start(), &flags);
        assert_eq!((out.as_str(), code), (shows, i32::from(!says.is_empty())), "{errors}");
        assert!(errors.contains(says), "{errors}");
    }
}

#[test]
fn a_busy_server_is_asked_again_when_it_says() {
    for wait in ["1", "Wed, 21 Oct 2015 07:28:00 GMT"] {
        let busy = response("429 No", &format!("retry-after: {wait}\r\n"), "");
        let abc = stream_of(event("abc", "\"stop\""));
        let server = OpenAi { texts: vec![busy, abc], ..OpenAi::default() }.start();
        let began = std::time::Instant::now();
        let (out, errors, code) = run(&server, &["-p", "P"]);
        assert_eq!((out.as_str(), code), ("Pabc\n", 0), "{errors}");
        assert!(errors.contains(wait), "{errors}");
        assert!(wait != "1" || began.elapsed().as_secs() >= 1);
        assert_eq!(server.lines().len(), 3);
    }
    let busy = response("503 No", "retry-after: 0\r\n", "");
    let server = OpenAi::sends(busy).start();
    assert_eq!(run(&server, &["-p", "P"]).2, 1);
    assert_eq!(server.lines().len(), 1 + 5);
}

/// Lists of models: what a server sends, the name after `--model`, and the exit code with a word of
/// the message, or the model that is asked.
#[test]
fn a_model_is_chosen_or_checked_if_the_server_lists_any() {
    let ok = |body: &str| json(body);
    let no = |status: &str| response(status, "", r#"{"detail":"no"}"#);
    let two = r#"{"data":[{"id":"small"},{"id":"large"}]}"#;
    for (lists, wanted, code, says) in [
        (ok(r#"{"data":[{"id":"small"}]}"#), "", 0, "small"),
        (ok(two), "", 2, "small, large"),
        (ok(two), "large", 0, "large"),
        (ok(two), "huge", 1, "no model \"huge\"; it has small, large"),
        (ok(r#"[{"id":"small"}]"#), "", 0, "small"),
        (ok(r#"["small"]"#), "", 0, "small"),
        (ok(r#"{"models":[{"name":"small"}]}"#), "", 0, "small"),
        (ok(r#"{"data":null}"#), "", 2, "--model"),
        (ok(r#"{"data":null}"#), "m", 0, "m"),
        (ok(r#"{"data":[]}"#), "m", 0, "m"),
        (ok("{}"), "", 1, "OpenAI's format"),
        (ok("{}"), "m", 0, "m"),
        (ok("<html>The router's settings</html>"), "", 1, "The router's settings"),
        (ok("<html>The router's settings</html>"), "m", 0, "m"),
        (no("404 No"), "", 2, "--model"),
        (no("404 No"), "m", 0, "m"),
        (no("403 No"), "", 1, "403"),
        (no("403 No"), "m", 0, "m"),
        (no("405 No"), "m", 0, "m"),
        (no("501 No"), "m", 0, "m"),
        (no("401 No"), "m", 1, "401"),
        (ok(r#"{"data":[{"id":"\u001b[2J\u0007small"}]}"#), "", 0, "\u{1b}[2J\u{7}small"),
    ] {
        let row = String::from_utf8_lossy(&lists).into_owned();
        let server = OpenAi::lists(lists).start();
        let (_, errors, exit) = run(&server, &["-p", "Once", "--model", wanted]);
        assert_eq!(exit, code, "{row}: {errors}");
        assert!(!errors.contains(|c: char| c.is_control() && c != '\n'), "{errors:?}");
        match code {
            0 => {
                let sent = server.asked().pop().unwrap().body;
                let sent: Value = serde_json::from_str(&sent).unwrap();
                assert_eq!(sent["model"], says, "{row}");
            }
            _ => assert!(errors.contains(says), "{row}: {errors}"),
        }
    }
    let (out, _, code) = run(&OpenAi::lists(json(two)).start(), &["--models"]);
    assert_eq!((out.as_str(), code), ("small\nlarge\n", 0));
    assert_eq!(run(&OpenAi::lists(no("404 No")).start(), &["--models"]).2, 1);
}

/// A server that redirects every request to this address, unless its path ends in `/`. HERE stands
/// for the server itself, and AT for the path.
fn redirecting(code: u16, location: &str) -> Loopback {
    let location = location.to_string();
    Loopback::start(move |asked, stream| {
        let (method, path) = asked.line.split_once(' ').unwrap();
        if !path.ends_with('/') {
            let here = format!("http://{}", asked.header("host").unwrap());
            let to = location.replace("HERE", &here).replace("AT", path);
            let headers = format!("location: {to}\r\n");
            return stream.write_all(&response(&format!("{code} Moved"), &headers, ""));
        }
        let key = asked.header("authorization") == Some("bearer k");
        stream.write_all(&match (key, method) {
            (false, _) => response("401 No", "", "no key came"),
            (_, "GET") => json(r#"{"data":[{"id":"small"}]}"#),
            _ if asked.body.contains("Once") => stream_of(event(" a dog.", "\"stop\"")),
            _ => response("400 No", "", "no prompt came"),
        })
    })
}

#[test]
fn a_redirect_is_followed_on_the_same_server_with_key_and_prompt() {
    let flags = ["-p", "Once", "--api-key", "k"];
    for (code, location) in
        [(301, "AT/"), (302, "HERE/elsewhere/AT/"), (307, "HEREAT/"), (308, "HEREAT/")]
    {
        let (out, errors, exit) = run(&redirecting(code, location), &flags);
        assert_eq!((out.as_str(), exit), ("Once a dog.\n", 0), "{location}: {errors}");
    }
    let other = Hub::serve(story(), Large::Here);
    for (code, location, says) in [
        (301, format!("{}/v1/", other.address), "redirects to http://127.0.0.1"),
        (302, format!("{}/v1/", other.address), "redirects to http://127.0.0.1"),
        (
            307,
            other.address.replace("127.0.0.1", "localhost") + "/",
            "redirects to http://localhost",
        ),
        (308, "https://127.0.0.1:9/v1/".into(), "redirects to https://127.0.0.1:9"),
        (307, "ftp://HERE/".into(), "invalid address"),
        (307, "HEREAT".into(), "never end"),
    ] {
        let (out, errors, exit) = run(&redirecting(code, &location), &flags);
        assert_eq!((out.as_str(), exit), ("", 1), "{location}: {errors}");
        assert!(errors.contains(says), "{location}: {errors}");
    }
    assert!(other.lines().is_empty(), "the other server was asked");
}
