//! Tests `--endpoint` with servers that send what a test says: what is sent to them, and what the
//! user sees of their answers. [`answers`] is the table of answers.

#![cfg(all(feature = "ref", feature = "hub"))]

#[path = "endpoint/answers.rs"]
mod answers;
#[path = "endpoint/requests.rs"]
mod requests;

use candecode_remote::test_servers::loopback::{authority, Loopback};
use candecode_remote::test_servers::openai::{OpenAi, Then};
use candecode_testing::Folder;
use std::io::Write as _;
use std::process::{Command, Stdio};

/// What a user sees: standard output, standard error and the exit code.
type Seen = (String, String, i32);

fn command(server: &Loopback, flags: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_candecode"));
    command.args(["--endpoint", &server.address]).args(flags).env_remove("OPENAI_API_KEY");
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// Runs the command against this server.
fn run(server: &Loopback, flags: &[&str]) -> Seen {
    talk(server, flags, "")
}

/// Does the same, with these lines as its input.
fn talk(server: &Loopback, flags: &[&str], lines: &str) -> Seen {
    let mut child = command(server, flags).spawn().unwrap();
    let _ = child.stdin.take().unwrap().write_all(lines.as_bytes());
    let out = child.wait_with_output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (text(out.stdout), text(out.stderr), out.status.code().unwrap_or(-1))
}

#[test]
fn the_key_comes_from_the_flag_or_the_environment() {
    let server = OpenAi { key: Some("right"), ..OpenAi::default() }.start();
    let (_, errors, code) = run(&server, &["-p", "Once"]);
    assert!(code == 1 && errors.contains("OPENAI_API_KEY"), "{errors}");
    let (_, errors, code) = run(&server, &["-p", "Once", "--api-key", "wrong"]);
    assert!(code == 1 && errors.contains("401"), "{errors}");
    assert!(!errors.contains("wrong"), "the key was printed: {errors}");
    assert_eq!(run(&server, &["-p", "Once", "--api-key", "right"]).2, 0);
    let output = command(&server, &["-p", "Once"]).env("OPENAI_API_KEY", "right").output();
    assert!(output.unwrap().status.success());
    for key in ["a\r\nX: y", "a\n", "é", "a b", "a\tb", "\u{7f}"] {
        let (_, errors, code) = run(&server, &["-p", "Once", "--api-key", key]);
        assert!(code == 2 && errors.starts_with("error: --api-key"), "{key:?}: {errors}");
        let output = command(&server, &["-p", "Once"]).env("OPENAI_API_KEY", key).output().unwrap();
        let errors = String::from_utf8(output.stderr).unwrap();
        assert!(errors.starts_with("error: OPENAI_API_KEY"), "{key:?}: {errors}");
    }
}

#[test]
fn a_host_without_an_address_is_named() {
    for variables in [[("x", "y")], [("HTTP_PROXY", "http://candecode.invalid:9")]] {
        let mut server = OpenAi::default().start();
        server.address = match variables[0].0 {
            "x" => "http://candecode.invalid:9",
            _ => "http://example.com:9",
        }
        .into();
        let output = command(&server, &["-p", "Once"]).envs(variables).output().unwrap();
        let errors = String::from_utf8(output.stderr).unwrap();
        assert!(errors.contains("no address was found for candecode.invalid"), "{errors}");
        assert_eq!(output.status.code(), Some(1));
    }
}

/// As on the network of an organization that signs certificates itself.
#[test]
fn a_certificate_is_trusted_if_its_authority_is() {
    let server = OpenAi::default().start_tls();
    let authority = authority();
    let folder = Folder::new("authority");
    std::fs::copy(&authority, folder.0.join("one.pem")).unwrap();
    for (variable, value) in
        [("SSL_CERT_FILE", authority.as_path()), ("SSL_CERT_DIR", folder.0.as_path())]
    {
        let output = command(&server, &["-p", "Once"]).env(variable, value).output().unwrap();
        let errors = String::from_utf8_lossy(&output.stderr);
        assert_eq!(String::from_utf8_lossy(&output.stdout), "Once a dog.\n", "{errors}");
    }
    let mut hub = Command::new(env!("CARGO_BIN_EXE_candecode"));
    hub.args(["--model", "some/name", "--where"]).env("HF_ENDPOINT", &server.address);
    for mut command in [command(&server, &["-p", "Once"]), hub] {
        command.env("HF_HOME", folder.0.as_path()).env_remove("SSL_CERT_DIR");
        let mut seen = |file: &str| {
            let output = command.env("SSL_CERT_FILE", file).output().unwrap();
            String::from_utf8(output.stderr).unwrap()
        };
        assert!(!seen(authority.to_str().unwrap()).contains("SSL_CERT_FILE"));
        let errors = seen("/nowhere.pem");
        assert!(errors.contains("SSL_CERT_FILE=/nowhere.pem"), "{errors}");
        command.env_remove("SSL_CERT_FILE");
        let errors = String::from_utf8(command.output().unwrap().stderr).unwrap();
        assert!(errors.contains("; if your organization signs"), "{errors}");
    }
}

#[test]
#[cfg(unix)]
fn control_c_interrupts_a_wait_for_a_silent_server() {
    for (flags, words, code) in [(&["-p", "Once"][..], "", 130), (&["--chat"], "[stopped]\n", 0)] {
        let server = OpenAi { then: Then::Wait, ..OpenAi::sends("") }.start();
        let mut child = command(&server, flags).spawn().unwrap();
        child.stdin.take().unwrap().write_all(b"Hello\n").unwrap();
        while !server.lines().iter().any(|line| line.starts_with("POST")) {
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

/// `ulimit -v` limits the address space, in KiB, so a client that buffers everything fails.
#[test]
#[cfg(unix)]
fn an_endless_stream_is_cut_off() {
    use candecode_remote::test_servers::openai::{event, stream_of};
    let long = "longer than any answer to this request";
    let text = event(&"a".repeat(40), "null");
    for (events, flags, words) in [
        (text.as_str(), &["-p", "Once"][..], "the server keeps sending: "),
        (&text, &["-p", "Once", "--format", "json"], "the server keeps sending: "),
        (&text, &["--chat"], "the server keeps sending: "),
        (&event("", "null"), &["--chat"], long),
        ("data: aaaaaaaaaaaaaaaaaaaaaaaaaaaa\n", &["--chat"], "an event is longer than 4 MiB"),
        ("aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", &["--chat"], "an event is longer than 4 MiB"),
        ("{\"a\":\n", &["--chat"], "an event is longer than 4 MiB"),
        (": keep-alive\n", &["--chat"], long),
        ("\n", &["--chat"], long),
        ("data: {}\n\n", &["--chat"], long),
    ] {
        let then = Then::Repeat(events.into());
        let server = OpenAi { then, ..OpenAi::sends(stream_of("")) }.start();
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
