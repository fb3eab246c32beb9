//! Shared code for every day's checks: running a check on an implementation and reporting what went
//! wrong.
//!
//! A check is a function that takes an implementation, so the same check runs on the reader's code,
//! on every known mistake and on the stub. `checks::tests!` generates a day's `#[test]`s, along
//! with the `teeth_*` tests that prove them.

#![allow(dead_code, unused_imports)] // each day uses only some of this

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

/// The result of a check: nothing, or the failure it found.
pub type Outcome = Result<(), Failure>;

/// A check on a day's code, which is passed as a struct of functions.
pub type Check<D> = fn(&D) -> Outcome;

/// A known mistake (it must fail, with its own diagnosis) or a correct variant (it must pass).
pub struct Known<D> {
    /// Its name in `tests/mistakes/`.
    pub name: &'static str,
    /// The message shown when the reader's output equals this mistake's.
    pub diagnosis: &'static str,
    /// The code.
    pub day: D,
}

/// Why a check failed.
#[derive(Debug, Clone, PartialEq, serde::Deserialize, serde::Serialize)]
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
#[derive(Debug, Clone, PartialEq, serde::Deserialize, serde::Serialize)]
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

    /// Returns whether a known mistake can fail this way: with a wrong result or an error.
    pub fn may_be_known(&self) -> bool {
        matches!(self.kind, Kind::Wrong { .. } | Kind::Error)
    }

    /// Returns whether two failures of one check match word for word. Numbers may differ by as much
    /// as reordering the same operations changes them.
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

    /// Returns the words of the displayed lines, then those of everything computed.
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
/// loop reaches it. `CANDECODE_CHECK_PATIENCE` overrides it, in seconds. After the first timeout,
/// the limit drops to a third, but not below 10 s.
fn patience() -> Duration {
    let own = std::env::var("CANDECODE_CHECK_PATIENCE").ok().and_then(|s| s.parse::<u64>().ok());
    let first = own.unwrap_or(180);
    let seconds =
        if TIRED.load(Ordering::Relaxed) { (first / 3).max(10).min(first) } else { first };
    Duration::from_secs(seconds)
}

/// Runs a check on its own thread, so that panics and infinite loops are reported like any other
/// failure.
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
        let text = format!(
            "the code didn't finish within {} s: is there an infinite loop?",
            patience.as_secs()
        );
        Err(Failure::new(Kind::TimedOut, vec![text]))
    })
}

/// Returns the message for a panic. In a check program the reader's file is a module at
/// `tests/../src/dayNN_*.rs`; this shortens it to the path the reader knows.
pub fn describe_panic(panic: &(dyn std::any::Any + Send)) -> String {
    let text = candecode::kit::panics::describe_panic(panic);
    text.replace("tests/../src/", "src/").replace(r"tests\../src/", "src/")
}

/// Generates a day's tests. `implementation!` builds a `day::Day` from a module:
/// `src/dayNN_*.rs` with the feature `mine`, otherwise the library's. The runner compiles the
/// program again with the cfg `mistakes`, for the file generated from `tests/mistakes/`, which
/// provides `stub()`, `mistakes()` and `variants()`.
#[allow(unused_macros)] // tests/likely.rs isn't a day
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
        fn teeth_every_check_reports_a_stub_as_not_written_yet() -> Result<(), checks::Finding> {
            checks::teeth::stub($number, CHECKS, &stub())
        }

        #[cfg(mistakes)]
        #[test]
        fn teeth_correct_variants_pass() -> Result<(), checks::Finding> {
            checks::teeth::variants($number, CHECKS, &variants())
        }
    };
}
pub(crate) use tests;

pub mod teeth;
