//! `bench engine --save`: a folder that cannot be made is told before anything is measured.

use std::process::Command;

#[test]
fn a_folder_that_cannot_be_made_is_an_error_at_once() {
    let within_a_file = concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml/new");
    let mut command = Command::new(env!("CARGO_BIN_EXE_engine"));
    let out = command.args(["--model", "story-230k", "--save", within_a_file]).output().unwrap();
    let text = String::from_utf8(out.stderr).unwrap();
    assert!(!out.status.success() && out.stdout.is_empty());
    assert!(text.contains("Cargo.toml/new: cannot make the folder"), "{text}");
    assert!(!text.contains("round 1"), "it measured first: {text}");
}
