//! `cargo xtask hunt`: a game for readers who have finished the course. The engine contains one
//! known mistake, which the reader finds from its output.

use crate::mistaken_engine::{mistaken, reference};
use anyhow::{bail, Result};
use candecode_course::{Day, Mistake, Repo};
use clap::Args;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use xtask::child::{self, End};
use xtask::commands::diff::changed_lines;
use xtask::host;
use xtask::term::{paint, readable, Color};
use xtask::{note, say};

/// The flags of `hunt`.
#[derive(Args)]
pub struct Hunt {
    /// The day to put the mistake in: `day6` or `6` [default: any]
    #[arg(value_name = "DAY")]
    day: Option<String>,
    /// The seed of an earlier hunt, to repeat it
    #[arg(long)]
    seed: Option<u64>,
    /// The device to run on: cpu, metal or cuda
    #[arg(long, default_value = "cpu")]
    device: String,
}

/// The maximum number of mistakes to try before giving up on finding one that a probe exposes.
const TRIES: usize = 8;
/// The number of diagnoses to choose from.
const CHOICES: usize = 5;
/// The time limit for a probe, because with some mistakes the engine never stops.
const LIMIT: Duration = Duration::from_secs(120);

/// Probes that may expose a mistake in the output. Each takes a different path through the engine.
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
The engine contains one known mistake. Probe it until you know which:
  a text                          continues it
  --top-k 5 --seed 3 -p a text    any flags of `cargo xtask run`, texts last
  ref …                           runs the same probe on the reference
  guess                           names the mistake
  quit                            gives up and shows it";

/// Runs `hunt`. The exit code is 0 if the reader named the mistake.
///
/// # Errors
/// If the usage is wrong, or an engine can't be built.
pub fn run(repo: &Repo, args: &Hunt) -> Result<ExitCode> {
    let feature = host::device_feature(&args.device)?; // rejected before anything is built
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(1, |d| d.as_secs() % 100_000);
    let seed = args.seed.unwrap_or(now);
    let pick = |n: usize| seed as usize % n.max(1);
    let day = match &args.day {
        Some(day) => repo.day(day)?,
        None => &repo.days[pick(repo.days.len())],
    };
    note!("Building the engine twice: without a mistake, and with one in day {}.", day.number);
    let mut bank = repo.mistakes(day)?.mistakes;
    let first = pick(bank.len());
    bank.rotate_left(first);
    let hunted = Hunted::find(repo, args, feature, day, &bank)?;
    say!("\n{}  (to repeat it: --seed {seed})\n{HELP}", paint(Color::Bold, &day.title()));
    let mut choices: Vec<&str> = bank.iter().map(|other| other.diagnosis.as_str()).collect();
    choices.retain(|other| *other != hunted.mistake.diagnosis);
    choices.truncate(CHOICES - 1);
    choices.push(&hunted.mistake.diagnosis);
    choices.sort_unstable(); // alphabetical, so the order reveals nothing
    let (probes, named) = hunted.play(&choices)?;
    let verdict = if named { "Right" } else { "Not found" };
    say!("\n{}", paint(Color::Bold, &format!("{verdict}, after {probes} probes.")));
    let Mistake { name, diagnosis, .. } = hunted.mistake;
    say!("It was {name}: {diagnosis}\n{}:", day.solution());
    let source = repo.read(&day.solution())?;
    let changed = changed_lines(&source, &hunted.mistake.change.applied_to(&source)?, |_| true);
    changed.iter().for_each(|line| say!("  {line}"));
    say!("To see which checks catch it: cargo xtask mistakes day{}", day.number);
    Ok(ExitCode::from(u8::from(!named)))
}

/// A mistake, and the two engines to compare.
struct Hunted<'a> {
    repo: &'a Repo,
    device: &'a str,
    reference: PathBuf,
    engine: PathBuf,
    mistake: &'a Mistake,
}

impl<'a> Hunted<'a> {
    /// Returns the first mistake in the bank that a probe exposes.
    fn find(
        repo: &'a Repo,
        args: &'a Hunt,
        feature: Option<&str>,
        day: &Day,
        bank: &'a [Mistake],
    ) -> Result<Self> {
        let (device, reference) = (args.device.as_str(), reference(repo, feature)?);
        for mistake in bank.iter().take(TRIES) {
            let engine = mistaken(repo, day, mistake, feature)?;
            for flags in PROBES {
                let right = probe(repo, &reference, device, flags)?;
                if probe(repo, &engine, device, flags)? != right {
                    return Ok(Hunted { repo, device, reference, engine, mistake });
                }
            }
            note!("(no probe exposes this mistake; trying another)");
        }
        let number = day.number;
        bail!("no probe exposes {TRIES} of day {number}'s mistakes; try another day or seed")
    }

    /// Answers probes until the reader guesses or gives up. Returns the number of probes, and
    /// whether the guess was right.
    fn play(&self, choices: &[&str]) -> Result<(usize, bool)> {
        let mut probes = 0;
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
                    match number.and_then(|n| choices.get(n.checked_sub(1)?)) {
                        Some(choice) => return Ok((probes, *choice == self.mistake.diagnosis)),
                        None => say!("enter a number from 1 to {}; guess again", choices.len()),
                    }
                }
                line => {
                    let (program, line) = match line.strip_prefix("ref ") {
                        Some(line) => (&self.reference, line),
                        None => (&self.engine, line),
                    };
                    say!("{}", readable(&probe(self.repo, program, self.device, line)?));
                    probes += 1;
                }
            }
        }
        Ok((probes, false))
    }
}

/// Runs a probe (flags or a text). Returns the engine's output, followed by the error if it failed.
fn probe(repo: &Repo, program: &Path, device: &str, line: &str) -> Result<String> {
    let mut command = Command::new(program);
    if device != "cpu" {
        command.args(["--device", device]);
    }
    let (flags, texts) = flags_and_texts(line);
    command.args(flags.split_whitespace());
    if !flags.contains("--max-new-tokens") {
        command.args(["--max-new-tokens", "32"]);
    }
    for text in texts {
        command.arg(format!("--prompt={text}")); // in this form, a text may begin with a dash
    }
    if std::env::var_os("CANDECODE_MODELS").is_none() {
        command.env("CANDECODE_MODELS", repo.root.join("models"));
    }
    host::set_threads(&mut command);
    let out = child::run(&mut command, LIMIT)?;
    let said = out.stderr.lines().filter(|line| !line.starts_with('[') || line.contains("error"));
    let end = match out.end {
        End::Exit(0) => String::new(),
        End::Exit(_) => said.collect::<Vec<_>>().join("\n"),
        End::Died(why) => why,
        End::TimedOut => format!("stopped after {} s", LIMIT.as_secs()),
    };
    Ok(format!("{}\n{end}", out.stdout.trim_end()).trim_end().to_string())
}

/// Splits a probe into its flags and its texts.
fn flags_and_texts(line: &str) -> (&str, Vec<&str>) {
    let (flags, texts) = match line.strip_prefix("-p ") {
        Some(texts) => ("", texts),
        None if line.starts_with('-') => line.split_once(" -p ").unwrap_or((line, "")),
        None => ("", line),
    };
    (flags, texts.split(" -p ").filter(|text| !text.is_empty()).collect())
}

/// Reads a line from the reader. Returns `None` at the end of the input.
fn ask(prompt: &str) -> Option<String> {
    print!("{prompt}");
    let _ = std::io::stdout().flush();
    std::io::stdin().lines().next()?.ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_ending_in_p_are_not_taken_for_prompts() {
        for (line, flags, texts) in [
            ("Once upon a time", "", &["Once upon a time"][..]),
            ("-p Once -p The dog", "", &["Once", "The dog"]),
            ("--top-p 0.9 --min-p 0.1 -p One day", "--top-p 0.9 --min-p 0.1", &["One day"]),
            ("--top-p 0.9", "--top-p 0.9", &[]),
        ] {
            assert_eq!(flags_and_texts(line), (flags, texts.to_vec()), "{line}");
        }
        for probe in PROBES {
            let (flags, texts) = flags_and_texts(probe);
            assert!(!texts.is_empty() && !flags.contains(" -p "), "{probe}");
            assert!(!texts.iter().any(|text| text.contains("--")), "{probe}");
        }
    }
}
