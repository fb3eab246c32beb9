//! `cargo xtask hunt`: a game for those who are done. One known mistake is in the engine; find it
//! by what it writes.
//!
//! The engine is a copy of the course in the target directory whose `src/` holds one day of the
//! reference with a known mistake in it (`tests/wrong/dayNN.toml`); all other days are compiled
//! from the reference. `src/` is not touched.

use anyhow::{anyhow, bail, Context, Result};
use clap::Args;
use std::borrow::Cow;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use toml::{Table, Value};
use xtask::backup;
use xtask::cargo::{self, Built};
use xtask::child::{self, End};
use xtask::commands::diff::changed_lines;
use xtask::host;
use xtask::repo::{Day, Repo};
use xtask::term::{paint, readable, Colour};
use xtask::{note, say};

/// The flags of `hunt`.
#[derive(Args)]
pub struct Hunt {
    /// Which day the mistake is in: `day6` or `6`; without it, any
    #[arg(value_name = "DAY")]
    day: Option<String>,
    /// The same hunt again
    #[arg(long)]
    seed: Option<u64>,
    /// Where the engine runs: cpu, metal or cuda
    #[arg(long, default_value = "cpu")]
    device: String,
}

/// How many mistakes are tried until one is seen from outside.
const TRIES: usize = 8;
/// How many diagnoses there are to choose from.
const CHOICES: usize = 5;
/// A probe takes no longer than this: some mistakes never end.
const LIMIT: Duration = Duration::from_secs(120);

/// What tells mistakes from outside: each goes another way through the engine.
const PROBES: [&str; 12] = [
    "Once upon a time",
    "--temperature 0.9 --top-k 20 --top-p 0.9 --min-p 0.02 --seed 3 -p One day",
    "--repetition-penalty 1.3 --presence-penalty 0.5 --frequency-penalty 0.3 --no-repeat-ngram 2 \
     -p The dog",
    "--repetition-penalty 1.5 --penalty-window 5 -p The dog",
    "--num-beams 3 --num-return-sequences 2 -p The cat",
    "-p Once -p The little dog was sad. He",
    "--loop day15 -p Once upon a time",
    "--draft-model story-230k -p Once upon a time",
    "--draft-ngram 2 -p The dog ran. The dog",
    "--block dog -p The",
    "--allow-regex [a-z,\\s]*\\. -p The",
    "--model story-gpt2-1m -p Once upon",
];

const HELP: &str = "\
One known mistake is in the engine. Probe it until you know it:
  a text                          continues it
  --seed 3 --stats -p a text      any flags of `cargo xtask run`, texts last
  ref …                           the same probe of the reference
  guess                           name the mistake
  quit                            give up, and see it";

/// Runs `hunt`. The exit code is 0 if the mistake was named.
///
/// # Errors
/// Bad usage; or an engine that cannot be built.
pub fn run(repo: &Repo, args: &Hunt) -> Result<ExitCode> {
    let device = args.device.as_str();
    host::device_feature(device)?; // refused before anything is built
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(1, |d| d.as_secs() % 100_000);
    let seed = args.seed.unwrap_or(now);
    let pick = |n: usize| seed as usize % n.max(1);
    let day = match &args.day {
        Some(day) => repo.day(day)?,
        None => &repo.days[pick(repo.days.len())],
    };
    note!("The engine is built twice: right, and with a mistake in day {}.", day.number);
    let dir = cargo::target_dir(repo).join("xtask/hunt");
    copy_changed(&repo.root, &dir.join("course"))?;
    let reference =
        build(repo, &repo.root, &dir, with(repo.features(|_| true), device)?, "reference")?;
    let source = repo.read(&day.solution())?;
    let mut bank = mistakes(repo, day)?;
    let first = pick(bank.len());
    bank.rotate_left(first);
    let (engine, wrong) = seen_from_outside(repo, &dir, day, &source, &bank, &reference, device)?;
    let (name, diagnosis) = (wrong.name.clone(), wrong.diagnosis.clone());

    say!("\n{}  (the same again: --seed {seed})\n{HELP}", paint(Colour::Bold, &day.title()));
    let mut choices: Vec<&str> = bank.iter().map(|other| other.diagnosis.as_str()).collect();
    choices.retain(|other| *other != diagnosis);
    choices.truncate(CHOICES - 1);
    choices.push(&diagnosis);
    choices.sort_unstable(); // by letter: no place is likelier than another
    let (mut probes, mut named) = (0, false);
    while let Some(line) = ask(&format!("\nprobe {}> ", probes + 1)) {
        match line.trim() {
            "" => continue,
            "quit" | "q" => break,
            "help" | "?" => say!("{HELP}"),
            "guess" | "g" => {
                say!("\nWhat is wrong?");
                for (at, choice) in choices.iter().enumerate() {
                    say!("  {}  {choice}", at + 1);
                }
                let number = ask("number> ").and_then(|line| line.trim().parse::<usize>().ok());
                let Some(choice) = number.and_then(|n| choices.get(n.checked_sub(1)?)) else {
                    say!("a number from 1 to {}, please: guess again", choices.len());
                    continue;
                };
                named = *choice == diagnosis;
                break;
            }
            line => {
                let asked = line.strip_prefix("ref ");
                let program = if asked.is_some() { &reference } else { &engine };
                say!("{}", readable(&probe(repo, program, device, asked.unwrap_or(line))?));
                probes += 1;
            }
        }
    }
    let verdict = if named { "Right" } else { "Not found" };
    say!("\n{}", paint(Colour::Bold, &format!("{verdict}, after {probes} probes.")));
    say!("It was {name}: {diagnosis}\n{}:", day.solution());
    changed_lines(&source, &wrong.text, |_| true).iter().for_each(|line| say!("  {line}"));
    say!("What catches it: cargo xtask teeth day{}", day.number);
    Ok(ExitCode::from(u8::from(!named)))
}

/// The engine of the reference, or the one that has this known mistake (its day and name).
///
/// # Errors
/// If there is no such mistake, or the engine does not build.
pub fn engine(repo: &Repo, dir: &Path, mistake: Option<&(String, String)>) -> Result<PathBuf> {
    let Some((day, name)) = mistake else {
        return build(repo, &repo.root, dir, repo.features(|_| true), "reference");
    };
    let features = mistaken_course(repo, dir, day, name)?;
    build(repo, &dir.join("course"), dir, features, name)
}

/// Makes a copy of the course, `dir/course`, with a known mistake in its `src/`. Gives the features
/// with which all other days are the reference's.
///
/// # Errors
/// If there is no such mistake, or the copy cannot be written.
pub fn mistaken_course(repo: &Repo, dir: &Path, day: &str, name: &str) -> Result<Vec<String>> {
    copy_changed(&repo.root, &dir.join("course"))?;
    let day = repo.day(day)?;
    let bank = mistakes(repo, day)?;
    let found = bank.iter().find(|mistake| mistake.name == *name);
    let found = found.with_context(|| format!("day {} has no mistake `{name}`", day.number))?;
    write_mistake(repo, dir, day, found)
}

/// Builds the engine of the copy, with a mistake in it.
fn build_mistaken(
    repo: &Repo,
    dir: &Path,
    day: &Day,
    mistake: &Mistake,
    device: &str,
) -> Result<PathBuf> {
    let features = with(write_mistake(repo, dir, day, mistake)?, device)?;
    build(repo, &dir.join("course"), dir, features, &mistake.name)
}

/// These features, and the one that the device needs.
fn with(mut features: Vec<String>, device: &str) -> Result<Vec<String>> {
    features.extend(host::device_feature(device)?.map(str::to_string));
    Ok(features)
}

/// Writes the mistake into the copy's `src/`; the features with which it is compiled.
fn write_mistake(repo: &Repo, dir: &Path, day: &Day, mistake: &Mistake) -> Result<Vec<String>> {
    // The mistakes' own warnings are no help, and would name them.
    let text = format!("#![allow(warnings)]\n{}", mistake.text);
    backup::write(&dir.join("course").join(day.src()), text.as_bytes())?;
    Ok(repo.features(|other| other != day))
}

/// A known mistake: the reference with its edits.
struct Mistake {
    name: String,
    diagnosis: String,
    text: String,
}

/// All known mistakes of a day, as the root's `build.rs` makes them for the checks.
fn mistakes(repo: &Repo, day: &Day) -> Result<Vec<Mistake>> {
    let path = format!("tests/wrong/day{:02}.toml", day.number);
    let source = repo.read(&day.solution())?;
    let table: Table = repo.read(&path)?.parse().map_err(|e| anyhow!("{path}: {e}"))?;
    let field = |entry: &Value, key: &str| {
        let text = entry.get(key).and_then(Value::as_str);
        text.map(str::to_string).with_context(|| format!("{path}: an entry lacks {key}"))
    };
    let mut all = Vec::new();
    for entry in table.get("mistake").and_then(Value::as_array).into_iter().flatten() {
        let alone = vec![entry.clone()];
        let edits = entry.get("edits").and_then(Value::as_array).unwrap_or(&alone);
        let mut text = source.clone();
        for edit in edits {
            let (find, replace) = (field(edit, "find")?, field(edit, "replace")?);
            text = text.replacen(find.trim_matches('\n'), replace.trim_matches('\n'), 1);
        }
        all.push(Mistake {
            name: field(entry, "name")?,
            diagnosis: field(entry, "diagnosis")?,
            text,
        });
    }
    Ok(all)
}

/// The first mistake that some probe shows, and the engine that has it.
fn seen_from_outside<'a>(
    repo: &Repo,
    dir: &Path,
    day: &Day,
    source: &str,
    bank: &'a [Mistake],
    reference: &Path,
    device: &str,
) -> Result<(PathBuf, &'a Mistake)> {
    for mistake in bank.iter().take(TRIES).filter(|mistake| mistake.text != source) {
        let engine = build_mistaken(repo, dir, day, mistake, device)?;
        for flags in PROBES {
            if probe(repo, &engine, device, flags)? != probe(repo, reference, device, flags)? {
                return Ok((engine, mistake));
            }
        }
        note!("(this one cannot be seen from outside: another)");
    }
    bail!(
        "{TRIES} mistakes of day {} cannot be seen from outside: try another day, or seed",
        day.number
    )
}

/// Builds an engine, of the course or of its copy, and keeps the program: the next build replaces
/// it.
fn build(
    repo: &Repo,
    course: &Path,
    dir: &Path,
    features: Vec<String>,
    name: &str,
) -> Result<PathBuf> {
    let manifest = course.join("Cargo.toml").display().to_string();
    let target = cargo::target_dir(repo).display().to_string();
    let args = ["--manifest-path", &manifest, "--target-dir", &target, "--offline", "--bin"];
    let mut args: Vec<String> = args.map(String::from).to_vec();
    args.extend(["candecode".into(), "--features".into(), features.join(",")]);
    let next = format!("Building the engine ({name}); then it can be probed.");
    let Built::Done(programs) = cargo::build(repo, "build", &args, &next)? else {
        bail!("the engine does not build; `cargo xtask doctor` looks for usual causes");
    };
    fs::create_dir_all(dir).with_context(|| dir.display().to_string())?;
    let kept = dir.join(format!("{name}{}", std::env::consts::EXE_SUFFIX));
    fs::copy(programs.get("candecode")?, &kept).with_context(|| kept.display().to_string())?;
    Ok(kept)
}

/// Makes the copy what the course is, but for what no engine needs. Files that are the same stay:
/// cargo goes by times.
fn copy_changed(from: &Path, to: &Path) -> Result<()> {
    const LEFT_OUT: [&str; 6] = [".git", ".candecode", "target", "book", "models", "oracle"];
    for entry in fs::read_dir(from).with_context(|| from.display().to_string())? {
        let (path, name) = entry.map(|entry| (entry.path(), entry.file_name()))?;
        if path.is_dir() {
            let needed =
                path.join("Cargo.toml").exists() || !LEFT_OUT.iter().any(|out| name == *out);
            if needed {
                copy_changed(&path, &to.join(name))?;
            } else if path.join("live/Cargo.toml").exists() {
                // Of the book only its live figures, which are a member of the workspace.
                copy_changed(&path.join("live"), &to.join(name).join("live"))?;
            }
        } else {
            let mut bytes = fs::read(&path).with_context(|| path.display().to_string())?;
            if name == "Cargo.toml" {
                bytes = another_version(String::from_utf8_lossy(&bytes)).into_bytes();
            }
            if fs::read(to.join(&name)).ok().as_ref() != Some(&bytes) {
                fs::create_dir_all(to)?;
                fs::write(to.join(&name), bytes).with_context(|| path.display().to_string())?;
            }
        }
    }
    Ok(())
}

/// A manifest in which the workspace has another version. Cargo tells packages in one target directory apart
/// by name and version: with the same, it would take what the copy was compiled to for the
/// reader's own, and would not see what the reader changes.
fn another_version(manifest: Cow<'_, str>) -> String {
    let Some((before, after)) = manifest.split_once("[workspace.package]\nversion = \"") else {
        return manifest.into_owned();
    };
    let after = after.replacen('"', "-copy\"", 1);
    format!("{before}[workspace.package]\nversion = \"{after}")
}

/// Runs a probe, flags or a text: what the engine wrote, and how it ended, unless well.
fn probe(repo: &Repo, program: &Path, device: &str, line: &str) -> Result<String> {
    let mut command = Command::new(program);
    if device != "cpu" {
        command.args(["--device", device]);
    }
    let line = if line.starts_with('-') { line.to_string() } else { format!("-p {line}") };
    let (flags, texts) = line.split_once("-p ").unwrap_or((&line, ""));
    command.args(flags.split_whitespace());
    if !flags.contains("--max-new-tokens") {
        command.args(["--max-new-tokens", "32"]);
    }
    for text in texts.split(" -p ").filter(|text| !text.is_empty()) {
        command.args(["-p", text]);
    }
    if std::env::var_os("CANDECODE_MODELS").is_none() {
        command.env("CANDECODE_MODELS", repo.root.join("models"));
    }
    host::set_threads(&mut command);
    let out = child::run(&mut command, LIMIT, |_| ())?;
    let said = out.stderr.lines().filter(|line| !line.starts_with('[') || line.contains("error"));
    let end = match out.end {
        End::Exit(0) => String::new(),
        End::Exit(_) => said.collect::<Vec<_>>().join("\n"),
        End::Died(why) => why,
        End::TimedOut => format!("stopped after {} s", LIMIT.as_secs()),
    };
    Ok(format!("{}\n{end}", out.stdout.trim_end()).trim_end().to_string())
}

/// A line of the reader's; `None` at the end of the input.
fn ask(prompt: &str) -> Option<String> {
    print!("{prompt}");
    let _ = std::io::stdout().flush();
    std::io::stdin().lines().next()?.ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_copy_is_another_package() -> Result<()> {
        let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../../Cargo.toml");
        let ours = fs::read_to_string(root)?;
        let copy = another_version(Cow::Borrowed(&ours));
        let version = |manifest: &str| -> Result<String> {
            let table: Table = manifest.parse()?;
            Ok(table["workspace"]["package"]["version"].as_str().unwrap_or_default().to_string())
        };
        assert_eq!(version(&copy)?, version(&ours)? + "-copy");
        Ok(())
    }
}
