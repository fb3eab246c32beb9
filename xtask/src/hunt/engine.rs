//! The engine under hunt: a crate of its own in the target directory, made of the reference and the kit. `src/` is not
//! touched, and candle is not compiled again.

use super::bank::Mistake;
use crate::backup;
use crate::cargo;
use crate::child::{self, End};
use crate::compile::{self, Built};
use crate::machine;
use crate::repo::{Day, Repo};
use anyhow::{bail, Context, Result};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

/// A probe takes no longer than this: some mistakes never end.
const LIMIT: Duration = Duration::from_secs(120);

/// The two programs of an engine: the command, and the one that shows logits.
#[derive(Clone, Debug)]
pub struct Engine {
    command: PathBuf,
    logits: PathBuf,
    root: PathBuf,
}

/// What a probe showed.
#[derive(Clone, Debug, PartialEq)]
pub struct Answer {
    /// Standard output.
    pub text: String,
    /// Standard error, without what names the days.
    pub notes: String,
    /// How it ended, unless well.
    pub end: Option<String>,
    /// How long it took.
    pub time: Duration,
}

impl Engine {
    /// Runs a probe: flags of the command, or `logits` and a text.
    ///
    /// # Errors
    /// If the program cannot be started.
    pub fn probe(&self, words: &[String]) -> Result<Answer> {
        let mut command = match words.split_first() {
            Some((first, rest)) if first == "logits" => {
                let mut command = Command::new(&self.logits);
                command.args(rest);
                command
            }
            _ => {
                let mut command = Command::new(&self.command);
                command.args(words);
                command
            }
        };
        command.current_dir(&self.root);
        if std::env::var_os("CANDECODE_MODELS").is_none() {
            command.env("CANDECODE_MODELS", self.root.join("models"));
        }
        machine::set_threads(&mut command);
        let start = Instant::now();
        let out = child::run(&mut command, LIMIT, |_| ())?;
        let end = match out.end {
            End::Exit(0) => None,
            End::Exit(code) => Some(format!("exit code {code}")),
            End::Died(why) => Some(why),
            End::TimedOut => Some(format!("stopped after {} s", LIMIT.as_secs())),
        };
        let notes: String = out
            .stderr
            .lines()
            .filter(|line| !line.starts_with('['))
            .map(|line| format!("{line}\n"))
            .collect();
        Ok(Answer { text: out.stdout, notes, end, time: start.elapsed() })
    }
}

/// The place where engines are built.
pub struct Workshop<'a> {
    repo: &'a Repo,
    dir: PathBuf,
}

impl<'a> Workshop<'a> {
    /// Writes the crate: the kit, and every day from the reference.
    ///
    /// # Errors
    /// If a file cannot be read or written.
    pub fn open(repo: &'a Repo) -> Result<Workshop<'a>> {
        let dir = cargo::target_dir(repo).join("xtask").join("hunt");
        let shop = Workshop { repo, dir };
        shop.put("Cargo.toml", &manifest(&repo.read("Cargo.toml")?))?;
        if !shop.dir.join("Cargo.lock").exists() {
            shop.put("Cargo.lock", &repo.read("Cargo.lock")?)?;
        }
        shop.put("logits.rs", &repo.read("xtask/hunt/logits.rs")?)?;
        shop.copy("src/lib.rs")?;
        shop.copy("src/main.rs")?;
        shop.copy("src/kit")?;
        Ok(shop)
    }

    /// The engine without a mistake. Its programs are copied, because the next build replaces them.
    ///
    /// # Errors
    /// If it does not build.
    pub fn reference(&self) -> Result<Engine> {
        self.days(None)?;
        let built = self.build()?;
        let keep = |program: &Path| -> Result<PathBuf> {
            let name = program.file_name().context("a program has a name")?;
            let copy = self.dir.join("reference").join(name);
            fs::create_dir_all(self.dir.join("reference"))?;
            fs::copy(program, &copy).with_context(|| copy.display().to_string())?;
            Ok(copy)
        };
        Ok(Engine { command: keep(&built.command)?, logits: keep(&built.logits)?, ..built })
    }

    /// The engine with a mistake in one day.
    ///
    /// # Errors
    /// If the mistake does not fit the reference, or the engine does not build.
    pub fn mistaken(&self, day: &Day, mistake: &Mistake) -> Result<Engine> {
        let (text, _) = mistake.apply(&self.repo.read(&day.solution())?)?;
        self.days(Some((day, &text)))?;
        self.build()
    }

    /// Writes all days; with `other`, one of them otherwise.
    fn days(&self, other: Option<(&Day, &str)>) -> Result<()> {
        for day in &self.repo.days {
            match other.filter(|(other, _)| *other == day) {
                // the mistakes' own warnings are no help, and would name them
                Some((_, text)) => self.put(&day.src(), &format!("#![allow(warnings)]\n{text}"))?,
                None => self.put(&day.src(), &self.repo.read(&day.solution())?)?,
            }
        }
        Ok(())
    }

    fn build(&self) -> Result<Engine> {
        let manifest = self.dir.join("Cargo.toml").display().to_string();
        let args = ["--manifest-path", &manifest, "--offline", "--bins"].map(String::from);
        let Built::Done(programs) = compile::build(self.repo, "build", &args)? else {
            bail!("the engine does not build; `cargo xtask doctor` looks for usual causes");
        };
        let program = |name| programs.get(name).map(Path::to_path_buf);
        let (command, logits) = (program("candecode-hunt")?, program("hunt-logits")?);
        Ok(Engine { command, logits, root: self.repo.root.clone() })
    }

    /// Copies a file or a directory of the repository.
    fn copy(&self, path: &str) -> Result<()> {
        let from = self.repo.root.join(path);
        if !from.is_dir() {
            return self.put(path, &self.repo.read(path)?);
        }
        for entry in fs::read_dir(&from).with_context(|| path.to_string())? {
            self.copy(&format!("{path}/{}", entry?.file_name().to_string_lossy()))?;
        }
        Ok(())
    }

    /// Writes a file unless it is so already: cargo goes by times.
    fn put(&self, path: &str, text: &str) -> Result<()> {
        let file = self.dir.join(path);
        if fs::read_to_string(&file).is_ok_and(|old| old == text) {
            return Ok(());
        }
        backup::write(&file, text.as_bytes())
    }
}

/// The manifest of the engine's crate: the course's, under another name, alone in its workspace.
fn manifest(course: &str) -> String {
    let mut out = String::new();
    let mut section = "";
    for line in course.lines() {
        if line.starts_with('[') {
            section = line;
        }
        let key = line.split(" =").next().unwrap_or_default();
        let gone = section == "[profile.dev.package.xtask]"
            || section == "[build-dependencies]"
            || ["members", "default-members", "default-run"].contains(&key);
        match (section, key) {
            _ if gone => {}
            ("[package]", "name") => out += "name = \"candecode-hunt\"\n",
            _ => out += &format!("{line}\n"),
        }
    }
    out += "\n[lib]\nname = \"candecode\"\n";
    for (name, path) in [("candecode-hunt", "src/main.rs"), ("hunt-logits", "logits.rs")] {
        out += &format!("\n[[bin]]\nname = \"{name}\"\npath = \"{path}\"\n");
    }
    out
}

#[cfg(test)]
mod tests {
    use super::manifest;

    #[test]
    fn the_manifest_stands_alone() {
        let course = "[workspace]\nmembers = [\"x\"]\n\n[package]\nname = \"candecode\"\ndefault-run = \"candecode\"\n\n\
                      [build-dependencies]\ntoml = \"1\"\n\n[profile.dev.package.xtask]\nopt-level = 0\n\n[profile.tools]\ninherits = \"dev\"\n";
        let text = manifest(course);
        assert!(
            text.starts_with(
                "[workspace]\n\n[package]\nname = \"candecode-hunt\"\n\n[profile.tools]\n"
            ),
            "{text}"
        );
        assert!(text.contains("[lib]\nname = \"candecode\"\n"), "{text}");
    }
}
