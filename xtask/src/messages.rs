//! The book's page of messages: what tests made the commands say, in the order of `book/messages.toml`, with its advice.

use crate::repo::Repo;
use anyhow::{anyhow, bail, Context, Result};
use serde_json::Value;
use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::Path;
use toml::{Table, Value as Toml};

/// What the page says beside the messages, relative to the root.
pub const FILE: &str = "book/messages.toml";
/// The page, relative to the root.
pub const PAGE: &str = "book/src/when_something_goes_wrong.md";
/// Longer lines of a message are folded: the book shows so many without scrolling.
const WIDTH: usize = 84;

/// A message that a test provoked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// The test, with its module if it has one.
    pub test: String,
    /// The arguments of the command, where the test says them.
    pub args: Vec<String>,
    /// The exit code.
    pub code: i64,
    /// What was said, without what differs from run to run.
    pub text: String,
}

/// Reads what tests kept in a folder, in the order of their names, each test's in its order.
///
/// # Errors
/// If the folder cannot be read, or a line is none of theirs.
pub fn read(repo: &Repo, dir: &Path) -> Result<Vec<Message>> {
    let entries = std::fs::read_dir(dir).with_context(|| dir.display().to_string())?;
    let mut files: Vec<_> = entries.flatten().map(|entry| entry.path()).collect();
    files.sort();
    let mut messages = Vec::new();
    for file in files {
        for line in std::fs::read_to_string(&file)?.lines() {
            let message = message(repo, line);
            messages.push(message.with_context(|| format!("{}: {line}", file.display()))?);
        }
    }
    Ok(messages)
}

/// One line of a test's file.
fn message(repo: &Repo, line: &str) -> Option<Message> {
    let value: Value = serde_json::from_str(line).ok()?;
    let args = value["args"].as_array()?.iter().filter_map(Value::as_str);
    Some(Message {
        test: value["test"].as_str()?.to_string(),
        args: args.map(|arg| general(repo, arg)).collect(),
        code: value["code"].as_i64()?,
        text: from_error(&general(repo, value["message"].as_str()?)),
    })
}

/// A text without what differs from run to run: a test's folders, the address of its hub, the place of the repository.
fn general(repo: &Repo, text: &str) -> String {
    let temporary = std::env::temp_dir().display().to_string();
    let temporary = temporary.trim_end_matches('/');
    let name = |c: char| c.is_alphanumeric() || c == '-' || c == '_';
    let digit = |c: char| c.is_ascii_digit();
    let mut text = text.replace(&format!("{}/", repo.root.display()), "");
    for (start, rest, instead) in [
        ("/candecode-home-", &name as &dyn Fn(char) -> bool, "~/.cache/huggingface"),
        ("/candecode-hub-", &name, "~/.cache/huggingface"),
        ("/candecode-fake-", &name, "~/candecode"),
        ("/candecode-", &name, "my-model"),
    ] {
        text = replaced(&text, &format!("{temporary}{start}"), rest, instead);
    }
    text = replaced(&text, "rustc 1.", &|c| name(c) || c == '.', "rustc 1.x");
    replaced(&text, "http://127.0.0.1:", &digit, "https://huggingface.co")
}

/// Every `start` and the characters after it that are `rest`, replaced.
fn replaced(text: &str, start: &str, rest: &dyn Fn(char) -> bool, instead: &str) -> String {
    let mut parts = text.split(start);
    let mut out = parts.next().unwrap_or_default().to_string();
    for part in parts {
        out += instead;
        out += part.trim_start_matches(rest);
    }
    out
}

/// A message from its error on, without the last lines of a flag's: what a command tells before of its progress, and how it
/// is used, is not what went wrong.
fn from_error(text: &str) -> String {
    let at = text.find("error:").filter(|at| *at == 0 || text[..*at].ends_with('\n'));
    let text = &text[at.unwrap_or(0)..];
    let usage =
        |line: &&str| line.starts_with("Usage: ") || line.starts_with("For more information");
    let lines: Vec<&str> = text.lines().take_while(|line| !usage(line)).collect();
    lines.join("\n").trim_end().to_string()
}

/// The page, made of the messages.
///
/// # Errors
/// If the file of advice is no TOML of that shape, names a message that no test provoked, or leaves one out.
pub fn page(repo: &Repo, messages: &[Message]) -> Result<String> {
    let table: Table = repo.read(FILE)?.parse().map_err(|e| anyhow!("{FILE}: {e}"))?;
    let mut page = format!(
        "<!-- Made by `cargo xtask messages`, of {FILE} and what the tests provoke: edit that. -->\n\n\
         # When something goes wrong\n\n{}\n",
        text(&table, "intro")?
    );
    let mut used: BTreeSet<usize> = BTreeSet::new();
    for section in list(&table, "section") {
        write!(page, "\n## {}\n\n{}\n", text(section, "title")?, text(section, "text")?)?;
        for entry in list(section, "entry") {
            let chosen = choose(entry, "from", messages)?;
            page += &shown(entry, chosen.iter().map(|at| &messages[*at]))?;
            used.extend(chosen);
        }
    }
    used.extend(choose(&table, "aside", messages)?);
    match messages.iter().enumerate().find(|(at, _)| !used.contains(at)) {
        None => Ok(page),
        Some((_, message)) => bail!(
            "{FILE}: no entry has what `{}` provokes: {}\n(an entry's `from`, or `aside`, wants \"{}\")",
            message.test, message.text, message.test
        ),
    }
}

/// The messages that a list names: `"test"` for all of a test, `"test: words"` for those with the words, and `"start*"` for
/// all tests whose names begin so.
fn choose(table: &Table, key: &str, messages: &[Message]) -> Result<Vec<usize>> {
    let names = table
        .get(key)
        .and_then(Toml::as_array)
        .with_context(|| format!("{FILE}: an entry lacks `{key}`"))?;
    let mut chosen = Vec::new();
    for name in names.iter().filter_map(Toml::as_str) {
        let (test, words) = name.split_once(": ").unwrap_or((name, ""));
        let of = |message: &Message| match test.strip_suffix('*') {
            Some(start) => message.test.starts_with(start),
            None => message.test == test,
        };
        let fits = |message: &Message| of(message) && message.text.contains(words);
        let before = chosen.len();
        chosen.extend((0..messages.len()).filter(|at| fits(&messages[*at])));
        if chosen.len() == before && key != "aside" {
            bail!("{FILE}: no test provokes \"{name}\"");
        }
    }
    Ok(chosen)
}

/// One entry: what was done, what is said, what to do.
fn shown<'a>(entry: &Table, messages: impl Iterator<Item = &'a Message>) -> Result<String> {
    let (mut said, mut last, mut codes) = (Vec::new(), String::new(), BTreeSet::new());
    let mut seen = BTreeSet::new();
    for message in messages.filter(|message| seen.insert(&message.text)) {
        codes.insert(message.code);
        let command = command(&message.args);
        let typed = match command.is_empty() {
            _ if command == last => String::new(),
            true => "\n".to_string(), // of another command than the one before
            false => format!("{command}\n"),
        };
        let lines: Vec<String> = message.text.lines().map(fold).collect();
        said.push(format!("{typed}{}", lines.join("\n")));
        last = command;
    }
    let codes: Vec<String> = codes.iter().map(i64::to_string).collect();
    Ok(format!(
        "\n### {}\n\n{}\n\n```console\n{}\n```\n\n{} (Exit code {}.)\n",
        text(entry, "title")?,
        text(entry, "did")?,
        said.join("\n"),
        text(entry, "advice")?,
        codes.join(" or ")
    ))
}

/// A command as it is typed; empty if its arguments are not known.
fn command(args: &[String]) -> String {
    let word = |arg: &String| match arg.chars().count() {
        n if n > 40 => format!("\"{}…\"", arg.chars().take(24).collect::<String>()),
        _ if arg.is_empty() || arg.contains([' ', '(', '*', '?']) => format!("\"{arg}\""),
        _ => arg.clone(),
    };
    match args {
        [] => String::new(),
        [first, rest @ ..] if first == "--chat" => {
            format!("$ cargo xtask chat {}", rest.iter().map(word).collect::<Vec<_>>().join(" "))
        }
        [first, ..] if ["check", "doctor"].contains(&first.as_str()) => {
            format!("$ cargo xtask {}", args.iter().map(word).collect::<Vec<_>>().join(" "))
        }
        _ => format!("$ cargo xtask run {}", args.iter().map(word).collect::<Vec<_>>().join(" ")),
    }
}

/// A line, folded between words; what follows is set in.
fn fold(line: &str) -> String {
    let (mut folded, mut width) = (String::new(), 0);
    for (at, word) in line.split(' ').enumerate() {
        let length = word.chars().count();
        if width > 2 && width + 1 + length > WIDTH {
            folded += &format!("\n  {word}");
            width = 2 + length;
        } else {
            let space = if at > 0 { " " } else { "" };
            folded += &format!("{space}{word}");
            width += space.len() + length;
        }
    }
    folded
}

fn text<'a>(table: &'a Table, key: &str) -> Result<&'a str> {
    let text = table.get(key).and_then(Toml::as_str).map(str::trim);
    let title = table.get("title").and_then(Toml::as_str).unwrap_or("an entry");
    text.with_context(|| format!("{FILE}: {title} lacks `{key}`"))
}

fn list<'a>(table: &'a Table, key: &str) -> impl Iterator<Item = &'a Table> {
    table.get(key).and_then(Toml::as_array).into_iter().flatten().filter_map(Toml::as_table)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_differs_from_run_to_run_goes() {
        let digit = |c: char| c.is_ascii_digit();
        let text = replaced(
            "at http://127.0.0.1:8123/x, http://127.0.0.1:9",
            "http://127.0.0.1:",
            &digit,
            "HUB",
        );
        assert_eq!(text, "at HUB/x, HUB");
        assert_eq!(from_error("fetching a\nerror: no b\n"), "error: no b");
        assert_eq!(from_error("no error: at all"), "no error: at all");
        assert_eq!(from_error("error: no -x\n\nUsage: a\n\nFor more"), "error: no -x");
    }

    #[test]
    fn long_lines_are_folded_between_words() {
        let line = "word ".repeat(30);
        assert!(fold(&line).lines().all(|line| line.chars().count() <= WIDTH));
        assert_eq!(fold("  short"), "  short");
    }

    #[test]
    fn a_long_argument_is_cut() {
        let args = ["-p".to_string(), "once upon a time ".repeat(9)];
        assert_eq!(command(&args), "$ cargo xtask run -p \"once upon a time once up…\"");
    }
}
