//! The book's preprocessor for mdBook, which can also build and check the book on its own.
//!
//! `mdbook build book` runs it, as configured in `book/book.toml`, with the book on standard input.
//! `cargo xtask book` doesn't need mdBook installed: it runs the same steps through mdBook's
//! library and then checks the finished pages. Problems are errors with a file and a line, never
//! warnings.
#![warn(missing_docs)]

mod code_blocks;
mod excerpt;
mod figures;
mod include;
mod links;
mod live;
mod math;
mod mathml;
mod render;
mod source;

use anyhow::{ensure, Context, Result};
use clap::{Parser, Subcommand};
use live::Days;
use std::io::IsTerminal;
use std::path::PathBuf;
use std::process::ExitCode;

/// The book's preprocessor for mdBook: without a command, reads a book as JSON and writes it back.
#[derive(Parser)]
#[command(name = "candecode-book")]
struct Cli {
    /// The repository's root.
    #[arg(long, global = true, default_value = concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))]
    root: PathBuf,
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Subcommand)]
enum Command {
    /// Build the book in book/book and check the pages.
    Build {
        /// Open the book in a browser.
        #[arg(long)]
        open: bool,
    },
    /// Compile the lessons of a copy of the course to WebAssembly.
    #[command(hide = true)]
    Lessons {
        /// The features of `candecode-live`.
        #[arg(long)]
        features: String,
        /// Cargo's target directory.
        #[arg(long)]
        target_dir: PathBuf,
        /// The output file.
        #[arg(long)]
        to: PathBuf,
    },
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    match run(cli) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(cli: Cli) -> Result<()> {
    let Some(command) = cli.command else {
        let input = std::io::stdin();
        ensure!(
            !input.is_terminal(),
            "mdBook runs this program; to build the book, run `cargo xtask book`"
        );
        return render::preprocess(input.lock(), std::io::stdout().lock(), Days::asked_for()?);
    };
    let root = cli.root;
    let root =
        root.canonicalize().with_context(|| format!("{}: no such directory", root.display()))?;
    match command {
        Command::Build { open } => {
            let index = render::build(&root, Days::asked_for()?)?.display().to_string();
            if open {
                open_browser(&index);
            }
            Ok(())
        }
        Command::Lessons { features, target_dir, to } => {
            live::compile_to(&root, &target_dir, &features, &to)
        }
    }
}

/// Opens a file in the system's browser.
fn open_browser(file: &str) {
    let opener = match std::env::consts::OS {
        "macos" => "open",
        "windows" => "explorer",
        _ => "xdg-open",
    };
    if std::process::Command::new(opener).arg(file).spawn().is_err() {
        eprintln!("couldn't start {opener}; open {file} yourself");
    }
}
