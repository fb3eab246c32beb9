//! `cargo lab measure`: makes the book's measured blocks again, and writes down where and when.

use crate::book::measured::{self, Block};
use crate::book::{outputs, record, Page};
use crate::mistaken_engine::reference;
use anyhow::{ensure, Context, Result};
use candecode_course::Repo;
use std::fs;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;
use xtask::checking::table::Sum;
use xtask::{backup, cargo, git, say};

/// Prints the name of this machine.
const MACHINE: &str = "cargo xtask bench machine | head -n 1";
/// The folder of the book's plots.
const PLOTS: &str = "book/src/bench";

/// The flags of `measure`.
#[derive(clap::Args)]
pub struct Args {
    /// Only pages whose name contains one of these
    pages: Vec<String>,
    /// Measure again what this commit has measured already
    #[arg(long)]
    again: bool,
}

/// Runs `measure`. The exit code is 1 if a command failed, or the prose contradicts a block.
///
/// Every block is written as soon as it's measured. If the run is stopped, the next one continues:
/// outputs are kept in the target folder, by commit.
///
/// # Errors
/// If anything but measured blocks has changed since the last commit, or the engine can't be built.
pub fn run(repo: &Repo, args: &Args) -> Result<ExitCode> {
    refuse_changes(repo)?;
    let commit = git::git(repo, &["rev-parse", "--short=8", "HEAD"])?;
    let kept = cargo::target_dir(repo).join("measured").join(&commit);
    if args.again && kept.exists() {
        fs::remove_dir_all(&kept).with_context(|| kept.display().to_string())?;
    }
    fs::create_dir_all(&kept).with_context(|| kept.display().to_string())?;
    let engine = reference(repo, None)?;
    let machine = outputs::measured(repo, &engine, MACHINE, &kept)?.trim().to_string();
    let lab = Lab { repo, engine, kept, commit, machine };
    let wanted = |name: &str| {
        let is_part = |part: &String| name.contains(part.trim_end_matches(".md"));
        args.pages.is_empty() || args.pages.iter().any(is_part)
    };
    let mut sum = Sum::default();
    for page in Page::all(repo)?.iter().filter(|page| wanted(&page.name)) {
        let lines: Vec<&str> = page.text.lines().collect();
        for (index, block) in page.blocks(&lines)?.into_iter().enumerate() {
            let measured = lab.measure(page, index, &block);
            if let Err(error) = &measured {
                say!("NOT MEASURED  {}: `{}`: {error:#}", page.name, block.command);
            }
            let failed = usize::from(measured.is_err());
            sum.add(Sum { passed: 1 - failed, failed });
        }
    }
    sum.add(measured::compare(&Page::all(repo)?, wanted));
    say!("{}", sum.line());
    Ok(ExitCode::from(u8::from(sum.failed > 0)))
}

/// Where the blocks are measured.
struct Lab<'a> {
    repo: &'a Repo,
    engine: PathBuf,
    /// The folder of this commit's outputs.
    kept: PathBuf,
    commit: String,
    machine: String,
}

impl Lab<'_> {
    /// Measures a block, or takes the output that this commit has printed before, and writes it.
    fn measure(&self, page: &Page, index: usize, block: &Block) -> Result<()> {
        let mut hash = DefaultHasher::new();
        block.command.hash(&mut hash);
        let file = self.kept.join(format!("{:016x}.txt", hash.finish()));
        let began = Instant::now();
        let text = match fs::read_to_string(&file) {
            Ok(text) => text,
            Err(_) => {
                say!("{}: `{}` …", page.name, block.command);
                let text = outputs::measured(self.repo, &self.engine, &block.command, &self.kept)?;
                ensure!(!text.trim().is_empty(), "it printed nothing");
                let seconds = began.elapsed().as_secs();
                say!("  {seconds} s");
                let text = format!("{seconds}\n{text}");
                backup::write(&file, text.as_bytes())?;
                text
            }
        };
        let (seconds, text) = text.split_once('\n').context("a damaged output; use --again")?;
        self.write(page, index, text)?;
        self.plots()?;
        self.record(&block.command, seconds)
    }

    /// Writes a block's output to its page. The lines that are typed stay.
    fn write(&self, page: &Page, index: usize, text: &str) -> Result<()> {
        let page = Page { text: self.repo.read(&page.file)?, ..page.clone() };
        let lines: Vec<&str> = page.text.lines().collect();
        let block = &page.blocks(&lines)?[index];
        let mut new: Vec<String> = lines.iter().map(ToString::to_string).collect();
        let is_fenced = lines[block.body.start - 1].starts_with("```");
        let body = if is_fenced {
            let body = &lines[block.body.clone()];
            let typed = outputs::typed(body).map(|at| body[at].to_string());
            typed.chain(text.trim_end().lines().map(outputs::wrapped)).collect()
        } else {
            let lines = text.trim().lines().map(str::to_string);
            [String::new()].into_iter().chain(lines).chain([String::new()]).collect::<Vec<_>>()
        };
        new.splice(block.body.clone(), body);
        page.write(self.repo, &new)
    }

    /// Copies the plots that a benchmark has drawn at this commit, if the book shows them.
    fn plots(&self) -> Result<()> {
        let pages = Page::all(self.repo)?;
        for entry in fs::read_dir(&self.kept)?.flatten() {
            let (from, to) = (entry.path(), self.repo.root.join(PLOTS).join(entry.file_name()));
            let name = entry.file_name().to_string_lossy().into_owned();
            let is_shown = pages.iter().any(|page| page.text.contains(&format!("bench/{name}")));
            if name.ends_with(".svg") && is_shown {
                backup::write(&to, &fs::read(&from)?)?;
            }
        }
        Ok(())
    }

    /// Writes down that this machine has measured a command at this commit.
    fn record(&self, command: &str, seconds: &str) -> Result<()> {
        let file = format!("book/src/{}", record::PAGE);
        let old = self.repo.read(&file)?;
        let Self { machine, commit, .. } = self;
        let row = format!("{machine} | {commit} | {seconds} |");
        let new = record::with(&old, &Page::all(self.repo)?, command, &row)?;
        backup::write(&self.repo.root.join(file), new.as_bytes())
    }
}

/// Fails if anything but what this command writes has changed since the last commit, because the
/// record names the commit that was measured.
fn refuse_changes(repo: &Repo) -> Result<()> {
    let mut changed = git::paths(&repo.root, &["diff", "--name-only", "-z", "HEAD"])?;
    changed.retain(|file| {
        let is_plot = file.starts_with(PLOTS) && file.ends_with(".svg");
        let is_page = file.ends_with(".md") && file.starts_with("book/src/");
        let same = || {
            let old = git::git(repo, &["show", &format!("HEAD:{file}")]).ok()?;
            let [old, new] =
                [old, repo.read(file).ok()?].map(|text| without_what_is_written(&text));
            Some(old == new)
        };
        !(is_plot || is_page && same() == Some(true))
    });
    ensure!(
        changed.is_empty(),
        "the book names the commit that it measures, and {} changed since: commit first",
        changed.join(", ")
    );
    Ok(())
}

/// Returns a page without its measured blocks and the record's rows.
fn without_what_is_written(text: &str) -> String {
    let text = measured::without_blocks(text);
    let is_written = |line: &&str| line.starts_with("| `") && text.contains(record::END);
    text.lines().filter(|line| !is_written(line)).collect::<Vec<_>>().join("\n").trim_end().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A repository with one page that has a measured block, and the record.
    fn repo(name: &str) -> Repo {
        let root = std::env::temp_dir().join(format!("candecode-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&root); // of a program with the same id that was killed
        let repo = Repo { root: root.clone(), days: Vec::new() };
        for (file, text) in [
            ("src/day06_generate.rs", "old"),
            ("book/src/bench/day06.svg", "old"),
            ("book/src/a.md", "Prose.\n\n<!-- measured: echo 2 | cat -->\n```text\n1\n```\n"),
            ("README.md", "Prose.\n"),
            ("book/src/measurements.md", RECORDED),
        ] {
            backup::write(&root.join(file), text.as_bytes()).unwrap();
        }
        git::git(&repo, &["init", "--quiet"]).unwrap();
        git::git(&repo, &["add", "."]).unwrap();
        git::git(&repo, &["commit", "--quiet", "--message", "All"]).unwrap();
        repo
    }

    const RECORDED: &str = "# Measurements\n\n| command | seconds |\n|---|--:|\n\
                            | `gone` | me | 1234 | 5 |\n\n<!-- end of the record -->\n";

    fn lab(repo: &Repo) -> Lab<'_> {
        let kept = repo.root.join("kept");
        fs::create_dir_all(&kept).unwrap();
        let (commit, machine) = ("abcd".to_string(), "my machine".to_string());
        Lab { repo, engine: PathBuf::from("none"), kept, commit, machine }
    }

    fn measure(lab: &Lab) -> Result<String> {
        let pages = Page::all(lab.repo).unwrap();
        let page = pages.iter().find(|page| page.name == "a.md").unwrap();
        let lines: Vec<&str> = page.text.lines().collect();
        lab.measure(page, 0, &page.blocks(&lines).unwrap()[0])?;
        lab.repo.read("book/src/a.md")
    }

    #[test]
    fn a_tree_with_changes_is_refused_and_what_was_measured_is_not_a_change() {
        let repo = repo("changes");
        refuse_changes(&repo).unwrap();
        measure(&lab(&repo)).unwrap();
        backup::write(&repo.root.join("book/src/bench/day06.svg"), b"new").unwrap();
        backup::write(&repo.root.join("notes.md"), b"untracked").unwrap();
        refuse_changes(&repo).unwrap();
        for file in ["src/day06_generate.rs", "book/src/a.md", "README.md"] {
            let old = repo.read(file).unwrap();
            backup::write(&repo.root.join(file), format!("new{old}").as_bytes()).unwrap();
            let refused = refuse_changes(&repo).unwrap_err().to_string();
            assert!(refused.contains(file), "{refused}");
            backup::write(&repo.root.join(file), old.as_bytes()).unwrap();
        }
        fs::remove_dir_all(&repo.root).unwrap();
    }

    #[test]
    fn a_block_and_its_record_are_written_once_per_commit() {
        let repo = repo("block");
        assert_eq!(record::problems(&Page::all(&repo).unwrap()).len(), 2);
        let lab = lab(&repo);
        assert!(measure(&lab).unwrap().ends_with("```text\n2\n```\n"));
        let record = repo.read("book/src/measurements.md").unwrap();
        assert!(record.contains("| `echo 2 \\| cat` | my machine | abcd | "), "{record}");
        assert!(!record.contains("gone"), "{record}");
        assert_eq!(record::problems(&Page::all(&repo).unwrap()), []);
        let kept = fs::read_dir(&lab.kept).unwrap().next().unwrap().unwrap().path();
        fs::write(kept, "7\n3\n").unwrap();
        assert!(measure(&lab).unwrap().ends_with("```text\n3\n```\n"));
        fs::remove_dir_all(&repo.root).unwrap();
    }

    #[test]
    fn a_command_that_fails_leaves_its_block() {
        let repo = repo("fails");
        for command in ["false | cat", "true", "echo 2; exit 3"] {
            let text = repo.read("book/src/a.md").unwrap();
            let text = text.replace("echo 2 | cat", command);
            backup::write(&repo.root.join("book/src/a.md"), text.as_bytes()).unwrap();
            measure(&lab(&repo)).unwrap_err();
            assert_eq!(repo.read("book/src/a.md").unwrap(), text);
            backup::write(
                &repo.root.join("book/src/a.md"),
                text.replace(command, "echo 2 | cat").as_bytes(),
            )
            .unwrap();
        }
        fs::remove_dir_all(&repo.root).unwrap();
    }
}
