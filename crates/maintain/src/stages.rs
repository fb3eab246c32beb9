//! The stages of continuous integration, each a function.

use crate::steps::*;
use anyhow::Result;
use xtask::checks::table::Sum;
use xtask::repo::Repo;

/// What a stage came to.
pub enum Outcome {
    /// It ran: its tests, if it has any. A stage that fails without tests counts as one.
    Done(Sum),
    /// It could not be had here, and why.
    Skipped(String),
}

/// Where a stage makes sense.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// Everywhere.
    Any,
    /// In the course, where `src/` holds the stubs.
    Course,
    /// In a reader's copy of it, where `src/` holds days that were written.
    Reader,
}

/// One stage.
pub struct Stage {
    /// For `--only`.
    pub name: &'static str,
    /// In a few words.
    pub what: &'static str,
    /// Whether `ci fast` has it.
    pub fast: bool,
    /// Where it makes sense.
    pub place: Place,
    /// Runs it; an error is a failure.
    pub run: Run,
}

/// What a stage does.
type Run = fn(&Repo) -> Result<Outcome>;

/// All of them, in order: the quick ones first.
pub const STAGES: &[Stage] = &[
    stage("fmt", "rustfmt would change nothing", fmt).only(Place::Course),
    stage("stubs", "src/ is what solutions/ says", stubs_fresh).only(Place::Course),
    stage("hints", "every task has its three hints", hints_whole),
    stage("house", "rooms import downwards, names are unique, lines are short", house)
        .only(Place::Course),
    stage("xtask", "the runner's own tests", xtask),
    stage("tools", "the tests of these stages and of the mutants", tools),
    stage("clippy-xtask", "clippy on the runner and on the maintainers' tools", clippy_xtask),
    stage("clippy-stubs", "clippy on the stubs and the kit", clippy_stubs).only(Place::Course),
    stage("clippy-ref", "clippy on the reference", clippy_ref),
    stage("stubs-compile", "stubs compile without a warning", stubs_compile).only(Place::Course),
    stage("unwritten", "on the stubs every check says: not written", unwritten).only(Place::Course),
    stage("mine", "what you wrote passes its checks", mine_passes).only(Place::Reader),
    stage("reference", "every check passes on the reference", reference),
    stage(
        "teeth",
        "every known mistake is caught and named, every right variant passes",
        known_mistakes,
    ),
    stage("jinja", "chat templates beside Jinja2, and templates that mean harm", jinja),
    stage("kit", "tests of the kit, and others that belong to no day", kit),
    stage("bad-input", "bad input has clear errors", bad_input),
    stage(
        "serve",
        "the server: what clients ask, what they do to it, the same text at any load",
        server,
    ),
    stage("compare", "every loop writes the same text, from the command line", every_loop),
    stage(
        "clients",
        "openai (Python and JavaScript), litellm, langchain, curl on the server",
        clients,
    )
    .slow(),
    stage("benches", "clippy on the benchmarks, and on the peers", clippy_benches).slow(),
    stage("messages", "the commands say what the book's page of messages shows", messages).slow(),
    stage("docs", "documentation builds, its examples run", docs).slow(),
    stage("clippy-book", "clippy on the book tool", clippy_book).slow(),
    stage("book", "the book builds, and mdBook itself builds the same", book).slow(),
    stage("live", "the live figures answer in a browser, with the command's tokens", live).slow(),
    stage("printed", "what the book prints is what the commands say", printed).slow(),
    stage("prose", "sentences to look at again, in what the last commit adds (never fails)", prose)
        .slow(),
    stage("metal", "the Metal path type-checks", metal).slow(),
    stage("wasm", "the library without the command type-checks for WebAssembly", wasm).slow(),
    stage("real", "the runner on the course itself: what a failing check says, a hunt", real)
        .slow(),
];

/// A stage of `ci fast`, everywhere.
const fn stage(name: &'static str, what: &'static str, run: Run) -> Stage {
    Stage { name, what, fast: true, place: Place::Any, run }
}

impl Stage {
    /// Not of `ci fast`.
    const fn slow(mut self) -> Stage {
        self.fast = false;
        self
    }

    /// Not everywhere.
    const fn only(mut self, place: Place) -> Stage {
        self.place = place;
        self
    }
}
