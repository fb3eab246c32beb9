//! Scores the reader's engine by replaying day 15's trace of 24 requests.
//!
//! The last score is in the target directory, as JSON.

use crate::backup;
use crate::cargo::{self, Built};
use crate::child;
use crate::engine;
use crate::host;
use crate::term::{paint, Color};
use crate::{note, say};
use anyhow::{bail, Context, Result};
use candecode_course::{Day, Repo, SCORED_DAYS};
use serde_json::{json, Value};
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::SystemTime;

/// The day whose trace is replayed. Its oracle has the texts that transformers generates for it.
const TRACE: &str = "day15_scheduler";
/// The table's rows: title, field, decimals and unit.
const ROWS: [(&str, &str, usize, &str); 5] = [
    ("passes of the model", "passes", 0, ""),
    ("positions computed", "positions", 0, ""),
    ("positions wasted", "wasted", 0, ""),
    ("tokens per second", "tokens per second", 0, ""),
    ("time to first token", "first token", 3, " s"),
];

/// Replays the trace with the reader's days, prints the score next to the last one, and saves it.
///
/// # Errors
/// If the engine doesn't compile or its loop fails, or if the score or its oracle can't be read.
pub fn measure(repo: &Repo) -> Result<()> {
    let (built, mine) = engine::build_with_written_days(repo)?;
    let Built::Done(programs) = built else {
        bail!("the engine doesn't compile with your days: see above");
    };
    let yours = |day: &&u32| mine.iter().any(|mine| mine.number == **day);
    let day = *SCORED_DAYS.iter().rev().find(yours).unwrap_or(&7);
    let mut command = Command::new(programs.get("candecode")?);
    host::set_threads(&mut command);
    command.args(["--score", &day.to_string()]).stdin(Stdio::null()).stdout(Stdio::piped());
    let mut engine = command.spawn().context("cannot start the engine")?;
    // The last line is the score. Those before it are what the days print.
    let lines = engine.stdout.take().map(|pipe| BufReader::new(pipe).split(b'\n'));
    let last_line = lines.into_iter().flatten().map_while(Result::ok).last();
    let status = engine.wait()?;
    if !status.success() {
        bail!("day {day}'s loop didn't finish the trace: {}", child::words_of(status));
    }
    let mut score: Value =
        serde_json::from_slice(&last_line.unwrap_or_default()).context("the engine's score")?;
    let path = Day::from_name(TRACE).context(TRACE)?.oracle("json");
    let oracle: Value = serde_json::from_str(&repo.read(&path)?).context(path)?;
    let texts = |from: &Value| from["texts"].as_array().cloned().unwrap_or_default();
    let (got, want) = (texts(&score), texts(&oracle["trace"]));
    score["different"] = json!((0..want.len()).filter(|&at| got.get(at) != want.get(at)).count());
    score["tokens per second"] = json!(number(&score, "tokens") / number(&score, "seconds"));
    score["date"] = json!(humantime::format_rfc3339_seconds(SystemTime::now()).to_string());
    score.as_object_mut().and_then(|fields| fields.remove("texts"));
    print(&score, last(repo).as_ref());
    if let Some(next) = SCORED_DAYS.iter().find(|next| **next > day) {
        say!("The next day that changes how these requests are served: day {next}");
    }
    if let Err(problem) = backup::write(&file(repo), score.to_string().as_bytes()) {
        note!("(couldn't save this score: {problem:#})");
    }
    Ok(())
}

/// Returns the last score, if there is one.
fn last(repo: &Repo) -> Option<Value> {
    let score: Value = serde_json::from_slice(&backup::read(&file(repo))?).ok()?;
    score["different"].is_u64().then_some(score)
}

/// Prints a score, next to an earlier one if there is one.
fn print(score: &Value, before: Option<&Value>) {
    let (day, whose) = (&score["loop"], score["whose"].as_str().unwrap_or_default());
    say!("24 requests arrive at once and are served by day {day}'s loop ({whose})\n");
    let heads = [Some("now".to_string()), before.map(day_of)];
    let line = |name: &str, cells: [Option<String>; 2]| {
        let cells = cells.into_iter().flatten().map(|cell| format!("{cell:>14}"));
        say!("  {name:<20}{}", cells.collect::<String>());
    };
    line("", heads);
    for (title, field, decimals, unit) in ROWS {
        let cell = |score| format!("{:.decimals$}{unit}", number(score, field));
        line(title, [Some(cell(score)), before.map(cell)]);
    }
    let (color, words) = match score["different"].as_u64() {
        Some(0) => (Color::Green, "equal to transformers".to_string()),
        some => {
            (Color::Red, format!("{} of 24 texts differ from transformers", some.unwrap_or(24)))
        }
    };
    say!("  texts               {}\n", paint(color, &words));
}

fn file(repo: &Repo) -> PathBuf {
    cargo::target_dir(repo).join("candecode/score.json")
}

/// Returns the date of a score, without the time.
fn day_of(score: &Value) -> String {
    score["date"].as_str().unwrap_or("earlier").chars().take(10).collect()
}

fn number(score: &Value, field: &str) -> f64 {
    score[field].as_f64().unwrap_or_default()
}
