//! Builds the book with mdBook's library, or as its preprocessor.

use crate::live::{Days, Lessons};
use crate::preprocess::page;
use anyhow::{Context, Result};
use candecode_book::refuse;
use mdbook_preprocessor::book::{Book, BookItem};
use mdbook_preprocessor::parse_input;
use std::io::{Read, Write};
use std::path::Path;

/// Runs as mdBook's preprocessor: reads a context and a book as JSON, and writes the book.
///
/// # Errors
/// A list of all problems, each with file and line.
pub fn preprocess(input: impl Read, output: impl Write, days: Days) -> Result<()> {
    let (context, mut book) = parse_input(input)
        .with_context(|| format!("not an mdBook {} book", mdbook_preprocessor::MDBOOK_VERSION))?;
    let dir = context.root.canonicalize().context("the book's folder is gone")?;
    let root = dir.parent().context("the book must be inside a repository")?;
    prepare(root, &mut book, days)?;
    Ok(serde_json::to_writer(output, &book)?)
}

/// Prepares every chapter for mdBook, and writes the files that the live figures load.
fn prepare(root: &Path, book: &mut Book, days: Days) -> Result<usize> {
    let lessons = Lessons::compile(root, days)?;
    let mut problems = Vec::new();
    let mut pages = 0;
    book.for_each_mut(|item| {
        let BookItem::Chapter(chapter) = item else { return };
        let Some(path) = &chapter.path else { return };
        let file = format!("book/src/{}", path.display()).replace('\\', "/");
        chapter.content = page(root, &file, &chapter.content, &lessons, &mut problems);
        pages += 1;
    });
    refuse(problems)?;
    lessons.install(root, &root.join("book/src/live/parts"))?;
    Ok(pages)
}

#[cfg(feature = "site")]
pub use site::build;

#[cfg(feature = "site")]
mod site {
    use super::*;
    use anyhow::ensure;
    use mdbook_driver::config::Config;
    use mdbook_driver::MDBook;
    use std::io;
    use std::path::PathBuf;
    use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
    use tracing_subscriber::filter::LevelFilter;

    /// Builds the book in the repository at `root`. Returns the path of `index.html`.
    ///
    /// # Errors
    /// A list of all problems, each with file and line, or mdBook's own error or warnings.
    pub fn build(root: &Path, days: Days) -> Result<PathBuf> {
        let log = Arc::new(Log::default());
        let warnings = tracing_subscriber::fmt().with_max_level(LevelFilter::WARN).without_time();
        warnings.with_ansi(false).with_target(false).with_writer(Arc::clone(&log)).init();
        let dir = root.join("book");
        let index = dir.join("book/index.html");
        let mut config = Config::from_disk(dir.join("book.toml"))?;
        // This program is the only preprocessor.
        config.set("preprocessor", toml::Table::new())?;
        let mut book = MDBook::load_with_config(dir, config)?;
        let pages = prepare(root, &mut book.book, days)?;
        book.build().context("mdBook couldn't render the book")?;
        let warnings = String::from_utf8_lossy(&log.text()).trim_end().to_string();
        ensure!(warnings.is_empty(), "{warnings}");
        println!("{pages} pages: {}", index.display());
        Ok(index)
    }

    /// Collects mdBook's log. mdBook only warns about unbalanced tags and the like; [`build`]
    /// treats these warnings as errors.
    #[derive(Default)]
    struct Log(Mutex<Vec<u8>>);

    impl Log {
        fn text(&self) -> MutexGuard<'_, Vec<u8>> {
            self.0.lock().unwrap_or_else(PoisonError::into_inner)
        }
    }

    impl Write for &Log {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.text().write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
}
