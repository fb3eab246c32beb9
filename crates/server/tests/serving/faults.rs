//! Tests that misbehaving clients and machines don't affect other clients.

use crate::running_server::{agent, body, read_some, with, Server, COMPLETIONS};
use serde_json::{json, Value};
use std::collections::VecDeque;
use std::io::Write as _;
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Checks that the server still answers another client.
fn well(server: &Server) {
    let text = server.text("Once upon a time", &json!({"max_tokens": 8}));
    assert!(!text.is_empty());
}

/// A request for a long text: nearly the model's whole context (512), with no early end.
fn long() -> Value {
    body("Once", &json!({"max_tokens": 500, "ignore_eos": true, "stream": true}))
}

#[test]
fn a_client_that_vanishes_leaves_no_row() {
    // Slow enough that texts are still being generated when the clients leave.
    let server = Server::start(&["--max-batch", "4", "--kernels", "plain"]);
    for _ in 0..3 {
        let mut clients: Vec<_> = (0..6).map(|_| server.begin(&long())).collect();
        read_some(&mut clients[0], 300);
        drop(clients); // four ran, two waited
        server.wait_for("num_rows_running", 0.0);
        server.wait_for("num_requests_queued", 0.0);
    }
    // The server also notices when a client that isn't streaming disconnects. Its texts are so many
    // that they're still being generated then.
    let many = json!({"stream": false, "n": 64, "temperature": 1});
    let silent = server.begin(&with(long(), &many));
    server.wait_for("num_rows_running", 4.0);
    drop(silent);
    server.wait_for("num_rows_running", 0.0);
    assert!(server.metric("requests_cancelled_total") >= 1.0);
    well(&server);
}

#[test]
fn a_client_that_takes_nothing_is_not_waited_for_and_let_go() {
    let server = Server::start(&["--patience", "2"]);
    // A response larger than the socket buffers.
    let large = json!({
        "max_tokens": 490, "n": 16, "temperature": 1, "logprobs": 20, "ignore_eos": true,
        "stream": true,
    });
    let mut silent = vec![server.begin(&body("Once", &large))];
    silent.extend((0..7).map(|_| server.begin(&long())));
    well(&server);
    server.wait_for("num_rows_running", 0.0); // all finished, although no one has read them
    drop(silent.split_off(1));
    server.wait_for("num_connections", 1.0); // only the connection that asks for the metric
}

#[test]
fn a_byte_a_second_is_not_waited_for() {
    let server = Server::start(&["--patience", "2"]);
    let mut headers = server.connect();
    let mut of_body = server.post_head("content-length: 500");
    write!(of_body, "{{").unwrap();
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
    assert!(told.contains("did not arrive within 2 seconds"), "{told}");
    drip.join().unwrap();
    // `read_some` ends after a minute if the server doesn't close the connection.
    assert!(began.elapsed() < Duration::from_secs(50), "{:?}", began.elapsed());
    server.wait_for("num_connections", 1.0); // only the connection that asks for the metric

    // Endless headers are rejected.
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
fn a_hundred_megabytes_are_refused_and_not_kept() {
    let server = Server::start(&[]);
    well(&server);
    #[cfg(target_os = "linux")]
    let before = server.peak_memory();
    let size = 100 << 20;
    let part = vec![b' '; 1 << 20];
    for chunked in [false, true] {
        let mut client = server.post_head(&match chunked {
            true => "transfer-encoding: chunked".to_string(),
            false => format!("content-length: {size}"),
        });
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
    // A client that sends `Expect: 100-continue` is rejected before it sends the body.
    let mut polite = server.post_head(&format!("expect: 100-continue\r\ncontent-length: {size}"));
    let told = read_some(&mut polite, 12);
    assert!(told.starts_with("HTTP/1.1 413"), "{told}");
    well(&server);
}

#[test]
fn a_queue_that_is_full_says_when_to_come_again() {
    let server =
        Arc::new(Server::start(&["--max-batch", "1", "--max-queue", "2", "--kernels", "plain"]));
    // Each request has choices that wait a long time for a place in the batch.
    let many = with(long(), &json!({"n": 64, "temperature": 1}));
    let clients: Vec<_> = (0..2).map(|_| server.begin(&many)).collect();
    server.wait_for("num_requests_queued", 2.0);
    let mut third = server.begin(&long());
    let told = read_some(&mut third, 300);
    assert!(told.starts_with("HTTP/1.1 429") && told.contains("retry-after: 1"), "{told}");
    assert!(told.contains("rate_limit_exceeded"), "{told}");
    drop(clients);
    server.wait_for("num_requests_queued", 0.0);
    well(&server);
}

/// macOS gives a program 256 file descriptors, fewer than the limit of connections.
#[test]
#[cfg(unix)]
fn idle_connections_that_use_up_the_file_descriptors_keep_nobody_out() {
    let program = Server::command(&["--patience", "600"]);
    let mut command = std::process::Command::new("sh");
    command.args(["-c", "ulimit -n 256; exec \"$0\" \"$@\""]).arg(program.get_program());
    command.args(program.get_args()).env_remove("CANDECODE_API_KEY").stderr(Stdio::null());
    let server = Server::spawn(&mut command);
    let held: Vec<_> = (0..300).map(|_| server.connect()).collect();
    for _ in 0..3 {
        well(&server);
    }
    drop(held);
}

/// One client opens all connections at once, silent or in the middle of a head or of a body, and
/// then opens every one again that the server closes.
#[test]
fn connections_that_wait_for_their_client_keep_nobody_out() {
    let server = Server::start(&["--max-connections", "32", "--patience", "600"]);
    let begun = [
        "",
        "GET /health HTTP/1.1\r\n",
        "POST /v1/completions HTTP/1.1\r\nhost: localhost\r\ncontent-length: 500000\r\n\
         content-type: application/json\r\n\r\n{",
    ];
    let open = |i: usize| {
        let mut stream = server.connect();
        let _ = stream.write_all(begun[i % 3].as_bytes());
        stream
    };
    let mut held: VecDeque<_> = (0..64).map(open).collect();
    assert_eq!(server.get("/health").0, 200);
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            // It takes 32 of these until a client that is slow to send its request is closed.
            for i in (0..1000).take_while(|_| !over.load(Relaxed)) {
                held.push_back(open(i));
                held.pop_front();
                std::thread::sleep(Duration::from_millis(20));
            }
        });
        let answered = (0..20).filter(|_| server.get("/health").0 == 200).count();
        over.store(true, Relaxed);
        assert_eq!(answered, 20);
    });
}

#[test]
#[cfg(unix)]
fn a_signal_right_after_the_start_ends_the_server_in_order() {
    for _ in 0..5 {
        let mut server = Server::start(&[]);
        server.signal("TERM");
        assert_eq!(server.child.wait().unwrap().code(), Some(0));
    }
}

#[test]
fn connections_at_work_are_not_closed_for_others() {
    let server =
        Server::start(&["--max-connections", "4", "--patience", "3", "--kernels", "plain"]);
    let whole = server.text("Once", &json!({"max_tokens": 500, "ignore_eos": true}));
    // Eight texts each, so that none of the four finishes before the fifth client connects.
    let many = body(
        "Once",
        &json!({"max_tokens": 500, "n": 8, "temperature": 1, "ignore_eos": true, "stream": true}),
    );
    // The previous request's connection may still be closing and still count.
    let begin = |_| loop {
        let mut stream = server.begin(&many);
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
    // Side by side, since the server waits only three seconds for a client that reads nothing.
    std::thread::scope(|scope| {
        for mut stream in running {
            scope.spawn(move || {
                let text = read_some(&mut stream, usize::MAX);
                assert!(text.contains("data: [DONE]"), "{text}");
            });
        }
    });
    assert_eq!(server.text("Once", &json!({"max_tokens": 500, "ignore_eos": true})), whole);
}

#[test]
fn what_asks_for_too_much_is_refused_before_any_work() {
    let server = Server::start(&[]);
    let whole = server.text("Once upon a time", &json!({}));
    let logprobs = json!({"max_tokens": 500, "n": 128, "temperature": 1, "logprobs": 20});
    let (status, answer) = server.post(COMPLETIONS, &body("Once", &logprobs));
    assert_eq!((status, &answer["error"]["param"]), (400, &json!("logprobs")), "{answer}");
    let echo = json!({"echo": true, "prompt": vec!["Once ".repeat(400); 128], "n": 1});
    assert_eq!(server.post(COMPLETIONS, &body("", &echo)).0, 400); // each prompt is too long

    // 200,000 stop strings, a prompt that can't fit, and 100,000 prompts, many at once.
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
    assert_eq!(server.text("Once upon a time", &json!({})), whole);
}

/// Standard error may be redirected to a file on a full disk.
#[test]
#[cfg(target_os = "linux")]
fn a_full_disk_is_no_reason_to_end() {
    let full = || Stdio::from(std::fs::File::options().write(true).open("/dev/full").unwrap());
    let mut command = Server::command(&[]);
    command.stderr(full());
    let server = Server::spawn(&mut command);
    let unknown = body("Once", &json!({"nonsense": 1}));
    assert_eq!(server.post(COMPLETIONS, &unknown).0, 200);
}

#[test]
#[cfg(target_os = "linux")]
fn what_was_killed_starts_again_at_the_same_port() {
    // At an address of its own, where no other test's server gets the port meanwhile.
    let host = ["--host", "127.0.0.2"];
    let server = Server::start(&host);
    let port = server.host.split(':').nth(1).unwrap().to_string();
    let mut client = server.begin(&long());
    read_some(&mut client, 300);
    server.signal("KILL");
    let rest = read_some(&mut client, usize::MAX);
    assert!(!rest.contains("[DONE]"), "a cut-off stream must not look complete");
    drop(server);
    let again = Server::start(&[&host[..], &["--port", port.as_str()]].concat());
    assert!(again.host.ends_with(&port));
    well(&again);
}

#[test]
#[cfg(unix)]
fn ctrl_c_lets_running_rows_end() {
    let mut server = Server::start(&["--kernels", "plain"]);
    let whole = server.text("Once", &json!({"max_tokens": 500, "ignore_eos": true}));
    let mut running = server.begin(&long());
    let mut text = read_some(&mut running, 500); // the head, and a token
    server.signal("INT");
    let began = Instant::now();
    loop {
        // New requests are rejected until the server exits.
        match agent().get(server.url("/health")).call() {
            Ok(answer) if answer.status() == 503 => break,
            Ok(_) => assert!(began.elapsed() < Duration::from_secs(60)),
            Err(_) => break, // it has already exited
        }
    }
    text += &read_some(&mut running, usize::MAX);
    assert!(text.contains("data: [DONE]"), "{text}");
    let pieces = text.lines().filter_map(|line| line.strip_prefix("data: {"));
    let pieces = pieces.map(|event| {
        let event: Value = serde_json::from_str(&format!("{{{event}")).unwrap();
        event["choices"][0]["text"].as_str().unwrap().to_string()
    });
    assert_eq!(pieces.collect::<String>(), whole);
    assert_eq!(server.child.wait().unwrap().code(), Some(0));
}

/// A request with a regular expression that takes a second to compile, or would use up all memory.
/// No two are the same.
fn hard_pattern(i: usize) -> Value {
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
        let asked: Vec<_> = (0..60)
            .map(|i| scope.spawn(move || server.post(COMPLETIONS, &hard_pattern(i))))
            .collect();
        // Many more clients send a request and disconnect immediately.
        let gone: Vec<_> = (100..200).map(|i| server.begin(&hard_pattern(i))).collect();
        drop(gone);
        for i in 0..5 {
            assert_eq!(server.text("Once upon a time", &json!({})), whole);
            assert_eq!(server.text("He was", &good), digits); // already compiled

            // In the queue of the hard ones, it would wait in vain for half a minute.
            let new = json!({"structured_outputs": {"regex": format!(" [a-c]+z?{i}")}});
            assert!(!server.text("He was", &new).is_empty());
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

/// A chat template that never finishes blocks only other chats: completions are still answered, and
/// the server still shuts down when told to.
#[test]
#[cfg(unix)]
fn templates_that_fail_or_have_no_end_do_not_stop_the_server() {
    let folder = std::env::temp_dir().join(format!("candecode-template-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let file = folder.join("endless.jinja");
    let endless = "{% for a in range(99999) %}".repeat(3) + &"{% endfor %}".repeat(3);
    let template = format!(
        "{{% if messages[0].content == 'boom' %}}{endless}{{% endif %}}\
         {{{{ raise_exception('one must begin with a greeting') }}}}"
    );
    std::fs::write(&file, template).unwrap();
    let mut server = Server::start(&["--template", file.to_str().unwrap()]);
    let whole = server.text("Once upon a time", &json!({}));
    let chat = |text: &str| {
        let ask = json!({"messages": [{"role": "user", "content": text}], "max_tokens": 4});
        server.post("/v1/chat/completions", &ask)
    };
    let (status, answer) = chat("Give me a text.");
    assert_eq!((status, &answer["error"]["param"]), (400, &json!("messages")), "{answer}");
    let message = answer["error"]["message"].as_str().unwrap();
    assert!(message.contains("must begin with a greeting"), "{message}");
    std::thread::scope(|scope| {
        let chats: Vec<_> = (0..6).map(|_| scope.spawn(|| chat("boom"))).collect();
        for _ in 0..5 {
            assert_eq!(server.text("Once upon a time", &json!({})), whole);
        }
        for chat in chats {
            let (status, answer) = chat.join().unwrap();
            assert!([400, 503, 504].contains(&status), "{status} {answer}");
        }
    });
    server.signal("TERM");
    assert_eq!(server.child.wait().unwrap().code(), Some(0));
    std::fs::remove_dir_all(folder).unwrap();
}
