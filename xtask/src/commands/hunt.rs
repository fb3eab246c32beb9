//! `cargo xtask hunt`: a game for those who are done. One known mistake is in the engine; find it by what it writes.

use crate::compare;
use crate::error::usage;
use crate::hunt::bank::{self, Dice, Mistake};
use crate::hunt::engine::{Answer, Engine, Workshop};
use crate::hunt::game::{self, Ask, Riddle, Score};
use crate::note;
use crate::paint::{paint, Colour};
use crate::repo::{Day, Repo};
use crate::say;
use anyhow::{bail, Result};
use clap::Args;
use std::io::{BufRead, Write};
use std::process::ExitCode;
use std::time::{SystemTime, UNIX_EPOCH};

/// The flags of `hunt`.
#[derive(Args)]
pub struct Hunt {
    /// Which day the mistake is in: `day6` or `6`; without it, any
    #[arg(value_name = "DAY")]
    day: Option<String>,
    /// The same hunt again
    #[arg(long)]
    seed: Option<u64>,
}

/// How many mistakes are tried until one is seen from outside.
const TRIES: usize = 8;
/// How many other diagnoses there are to choose from.
const OTHERS: usize = 4;

/// What tells mistakes from outside: each goes another way through the engine.
const PROBES: [&str; 12] = [
    "logits Lily and Tom",
    "-p 'Once upon a time' --max-new-tokens 40",
    "-p 'One day' --temperature 0.9 --top-k 20 --top-p 0.9 --min-p 0.02 --seed 3 --max-new-tokens 32",
    "-p 'The dog' --repetition-penalty 1.3 --presence-penalty 0.5 --frequency-penalty 0.3 --no-repeat-ngram 2 --max-new-tokens 40",
    "-p 'The cat' --num-beams 3 --num-return-sequences 2 --max-new-tokens 24",
    "-p Once -p 'The little dog was sad. He' --max-new-tokens 24",
    "-p 'Once upon a time' --loop day15 --max-new-tokens 24",
    "-p 'Once upon a time' --draft-model story-230k --max-new-tokens 32",
    "-p 'The dog ran. The dog' --draft-ngram 2 --max-new-tokens 32",
    "-p 'The' --block dog --max-new-tokens 40",
    "-p 'The' --allow-regex '[a-z ,]*\\.' --max-new-tokens 24",
    "--model story-gpt2-1m -p 'Once upon' --max-new-tokens 24",
];

const HELP: &str = "\
One known mistake is in the engine. Probe it until you know it:
  a text                    continues it
  flags, as -p Lily --seed 3 --temperature 0.8 --stats
                            any flags of `cargo xtask run`
  logits a text             the scores of what comes next
  ref …                     the same probe of the reference (costs twice as much)
  guess                     name the mistake and its line
  quit                      give up, and see it";

/// Runs `hunt`. The exit code is 0 if the mistake was named.
///
/// # Errors
/// Bad usage; or an engine that cannot be built.
pub fn run(repo: &Repo, args: &Hunt) -> Result<ExitCode> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(1, |d| d.as_secs() % 100_000);
    let seed = args.seed.unwrap_or(now);
    let mut dice = Dice::new(seed);
    let day = match &args.day {
        Some(day) => repo.day(day)?,
        None if repo.days.is_empty() => return Err(usage("there is no day to hunt in")),
        None => &repo.days[dice.below(repo.days.len())],
    };
    let all = bank::read(repo, day)?;
    note!("The engine is built twice: right, and with a mistake in day {}.", day.number);
    let shop = Workshop::open(repo)?;
    let reference = shop.reference()?;
    let (engine, mistake) = choose(&shop, &reference, day, &all, &mut dice)?;
    let source = repo.read(&day.solution())?;
    let (wrong, lines) = mistake.apply(&source)?;
    let functions = game::functions(&source, &lines);
    let (choices, right) = game::choices(&mistake, &all, OTHERS, &mut dice);
    let riddle = Riddle { choices, right, lines, functions };
    say!("\n{}  (the same again: --seed {seed})\n{HELP}", paint(Colour::Bold, &day.title()));
    let score = play(repo, day, &engine, &reference, &riddle)?;
    reveal(day, &mistake, &source, &wrong, &riddle);
    let named = score.as_ref().is_some_and(|score| score.mistake > 0);
    if let Some(score) = score {
        say!(
            "{}  ({} for the mistake, {} for the line, {} for few probes)",
            paint(Colour::Bold, &format!("{} points of 100", score.sum())),
            score.mistake,
            score.line,
            score.probes
        );
    }
    Ok(ExitCode::from(u8::from(!named)))
}

/// Takes a mistake that at least one probe shows.
fn choose(
    shop: &Workshop,
    reference: &Engine,
    day: &Day,
    all: &[Mistake],
    dice: &mut Dice,
) -> Result<(Engine, Mistake)> {
    let mut order: Vec<&Mistake> = all.iter().collect();
    dice.shuffle(&mut order);
    for mistake in order.into_iter().take(TRIES) {
        let engine = shop.mistaken(day, mistake)?;
        for probe in PROBES {
            let Ask::Probe(words) = game::ask(probe) else { continue };
            let (theirs, right) = (engine.probe(&words)?, reference.probe(&words)?);
            if (&theirs.text, &theirs.end) != (&right.text, &right.end) {
                return Ok((engine, mistake.clone()));
            }
        }
        note!("(this one cannot be seen from outside: another)");
    }
    bail!(
        "{TRIES} mistakes of day {} cannot be seen from outside: try another day, or seed",
        day.number
    )
}

/// Probes until a guess; `None` if the reader gives up.
fn play(
    repo: &Repo,
    day: &Day,
    engine: &Engine,
    reference: &Engine,
    riddle: &Riddle,
) -> Result<Option<Score>> {
    let (mut probes, mut references) = (0, 0);
    loop {
        let Some(line) = read(&format!("\nprobe {}> ", probes + references + 1)) else {
            return Ok(None);
        };
        match game::ask(&line) {
            Ask::Nothing => {}
            Ask::Help => say!("{HELP}"),
            Ask::GiveUp => return Ok(None),
            Ask::Probe(words) => {
                probes += 1;
                show(&engine.probe(&words)?);
            }
            Ask::Reference(words) => {
                references += 1;
                show(&reference.probe(&words)?);
            }
            Ask::Guess => {
                say!("\nWhat is wrong?");
                for (at, choice) in riddle.choices.iter().enumerate() {
                    say!("  {}  {choice}", at + 1);
                }
                let Some(choice) = number(riddle.choices.len()) else { return Ok(None) };
                let last = repo.read(&day.solution())?.lines().count();
                say!("Which line of {} does it change? (1 to {last})", day.solution());
                let Some(line) = number(last) else { return Ok(None) };
                return Ok(Some(Score::of(riddle, choice - 1, line, probes, references)));
            }
        }
    }
}

/// Asks until there is a number from 1 to `last`; `None` at the end of the input.
fn number(last: usize) -> Option<usize> {
    loop {
        let line = read("number> ")?;
        match line.trim().parse::<usize>() {
            Ok(n) if (1..=last).contains(&n) => return Some(n),
            _ => say!("a number from 1 to {last}, please"),
        }
    }
}

/// A line of the reader's; `None` at the end of the input.
fn read(prompt: &str) -> Option<String> {
    let mut out = std::io::stdout();
    let _ = write!(out, "{prompt}");
    let _ = out.flush();
    let mut line = String::new();
    let read = std::io::stdin().lock().read_line(&mut line);
    matches!(read, Ok(n) if n > 0).then_some(line)
}

/// What a probe showed.
fn show(answer: &Answer) {
    say!("{}", answer.text.trim_end());
    if !answer.notes.trim().is_empty() {
        say!("{}", paint(Colour::Dim, answer.notes.trim_end()));
    }
    if let Some(end) = &answer.end {
        say!("{}", paint(Colour::Red, end));
    }
    say!("{}", paint(Colour::Dim, &format!("({:.2} s)", answer.time.as_secs_f64())));
}

/// The solution: what is wrong, and where.
fn reveal(day: &Day, mistake: &Mistake, source: &str, wrong: &str, riddle: &Riddle) {
    let lines: Vec<String> = riddle
        .lines
        .iter()
        .map(|range| match range.start() == range.end() {
            true => range.start().to_string(),
            false => format!("{} to {}", range.start(), range.end()),
        })
        .collect();
    say!("\n{}", paint(Colour::Bold, &format!("It was {}: {}", mistake.name, mistake.diagnosis)));
    say!("{}, line {}:", day.solution(), lines.join(" and "));
    let (right, wrong): (Vec<&str>, Vec<&str>) =
        (source.lines().collect(), wrong.lines().collect());
    for (sign, line) in compare::lines(&right, &wrong).into_iter().filter(|(sign, _)| *sign != ' ')
    {
        let colour = if sign == '-' { Colour::Green } else { Colour::Red };
        say!("  {}", paint(colour, &format!("{sign} {line}")));
    }
    say!("What catches it: cargo xtask teeth day{}", day.number);
}
