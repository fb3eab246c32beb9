//! What a test made a command say, kept for the book's page of messages.
//!
//! With `CANDECODE_MESSAGES=FOLDER` every message becomes a line of JSON in a file of that folder, one file a test;
//! `cargo xtask messages` runs the tests so, and makes the page of it. Without the variable nothing is kept.

use std::io::Write as _;

/// Keeps a message, under the name of the test that provoked it. `args` are those of the command, if they are known.
pub fn keep(args: &[&str], code: i32, message: &str) {
    let Some(dir) = std::env::var_os("CANDECODE_MESSAGES") else { return };
    let thread = std::thread::current();
    let test = thread.name().unwrap_or_default();
    let line =
        serde_json::json!({ "test": test, "args": args, "code": code, "message": message.trim() });
    let path = std::path::Path::new(&dir).join(format!("{}.jsonl", test.replace("::", "-")));
    let file = std::fs::OpenOptions::new().create(true).append(true).open(&path);
    let written = file.and_then(|mut file| file.write_all(format!("{line}\n").as_bytes()));
    written.unwrap_or_else(|error| panic!("{}: {error}", path.display()));
}
