//! Shared code for every day's checks: running a check on an implementation and reporting what went
//! wrong.
//!
//! A check is a function that takes an implementation, so the same check runs on the reader's code,
//! on every known mistake and on the stub. [`checks!`] lists a day's checks by task, and turns the
//! day's file into a program ([`program`]).

#![allow(dead_code, unused_imports)] // each day uses only some of this

mod compare;
mod fake;
mod golden;
mod keep;
mod marked;
pub mod own_ops;
pub mod program;
pub mod proof;
#[path = "../../crates/testing/src/random.rs"]
mod random;
mod recall;
mod report;
mod witness;

pub use compare::{bits_equal, close, ensure, equal, equal_tokens, near, refused, refused_calmly};
pub use fake::Fake;
pub use golden::{
    device, golden, golden_json, model, model_of, models_dir, ops, small_model, tokenizer,
};
pub use keep::Keep;
pub use marked::{feed, holds, marked, rows, Rows, LAYERS};
pub(crate) use program::checks;
pub use random::Random;
pub use recall::Recall;
pub use witness::{Pass, Witness};

use std::borrow::Cow;
use std::panic::AssertUnwindSafe;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::time::Duration;

/// The result of a check: nothing, or the failure it found.
pub type Outcome = Result<(), Failure>;

/// A check on a day's code, which is passed as a struct of functions.
#[derive(Clone, Copy)]
pub struct Check<D> {
    /// The task that it checks: `6.1`.
    pub task: &'static str,
    /// What it claims, in words joined by `_`.
    pub name: &'static str,
    /// The check itself.
    pub check: fn(&D) -> Outcome,
}

impl<D> Check<D> {
    /// Returns the check's id: `task_6_1_the_last_position`.
    pub fn id(&self) -> String {
        format!("task_{}_{}", self.task.replace('.', "_"), self.name)
    }

    /// Returns its claim in words: `the last position`.
    pub fn claim(&self) -> String {
        self.name.replace('_', " ")
    }
}

/// A known mistake (it must fail) or a correct variant (it must pass).
pub struct Known<D> {
    /// Its name in the day's `mistakes.toml`.
    pub name: &'static str,
    /// The code.
    pub day: D,
}

/// Why a check failed.
#[derive(Debug, Clone, PartialEq)]
pub enum Kind {
    /// A result other than the expected one; `got` distinguishes known mistakes.
    Wrong { got: String },
    /// The code returned an error where it shouldn't have.
    Error,
    /// A `todo!` was reached: "day 6, task 1: Return the logits of each row's last position".
    Unwritten(String),
    /// The code panicked.
    Panicked,
    /// The code didn't finish in time.
    TimedOut,
}

/// A failed check: the text to show, and the data used to compare it with other failures.
#[derive(Debug, Clone, PartialEq)]
pub struct Failure {
    /// The kind of failure.
    pub kind: Kind,
    /// The lines to show the reader.
    pub lines: Vec<String>,
    /// The likely cause, shown if no known mistake matches.
    pub likely: Option<String>,
}

impl Failure {
    /// Creates a failure of this kind with these lines.
    pub fn new(kind: Kind, lines: Vec<String>) -> Self {
        Self { kind, lines, likely: None }
    }

    /// Returns the report's word for the kind of failure.
    pub fn status(&self) -> &'static str {
        match &self.kind {
            Kind::Wrong { .. } | Kind::Error => "failed",
            Kind::Unwritten(_) => "unwritten",
            Kind::Panicked => "panicked",
            Kind::TimedOut => "timeout",
        }
    }

    /// Returns what two failures of one check are compared by: the words of the lines shown, and in
    /// a second line those of the result. Of a long result, a fixed sample is enough. The place of
    /// a panic is left out.
    pub fn words(&self) -> String {
        let got = match &self.kind {
            Kind::Wrong { got } => got.as_str(),
            Kind::Error => "",
            _ => return String::new(),
        };
        let lines: Vec<Cow<str>> = self.lines.iter().map(|line| without_place(line)).collect();
        let lines = lines.iter().flat_map(|line| line.split_whitespace());
        let mut lines = lines.collect::<Vec<_>>().join(" ");
        let got = without_place(got);
        let mut got: Vec<&str> = got.split_whitespace().collect();
        if got.len() > SAMPLE {
            lines += &format!(" ({} words)", got.len());
            // Multiples of the golden ratio's fraction are spread evenly, whatever the shape.
            let at = |i: usize| i * 2_654_435_761 % got.len();
            got = (0..SAMPLE).map(|i| got[at(i)]).collect();
        }
        format!("{lines}\n{}", got.join(" "))
    }
}

/// Returns a text without the place of the panic that it describes: the same code is in another
/// file and on other lines in a known mistake and in the reader's day.
fn without_place(text: &str) -> Cow<'_, str> {
    let parts = text.split_once("the code at ");
    match parts.and_then(|(start, rest)| Some((start, rest.split_once(" panicked: ")?.1))) {
        Some((start, message)) => format!("{start}the code panicked: {message}").into(),
        None => text.into(),
    }
}

/// The number of words to compare in a long result.
const SAMPLE: usize = 32;

impl From<candle_core::Error> for Failure {
    fn from(error: candle_core::Error) -> Self {
        let text = candecode::kit::error::plain(&error);
        Self::new(Kind::Error, vec![format!("your code returned an error: {text}")])
    }
}

/// Adds a likely cause to a failure.
pub trait Likely {
    /// Adds the likely cause of a wrong result, shown if no known mistake has the same output.
    /// Errors and panics are left alone: they already say what happened, and a guess about wrong
    /// numbers would mislead.
    fn likely(self, cause: &str) -> Self;

    /// Adds the likely cause of an infinity or a NaN. A result without either has another cause,
    /// and this one would contradict the numbers above it.
    fn likely_if_not_finite(self, cause: &str) -> Self;

    /// Adds the cause to any failure, including errors and panics.
    fn likely_for_any_failure(self, cause: &str) -> Self;
}

impl Likely for Outcome {
    fn likely(self, cause: &str) -> Self {
        self.map_err(|mut failure| {
            if matches!(failure.kind, Kind::Wrong { .. }) {
                failure.likely.get_or_insert_with(|| cause.to_string());
            }
            failure
        })
    }

    fn likely_if_not_finite(self, cause: &str) -> Self {
        let is_finite = |got: &str| !got.contains("NaN") && !got.contains("inf");
        match &self {
            Err(Failure { kind: Kind::Wrong { got }, .. }) if is_finite(got) => self,
            _ => self.likely(cause),
        }
    }

    fn likely_for_any_failure(self, cause: &str) -> Self {
        self.map_err(|mut failure| {
            failure.likely.get_or_insert_with(|| cause.to_string());
            failure
        })
    }
}

/// Set once a check has timed out: the checks that follow will most likely hit the same loop.
static TIRED: AtomicBool = AtomicBool::new(false);

/// Returns the time limit for a check. It is long enough for a slow machine, so only an infinite
/// loop reaches it.
fn patience() -> Duration {
    Duration::from_secs(if TIRED.load(Ordering::Relaxed) { 60 } else { 180 })
}

/// Runs a check on its own thread, so that panics and infinite loops are reported like any other
/// failure.
pub fn run<D: Copy + Send + 'static>(check: &Check<D>, day: &D) -> Outcome {
    let patience = patience();
    start(check, day).recv_timeout(patience).unwrap_or_else(|_| {
        TIRED.store(true, Ordering::Relaxed);
        let text = format!(
            "the code didn't finish within {} s: is there an infinite loop?",
            patience.as_secs()
        );
        Err(Failure::new(Kind::TimedOut, vec![text]))
    })
}

/// Runs a check as [`run`] does, without a time limit.
pub fn run_to_the_end<D: Copy + Send + 'static>(check: &Check<D>, day: &D) -> Outcome {
    let ended = || Err(Failure::new(Kind::Panicked, vec!["the check ended early".into()]));
    start(check, day).recv().unwrap_or_else(|_| ended())
}

/// Starts a check on its own thread, which sends the outcome.
fn start<D: Copy + Send + 'static>(check: &Check<D>, day: &D) -> mpsc::Receiver<Outcome> {
    candecode::kit::panics::quiet_panics();
    let (send, receive) = mpsc::channel();
    let (check, day) = (check.check, *day);
    std::thread::spawn(move || {
        let caught = std::panic::catch_unwind(AssertUnwindSafe(move || check(&day)));
        let outcome = caught.unwrap_or_else(|panic| {
            let text = candecode::kit::panics::describe_panic(&*panic);
            let kind = match candecode::kit::panics::unwritten(&*panic) {
                Some(task) => Kind::Unwritten(task),
                None => Kind::Panicked,
            };
            Err(Failure::new(kind, vec![text]))
        });
        let _ = send.send(outcome);
    });
    receive
}
