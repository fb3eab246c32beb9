//! The repository: its location, its days, and what the files of each day say.

use crate::day::Day;
use crate::hints::Hints;
use crate::migration::{self, Migration};
use crate::mistakes::Mistakes;
use crate::progress::{self, Progress};
use crate::stubs;
use crate::task::{self, is_task_id, Task};
use crate::usage::usage;
use anyhow::{anyhow, ensure, Context, Result};
use std::fs;
use std::path::{Path, PathBuf};

/// The course's working tree.
pub struct Repo {
    /// The directory with the root `Cargo.toml`.
    pub root: PathBuf,
    /// All days that have a reference, in order.
    pub days: Vec<Day>,
}

impl Repo {
    /// Finds the repository that contains the current directory, or else the one this runner was
    /// built in.
    ///
    /// # Errors
    /// If there is neither.
    pub fn find() -> Result<Repo> {
        let here = std::env::current_dir().context("the current directory is gone")?;
        let built = std::env::var_os("CARGO_MANIFEST_DIR").map(PathBuf::from);
        let above = here.ancestors().chain(built.iter().flat_map(|dir| dir.ancestors()));
        for dir in above {
            if dir.join("solutions").is_dir() && dir.join("Cargo.toml").is_file() {
                return Repo::open(dir);
            }
        }
        Err(usage("no solutions/ here or above: run `cargo xtask` inside a clone of the course"))
    }

    /// Opens the repository in `root`.
    ///
    /// # Errors
    /// If `solutions/` can't be read.
    pub fn open(root: &Path) -> Result<Repo> {
        let dir = root.join("solutions");
        let mut days = Vec::new();
        for entry in fs::read_dir(&dir).with_context(|| dir.display().to_string())? {
            let name = entry?.file_name().to_string_lossy().into_owned();
            days.extend(name.strip_suffix(".rs").and_then(Day::from_name));
        }
        days.sort_by_key(|day| day.number);
        Ok(Repo { root: root.to_path_buf(), days })
    }

    /// Returns the day for `text`: `6`, `day6`, `day06_generate` or the path of one of its files.
    ///
    /// # Errors
    /// Bad usage: a task in place of a day, or a day that doesn't exist.
    pub fn day(&self, text: &str) -> Result<&Day> {
        let lower = text.to_lowercase();
        let id = lower.strip_prefix("day").unwrap_or(&lower);
        if let Some((number, _)) = id.split_once('.').filter(|_| is_task_id(id)) {
            return Err(usage(format!(
                "`{text}` is a task, not a day: use day{number}, with --task {id} if the command \
                 has that flag"
            )));
        }
        let stem = Path::new(&lower).file_stem().unwrap_or_default().to_string_lossy();
        let number = stem.strip_prefix("day").unwrap_or(&stem).parse().ok();
        let found = self.days.iter().find(|day| day.name == stem || Some(day.number) == number);
        found.ok_or_else(|| match (self.days.first(), self.days.last()) {
            (Some(first), Some(last)) => usage(format!(
                "no day `{text}`: the days are day{} to day{}",
                first.number, last.number
            )),
            _ => usage("solutions/ has no days yet"),
        })
    }

    /// Reads a file of the repository as text, given its path relative to the root.
    ///
    /// # Errors
    /// If it can't be read or isn't UTF-8. The message names the file.
    pub fn read(&self, path: &str) -> Result<String> {
        String::from_utf8(self.read_bytes(path)?).map_err(|_| anyhow!("{path}: not UTF-8 text"))
    }

    /// Reads a file of the repository as bytes, given its path relative to the root.
    ///
    /// # Errors
    /// If it can't be read or isn't a file. The message names the path.
    pub fn read_bytes(&self, path: &str) -> Result<Vec<u8>> {
        let read = |place: PathBuf| -> Result<Vec<u8>> {
            let is_file = fs::metadata(&place)?.is_file();
            ensure!(is_file, "expected a file, but this is a folder or a device; move it away");
            Ok(fs::read(place)?)
        };
        read(self.root.join(path)).with_context(|| path.to_string())
    }

    /// Returns the tasks of a day, from its reference, ordered by number.
    ///
    /// # Errors
    /// If the reference breaks the rules for task lines. The message names the file and line.
    pub fn tasks(&self, day: &Day) -> Result<Vec<Task>> {
        let path = day.solution();
        let mut tasks = stubs::tasks(&self.read(&path)?).map_err(|e| anyhow!("{path}: {e}"))?;
        tasks.sort_by_key(|task| {
            task.id.rsplit('.').next().and_then(|number| number.parse::<u32>().ok())
        });
        let prefix = format!("{}.", day.number);
        match tasks.iter().find(|task| !task.id.starts_with(&prefix)) {
            Some(task) => Err(anyhow!(
                "{path}: line {}: task {} is not in day {}",
                task.line,
                task.id,
                day.number
            )),
            None => Ok(tasks),
        }
    }

    /// Returns the task for an id such as `6.1`, and its day. If the command line names a day, the
    /// number within that day is enough: `3` is `6.3` for day 6.
    ///
    /// # Errors
    /// Bad usage, with a list of the day's tasks.
    pub fn task_of(&self, named: Option<&Day>, id: &str) -> Result<(Day, Task)> {
        let id = match named {
            Some(day) if id.parse::<u32>().is_ok() => format!("{}.{id}", day.number),
            _ => id.to_string(),
        };
        let number = id.split_once('.').map(|(day, _)| day);
        let Some(number) = number.filter(|day| day.parse::<u32>().is_ok()) else {
            return Err(usage(format!(
                "no task `{id}`: use the day and the task's number, as in --task 6.1"
            )));
        };
        let day = self.day(number)?;
        if let Some(named) = named.filter(|named| *named != day) {
            return Err(usage(format!(
                "task {id} is not in day {}: leave out the day or --task",
                named.number
            )));
        }
        let tasks = self.tasks(day)?;
        tasks.iter().find(|task| task.id == id).map(|task| (day.clone(), task.clone())).ok_or_else(
            || {
                let ids: Vec<&str> = tasks.iter().map(|task| task.id.as_str()).collect();
                usage(format!("no task `{id}`: day {} has {}", day.number, ids.join(", ")))
            },
        )
    }

    /// Generates the stub of a day from the current reference.
    ///
    /// # Errors
    /// Same as [`Repo::tasks`].
    pub fn stub(&self, day: &Day) -> Result<String> {
        self.tasks(day)?;
        stubs::stub(&self.read(&day.solution())?).map_err(|e| anyhow!("{}: {e}", day.solution()))
    }

    /// Returns the state of a day's file in `src/`.
    ///
    /// # Errors
    /// If the reference or the file can't be read.
    pub fn progress(&self, day: &Day) -> Result<Progress> {
        if !self.root.join(day.src()).exists() {
            return Ok(Progress::Missing);
        }
        let source = self.read(&day.src())?;
        if source.lines().eq(self.stub(day)?.lines()) {
            return Ok(Progress::Stub);
        }
        Ok(Progress::Begun(progress::unwritten(&source, day.number)))
    }

    /// Returns the open tasks of the reader's other days that a day's engine needs. Days whose core
    /// isn't written have none, because the engine then uses the reference's.
    ///
    /// # Errors
    /// If the reference or a file can't be read.
    pub fn open_tasks_for(&self, day: &Day) -> Result<Vec<Task>> {
        let mut open = Vec::new();
        for id in task::needed_by(day.number) {
            let number = id.split_once('.').and_then(|(day, _)| day.parse().ok());
            let Some(other) = self.days.iter().find(|day| Some(day.number) == number) else {
                continue;
            };
            let (progress, tasks) = (self.progress(other)?, self.tasks(other)?);
            if let Progress::Begun(left) = &progress {
                let is_open = progress.has_core(&tasks) && left.contains(id);
                open.extend(tasks.into_iter().filter(|task| is_open && task.id == id));
            }
        }
        Ok(open)
    }

    /// Says that a day's file is missing, and what to do about it.
    pub fn missing(&self, day: &Day) -> String {
        let (src, number) = (day.src(), day.number);
        format!("{src} is missing: `cargo xtask reset day{number}` restores the stub")
    }

    /// Returns the names of a day's checks, in the order of their table.
    ///
    /// # Errors
    /// If their file can't be read. The message names it.
    pub fn checks(&self, day: &Day) -> Result<Vec<String>> {
        Ok(task::checks(&self.read(&day.tests())?))
    }

    /// Compares a begun day with the course. Returns `None` if it is up to date or not begun.
    ///
    /// # Errors
    /// If a file can't be read, or the day's brackets don't match. The message names the file.
    pub fn migration(&self, day: &Day) -> Result<Option<Migration>> {
        if !matches!(self.progress(day)?, Progress::Begun(_)) {
            return Ok(None);
        }
        let path = day.src();
        migration::migration(&self.read(&path)?, &self.stub(day)?, day.number)
            .map_err(|e| anyhow!("{path}: {e}"))
    }

    /// Returns the known mistakes of a day, and its correct variants.
    ///
    /// # Errors
    /// If the file can't be read or has an incomplete entry. The message names the file.
    pub fn mistakes(&self, day: &Day) -> Result<Mistakes> {
        let path = day.mistakes();
        toml::from_str(&self.read(&path)?).map_err(|e| anyhow!("{path}: {e}"))
    }

    /// Returns the hints of a day's tasks.
    ///
    /// # Errors
    /// If the file can't be read or parsed. The message names the file.
    pub fn hints(&self, day: &Day) -> Result<Hints> {
        let path = day.hints();
        toml::from_str(&self.read(&path)?).map_err(|e| anyhow!("{path}: {e}"))
    }

    /// Returns the command that demonstrates a day: the first one in the chapter that runs or
    /// serves a model with the reader's version of it, starting from the section "See it run" if
    /// there is one.
    pub fn demo(&self, day: &Day) -> Option<String> {
        let text = fs::read_to_string(self.root.join(day.chapter())).ok()?;
        let section = text.find("# See it run").map_or(&*text, |at| &text[at..]);
        let mut lines = section.lines();
        let is_demo = |line: &&str| {
            let days = ["run", "serve"]
                .iter()
                .find_map(|name| line.strip_prefix(&format!("$ cargo xtask {name} --mine ")))
                .and_then(|arguments| arguments.split(' ').next());
            days.is_some_and(|days| days.split(',').any(|one| one == day.number.to_string()))
        };
        let mut command = lines.find(is_demo)?.trim_start_matches("$ ").to_string();
        while let Some(more) = command.strip_suffix('\\').map(str::trim_end) {
            command = format!("{more} {}", lines.next()?.trim());
        }
        Some(command)
    }

    /// Returns the Cargo features for a mix that uses the reference for the days that `reference`
    /// accepts.
    ///
    /// For all days, returns just `ref`, so that every command that uses them shares one build.
    pub fn features(&self, reference: impl Fn(&Day) -> bool) -> Vec<String> {
        let chosen: Vec<_> = self.days.iter().filter(|day| reference(day)).collect();
        if chosen.len() == self.days.len() {
            return vec!["ref".to_string()];
        }
        chosen.iter().map(|day| day.feature()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_day_has_several_names_but_a_task_is_not_a_day() {
        let repo = Repo::open(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")).unwrap();
        for name in
            ["6", "day6", "Day6", "day06", "src/day06_generate.rs", "book/src/day06_generate.md"]
        {
            assert_eq!(repo.day(name).unwrap().number, 6, "{name}");
        }
        for task in ["6.1", "day6.1"] {
            let said = repo.day(task).unwrap_err().to_string();
            let want = format!("`{task}` is a task, not a day: use day6, with --task 6.1 ");
            assert!(said.starts_with(&want), "{said}");
        }
    }

    #[test]
    fn every_day_has_a_demo() {
        let repo = Repo::open(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")).unwrap();
        for day in &repo.days {
            let demo = repo.demo(day).unwrap_or_default();
            let complete = demo.starts_with("cargo xtask ") && !demo.ends_with('\\');
            assert!(complete, "{}: {demo:?}", day.chapter());
        }
        let story = "cargo xtask run --mine 0 -p \"Once upon a time\" --max-new-tokens 15";
        assert_eq!(repo.demo(&repo.days[0]).as_deref(), Some(story));
    }
}
