//! `cargo xtask book`: builds the book, or compares its blocks with their sources. Both programs
//! are compiled on first use.

use crate::cargo;
use crate::note;
use anyhow::Result;
use candecode_course::{usage, Repo};
use clap::Args;
use std::ffi::OsString;
use std::io::IsTerminal as _;
use std::process::ExitCode;

/// The flags of `book`.
#[derive(Args)]
pub struct Book {
    /// Open the book in a browser
    #[arg(long)]
    open: bool,
    /// With live figures, which run the reference in the browser
    #[arg(long)]
    live: bool,
    /// With live figures that run your days
    #[arg(long)]
    mine: bool,
    /// Instead, compare the chapters' code, figures, outputs and messages with their sources
    #[arg(long, conflicts_with_all = ["open", "live", "mine"])]
    check: bool,
    /// Instead, rewrite whatever --check would report
    #[arg(long, conflicts_with_all = ["open", "live", "mine", "check"])]
    refresh: bool,
    /// With --check or --refresh: without outputs, which need a build of the engine
    #[arg(long, conflicts_with = "broken")]
    quick: bool,
    /// With --check or --refresh: also the outputs of engines with a known mistake, a build each
    #[arg(long)]
    broken: bool,
    /// With --check or --refresh: only pages whose name contains this
    page: Option<String>,
}

/// Runs the book's program to completion.
///
/// # Errors
/// If cargo cannot be started.
pub fn run(repo: &Repo, args: &Book) -> Result<ExitCode> {
    if args.check || args.refresh {
        let flags =
            [("--refresh", args.refresh), ("--quick", args.quick), ("--broken", args.broken)];
        let flags = flags.into_iter().filter(|(_, set)| *set).map(|(flag, _)| flag.into());
        let page = args.page.iter().map(OsString::from);
        let all: Vec<OsString> = ["book".into()].into_iter().chain(flags).chain(page).collect();
        return cargo::run_lab(repo, &all);
    }
    if args.quick || args.broken || args.page.is_some() {
        return Err(usage("--quick, --broken and a page are for --check and --refresh"));
    }
    let program = format!("debug/candecode-book{}", std::env::consts::EXE_SUFFIX);
    if !cargo::target_dir(repo).join(program).exists() {
        note!("Compiling mdBook, which is only needed once.");
    }
    let mut command = cargo::command(repo);
    // Optimizing mdBook would take longer than it runs.
    command.args(["run", "--config", "profile.dev.opt-level=0", "--package", "candecode-book"]);
    // On a terminal, let cargo show its progress.
    command.args((!std::io::stderr().is_terminal()).then_some("--quiet"));
    command.args(["--", "build"]).args(args.open.then_some("--open"));
    command.env_remove("CANDECODE_BOOK");
    let figures = if args.mine { Some("mine") } else { args.live.then_some("live") };
    command.envs(figures.map(|figures| ("CANDECODE_BOOK", figures)));
    cargo::exit_code_of(&mut command)
}
