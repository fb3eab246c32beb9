//! Tests of the command: its flags, what it needs, and runs of the program.
//!
//! What the program says is on a page of the book, which `crates/lab/tests/messages` compares
//! word by word. Here is what else a run does, and which flag, file or field a refusal names.
//!
//! They run with the reference: `cargo test -p candecode-cli --features ref --test command`.

#![cfg(feature = "ref")]

mod chat;
mod flags;
mod gguf;
mod memory;
mod runs;
#[cfg(unix)]
mod streams;
mod threads;

use std::process::{Child, Command, Output, Stdio};

/// The end of a run: its standard output, its standard error and its exit code.
struct Ran {
    out: String,
    err: String,
    code: i32,
}

impl From<Output> for Ran {
    fn from(output: Output) -> Self {
        let text = |bytes| String::from_utf8(bytes).unwrap();
        let code = output.status.code().unwrap_or(-1);
        Self { out: text(output.stdout), err: text(output.stderr), code }
    }
}

/// Returns the program with these arguments, nothing on its standard input, and pipes for the rest.
fn command(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_candecode"));
    command.args(args).env("RUST_BACKTRACE", "1").stdin(Stdio::null());
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

fn run(args: &[&str]) -> Ran {
    command(args).output().unwrap().into()
}

/// Runs the program, which must succeed.
fn done(args: &[&str]) -> Ran {
    let ran = run(args);
    assert_eq!(ran.code, 0, "{args:?}: {}", ran.err);
    ran
}

/// Runs the program, which must fail with this exit code, print nothing but the error, and name
/// this.
#[track_caller]
fn refused(args: &[&str], code: i32, named: &str) {
    let ran = run(args);
    assert_eq!((ran.code, &*ran.out), (code, ""), "{args:?}: {}", ran.err);
    let is_named = ran.err.starts_with("error: ") && ran.err.contains(named);
    assert!(is_named, "{args:?}, {named}: {}", ran.err);
}

/// Sends Ctrl-C as a terminal would.
#[cfg(unix)]
fn control_c(child: &Child) {
    let status = Command::new("kill").args(["-INT", &child.id().to_string()]).status();
    assert!(status.unwrap().success());
}
