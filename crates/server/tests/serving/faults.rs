//! What clients and machines do to a server, and that the others do not notice.

use crate::running_server::{body, read_some, Server};
use serde_json::json;
use std::io::Write as _;
use std::process::Stdio;
use std::sync::Arc;
use std::time::{Duration, Instant};

const COMPLETIONS: &str = "/v1/completions";

/// What one more client gets, while something goes wrong beside it.
fn well(server: &Server) {
    let text = server.text("Once upon a time", &json!({"max_tokens": 8}));
    assert!(!text.is_empty());
}

/// A text that lasts: the model's whole context, whatever it would like to end.
fn long() -> serde_json::Value {
    body("Once", &json!({"max_tokens": 500, "ignore_eos": true, "stream": true}))
}

#[test]
fn a_client_that_vanishes_leaves_no_row() {
    let server = Server::start(&["--max-batch", "4", "--kernels", "plain"]); // not too quick
    for _ in 0..3 {
        let mut clients: Vec<_> = (0..6).map(|_| server.begin(COMPLETIONS, &long())).collect();
        read_some(&mut clients[0], 300);
        drop(clients); // four ran, two waited
        server.wait_for("num_rows_running", 0.0);
        server.wait_for("num_requests_queued", 0.0);
    }
    // One that does not stream is seen to go, too.
    let mut ask = long();
    ask["stream"] = json!(false);
    let silent = server.begin(COMPLETIONS, &ask);
    server.wait_for("num_rows_running", 1.0);
    drop(silent);
    server.wait_for("num_rows_running", 0.0);
    assert!(server.metric("requests_cancelled_total") >= 1.0);
    well(&server);
}

#[test]
fn nobody_waits_for_a_client_that_reads_slowly() {
    let server = Server::start(&["--patience", "2"]);
    let slow: Vec<_> = (0..8).map(|_| server.begin(COMPLETIONS, &long())).collect();
    let began = Instant::now();
    well(&server);
    assert!(began.elapsed() < Duration::from_secs(20));
    server.wait_for("num_rows_running", 0.0); // they are done, though nobody has read them
    drop(slow);
}

#[test]
fn a_client_that_takes_nothing_is_let_go() {
    let server = Server::start(&["--patience", "2"]);
    // More than the sockets' buffers hold.
    let large = json!({
        "max_tokens": 490, "n": 16, "temperature": 1, "logprobs": 20, "ignore_eos": true,
        "stream": true,
    });
    let silent = server.begin(COMPLETIONS, &body("Once", &large));
    server.wait_for("num_connections", 2.0);
    well(&server);
    server.wait_for("num_connections", 1.0); // the one that asks
    server.wait_for("num_rows_running", 0.0);
    drop(silent);
}

#[test]
fn a_byte_a_second_is_not_waited_for() {
    let server = Server::start(&["--patience", "2"]);
    let mut headers = server.connect();
    let mut of_body = server.connect();
    write!(
        of_body,
        "POST {COMPLETIONS} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n\
         content-length: 500\r\n\r\n{{"
    )
    .unwrap();
    let began = Instant::now();
    let drip = std::thread::spawn(move || {
        for byte in b"POST /v1/compl" {
            std::thread::sleep(Duration::from_millis(500));
            if headers.write_all(&[*byte]).and_then(|()| headers.flush()).is_err() {
                break;
            }
        }
        read_some(&mut headers, 4096)
    });
    let told = read_some(&mut of_body, 4096);
    assert!(told.starts_with("HTTP/1.1 408"), "{told}");
    assert!(told.contains("did not come in 2 seconds"), "{told}");
    drip.join().unwrap();
    assert!(began.elapsed() < Duration::from_secs(15), "{:?}", began.elapsed());
    server.wait_for("num_connections", 1.0); // the one that asks
    well(&server);
}

#[test]
fn a_hundred_megabytes_are_refused_and_not_kept() {
    let server = Server::start(&[]);
    well(&server);
    #[cfg(target_os = "linux")]
    let before = server.peak_memory();
    let size = 100 << 20;
    let part = vec![b' '; 1 << 20];
    for chunked in [false, true] {
        let mut client = server.connect();
        let length = match chunked {
            true => "transfer-encoding: chunked".to_string(),
            false => format!("content-length: {size}"),
        };
        write!(
            client,
            "POST {COMPLETIONS} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n{length}\
             \r\n\r\n"
        )
        .unwrap();
        for _ in 0..100 {
            let sent = match chunked {
                true => write!(client, "{:x}\r\n", part.len())
                    .and_then(|()| client.write_all(&part))
                    .and_then(|()| client.write_all(b"\r\n")),
                false => client.write_all(&part),
            };
            if sent.is_err() {
                break;
            }
        }
        let _ = client.write_all(b"0\r\n\r\n");
        let told = read_some(&mut client, 300);
        assert!(told.starts_with("HTTP/1.1 413"), "{told}");
    }
    #[cfg(target_os = "linux")]
    assert!(server.peak_memory() < before + (40 << 20), "{before} {}", server.peak_memory());
    well(&server);
}

#[test]
fn headers_without_end_are_refused() {
    let server = Server::start(&[]);
    let mut client = server.connect();
    let _ = write!(client, "GET /health HTTP/1.1\r\nx: ");
    for _ in 0..64 {
        if client.write_all(&[b'x'; 4096]).is_err() {
            break;
        }
    }
    let told = read_some(&mut client, 30);
    assert!(!told.starts_with("HTTP/1.1 200"), "{told}");
    well(&server);
}

#[test]
fn json_that_nests_without_end_is_refused() {
    let server = Server::start(&[]);
    let (status, _) = server.post_text(COMPLETIONS, &"[".repeat(500_000));
    assert_eq!(status, 400);
    let unknown = body("Once", &json!({"nonsense": {"a": [1, 2]}, "user": "me"}));
    assert_eq!(server.post(COMPLETIONS, &unknown).0, 200); // told on standard error, and ignored
    well(&server);
}

#[test]
fn a_template_that_fails_is_the_requests_own_affair() {
    let folder = std::env::temp_dir().join(format!("candecode-serve-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let file = folder.join("fails.jinja");
    std::fs::write(&file, "{{ raise_exception('one must begin with a greeting') }}").unwrap();
    let server = Server::start(&["--template", file.to_str().unwrap()]);
    let ask = json!({"messages": [{"role": "user", "content": "Give me a text."}]});
    let (status, answer) = server.post("/v1/chat/completions", &ask);
    assert_eq!((status, &answer["error"]["param"]), (400, &json!("messages")), "{answer}");
    let message = answer["error"]["message"].as_str().unwrap();
    assert!(message.contains("must begin with a greeting"), "{message}");
    well(&server);
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn a_queue_that_is_full_says_when_to_come_again() {
    let server =
        Arc::new(Server::start(&["--max-batch", "1", "--max-queue", "2", "--kernels", "plain"]));
    // Each has choices that wait for a place, and will for long.
    let mut many = long();
    many["n"] = json!(64);
    many["temperature"] = json!(1);
    let clients: Vec<_> = (0..2).map(|_| server.begin(COMPLETIONS, &many)).collect();
    server.wait_for("num_requests_queued", 2.0);
    let mut third = server.begin(COMPLETIONS, &long());
    let told = read_some(&mut third, 300);
    assert!(told.starts_with("HTTP/1.1 429") && told.contains("retry-after: 1"), "{told}");
    assert!(told.contains("rate_limit_exceeded"), "{told}");
    drop(clients);
    server.wait_for("num_requests_queued", 0.0);
    well(&server);
}

#[test]
fn a_thousand_idle_connections_keep_nobody_out() {
    let server = Server::start(&["--max-connections", "64", "--patience", "600"]);
    let whole = server.text("Once upon a time", &json!({}));
    let mut held = Vec::new();
    for i in 0..1000 {
        match std::net::TcpStream::connect(&server.host) {
            Ok(mut stream) => {
                if i % 2 == 0 {
                    let _ = write!(stream, "GET /health HTTP/1.1\r\n"); // and nothing more
                }
                held.push(stream);
            }
            Err(_) => break, // this machine has no more
        }
    }
    // What has been idle for a moment makes room for a new client.
    std::thread::sleep(Duration::from_millis(500));
    assert_eq!(server.get("/health").0, 200);
    assert_eq!(server.text("Once upon a time", &json!({})), whole);
    drop(held);
}

#[test]
fn connections_at_work_are_not_closed_for_others() {
    let server =
        Server::start(&["--max-connections", "4", "--patience", "3", "--kernels", "plain"]);
    let whole = server.text("Once", &json!({"max_tokens": 500, "ignore_eos": true}));
    // Eight texts each: none of the four is done before the fifth has come.
    let many = body(
        "Once",
        &json!({"max_tokens": 500, "n": 8, "temperature": 1, "ignore_eos": true, "stream": true}),
    );
    // The connection of the text before may still be closing, and have a place.
    let begin = |_| loop {
        let mut stream = server.begin(COMPLETIONS, &many);
        let told = read_some(&mut stream, 100);
        if told.starts_with("HTTP/1.1 200") {
            return stream;
        }
        assert!(told.starts_with("HTTP/1.1 503"), "{told}");
    };
    let running: Vec<_> = (0..4).map(begin).collect();
    let mut fifth = server.connect();
    let told = read_some(&mut fifth, 400);
    assert!(told.starts_with("HTTP/1.1 503") && told.contains("too many connections"), "{told}");
    for mut stream in running {
        let text = read_some(&mut stream, usize::MAX);
        assert!(text.contains("data: [DONE]"), "{text}");
    }
    assert_eq!(server.text("Once", &json!({"max_tokens": 500, "ignore_eos": true})), whole);
}

#[test]
fn a_client_that_closes_its_writing_half_gets_its_answer() {
    let server = Server::start(&["--kernels", "plain"]);
    let whole = server.text("Once", &json!({"max_tokens": 200, "ignore_eos": true}));
    for (version, stream) in [("1.1", false), ("1.1", true), ("1.0", false)] {
        let ask = json!({"max_tokens": 200, "ignore_eos": true, "stream": stream});
        let body = body("Once", &ask).to_string();
        let mut client = server.connect();
        write!(
            client,
            "POST {COMPLETIONS} HTTP/{version}\r\nhost: localhost\r\ncontent-type: application/json\r\n\
             content-length: {}\r\n\r\n{body}",
            body.len()
        )
        .unwrap();
        client.shutdown(std::net::Shutdown::Write).unwrap();
        let answer = read_some(&mut client, usize::MAX);
        if stream {
            assert!(answer.ends_with("data: [DONE]\n\n\r\n0\r\n\r\n"), "{answer}");
            continue;
        }
        let (_, json) = answer.rsplit_once("\r\n\r\n").unwrap();
        let json: serde_json::Value =
            serde_json::from_str(json).unwrap_or_else(|_| panic!("{answer}"));
        assert_eq!(json["choices"][0]["text"], whole.as_str());
    }
}

#[test]
fn one_request_with_many_choices_leaves_places_for_others() {
    let server = Server::start(&["--max-batch", "8", "--kernels", "plain"]);
    let mut many = long();
    many["n"] = json!(128);
    many["temperature"] = json!(1);
    let mut client = server.begin(COMPLETIONS, &many);
    read_some(&mut client, 300);
    well(&server);
    assert!(server.metric("num_requests_queued") > 0.0, "the others still wait for their turn");
}

#[test]
fn what_asks_for_too_much_is_refused_before_any_work() {
    let server = Server::start(&[]);
    let whole = server.text("Once upon a time", &json!({}));
    let long_stop = json!({"stop": "q".repeat(5000)});
    let many_stops = json!({"stop": (0..100).map(|i| i.to_string()).collect::<Vec<_>>()});
    let logprobs = json!({"max_tokens": 500, "n": 128, "temperature": 1, "logprobs": 20});
    let bias: serde_json::Map<_, _> = (0..1500).map(|id| (id.to_string(), json!(1))).collect();
    for (more, param) in [
        (long_stop, "stop"),
        (many_stops, "stop"),
        (logprobs, "logprobs"),
        (json!({"bad_words": vec!["dog"; 1000]}), "bad_words"),
        (json!({"bad_words": ["x".repeat(5000)]}), "bad_words"),
        (json!({"stop_token_ids": vec![5; 1000]}), "stop_token_ids"),
        (json!({"allowed_token_ids": vec![5; 100_000]}), "allowed_token_ids"),
        (json!({ "logit_bias": bias }), "logit_bias"),
    ] {
        let (status, answer) = server.post(COMPLETIONS, &body("Once", &more));
        assert_eq!((status, answer["error"]["param"].as_str()), (400, Some(param)), "{answer}");
    }
    // Two hundred thousand stop strings, and texts that cannot fit, many at once.
    let bodies = [
        body("Once", &json!({"stop": (0..200_000).map(|_| "ab").collect::<Vec<_>>()})),
        body(&"a b".repeat(300_000), &json!({})),
        body("Once", &json!({"prompt": vec!["Once"; 100_000]})),
    ];
    let answers: Vec<u16> = std::thread::scope(|scope| {
        let ask = |i: usize| server.post(COMPLETIONS, &bodies[i % bodies.len()]).0;
        let asked: Vec<_> = (0..12).map(|i| scope.spawn(move || ask(i))).collect();
        asked.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    assert!(answers.iter().all(|status| *status == 400), "{answers:?}");
    let (_, answer) = server.post(COMPLETIONS, &bodies[1]);
    assert_eq!(answer["error"]["code"], "context_length_exceeded", "{answer}");
    let message = answer["error"]["message"].as_str().unwrap();
    assert!(message.starts_with("This model's maximum context length is 512 tokens."), "{message}");
    assert_eq!(server.text("Once upon a time", &json!({})), whole);
}

#[test]
fn only_clients_of_this_machine_are_answered_without_a_key() {
    let asked = |server: &Server, headers: &str| {
        let mut client = server.connect();
        write!(client, "GET /health HTTP/1.1\r\n{headers}connection: close\r\n\r\n").unwrap();
        let answer = read_some(&mut client, usize::MAX);
        answer.split(' ').nth(1).unwrap().parse::<u16>().unwrap()
    };
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
        assert_eq!(asked(&server, headers), 200, "{headers}");
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
        assert_eq!(asked(&server, headers), 403, "{headers}");
    }
    let guarded = Server::start(&["--api-key", "sesame"]);
    assert_eq!(asked(&guarded, "host: any.example\r\n"), 200);
}

#[test]
fn flags_out_of_range_are_refused() {
    let refused = |flags: &[&str], words: &str| {
        let output = Server::command(flags).output().unwrap();
        let told = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{flags:?}: {told}");
        assert!(told.starts_with("error: ") && told.contains(words), "{flags:?}: {told}");
    };
    for flag in
        ["--max-batch", "--max-queue", "--max-connections", "--max-batch-tokens", "--patience"]
    {
        refused(&[flag, "2305843009213693952"], flag);
        if flag != "--max-queue" {
            refused(&[flag, "0"], flag);
        }
    }
    for key in ["", "pässword", "two words", "line\nend"] {
        refused(&["--api-key", key], "--api-key");
    }
}

#[test]
fn without_a_queue_an_idle_server_still_answers() {
    let server = Server::start(&["--max-queue", "0", "--max-batch", "1", "--kernels", "plain"]);
    well(&server);
    let mut running = server.begin(COMPLETIONS, &long());
    read_some(&mut running, 300);
    assert_eq!(server.post(COMPLETIONS, &body("Once", &json!({}))).0, 429);
    drop(running);
    server.wait_for("num_rows_running", 0.0);
    well(&server);
}

/// What a server writes goes to standard output and error, which may be files on a full disk.
#[test]
#[cfg(target_os = "linux")]
fn a_full_disk_is_no_reason_to_end() {
    let full = || Stdio::from(std::fs::File::options().write(true).open("/dev/full").unwrap());
    let mut command = Server::command(&[]);
    command.stderr(full());
    let server = Server::spawn(&mut command);
    let unknown = body("Once", &json!({"nonsense": 1}));
    assert_eq!(server.post(COMPLETIONS, &unknown).0, 200);
    well(&server);
}

#[test]
#[cfg(unix)]
fn what_was_killed_starts_again_at_the_same_port() {
    let server = Server::start(&[]);
    let port = server.host.split(':').nth(1).unwrap().to_string();
    let mut client = server.begin(COMPLETIONS, &long());
    read_some(&mut client, 300);
    server.signal("KILL");
    let rest = read_some(&mut client, usize::MAX);
    assert!(!rest.contains("[DONE]"), "a stream that was cut does not look whole");
    drop(server);
    let again = Server::start(&["--port", &port]);
    assert!(again.host.ends_with(&port));
    well(&again);
}

#[test]
#[cfg(unix)]
fn ctrl_c_lets_running_rows_end() {
    let mut server = Server::start(&["--kernels", "plain"]);
    let whole = server.text("Once", &json!({"max_tokens": 500, "ignore_eos": true}));
    let mut running = server.begin(COMPLETIONS, &long());
    server.wait_for("num_rows_running", 1.0);
    server.signal("INT");
    let began = Instant::now();
    loop {
        // New ones are refused, for as long as the server is there.
        match ureq::get(server.url("/health")).call() {
            Err(ureq::Error::StatusCode(503)) => break,
            Err(_) => break, // it was quicker than we were
            Ok(_) => assert!(began.elapsed() < Duration::from_secs(10)),
        }
    }
    let text = read_some(&mut running, usize::MAX);
    assert!(text.contains("data: [DONE]"), "{text}");
    let pieces = text.lines().filter_map(|line| line.strip_prefix("data: {"));
    let pieces = pieces.map(|event| {
        let event: serde_json::Value = serde_json::from_str(&format!("{{{event}")).unwrap();
        event["choices"][0]["text"].as_str().unwrap().to_string()
    });
    assert_eq!(pieces.collect::<String>(), whole);
    assert_eq!(server.child.wait().unwrap().code(), Some(0));
}

/// Regular expressions that cost a second each, or would cost all memory. No two of them are equal.
fn hard_pattern(i: usize) -> serde_json::Value {
    let patterns = [
        r"((a{1000}){1000}){1000}",
        r"(a|b)*a(a|b){30}",
        r"\w{99999}",
        r"(a{1000}){1000}",
        r"(?:(?:(?:a?){100}){100}){100}",
        r"(?i)(\p{L}{200}){20}",
    ];
    let regex = format!("(?:{})|x{i}", patterns[i % patterns.len()]);
    body("Once", &json!({"max_tokens": 2, "structured_outputs": {"regex": regex}}))
}

#[test]
fn hard_patterns_of_many_clients_change_nothing_for_others() {
    let server = Server::start(&[]);
    let whole = server.text("Once upon a time", &json!({}));
    let good = json!({"structured_outputs": {"regex": " [0-9]{2}"}});
    let digits = server.text("He was", &good);
    std::thread::scope(|scope| {
        let server = &server;
        let asked: Vec<_> = (0..24)
            .map(|i| scope.spawn(move || server.post(COMPLETIONS, &hard_pattern(i))))
            .collect();
        // Many more ask, and go at once.
        let gone: Vec<_> =
            (100..200).map(|i| server.begin(COMPLETIONS, &hard_pattern(i))).collect();
        drop(gone);
        for _ in 0..5 {
            assert_eq!(server.text("Once upon a time", &json!({})), whole);
            assert_eq!(server.text("He was", &good), digits); // this one is known
        }
        for thread in asked {
            let (status, answer) = thread.join().unwrap();
            assert!([200, 400, 503].contains(&status), "{answer}");
            if status == 400 {
                assert_eq!(answer["error"]["param"], "structured_outputs", "{answer}");
            }
        }
    });
    server.wait_for("num_requests_queued", 0.0);
    assert_eq!(server.text("Once upon a time", &json!({})), whole);
    #[cfg(target_os = "linux")]
    assert!(server.peak_memory() < 1 << 30, "{}", server.peak_memory());
}

#[test]
fn large_patterns_in_use_have_a_bound() {
    let server = Server::start(&["--max-batch", "2", "--kernels", "plain"]);
    let mut running: Vec<_> = (0..2).map(|_| server.begin(COMPLETIONS, &long())).collect();
    read_some(&mut running[0], 100);
    // These wait for a place in the batch, and their automata with them.
    let large = |i: usize| {
        let regex = format!("(?:a{{1000}}){{{}}}", 900 + i);
        body("Once", &json!({"stream": true, "structured_outputs": {"regex": regex}}))
    };
    let waiting: Vec<_> = (0..12).map(|i| server.begin(COMPLETIONS, &large(i))).collect();
    let small = json!({"structured_outputs": {"regex": " [0-9]{2}"}});
    assert_eq!(server.post(COMPLETIONS, &body("He was", &small)).0, 200);
    drop((waiting, running));
    server.wait_for("num_requests_queued", 0.0);
    #[cfg(target_os = "linux")]
    assert!(server.peak_memory() < 1 << 30, "{}", server.peak_memory());
    well(&server);
}

#[test]
fn a_pattern_that_is_wrong_names_its_field() {
    let server = Server::start(&[]);
    for regex in ["(", "**", r"\p{Nonsense}", r"\b", "[^\\x00-\u{10FFFF}]"] {
        for _ in 0..2 {
            let wrong = body("Once", &json!({"structured_outputs": {"regex": regex}}));
            let (status, answer) = server.post(COMPLETIONS, &wrong);
            let param = &answer["error"]["param"];
            assert_eq!((status, param), (400, &json!("structured_outputs")), "{regex}: {answer}");
        }
    }
    well(&server);
}

/// Chats whose template has no end cost their own lane: completions are answered, and the server ends when it is told to.
#[test]
#[cfg(unix)]
fn endless_templates_do_not_stop_the_server() {
    let folder = std::env::temp_dir().join(format!("candecode-endless-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let file = folder.join("endless.jinja");
    let endless = "{% for a in range(99999) %}".repeat(3) + &"{% endfor %}".repeat(3);
    let template = format!("{{% if messages[0].content == 'boom' %}}{endless}{{% endif %}}x");
    std::fs::write(&file, template).unwrap();
    let mut server = Server::start(&["--template", file.to_str().unwrap()]);
    let whole = server.text("Once upon a time", &json!({}));
    std::thread::scope(|scope| {
        let server = &server;
        let boom = json!({"messages": [{"role": "user", "content": "boom"}], "max_tokens": 4});
        let ask = move || server.post("/v1/chat/completions", &boom);
        let chats: Vec<_> = (0..6).map(|_| scope.spawn(ask.clone())).collect();
        for _ in 0..5 {
            assert_eq!(server.text("Once upon a time", &json!({})), whole);
        }
        for chat in chats {
            let (status, answer) = chat.join().unwrap();
            assert!([400, 503, 504].contains(&status), "{status} {answer}");
        }
    });
    assert_eq!(server.text("Once upon a time", &json!({})), whole);
    server.signal("TERM");
    assert_eq!(server.child.wait().unwrap().code(), Some(0));
    std::fs::remove_dir_all(folder).unwrap();
}
