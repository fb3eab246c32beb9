//! Builds the engine or the server with a mix of the reader's days and the reference's.

use crate::cargo::{self, Built};

use anyhow::Result;
use candecode_course::{Day, Progress, Repo};

/// A program of the workspace that runs the days.
pub struct Program {
    /// The package that builds it.
    pub package: &'static str,
    /// The name of its binary.
    pub name: &'static str,
}

/// The command `candecode`.
pub const ENGINE: Program = Program { package: "candecode-cli", name: "candecode" };
/// The server.
pub const SERVER: Program = Program { package: "candecode-server", name: "candecode-serve" };

/// The days that use the reader's code, and the open tasks that keep other days from it.
pub struct Mix {
    /// The days that use the reader's code. All others use the reference.
    pub mine: Vec<Day>,
    /// The tasks still to write before other days that the reader has begun use their code.
    pub open: Vec<String>,
}

impl Mix {
    /// Returns the mix with exactly these days of the reader's.
    pub fn of(mine: Vec<Day>) -> Mix {
        Mix { mine, open: vec![] }
    }

    /// Returns the default mix: the reader's code for every day whose core tasks are written, and
    /// for which those tasks of other days are written that it builds on.
    ///
    /// # Errors
    /// If a file of the repository can't be read.
    pub fn written(repo: &Repo) -> Result<Mix> {
        let (mut mine, mut open) = (vec![], vec![]);
        for day in &repo.days {
            let (progress, tasks) = (repo.progress(day)?, repo.tasks(day)?);
            let Progress::Begun(left) = &progress else { continue };
            if progress.has_core(&tasks) {
                let needed = repo.open_tasks_for(day)?;
                if needed.is_empty() {
                    mine.push(day.clone());
                }
                open.extend(needed.into_iter().map(|task| task.id));
            } else if progress.has_a_task(&tasks) {
                let core = tasks.into_iter().filter(|task| !task.further).map(|task| task.id);
                open.extend(core.filter(|id| left.contains(id)));
            }
        }
        Ok(Mix { mine, open })
    }
}

/// Builds a program with a mix of days. `features` are the program's own, such as `hub`. `next`
/// announces the build in a sentence.
///
/// # Errors
/// If cargo can't be started.
pub fn build(
    repo: &Repo,
    program: &Program,
    mix: &Mix,
    features: &[&str],
    next: &str,
) -> Result<Built> {
    let Program { package, name } = program;
    let days = repo.features(|day| !mix.mine.contains(day)).into_iter();
    let days = days.map(|feature| format!("candecode/{feature}"));
    let own = features.iter().map(|feature| format!("{package}/{feature}"));
    let features = days.chain(own).collect::<Vec<_>>().join(",");
    let args = ["--no-default-features", "--package", package, "--bin", name, "--features"];
    let args: Vec<String> = args.into_iter().chain([&*features]).map(String::from).collect();
    cargo::build(repo, "build", &args, next)
}

/// Builds the engine as `cargo xtask run` would without flags. Also returns the days for which it
/// uses the reader's code.
///
/// # Errors
/// If a file of the repository can't be read, or cargo can't be started.
pub fn build_with_written_days(repo: &Repo) -> Result<(Built, Vec<Day>)> {
    let next = "Building the engine with your days, as `cargo xtask run` does …";
    let mix = Mix::written(repo)?;
    Ok((build(repo, &ENGINE, &mix, &[], next)?, mix.mine))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backup::write;

    /// Returns a day of the reference with these tasks, such as `12.1` or `12.9 (optional)`.
    fn reference(tasks: &[&str]) -> String {
        let body = |(at, task): (usize, &&str)| {
            format!(
                "fn f{at}() {{\n    // task {task}: x\n    // <solution>\n    1\n    \
                 // </solution>\n}}\n"
            )
        };
        tasks.iter().enumerate().map(body).collect()
    }

    #[test]
    fn a_day_is_yours_when_its_core_and_what_it_needs_of_other_days_is_written() {
        let root = std::env::temp_dir().join(format!("candecode-mix-{}", std::process::id()));
        let days = [
            ("day06_x", reference(&["6.1", "6.2", "6.3 (challenge)"])),
            ("day12_x", reference(&["12.1", "12.9 (optional)", "12.10 (optional)"])),
            ("day15_x", reference(&["15.1", "15.2 (challenge)"])),
        ];
        for (name, source) in &days {
            write(&root.join(format!("solutions/{name}.rs")), source.as_bytes()).unwrap();
        }
        let repo = Repo::open(&root).unwrap();
        // Writes a day to src/ in which these tasks are open.
        let solve = |day: usize, open: &[&str]| {
            let (name, source) = &days[day];
            let mut text = source.clone();
            for id in open {
                let (day, number) = id.split_once('.').unwrap();
                let at = text.find(&format!("// task {id}")).unwrap();
                let todo = format!("todo!(\"day {day}, task {number}: x\")");
                text = text[..at].to_string() + &text[at..].replacen("    1\n", &todo, 1);
            }
            write(&root.join(format!("src/{name}.rs")), text.as_bytes()).unwrap();
        };
        let mix = || {
            let Mix { mine, open } = Mix::written(&repo).unwrap();
            (mine.iter().map(|day| day.number).collect::<Vec<_>>(), open)
        };
        let none: [String; 0] = [];
        assert_eq!(mix(), (vec![], none.to_vec()));
        solve(0, &["6.3"]);
        solve(2, &["15.2"]);
        assert_eq!(mix(), (vec![6, 15], none.to_vec()), "day 12 is the reference's");
        solve(1, &["12.9", "12.10"]);
        assert_eq!(mix(), (vec![6, 12], vec!["12.9".to_string(), "12.10".to_string()]));
        solve(1, &["12.10"]);
        assert_eq!(mix(), (vec![6, 12], vec!["12.10".to_string()]));
        solve(1, &[]);
        assert_eq!(mix(), (vec![6, 12, 15], none.to_vec()));
        solve(0, &["6.2", "6.3"]);
        assert_eq!(mix(), (vec![12, 15], vec!["6.2".to_string()]));
        std::fs::remove_dir_all(root).unwrap();
    }
}
