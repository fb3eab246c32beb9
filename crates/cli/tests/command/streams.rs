//! Tests of standard output and standard error that can't be written to, and of endless input.

use crate::{command, Ran};
use candecode_testing::Folder;
use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

const TEXT: [&str; 6] =
    ["-p", "Once upon a time", "--model", "story-230k", "--max-new-tokens", "9"];

/// Opens a device that is always full.
fn full() -> Stdio {
    OpenOptions::new().write(true).open("/dev/full").unwrap().into()
}

/// Opens a pipe with its reading end closed.
fn closed() -> Stdio {
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    writer.into()
}

/// Runs a command that must finish within a minute.
pub fn within_a_minute(mut command: Command) -> Ran {
    let child = command.spawn().unwrap();
    let id = child.id();
    let (sender, ended) = std::sync::mpsc::channel();
    std::thread::spawn(move || sender.send(child.wait_with_output()));
    match ended.recv_timeout(Duration::from_secs(60)) {
        Ok(output) => output.unwrap().into(),
        Err(_) => {
            let _ = Command::new("kill").args(["-9", &id.to_string()]).status();
            panic!("the command doesn't end: {command:?}");
        }
    }
}

#[test]
fn an_unwritable_stderr_changes_no_output_or_exit_code() {
    let usual = crate::done(&TEXT);
    assert!(usual.out.starts_with("Once upon a time") && !usual.err.is_empty());
    let stats = [&TEXT[..], &["--stats"]].concat();
    let drafts = [&TEXT[..], &["--draft-model", "story-230k"]].concat();
    let absent = ["-p", "Once", "--model", "/nowhere"];
    let misused = ["-p", "Once", "--top-k", "0"];
    let unknown = ["--no-such-flag"];
    let cases: [(&[&str], i32); 6] =
        [(&TEXT, 0), (&stats, 0), (&drafts, 0), (&absent, 1), (&misused, 2), (&unknown, 2)];
    for (args, code) in cases {
        for stderr in [full, closed] {
            let ran: Ran = command(args).stderr(stderr()).output().unwrap().into();
            let want = if code == 0 { &*usual.out } else { "" };
            assert_eq!((ran.code, &*ran.out), (code, want), "{args:?}");
        }
    }
    for stderr in [full, closed] {
        let mut chat = command(&["--chat", "--model", "story-230k", "--max-new-tokens", "3"]);
        let mut child = chat.stdin(Stdio::piped()).stderr(stderr()).spawn().unwrap();
        child.stdin.take().unwrap().write_all(b"Once\n/help\n/nothing\n/reset\nOnce\n").unwrap();
        let ran = Ran::from(child.wait_with_output().unwrap());
        assert_eq!((ran.code, ran.out.len() > 4), (0, true));
    }
}

#[test]
fn a_full_stdout_is_an_error_and_a_closed_one_exits_quietly() {
    let json = [&TEXT[..], &["--format", "json"]].concat();
    let cases: [&[&str]; 7] = [
        &TEXT,
        &json,
        &["--where", "--model", "story-230k"],
        &["--models", "--offline"],
        &["--help"],
        &["-h"],
        &["--version"],
    ];
    for args in cases {
        let Ran { err, code, .. } = command(args).stdout(full()).output().unwrap().into();
        let says =
            err.lines().any(|line| line.starts_with("error: ") && line.contains("standard output"));
        assert!(says && code == 1 && !err.contains("panicked"), "{args:?}: {err}");
        let Ran { err, code, .. } = command(args).stdout(closed()).output().unwrap().into();
        assert!(code == 0 && !err.contains("error"), "{args:?}: {err}");
        for (stdout, stderr, code) in [(full(), full(), 1), (closed(), closed(), 0)] {
            let status = command(args).stdout(stdout).stderr(stderr).status().unwrap();
            assert_eq!(status.code(), Some(code), "{args:?}");
        }
    }
}

#[test]
fn endless_input_is_refused() {
    let dir = Folder::new("endless");
    let pipe = dir.0.join("pipe").display().to_string();
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let folder = dir.0.display().to_string();
    let cases: [(&[&str], &str); 11] = [
        (&["--prompt-file", "/dev/zero"], "--prompt-file /dev/zero: "),
        (&["--prompt-file", "-"], "standard input: "),
        (&["--prompt-file", "/dev/stdin"], "--prompt-file /dev/stdin: "),
        (&["-p", "Once", "--block-file", "/dev/zero"], "--block-file /dev/zero: "),
        (&["--chat"], "standard input: "),
        (&["--prompt-file", &pipe], "--prompt-file "),
        (&["-p", "Once", "--block-file", &pipe], "--block-file "),
        (&["--prompt-file", &folder], "--prompt-file "),
        (&["-p", "Once", "--block-file", &folder], "--block-file "),
        (&["-p", "Once", "--medusa", "/dev/zero"], "--medusa /dev/zero: "),
        (&["-p", "Once", "--medusa", &pipe], "--medusa "),
    ];
    for (args, named) in cases {
        let mut run = command(&[args, &["--model", "story-230k"]].concat());
        run.stdin(File::open("/dev/zero").unwrap());
        let Ran { out, err, code } = within_a_minute(run);
        assert!(err.contains(&format!("error: {named}")), "{args:?}: {err}");
        assert_eq!((matches!(code, 1 | 2), &*out), (true, ""), "{args:?}");
    }
}

#[test]
fn a_prompt_piped_to_stdin_is_read() {
    let usual = crate::done(&TEXT).out;
    for file in ["-", "/dev/stdin", "/dev/fd/0"] {
        let line = format!("printf 'Once upon a time' | $C --prompt-file {file} $F");
        let mut sh = Command::new("sh");
        sh.args(["-c", &line]).env("C", env!("CARGO_BIN_EXE_candecode"));
        sh.env("F", "--model story-230k --max-new-tokens 9");
        let ran = Ran::from(sh.output().unwrap());
        assert_eq!(ran.out, usual, "{line}: {}", ran.err);
    }
}

#[test]
fn an_oversized_chat_line_is_refused_by_size_alone() {
    let mut chat = command(&["--chat", "--model", "story-230k", "--max-new-tokens", "3"]);
    let mut child = chat.stdin(Stdio::piped()).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let writer = std::thread::spawn(move || {
        let _ = stdin.write_all(&b"a".repeat(40 << 20));
        let _ = stdin.write_all(b"\nOnce upon\n");
    });
    let began = Instant::now();
    let ran = Ran::from(child.wait_with_output().unwrap());
    writer.join().unwrap();
    assert!(ran.err.contains("41943040 bytes"), "{}", ran.err);
    assert!(!ran.out.is_empty(), "the next line is answered: {}", ran.err);
    assert!(began.elapsed() < Duration::from_secs(60), "{:?}", began.elapsed());
}
