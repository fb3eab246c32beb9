//! `cargo maintain printed`: what the book prints is what the commands say.
//!
//! A page marks a printed output by a comment above its fence: `<!-- output: cargo xtask run … -->`,
//! or, for the engine with a known mistake, `<!-- broken: day10 whole_buffer_returned: run … -->`. Lines
//! may be wrapped as the page likes; `…` stands for anything. Below a table whose last column is how
//! outputs of broken engines begin, `<!-- in the table: day05 post_norm: run … -->` stands once for
//! each row, in their order. The commands are typed into a shell, so the stage needs bash.

use crate::claims;
use crate::hunt;
use anyhow::{ensure, Context, Result};
use clap::Args;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::Duration;
use xtask::backup;
use xtask::cargo;
use xtask::checks::table::Sum;
use xtask::child;
use xtask::host;
use xtask::repo::Repo;
use xtask::say;

/// The flags of `printed`.
#[derive(Args)]
pub struct Printed {
    /// Only pages whose name contains this
    page: Option<String>,
    /// Write what the commands say into the pages
    #[arg(long)]
    write: bool,
    /// The outputs of broken engines, too: each is a build of its own
    #[arg(long)]
    broken: bool,
    /// Measure what the book says about speed and counts, instead (book/claims.toml); close other
    /// programs
    #[arg(long, conflicts_with_all = ["write", "broken"])]
    claims: bool,
}

/// A command of the book takes no longer than this.
const LIMIT: Duration = Duration::from_secs(120);
/// A line that `--write` wraps is no longer than this: a page shows as much without scrolling.
const WIDTH: usize = 84;

/// Runs `printed`; the exit code is 1 if the book prints something else than a command says.
///
/// # Errors
/// If a marker cannot be read, or an engine cannot be built.
pub fn run(repo: &Repo, args: &Printed) -> Result<ExitCode> {
    let page = args.page.as_deref();
    let mut sum = claims::sentences(repo, page)?;
    sum.add(if args.claims {
        let dir = cargo::target_dir(repo).join("xtask/hunt");
        claims::measure(repo, &hunt::engine(repo, &dir, None)?, page)?
    } else {
        outputs(repo, args)?
    });
    say!("{}", sum.line());
    Ok(ExitCode::from(u8::from(sum.failed > 0)))
}

/// Compares all quick outputs of the book, and looks for the sentences of its claims, for the CI stage.
///
/// # Errors
/// As [`run`].
pub fn quick(repo: &Repo) -> Result<Sum> {
    let mut sum = claims::sentences(repo, None)?;
    sum.add(outputs(repo, &Printed { page: None, write: false, broken: false, claims: false })?);
    Ok(sum)
}

/// A marked output of a page: where its text stands, and what it must be.
struct Marked {
    /// The line of the marker, counted from 0.
    line: usize,
    /// Of a known mistake: its day and name.
    mistake: Option<(String, String)>,
    /// The commands, as they are typed.
    commands: Vec<String>,
    /// The lines of the block, or of a table the one row.
    body: std::ops::Range<usize>,
    /// Whether it is the last cell of that row.
    in_table: bool,
}

impl Marked {
    /// What the page prints, without what is typed.
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

fn outputs(repo: &Repo, args: &Printed) -> Result<Sum> {
    let mut sum = Sum::default();
    let dir = cargo::target_dir(repo).join("xtask/hunt");
    let mut engines = BTreeMap::new();
    for page in pages(repo, args.page.as_deref())? {
        let text = std::fs::read_to_string(&page)?;
        let mut lines: Vec<String> = text.lines().map(str::to_string).collect();
        let mut found = marked(&lines).with_context(|| page.display().to_string())?;
        found.retain(|one| args.broken || one.mistake.is_none());
        // From the last to the first: what is written moves only what comes after it.
        for one in found.iter().rev() {
            if !engines.contains_key(&one.mistake) {
                let program = hunt::engine(repo, &dir, one.mistake.as_ref())?;
                engines.insert(one.mistake.clone(), program);
            }
            let program = &engines[&one.mistake];
            let said: Result<Vec<String>> =
                one.commands.iter().map(|typed| said(repo, program, typed)).collect();
            let said = said?.join("\n");
            let printed = one.printed(&lines);
            if matches(&printed, &said) {
                sum.passed += 1;
            } else if args.write && one.commands.len() == 1 && !one.in_table {
                say!("{}:{}: written anew", page.display(), one.line + 1);
                let typed = one.body.len() - untyped(&lines[one.body.clone()]).len();
                lines.splice(one.body.start + typed..one.body.end, wrapped(&said));
                sum.passed += 1;
            } else {
                let at = format!("{}:{}", page.display(), one.line + 1);
                say!("{at}: the page prints\n{printed}\n  and the command says\n{said}\n");
                sum.failed += 1;
            }
        }
        if args.write {
            backup::write(&page, format!("{}\n", lines.join("\n")).as_bytes())?;
        }
    }
    Ok(sum)
}

/// The pages of the book, in order.
fn pages(repo: &Repo, wanted: Option<&str>) -> Result<Vec<PathBuf>> {
    let entries = std::fs::read_dir(repo.root.join("book/src"))?;
    let mut pages: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    pages.retain(|path| path.extension().is_some_and(|ending| ending == "md"));
    pages.retain(|path| wanted.is_none_or(|part| path.to_string_lossy().contains(part)));
    pages.sort();
    Ok(pages)
}

/// All markers of a page. Several above one fence are the commands of one session.
fn marked(lines: &[String]) -> Result<Vec<Marked>> {
    let mut found: Vec<Marked> = Vec::new();
    let mut commands = Vec::new();
    let mut mistake = None;
    for (line, text) in lines.iter().enumerate() {
        let inside = |mark: &str| text.trim().strip_prefix(mark)?.strip_suffix("-->");
        if let Some(rest) = inside("<!-- in the table:") {
            let (mistake, command) = of_a_mistake(rest)?;
            let row = row_of(lines, line).with_context(|| format!("line {}", line + 1))?;
            found.push(Marked {
                line,
                mistake: Some(mistake),
                commands: vec![command.to_string()],
                body: row..row + 1,
                in_table: true,
            });
            continue;
        }
        let (of, command) = match (inside("<!-- output:"), inside("<!-- broken:")) {
            (Some(command), _) => (None, command),
            (None, Some(rest)) => {
                let (mistake, command) = of_a_mistake(rest)?;
                (Some(mistake), command)
            }
            (None, None) => continue,
        };
        commands.push(command.trim().to_string());
        mistake = of.or(mistake);
        let open = line + 1;
        if lines.get(open).is_some_and(|next| next.starts_with("<!-- ")) {
            continue;
        }
        ensure!(
            lines.get(open).is_some_and(|text| text.starts_with("```")),
            "line {}: a fence comes right after the marker",
            line + 1
        );
        let is_end = |i: &usize| lines[*i].starts_with("```");
        let close = (open + 1..lines.len()).find(is_end).context("a fence never ends")?;
        found.push(Marked {
            line,
            mistake: mistake.take(),
            commands: std::mem::take(&mut commands),
            body: open + 1..close,
            in_table: false,
        });
    }
    Ok(found)
}

/// `DAY NAME: COMMAND`, of a known mistake.
fn of_a_mistake(rest: &str) -> Result<((String, String), &str)> {
    let (name, command) = rest.split_once(": ").context("DAY NAME: COMMAND")?;
    let (day, name) = name.trim().split_once(' ').context("DAY NAME")?;
    Ok(((day.to_string(), name.trim().to_string()), command.trim()))
}

/// The row of a marker at `line`: the table above has as many rows as there are markers below it, or
/// the markers are those of its last rows.
fn row_of(lines: &[String], line: usize) -> Result<usize> {
    let is_marker = |at: usize| lines[at].trim().starts_with("<!-- in the table:");
    let first = (0..=line).rev().take_while(|at| is_marker(*at)).last().unwrap_or(line);
    let count = (line..lines.len()).take_while(|at| is_marker(*at)).count() + line - first;
    let end = (0..first).rev().find(|at| !lines[*at].trim().is_empty()).context("no table")?;
    let row = (end + 1).checked_sub(count).context("no table")? + line - first;
    ensure!(lines[row].starts_with('|'), "a table comes right before the marker");
    Ok(row)
}

/// The lines of a block that were not typed: without `$ …`, and without the lines in which a command
/// goes on after a backslash.
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

/// Stands for cargo in the commands of the book: `run` and `chat` start the engine, whose days are all
/// the reference's, whatever a command says of that, and `compare` asks it.
const CARGO: &str = r#"
cargo() {
  local words=()
  case "$1 $2" in
    "xtask run") ;;
    "xtask chat") words+=(--chat) ;;
    "xtask compare")
      shift 2
      "$MAINTAIN" compare --program "$CANDECODE" "$@"
      return ;;
    *) echo "only the output of run, chat and compare is checked, not of: cargo $*"; return 1 ;;
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

/// The file of this program. An earlier stage may have built it again, and then Linux calls the running one deleted.
fn this_program() -> Result<PathBuf> {
    let path = std::env::current_exe()?;
    let replaced = path.to_str().and_then(|path| path.strip_suffix(" (deleted)"));
    Ok(replaced.map(PathBuf::from).unwrap_or(path))
}

/// What an engine says: its output, or, if it has none, its errors.
fn said(repo: &Repo, program: &Path, typed: &str) -> Result<String> {
    let mut command = Command::new("bash");
    command.args(["-c", &format!("{CARGO}{typed}")]).current_dir(&repo.root);
    command.env("MAINTAIN", this_program()?);
    command.env("CANDECODE", program).env("CANDECODE_MODELS", repo.root.join("models"));
    host::set_threads(&mut command);
    let out = child::run(&mut command, LIMIT, |_| ())?;
    let errors: Vec<&str> = out.stderr.lines().filter(|line| !line.starts_with('[')).collect();
    Ok(match out.stdout.trim() {
        "" => errors.join("\n"),
        text => format!("{text}\n{}", errors.join("\n")),
    })
}

/// Whether a printed text is what was said, white space aside and with `…` for anything.
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

/// A text in lines of the page's width.
fn wrapped(text: &str) -> Vec<String> {
    let mut lines = Vec::new();
    for paragraph in text.lines() {
        let mut line = String::new();
        for word in paragraph.split_inclusive(' ') {
            if line.len() + word.trim_end().len() > WIDTH && !line.is_empty() {
                lines.push(line.trim_end().to_string());
                line.clear();
            }
            line += word;
        }
        lines.push(line.trim_end().to_string());
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_marker_has_a_command_and_a_fence() {
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
    fn white_space_does_not_count_and_an_ellipsis_stands_for_anything() {
        assert!(matches("a b\nc", "a  b c\n"));
        assert!(!matches("a b", "a b c"));
        assert!(matches("a …", "a b c") && matches("a … c", "a b c"));
        assert!(!matches("a … d", "a b c") && !matches("b …", "a b c"));
    }

    #[test]
    fn long_lines_are_wrapped_between_words() {
        let lines = wrapped(&"word ".repeat(40));
        assert!(lines.len() == 3 && lines.iter().all(|line| line.len() <= WIDTH));
    }
}
