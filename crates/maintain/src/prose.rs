//! `cargo maintain prose`: sentences of the book that are worth another look.
//!
//! It finds the patterns that `book/README.md` names, as far as a pattern of letters can. It is a list
//! for the eyes of a writer, and it never fails: a good sentence may well be on it.

use anyhow::{Context, Result};
use clap::Args;
use regex::Regex;
use std::process::{Command, ExitCode};
use xtask::repo::Repo;
use xtask::say;

/// The flags of `prose`.
#[derive(Args)]
pub struct Prose {
    /// What was added since this commit
    #[arg(long, value_name = "COMMIT", default_value = "HEAD~1")]
    base: String,
}

/// A pattern of letters, and what to do about it.
const PATTERNS: [(&str, &str); 9] = [
    (r"\w: [a-z]", "a colon in place of because, so, but or namely?"),
    (
        r"(^|[,;] )([Ww]hat) (is|are|was|falls|stands|comes|goes|has|they|it|theirs)\b",
        "name the thing",
    ),
    (r"\b([Nn]obody|[Nn]othing) (but|looks|is|sees|has)\b", "say who does it, or does not"),
    (r"\b(is|are) no \w+", "\"is not a …\", or the positive statement"),
    (r"(^|[.:;] )Of \w+ ", "subject first"),
    (
        r"\b(in place of|anew|lest|likewise|hangs on|stands|falls|gives way to|for ever|behind it)\b",
        "the usual word?",
    ),
    (r"\b(\d+|one|two|tokens?|rows?|passes|bytes) a (token|pass|beam|row|step)\b", "per"),
    (r"\b(door|coin|rail|golden|oracle)\b", "the field's word"),
    (r"\b[Oo]nly (the )?numbers (find|show)\b", "the refrain"),
];
/// So many short sentences in a row are a staccato.
const STACCATO: usize = 3;
/// A sentence of no more words is short.
const SHORT: usize = 6;

/// Runs `prose`.
///
/// # Errors
/// If git cannot be run.
pub fn run(repo: &Repo, args: &Prose) -> Result<ExitCode> {
    list(repo, &args.base)?;
    Ok(ExitCode::SUCCESS)
}

/// Prints what was added to the book since `base` and looks like one of the patterns.
///
/// # Errors
/// If git cannot be run.
pub fn list(repo: &Repo, base: &str) -> Result<()> {
    let mut command = Command::new("git");
    command.current_dir(&repo.root).args(["diff", "--unified=0", base, "--", "book/src/*.md"]);
    let out = command.output().context("cannot start git")?;
    let patterns: Vec<(Regex, &str)> =
        PATTERNS.iter().map(|(find, say)| Ok((Regex::new(find)?, *say))).collect::<Result<_>>()?;
    let mut found = 0;
    for (file, text) in added(&String::from_utf8_lossy(&out.stdout)) {
        for (sentence, why) in doubtful(&text, &patterns) {
            say!("{file}: {sentence}\n    {why}");
            found += 1;
        }
    }
    say!("{found} sentences to look at again");
    Ok(())
}

/// The prose that a diff adds, file by file: without code, tables, figures and comments.
fn added(diff: &str) -> Vec<(String, String)> {
    let mut files: Vec<(String, String)> = Vec::new();
    let mut code = false;
    for line in diff.lines() {
        if let Some(file) = line.strip_prefix("+++ b/") {
            files.push((file.to_string(), String::new()));
            code = false;
        } else if let (Some(text), Some((_, all))) = (line.strip_prefix('+'), files.last_mut()) {
            code ^= text.trim_start().starts_with("```");
            let prose = !code && !text.trim_start().starts_with(['|', '<', '`', '#', '{', '$']);
            *all += if prose { text } else { "\n" };
            all.push(if text.trim().is_empty() { '\n' } else { ' ' });
        }
    }
    files
}

/// The sentences that look like one of the patterns, each with what to do about it.
fn doubtful<'a>(text: &str, patterns: &[(Regex, &'a str)]) -> Vec<(String, &'a str)> {
    let mut found = Vec::new();
    for paragraph in text.split('\n') {
        let mut short = 0;
        for sentence in paragraph.split_inclusive(['.', '!', '?']).map(str::trim) {
            let words = sentence.split_whitespace().count();
            short = if (1..=SHORT).contains(&words) { short + 1 } else { 0 };
            if short == STACCATO {
                found.push((sentence.to_string(), "the third short sentence in a row: join two?"));
            }
            let question = sentence.ends_with('?');
            let matching = patterns.iter().find(|(find, _)| !question && find.is_match(sentence));
            found.extend(matching.map(|(_, why)| (sentence.to_string(), *why)));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn doubtful_sentences_are_listed_and_code_is_not() {
        let diff = "+++ b/book/src/a.md\n+RoPE has no weights: nothing is learned.\n+\n+```text\n\
                    +x: y is no code\n+```\n+Zero is no temperature.\n+What is a head?\n-Old: gone.\n";
        let patterns: Vec<_> =
            PATTERNS.iter().map(|(find, why)| (Regex::new(find).unwrap(), *why)).collect();
        let [(file, text)] = &added(diff)[..] else { panic!() };
        let found: Vec<String> = doubtful(text, &patterns).into_iter().map(|(s, _)| s).collect();
        assert_eq!(file, "book/src/a.md");
        assert_eq!(found, ["RoPE has no weights: nothing is learned.", "Zero is no temperature."]);
        assert_eq!(doubtful("It runs. It ends. It works.", &patterns).len(), 1);
    }
}
