//! `cargo xtask check --watch`: checks a day at every save and shows the first task that fails.
//!
//! Commands are a letter and Enter, read as lines on a separate thread. The terminal keeps its
//! normal mode, and Ctrl-C always ends the watch.

mod file_watcher;

use crate::cargo::{self, Built};
use crate::checking::outcome::{Status, Unit};
use crate::checking::runner::DayRun;
use crate::checking::saved::Inputs;
use crate::checking::{self, table};
use crate::commands::{diff, hint, list_days};
use crate::progress::{self, DayProgress};
use crate::term::{paint, Color};
use crate::{day_done, note, say};
use anyhow::Result;
use candecode_course::{stubs, Day, Repo, Task};
use file_watcher::FileWatcher;
use std::process::ExitCode;
use std::sync::mpsc::{channel, Receiver};
use std::time::Duration;

/// The watched paths, relative to the root.
const WATCHED: [&str; 6] = ["src", "solutions", "tests", "crates", "Cargo.toml", "Cargo.lock"];
/// The polling interval.
const TICK: Duration = Duration::from_millis(100);

/// Something the reader did.
enum Event {
    /// Typed a line.
    Line(String),
    /// Saved a file.
    Save,
}

/// The next step after waiting.
enum Step {
    /// Check the same day again.
    Again,
    /// Switch to another day.
    Go(Day),
    /// Stop watching.
    Quit,
}

/// The state of a watch.
struct Session<'a> {
    repo: &'a Repo,
    device: Option<&'a str>,
    lines: Receiver<String>,
    watcher: FileWatcher,
    day: Day,
    /// Whether to stay on this day even if it's done, because the reader named it on the command
    /// line. Becomes false once it isn't done.
    stays: bool,
    /// Tasks skipped with `n`, in order, each with its status at that time. A task whose status has
    /// changed since is no longer skipped.
    skipped: Vec<(String, Option<Status>)>,
}

/// Watches a day (by default the current one) until the reader quits or every day is done.
///
/// # Errors
/// Bad usage, or a file of the repository that can't be read.
pub fn run(repo: &Repo, day: Option<&str>, device: Option<&str>) -> Result<ExitCode> {
    let stays = day.is_some();
    let day = match day {
        Some(day) => Some(repo.day(day)?.clone()),
        None => {
            let days = progress::all_days(repo, &Inputs::read(repo))?;
            progress::next(&days).map(|day| day.day.clone())
        }
    };
    let Some(day) = day else {
        say!("Every core task is done. To watch a day anyway: cargo xtask check day6 --watch");
        return Ok(ExitCode::SUCCESS);
    };
    let mut session = Session {
        repo,
        device,
        lines: lines_of_stdin(),
        watcher: FileWatcher::new(WATCHED.iter().map(|path| repo.root.join(path)).collect()),
        day,
        stays,
        skipped: Vec::new(),
    };
    loop {
        match session.round()? {
            Step::Again => {}
            Step::Go(day) => {
                session.day = day;
                session.stays = false;
                session.skipped.clear();
            }
            Step::Quit => return Ok(ExitCode::SUCCESS),
        }
    }
}

/// Returns a channel of the lines of standard input, as they arrive.
fn lines_of_stdin() -> Receiver<String> {
    let (sender, lines) = channel();
    std::thread::spawn(move || {
        for line in std::io::stdin().lines().map_while(Result::ok) {
            if sender.send(line).is_err() {
                return;
            }
        }
    });
    lines
}

impl Session<'_> {
    /// Checks the day, shows the result, and waits for the next event.
    fn round(&mut self) -> Result<Step> {
        // Reset before the check, so that a save during the check triggers another one.
        self.watcher.reset();
        let inputs = Inputs::read(self.repo);
        let key = inputs.key(self.repo, &self.day);
        let all_days = inputs.state(self.repo);
        say!("\n{}", paint(Color::Bold, &format!("── {} ──", self.day.title())));
        let run = match checking::of_reader(self.repo, &self.day, self.device) {
            Ok(run) => run,
            Err(problem) => {
                note!("error: {problem:#}");
                return self.wait(&all_days, None);
            }
        };
        let mut day = progress::with_results(self.repo, &inputs, &self.day)?;
        day.take(&run);
        if day.done() && !self.stays {
            if !day_done::fits(self.repo, &self.day)? {
                return self.wait(&all_days, None);
            }
            return self.go_on(&inputs, day);
        }
        let as_it_was = |(id, then): &(String, Option<Status>)| {
            day.tasks.iter().any(|(task, now)| task.id == *id && now == then)
        };
        self.skipped.retain(as_it_was);
        self.stays &= day.done();
        self.show(&day, &run);
        self.wait(&key, Some((&day, &run)))
    }

    /// Reports that the day is done and moves to the next one.
    fn go_on(&self, inputs: &Inputs, done: DayProgress) -> Result<Step> {
        let number = self.day.number;
        say!("{}", paint(Color::Green, &format!("✓ day {number} is done")));
        if let Some(command) = self.repo.demo(&self.day) {
            say!("See it run: {command}");
        }
        day_done::offer_numbers(&self.day);
        let days = progress::all_days(self.repo, inputs)?;
        let Some(next) = progress::next_after(days, done) else {
            say!("That was the last day. Every core task is done.");
            return Ok(Step::Quit);
        };
        say!("On to day {}: read {}", next.day.number, next.day.chapter());
        Ok(Step::Go(next.day))
    }

    /// Prints the day's progress and its first failing task.
    fn show(&self, day: &DayProgress, run: &DayRun) {
        if let Some(Built::Broken(places)) = run.built.as_deref() {
            let words = match places.is_empty() {
                true => "✗ does not compile".to_string(),
                false => format!("✗ does not compile: {}", cargo::places(places)),
            };
            say!(
                "{}\nThe compiler's message is above. Saving the file checks it again.",
                paint(Color::Red, &words)
            );
            return;
        }
        let count =
            |wanted: Status| day.tasks.iter().filter(|(_, status)| *status == Some(wanted)).count();
        let (passed, open) = (count(Status::Passed), count(Status::Unwritten));
        say!(
            "{}  {}  {}",
            paint(Color::Green, &format!("✓ {passed} passed")),
            paint(Color::Red, &format!("✗ {} failed", day.tasks.len() - passed - open)),
            paint(Color::Yellow, &format!("○ {open} not written"))
        );
        match self.first(day) {
            Some((task, status)) => self.show_task(task, status, run),
            None => say!("Every task of this day is done or skipped."),
        }
    }

    /// Prints one task: its location, and the message of its first failing check.
    fn show_task(&self, task: &Task, status: Status, run: &DayRun) {
        let source = self.repo.read(&self.day.src()).unwrap_or_default();
        let line = source.lines().position(|line| stubs::is_task_line(line, &task.id));
        let place = line.map_or(self.day.src(), |at| format!("{}:{}", self.day.src(), at + 1));
        table::print_row(Some(status), &task.id, &table::title(task), "");
        let fails = |unit: &&Unit| unit.status == status && unit.task().as_ref() == Some(&task.id);
        let failing: Vec<&Unit> = run.units.iter().filter(fails).collect();
        match (status, failing.first()) {
            (Status::Unwritten, _) => {
                say!("\nWrite it in {place}. Chapter: {}", self.day.chapter());
            }
            (_, None) => say!("\nNone of its checks ran."),
            (_, Some(unit)) => {
                say!("\n{place}");
                table::message(unit);
                if failing.len() > 1 {
                    say!("({} more of its checks fail)", failing.len() - 1);
                }
            }
        }
    }

    /// Returns the first task that hasn't passed and wasn't skipped. Core tasks come first.
    fn first<'d>(&self, day: &'d DayProgress) -> Option<(&'d Task, Status)> {
        let open = |further: bool| {
            day.tasks.iter().find_map(|(task, status)| {
                let status = (*status).filter(|status| *status != Status::Passed)?;
                let is_skipped = self.skipped.iter().any(|(id, _)| *id == task.id);
                let wanted = task.further == further && !is_skipped;
                wanted.then_some((task, status))
            })
        };
        open(false).or_else(|| open(true))
    }

    /// Carries out commands until one of them, or a save, leads to the next step. `key` is the
    /// state of the day on screen, or if none is `shown`, of all days.
    fn wait(&mut self, key: &str, shown: Option<(&DayProgress, &DayRun)>) -> Result<Step> {
        let mut says_keys = true;
        let awaited = match shown {
            Some(_) => format!("a save of {}", self.day.src()),
            None => "a save".to_string(),
        };
        loop {
            let keys = "h hint · n next · b back · d diff · l list · q quit, then Enter";
            if says_keys {
                say!("\n{}", paint(Color::Dim, &format!("{keys}\n(waiting for {awaited})")));
            }
            says_keys = true;
            let line = match self.next_event() {
                Event::Line(line) => line,
                Event::Save => {
                    let inputs = Inputs::read(self.repo);
                    let now = match shown {
                        Some(_) => inputs.key(self.repo, &self.day),
                        None => inputs.state(self.repo),
                    };
                    // Skip the check if none of its inputs changed.
                    if now != key {
                        return Ok(Step::Again);
                    }
                    says_keys = false;
                    continue;
                }
            };
            let task = shown.and_then(|(day, _)| self.first(day)).map(|(task, _)| task.clone());
            match line.trim().to_lowercase().chars().next() {
                Some('q') => return Ok(Step::Quit),
                Some('h') => match &task {
                    Some(task) => try_to(|| hint::show(self.repo, &self.day, task, true)),
                    None => say!("There's no open task to give a hint for."),
                },
                Some('d') => {
                    let id = task.as_ref().map(|task| task.id.as_str());
                    try_to(|| diff::show_day(self.repo, &self.day, id));
                }
                Some('l') => try_to(|| {
                    let days = progress::all_days(self.repo, &Inputs::read(self.repo))?;
                    days.iter().for_each(list_days::overview);
                    say!("{}", list_days::sum(&days));
                    Ok(())
                }),
                Some('n') => {
                    let Some((task, (day, run))) = task.zip(shown) else { return self.next_day() };
                    let status = day.tasks.iter().find(|(other, _)| *other == task);
                    self.skipped.push((task.id, status.and_then(|(_, status)| *status)));
                    match self.first(day) {
                        Some((task, status)) => self.show_task(task, status, run),
                        None => return self.next_day(),
                    }
                }
                Some('b') => match (self.skipped.pop(), shown) {
                    (Some((id, Some(status))), Some((day, run))) => {
                        let task = day.tasks.iter().find(|(task, _)| task.id == id);
                        task.into_iter().for_each(|(task, _)| self.show_task(task, status, run));
                    }
                    _ => say!("No task of this day is skipped."),
                },
                _ => {}
            }
        }
    }

    /// Waits for a command or a save.
    fn next_event(&mut self) -> Event {
        loop {
            if let Ok(line) = self.lines.try_recv() {
                return Event::Line(line);
            }
            if self.watcher.poll() {
                return Event::Save;
            }
            std::thread::sleep(TICK);
        }
    }

    /// Moves to the next unfinished day after this one, or else to the first one before it. If
    /// there is none, checks the same day again.
    fn next_day(&self) -> Result<Step> {
        let days = progress::all_days(self.repo, &Inputs::read(self.repo))?;
        let (after, before): (Vec<_>, Vec<_>) =
            days.into_iter().partition(|day| day.day.place() > self.day.place());
        let next = after.iter().chain(&before).find(|day| !day.done() && day.day != self.day);
        Ok(next.map_or(Step::Again, |day| Step::Go(day.day.clone())))
    }
}

/// Runs an action. Prints any error, so that the watch continues.
fn try_to(action: impl FnOnce() -> Result<()>) {
    if let Err(problem) = action() {
        note!("error: {problem:#}");
    }
}
