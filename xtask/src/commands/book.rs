//! `cargo xtask book`: builds the book with a tool that is built when first asked for, or has mdBook
//! serve it.

use crate::cargo;
use crate::note;
use crate::repo::Repo;
use crate::usage;
use anyhow::{Context, Result};
use clap::{Args, ValueEnum};
use std::io::{ErrorKind, IsTerminal as _};
use std::process::{Command, ExitCode};

/// The flags of `book`.
#[derive(Args)]
pub struct Book {
    /// Whether to write the pages, or to serve them with mdBook and follow changes
    #[arg(value_enum, default_value = "build")]
    what: What,
    /// Open the book in a browser
    #[arg(long)]
    open: bool,
    /// The port that `serve` listens on
    #[arg(long)]
    port: Option<u16>,
    /// Leave the live figures out: their still pictures are all there is
    #[arg(long)]
    still: bool,
    /// The live figures run your days instead of the reference
    #[arg(long, conflicts_with = "still")]
    mine: bool,
}

/// The two things that can be done with the book.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum What {
    /// Writes book/book/
    Build,
    /// Serves the book on this machine: `mdbook serve book`
    Serve,
}

/// Runs the book tool, or mdBook, to its end.
///
/// # Errors
/// If cargo cannot be started, or there is no mdBook to serve with.
pub fn run(repo: &Repo, args: &Book) -> Result<ExitCode> {
    if args.port.is_some() && args.what == What::Build {
        return Err(usage("--port belongs to serve: cargo xtask book serve --port 3000"));
    }
    let mut command = match args.what {
        What::Build => {
            let mut cargo = cargo::command(repo);
            cargo.args(["run", "--profile", "tools", "--package", "book-tool"]);
            // On a terminal cargo shows how far it is.
            cargo.args((!std::io::stderr().is_terminal()).then_some("--quiet"));
            cargo.args(["--", "build"]);
            cargo
        }
        What::Serve => {
            let mut mdbook = Command::new("mdbook");
            mdbook.current_dir(&repo.root).args(["serve", "book"]);
            mdbook.args(args.port.map(|port| format!("--port={port}")));
            mdbook
        }
    };
    command.args(args.open.then_some("--open"));
    match (args.still, args.mine) {
        (true, _) => command.env("CANDECODE_BOOK", "still"),
        (_, true) => command.env("CANDECODE_BOOK", "mine"),
        _ => &mut command,
    };
    if !cargo::target_dir(repo).join("tools").exists() {
        note!("The first time the book tool is compiled: about a minute on two cores.");
    }
    let status = match command.status() {
        Err(error) if error.kind() == ErrorKind::NotFound && args.what == What::Serve => {
            return Err(usage(
                "no mdBook to serve the book with: cargo install mdbook --version 0.5.4 --locked\n\
                 (`cargo xtask book --open` needs none: it opens the book from its folder)",
            ));
        }
        status => status.context("cannot build the book")?,
    };
    Ok(ExitCode::from(status.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(1)))
}
