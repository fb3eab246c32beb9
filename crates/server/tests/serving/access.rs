//! Tests of access control: which clients get an answer, and where the server listens.

use crate::running_server::{read_some, Server};
use serde_json::Value;
use std::io::Write as _;

/// Sends a raw request and returns the head of the response, in lowercase.
fn head(server: &Server, method: &str, path: &str, headers: &str) -> String {
    let mut stream = server.connect();
    write!(stream, "{method} {path} HTTP/1.1\r\nconnection: close\r\n{headers}\r\n").unwrap();
    let answer = read_some(&mut stream, usize::MAX);
    answer.split("\r\n\r\n").next().unwrap().to_lowercase()
}

#[test]
fn a_key_is_asked_for_in_any_case() {
    let server = Server::start(&["--api-key", "sesame"]);
    let shown = |value: &str| {
        let headers = format!("host: any.example\r\nauthorization: {value}\r\n");
        head(&server, "GET", "/v1/models", &headers)
    };
    for value in ["Bearer sesame", "bearer sesame", "BEARER  sesame"] {
        assert!(shown(value).starts_with("http/1.1 200"), "{value}");
    }
    for value in [
        "",
        "sesame",
        "Bearer",
        "Bearer ",
        "Bearer sesam",
        "Bearer sesamee",
        "Bearer Sesame",
        "Bearersesame",
        "Basic sesame",
    ] {
        assert!(shown(value).starts_with("http/1.1 401"), "{value}");
    }
    assert_eq!(server.get("/health").0, 200);
}

#[test]
fn only_clients_of_this_machine_are_answered_without_a_key() {
    let server = Server::start(&[]);
    let own = format!("host: {}\r\n", server.host);
    for headers in [
        "host: localhost\r\n",
        "host: LOCALHOST:99\r\n",
        "host: 127.0.0.1\r\n",
        "host: [::1]:8000\r\n",
        "host: localhost\r\norigin: http://localhost:3000\r\n",
        &own,
    ] {
        let answer = head(&server, "GET", "/health", headers);
        assert!(answer.starts_with("http/1.1 200"), "{headers}");
    }
    for headers in [
        "host: evil.example\r\n",
        "host: localhost.evil.example\r\n",
        "host: 127.0.0.1.evil.example:80\r\n",
        "host: localhost\r\nhost: evil.example\r\n",
        "host: localhost\r\norigin: http://evil.example\r\n",
        "host: localhost\r\norigin: null\r\n",
        "host: \r\n",
    ] {
        let answer = head(&server, "GET", "/health", headers);
        assert!(answer.starts_with("http/1.1 403"), "{headers}");
    }
}

#[test]
fn pages_of_allowed_origins_may_ask() {
    let page = "http://app.example:3000";
    let origins = format!("{page},HTTPS://B.example:443,null");
    let server = Server::start(&["--allowed-origins", &origins, "--api-key", "k"]);
    let ask = |server: &Server, method: &str, origin: &str| {
        let headers = format!(
            "host: localhost\r\norigin: {origin}\r\naccess-control-request-method: POST\r\n\
             access-control-request-headers: authorization,content-type,x-stainless-os\r\n"
        );
        head(server, method, "/v1/models", &headers)
    };
    let asked = ask(&server, "OPTIONS", page);
    for part in [
        "http/1.1 200",
        &format!("access-control-allow-origin: {page}"),
        "access-control-allow-methods: get,post",
        "access-control-allow-headers: authorization,content-type,x-stainless-os",
        "vary: origin",
    ] {
        assert!(asked.contains(part), "{part}: {asked}");
    }
    // Chromium asks whether a page from the internet may talk to this machine.
    let private = |origin: &str| {
        let headers = format!(
            "host: localhost\r\norigin: {origin}\r\naccess-control-request-method: POST\r\n\
             access-control-request-private-network: true\r\n"
        );
        head(&server, "OPTIONS", "/v1/models", &headers)
            .contains("access-control-allow-private-network: true")
    };
    assert!(private(page) && private("null") && private("https://b.example"));
    assert!(!private("http://evil.example"));
    // Without the key, the page is allowed to read the error.
    let answer = ask(&server, "GET", page);
    assert!(answer.contains("http/1.1 401"), "{answer}");
    assert!(answer.contains(&format!("access-control-allow-origin: {page}")), "{answer}");
    let stranger = ask(&server, "OPTIONS", "http://evil.example");
    assert!(!stranger.contains("access-control-allow-origin"), "{stranger}");

    let from_file = ask(&Server::start(&["--allowed-origins", "null"]), "GET", "null");
    assert!(from_file.contains("access-control-allow-origin: null"), "{from_file}");
    let any = "https://anything.example";
    for (flags, status, allowed) in
        [(&["--allowed-origins", "*"][..], "200", true), (&[], "403", false)]
    {
        let answer = ask(&Server::start(flags), "GET", any);
        assert!(answer.contains(&format!("http/1.1 {status}")), "{answer}");
        assert_eq!(answer.contains("access-control-allow-origin"), allowed, "{answer}");
    }
}

#[test]
fn every_answer_has_a_request_id() {
    let server = Server::start(&[]);
    let id = |path: &str, given: &str| {
        let answer = head(&server, "GET", path, &format!("host: localhost\r\n{given}\r\n"));
        let line = answer.lines().find_map(|line| line.strip_prefix("x-request-id: "));
        line.unwrap().to_string()
    };
    assert_eq!(id("/v1/models", "x-request-id: mine-7\r\n"), "mine-7");
    assert_eq!(id("/nowhere", "x-request-id: mine-8\r\n"), "mine-8");
    let long = format!("x-request-id: {}\r\n", "x".repeat(200));
    let (one, other) = (id("/health", ""), id("/health", &long));
    assert!(one.starts_with("req_") && other.starts_with("req_") && one != other, "{one} {other}");
}

#[test]
fn the_model_is_listed_and_found_by_its_name() {
    let server = Server::start(&["--served-model-name", "me/story 3:m é"]);
    let list: Value = serde_json::from_str(&server.get("/v1/models").1).unwrap();
    assert_eq!(
        (&list["object"], &list["data"][0]["id"]),
        (&"list".into(), &"me/story 3:m é".into())
    );
    assert_eq!(list["data"][0]["owned_by"], "candecode");
    for name in
        ["me%2Fstory%203:m%20%C3%A9", "me/story%203%3Am%20%c3%a9", "me/story%203:m%20%C3%A9/"]
    {
        assert_eq!(server.get(&format!("/v1/models/{name}")).0, 200, "{name}");
    }
    for (name, status) in [("a".repeat(5000), 404), ("%ff".into(), 400), (String::new(), 200)] {
        let (got, text) = server.get(&format!("/v1/models/{name}"));
        assert!(got == status && text.len() < 400, "{got} {text}");
        let json: Value = serde_json::from_str(&text).unwrap();
        assert!(got == 200 || json["error"]["message"].is_string(), "{text}");
    }
}

#[test]
fn flags_that_make_no_sense_are_refused() {
    let refused = |flags: &[&str], code: i32, words: &str| {
        let output = Server::command(flags).output().unwrap();
        let told = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(code), "{flags:?}: {told}");
        assert!(told.starts_with("error: ") && told.contains(words), "{flags:?}: {told}");
    };
    for flag in [
        "--max-num-seqs",
        "--max-num-batched-tokens",
        "--max-queue",
        "--max-connections",
        "--max-batch-tokens",
        "--num-gpu-blocks-override",
        "--patience",
    ] {
        refused(&[flag, "2305843009213693952"], 2, flag);
        if flag != "--max-queue" {
            refused(&[flag, "0"], 2, flag);
        }
    }
    for size in ["0", "3", "48", "128"] {
        refused(&["--block-size", size], 2, "a block holds 1, 2, 4, 8, 16, 32 or 64 positions");
    }
    let most = "4294967296";
    refused(&["--num-gpu-blocks-override", most], 1, "positions of keys and values need");
    for key in ["", "pässword", "two words", "line\nend"] {
        refused(&["--api-key", key], 2, "--api-key");
    }
    for origin in ["app.example", "http://app.example/", "http://app.example/page", ""] {
        refused(&["--allowed-origins", origin], 2, "--allowed-origins");
    }
    refused(&["--host", "0.0.0.0"], 2, "give them a key with --api-key");
    refused(&["--host", "no-such-host.invalid"], 2, "--host");
    assert_eq!(Server::start(&["--host", "localhost"]).get("/health/").0, 200);
    refused(&["--dtype", "f8"], 2, "unknown dtype");
    let first = Server::start(&[]);
    let port = first.host.split(':').nth(1).unwrap();
    refused(&["--port", port], 1, &format!("cannot listen at 127.0.0.1:{port}"));
}
