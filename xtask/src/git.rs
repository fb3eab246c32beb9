//! Git as a child.

use crate::repo::Repo;
use anyhow::{anyhow, bail, Context, Result};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Git in the root of the repository.
pub struct Git {
    root: PathBuf,
    index: Option<PathBuf>,
}

impl Git {
    /// Git, if the course is a clone of its own.
    ///
    /// # Errors
    /// If there is no git, or the course is no clone; the text says what to do.
    pub fn open(repo: &Repo) -> Result<Git> {
        let git = Git { root: repo.root.clone(), index: None };
        if git.say(&["--version"]).is_err() {
            bail!("there is no `git` on PATH: install it (https://git-scm.com)");
        }
        match git.say(&["rev-parse", "--show-prefix"]) {
            Ok(prefix) if prefix.is_empty() => Ok(git),
            _ => Err(anyhow!(
                "{} is no clone (a downloaded archive?): clone the course with git, and copy your src/ into it",
                repo.root.display()
            )),
        }
    }

    /// The same with an index of its own: so the reader's is not touched.
    pub fn with_index(&self, index: &Path) -> Git {
        Git { root: self.root.clone(), index: Some(index.to_path_buf()) }
    }

    /// What git prints, without the line's end.
    ///
    /// # Errors
    /// If it fails; the text is git's own.
    pub fn say(&self, args: &[&str]) -> Result<String> {
        Ok(self.feed(args, "")?.trim_end_matches('\n').to_string())
    }

    /// What git prints, given something to read.
    ///
    /// # Errors
    /// As [`Git::say`].
    pub fn feed(&self, args: &[&str], input: &str) -> Result<String> {
        let (code, out, err) = self.run(args, input)?;
        if code != 0 {
            bail!("`git {}` failed: {}", args.join(" "), err.trim());
        }
        Ok(out)
    }

    /// Exit code, output and errors, whatever they are.
    ///
    /// # Errors
    /// If git cannot be started.
    pub fn run(&self, args: &[&str], input: &str) -> Result<(i32, String, String)> {
        let mut command = Command::new("git");
        command.args(args).current_dir(&self.root);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command.envs(self.index.as_ref().map(|path| ("GIT_INDEX_FILE", path)));
        command.env("LC_ALL", "C").env("GIT_TERMINAL_PROMPT", "0").env("GIT_EDITOR", "true");
        let mut child = command.spawn().context("cannot start git")?;
        if let Some(mut pipe) = child.stdin.take() {
            let _ = pipe.write_all(input.as_bytes()); // git may not want it
        }
        let out = child.wait_with_output()?;
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
        Ok((out.status.code().unwrap_or(-1), text(out.stdout), text(out.stderr)))
    }

    /// A file as it is in a commit, with `\n` line ends; `None` if it has none.
    pub fn file(&self, commit: &str, path: &str) -> Option<String> {
        let text = self.feed(&["show", &format!("{commit}:{path}")], "").ok()?;
        Some(text.replace("\r\n", "\n"))
    }

    /// Whether a commit is behind another, or the same.
    pub fn is_behind(&self, commit: &str, other: &str) -> bool {
        self.say(&["merge-base", "--is-ancestor", commit, other]).is_ok()
    }

    /// Names of files, one after another.
    ///
    /// # Errors
    /// As [`Git::say`]. `args` must ask for `-z`.
    pub fn names(&self, args: &[&str]) -> Result<Vec<String>> {
        let out = self.feed(args, "")?;
        Ok(out.split('\0').filter(|name| !name.is_empty()).map(str::to_string).collect())
    }

    /// Three texts merged line by line; `None` if two of them changed the same place.
    ///
    /// # Errors
    /// If there is no room for the three files.
    pub fn merge(
        &self,
        dir: &Path,
        mine: &str,
        base: &str,
        theirs: &str,
    ) -> Result<Option<String>> {
        let place = |name: &str| dir.join(format!("merge-{name}"));
        for (name, text) in [("mine", mine), ("base", base), ("theirs", theirs)] {
            crate::backup::write(&place(name), text.as_bytes())?;
        }
        let paths = ["mine", "base", "theirs"].map(|name| place(name).display().to_string());
        let mut args = vec!["merge-file", "-p", "--quiet"];
        args.extend(paths.iter().map(String::as_str));
        let outcome = self.run(&args, "");
        paths.iter().for_each(|path| drop(std::fs::remove_file(path)));
        match outcome? {
            (0, out, _) => Ok(Some(out)),
            (1..=127, _, _) => Ok(None),
            (_, _, err) => bail!("`git merge-file` failed: {}", err.trim()),
        }
    }
}
