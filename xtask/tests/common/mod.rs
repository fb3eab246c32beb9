//! A course of two days without dependencies, in a directory of its own: it builds in a second.

#![allow(dead_code)] // each test program uses its part

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::atomic::{AtomicU32, Ordering};

const MANIFEST: &str = r#"
[workspace]
[package]
name = "candecode"
version = "0.1.0"
edition = "2021"
rust-version = "1.70"
default-run = "candecode"
[features]
metal = []
cuda = []
ref = ["ref-day00", "ref-day01"]
ref-day00 = []
ref-day01 = []
[profile.dev]
debug = false
incremental = false
"#;

const LIB: &str = r#"extern crate self as candecode;
#[cfg_attr(feature = "ref-day00", path = "../solutions/day00_one.rs")]
pub mod day00_one;
#[cfg_attr(feature = "ref-day01", path = "../solutions/day01_two.rs")]
pub mod day01_two;
"#;

const MAIN: &str = r#"fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    println!("program {args:?} threads {:?}", std::env::var("RAYON_NUM_THREADS"));
    if let Some(code) = args.iter().find_map(|arg| arg.strip_prefix("exit=")) {
        std::process::exit(code.parse().unwrap());
    }
    println!("two {}", std::panic::catch_unwind(|| candecode::day01_two::two()).map_or(-1, |n| n as i32));
}
"#;

const DAY0: &str = "/// One.\npub fn one() -> u32 {\n    // task 0.1: say one\n    // <solution>\n    1\n    // </solution>\n}\n";

const DAY1: &str = "use candecode::day00_one::one;

/// Two.
pub fn two() -> u32 {
    // task 1.1: twice one
    // <solution>
    one() + one()
    // </solution>
}

/// Four.
pub fn four() -> u32 {
    // task 1.2 (further): twice two
    // <solution>
    two() * helper()
    // </solution>
}

// <solution>
fn helper() -> u32 {
    2
}
// </solution>
";

/// The checkers' protocol, as small as can be.
const REPORT: &str = r#"
#[allow(dead_code)]
fn check(test: &str, body: impl Fn() -> bool + std::panic::UnwindSafe) {
    use std::io::Write;
    let outcome = std::panic::catch_unwind(body);
    let (status, message) = match outcome {
        Ok(true) => ("passed", ""),
        Ok(false) => ("failed", "got another number\\n  want: the right one"),
        Err(_) => ("unwritten", "not written yet"),
    };
    if let Ok(path) = std::env::var("CANDECODE_REPORT") {
        let mut file = std::fs::OpenOptions::new().append(true).open(path).unwrap();
        let line = format!("{{\"test\":\"{test}\",\"status\":\"{status}\",\"message\":\"{message}\"}}\n");
        file.write_all(line.as_bytes()).unwrap();
    }
    assert_eq!(status, "passed");
}
"#;

const TESTS0: &str = r#"
#[test]
fn task_0_1_is_one() { check("task_0_1_is_one", || candecode::day00_one::one() == 1); }
#[test]
fn teeth_bite() {}
"#;

const TESTS1: &str = r#"
#[test]
fn task_1_1_is_two() { check("task_1_1_is_two", || candecode::day01_two::two() == 2); }
#[test]
fn task_1_1_is_even() { check("task_1_1_is_even", || candecode::day01_two::two() % 2 == 0); }
#[test]
fn task_1_2_is_four() { check("task_1_2_is_four", || candecode::day01_two::four() == 4); }
"#;

/// A repository that is removed when dropped.
pub struct Fake {
    pub root: PathBuf,
}

impl Fake {
    /// With stubs in `src/`, and a target directory that looks as if candle were built.
    pub fn new() -> Fake {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = format!(
            "candecode-fake-{}-{}",
            std::process::id(),
            NEXT.fetch_add(1, Ordering::Relaxed)
        );
        let fake = Fake { root: std::env::temp_dir().join(name) };
        fake.write("Cargo.toml", MANIFEST);
        fake.write("src/lib.rs", LIB);
        fake.write("src/main.rs", MAIN);
        fake.write("solutions/day00_one.rs", DAY0);
        fake.write("solutions/day01_two.rs", DAY1);
        fake.write("tests/day00_one.rs", &format!("{}{TESTS0}", REPORT));
        fake.write("tests/day01_two.rs", &format!("{}{TESTS1}", REPORT));
        fake.write("target/debug/deps/libcandle_core-0.rlib", "");
        assert!(fake.xtask(&["stubs"]).status.success());
        fake
    }

    pub fn path(&self, file: &str) -> PathBuf {
        self.root.join(file)
    }

    pub fn read(&self, file: &str) -> String {
        fs::read_to_string(self.path(file)).unwrap()
    }

    pub fn write(&self, file: &str, text: &str) {
        fs::create_dir_all(self.path(file).parent().unwrap()).unwrap();
        fs::write(self.path(file), text).unwrap();
    }

    /// Puts the reader's own version of a day into `src/`.
    pub fn solve(&self, file: &str, edit: impl Fn(String) -> String) {
        let source = self.read(&format!("solutions/{file}"));
        self.write(&format!("src/{file}"), &edit(source));
    }

    pub fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_xtask"));
        command
            .args(args)
            .current_dir(&self.root)
            .env_remove("RAYON_NUM_THREADS")
            .env_remove("CARGO_TARGET_DIR");
        command
    }

    pub fn xtask(&self, args: &[&str]) -> Output {
        self.command(args).output().unwrap()
    }

    /// Standard output, standard error and exit code.
    pub fn say(&self, args: &[&str]) -> (String, String, i32) {
        texts(self.xtask(args))
    }

    pub fn git(&self, args: &[&str]) {
        let run = Command::new("git")
            .args(["-c", "user.name=a", "-c", "user.email=a@b"])
            .args(args)
            .current_dir(&self.root)
            .output();
        assert!(run.unwrap().status.success());
    }
}

impl Drop for Fake {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.root);
    }
}

pub fn texts(output: Output) -> (String, String, i32) {
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (text(output.stdout), text(output.stderr), output.status.code().unwrap_or(-1))
}

/// All files below a directory, as relative paths.
pub fn files(dir: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        if entry.path().is_dir() {
            found.extend(files(&entry.path()));
        } else {
            found.push(entry.path());
        }
    }
    found
}
