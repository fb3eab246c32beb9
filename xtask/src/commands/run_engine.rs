//! `cargo xtask run`, `chat` and `serve`: build the engine or the server with the reader's days,
//! and run it.

use crate::cargo::{self, Built};
use crate::{host, note, say};
use anyhow::Result;
use candecode_course::{usage, Day, Progress, Repo};
use std::ffi::OsString;
use std::path::Path;
use std::process::{Command, ExitCode};

/// Help for the runner's own flags. The program's flags follow.
const FLAGS: &str = "\
Builds and runs a program with the days you've written

      --solution auto  your code for days you've finished, the reference for others (default)
      --solution mine  your code for every day, written or not
      --solution ref   the reference for every day
      --mine DAYS      your code for exactly these days, such as 1,3; the reference for all others
      --               pass everything that follows to the program

All other flags go to the program:
";

/// A program built from the days.
pub struct Program {
    /// The package that builds it.
    package: &'static str,
    /// The name of its binary.
    name: &'static str,
    /// A flag that this command adds.
    flag: Option<&'static str>,
}

/// The package of the command `candecode`.
const CLI: &str = "candecode-cli";

/// `run`: the engine.
pub const RUN: Program = Program { package: CLI, name: "candecode", flag: None };
/// `chat`: the engine in a chat, where every line is a turn.
pub const CHAT: Program = Program { package: CLI, name: "candecode", flag: Some("--chat") };
/// `serve`: the server.
pub const SERVE: Program =
    Program { package: "candecode-serve", name: "candecode-serve", flag: None };
/// `models`: the engine, listing its models.
pub const MODELS: Program = Program { package: CLI, name: "candecode", flag: Some("--models") };

/// The runner's own flags, and the remaining arguments for the program.
#[derive(Default)]
struct Flags {
    solution: Option<String>,
    mine: Option<String>,
    help: bool,
    rest: Vec<OsString>,
}

/// The days that use the reader's code, and the open tasks of days in progress, which don't.
struct Mix {
    mine: Vec<Day>,
    open: Vec<String>,
}

impl Flags {
    /// Separates the runner's flags from the program's, which stay as they are.
    fn parse(args: &[OsString]) -> Result<Flags> {
        let mut flags = Flags::default();
        let mut args = args.iter();
        while let Some(arg) = args.next() {
            let text = arg.to_string_lossy();
            let (name, value) =
                text.split_once('=').map_or((&*text, None), |(n, v)| (n, Some(v.to_string())));
            match name {
                "--" => flags.rest.extend(args.by_ref().cloned()),
                "--help" | "-h" => flags.help = true,
                "--solution" | "--mine" => {
                    let next = || args.next().map(|next| next.to_string_lossy().into_owned());
                    let Some(value) = value.or_else(next) else {
                        return Err(usage(format!("{name} needs a value: see --help")));
                    };
                    let flag = if name == "--mine" { &mut flags.mine } else { &mut flags.solution };
                    *flag = Some(value);
                }
                _ => flags.rest.push(arg.clone()),
            }
        }
        Ok(flags)
    }

    /// Returns the value of one of the program's flags. The last occurrence wins.
    fn value(&self, flag: &str) -> Option<String> {
        let texts: Vec<_> = self.rest.iter().map(|arg| arg.to_string_lossy()).collect();
        let is_flag = |text: &str| {
            text.strip_prefix(flag).is_some_and(|rest| rest.is_empty() || rest.starts_with('='))
        };
        let at = texts.iter().rposition(|text| is_flag(text))?;
        match texts[at].split_once('=') {
            Some((_, value)) => Some(value.to_string()),
            None => texts.get(at + 1).map(|value| value.to_string()),
        }
    }

    /// Returns whether the command may need the network: to talk to a server, or to download a
    /// model that isn't the course's, a local folder or file, or randomly initialized. The HTTP
    /// crates are compiled only in that case.
    fn needs_network(&self, repo: &Repo) -> bool {
        if self.value("--endpoint").is_some() {
            return true;
        }
        ["--model", "--draft-model"].iter().filter_map(|flag| self.value(flag)).any(|name| {
            let is_here =
                repo.root.join("models").join(&name).is_dir() || Path::new(&name).exists();
            let is_random = name.starts_with("random-") && !name.contains('/');
            !is_here && !is_random
        })
    }

    /// Returns the mix that the flags ask for.
    fn mix(&self, repo: &Repo) -> Result<Mix> {
        let mine = match (self.solution.as_deref(), self.mine.as_deref()) {
            (Some(_), Some(_)) => {
                return Err(usage("--solution and --mine both choose the days: use one of them"))
            }
            (Some("auto") | None, None) => return written(repo),
            (Some("ref"), None) => vec![],
            (Some("mine"), None) => repo.days.clone(),
            (Some(other), None) => {
                return Err(usage(format!("--solution must be auto, mine or ref, not `{other}`")))
            }
            (None, Some(list)) => {
                let days = list.split(',').map(|day| repo.day(day.trim()).cloned());
                days.collect::<Result<_>>()?
            }
        };
        Ok(Mix { mine, open: vec![] })
    }
}

/// Returns the default mix: the reader's code for every day that is fully written.
fn written(repo: &Repo) -> Result<Mix> {
    let (mut mine, mut open) = (vec![], vec![]);
    for day in &repo.days {
        let (progress, tasks) = (repo.progress(day)?, repo.tasks(day)?);
        match &progress {
            Progress::Begun(left) if left.is_empty() => mine.push(day.clone()),
            Progress::Begun(left) if progress.has_a_task(&tasks) => {
                open.extend(tasks.into_iter().map(|task| task.id).filter(|id| left.contains(id)));
            }
            _ => {}
        }
    }
    Ok(Mix { mine, open })
}

/// Builds the engine as `cargo xtask run` would without flags. Also returns the days for which it
/// uses the reader's code.
///
/// # Errors
/// Same as [`run`].
pub fn build_mix(repo: &Repo) -> Result<(Built, Vec<Day>)> {
    let said = "Building the engine with your days, as `cargo xtask run` does …";
    let mix = written(repo)?;
    Ok((build(repo, &Flags::default(), &mix, &RUN, said)?, mix.mine))
}

/// Builds a program with a mix of days.
fn build(repo: &Repo, flags: &Flags, mix: &Mix, program: &Program, said: &str) -> Result<Built> {
    let days = repo.features(|day| !mix.mine.contains(day)).into_iter();
    let mut features: Vec<String> = days.map(|day| format!("candecode/{day}")).collect();
    let Program { package, name, .. } = program;
    if let Some(device) = flags.value("--device") {
        let feature = host::device_feature(&device)?;
        features.extend(feature.map(|feature| format!("{package}/{feature}")));
    }
    if flags.needs_network(repo) {
        features.push(format!("{package}/hub"));
    }
    let args = ["--no-default-features", "--package", package, "--bin", name, "--features"];
    let args: Vec<String> =
        args.into_iter().chain([&*features.join(",")]).map(String::from).collect();
    cargo::build(repo, "build", &args, said)
}

/// Builds a program with the mix of days, and replaces this process with it.
///
/// # Errors
/// Bad usage, or a build that can't be started.
pub fn run(repo: &Repo, program: &Program, args: &[OsString]) -> Result<ExitCode> {
    let flags = Flags::parse(args)?;
    let mix = flags.mix(repo)?;
    if flags.help {
        say!("{FLAGS}");
    }
    let said = format!("Building and starting {} …", program.name);
    let programs = match build(repo, &flags, &mix, program, &said)? {
        Built::Done(programs) => programs,
        Built::Broken(places) => {
            note!("\n{}", cargo::explain(&places));
            // `models` has no such flag.
            let takes_flags = program.flag != MODELS.flag;
            if takes_flags && places.iter().any(|place| place.file.starts_with("src/day")) {
                let instead = if flags.mine.is_some() { " instead of `--mine`" } else { "" };
                note!("With `--solution ref`{instead}, the same command runs without your file.");
            }
            return Ok(ExitCode::FAILURE);
        }
    };
    let mut command = Command::new(programs.get(program.name)?);
    host::set_threads(&mut command);
    if flags.help {
        command.arg("--help");
    } else {
        command.args(program.flag).args(&flags.rest);
        if !mix.open.is_empty() {
            let noun = if mix.open.len() == 1 { "task" } else { "tasks" };
            note!(
                "[the reference runs days that you haven't finished; still to write: {noun} {}]",
                mix.open.join(", ")
            );
        }
    }
    become_program(&mut command)
}

/// Replaces this process with the program, so that Ctrl-C, signals and the exit code are the
/// program's own.
#[cfg(unix)]
fn become_program(command: &mut Command) -> Result<ExitCode> {
    let problem = std::os::unix::process::CommandExt::exec(command);
    Err(anyhow::anyhow!("cannot start {}: {problem}", command.get_program().to_string_lossy()))
}

/// Runs the program to completion. The program receives Ctrl-C and decides what to do about it, so
/// the runner ignores it and waits.
#[cfg(not(unix))]
fn become_program(command: &mut Command) -> Result<ExitCode> {
    ctrlc::set_handler(|| {})?;
    let status = command.status()?;
    Ok(ExitCode::from(u8::try_from(status.code().unwrap_or(1)).unwrap_or(1)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_not_found_locally_need_the_network() {
        let repo = Repo { root: Path::new(env!("CARGO_MANIFEST_DIR")).join(".."), days: vec![] };
        let may = |args: &[&str]| {
            let args: Vec<OsString> = args.iter().map(OsString::from).collect();
            Flags::parse(&args).unwrap().needs_network(&repo)
        };
        assert!(!may(&["-p", "x"]) && !may(&["--model", "story-230k"]) && !may(&["--model=."]));
        assert!(!may(&["--model", "random-135m"]));
        assert!(may(&["--endpoint", "http://127.0.0.1:8000"]));
        assert!(may(&["--model", "smollm2-135m"]) && may(&["--draft-model=qwen2-0.5b"]));
        assert!(may(&["--model", "random-owner/name"]));
    }
}
