//! Renders Markdown to a folder of pages, or to a list of problems.

use crate::figures::house_classes;
use crate::links::{Anchors, Link};
use crate::live::{Days, Lessons};
use crate::source::{Page, Problems};
use crate::{code_blocks, figures, include, links, math};
use anyhow::{ensure, Context, Result};
use mdbook_driver::book::{Book, BookItem};
use mdbook_driver::config::Config;
use mdbook_driver::MDBook;
use mdbook_preprocessor::parse_input;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tracing_subscriber::filter::LevelFilter;

/// All chapters, expanded and checked.
#[derive(Default)]
struct Prepared {
    /// Each page, ready to be rendered, with its path in the sources.
    pages: Vec<(PathBuf, Page)>,
    links: Vec<Link>,
}

/// Builds the book in the repository at `root` and checks its pages. Returns the path of
/// `index.html`.
///
/// # Errors
/// A list of all problems, each with file and line, or mdBook's own error.
pub fn build(root: &Path, days: Days) -> Result<PathBuf> {
    let log = Arc::new(Log::default());
    let warnings = tracing_subscriber::fmt().with_max_level(LevelFilter::WARN).without_time();
    warnings.with_ansi(false).with_target(false).with_writer(Arc::clone(&log)).init();
    let mut book = load(root)?;
    let src = book.source_dir();
    let out = book.root.join(&book.config.build.build_dir);
    let prepared = prepare(root, &src, &mut book.book, days)?;
    book.build().context("mdBook couldn't render the book")?;
    check_rendered(&src, &out, &prepared)?;
    let warnings = String::from_utf8_lossy(&log.text()).trim_end().to_string();
    ensure!(warnings.is_empty(), "{warnings}");
    let index = out.join("index.html");
    println!("{} pages: {}", prepared.pages.len(), index.display());
    Ok(index)
}

/// Collects mdBook's log. mdBook only warns about unbalanced tags and the like; [`build`] treats
/// these warnings as errors.
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

fn load(root: &Path) -> Result<MDBook> {
    let dir = root.join("book");
    let mut config = Config::from_disk(dir.join("book.toml"))?;
    // This program is the only preprocessor.
    config.set("preprocessor", toml::Table::new())?;
    MDBook::load_with_config(dir, config)
}

/// Runs as mdBook's preprocessor: reads a context and a book as JSON, and writes the book.
///
/// # Errors
/// A list of all problems, each with file and line.
pub fn preprocess(input: impl Read, output: impl Write, days: Days) -> Result<()> {
    let (context, mut book) = parse_input(input)
        .with_context(|| format!("not an mdBook {} book", mdbook_preprocessor::MDBOOK_VERSION))?;
    let dir = context.root.canonicalize().context("the book's folder is gone")?;
    let root = dir.parent().context("the book must be inside a repository")?;
    prepare(root, &dir.join(&context.config.book.src), &mut book, days)?;
    Ok(serde_json::to_writer(output, &book)?)
}

/// Expands and checks every chapter in place, and writes the files that the live figures load.
fn prepare(root: &Path, src: &Path, book: &mut Book, days: Days) -> Result<Prepared> {
    let lessons = Lessons::compile(root, days)?;
    let css = root.join("book/theme/figures.css");
    let css = std::fs::read_to_string(&css).with_context(|| css.display().to_string())?;
    let house = house_classes(&css);
    let mut problems = Problems::default();
    let mut prepared = Prepared::default();
    book.for_each_mut(|item| {
        let BookItem::Chapter(chapter) = item else {
            return;
        };
        let Some(path) = chapter.path.clone() else {
            return;
        };
        let file = src.join(&path);
        let page = Page::new(&include::shown_name(&file, root), &chapter.content);
        let dir = file.parent().unwrap_or(src);
        let page = include::expand(page, root, dir, &lessons, &mut problems);
        let blocks = page.code_blocks(&mut problems);
        code_blocks::check(&page, &blocks, &mut problems);
        let page = math::render(page, &mut problems);
        figures::check(&page, root, &house, &mut problems);
        chapter.content = page.text();
        prepared.pages.push((path, page));
    });
    for (path, page) in &prepared.pages {
        prepared.links.extend(links::collect(path, page, &mut problems)?);
    }
    problems.into_result()?;
    lessons.install(root, &src.join("live/parts"))?;
    Ok(prepared)
}

/// Checks the ids in the finished pages, and the links to them.
fn check_rendered(src: &Path, out: &Path, prepared: &Prepared) -> Result<()> {
    let mut problems = Problems::default();
    let mut anchors = Anchors::new();
    for (path, page) in &prepared.pages {
        let file = out.join(path.with_extension("html"));
        let html = std::fs::read_to_string(&file).with_context(|| file.display().to_string())?;
        let ids = links::anchors(&html, page, &mut problems)?;
        anchors.insert(path.clone(), ids);
    }
    links::check(&prepared.links, &anchors, src, &mut problems);
    problems.into_result()
}
