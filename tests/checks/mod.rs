//! What every day's checkers share: running a check on an implementation, and saying what went
//! wrong.
//!
//! A check is a function of an implementation, so that the same one runs on the reader's code, on
//! every known mistake and on the stub. `checks::tests!` makes the `#[test]`s of a day, and the
//! `teeth_*` tests that prove them.

#![allow(dead_code, unused_imports)] // each day uses its part

mod compare;
mod fake;
mod golden;
mod keep;
mod marked;
pub mod own_ops;
mod recall;
pub mod record;
mod report;
mod witness;

pub use compare::{bits_equal, close, ensure, equal, equal_tokens, near, refused, refused_calmly};
pub use fake::{Fake, Script};
pub use golden::{
    device, for_candle_nn, golden, golden_json, model, model_of, models_dir, ops, oracle,
    tokenizer, Random,
};
pub use keep::Keep;
pub use marked::{feed, holds, marked, rows, Rows, LAYERS};
pub use recall::Recall;
pub use report::{examine, Finding};
pub use witness::{Pass, Witness};

use std::panic::AssertUnwindSafe;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::time::Duration;

/// What a check says: nothing, or what it found.
pub type Outcome = Result<(), Failure>;

/// A day's code as a bundle of functions, and its checks.
pub type Check<D> = fn(&D) -> Outcome;

/// A known mistake (it must fail, with its own diagnosis) or a correct variant (it must pass).
pub struct Known<D> {
    /// What it is called in `tests/wrong/`.
    pub name: &'static str,
    /// What the reader is told whose output equals this mistake's.
    pub diagnosis: &'static str,
    /// The code.
    pub day: D,
}

/// Why a check failed.
#[derive(Debug, Clone, PartialEq, serde::Deserialize, serde::Serialize)]
pub enum Kind {
    /// Another result than the one wanted; `got` tells known mistakes apart.
    Wrong { got: String },
    /// The code returned an error where it should not.
    Error,
    /// A `todo!` was reached: "day 6, task 1: keep the last position of every row".
    Unwritten(String),
    /// The code panicked.
    Panicked,
    /// The code did not end.
    TimedOut,
}

/// A failed check: what is shown of it, and what it is compared by.
#[derive(Debug, Clone, PartialEq, serde::Deserialize, serde::Serialize)]
pub struct Failure {
    /// What kind of failure.
    pub kind: Kind,
    /// The lines for the reader.
    pub lines: Vec<String>,
    /// The likely cause, if no known mistake fits.
    pub likely: Option<String>,
}

impl Failure {
    /// A failure of that kind with these lines.
    pub fn new(kind: Kind, lines: Vec<String>) -> Self {
        Self { kind, lines, likely: None }
    }

    /// Whether a known mistake can fail so: with another result, or with an error.
    pub fn may_be_known(&self) -> bool {
        matches!(self.kind, Kind::Wrong { .. } | Kind::Error)
    }

    /// Whether two failures of one check are the same, word by word; numbers may differ as far as
    /// another order of the same operations makes them differ.
    pub fn same(&self, other: &Self) -> bool {
        let number = |word: &str| word.parse::<f64>().ok();
        let alike = |(a, b): (&str, &str)| match (number(a), number(b)) {
            _ if a == b => true,
            (Some(a), Some(b)) if a.is_finite() => (a - b).abs() <= 1e-5 * a.abs().max(1.0),
            _ => false,
        };
        std::mem::discriminant(&self.kind) == std::mem::discriminant(&other.kind)
            && self.words().count() == other.words().count()
            && self.words().zip(other.words()).all(alike)
    }

    /// What a failure shows, and all that was computed.
    fn words(&self) -> impl Iterator<Item = &str> {
        let got = match &self.kind {
            Kind::Wrong { got } => got.as_str(),
            _ => "",
        };
        self.lines.iter().map(String::as_str).chain([got]).flat_map(str::split_whitespace)
    }
}

impl From<candle_core::Error> for Failure {
    fn from(error: candle_core::Error) -> Self {
        let text = candecode::kit::error::plain(&error);
        Self::new(Kind::Error, vec![format!("your code returned an error: {text}")])
    }
}

/// Adds to a failure what its cause is likely to be.
pub trait Likely {
    /// The cause of a wrong result, shown if no known mistake has the same output. An error or a
    /// panic speaks for itself: a guess about wrong numbers would mislead there.
    fn likely(self, cause: &str) -> Self;

    /// The same, also where the code returned an error.
    fn likely_even_of_an_error(self, cause: &str) -> Self;
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

    fn likely_even_of_an_error(self, cause: &str) -> Self {
        self.map_err(|mut failure| {
            failure.likely.get_or_insert_with(|| cause.to_string());
            failure
        })
    }
}

/// Whether a check was given up: then the next ones most likely meet the same loop.
static TIRED: AtomicBool = AtomicBool::new(false);

/// How long a check may take. Long enough for a slow machine: only an endless loop takes it;
/// `CANDECODE_CHECK_PATIENCE` has seconds. After the first that did not end, a third of it, but no
/// less than 10 s.
fn patience() -> Duration {
    let own = std::env::var("CANDECODE_CHECK_PATIENCE").ok().and_then(|s| s.parse::<u64>().ok());
    let first = own.unwrap_or(180);
    let seconds =
        if TIRED.load(Ordering::Relaxed) { (first / 3).max(10).min(first) } else { first };
    Duration::from_secs(seconds)
}

/// Runs a check on a thread of its own, so that a panic and an endless loop are findings like any
/// other.
pub fn run<D: Copy + Send + 'static>(check: Check<D>, day: &D) -> Outcome {
    candecode::kit::panics::quiet_panics();
    let (send, receive) = mpsc::channel();
    let day = *day;
    std::thread::spawn(move || {
        let caught = std::panic::catch_unwind(AssertUnwindSafe(move || check(&day)));
        let outcome = caught.unwrap_or_else(|panic| {
            let text = describe_panic(&*panic);
            let kind = match candecode::kit::panics::unwritten(&*panic) {
                Some(task) => Kind::Unwritten(task),
                None => Kind::Panicked,
            };
            Err(Failure::new(kind, vec![text]))
        });
        let _ = send.send(outcome);
    });
    let patience = patience();
    receive.recv_timeout(patience).unwrap_or_else(|_| {
        TIRED.store(true, Ordering::Relaxed);
        let text =
            format!("the code did not end within {} s: is a loop endless?", patience.as_secs());
        Err(Failure::new(Kind::TimedOut, vec![text]))
    })
}

/// What to say of a panic. The reader's file has the name that the reader knows: as a module of a
/// check program it is `tests/../src/dayNN_*.rs`.
pub fn describe_panic(panic: &(dyn std::any::Any + Send)) -> String {
    let text = candecode::kit::panics::describe_panic(panic);
    text.replace("tests/../src/", "src/").replace(r"tests\../src/", "src/")
}

/// Makes a day's tests. `day::Day` is the bundle, `implementation!` fills it from a module:
/// `src/dayNN_*.rs` with the feature `mine`, else the library's. The runner compiles the program
/// with the cfg `mistakes` once more, for the file that it made of `tests/wrong/`: that has
/// `stub()`, `mistakes()` and `variants()`.
#[allow(unused_macros)] // tests/kit.rs is no day
macro_rules! tests {
    ($number:literal, $module:ident: $($test:ident => $check:path,)+) => {
        fn yours() -> day::Day {
            implementation!(crate::$module)
        }

        $(
            #[test]
            fn $test() -> Result<(), checks::Finding> {
                checks::examine($number, stringify!($test), $check, &yours())
            }
        )+

        #[cfg(mistakes)]
        const CHECKS: &[(&str, checks::Check<day::Day>)] = &[$((stringify!($test), $check)),+];

        #[cfg(mistakes)]
        #[test]
        fn teeth_every_known_mistake_is_caught_and_named() -> Result<(), checks::Finding> {
            checks::teeth::mistakes($number, CHECKS, &mistakes())
        }

        #[cfg(mistakes)]
        #[test]
        fn teeth_a_stub_is_not_written_yet() -> Result<(), checks::Finding> {
            checks::teeth::stub($number, CHECKS, &stub())
        }

        #[cfg(mistakes)]
        #[test]
        fn teeth_other_right_ways_pass() -> Result<(), checks::Finding> {
            checks::teeth::variants($number, CHECKS, &variants())
        }
    };
}
pub(crate) use tests;

pub mod teeth;
