//! `cargo xtask run`, `chat` and `serve`: build the engine or the server with the reader's days,
//! and run it.

use crate::cargo::{self, Built};
use crate::checking::saved;
use crate::engine::{self, Mix, Program, ENGINE, SERVER};
use crate::{host, note, say};
use anyhow::Result;
use candecode_course::{usage, Repo};
use std::ffi::OsString;
use std::path::Path;
use std::process::{Command, ExitCode};

/// The widened model, which the engine makes itself.
pub const WIDENED: &str = "story-135m";

/// Help for the runner's own flags. The program's flags follow.
const FLAGS: &str = "\
Builds and runs a program with the days you've written

      --solution auto  your code for days whose core is written, else the reference (default)
      --solution mine  your code for every day, written or not
      --solution ref   the reference for every day
      --mine DAYS      your code for exactly these days, such as 1,3; the reference for all others
      --accelerate     on a Mac, matrix products by Apple's Accelerate on the CPU
      --               pass everything that follows to the program

All other flags go to the program:
";

/// A program, and how this command starts it.
pub struct Start {
    program: &'static Program,
    /// A flag that this command adds.
    flag: Option<&'static str>,
}

/// `run`: the engine.
pub const RUN: Start = Start { program: &ENGINE, flag: None };
/// `chat`: the engine in a chat, where every line is a turn.
pub const CHAT: Start = Start { program: &ENGINE, flag: Some("--chat") };
/// `serve`: the server.
pub const SERVE: Start = Start { program: &SERVER, flag: None };
/// `models`: the engine, listing its models.
pub const MODELS: Start = Start { program: &ENGINE, flag: Some("--models") };

/// The runner's own flags, and the remaining arguments for the program.
#[derive(Default)]
struct Flags {
    solution: Option<String>,
    mine: Option<String>,
    accelerate: bool,
    help: bool,
    rest: Vec<OsString>,
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
                "--accelerate" => flags.accelerate = true,
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
        ["--model", "--draft-model"]
            .iter()
            .filter_map(|flag| self.value(flag))
            .filter(|name| !is_of_the_course(name))
            .any(|name| {
                !repo.root.join("models").join(&name).is_dir() && !Path::new(&name).exists()
            })
    }

    /// Returns whether the engine may need chat templates: for a chat, or for a model that isn't
    /// the course's. They are compiled only in that case.
    fn needs_templates(&self, start: &Start) -> bool {
        let chats = start.flag == CHAT.flag || self.rest.iter().any(|arg| arg == "--chat");
        chats || self.value("--model").is_some_and(|name| !is_of_the_course(&name))
    }

    /// Returns the mix that the flags ask for.
    fn mix(&self, repo: &Repo) -> Result<Mix> {
        let mine = match (self.solution.as_deref(), self.mine.as_deref()) {
            (Some(_), Some(_)) => {
                return Err(usage("--solution and --mine both choose the days: use one of them"))
            }
            (Some("auto") | None, None) => return Mix::written(repo),
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
        Ok(Mix::of(mine))
    }

    /// Returns the features of the program that its flags need.
    fn features(&self, repo: &Repo, start: &Start) -> Result<Vec<&'static str>> {
        let device = self.value("--device");
        let device = device.map(|device| host::device_feature(&device)).transpose()?.flatten();
        if self.accelerate && !cfg!(target_os = "macos") {
            return Err(usage("--accelerate needs macOS: leave it out"));
        }
        let accelerate = self.accelerate.then_some("accelerate");
        let network = self.needs_network(repo).then_some("hub");
        // The server always has templates.
        let is_engine = start.program.name == ENGINE.name;
        let templates = (is_engine && self.needs_templates(start)).then_some("templates");
        let formats = ["--json-schema", "--grammar"].iter().any(|flag| self.value(flag).is_some());
        let structured = (is_engine && formats).then_some("structured");
        let own = device.into_iter().chain(accelerate).chain(network);
        Ok(own.chain(templates).chain(structured).collect())
    }
}

/// Returns whether a model is one of the course's, or made in memory. None of them has a template.
fn is_of_the_course(name: &str) -> bool {
    let is_made = name == WIDENED || name.starts_with("random-") && !name.contains('/');
    is_made || saved::MODELS.contains(&name)
}

/// Returns the mix that `--mine` or `--solution` asks for, or None if neither is there, and the
/// other arguments.
///
/// # Errors
/// Bad usage.
pub fn chosen(repo: &Repo, args: &[OsString]) -> Result<(Option<Mix>, Vec<OsString>)> {
    let mut flags = Flags::parse(args)?;
    let chosen = flags.mine.is_some() || flags.solution.is_some();
    let mix = chosen.then(|| flags.mix(repo)).transpose()?;
    flags.rest.extend(flags.help.then(|| OsString::from("--help")));
    Ok((mix, flags.rest))
}

/// Builds a program with the mix of days, and replaces this process with it.
///
/// # Errors
/// Bad usage, or a build that can't be started.
pub fn run(repo: &Repo, start: &Start, args: &[OsString]) -> Result<ExitCode> {
    let program = start.program;
    let flags = Flags::parse(args)?;
    let mix = flags.mix(repo)?;
    if flags.help {
        say!("{FLAGS}");
    }
    let first = !cargo::target_dir(repo).join("debug").join(program.name).exists();
    let said = format!("Building and starting {} …", program.name);
    let programs = match engine::build(repo, program, &mix, &flags.features(repo, start)?, &said)? {
        Built::Done(programs) => programs,
        Built::Broken(places) => {
            note!("\n{}", cargo::explain(&places));
            // `models` has no such flag.
            let takes_flags = start.flag != MODELS.flag;
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
        command.args(start.flag).args(&flags.rest);
        if first && cfg!(target_os = "macos") && flags.value("--device").is_none() {
            note!("[this runs on the CPU; --device metal is the Mac's GPU]");
        }
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

    #[test]
    fn a_story_needs_no_chat_template() {
        let repo = Repo { root: Path::new(env!("CARGO_MANIFEST_DIR")).join(".."), days: vec![] };
        let features = |start: &Start, args: &[&str]| {
            let args: Vec<OsString> = args.iter().map(OsString::from).collect();
            Flags::parse(&args).unwrap().features(&repo, start).unwrap()
        };
        let none: [&str; 0] = [];
        assert_eq!(features(&RUN, &["-p", "x", "--model", "story-135m"]), none);
        assert_eq!(features(&RUN, &["-p", "x", "--model", "."]), ["templates"]);
        assert_eq!(features(&RUN, &["--chat"]), ["templates"]);
        assert_eq!(features(&CHAT, &["--model=story-230k"]), ["templates"]);
        assert_eq!(features(&CHAT, &["--model", "qwen2-0.5b"]), ["hub", "templates"]);
        assert_eq!(features(&RUN, &["-p", "x", "--json-schema=a.json"]), ["structured"]);
        assert_eq!(features(&SERVE, &["--model", "."]), none);
    }
}
