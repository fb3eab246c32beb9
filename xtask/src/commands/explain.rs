//! `cargo xtask explain`: looks up an error message and its fix on the book's page of messages.

use crate::term::{paint, wrap, Color};
use crate::{note, say};
use anyhow::Result;
use candecode_course::Repo;
use clap::Args;
use std::collections::{HashMap, HashSet};
use std::process::ExitCode;

/// The page's path, relative to the root.
const PAGE: &str = "book/src/when_something_goes_wrong.md";
/// The maximum width of a line of prose.
const WIDTH: usize = 88;
/// The maximum number of sections to show, and of messages in each.
const SHOWN: usize = 3;

/// The flags of `explain`.
#[derive(Args)]
pub struct Explain {
    /// A word from the message, or the whole message
    #[arg(required = true, value_name = "WORD", allow_hyphen_values = true)]
    words: Vec<String>,
}

/// A section of the page: its title, and its paragraphs and messages in order.
struct Section {
    title: String,
    parts: Vec<String>,
}

/// Prints the sections that explain a message. The exit code is 1 if there are none.
///
/// # Errors
/// If the page can't be read.
pub fn run(repo: &Repo, args: &Explain) -> Result<ExitCode> {
    let sections = sections(&repo.read(PAGE)?);
    let query = args.words.join(" ");
    let found = find_pasted(&sections, &query);
    for (section, messages) in &found {
        say!("{}\n", paint(Color::Bold, &section.title));
        for part in &section.parts {
            if !part.starts_with("$ ") {
                say!("{}\n", wrap(part, WIDTH));
            } else if messages.contains(&part) {
                say!("{part}\n");
            }
        }
    }
    if found.is_empty() {
        note!("{PAGE} has nothing about \"{query}\"; try a single word from the message");
    }
    Ok(ExitCode::from(u8::from(found.is_empty())))
}

/// Returns the sections that match the compiler's error code in the query (`E0308`), if any;
/// otherwise those that match the whole query; otherwise those that match its first line.
fn find_pasted<'a>(sections: &'a [Section], query: &str) -> Vec<(&'a Section, Vec<&'a String>)> {
    let code = query.split(|c: char| !c.is_alphanumeric()).find(|word| {
        word.len() == 5 && word.starts_with('E') && word[1..].bytes().all(|b| b.is_ascii_digit())
    });
    let first_line = query.lines().next();
    let queries = code.into_iter().chain([query]).chain(first_line);
    queries.map(|query| find(sections, query)).find(|found| !found.is_empty()).unwrap_or_default()
}

/// Parses the page into sections. A part is a paragraph, or a command with its output.
fn sections(page: &str) -> Vec<Section> {
    let mut sections: Vec<Section> = Vec::new();
    let (mut in_code, mut begins) = (false, true);
    for line in page.lines() {
        if line.starts_with('#') && !in_code {
            let title = line.trim_start_matches(['#', ' ']).to_string();
            sections.push(Section { title, parts: vec![] });
        }
        let Some(section) = sections.last_mut().filter(|_| in_code || !line.starts_with('#'))
        else {
            continue;
        };
        let is_fence = line.starts_with("```");
        in_code ^= is_fence;
        // Messages are folded, in HTML.
        if is_fence || (!in_code && (line.is_empty() || line.starts_with('<'))) {
            begins = true;
            continue;
        }
        match section.parts.last_mut().filter(|_| !begins && !line.starts_with("$ ")) {
            Some(part) => *part += &format!("\n{line}"),
            None => section.parts.push(line.to_string()),
        }
        begins = false;
    }
    sections
}

/// Returns the words of a text and its pairs of adjacent words. Numbers are left out, because
/// those in a pasted message differ from those on the page.
fn terms(text: &str) -> HashSet<String> {
    let words = text.split(|c: char| !c.is_alphanumeric() && c != '_');
    let is_word = |word: &&str| word.contains(|c: char| !c.is_ascii_digit());
    let words: Vec<String> = words.filter(is_word).map(str::to_lowercase).collect();
    words.windows(2).map(|pair| pair.join(" ")).chain(words.clone()).collect()
}

/// Returns the sections that best match the query, each with up to [`SHOWN`] of its best-matching
/// messages (the first ones, if none match). Rare words and word pairs count more, those in a title
/// count twice, and those in at least three quarters of the sections don't count. A section must
/// contain words that make up at least half of the query's weight.
fn find<'a>(sections: &'a [Section], query: &str) -> Vec<(&'a Section, Vec<&'a String>)> {
    let text = |section: &Section| terms(&format!("{} {}", section.title, section.parts.join(" ")));
    let texts: Vec<HashSet<String>> = sections.iter().map(text).collect();
    let weight = |term: &String| {
        let having = texts.iter().filter(|text| text.contains(term)).count();
        let common = 4 * having >= 3 * texts.len();
        if common {
            0.0
        } else {
            ((texts.len() + 1) as f64 / (having + 1) as f64).ln()
        }
    };
    let query: HashMap<String, f64> =
        terms(query).into_iter().map(|term| (term.clone(), weight(&term))).collect();
    let sum = |counts: &dyn Fn(&str) -> bool| -> f64 {
        query.iter().filter(|(term, _)| counts(term)).map(|(_, weight)| weight).sum()
    };
    let score = |text: &HashSet<String>| sum(&|term| text.contains(term));
    let in_title = |section: &Section| score(&terms(&section.title));
    let messages = |section: &'a Section| {
        best(section.parts.iter().filter(|part| part.starts_with("$ ")), |part| score(&terms(part)))
    };
    let is_word = |term: &str| !term.contains(' ');
    let all = sum(&is_word);
    let half = |text: &HashSet<String>| {
        let matching = sum(&|term| is_word(term) && text.contains(term));
        matching > 0.0 && 2.0 * matching >= all
    };
    let candidates = sections.iter().zip(&texts).filter(|(_, text)| half(text));
    let found = best(candidates, |(section, text)| score(text) + in_title(section)).into_iter();
    found.map(|(section, _)| (section, messages(section))).collect()
}

/// Returns the first [`SHOWN`] items whose score is within 5% of the highest.
fn best<T>(items: impl Iterator<Item = T>, score: impl Fn(&T) -> f64) -> Vec<T> {
    let items: Vec<(f64, T)> = items.map(|item| (score(&item), item)).collect();
    let highest = items.iter().map(|(score, _)| *score).fold(0.0, f64::max);
    let best = items.into_iter().filter(|(score, _)| *score >= 0.95 * highest);
    best.map(|(_, item)| item).take(SHOWN).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn explain_finds_the_section_for_a_word_or_pasted_message() {
        let page = include_str!("../../../book/src/when_something_goes_wrong.md");
        let sections = sections(page);
        let titles = |query: &str| -> Vec<&str> {
            find_pasted(&sections, query)
                .iter()
                .map(|(section, _)| section.title.as_str())
                .collect()
        };
        assert_eq!(titles("gated")[0], "A model that is private or gated");
        let pasted = "error: me/mine: could not fetch config.json: https://huggingface.co is out \
                      of reach (io: Connection refused (os error 111)); is there a network?";
        assert_eq!(titles(pasted)[0], "There is no network, or the hub can't be reached");
        for (pasted, title) in [
            ("error[E0308]: mismatched types", "error[E0308]: mismatched types"),
            (
                "error[E0308]: mismatched types\n   --> src/day01_attention.rs:42:5\n    |\n42  | \
                 x.matmul(&y)\n    |     ^^^^ expected `Tensor`, found `Result<Tensor, Error>`",
                "error[E0308]: mismatched types",
            ),
            ("error[E0308]: `?` operator has incompatible types", "error[E0308]: mismatched types"),
            ("mismatched types", "error[E0308]: mismatched types"),
            ("E0382", "error[E0382]: borrow of moved value, use of moved value"),
            (
                "shape mismatch in matmul, lhs: [1, 2], rhs: [3, 4]",
                "shape mismatch in matmul, add, broadcast_sub or broadcast_as",
            ),
            (
                "your code returned an error: shape mismatch in broadcast_sub, lhs: [2, 3, 5], \
                 rhs: [2, 3]",
                "shape mismatch in matmul, add, broadcast_sub or broadcast_as",
            ),
            (
                "dtype mismatch in mul, lhs: F32, rhs: U8",
                "dtype mismatch, unexpected dtype, unsupported dtype",
            ),
            (
                "unexpected rank, expected: 2, got: 3 ([1, 2, 3])",
                "unexpected rank, dimension index out of range, cannot broadcast, narrow invalid \
                 args",
            ),
            ("not written", "not written yet, not yet implemented"),
            ("day 6, task 1: this is not written yet", "not written yet, not yet implemented"),
            (
                "error: invalid value '0' for '--max-new-tokens <N>': give a whole number",
                "An unknown flag, or an invalid value",
            ),
        ] {
            assert_eq!(titles(pasted).first(), Some(&title), "{pasted}");
        }
        assert_eq!(titles("error: linker `cc` was not found"), [""; 0]);
        assert_eq!(titles("is the"), [""; 0]);
    }

    #[test]
    fn the_closest_message_of_a_section_is_shown() {
        let page =
            "# A\n## B\nWhy.\n```console\n$ one\nerror: top\n$ two\nerror: p\n\n  tip\n```\nDo.\n";
        let sections = sections(page);
        let found = find(&sections, "p");
        assert_eq!((found[0].0.title.as_str(), found[0].0.parts.len()), ("B", 4));
        assert_eq!(found[0].1, ["$ two\nerror: p\n\n  tip"]);
    }
}
