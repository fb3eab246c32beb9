//! `cargo xtask book`: builds or serves the book, with a tool that is built when first asked for.

use crate::cargo;
use crate::note;
use crate::repo::Repo;
use crate::usage;
use anyhow::Result;
use clap::{Args, ValueEnum};
use std::ffi::OsString;
use std::process::ExitCode;

/// The flags of `book`.
#[derive(Args)]
pub struct Book {
    /// Whether to write the pages, or also to serve them and follow changes
    #[arg(value_enum, default_value = "build")]
    what: What,
    /// Open the book in a browser
    #[arg(long)]
    open: bool,
    /// Where `serve` listens
    #[arg(long)]
    port: Option<u16>,
    /// Leave the live figures out: their still pictures are all there is
    #[arg(long)]
    still: bool,
    /// With `serve`: the live figures run your days instead of the reference
    #[arg(long, conflicts_with = "still")]
    mine: bool,
}

/// What the book tool does.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum What {
    /// Writes book/book/
    Build,
    /// Serves the book on this machine
    Serve,
}

/// Runs the book tool to its end.
///
/// # Errors
/// If cargo cannot be started.
pub fn run(repo: &Repo, args: &Book) -> Result<ExitCode> {
    if args.port.is_some() && args.what == What::Build {
        return Err(usage("--port belongs to serve: cargo xtask book serve --port 3000"));
    }
    if args.mine && args.what == What::Build {
        return Err(usage("--mine belongs to serve: cargo xtask book serve --mine"));
    }
    if !cargo::target_dir(repo).join("tools").exists() {
        note!("The first time the book tool is compiled: about a minute on two cores.");
    }
    let what = if args.what == What::Build { "build" } else { "serve" };
    let mut flags = vec![OsString::from(what)];
    flags.extend(args.open.then(|| "--open".into()));
    flags.extend(args.port.map(|port| format!("--port={port}").into()));
    flags.extend(args.still.then(|| "--still".into()));
    flags.extend(args.mine.then(|| "--mine".into()));
    cargo::run_member(repo, "book-tool", &["--profile", "tools"], &flags)
}
