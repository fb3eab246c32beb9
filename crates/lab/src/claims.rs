//! `cargo lab claims`: measures the book's claims that one number is larger than
//! another.
//!
//! `book/claims.toml` lists the book's claims about speeds and counts. Each has its sentence, two
//! lines of bash that print a number each, and bounds for the ratio. `cargo xtask book --check`
//! only looks for the sentences on their pages, so that a busy machine can't fail a change.

use crate::mistaken_engine::reference;
use anyhow::{ensure, Context, Result};
use candecode_course::Repo;
use serde::Deserialize;
use std::cell::RefCell;
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::Duration;
use xtask::cargo;
use xtask::checking::table::Sum;
use xtask::child;
use xtask::host;
use xtask::say;

/// The flags of `claims`.
#[derive(clap::Args)]
pub struct Args {
    /// Only pages whose name contains this
    page: Option<String>,
}

/// Runs `claims`. The exit code is 1 if a claim's sentence is gone or doesn't hold.
///
/// # Errors
/// If the engine can't be built, or a command prints no number.
pub fn run(repo: &Repo, args: &Args) -> Result<ExitCode> {
    let page = args.page.as_deref();
    let mut sum = sentences(repo, page)?;
    sum.add(measure(repo, &reference(repo, None)?, page)?);
    say!("{}", sum.line());
    Ok(ExitCode::from(u8::from(sum.failed > 0)))
}

/// The time limit for one command of a claim, including the build of its benchmark.
const LIMIT: Duration = Duration::from_secs(900);

/// A comparison in the book.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Claim {
    /// The page's file name, without its extension.
    page: String,
    /// The sentence, exactly as on the page except for line breaks.
    says: String,
    /// A command that prints the larger number as its last word.
    larger: String,
    /// A command that prints the smaller number.
    smaller: String,
    /// The minimum of `larger / smaller`.
    at_least: f64,
    /// The maximum of `larger / smaller`, if there is one.
    at_most: Option<f64>,
}

impl Claim {
    /// Returns whether the ratio is within the claim's bounds.
    fn holds(&self, ratio: f64) -> bool {
        ratio >= self.at_least && self.at_most.is_none_or(|most| ratio <= most)
    }
}

/// The contents of the claims file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Claims {
    claim: Vec<Claim>,
}

/// Reads the claims in `book/claims.toml`, or only those on pages whose name contains `page`.
fn claims(repo: &Repo, page: Option<&str>) -> Result<Vec<Claim>> {
    let all: Claims =
        toml::from_str(&repo.read("book/claims.toml")?).context("book/claims.toml")?;
    Ok(all
        .claim
        .into_iter()
        .filter(|one| page.is_none_or(|part| one.page.contains(part)))
        .collect())
}

/// Checks that every claim's sentence is still in the book.
///
/// # Errors
/// If `book/claims.toml` or a page can't be read.
pub fn sentences(repo: &Repo, page: Option<&str>) -> Result<Sum> {
    let mut sum = Sum::default();
    for claim in claims(repo, page)? {
        let text = repo.read(&format!("book/src/{}.md", claim.page))?;
        if plain(&text).contains(&plain(&claim.says)) {
            sum.passed += 1;
        } else {
            say!("book/claims.toml: {} no longer says: {}", claim.page, claim.says);
            sum.failed += 1;
        }
    }
    Ok(sum)
}

/// Measures both sides of each claim.
///
/// # Errors
/// If a command doesn't print a positive number.
pub fn measure(repo: &Repo, engine: &Path, page: Option<&str>) -> Result<Sum> {
    let mut sum = Sum::default();
    let sides = Sides { repo, engine, known: RefCell::default() };
    for claim in claims(repo, page)? {
        let (larger, smaller) = (sides.number(&claim.larger)?, sides.number(&claim.smaller)?);
        let ratio = larger / smaller;
        let holds = claim.holds(ratio);
        let words = if holds { "holds" } else { "CONTRADICTED" };
        let most = claim.at_most.map_or(String::new(), |most| format!(", at most {most}"));
        say!("{words}  {}: {}", claim.page, plain(&claim.says));
        say!("  {larger} / {smaller} = {ratio:.2}, at least {}{most}", claim.at_least);
        sum.add(Sum { passed: usize::from(holds), failed: usize::from(!holds) });
    }
    std::fs::remove_dir_all(kept(repo)?)?;
    Ok(sum)
}

/// Shell functions for the claims' commands. `decode` and `prefill` print the fastest of three
/// runs, `bench` the fastest sample of two rounds.
const WORDS: &str = r#"
engine() { "$CANDECODE" --stats "$@" 2>&1 >/dev/null; }
fastest() { for _ in 1 2 3; do "$@"; done | sort -g | head -n 1; }
stat() { engine "${@:2}" | awk -v w="$1" '$1 == w { print $2 }'; }
decode() { fastest stat decode "$@"; }
prefill() { fastest stat prefill "$@"; }
peak() { engine "$@" | awk '$1 == "process" { print $2 * ($3 == "GB" ? 1000 : 1) }'; }
megabytes() { engine "$@" | awk '$1 == "memory" { print $2 }'; }
per_pass() { engine "$@" | sed -n 's/^drafts .*, \([0-9.]*\) tokens a pass.*/\1/p'; }
held_out() { python3 models/draft_trees.py --flags="$*" | awk 'END { print $(NF - 3) }'; }
bench() { cargo xtask bench "$1" --only "$2" --rounds 2 2>/dev/null; }
once() {
  local file="$KEPT/${*//[^a-z0-9]/_}"
  [ -s "$file" ] || cargo xtask bench "$@" > "$file"
  cat "$file"
}
roofline() {
  once roofline | awk -v m="$1" '/^[a-z]/ { on = index($0, m ":") } on' | grep -F "  $2 " |
    awk -v w="$3" '{ n = split($0, f, " +")
      print w == "share" ? f[n-1] : w == "measured" ? f[n-3] : f[n-5] }'
}
cell() {
  awk -v k="| $2 |" 'index($0, k) == 1' "book/src/$1" | head -n 1 |
    cut -d '|' -f "$(($3 + 1))" | tr -d %
}
"#;

/// Runs the claims' commands, each only once.
struct Sides<'a> {
    repo: &'a Repo,
    engine: &'a Path,
    known: RefCell<HashMap<String, f64>>,
}

impl Sides<'_> {
    /// Returns the number that a command prints, or the command itself if it's a number.
    fn number(&self, line: &str) -> Result<f64> {
        if let Ok(number) = line.parse() {
            return Ok(number);
        }
        if let Some(known) = self.known.borrow().get(line) {
            return Ok(*known);
        }
        let kept = kept(self.repo)?;
        let mut command = Command::new("bash");
        command.args(["-c", &format!("{WORDS}{line}")]).current_dir(&self.repo.root);
        command.env("CANDECODE", self.engine).env("KEPT", kept);
        command.env("CANDECODE_MODELS", self.repo.root.join("models"));
        host::set_threads(&mut command);
        let out = child::run(&mut command, LIMIT)?;
        let last = out.stdout.split_whitespace().last().map(str::parse);
        let Some(Ok(number)) = last else {
            anyhow::bail!("`{line}` printed no number: {:?}\n{}", out.stdout, out.stderr);
        };
        ensure!(f64::is_finite(number) && number > 0.0, "`{line}` prints {number}");
        self.known.borrow_mut().insert(line.to_string(), number);
        Ok(number)
    }
}

/// Returns the directory that keeps benchmarks' output for other claims in this run.
fn kept(repo: &Repo) -> Result<PathBuf> {
    let dir = cargo::target_dir(repo).join(format!("claims-{}", std::process::id()));
    std::fs::create_dir_all(&dir).with_context(|| dir.display().to_string())?;
    Ok(dir)
}

/// Replaces each run of whitespace with a single space.
fn plain(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claim(at_least: f64, at_most: Option<f64>) -> Claim {
        let text = String::new;
        Claim { page: text(), says: text(), larger: text(), smaller: text(), at_least, at_most }
    }

    #[test]
    fn a_claim_fails_below_its_minimum_or_above_its_maximum() {
        assert!(claim(1.3, None).holds(9.0) && !claim(1.3, None).holds(1.0));
        assert!(claim(1.3, Some(2.0)).holds(1.5) && !claim(1.3, Some(2.0)).holds(2.5));
        assert!(!claim(1.3, None).holds(f64::NAN));
    }

    #[test]
    fn a_missing_sentence_fails() {
        let dir = std::env::temp_dir().join(format!("claims-{}", std::process::id()));
        std::fs::create_dir_all(dir.join("book/src")).unwrap();
        let claims = "[[claim]]\npage = \"a\"\nsays = \"twice as fast\"\nlarger = \"2\"\n\
                      smaller = \"1\"\nat_least = 1.5\n";
        std::fs::write(dir.join("book/claims.toml"), claims).unwrap();
        let repo = Repo { root: dir.clone(), days: Vec::new() };
        std::fs::write(dir.join("book/src/a.md"), "It's twice\nas fast.").unwrap();
        assert_eq!(sentences(&repo, None).unwrap(), Sum { passed: 1, failed: 0 });
        assert_eq!(measure(&repo, Path::new("none"), None).unwrap(), Sum { passed: 1, failed: 0 });
        std::fs::write(dir.join("book/src/a.md"), "It's half as fast.").unwrap();
        assert_eq!(sentences(&repo, None).unwrap(), Sum { passed: 0, failed: 1 });
        std::fs::remove_dir_all(dir).unwrap();
    }
}
