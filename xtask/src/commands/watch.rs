//! `cargo xtask watch`: checks a day again at every save, shows the first task that fails, and goes on when it is done.

use crate::checks::report::{Status, Unit};
use crate::checks::results::Inputs;
use crate::checks::runner::DayRun;
use crate::checks::{mine, table};
use crate::commands::{diff, hint, list};
use crate::eyes::Eyes;
use crate::keys::{Input, Keys};
use crate::note;
use crate::paint::{paint, Colour};
use crate::repo::{Day, Repo};
use crate::say;
use crate::standing::{self, Standing};
use crate::stubs::Task;
use anyhow::Result;
use clap::Args;
use std::collections::BTreeSet;
use std::process::ExitCode;

/// The flags of `watch`.
#[derive(Args)]
pub struct Watch {
    /// Which day: `day6` or `6`; without it, the one you are at
    #[arg(value_name = "DAY")]
    day: Option<String>,
}

/// What is looked at, relative to the root.
const WATCHED: [&str; 6] = ["src", "solutions", "tests", "Cargo.toml", "Cargo.lock", "build.rs"];

/// What a wait ended with.
enum Step {
    /// The same day again.
    Again,
    /// Another day.
    Go(Day),
    /// The end.
    Quit(ExitCode),
}

/// The day under watch.
struct Session<'a> {
    repo: &'a Repo,
    keys: Keys,
    eyes: Eyes,
    day: Day,
    /// Whether the reader asked for this day, and it was done already: then the watch stays with it.
    stays: bool,
    /// Tasks that `n` passed over.
    skipped: BTreeSet<String>,
}

/// Runs `watch`, until the reader ends it or every day is done.
///
/// # Errors
/// Bad usage; or a file of the repository that cannot be read.
pub fn run(repo: &Repo, args: &Watch) -> Result<ExitCode> {
    let named = args.day.as_ref().map(|day| repo.day(day).cloned()).transpose()?;
    let next = || -> Result<Option<Day>> {
        let days = standing::all(repo, &Inputs::read(repo))?;
        Ok(standing::next(&days).map(|day| day.day.clone()))
    };
    let Some(day) = named.clone().map_or_else(next, |day| Ok(Some(day)))? else {
        say!("Every core task is done. One day again: cargo xtask watch day6");
        return Ok(ExitCode::SUCCESS);
    };
    let eyes = Eyes::open(WATCHED.iter().map(|path| repo.root.join(path)).collect());
    let keys = Keys::open();
    let skipped = BTreeSet::new();
    let mut session = Session { repo, keys, eyes, day, stays: named.is_some(), skipped };
    loop {
        match session.round()? {
            Step::Again => {}
            Step::Go(day) => {
                session.day = day;
                session.stays = false;
                session.skipped.clear();
            }
            Step::Quit(code) => return Ok(code),
        }
    }
}

impl Session<'_> {
    /// Checks, shows, and waits for something to do.
    fn round(&mut self) -> Result<Step> {
        self.eyes.blink(); // before the check: what is saved meanwhile is checked afterwards
        let inputs = Inputs::read(self.repo);
        let key = inputs.key(self.repo, &self.day);
        say!("\n{}", paint(Colour::Bold, &format!("── {} ──", self.day.title())));
        let run = match mine::check(self.repo, &inputs, &self.day) {
            Ok(run) => run,
            Err(problem) => {
                note!("error: {problem:#}");
                return self.wait(&key, None);
            }
        };
        let mut day = standing::of(self.repo, &inputs, &self.day)?;
        day.take(&run);
        if day.done() && !self.stays {
            return self.go_on(&inputs);
        }
        self.stays &= day.done();
        self.show(&day, &run);
        self.wait(&key, Some((&day, &run)))
    }

    /// The day is done: says so, and takes the next.
    fn go_on(&self, inputs: &Inputs) -> Result<Step> {
        let number = self.day.number;
        say!("{}", paint(Colour::Green, &format!("✓ day {number} is done")));
        if let Some(command) = self.day.hear(self.repo) {
            say!("Hear it: {command}");
        }
        let mut days = standing::all(self.repo, inputs)?;
        days.retain(|day| day.day != self.day);
        let Some(next) = standing::next(&days) else {
            say!("That was the last. Every core task is done.");
            return Ok(Step::Quit(ExitCode::SUCCESS));
        };
        say!("On to day {}: read {}", next.day.number, next.day.chapter());
        Ok(Step::Go(next.day.clone()))
    }

    /// Prints how far the day is, and its first task that fails.
    fn show(&self, day: &Standing, run: &DayRun) {
        let count = |keep: &dyn Fn(Status) -> bool| {
            day.tasks.iter().filter(|(_, status)| status.is_some_and(keep)).count()
        };
        let passed = count(&|status| status == Status::Passed);
        let open = count(&|status| status == Status::Unwritten);
        let failed = day.tasks.len() - passed - open;
        say!(
            "{}  {}  {}",
            paint(Colour::Green, &format!("✓ {passed} passed")),
            paint(Colour::Red, &format!("✗ {failed} failed")),
            paint(Colour::Yellow, &format!("○ {open} not written"))
        );
        match self.first(day) {
            Some((task, status)) => self.show_task(task, status, run),
            None => say!("Every task of this day is done, or passed over."),
        }
    }

    /// Prints one task: where it is, and what its first failing check says.
    fn show_task(&self, task: &Task, status: Status, run: &DayRun) {
        let source = self.repo.read(&self.day.src()).unwrap_or_default();
        let mark = format!("// task {}", task.id);
        let line = source.lines().position(|line| {
            let rest = line.trim().strip_prefix(&mark);
            rest.is_some_and(|rest| rest.starts_with([':', ' ']))
        });
        let place = line.map_or(self.day.src(), |at| format!("{}:{}", self.day.src(), at + 1));
        table::print_row(
            Some(status),
            status.words().0,
            status.words().1,
            &task.id,
            &table::title(task),
            "",
        );
        let fails = |unit: &&Unit| unit.status == status && unit.task().as_ref() == Some(&task.id);
        let failing: Vec<&Unit> = run.units.iter().filter(fails).collect();
        match status {
            Status::Unwritten => say!("\nTo write in {place}. The chapter: {}", self.day.chapter()),
            Status::Broken => say!("\nWhat the compiler says is above."),
            _ => {
                say!("\n{place}");
                failing.iter().take(1).for_each(|unit| table::message(unit));
                if failing.len() > 1 {
                    say!("({} more of its checks fail)", failing.len() - 1);
                }
            }
        }
    }

    /// The first task that fails and was not passed over: of the core, else of what is further.
    fn first<'d>(&self, day: &'d Standing) -> Option<(&'d Task, Status)> {
        let open = |further: bool| {
            day.tasks.iter().find_map(|(task, status)| {
                let status = (*status).filter(|status| *status != Status::Passed)?;
                let wanted = task.further == further && !self.skipped.contains(&task.id);
                wanted.then_some((task, status))
            })
        };
        open(false).or_else(|| open(true))
    }

    /// Waits for a key or a save, and does what is asked.
    fn wait(&mut self, key: &str, shown: Option<(&Standing, &DayRun)>) -> Result<Step> {
        loop {
            self.prompt();
            let eyes = &mut self.eyes;
            let input = self.keys.wait(|| eyes.saw_change())?;
            say!("");
            let task = shown.and_then(|(day, _)| self.first(day)).map(|(task, _)| task.clone());
            match input {
                Input::Interrupt => return Ok(Step::Quit(ExitCode::from(130))),
                Input::Key('q') => return Ok(Step::Quit(ExitCode::SUCCESS)),
                Input::Event => {
                    if let Some(step) = self.saved(key)? {
                        return Ok(step);
                    }
                }
                Input::Key('h') => match &task {
                    Some(task) => try_to(|| hint::show(self.repo, &self.day, task, true)),
                    None => say!("There is no open task to give a hint for."),
                },
                Input::Key('d') => {
                    let id = task.as_ref().map(|task| task.id.as_str());
                    try_to(|| diff::show_day(self.repo, &self.day, id));
                }
                Input::Key('l') => try_to(|| self.list()),
                Input::Key('n') => match (task, shown) {
                    (Some(task), Some((day, run))) => {
                        self.skipped.insert(task.id);
                        match self.first(day) {
                            Some((task, status)) => self.show_task(task, status, run),
                            None => return self.next_day(),
                        }
                    }
                    _ => return self.next_day(),
                },
                Input::Key(_) => {}
            }
        }
    }

    /// What a save asks for: nothing, if the content is what it was, or is of a day that is not under watch.
    fn saved(&mut self, key: &str) -> Result<Option<Step>> {
        let inputs = Inputs::read(self.repo);
        Ok((inputs.key(self.repo, &self.day) != key).then_some(Step::Again))
    }

    /// The next day in order that is not done.
    fn next_day(&self) -> Result<Step> {
        let days = standing::all(self.repo, &Inputs::read(self.repo))?;
        let (after, before): (Vec<_>, Vec<_>) =
            days.into_iter().partition(|day| day.day.number > self.day.number);
        let next = after.iter().chain(&before).find(|day| !day.done() && day.day != self.day);
        Ok(next.map_or(Step::Again, |day| Step::Go(day.day.clone())))
    }

    /// All days and tasks, as far as they are known.
    fn list(&self) -> Result<()> {
        let days = standing::all(self.repo, &Inputs::read(self.repo))?;
        days.iter().for_each(list::show);
        say!("\n{}", list::sum(&days));
        Ok(())
    }

    /// The keys.
    fn prompt(&self) {
        let enter = if self.keys.need_enter() { ", then Enter" } else { "" };
        let keys = format!(
            "h hint · n next · d diff · l list · q quit{enter}   (waiting for a save of {})",
            self.day.src()
        );
        say!("\n{}", paint(Colour::Dim, &keys));
    }
}

/// Does what a key asks for; what goes wrong is said, and the watch goes on.
fn try_to(action: impl FnOnce() -> Result<()>) {
    if let Err(problem) = action() {
        note!("error: {problem:#}");
    }
}
