//! Builds, checks and serves the book.
//!
//! The book is mdBook's, used as a library, with three steps of our own around it: includes that
//! know which lines they may show, formulas as MathML, and checks of links and figures. A problem
//! is an error with a file and a line, never a warning: a page that is built is a page that works.
#![warn(missing_docs)]

mod code_blocks;
mod excerpt;
mod figures;
mod include;
mod links;
mod live;
mod log;
mod math;
mod mathml;
mod render;
mod serve;
mod solutions;
mod source;

use anyhow::{Context, Result};
use clap::{Parser, Subcommand};
use live::Days;
use render::Which;
use std::path::PathBuf;
use std::process::ExitCode;

/// Builds, checks and serves the book.
#[derive(Parser)]
#[command(name = "book-tool")]
struct Cli {
    /// The repository, if not the one around the current directory.
    #[arg(long, global = true)]
    root: Option<PathBuf>,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Build the book into book/book.
    Build {
        /// Open the book in a browser.
        #[arg(long)]
        open: bool,
        /// Build book/samples, every element on two pages, into target/book-samples instead.
        #[arg(long)]
        samples: bool,
        /// Leave the live figures out: their still pictures are all there is.
        #[arg(long)]
        still: bool,
    },
    /// Compile the lessons of a copy of the course for a page, into a file.
    #[command(hide = true)]
    Lessons {
        /// The features of `candecode-live`.
        #[arg(long)]
        features: String,
        /// Where cargo builds.
        #[arg(long)]
        target_dir: PathBuf,
        /// The file to write.
        #[arg(long)]
        to: PathBuf,
    },
    /// Build the book, serve it on this machine only, and build again when a file changes.
    Serve {
        /// Open the book in a browser.
        #[arg(long)]
        open: bool,
        /// The port to listen on.
        #[arg(long, default_value_t = 3000)]
        port: u16,
        /// Leave the live figures out.
        #[arg(long)]
        still: bool,
        /// Let the live figures run your days, those of src/, instead of the reference.
        #[arg(long, conflicts_with = "still")]
        mine: bool,
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
    log::install();
    let root = match cli.root {
        Some(root) => root,
        None => find_root()?,
    };
    let root =
        root.canonicalize().with_context(|| format!("{}: no such directory", root.display()))?;
    match cli.command {
        Command::Build { open, samples, still } => {
            let which = if samples { Which::Samples } else { Which::Book };
            let days = if still || samples { Days::None } else { Days::Reference };
            let report = render::build(&root, which, days)?;
            println!("{report}");
            if open {
                serve::open_browser(&report.out.join("index.html").display().to_string());
            }
            Ok(())
        }
        Command::Lessons { features, target_dir, to } => {
            live::compile_to(&root, &target_dir, &features, &to)
        }
        Command::Serve { open, port, still, mine } => {
            let days = match (still, mine) {
                (true, _) => Days::None,
                (_, true) => Days::Mine,
                _ => Days::Reference,
            };
            serve::serve(&root, open, port, days)
        }
    }
}

/// The nearest directory above that holds `book/book.toml`, or the repository this was built in.
fn find_root() -> Result<PathBuf> {
    let here = std::env::current_dir().context("the current directory is gone")?;
    let found = here.ancestors().find(|dir| dir.join("book/book.toml").is_file());
    if let Some(dir) = found {
        return Ok(dir.to_path_buf());
    }
    let built = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..");
    anyhow::ensure!(
        built.join("book/book.toml").is_file(),
        "no book/book.toml in {} or above; say where with --root DIR",
        here.display()
    );
    Ok(built)
}
