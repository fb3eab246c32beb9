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
        "POST {COMPLETIONS} HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n\
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
            "POST {COMPLETIONS} HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n{length}\
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
    let clients: Vec<_> = (0..3).map(|_| server.begin(COMPLETIONS, &long())).collect();
    server.wait_for("num_requests_queued", 2.0);
    let mut fourth = server.begin(COMPLETIONS, &long());
    let told = read_some(&mut fourth, 300);
    assert!(told.starts_with("HTTP/1.1 429") && told.contains("retry-after: 1"), "{told}");
    assert!(told.contains("rate_limit_exceeded"), "{told}");
    drop(clients);
    server.wait_for("num_requests_queued", 0.0);
    well(&server);
}

#[test]
fn a_thousand_connections_are_too_many_and_some_are_not() {
    let server = Server::start(&["--max-connections", "64", "--patience", "60"]);
    let mut held = Vec::new();
    for _ in 0..1000 {
        match std::net::TcpStream::connect(&server.host) {
            Ok(stream) => held.push(stream),
            Err(_) => break, // this machine has no more
        }
    }
    let mut last = held.pop().unwrap();
    let told = read_some(&mut last, 400);
    assert!(told.starts_with("HTTP/1.1 503") && told.contains("too many connections"), "{told}");
    drop(held);
    let began = Instant::now();
    while ureq::get(server.url("/health")).call().is_err() {
        assert!(began.elapsed() < Duration::from_secs(20));
    }
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
