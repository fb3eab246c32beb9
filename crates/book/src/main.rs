//! The book's preprocessor for mdBook, and with the feature `site` mdBook itself.
//!
//! `mdbook build book` starts it as `book/book.toml` says, with the book on standard input. `cargo
//! xtask book` needs no mdBook, because `candecode-book build` uses its library.
#![warn(missing_docs)]

mod live;
mod mathml;
mod preprocess;
mod render;

use anyhow::{bail, ensure, Result};
use live::Days;
use std::io::IsTerminal;
use std::path::Path;
use std::process::ExitCode;

#[cfg(feature = "site")]
const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match run(&args.iter().map(String::as_str).collect::<Vec<_>>()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(args: &[&str]) -> Result<()> {
    match args {
        [] => {
            let input = std::io::stdin();
            ensure!(
                !input.is_terminal(),
                "mdBook runs this program; to build the book, run `cargo xtask book`"
            );
            render::preprocess(input.lock(), std::io::stdout().lock(), Days::asked_for()?)
        }
        // mdBook asks whether a renderer is supported.
        ["supports", ..] => Ok(()),
        #[cfg(feature = "site")]
        ["build", rest @ ..] => {
            let index = render::build(&Path::new(ROOT).canonicalize()?, Days::asked_for()?)?;
            if rest.contains(&"--open") {
                open(&index.display().to_string());
            }
            Ok(())
        }
        ["lessons", root, features, target, to] => {
            live::compile_to(Path::new(root), Path::new(target), features, Path::new(to))
        }
        _ => bail!("usage: candecode-book [build [--open]]"),
    }
}

/// Opens a file in the system's browser.
#[cfg(feature = "site")]
fn open(file: &str) {
    let opener = match std::env::consts::OS {
        "macos" => "open",
        "windows" => "explorer",
        _ => "xdg-open",
    };
    if std::process::Command::new(opener).arg(file).spawn().is_err() {
        eprintln!("couldn't start {opener}; open {file} yourself");
    }
}
