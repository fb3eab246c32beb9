//! The runner on the course itself: the complete output of failing checks.
//!
//! These tests build the course, so only the stage `real` of CI runs them. The output is in
//! `snapshots/`; after a change, `INSTA_UPDATE=always` writes it again.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// A copy of the course in the target directory, built with the course's crates. It isn't removed,
/// so that the next run is quick. Only one test at a time can use it.
struct Course {
    root: PathBuf,
    target: PathBuf,
    /// How long a check may run, in seconds.
    patience: &'static str,
    _alone: MutexGuard<'static, ()>,
}

impl Course {
    fn open() -> Course {
        static ALONE: Mutex<()> = Mutex::new(());
        let alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
        let from = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        let exe = Path::new(env!("CARGO_BIN_EXE_xtask"));
        let target = exe.ancestors().nth(2).unwrap().to_path_buf();
        let root = target.join("xtask/course");
        let needless = [".git", ".candecode", ".venv", "book", "target"];
        for entry in fs::read_dir(from).unwrap() {
            let name = entry.unwrap().file_name();
            if needless.iter().all(|other| name != *other) {
                copy(&from.join(&name), &root.join(&name));
            }
        }

        // With the same version, cargo would later take the copy's compiled crates for the course's.
        let manifest = fs::read_to_string(from.join("Cargo.toml")).unwrap();
        let (before, after) = manifest.split_once("[workspace.package]\nversion = \"").unwrap();
        let after = after.replacen('"', "-real\"", 1);
        let manifest = format!("{before}[workspace.package]\nversion = \"{after}");
        fs::write(root.join("Cargo.toml"), manifest).unwrap();
        let course = Course { root, target, patience: "180", _alone: alone };
        assert_eq!(course.say(&["stubs", "--force"], "").1, 0);
        course
    }

    /// Writes day 1 to `src/`: the reference with these edits.
    fn write_day_1(&self, edits: &[(&str, &str)]) {
        let path = "day01_attention.rs";
        let mut source = fs::read_to_string(self.root.join("solutions").join(path)).unwrap();
        source = source
            .lines()
            .filter(|line| !line.contains("solution>"))
            .map(|line| format!("{line}\n"))
            .collect();
        for (find, replace) in edits {
            assert_eq!(source.matches(find).count(), 1, "{find}");
            source = source.replace(find, replace);
        }
        fs::write(self.root.join("src").join(path), source).unwrap();
    }

    /// Runs the runner. Returns its standard output with the runner's own lines of standard error
    /// (without the compiler's), and the exit code.
    fn say(&self, args: &[&str], input: &str) -> (String, i32) {
        let mut command = Command::new(env!("CARGO_BIN_EXE_xtask"));
        command.args(args).current_dir(&self.root).env("CARGO_TARGET_DIR", &self.target);
        for name in ["CANDECODE_MODELS", "CANDECODE_DEVICE", "RUSTFLAGS", "CARGO_TERM_COLOR"] {
            command.env_remove(name);
        }
        command.env("NO_COLOR", "1").env("CANDECODE_CHECK_PATIENCE", self.patience);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
        let out = child.wait_with_output().unwrap();
        let (text, errors) =
            (String::from_utf8(out.stdout).unwrap(), String::from_utf8(out.stderr).unwrap());
        let own = errors.lines().filter(|line| line.starts_with("The error is in"));
        let own: String = own.map(|line| format!("{line}\n")).collect();
        (own + &rounded(&text), out.status.code().unwrap_or(-1))
    }
}

/// Rounds the numbers that a check compares to three decimals. The last digits of an f32 depend on
/// the processor.
fn rounded(text: &str) -> String {
    let word = |part: &str| {
        let (word, space) = part.split_at(part.trim_end().len());
        match word.parse::<f64>() {
            Ok(number) if word.contains('.') => format!("{number:.3}{space}"),
            _ => part.to_string(),
        }
    };
    let line = |line: &str| {
        let compares = ["  got ", "  want ", "  the largest difference"];
        match compares.iter().any(|start| line.starts_with(start)) {
            true => line.split_inclusive(' ').map(word).collect(),
            false => line.to_string(),
        }
    };
    text.lines().map(|text| line(text) + "\n").collect()
}

/// Makes `to` equal to `from`, but doesn't write equal files again: cargo compares times.
fn copy(from: &Path, to: &Path) {
    if from.is_file() {
        fs::create_dir_all(to.parent().unwrap()).unwrap();
        if fs::read(to).ok() != Some(fs::read(from).unwrap()) {
            fs::copy(from, to).unwrap();
        }
        return;
    }
    fs::create_dir_all(to).unwrap();
    let names = |dir: &Path| -> Vec<_> {
        fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().file_name()).collect()
    };
    for gone in names(to).into_iter().filter(|name| !from.join(name).exists()) {
        let gone = to.join(gone);
        let removed = if gone.is_dir() { fs::remove_dir_all(gone) } else { fs::remove_file(gone) };
        removed.unwrap();
    }
    names(from).iter().for_each(|name| copy(&from.join(name), &to.join(name)));
}

/// Task 1.1 is right. The others have a wrong number (1.2), a known mistake (1.3), a wrong shape
/// (1.4) and a panic (1.5), or aren't written (1.6).
#[test]
#[ignore = "builds the course"]
fn a_failing_check_says_what_is_wrong() {
    let course = Course::open();
    course.write_day_1(&[
        ("column <= past + i", "column * 2 <= past + i"),
        ("let scale = 1.0 / (q.dim(3)? as f64).sqrt();", "let scale = 1.0;"),
        ("(b, t, heads, width / heads))?.transpose(1, 2)", "(b, t, heads, width / heads))"),
        ("reshape((b, t, h * d))", "reshape((b, t, [h, d, h * d][b + 2]))"),
        (
            "softmax(&Tensor::cat(&[&scores, &sinks], 3)?, 3)?;",
            "todo!(\"day 1, task 6: {sinks}\");",
        ),
        ("let weights = ", "let weights: Tensor = "),
    ]);
    let (text, code) = course.say(&["check", "day1"], "");
    insta::assert_snapshot!("five_failures", text);
    assert_eq!(code, 1);
}

#[test]
#[ignore = "builds the course"]
fn an_endless_loop_is_stopped_and_named() {
    let mut course = Course::open();
    course.patience = "3";
    let begin = "let x32 = x.to_dtype(DType::F32)?;";
    let forever = "while dim < 9 {\n        std::hint::black_box(dim);\n    }\n    ";
    course.write_day_1(&[(begin, &format!("{forever}{begin}"))]);
    let (text, code) = course.say(&["check", "day1", "--task", "1.1"], "");
    insta::assert_snapshot!("an_endless_loop", text);
    assert_eq!(code, 1);
}

#[test]
#[ignore = "builds the course"]
fn check_reports_a_compile_error() {
    let course = Course::open();
    course.write_day_1(&[("let (b, h, t, d) = x.dims4()?;", "let (b, h, t, d) = x.dims4();")]);
    let (text, code) = course.say(&["check", "day1"], "");
    insta::assert_snapshot!("a_compile_error", text);
    assert_eq!(code, 1);
}
