//! What became of each mutant, kept so that a run that was broken off goes on, and the next one
//! asks the right check first.

use super::trial::Verdict;
use super::Id;
use anyhow::{Context, Result};
use serde_json::{json, Value};
use std::collections::BTreeMap;
use std::fs::{self, OpenOptions};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use xtask::cargo;
use xtask::repo::{Day, Repo};

/// The results of a day, in a file of lines.
pub struct Results {
    path: PathBuf,
    /// Of the reference: what does not compile depends on it alone.
    code: String,
    /// Of all that a verdict depends on.
    checks: String,
    known: BTreeMap<Id, (String, Verdict)>,
}

impl Results {
    /// What is known of a day.
    ///
    /// # Errors
    /// If the directory of results cannot be made.
    pub fn open(repo: &Repo, day: &Day) -> Result<Self> {
        let dir = cargo::target_dir(repo).join("mutants");
        fs::create_dir_all(&dir).with_context(|| dir.display().to_string())?;
        let path = dir.join(format!("{}.jsonl", day.name));
        let text = fs::read_to_string(&path).unwrap_or_default();
        let known = text.lines().filter_map(read).collect();
        let solution = day.solution();
        let code = key(repo, &[&solution, "Cargo.lock"]);
        let own = format!("tests/checks/{}.rs", &day.name[..5]);
        // No other day's checks: a day's results outlive a change of its neighbours'.
        let shared = shared(&repo.root.join("tests/checks"));
        let mut paths =
            vec![solution.as_str(), &own, "Cargo.lock", "crates/kit", "solutions", "tests/oracle"];
        paths.extend(shared.iter().map(String::as_str));
        let tests = day.tests();
        paths.push(&tests);
        let checks = key(repo, &paths);
        Ok(Self { path, code, checks, known })
    }

    /// The verdict on a mutant, if nothing that it depends on has changed.
    pub fn get(&self, id: &Id) -> Option<&Verdict> {
        let (key, verdict) = self.known.get(id)?;
        (key == self.key(verdict)).then_some(verdict)
    }

    /// The check that caught a mutant last, whatever changed since.
    pub fn hint(&self, id: &Id) -> &str {
        match self.known.get(id) {
            Some((_, Verdict::Caught(check) | Verdict::Stopped(check))) => check,
            _ => "",
        }
    }

    /// Keeps a verdict.
    ///
    /// # Errors
    /// If there is no space or no permission.
    pub fn keep(&mut self, id: &Id, verdict: Verdict) -> Result<()> {
        let key = self.key(&verdict).to_string();
        let (word, check) = match &verdict {
            Verdict::Unviable => ("unviable", ""),
            Verdict::Caught(check) => ("caught", check.as_str()),
            Verdict::Stopped(check) => ("stopped", check.as_str()),
            Verdict::Survived => ("survived", ""),
        };
        let line = json!({
            "function": id.function, "line": id.line, "change": id.change,
            "verdict": word, "check": check, "key": key,
        });
        let mut file = OpenOptions::new().create(true).append(true).open(&self.path)?;
        file.write_all(format!("{line}\n").as_bytes())?;
        self.known.insert(id.clone(), (key, verdict));
        Ok(())
    }

    fn key(&self, verdict: &Verdict) -> &str {
        if *verdict == Verdict::Unviable {
            &self.code
        } else {
            &self.checks
        }
    }
}

/// A line of the file.
fn read(line: &str) -> Option<(Id, (String, Verdict))> {
    let value: Value = serde_json::from_str(line).ok()?;
    let word = |name: &str| value[name].as_str().map(str::to_string);
    let id = Id { function: word("function")?, line: word("line")?, change: word("change")? };
    let verdict = match value["verdict"].as_str()? {
        "unviable" => Verdict::Unviable,
        "caught" => Verdict::Caught(word("check")?),
        "stopped" => Verdict::Stopped(word("check")?),
        _ => Verdict::Survived,
    };
    Some((id, (word("key")?, verdict)))
}

/// The files of the harness that are no day's.
fn shared(dir: &Path) -> Vec<String> {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    let mut names: Vec<String> = entries
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .filter(|name| !name.starts_with("day"))
        .map(|name| format!("tests/checks/{name}"))
        .collect();
    names.sort();
    names
}

/// A fingerprint of some files and directories.
fn key(repo: &Repo, paths: &[&str]) -> String {
    let mut hasher = DefaultHasher::new();
    paths.iter().for_each(|path| add(&repo.root.join(path), &mut hasher));
    format!("{:016x}", hasher.finish())
}

/// Adds a file, or all files of a directory in the order of their names.
fn add(path: &Path, hasher: &mut DefaultHasher) {
    path.file_name().hash(hasher);
    if let Ok(entries) = fs::read_dir(path) {
        let mut paths: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
        paths.sort();
        paths.iter().for_each(|path| add(path, hasher));
    } else {
        fs::read(path).ok().hash(hasher);
    }
}
