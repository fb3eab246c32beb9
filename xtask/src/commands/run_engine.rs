//! `cargo xtask run`, `chat` and `serve`: build and run the engine or the server, with the reader's
//! days in it.

use crate::cargo::{self, Built};
use crate::host;
use crate::note;
use crate::progress::{self, Progress};
use crate::repo::{Day, Repo};
use crate::say;
use crate::usage;
use anyhow::Result;
use std::ffi::OsString;
use std::path::Path;
use std::process::{Command, ExitCode};

/// What `run` is.
const RUN: &str = "\
Builds and runs the engine, with the days you have written in it

Usage: cargo xtask run [--solution auto|mine|ref] [--mine DAYS] [FLAGS OF THE PROGRAM]
";

/// What `chat` is.
const CHAT: &str = "\
Talks with a model, with the days you have written in it: every line is a turn, /help shows the \
commands

Usage: cargo xtask chat [--model NAME] [--system TEXT] [--template FILE] \
[FLAGS OF run, BUT FOR PROMPTS]

The model's own chat template makes the prompt. The story models have none, and write a story with \
you.
";

/// What `serve` is.
const SERVE: &str = "\
Serves a model to every client that speaks OpenAI's protocol, with the days you have written in it

Usage: cargo xtask serve [--model NAME] [--port 8000] [FLAGS OF THE SERVER]

Ctrl-C ends it when the last row has ended. The page at / talks with the model.
";

/// The runner's own flags; the program's follow below them.
const FLAGS: &str = "
      --solution auto  days that you have written are yours, the others the reference's (the \
default)
      --solution mine  every day is yours, written or not
      --solution ref   every day is the reference's
      --mine DAYS      exactly these days are yours, as 1,3; all others are the reference's
      --               all that follows is for the program

All other flags go to the program:
";

/// What the runner's own flags say, and what is left for the program.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Run {
    solution: Option<String>,
    mine: Option<String>,
    help: bool,
    rest: Vec<OsString>,
}

/// Which days are the reader's, and the open tasks for which begun days are not.
struct Mix {
    mine: Vec<Day>,
    open: Vec<String>,
}

impl Run {
    /// Takes the runner's flags out of a command line, and leaves all others as they are.
    ///
    /// # Errors
    /// Bad usage: a flag without its value.
    pub fn parse(args: &[OsString]) -> Result<Run> {
        let mut run = Run::default();
        let mut args = args.iter();
        while let Some(arg) = args.next() {
            let text = arg.to_string_lossy();
            let (name, value) =
                text.split_once('=').map_or((&*text, None), |(n, v)| (n, Some(v.to_string())));
            match name {
                "--" => run.rest.extend(args.by_ref().cloned()),
                "--help" | "-h" => run.help = true,
                "--solution" | "--mine" => {
                    let next = || args.next().map(|next| next.to_string_lossy().into_owned());
                    let Some(value) = value.or_else(next) else {
                        return Err(usage(format!("{name} needs a value: see --help")));
                    };
                    let flag = if name == "--mine" { &mut run.mine } else { &mut run.solution };
                    *flag = Some(value);
                }
                _ => run.rest.push(arg.clone()),
            }
        }
        Ok(run)
    }

    /// The value of a flag of the program's, the last if it is given twice.
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

    /// True if a model is asked for that may have to be downloaded: neither one of the course's, nor
    /// a folder or file, nor one of random weights; or a server. The crates for HTTP are compiled
    /// only then.
    fn needs_network(&self, repo: &Repo) -> bool {
        if self.value("--endpoint").is_some() {
            return true;
        }
        ["--model", "--draft-model"].iter().filter_map(|flag| self.value(flag)).any(|name| {
            let is_here =
                repo.root.join("models").join(&name).is_dir() || Path::new(&name).exists();
            !is_here && !name.starts_with("random-")
        })
    }

    /// Which days are the reader's.
    fn mix(&self, repo: &Repo) -> Result<Mix> {
        let mine = match (self.solution.as_deref(), self.mine.as_deref()) {
            (Some(_), Some(_)) => {
                return Err(usage("--solution and --mine both choose the days: give one of them"))
            }
            (Some("auto") | None, None) => return written(repo),
            (Some("ref"), None) => vec![],
            (Some("mine"), None) => repo.days.clone(),
            (Some(other), None) => {
                return Err(usage(format!("--solution is auto, mine or ref, not `{other}`")))
            }
            (None, Some(list)) => {
                let days = list.split(',').map(|day| repo.day(day.trim()).cloned());
                days.collect::<Result<_>>()?
            }
        };
        Ok(Mix { mine, open: vec![] })
    }
}

/// The days that are written are the reader's.
fn written(repo: &Repo) -> Result<Mix> {
    let (mut mine, mut open) = (vec![], vec![]);
    for day in &repo.days {
        match progress::of(repo, day)? {
            Progress::Begun(left) if left.is_empty() => mine.push(day.clone()),
            Progress::Begun(left) => {
                let tasks = repo.tasks(day)?;
                if left.len() < tasks.len() {
                    let ids = tasks.into_iter().map(|task| task.id);
                    open.extend(ids.filter(|id| left.contains(id)));
                }
            }
            _ => {}
        }
    }
    Ok(Mix { mine, open })
}

/// Builds the mix of days and becomes the program.
///
/// # Errors
/// Bad usage, or a build that cannot be started.
pub fn run(repo: &Repo, args: &[OsString]) -> Result<ExitCode> {
    start(repo, &Run::parse(args)?, RUN, &ENGINE)
}

/// As [`run`], and the program chats.
///
/// # Errors
/// As [`run`].
pub fn chat(repo: &Repo, args: &[OsString]) -> Result<ExitCode> {
    let mut run = Run::parse(args)?;
    run.rest.insert(0, "--chat".into());
    start(repo, &run, CHAT, &ENGINE)
}

/// Builds the server with the mix of days, and becomes it.
///
/// # Errors
/// As [`run`].
pub fn serve(repo: &Repo, args: &[OsString]) -> Result<ExitCode> {
    start(repo, &Run::parse(args)?, SERVE, &SERVER)
}

/// A program that has the days in it.
struct Program {
    package: &'static str,
    binary: &'static str,
    said: &'static str,
}

const ENGINE: Program = Program {
    package: "candecode",
    binary: "candecode",
    said: "Building the engine; then it starts.",
};
const SERVER: Program = Program {
    package: "candecode-serve",
    binary: "candecode-serve",
    said: "Building the server; then it starts.",
};

fn start(repo: &Repo, run: &Run, help: &str, program: &Program) -> Result<ExitCode> {
    let mix = run.mix(repo)?;
    let mut features = repo.features(|day| !mix.mine.contains(day));
    features.push("cli".to_string());
    if let Some(device) = run.value("--device") {
        features.extend(host::device_feature(&device)?.map(str::to_string));
    }
    if run.help {
        say!("{help}{FLAGS}");
    }
    if run.needs_network(repo) {
        features.push("hub".to_string());
    }
    let features: Vec<String> =
        features.iter().map(|feature| format!("candecode/{feature}")).collect();
    let mut args = vec!["--no-default-features".to_string()];
    args.extend(["--package".to_string(), program.package.to_string()]);
    args.extend(["--bin".to_string(), program.binary.to_string()]);
    args.extend(["--features".to_string(), features.join(",")]);
    let programs = match cargo::build(repo, "build", &args, program.said)? {
        Built::Done(programs) => programs,
        Built::Broken(places) => {
            note!("\n{}", cargo::explain(&places));
            return Ok(ExitCode::FAILURE);
        }
    };
    let mut command = command(programs.get(program.binary)?, run);
    if !mix.open.is_empty() && !run.help {
        let noun = if mix.open.len() == 1 { "task" } else { "tasks" };
        note!(
            "[the reference runs a day that isn't finished; to write: {noun} {}]",
            mix.open.join(", ")
        );
    }
    become_program(&mut command)
}

/// The program with its flags.
fn command(program: &Path, run: &Run) -> Command {
    let mut command = Command::new(program);
    if run.help {
        command.arg("--help");
    } else {
        command.args(&run.rest);
    }
    host::set_threads(&mut command);
    command
}

/// Replaces the runner by the program: so Ctrl-C, signals and the exit code are the program's own.
#[cfg(unix)]
fn become_program(command: &mut Command) -> Result<ExitCode> {
    let problem = std::os::unix::process::CommandExt::exec(command);
    Err(anyhow::anyhow!("cannot start {}: {problem}", command.get_program().to_string_lossy()))
}

/// Runs the program to its end. Ctrl-C reaches it too, and it decides: the runner waits.
#[cfg(not(unix))]
fn become_program(command: &mut Command) -> Result<ExitCode> {
    ctrlc::set_handler(|| {})?;
    let status = command.status()?;
    Ok(ExitCode::from(u8::try_from(status.code().unwrap_or(1)).unwrap_or(1)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(args: &[&str]) -> Run {
        Run::parse(&args.iter().map(OsString::from).collect::<Vec<_>>()).unwrap()
    }

    #[test]
    fn own_flags_are_taken_from_anywhere_and_others_stay() {
        let run = parse(&["-p", "a b", "--mine", "1,3", "--stats", "--", "--mine"]);
        assert_eq!(run.mine.as_deref(), Some("1,3"));
        assert_eq!(run.rest, ["-p", "a b", "--stats", "--mine"]);
        assert_eq!(parse(&["--solution=ref"]).solution.as_deref(), Some("ref"));
    }

    #[test]
    fn the_device_is_seen_and_stays() {
        let run = parse(&["--device", "metal", "-p", "x"]);
        assert_eq!(run.value("--device").as_deref(), Some("metal"));
        assert_eq!(run.rest.len(), 4);
        assert_eq!(parse(&["--device=cuda"]).value("--device").as_deref(), Some("cuda"));
    }

    #[test]
    fn only_a_name_that_is_nowhere_here_may_be_downloaded() {
        let repo = Repo { root: Path::new(env!("CARGO_MANIFEST_DIR")).join(".."), days: vec![] };
        let may = |args: &[&str]| parse(args).needs_network(&repo);
        assert!(!may(&["-p", "x"]) && !may(&["--model", "story-230k"]) && !may(&["--model=."]));
        assert!(!may(&["--model", "random-135m"]));
        assert!(may(&["--endpoint", "http://127.0.0.1:8000"]));
        assert!(may(&["--model", "smollm2-135m"]) && may(&["--draft-model=qwen2-0.5b"]));
    }
}
