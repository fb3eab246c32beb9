//! `cargo xtask explain`: looks up a message's meaning and fix in the book's page of messages.

use crate::repo::Repo;
use crate::term::{paint, wrap, Colour};
use crate::{note, say};
use anyhow::Result;
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
    /// A word of the message, or all of it
    #[arg(required = true, value_name = "WORD", allow_hyphen_values = true)]
    words: Vec<String>,
}

/// A section of the page: its title, and its paragraphs and messages in order.
struct Section {
    title: String,
    parts: Vec<String>,
}

/// Prints the sections about a message. The exit code is 1 if there are none.
///
/// # Errors
/// If the page can't be read.
pub fn run(repo: &Repo, args: &Explain) -> Result<ExitCode> {
    let sections = sections(&repo.read(PAGE)?);
    let query = args.words.join(" ");
    let found = find(&sections, &query);
    for (section, messages) in &found {
        say!("{}\n", paint(Colour::Bold, &section.title));
        for part in &section.parts {
            if !part.starts_with("$ ") {
                say!("{}\n", wrap(part, WIDTH));
            } else if messages.contains(&part) {
                say!("{part}\n");
            }
        }
    }
    if found.is_empty() {
        note!("nothing about \"{query}\" in {PAGE}: try one word of the message");
    }
    Ok(ExitCode::from(u8::from(found.is_empty())))
}

/// Parses the page into sections. Each paragraph is one part, and so is a command with its output.
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
        if is_fence || (!in_code && line.is_empty()) {
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

fn words(text: &str) -> HashSet<String> {
    let words = text.split(|c: char| !c.is_alphanumeric() && c != '_');
    words.filter(|word| !word.is_empty()).map(str::to_lowercase).collect()
}

/// Returns the sections that share the most words with the query, each with its matching messages.
/// Rare words count more, and words that most sections contain don't count. At least half of the
/// query has to match.
fn find<'a>(sections: &'a [Section], query: &str) -> Vec<(&'a Section, Vec<&'a String>)> {
    let text = |section: &Section| words(&format!("{} {}", section.title, section.parts.join(" ")));
    let texts: Vec<HashSet<String>> = sections.iter().map(text).collect();
    let weight = |word: &String| {
        let having = texts.iter().filter(|text| text.contains(word)).count();
        let common = 4 * having >= 3 * texts.len();
        if common {
            0.0
        } else {
            ((texts.len() + 1) as f64 / (having + 1) as f64).ln()
        }
    };
    let query: HashMap<String, f64> =
        words(query).into_iter().map(|word| (word.clone(), weight(&word))).collect();
    let score = |text: &HashSet<String>| -> f64 {
        query.iter().filter(|(word, _)| text.contains(*word)).map(|(_, weight)| weight).sum()
    };
    let messages = |section: &'a Section| {
        best(section.parts.iter().filter(|part| part.starts_with("$ ")), |part| score(&words(part)))
    };
    let all: f64 = query.values().sum();
    let found = best(sections.iter().zip(&texts), |(_, text)| score(text));
    let found = found.into_iter().filter(|(_, text)| score(text) > 0.0 && 2.0 * score(text) >= all);
    found.map(|(section, _)| (section, messages(section))).collect()
}

/// Returns the first few items with a score close to the highest.
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
    fn a_word_and_a_pasted_message_find_their_section() {
        let page = include_str!("../../../book/src/when_something_goes_wrong.md");
        let sections = sections(page);
        let titles = |query: &str| -> Vec<&str> {
            find(&sections, query).iter().map(|(section, _)| section.title.as_str()).collect()
        };
        assert_eq!(titles("gated")[0], "A model that is private or gated");
        let pasted = "error: me/mine: could not fetch config.json: https://huggingface.co is out \
                      of reach (io: Connection refused (os error 111)); is there a network?";
        assert_eq!(titles(pasted)[0], "There is no network, or it does not lead to the hub");
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
