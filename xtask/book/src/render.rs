//! From Markdown to a folder of pages, or to a list of what is wrong.

use crate::figures::house_classes;
use crate::links::{Anchors, Link};
use crate::live::{Days, Lessons, Sizes};
use crate::source::{Page, Problems};
use crate::{code_blocks, figures, include, links, log, math, solutions};
use anyhow::{ensure, Context, Result};
use mdbook_driver::book::BookItem;
use mdbook_driver::config::Config;
use mdbook_driver::MDBook;
use std::fmt;
use std::path::{Path, PathBuf};

/// Which sources to build.
#[derive(Clone, Copy, PartialEq)]
pub enum Which {
    /// `book/src`, into `book/book`.
    Book,
    /// `book/samples`, every element on a page or two, into `target/book-samples`.
    Samples,
}

/// What was built.
pub struct Report {
    pages: usize,
    figures: usize,
    formulas: usize,
    /// What the live figures load, if they live.
    live: Option<Sizes>,
    /// The folder of the built book.
    pub out: PathBuf,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        let Report { pages, figures, formulas, live, out } = self;
        write!(f, "{pages} pages, {figures} figures, {formulas} formulas")?;
        if let Some(Sizes { lessons, model }) = live {
            let kb = |bytes: &usize| bytes.div_ceil(1000);
            write!(f, ", live ({} kB of code, {} kB of model)", kb(lessons), kb(model))?;
        }
        write!(f, ": {}", out.join("index.html").display())
    }
}

/// Builds the book of the repository at `root`.
///
/// # Errors
/// A list of every problem, each with file and line, or what mdBook says.
pub fn build(root: &Path, which: Which, days: Days) -> Result<Report> {
    let _ = log::take();
    let mut book = load(root, which)?;
    let out = book.root.join(&book.config.build.build_dir);
    let mut report = Report { pages: 0, figures: 0, formulas: 0, live: None, out };
    let lessons = Lessons::compile(root, days)?;
    let prepared = prepare(root, &mut book, &lessons, &mut report)?;
    book.build().context("mdBook could not render the book")?;
    report.live = lessons.install(root, &report.out, &prepared.live)?;
    check_rendered(&book.source_dir(), &report.out, prepared)?;
    let warnings = log::take();
    ensure!(warnings.is_empty(), "{warnings}");
    Ok(report)
}

fn load(root: &Path, which: Which) -> Result<MDBook> {
    let dir = root.join("book");
    let mut config = Config::from_disk(dir.join("book.toml"))?;
    config.build.use_default_preprocessors = false;
    config.build.create_missing = false;
    if which == Which::Samples {
        config.book.src = "samples".into();
        config.build.build_dir = root.join("target/book-samples");
    }
    MDBook::load_with_config(dir, config)
}

/// A page ready to be rendered, its path in the sources, and its links.
struct Prepared {
    pages: Vec<(PathBuf, Page)>,
    links: Vec<Link>,
    /// The pages with live figures, in the built book.
    live: Vec<PathBuf>,
}

/// Expands and checks every chapter in place.
fn prepare(
    root: &Path,
    book: &mut MDBook,
    lessons: &Lessons,
    report: &mut Report,
) -> Result<Prepared> {
    let solutions = solutions::load(root)?;
    let css = book.root.join("theme/figures.css");
    let css = std::fs::read_to_string(&css).with_context(|| css.display().to_string())?;
    let house = house_classes(&css);
    let src = book.source_dir();
    let mut problems = Problems::default();
    let mut prepared = Prepared { pages: Vec::new(), links: Vec::new(), live: Vec::new() };
    book.book.for_each_mut(|item| {
        let BookItem::Chapter(chapter) = item else {
            return;
        };
        let Some(path) = chapter.path.clone() else {
            return;
        };
        let file = src.join(&path);
        let page = Page::new(&include::shown_name(&file, root), &chapter.content);
        let dir = file.parent().unwrap_or(&src);
        let page = include::expand(page, root, dir, lessons, &mut problems);
        if page.lines.iter().any(|line| line.text.contains("data-live=")) {
            prepared.live.push(path.with_extension("html"));
        }
        let blocks = page.code_blocks(&mut problems);
        code_blocks::check(&page, &blocks, &mut problems);
        solutions::check(&page, &blocks, &solutions, &mut problems);
        let (page, formulas) = math::render(page, &mut problems);
        report.pages += 1;
        report.formulas += formulas;
        report.figures += figures::check(&page, root, &house, &mut problems);
        chapter.content = page.text();
        prepared.pages.push((path, page));
    });
    for (path, page) in &prepared.pages {
        prepared.links.extend(links::collect(path, page, &mut problems)?);
    }
    problems.into_result()?;
    Ok(prepared)
}

/// What can only be seen in the finished pages: ids and the links to them.
fn check_rendered(src: &Path, out: &Path, prepared: Prepared) -> Result<()> {
    let mut problems = Problems::default();
    let mut anchors = Anchors::new();
    for (path, page) in prepared.pages {
        let file = out.join(path.with_extension("html"));
        let html = std::fs::read_to_string(&file).with_context(|| file.display().to_string())?;
        let ids = links::anchors(&html, &page, &mut problems)?;
        anchors.insert(path, ids);
    }
    links::check(&prepared.links, &anchors, src, &mut problems);
    problems.into_result()
}
