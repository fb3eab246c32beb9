//! Tests the command under unusual conditions: standard output or standard error that can't be
//! written to, endless input, and absurdly large numbers.

#![cfg(all(feature = "ref", unix))]

use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

const TEXT: [&str; 6] =
    ["-p", "Once upon a time", "--model", "story-230k", "--max-new-tokens", "9"];

fn command(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_candecode"));
    command.args(args).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

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

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Runs a command that must finish within a minute.
fn within_a_minute(mut command: Command) -> Output {
    let child = command.spawn().unwrap();
    let id = child.id();
    let (sender, ended) = std::sync::mpsc::channel();
    std::thread::spawn(move || sender.send(child.wait_with_output()));
    match ended.recv_timeout(Duration::from_secs(60)) {
        Ok(output) => output.unwrap(),
        Err(_) => {
            let _ = Command::new("kill").args(["-9", &id.to_string()]).status();
            panic!("the command doesn't end: {command:?}");
        }
    }
}

#[test]
fn an_unwritable_stderr_changes_no_output_or_exit_code() {
    let usual = command(&TEXT).output().unwrap();
    assert!(usual.stdout.starts_with(b"Once upon a time") && !usual.stderr.is_empty());
    let stats = [&TEXT[..], &["--stats"]].concat();
    let drafts = [&TEXT[..], &["--draft-model", "story-230k"]].concat();
    let absent = ["-p", "Once", "--model", "/nowhere"];
    let misused = ["-p", "Once", "--top-k", "0"];
    let unknown = ["--no-such-flag"];
    let cases: [(&[&str], i32); 6] =
        [(&TEXT, 0), (&stats, 0), (&drafts, 0), (&absent, 1), (&misused, 2), (&unknown, 2)];
    for (args, code) in cases {
        for stderr in [full, closed] {
            let output = command(args).stderr(stderr()).output().unwrap();
            assert_eq!(output.status.code(), Some(code), "{args:?}");
            let want: &[u8] = if code == 0 { &usual.stdout } else { b"" };
            assert_eq!(text(&output.stdout), text(want), "{args:?}");
        }
    }
    for stderr in [full, closed] {
        let mut chat = command(&["--chat", "--model", "story-230k", "--max-new-tokens", "3"]);
        let mut child = chat.stdin(Stdio::piped()).stderr(stderr()).spawn().unwrap();
        child.stdin.take().unwrap().write_all(b"Once\n/help\n/nothing\n/reset\nOnce\n").unwrap();
        let output = child.wait_with_output().unwrap();
        assert_eq!((output.status.code(), output.stdout.len() > 4), (Some(0), true));
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
        let output = command(args).stdout(full()).output().unwrap();
        let said = text(&output.stderr);
        let words = "error: could not write to standard output: No space left on device";
        assert!(said.lines().any(|line| line.starts_with(words)), "{args:?}: {said}");
        assert_eq!(output.status.code(), Some(1), "{args:?}");
        assert!(!said.contains("panicked"), "{args:?}: {said}");

        let output = command(args).stdout(closed()).output().unwrap();
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(0), "{args:?}: {said}");
        assert!(!said.contains("error"), "{args:?}: {said}");

        for (stdout, stderr, code) in [(full(), full(), 1), (closed(), closed(), 0)] {
            let status = command(args).stdout(stdout).stderr(stderr).status().unwrap();
            assert_eq!(status.code(), Some(code), "{args:?}");
        }
    }
}

/// A directory that is removed when the test ends.
struct Dir(PathBuf);

impl Dir {
    fn new(test: &str) -> Self {
        let dir = std::env::temp_dir().join(format!("candecode-{test}-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        Self(dir)
    }
}

impl Drop for Dir {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[test]
fn endless_input_is_refused() {
    let dir = Dir::new("endless");
    let pipe = dir.0.join("pipe").display().to_string();
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let folder = dir.0.display().to_string();
    let endless = "longer than 64 MiB";
    let no_file = "not a regular file";
    let cases: [(&[&str], &str); 11] = [
        (&["--prompt-file", "/dev/zero"], endless),
        (&["--prompt-file", "-"], endless),
        (&["--prompt-file", "/dev/stdin"], endless),
        (&["-p", "Once", "--block-file", "/dev/zero"], endless),
        (&["--chat"], "standard input: a line is longer than 64 MiB"),
        (&["--prompt-file", &pipe], "this is a named pipe, which may never end; give a file"),
        (&["-p", "Once", "--block-file", &pipe], "this is a named pipe"),
        (&["--prompt-file", &folder], "this is a folder, and should be a file"),
        (&["-p", "Once", "--block-file", &folder], "this is a folder, and should be a file"),
        (&["-p", "Once", "--medusa", "/dev/zero"], no_file),
        (&["-p", "Once", "--medusa", &pipe], no_file),
    ];
    for (args, words) in cases {
        let mut run = command(&[args, &["--model", "story-230k"]].concat());
        run.stdin(File::open("/dev/zero").unwrap());
        let output = within_a_minute(run);
        let said = text(&output.stderr);
        assert!(said.contains(words), "{args:?}: {said}");
        assert!(matches!(output.status.code(), Some(1 | 2)), "{args:?}");
        assert_eq!(text(&output.stdout), "", "{args:?}");
    }
}

#[test]
fn a_prompt_piped_to_stdin_is_read() {
    let usual = command(&TEXT).output().unwrap();
    let flags = "--model story-230k --max-new-tokens 9";
    for line in [
        "printf 'Once upon a time' | $C --prompt-file - $F",
        "printf 'Once upon a time' | $C --prompt-file /dev/stdin $F",
        "printf 'Once upon a time' | $C --prompt-file /dev/fd/0 $F",
    ] {
        let mut sh = Command::new("sh");
        sh.args(["-c", line]).env("C", env!("CARGO_BIN_EXE_candecode")).env("F", flags);
        let output = sh.output().unwrap();
        assert_eq!(text(&output.stdout), text(&usual.stdout), "{line}: {}", text(&output.stderr));
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
    let output = child.wait_with_output().unwrap();
    writer.join().unwrap();
    let said = text(&output.stderr);
    assert!(said.contains("this line is 41943040 bytes long, so at least "), "{said}");
    assert!(!output.stdout.is_empty(), "the next line is answered: {said}");
    assert!(began.elapsed() < Duration::from_secs(60), "{:?}", began.elapsed());
}

/// Every flag that takes an integer states the range it expects.
#[test]
fn integer_flags_state_their_range() {
    let most = (1u64 << 32).to_string();
    for flag in [
        "--max-new-tokens",
        "--min-new-tokens",
        "--no-repeat-ngram",
        "--penalty-window",
        "--num-beams",
        "--num-return-sequences",
        "--draft-ngram",
        "--num-draft-tokens",
        "--max-batch-tokens",
        "--top-logprobs",
        "--seed",
    ] {
        for value in [
            "-1",
            "-9223372036854775809",
            "1.5",
            "1e9",
            "nan",
            "",
            "x",
            "99999999999999999999",
            &most,
        ] {
            if flag == "--seed" && [&most, "-1"].contains(&value) {
                continue; // -1 picks a random seed
            }
            let output = within_a_minute(command(&[&TEXT[..4], &[flag, value]].concat()));
            let said = text(&output.stderr);
            let words = format!("error: invalid value '{value}' for '{flag} ");
            assert!(said.starts_with(&words), "{flag} {value}: {said}");
            let ways = ["too large", "too small", "empty", "whole"];
            assert!(ways.iter().any(|way| said.contains(way)), "{flag} {value}: {said}");
            assert_eq!((output.status.code(), text(&output.stdout)), (Some(2), String::new()));
        }
    }
}

#[test]
fn prompt_ids_accept_a_json_array() {
    let ids = |ids: &str| {
        let args = ["--prompt-ids", ids, "--model", "story-230k", "--max-new-tokens", "3"];
        let output = command(&args).output().unwrap();
        (text(&output.stdout), output.status.code(), text(&output.stderr))
    };
    let (plain, code, _) = ids("428,437,259,395");
    assert_eq!((plain.starts_with("Once upon a time"), code), (true, Some(0)));
    assert_eq!(ids("[428, 437, 259, 395]").0, plain);
    for bad in ["5,x", "-1", "4294967296", "5,,6"] {
        let (_, code, said) = ids(bad);
        assert!(said.contains("token ids look like 5,9,77"), "{bad}: {said}");
        assert_eq!(code, Some(2), "{bad}");
    }
}

#[test]
fn the_penalty_window_limits_which_tokens_count() {
    let run = |more: &[&str]| {
        let long = ["-p", "Once upon a time", "--model", "story-230k", "--max-new-tokens", "60"];
        let output = command(&[&long[..], more].concat()).output().unwrap();
        (text(&output.stdout), output.status.code(), text(&output.stderr))
    };
    let plain = run(&[]).0;
    let penalty = ["--repetition-penalty", "1.8"];
    let all = run(&penalty).0;
    let window = |n: &str| run(&[&penalty[..], &["--penalty-window", n]].concat()).0;
    assert_eq!(window("16777216"), all, "a window longer than the text has no effect");
    let (one, twenty) = (window("1"), window("20"));
    assert!(one != all && twenty != all && one != twenty && all != plain, "{one}{twenty}{all}");
    for (args, words) in [
        (
            &["--penalty-window", "5"][..],
            "required arguments were not provided:\n  <--repetition-penalty",
        ),
        (&["--penalty-window", "0", "--presence-penalty", "1"], "give a whole number from 1 to "),
    ] {
        let (_, code, said) = run(args);
        assert!(said.contains(words) && code == Some(2), "{args:?}: {said}");
    }
}

#[test]
fn threads_are_bounded() {
    for variable in ["RAYON_NUM_THREADS", "CANDLE_NUM_THREADS"] {
        for count in ["100000", "99999999999999999999", "-5", "many", ""] {
            let mut run = command(&[&TEXT[..], &["--stats"]].concat());
            run.env(variable, count);
            let output = within_a_minute(run);
            let said = text(&output.stderr);
            assert_eq!(output.status.code(), Some(0), "{variable}={count}: {said}");
            let threads = said.split(" threads)").next().and_then(|said| said.rsplit(' ').next());
            let threads: usize = threads.unwrap().parse().unwrap();
            let cores = std::thread::available_parallelism().unwrap().get();
            assert!(threads <= 4 * cores.max(4), "{variable}={count}: {said}");
        }
    }
}
