//! `cargo xtask explain`: looks up an error message and its fix on the book's page of messages.

use crate::term::{paint, wrap, Color};
use crate::{note, say};
use anyhow::Result;
use candecode_course::Repo;
use clap::Args;
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
    let found = find(&sections, &query);
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

/// Returns the sections with the longest run of words from a message, and the messages to show from
/// each. Among equals, the run in the title counts. Fewer than three words are enough only if they
/// are in a title, or if they are the whole message and few sections have them. If the message has
/// an error code of the compiler (`E0308`), only that is looked for.
fn find<'a>(sections: &'a [Section], query: &str) -> Vec<(&'a Section, Vec<&'a String>)> {
    let is_code = |word: &&str| {
        word.len() == 5 && word.starts_with('E') && word[1..].bytes().all(|b| b.is_ascii_digit())
    };
    let code = query.split(|c: char| !c.is_alphanumeric()).find(is_code);
    let query = words(code.unwrap_or(query));
    let run = |text: &String| longest_run(&query, text);
    let found = best(sections, |section| {
        let in_title = run(&section.title);
        (section.parts.iter().map(run).chain([in_title]).max(), in_title)
    });
    let Some(((Some(longest), in_title), found)) = found else { return vec![] };
    let has_it = |section: &&Section| section.parts.iter().any(|part| run(part) == longest);
    let is_rare = || longest == query.len() && sections.iter().filter(has_it).count() <= SHOWN;
    let is_enough = query.len() == 1 || longest >= 3 || in_title >= 2 || is_rare();
    if longest == 0 || !is_enough {
        return vec![];
    }
    let messages = |section: &'a Section| {
        let messages = best(section.parts.iter().filter(|part| part.starts_with("$ ")), run);
        messages.map_or(vec![], |(_, messages)| messages)
    };
    found.into_iter().map(|section| (section, messages(section))).collect()
}

/// Returns the words of a text in lower case. Numbers are left out, because those in a pasted
/// message differ from those on the page.
fn words(text: &str) -> Vec<String> {
    let words = text.split(|c: char| !c.is_alphanumeric() && c != '_');
    let is_word = |word: &&str| word.contains(|c: char| !c.is_ascii_digit());
    words.filter(is_word).map(str::to_lowercase).collect()
}

/// Returns how many words of the query follow each other in the text, at most.
fn longest_run(query: &[String], text: &str) -> usize {
    let text = format!(" {} ", words(text).join(" "));
    let mut longest = 0;
    for from in 0..query.len() {
        while query.len() > from + longest
            && text.contains(&format!(" {} ", query[from..=from + longest].join(" ")))
        {
            longest += 1;
        }
    }
    longest
}

/// Returns the highest score, and the first [`SHOWN`] items that have it.
fn best<'a, T, S: Ord + Copy>(
    items: impl IntoIterator<Item = &'a T>,
    score: impl Fn(&'a T) -> S,
) -> Option<(S, Vec<&'a T>)> {
    let items: Vec<(S, &T)> = items.into_iter().map(|item| (score(item), item)).collect();
    let highest = items.iter().map(|(score, _)| *score).max()?;
    let best = items.iter().filter(|(score, _)| *score == highest).map(|(_, item)| *item);
    Some((highest, best.take(SHOWN).collect()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn explain_finds_the_section_for_a_word_or_pasted_message() {
        let page = include_str!("../../../book/src/when_something_goes_wrong.md");
        let sections = sections(page);
        let titles = |query: &str| -> Vec<&str> {
            find(&sections, query).iter().map(|(section, _)| section.title.as_str()).collect()
        };
        assert_eq!(titles("gated")[0], "A model that is private or gated");
        let pasted = "error: me/mine: could not fetch config.json: https://huggingface.co is out \
                      of reach (io: Connection refused (os error 111)); is there a network?";
        assert_eq!(titles(pasted)[0], "There is no network, or the hub can't be reached");
        for (pasted, title) in [
            ("error[E0308]: `?` operator has incompatible types", "error[E0308]: mismatched types"),
            ("mismatched types", "error[E0308]: mismatched types"),
            ("connection refused", "There is no network, or the hub can't be reached"),
            (
                "your code returned an error: shape mismatch in broadcast_sub, lhs: [2, 3, 5], \
                 rhs: [2, 3]",
                "shape mismatch in matmul, add, broadcast_sub or broadcast_as",
            ),
            (
                "unexpected rank, expected: 2, got: 3 ([1, 2, 3])",
                "unexpected rank, dimension index out of range, cannot broadcast, narrow invalid \
                 args",
            ),
            (
                "error: task 6.1 is not written yet: Return the logits",
                "not written yet, not yet implemented",
            ),
            (
                "error: invalid value '0' for '--max-new-tokens <N>': give a whole number",
                "An unknown flag, or an invalid value",
            ),
        ] {
            assert_eq!(titles(pasted).first(), Some(&title), "{pasted}");
        }
        for unknown in ["error: linker `cc` was not found", "is the", "404"] {
            assert_eq!(titles(unknown), [""; 0], "{unknown}");
        }
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
