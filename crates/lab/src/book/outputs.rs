//! The outputs of commands that the book shows.
//!
//! A page marks an output with a comment above its fence: `<!-- output: cargo xtask run … -->`, or,
//! for the engine with a known mistake, `<!-- broken: day10 whole_buffer_returned: run … -->`. Line
//! breaks can differ, and `…` matches anything. A table whose last column shows how the outputs of
//! broken engines begin is followed by one `<!-- in the table: day05 post_norm: run … -->` per row,
//! in order. Bash runs the commands.

use super::Page;
use crate::mistaken_engine::{mistaken, named, reference};
use anyhow::{ensure, Context, Result};
use candecode_book::Problem;
use candecode_course::Repo;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use xtask::checking::table::Sum;
use xtask::term::wrap;
use xtask::{host, say};

/// The maximum length of a line that a page shows without scrolling.
const WIDTH: usize = 84;

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

/// Returns the problems with a page's markers.
pub fn problems(repo: &Repo, page: &Page) -> Vec<Problem> {
    let lines: Vec<String> = page.text.lines().map(str::to_string).collect();
    let problem = |line, message| Problem { file: page.file.clone(), line, message };
    match marked(&lines) {
        Err((line, message)) => vec![problem(line + 1, message)],
        Ok(found) => {
            let gone = |one: &Marked| {
                let (day, name) = one.mistake.as_ref()?;
                let error = named(repo, day, name).err()?;
                Some(problem(one.line + 1, format!("{error:#}")))
            };
            found.iter().filter_map(gone).collect()
        }
    }
}

/// Compares a page's outputs with the commands' current output, or updates the page.
///
/// # Errors
/// If an engine can't be built, or the page can't be written.
pub fn settle(repo: &Repo, page: &Page, refresh: bool, broken: bool) -> Result<Sum> {
    let mut sum = Sum::default();
    let mut lines: Vec<String> = page.text.lines().map(str::to_string).collect();
    let mut found = marked(&lines).map_err(|(line, why)| anyhow::anyhow!("{line}: {why}"))?;
    found.retain(|one| broken || one.mistake.is_none());
    let mut differs = false;
    // Go from last to first, because an edit shifts all lines after it.
    for one in found.iter().rev() {
        let engine = engine(repo, one.mistake.as_ref())?;
        let ask = |typed: &String| said(repo, &engine, typed);
        let said = one.commands.iter().map(ask).collect::<Result<Vec<_>>>()?.join("\n");
        let printed = one.printed(&lines);
        let place = format!("{}:{}", page.file, one.line + 1);
        if matches(&printed, &said) {
            sum.passed += 1;
        } else if refresh && one.commands.len() == 1 && !one.in_table {
            say!("{place}: updated");
            let typed = one.body.len() - untyped(&lines[one.body.clone()]).len();
            let new: Vec<String> = said.lines().map(wrapped).collect();
            lines.splice(one.body.start + typed..one.body.end, new);
            differs = true;
            sum.passed += 1;
        } else {
            say!("{place}: the page shows\n{printed}\n  but the command prints\n{said}\n");
            sum.failed += 1;
        }
    }
    if differs {
        page.write(repo, &lines)?;
    }
    Ok(sum)
}

/// The reference's engine, which is built once.
static REFERENCE: std::sync::OnceLock<PathBuf> = std::sync::OnceLock::new();

/// Builds the engine with the reference, or with a known mistake.
fn engine(repo: &Repo, mistake: Option<&(String, String)>) -> Result<PathBuf> {
    match mistake {
        None => match REFERENCE.get() {
            Some(path) => Ok(path.clone()),
            None => reference(repo, Some("candecode-cli/structured"))
                .inspect(|path| drop(REFERENCE.set(path.clone()))),
        },
        Some((day, name)) => {
            let (day, mistake) = named(repo, day, name)?;
            mistaken(repo, &day, &mistake, None)
        }
    }
}

/// Returns all marked outputs of a page. If several markers precede a fence, their commands form
/// one session. An error is the index of a line, and what is wrong there.
fn marked(lines: &[String]) -> Result<Vec<Marked>, (usize, String)> {
    let mut found: Vec<Marked> = Vec::new();
    let (mut commands, mut mistake) = (Vec::new(), None);
    for (line, text) in lines.iter().enumerate() {
        let inside = |mark: &str| text.trim().strip_prefix(mark)?.strip_suffix("-->");
        let wrong = |error: anyhow::Error| (line, format!("{error:#}"));
        if let Some(rest) = inside("<!-- in the table:") {
            let (mistake, command) = of_a_mistake(rest).map_err(wrong)?;
            let row = row_of(lines, line).map_err(wrong)?;
            let (mistake, commands, body) = (Some(mistake), vec![command], row..row + 1);
            found.push(Marked { line, mistake, commands, body, in_table: true });
        } else if let Some(command) = inside("<!-- output:") {
            commands.push(command.trim().to_string());
        } else if let Some(rest) = inside("<!-- broken:") {
            let (of, command) = of_a_mistake(rest).map_err(wrong)?;
            mistake = Some(of);
            commands.push(command);
        } else if !commands.is_empty() {
            let mut rest = line + 1..lines.len();
            let close = rest.find(|at| lines[*at].starts_with("```"));
            let Some(close) = close.filter(|_| text.starts_with("```")) else {
                return Err((line - 1, "a fenced block must follow this marker".into()));
            };
            let (mistake, commands) = (mistake.take(), std::mem::take(&mut commands));
            let (line, body) = (line - 1, line + 1..close);
            found.push(Marked { line, mistake, commands, body, in_table: false });
        }
    }
    if commands.is_empty() {
        Ok(found)
    } else {
        Err((lines.len() - 1, "a fenced block must follow the last marker".into()))
    }
}

/// Wraps a line that is too long for a page.
pub fn wrapped(line: &str) -> String {
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

/// Returns the lines of a block without the typed ones.
fn untyped(lines: &[String]) -> Vec<&str> {
    let typed: Vec<usize> = typed(lines).collect();
    let kept = (0..lines.len()).filter(|at| !typed.contains(at));
    kept.map(|at| lines[at].as_str()).collect()
}

/// Returns the indices of the lines that are typed: `$ …`, and any line that follows a typed line
/// ending in a backslash or a `|`.
pub fn typed<T: AsRef<str>>(lines: &[T]) -> impl Iterator<Item = usize> + '_ {
    let mut continued = false;
    let is_typed = move |(at, line): (usize, &T)| {
        let is_typed = continued || line.as_ref().starts_with("$ ");
        continued = is_typed && line.as_ref().ends_with(['\\', '|']);
        is_typed.then_some(at)
    };
    lines.iter().enumerate().filter_map(is_typed)
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
    "xtask bench")
      shift 2
      [ -z "$KEPT" ] || { kept "$@"; return; }
      command cargo run --quiet --package candecode-lab -- bench --solution ref "$@" 2>/dev/null
      return ;;
    *) echo "only run, chat, compare and bench can be checked, not cargo $*"; return 1 ;;
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
# A benchmark's output, which all blocks of a measurement share. Its plots go to the same folder,
# except those for another instruction set.
kept() {
  local file="$KEPT/$(echo "$RAYON_NUM_THREADS $CANDECODE_SIMD $*" | tr -c 'a-zA-Z0-9\n' _)"
  if [ ! -s "$file" ]; then
    command cargo xtask bench --solution ref "$@" --no-counts --out "$KEPT/$CANDECODE_SIMD" \
      > "$file.part" 2> "$file.log" ||
      { tail -n 5 "$file.log" >&2; return 1; }
    ! grep '^SKIPPED' "$file.log" >&2 || return 1
    mv "$file.part" "$file"
  fi
  cat "$file"
}
"#;

/// Returns bash with one of the book's commands, which runs an engine.
fn bash(repo: &Repo, program: &Path, typed: &str) -> Command {
    let mut command = Command::new("bash");
    command.args(["-c", &format!("{CARGO}{typed}")]).current_dir(&repo.root);
    command.env("CANDECODE", program).env("CANDECODE_MODELS", repo.root.join("models"));
    host::set_threads(&mut command);
    command
}

/// Measures: runs a command whose benchmarks leave their outputs and plots in the folder `kept`.
/// Returns its standard output, and a run's `--stats` after it.
///
/// # Errors
/// If the command fails, or a benchmark leaves something out that it should measure.
pub fn measured(repo: &Repo, program: &Path, typed: &str, kept: &Path) -> Result<String> {
    let mut command = bash(repo, program, &format!("set -o pipefail; {typed}"));
    let out = ran(command.env("KEPT", kept))?;
    ensure!(out.succeeded, "{}", out.stderr.trim());
    Ok(out.stdout + &out.stderr)
}

/// What a command printed, and whether it succeeded.
struct Ran {
    succeeded: bool,
    stdout: String,
    stderr: String,
}

/// Runs a command to its end.
fn ran(command: &mut Command) -> Result<Ran> {
    let out = command.stdin(Stdio::null()).output().context("cannot start bash")?;
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    Ok(Ran { succeeded: out.status.success(), stdout: text(out.stdout), stderr: text(out.stderr) })
}

/// Runs one of the book's commands with an engine. Returns its standard output, then its standard
/// error without lines that start with `[` and without the usage after a mistake.
fn said(repo: &Repo, program: &Path, typed: &str) -> Result<String> {
    let out = ran(&mut bash(repo, program, typed))?;
    let shown = out.stderr.lines().take_while(|line| !line.starts_with("Usage: "));
    let errors: Vec<&str> = shown.filter(|line| !line.starts_with('[')).collect();
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
