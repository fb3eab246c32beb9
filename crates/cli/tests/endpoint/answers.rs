//! Servers' answers, byte for byte, and what the user sees of them.

use crate::{run, talk};
use candecode_remote::test_servers::hub::{story, Hub, Large};
use candecode_remote::test_servers::loopback::Loopback;
use candecode_remote::test_servers::openai::{
    broken_stream_of, event, json, response, stream_of, OpenAi, DONE,
};
use serde_json::Value;

/// Returns what a server sends: a response of this kind with this body, as `answers.txt` writes it.
fn answer(kind: &str, body: &str) -> Vec<u8> {
    let (ab, c) = (event("ab", "null"), event("c", "\"stop\""));
    let body = body.replace("{ab}", &ab).replace("{c}", &c).replace("{done}", DONE);
    let body = body.replace("{long}", &"long ".repeat(100_000)).replace('¶', "\n");
    let body = body.replace('␍', "\r");
    let mut bytes = Vec::new();
    for (at, part) in body.split('⟨').enumerate() {
        let (byte, part) = if at > 0 { part.split_once('⟩').unwrap() } else { ("", part) };
        bytes.extend(u8::from_str_radix(byte, 16).ok());
        bytes.extend(part.as_bytes());
    }
    match kind {
        "stream" => stream_of(bytes),
        "cut" => broken_stream_of(&body),
        "json" => json(&body),
        kind => {
            let (status, header) = kind.split_once(' ').unwrap_or((kind, "x: y"));
            let head = format!("HTTP/1.1 {status} No\r\n{header}\r\nconnection: close\r\n\r\n");
            [head.into_bytes(), bytes].concat()
        }
    }
}

/// Each answer looks the same as text, as JSON and in a chat. A chat continues after an error, and
/// forgets what was said.
#[test]
fn answers_are_shown_whole_or_end_in_an_error() {
    let rows = include_str!("answers.txt").lines();
    for row in rows.filter(|row| row.contains('|')) {
        let [shows, code, says, kind, body] =
            row.splitn(5, '|').map(str::trim).collect::<Vec<_>>()[..]
        else {
            panic!("not a row: {row}")
        };
        let (code, server) =
            (code.parse::<i32>().unwrap(), OpenAi::sends(answer(kind, body)).start());
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
        assert!(errors.matches("finish_reason").count() <= 1, "{row}\n{errors}");
    }
}

#[test]
fn every_requested_text_has_to_come() {
    let flags = ["-p", "P", "--num-return-sequences", "2", "--temperature", "1"];
    let two = event("a", "null") + &event("b", "\"stop\"").replace("index\":0", "index\":1");
    for (events, shows, says) in [
        (event("a", "\"stop\"") + DONE, "Pa\n", "1 of the 2 texts"),
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
