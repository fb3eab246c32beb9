//! `cargo lab printed`: compares the outputs shown in the book with those of the commands.
//!
//! A page marks an output with a comment above its fence: `<!-- output: cargo xtask run … -->`, or,
//! for the engine with a known mistake, `<!-- broken: day10 whole_buffer_returned: run … -->`. Line
//! breaks can differ, and `…` matches anything. A table whose last column shows how the outputs of
//! broken engines begin is followed by one `<!-- in the table: day05 post_norm: run … -->` per row,
//! in order. Bash runs the commands.

use crate::claims;
use crate::mistaken_engine::{mistaken, named, reference};
use anyhow::{ensure, Context, Result};
use candecode_course::Repo;
use clap::Args;
use std::collections::BTreeMap;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::Duration;
use xtask::checking::table::Sum;
use xtask::term::wrap;
use xtask::{backup, child, host, say};

/// The flags of `printed`.
#[derive(Args)]
pub struct Printed {
    /// Only pages whose name contains this
    page: Option<String>,
    /// Update the pages with the commands' output
    #[arg(long)]
    write: bool,
    /// Also compare the outputs of broken engines, each of which needs a build
    #[arg(long)]
    broken: bool,
    /// Instead, measure the book's claims about speeds and counts (book/claims.toml). Close other
    /// programs first
    #[arg(long, conflicts_with_all = ["write", "broken"])]
    claims: bool,
}

/// The time limit for one of the book's commands.
const LIMIT: Duration = Duration::from_secs(300);
/// The maximum length of a line that a page shows without scrolling.
const WIDTH: usize = 84;

/// Runs `printed`. The exit code is 1 if a command's output differs from the book's, or if a
/// claim's sentence is gone or doesn't hold.
///
/// # Errors
/// If a marker can't be parsed, or an engine can't be built.
pub fn run(repo: &Repo, args: &Printed) -> Result<ExitCode> {
    let page = args.page.as_deref();
    let mut sum = claims::sentences(repo, page)?;
    sum.add(if args.claims {
        claims::measure(repo, &reference(repo, None)?, page)?
    } else {
        outputs(repo, args)?
    });
    say!("{}", sum.line());
    Ok(ExitCode::from(u8::from(sum.failed > 0)))
}

/// A marked output on a page.
#[derive(Debug)]
struct Marked {
    /// The line of the marker, from 0.
    line: usize,
    /// The day and name of the engine's known mistake, if it has one.
    mistake: Option<(String, String)>,
    /// The commands, as typed.
    commands: Vec<String>,
    /// The lines of the block, or the single row of a table.
    body: Range<usize>,
    in_table: bool,
}

impl Marked {
    /// Returns the output printed on the page, without the commands.
    fn printed(&self, lines: &[String]) -> String {
        let body = &lines[self.body.clone()];
        if self.in_table {
            let cells = body[0].trim().trim_end_matches('|');
            let cell = cells.rsplit('|').next().unwrap_or_default().trim().trim_matches('`');
            return format!("{cell} …");
        }
        untyped(body).join("\n")
    }
}

/// Compares the marked outputs with the commands' current output, or updates the pages.
fn outputs(repo: &Repo, args: &Printed) -> Result<Sum> {
    let mut sum = Sum::default();
    let mut engines: BTreeMap<Option<(String, String)>, PathBuf> = BTreeMap::new();
    for page in pages(repo, args.page.as_deref())? {
        let text = std::fs::read_to_string(&page)?;
        let mut lines: Vec<String> = text.lines().map(str::to_string).collect();
        let mut found = marked(&lines).with_context(|| page.display().to_string())?;
        found.retain(|one| args.broken || one.mistake.is_none());
        // Go from last to first, because an edit shifts all lines after it.
        for one in found.iter().rev() {
            if !engines.contains_key(&one.mistake) {
                engines.insert(one.mistake.clone(), engine(repo, one.mistake.as_ref())?);
            }
            let ask = |typed: &String| said(repo, &engines[&one.mistake], typed);
            let said = one.commands.iter().map(ask).collect::<Result<Vec<_>>>()?.join("\n");
            let printed = one.printed(&lines);
            let place = format!("{}:{}", page.display(), one.line + 1);
            let matches = matches(&printed, &said);
            if !matches && args.write && one.commands.len() == 1 && !one.in_table {
                say!("{place}: updated");
                let typed = one.body.len() - untyped(&lines[one.body.clone()]).len();
                let new: Vec<String> = said.lines().map(wrapped).collect();
                lines.splice(one.body.start + typed..one.body.end, new);
            } else if !matches {
                say!("{place}: the page shows\n{printed}\n  but the command prints\n{said}\n");
                sum.failed += 1;
                continue;
            }
            sum.passed += 1;
        }
        if args.write {
            backup::write(&page, format!("{}\n", lines.join("\n")).as_bytes())?;
        }
    }
    Ok(sum)
}

/// Builds the engine with the reference, or with a known mistake.
fn engine(repo: &Repo, mistake: Option<&(String, String)>) -> Result<PathBuf> {
    match mistake {
        None => reference(repo, None),
        Some((day, name)) => {
            let (day, mistake) = named(repo, day, name)?;
            mistaken(repo, &day, &mistake, None)
        }
    }
}

/// Returns the pages of the book, in order.
fn pages(repo: &Repo, wanted: Option<&str>) -> Result<Vec<PathBuf>> {
    let entries = std::fs::read_dir(repo.root.join("book/src"))?;
    let mut pages: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    pages.retain(|path| path.extension().is_some_and(|ending| ending == "md"));
    pages.retain(|path| wanted.is_none_or(|part| path.to_string_lossy().contains(part)));
    pages.sort();
    Ok(pages)
}

/// Returns all marked outputs of a page. If several markers precede a fence, their commands form
/// one session.
fn marked(lines: &[String]) -> Result<Vec<Marked>> {
    let mut found: Vec<Marked> = Vec::new();
    let (mut commands, mut mistake) = (Vec::new(), None);
    for (line, text) in lines.iter().enumerate() {
        let inside = |mark: &str| text.trim().strip_prefix(mark)?.strip_suffix("-->");
        if let Some(rest) = inside("<!-- in the table:") {
            let (mistake, command) = of_a_mistake(rest)?;
            let row = row_of(lines, line).with_context(|| format!("line {}", line + 1))?;
            let (mistake, commands, body) = (Some(mistake), vec![command], row..row + 1);
            found.push(Marked { line, mistake, commands, body, in_table: true });
        } else if let Some(command) = inside("<!-- output:") {
            commands.push(command.trim().to_string());
        } else if let Some(rest) = inside("<!-- broken:") {
            let (of, command) = of_a_mistake(rest)?;
            mistake = Some(of);
            commands.push(command);
        } else if !commands.is_empty() {
            ensure!(text.starts_with("```"), "line {}: a fence must follow this marker", line);
            let mut rest = line + 1..lines.len();
            let close = rest.find(|at| lines[*at].starts_with("```")).context("unclosed fence")?;
            let (mistake, commands) = (mistake.take(), std::mem::take(&mut commands));
            let (line, body) = (line - 1, line + 1..close);
            found.push(Marked { line, mistake, commands, body, in_table: false });
        }
    }
    ensure!(commands.is_empty(), "a fence must follow the last marker");
    Ok(found)
}

/// Wraps a line that is too long for a page.
fn wrapped(line: &str) -> String {
    if line.chars().count() > WIDTH {
        wrap(line, WIDTH)
    } else {
        line.to_string()
    }
}

/// Parses `DAY NAME: COMMAND`.
fn of_a_mistake(rest: &str) -> Result<((String, String), String)> {
    let (name, command) = rest.split_once(": ").context("expected DAY NAME: COMMAND")?;
    let (day, name) = name.trim().split_once(' ').context("expected DAY NAME")?;
    Ok(((day.to_string(), name.trim().to_string()), command.trim().to_string()))
}

/// Returns the row that the marker at `line` belongs to. A run of n markers belongs to the last n
/// rows of the table above it.
fn row_of(lines: &[String], line: usize) -> Result<usize> {
    let is_marker = |at: usize| lines[at].trim().starts_with("<!-- in the table:");
    let first = (0..=line).rev().take_while(|at| is_marker(*at)).last().unwrap_or(line);
    let count = (line..lines.len()).take_while(|at| is_marker(*at)).count() + line - first;
    let end = (0..first).rev().find(|at| !lines[*at].trim().is_empty()).context("no table")?;
    let row = (end + 1).checked_sub(count).context("no table")? + line - first;
    ensure!(lines[row].starts_with('|'), "the marker must follow a table");
    Ok(row)
}

/// Returns the lines of a block without the typed ones: `$ …`, and any line that follows a typed
/// line ending in a backslash.
fn untyped(lines: &[String]) -> Vec<&str> {
    let mut typed = false;
    let mut kept = Vec::new();
    for line in lines {
        let is_typed = typed || line.starts_with("$ ");
        typed = is_typed && line.ends_with('\\');
        if !is_typed {
            kept.push(line.as_str());
        }
    }
    kept
}

/// A shell function in place of cargo. `run` and `chat` start the given engine, regardless of the
/// flags that choose days, and `compare` uses it.
const CARGO: &str = r#"
cargo() {
  local words=()
  case "$1 $2" in
    "xtask run") ;;
    "xtask chat") words+=(--chat) ;;
    "xtask compare")
      shift 2
      command cargo run --quiet --package candecode-lab -- compare --program "$CANDECODE" "$@"
      return ;;
    *) echo "only run, chat and compare can be checked, not cargo $*"; return 1 ;;
  esac
  shift 2
  while [ $# -gt 0 ]; do
    case "$1" in
      --solution | --mine) shift 2 ;;
      *) words+=("$1"); shift ;;
    esac
  done
  "$CANDECODE" "${words[@]}"
}
run() { cargo xtask run "$@"; }
"#;

/// Runs one of the book's commands with an engine. Returns its standard output, then its standard
/// error without lines that start with `[`.
fn said(repo: &Repo, program: &Path, typed: &str) -> Result<String> {
    let mut command = Command::new("bash");
    command.args(["-c", &format!("{CARGO}{typed}")]).current_dir(&repo.root);
    command.env("CANDECODE", program).env("CANDECODE_MODELS", repo.root.join("models"));
    host::set_threads(&mut command);
    let out = child::run(&mut command, LIMIT)?;
    let errors: Vec<&str> = out.stderr.lines().filter(|line| !line.starts_with('[')).collect();
    Ok(match out.stdout.trim() {
        "" => errors.join("\n"),
        text => format!("{text}\n{}", errors.join("\n")),
    })
}

/// Returns whether the text on a page matches the actual output. Any run of whitespace equals a
/// single space, and `…` matches anything.
fn matches(printed: &str, said: &str) -> bool {
    let plain = |text: &str| {
        let seen: String = text.chars().filter(|c| c.is_whitespace() || !c.is_control()).collect();
        seen.split_whitespace().collect::<Vec<_>>().join(" ")
    };
    let (printed, said) = (plain(printed), plain(said));
    let parts: Vec<&str> = printed.split('…').map(str::trim).collect();
    let Some(mut rest) = said.strip_prefix(parts[0]) else {
        return false;
    };
    for part in &parts[1..] {
        match rest.find(part) {
            Some(at) => rest = &rest[at + part.len()..],
            None => return false,
        }
    }
    rest.trim().is_empty() || parts.len() > 1 && parts.last() == Some(&"")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_marker_needs_a_fence() {
        let page =
            "x\n<!-- output: cargo xtask run --mine 6 -p \"One day\" -->\n```text\na\nb\n```\n\
                    <!-- broken: day06 no_mask: cargo xtask run -->\n```console\n$ cargo\nc\n```";
        let lines: Vec<String> = page.lines().map(str::to_string).collect();
        let found = marked(&lines).unwrap();
        assert_eq!(found[0].commands, ["cargo xtask run --mine 6 -p \"One day\""]);
        assert_eq!((found[0].body.clone(), found[0].mistake.clone()), (3..5, None));
        assert_eq!(found[1].mistake, Some(("day06".into(), "no_mask".into())));
        assert_eq!(untyped(&lines[found[1].body.clone()]), ["c"]);
        assert!(marked(&["<!-- output: cargo xtask run -->".into(), "x".into()]).is_err());
    }

    #[test]
    fn a_table_has_a_row_for_each_marker() {
        let page = "| a | b |\n|---|---|\n| x | `one` |\n| y | `two` |\n\n\
                    <!-- in the table: day05 p: run -->\n<!-- in the table: day05 q: run -p x -->";
        let lines: Vec<String> = page.lines().map(str::to_string).collect();
        let found = marked(&lines).unwrap();
        let printed: Vec<String> = found.iter().map(|one| one.printed(&lines)).collect();
        assert_eq!(printed, ["one …", "two …"]);
        assert_eq!(found[1].mistake, Some(("day05".into(), "q".into())));
        assert!(marked(&["x".into(), "<!-- in the table: day05 p: run -->".into()]).is_err());
    }

    #[test]
    fn whitespace_is_ignored_and_an_ellipsis_matches_anything() {
        assert!(matches("a b\nc", "a  b c\n"));
        assert!(!matches("a b", "a b c"));
        assert!(matches("a …", "a b c") && matches("a … c", "a b c"));
        assert!(!matches("a … d", "a b c") && !matches("b …", "a b c"));
    }
}
