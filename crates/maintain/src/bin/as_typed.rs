//! Stands in for `cargo` when the book's page of messages is tested: `cargo xtask run …` runs the
//! command that is built already, `cargo xtask check …` the runner. What they say is shown as the
//! page shows it: without what differs from machine to machine, and with long lines folded.
//! `crates/maintain/tests/messages.rs` says where all is, in the environment.

use std::path::PathBuf;
use std::process::{Command, ExitCode, Stdio};

/// Longer lines are folded: the book shows so many characters without scrolling.
const WIDTH: usize = 84;

fn main() -> ExitCode {
    let mut args: Vec<String> = std::env::args().skip(2).collect(); // without "xtask"
    let folder = PathBuf::from(variable("PAGE_FOLDER"));
    let of_course = args.first().is_some_and(|word| word != "run" && word != "chat");
    let mut command =
        Command::new(variable(if of_course { "PAGE_XTASK" } else { "PAGE_CANDECODE" }));
    if of_course {
        command.current_dir(variable("PAGE_ROOT"));
    } else {
        command.current_dir(&folder);
        if args.remove(0) == "chat" {
            command.arg("--chat");
        }
    }
    for arg in &mut args {
        if let Some(file) = arg.strip_prefix("$(cat ").and_then(|rest| rest.strip_suffix(')')) {
            *arg = std::fs::read_to_string(folder.join(file)).expect("the file in `$(cat …)`");
        }
    }
    let to_file = args.iter().position(|word| word == ">").map(|at| args.split_off(at).remove(1));
    let at = args.iter().position(|word| word == "--model").map_or(usize::MAX, |at| at + 1);
    let model = args.get(at).cloned().unwrap_or_default();
    // A hub of the test has one repository; the page has a name for each way in which it goes
    // wrong.
    if model.starts_with("some/") {
        args[at] = "some/name".to_string();
    }
    let home = folder.join("homes").join(model.replace('/', "-") + "-home");
    let hubs = variable("PAGE_HUBS");
    let hub = hubs.lines().find_map(|line| line.strip_prefix(&format!("{model}=")));
    let hub = hub.unwrap_or("http://127.0.0.1:9"); // where nobody answers
                                                   // A server that the page calls `http://busy:8000` is one of the test's, on the loopback.
    let at = args.iter().position(|word| word == "--endpoint").map_or(usize::MAX, |at| at + 1);
    let endpoint = args.get(at).cloned().unwrap_or_default();
    let server = endpoint.strip_prefix("http://").and_then(|host| host.strip_suffix(":8000"));
    let endpoints = variable("PAGE_ENDPOINTS");
    let started = server.map(|name| {
        let line = endpoints.lines().find_map(|line| line.strip_prefix(&format!("{name}=")));
        line.unwrap_or("http://127.0.0.1:9").to_string() // where nobody answers
    });
    if let Some(address) = &started {
        args[at].clone_from(address);
    }
    command.env_remove("OPENAI_API_KEY");
    if std::env::var_os("HF_HOME").is_none() {
        command.env("HF_HOME", &home);
    }
    command.env("HF_ENDPOINT", hub).env("NO_COLOR", "1").stdin(Stdio::null());
    if let Some(file) = to_file {
        let file = std::fs::OpenOptions::new().append(true).open(file);
        command.stdout(file.expect("the file after `>`"));
    }
    let output = command.args(args).output().expect("the program should start");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    let said = match of_course {
        true => format!("{}{}", only_bad(&out), from_error(&err)),
        false => format!("{out}{}", from_error(&err)),
    };
    let said = said
        .replace(&home.display().to_string(), "~/.cache/huggingface")
        .replace(&format!("{}/", folder.display()), "")
        .replace(&format!("{}/", variable("PAGE_ROOT")), "")
        .replace(started.as_deref().unwrap_or("\0"), &endpoint)
        .replace(hub, "https://huggingface.co")
        .replace("some/name", &model)
        .replace("models--some--name", &format!("models--{}", model.replace('/', "--")));
    let lines: Vec<String> = said.trim_end().lines().map(|line| fold(line.trim_end())).collect();
    print!("{}", lines.join("\n"));
    ExitCode::from(output.status.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(255))
}

fn variable(name: &str) -> String {
    std::env::var(name).unwrap_or_else(|_| panic!("{name} should be set by the test"))
}

/// A message from its error on: what a command tells before of its progress, and the usage after
/// it, is not what went wrong.
fn from_error(text: &str) -> String {
    let at = text.find("error:").filter(|at| *at == 0 || text[..*at].ends_with('\n'));
    let is_usage = |line: &&str| line.starts_with("Usage: ") || line.starts_with("For more info");
    let lines: Vec<&str> = text[at.unwrap_or(0)..].lines().take_while(|l| !is_usage(l)).collect();
    lines.join("\n")
}

/// Of what the doctor or a check prints: what is bad, and the line with the way to mend it.
fn only_bad(text: &str) -> String {
    let lines: Vec<&str> = text.lines().collect();
    let bad = lines.windows(2).filter(|pair| pair[0].starts_with("✗ bad:"));
    bad.map(|pair| format!("{}\n{}\n", pair[0], pair[1])).collect()
}

/// A line, folded between words; what follows is set in.
fn fold(line: &str) -> String {
    let (mut folded, mut width) = (String::new(), 0);
    for (at, word) in line.split(' ').enumerate() {
        let length = word.chars().count();
        if width > 2 && width + 1 + length > WIDTH {
            folded += &format!("\n  {word}");
            width = 2 + length;
        } else {
            let space = if at > 0 { " " } else { "" };
            folded += &format!("{space}{word}");
            width += space.len() + length;
        }
    }
    folded
}
