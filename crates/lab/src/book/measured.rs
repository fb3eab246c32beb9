//! The book's measured numbers: what a benchmark or a run printed on one machine.
//!
//! A block begins with `<!-- measured: COMMAND -->`, a line of bash. Below it is a fence, or lines
//! up to `<!-- end of measured -->`, and `cargo lab measure` replaces them with what the command
//! prints. `book --check` measures nothing. It compares prose with the blocks:
//!
//! `<!-- prose: "WORDS" is "LABEL" N, LOW to HIGH -->`
//!
//! The page says WORDS, and the Nth number after the first LABEL in its measured blocks is between
//! LOW and HIGH. So is the first number in WORDS, if they have one. `"LABEL" N over "LABEL" N` is a
//! ratio, and `PAGE "LABEL" N` is on another page. A number can have a unit: µs, ms, s.

use super::{one, Page};
use anyhow::{ensure, Context, Result};
use candecode_book::marked::marker;
use candecode_book::Problem;
use regex::Regex;
use std::ops::Range;
use std::sync::LazyLock;
use xtask::checking::table::Sum;
use xtask::say;

/// The last line of a measured block without a fence.
const END: &str = "<!-- end of measured -->";

/// A measured block.
#[derive(Debug, PartialEq)]
pub struct Block {
    /// The line of the marker, from 0.
    pub line: usize,
    /// The command, a line of bash.
    pub command: String,
    /// The lines that the command prints.
    pub body: Range<usize>,
}

/// Returns a page's measured blocks. An error is the index of a line, and what is wrong there.
pub fn blocks(lines: &[&str]) -> Result<Vec<Block>, (usize, String)> {
    let mut found = Vec::new();
    let mut fenced = false;
    for (line, text) in lines.iter().enumerate() {
        if text.trim_start().starts_with("```") {
            fenced = !fenced;
            let typed = |at: usize| lines.get(at).is_some_and(|text| text.starts_with("$ "));
            let bench = |text: &&&str| text.starts_with("$ cargo xtask bench");
            let bench = lines.get(line + 1).filter(bench).is_some_and(|text| !text.ends_with('\\'));
            let prints = !typed(line + 2) && lines.get(line + 2).is_some_and(|text| *text != "```");
            let is_marked = line > 0 && marker(lines[line - 1]).is_some();
            if fenced && bench && prints && !is_marked {
                let message = "a benchmark's output needs `<!-- measured: COMMAND -->` above it";
                return Err((line, message.into()));
            }
        }
        if fenced || !text.trim_start().starts_with("<!-- measured") {
            continue;
        }
        let command = marker(text).map_or("", |(_, command)| command);
        if command.is_empty() {
            return Err((line, "write the command: `<!-- measured: COMMAND -->`".into()));
        }
        let body = if lines.get(line + 1).is_some_and(|next| next.starts_with("```")) {
            let mut rest = line + 2..lines.len();
            rest.find(|at| lines[*at].starts_with("```")).map(|end| line + 2..end)
        } else {
            let mut rest = line + 1..lines.len();
            rest.find(|at| lines[*at] == END).map(|end| line + 1..end)
        };
        let Some(body) = body else {
            return Err((line, format!("a fence must follow this marker, or lines and `{END}`")));
        };
        found.push(Block { line, command: command.to_string(), body });
    }
    Ok(found)
}

/// Returns a page's text with the contents of its measured blocks left out.
pub fn without_blocks(text: &str) -> String {
    let lines: Vec<&str> = text.lines().collect();
    let blocks = blocks(&lines).unwrap_or_default();
    let measured = |at: &usize| blocks.iter().any(|block| block.body.contains(at));
    let kept = (0..lines.len()).filter(|at| !measured(at)).map(|at| lines[at]);
    kept.collect::<Vec<_>>().join("\n")
}

/// Returns the problems with a page's measured blocks and its claims about them.
pub fn problems(page: &Page) -> Vec<Problem> {
    let problem = |line, message| Problem { file: page.file.clone(), line, message };
    let lines: Vec<&str> = page.text.lines().collect();
    match blocks(&lines) {
        Err((line, message)) => vec![problem(line + 1, message)],
        Ok(_) => {
            let unread = |(line, claim): (usize, Option<Claim>)| {
                let shape = "write `<!-- prose: \"WORDS\" is \"LABEL\" N, LOW to HIGH -->`, with \
                             `over \"LABEL\" N` for a ratio and `PAGE \"LABEL\" N` for another \
                             page";
                claim.is_none().then(|| problem(line + 1, shape.to_string()))
            };
            claims(&lines).filter_map(unread).collect()
        }
    }
}

/// Compares the prose of the wanted pages with the measured blocks of all.
pub fn compare(pages: &[Page], wanted: impl Fn(&str) -> bool) -> Sum {
    let mut sum = Sum::default();
    for page in pages.iter().filter(|page| wanted(&page.name)) {
        let lines: Vec<&str> = page.text.lines().collect();
        for (line, claim) in claims(&lines) {
            let result = claim.context("cannot be read").and_then(|claim| claim.check(pages, page));
            if let Err(error) = &result {
                say!("{}:{}: {error:#}", page.file, line + 1);
            }
            sum.add(one(result.is_ok()));
        }
    }
    sum
}

/// One number in a measured block.
struct Place {
    /// The page's file name without its extension, unless it's the claim's own page.
    page: Option<String>,
    label: String,
    /// Which number after the label, from 1.
    number: usize,
}

/// What the prose says about a number, or about the ratio of two.
struct Claim {
    words: String,
    places: Vec<Place>,
    low: f64,
    high: f64,
}

/// Returns the lines of a page that are claims, and the claims that can be read.
fn claims<'a>(lines: &'a [&str]) -> impl Iterator<Item = (usize, Option<Claim>)> + 'a {
    let claim = |(line, text): (usize, &&str)| match marker(text) {
        Some(("prose", rest)) => Some((line, Claim::read(rest))),
        _ => None,
    };
    lines.iter().enumerate().filter_map(claim)
}

static CLAIM: LazyLock<Regex> =
    LazyLock::new(|| pattern(r#"^"(.+?)" is (.+), ([^,]+) to ([^,]+)$"#));
static PLACE: LazyLock<Regex> =
    LazyLock::new(|| pattern(r#"^(?:(?<page>\w+) )?"(?<label>[^"]+)" (?<number>\d+)$"#));
static NUMBER: LazyLock<Regex> =
    LazyLock::new(|| pattern(r"\b(?<digits>\d[\d,]*(?:\.\d+)?)(?:%|\b)(?: ?(?<unit>µs|ms|s)\b)?"));

#[expect(clippy::expect_used, reason = "the patterns above are constants")]
fn pattern(text: &str) -> Regex {
    Regex::new(text).expect("a pattern of this module")
}

impl Claim {
    fn read(rest: &str) -> Option<Self> {
        let found = CLAIM.captures(rest)?;
        let places = found[2].split(" over ").map(Place::read).collect::<Option<Vec<_>>>()?;
        let bound = |text: &str| numbers(text).next();
        let (low, high) = (bound(&found[3])?, bound(&found[4])?);
        let words = found[1].to_string();
        (places.len() <= 2 && low <= high).then_some(Self { words, places, low, high })
    }

    fn check(&self, pages: &[Page], page: &Page) -> Result<()> {
        let Self { words, low, high, .. } = self;
        let prose = page.text.lines().filter(|line| marker(line).is_none());
        let said = plain(&prose.collect::<Vec<_>>().join(" ")).contains(&plain(words));
        ensure!(said, "the page no longer says \"{words}\"");
        let between = |number: f64| (*low..=*high).contains(&number);
        if let Some(number) = numbers(words).next() {
            ensure!(between(number), "\"{words}\": {number} isn't between {low} and {high}");
        }
        let values = self.places.iter().map(|place| place.value(pages, page));
        let values = values.collect::<Result<Vec<_>>>()?;
        let value = values[0] / values.get(1).unwrap_or(&1.0);
        ensure!(
            between(value),
            "the page says \"{words}\", but its measured block says {value:.4}, which isn't \
             between {low} and {high}"
        );
        Ok(())
    }
}

impl Place {
    fn read(text: &str) -> Option<Self> {
        let found = PLACE.captures(text.trim())?;
        let page = found.name("page").map(|page| page.as_str().to_string());
        let number = found["number"].parse().ok().filter(|number| *number > 0)?;
        Some(Self { page, label: found["label"].to_string(), number })
    }

    /// Returns the number that stands there now.
    fn value(&self, pages: &[Page], own: &Page) -> Result<f64> {
        let Self { label, number, .. } = self;
        let page = match &self.page {
            None => own,
            Some(name) => {
                let named = |page: &&Page| page.name.trim_end_matches(".md") == name;
                pages.iter().find(named).with_context(|| format!("no page {name}.md"))?
            }
        };
        let lines: Vec<&str> = page.text.lines().collect();
        let blocks = blocks(&lines).map_err(|(_, message)| anyhow::anyhow!(message))?;
        let measured = blocks.iter().flat_map(|block| &lines[block.body.clone()]);
        let mut after = measured.filter_map(|line| Some(line.split_once(label.as_str())?.1));
        let after = after.next();
        let after = after.with_context(|| format!("no measured block has \"{label}\""))?;
        let value = numbers(after).nth(number - 1);
        value.with_context(|| format!("no number {number} after \"{label}\" in a measured block"))
    }
}

/// Returns the numbers in a text, times in seconds.
fn numbers(text: &str) -> impl Iterator<Item = f64> + '_ {
    NUMBER.captures_iter(text).filter_map(|found| {
        let number: f64 = found["digits"].replace(',', "").parse().ok()?;
        Some(match found.name("unit").map(|unit| unit.as_str()) {
            Some("µs") => number / 1e6,
            Some("ms") => number / 1e3,
            _ => number,
        })
    })
}

/// Replaces each run of whitespace with a single space.
fn plain(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: &str = "Four rows are about 3 times\nas fast.\n\
        <!-- prose: \"about 3 times as fast\" is \"4 rows:\" 1, 2 to 4 -->\n\n\
        <!-- measured: cargo xtask bench day12 -->\n```console\n$ cargo xtask bench day12\n \
        1 row: 400 µs\n 4 rows: 2.90 times, 1.5 ms\n```\n";

    fn page(text: &str) -> Page {
        Page { file: "book/src/a.md".into(), name: "a.md".into(), text: text.into() }
    }

    fn result(text: &str) -> Sum {
        let pages = [page(text), Page { name: "b.md".into(), ..page(PAGE) }];
        compare(&pages, |name| name == "a.md")
    }

    #[test]
    fn a_block_has_a_command_and_an_end() {
        let lines: Vec<&str> = PAGE.lines().collect();
        let command = "cargo xtask bench day12".to_string();
        assert_eq!(blocks(&lines).unwrap(), [Block { line: 4, command, body: 6..9 }]);
        let table = "<!-- measured: run -->\n\n| a |\n\n<!-- end of measured -->";
        let lines: Vec<&str> = table.lines().collect();
        assert_eq!(blocks(&lines).unwrap()[0].body, 1..4);
        for (page, line) in [
            ("x\n<!-- measured: -->\n```text\n1\n```", 2),
            ("<!-- measured -->\n```text\n1\n```", 1),
            ("<!-- measured: run -->\n| a |", 1),
            ("```console\n$ cargo xtask bench day12\n1 row: 2\n```", 1),
        ] {
            let found = problems(&super::tests::page(page));
            assert_eq!(found.len(), 1, "{page}");
            assert_eq!(found[0].line, line, "{page}");
        }
    }

    #[test]
    fn prose_that_contradicts_its_block_fails() {
        let (good, bad) = (Sum { passed: 1, failed: 0 }, Sum { passed: 0, failed: 1 });
        assert_eq!(result(PAGE), good);
        assert_eq!(result(&PAGE.replace("2.90", "4.10")), bad);
        assert_eq!(result(&PAGE.replace("about 3 times\nas", "about 2 times\nas")), bad);
        assert_eq!(result(&PAGE.replace("about 3 times", "about 5 times")), bad);
        assert_eq!(result(&PAGE.replace(" 4 rows: ", " 5 rows: ")), bad);
    }

    #[test]
    fn a_ratio_has_units_and_pages() {
        for (places, low, good) in [
            ("\"4 rows:\" 2 over \"1 row:\" 1, 3.7 to 3.8", "", true),
            ("b \"4 rows:\" 2 over b \"1 row:\" 1, 3.7 to 3.8", "", true),
            ("\"4 rows:\" 2, 1 ms to 2 ms", "", true),
            ("\"4 rows:\" 3, 1 to 2", "", false),
            ("c \"4 rows:\" 1, 1 to 4", "", false),
        ] {
            let text = PAGE.replace("about 3 times\nas", "much\nas");
            let words = "\"about 3 times as fast\" is \"4 rows:\" 1, 2 to 4";
            let text = text.replace(words, &format!("\"much as fast\" is {places}{low}"));
            assert_eq!(result(&text).failed == 0, good, "{places}");
        }
        let page = page("<!-- prose: \"a\" = \"b\" 1 -->");
        assert_eq!(problems(&page).len(), 1);
    }

    #[test]
    fn what_is_measured_can_change_without_the_page() {
        let again = PAGE.replace("2.90", "3.10");
        assert_eq!(without_blocks(PAGE), without_blocks(&again));
        assert_ne!(without_blocks(PAGE), without_blocks(&PAGE.replace("Four", "Five")));
    }
}
