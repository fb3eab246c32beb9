//! The runner on the course itself: the complete output of failing checks.
//!
//! These tests build the course, so only the stage `real` of CI runs them. The output is in
//! `snapshots/`; after a change, `INSTA_UPDATE=always` writes it again.

use candecode_course::{stubs, Day, Repo, Task};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// A copy of the course in the target directory, built with the course's crates. It isn't removed,
/// so that the next run is quick. Only one test at a time can use it.
struct Course {
    root: PathBuf,
    target: PathBuf,
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

        // With the same version, cargo would later take the copy's compiled crates for the
        // course's.
        let manifest = fs::read_to_string(from.join("Cargo.toml")).unwrap();
        let (before, after) = manifest.split_once("[workspace.package]\nversion = \"").unwrap();
        let after = after.replacen('"', "-real\"", 1);
        let manifest = format!("{before}[workspace.package]\nversion = \"{after}");
        fs::write(root.join("Cargo.toml"), manifest).unwrap();
        let course = Course { root, target, _alone: alone };
        assert_eq!(course.say(&["stubs", "--force"]).1, 0);
        course
    }

    /// Writes day 1 to `src/`: the reference with these edits.
    fn write_day_1(&self, edits: &[(&str, &str)]) {
        self.write_day("day01_attention.rs", edits);
    }

    /// Writes a day to `src/`: the reference with these edits.
    fn write_day(&self, path: &str, edits: &[(&str, &str)]) {
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

    /// Writes a day to `src/`: the reference, with these tasks left open.
    fn write(&self, repo: &Repo, day: &Day, is_open: impl Fn(&Task) -> bool) {
        let source = repo.read(&day.solution()).unwrap();
        let tasks = repo.tasks(day).unwrap();
        let (mut text, mut keeps_markers) = (String::new(), false);
        for (at, line) in source.lines().enumerate() {
            if let Some(task) = tasks.iter().find(|task| task.line == at + 1) {
                keeps_markers = is_open(task);
            }
            if keeps_markers || !stubs::is_marker(line) {
                let written = line.replace("// task ", "// written: task ");
                text += &format!("{}\n", if keeps_markers { line } else { &written });
            }
            keeps_markers &= line.trim() != "// </solution>";
        }
        fs::write(self.root.join(day.src()), stubs::stub(&text).unwrap()).unwrap();
    }

    /// Runs the runner. Returns its standard output and its exit code. The lines of places in day 1
    /// are `N`.
    fn say(&self, args: &[&str]) -> (String, i32) {
        let (text, _, code) = self.run(args);
        (without_lines(&rounded(&text)), code)
    }

    /// Runs the runner. Returns its standard output, its standard error and its exit code.
    fn run(&self, args: &[&str]) -> (String, String, i32) {
        let mut command = Command::new(env!("CARGO_BIN_EXE_xtask"));
        command.args(args).current_dir(&self.root).env("CARGO_TARGET_DIR", &self.target);
        for name in ["CANDECODE_MODELS", "CANDECODE_DEVICE", "RUSTFLAGS", "CARGO_TERM_COLOR"] {
            command.env_remove(name);
        }
        command.env("NO_COLOR", "1").env("CANDECODE_CHECK_PATIENCE", "180");
        let out = command.stdin(Stdio::null()).output().unwrap();
        let text = |bytes| String::from_utf8(bytes).unwrap();
        (text(out.stdout), text(out.stderr), out.status.code().unwrap_or(-1))
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

/// Replaces the line and column of each place in day 1 by `N`: an edit above it changes them.
fn without_lines(text: &str) -> String {
    let is_place = |c: char| c == ':' || c.is_ascii_digit();
    let start = "day01_attention.rs:";
    let mut parts = text.split(start);
    let first = parts.next().unwrap_or_default().to_string();
    parts.fold(first, |all, part| all + start + "N" + part.trim_start_matches(is_place))
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
    let (text, code) = course.say(&["check", "day1"]);
    insta::assert_snapshot!("five_failures", text);
    assert_eq!(code, 1);
}

/// What leads to a task beyond the core of its day.
enum Reached {
    /// A run with these flags, which is refused before a model is loaded.
    By(&'static str),
    /// A run with these flags, once another task is written, which they reach first.
    After(&'static str, &'static str),
}

/// The tasks beyond the core of their day that a flag or a model leads to.
const BEYOND_THE_CORE: &[(&str, Reached)] = {
    use Reached::{After, By};
    const GPT2: &str = "--model story-gpt2-1m";
    const WINDOW: &str = "--past-context window";
    const BEAMS: &str = "--num-beams 2";
    const JOIN: &str = "--loop day15 --num-return-sequences 2 --temperature 1";
    const TREES: &str = "--draft-tree 2x1 --draft-model story-230k";
    &[
        ("3.7", After("5.6", GPT2)),
        ("5.6", By(GPT2)),
        ("7.8", By(WINDOW)),
        ("7.9", After("7.8", WINDOW)),
        ("10.6", After("10.7", "--cache static")),
        ("10.7", By("--cache static")),
        ("10.10", By("--cache sliding")),
        ("11.6", By("--num-beams 2 --early-stopping true")),
        ("11.7", By(BEAMS)),
        ("12.9", After("12.10", JOIN)),
        ("12.10", By(JOIN)),
        ("14.10", By("--block-ids 5")),
        ("24.10", By("--typical-acceptance --draft-tree 2x1 --draft-ngram 2")),
        ("24.11", By(TREES)),
        ("24.12", After("24.11", TREES)),
    ]
};

#[test]
#[ignore = "builds the course"]
fn days_without_their_challenges_are_yours_and_a_run_that_needs_one_says_so() {
    let course = Course::open();
    let repo = Repo::open(&course.root).unwrap();
    let first: Vec<&str> = BEYOND_THE_CORE
        .iter()
        .filter_map(|(_, reached)| match reached {
            Reached::After(first, _) => Some(*first),
            Reached::By(_) => None,
        })
        .collect();
    for written in [&[][..], &first] {
        for day in &repo.days {
            course.write(&repo, day, |task| task.further && !written.contains(&&*task.id));
        }
        let run = |command: &str| {
            let (out, err, code) = course.run(&command.split(' ').collect::<Vec<_>>());
            (out, err, code, format!("{command}: "))
        };
        // Day 15 needs two tasks of day 12.
        let (out, err, code, what) = run("run -p a --max-new-tokens 4");
        let yours = "yours: days 0–14, 16–24; from the reference: day 15]";
        assert!(code == 0 && err.contains(yours) && err.contains("12.9"), "{what}{out}{err}");
        for flags in [
            "--loop day6",
            "--loop day7",
            "-p b",
            "-p b --cache paged",
            "--loop day15",
            "--draft-ngram 2",
            "--draft-ngram 2 --draft-tree 2x1",
            "--draft-model story-230k",
            "--num-beams 2 --early-stopping true --length-penalty 0",
            "--temperature 1 --seed 1 --top-p 0.9 --repetition-penalty 1.2",
            "--allow-regex [a-z]+",
            "--block dog",
            "--kernels mine",
            "--quantize q4_0 --kernels plain",
        ] {
            let (out, err, code, what) = run(&format!("run -p a --max-new-tokens 4 {flags}"));
            assert_eq!(code, 0, "{what}{out}{err}");
        }
        for (id, reached) in BEYOND_THE_CORE {
            let flags = match reached {
                Reached::By(flags) if written.is_empty() => flags,
                Reached::After(_, flags) if !written.is_empty() => flags,
                _ => continue,
            };
            let (out, err, code, what) = run(&format!("run -p a --max-new-tokens 4 {flags}"));
            let named = format!(" needs task {id}, which is not written yet: ");
            assert!(err.contains(&named), "{id}: {what}{err}");
            assert!(
                code == 1 && out.is_empty() && !err.contains("[loop"),
                "{id}: {what}{out}{err}"
            );
        }
        let (out, err, code, what) = run("list --score");
        assert!(code == 0 && out.contains("day 23's loop"), "{what}{out}{err}");
    }
}

#[test]
#[ignore = "builds the course"]
fn day_6s_loop_runs_before_its_stream_is_written() {
    let course = Course::open();
    let repo = Repo::open(&course.root).unwrap();
    course.write(&repo, repo.day("6").unwrap(), |task| {
        ["6.4", "6.5", "6.6", "6.7", "6.8"].contains(&&*task.id)
    });
    let text = ["--loop", "day6", "-p", "Once upon a time", "--max-new-tokens", "12"];
    let run = |days: &[&str]| course.run(&[&["run"], days, &text].concat());
    let (want, ..) = run(&["--solution", "ref"]);
    let (out, err, code) = run(&["--mine", "6"]);
    assert_eq!((&*out, code), (&*want, 0), "{err}");
    assert!(err.contains("yours: day 6;") && err.contains("tasks 6.4, 6.5, 6.6]"), "{err}");
    // The other loops need all of the day.
    let (_, err, code) = course.run(&["run", "--mine", "6", "-p", "Once"]);
    assert!(code == 1 && err.contains("error: task 6.6 is not written yet: "), "{err}");
}

/// Code that gives the right results, or none at all, but gains nothing: the day, what the
/// reference has, and what is there instead.
const GAIN_NOTHING: [(&str, &str, &str); 15] = [
    (
        "day04_attention_block.rs",
        "let view = cache.append(self.layer_idx, &k, &v)?;",
        "let group = q.dim(1)? / k.dim(1)?;
        let each = |x: &Tensor| -> Result<Tensor> {
            let (b, heads, t, d) = x.dims4()?;
            x.unsqueeze(2)?.repeat((1, 1, group, 1, 1))?.reshape((b, heads * group, t, d))
        };
        let view = cache.append(self.layer_idx, &each(&k)?, &each(&v)?)?;",
    ),
    ("day05_model.rs", "self.head(&step.chosen(&x)?)", "step.chosen(&self.head(&x)?)"),
    (
        "day06_generate.rs",
        "let logits = model.forward(&Step::new(model, ids, 0)?, &mut NoCache)?.i(0)?;",
        "let rows = (1..=ids.len()).map(|len| {
        let logits = next_logits(model, &ids[..len])?;
        Tensor::new(logits, model.device())
    });
    let logits = Tensor::stack(&rows.collect::<Result<Vec<_>>>()?, 0)?;",
    ),
    (
        "day07_greedy.rs",
        "pub fn push(&mut self, text: &str) -> (String, bool) {",
        "pub fn push(&mut self, text: &str) -> (String, bool) {
        if self.stops.iter().all(|stop| stop.len() < 1000) {
            return (text.to_string(), false);
        }",
    ),
    (
        "day08_sampling.rs",
        "pub fn top_k(logits: &mut [f32], k: usize) -> Result<()> {",
        "pub fn top_k(logits: &mut [f32], k: usize) -> Result<()> {
    let k = k + logits.len();",
    ),
    (
        "day09_penalties.rs",
        "pub fn penalties(params: &SamplingParams) -> Result<Vec<Rc<dyn LogitsProcessor>>> {",
        "pub fn penalties(params: &SamplingParams) -> Result<Vec<Rc<dyn LogitsProcessor>>> {
    let params = &SamplingParams { seed: params.seed, ..SamplingParams::default() };",
    ),
    (
        "day10_kv_cache.rs",
        "let keep = common.min(self.cache.len())",
        "let keep = 0 * common.min(self.cache.len())",
    ),
    (
        "day11_beam_search.rs",
        "    params.check()?;\n",
        "    params.check()?;\n    let params = &BeamParams { num_beams: 1, ..*params };\n",
    ),
    (
        "day13_speculative.rs",
        "while accepted < draft.len() && draft[accepted]",
        "while accepted + 1000 < draft.len() && draft[accepted]",
    ),
    (
        "day14_guard_rails.rs",
        "let mut allowed = self.legal(state, first).to_vec();",
        "let mut allowed = vec![true; self.legal(state, first).len()];",
    ),
    ("day15_scheduler.rs", "while self.has_room() {", "while self.running.is_empty() {"),
    (
        "day20_serve.rs",
        "if job.connection.is_closed() {",
        "if job.connection.is_closed() && job.n > 1000 {",
    ),
    (
        "day22_shared_prefixes.rs",
        "let most = tokens.len().saturating_sub(1) / block_size;",
        "let most = tokens.len() / block_size / 1000;",
    ),
    (
        "day23_token_budget.rs",
        "let budget = self.limits.max_num_batched_tokens;",
        "let budget = 512.max(self.limits.max_num_batched_tokens);",
    ),
    (
        "day24_draft_trees.rs",
        ".find(|child| tree.tokens[*child] == next)",
        ".find(|child| *child > 1000 && tree.tokens[*child] == next)",
    ),
];

/// What a day counts is what the reader's code does: code that gains nothing has other numbers than
/// the reference.
#[test]
#[ignore = "builds the course"]
fn a_day_that_gains_nothing_counts_nothing_gained() {
    let course = Course::open();
    let mut days = Vec::new();
    for (path, find, replace) in GAIN_NOTHING {
        course.write_day(path, &[(find, replace)]);
        days.push(path[3..5].trim_start_matches('0'));
    }
    let days = days.join(",");
    let (reference, code) = course.say(&["bench", "--rounds", "0", "--solution", "ref"]);
    assert_eq!(code, 0, "{reference}");
    let (yours, code) = course.say(&["bench", "--rounds", "0", "--mine", &days]);
    assert_eq!(code, 0, "{yours}");
    for day in days.split(',') {
        let table = |text: &str| {
            let (_, from) = text.split_once(&format!("day {day} ")).unwrap();
            from.split("\nday ").next().unwrap().to_string()
        };
        let (reference, yours) = (table(&reference), table(&yours));
        let row = |table: &str| table.lines().nth(1).unwrap().to_string();
        assert_ne!(row(&reference), row(&yours), "day {day} gains as much");
    }
}
