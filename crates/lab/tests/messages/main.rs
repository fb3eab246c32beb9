//! Tests the book's page of error messages: runs every command on it, and compares the output and
//! the exit code with what the page shows.
//!
//! `cargo xtask book --refresh` updates the page. The commands name models, files and servers with
//! one thing wrong each, which the test creates. It runs only on Linux, because some messages quote
//! the operating system.
#![cfg(target_os = "linux")]

mod models;

use candecode_course::Repo;
use candecode_remote::test_servers::hub::{Fault, Hub, Large};
use candecode_remote::test_servers::openai::{
    self, broken_stream_of, event, response, stream_of, OpenAi,
};
use candecode_testing::{root, story, Folder};
use std::collections::HashMap;
use std::fs;
use std::ops::Range;
use std::path::PathBuf;
use std::process::{Command, Stdio};

/// Hubs with one fault each: the repository's name on the page, the request method, the file, and
/// the fault.
const HUBS: &[(&str, &str, &str, Fault)] = &[
    ("login", "HEAD", "config.json", Fault::Login),
    ("teapot", "HEAD", "config.json", Fault::Status(418, "x: y")),
    ("nowhere", "HEAD", "config.json", Fault::Status(302, "x: y")),
    (
        "odd-commit",
        "HEAD",
        "config.json",
        Fault::Status(206, "x-repo-commit: ../../etc\r\netag: abc\r\ncontent-range: bytes 0-0/9"),
    ),
    ("gated", "HEAD", "config.json", Fault::Status(401, "x-error-code: GatedRepo")),
    (
        "old-token",
        "HEAD",
        "config.json",
        Fault::Status(401, "x-error-message: Invalid credentials"),
    ),
    ("private", "HEAD", "config.json", Fault::Status(403, "x: y")),
    ("busy", "HEAD", "config.json", Fault::Status(429, "retry-after: 0")),
    ("troubled", "GET", "model.safetensors", Fault::Status(503, "retry-after: 0")),
    ("damaged", "GET", "model.safetensors", Fault::OtherBytes),
    ("longer", "GET", "model.safetensors", Fault::OtherLength),
    ("without-config", "HEAD", "config.json", Fault::Status(404, "x-error-code: EntryNotFound")),
    (
        "without-tokenizer",
        "HEAD",
        "tokenizer.json",
        Fault::Status(404, "x-error-code: EntryNotFound"),
    ),
    (
        "without-weights",
        "HEAD",
        "model.safetensors",
        Fault::Status(404, "x-error-code: EntryNotFound"),
    ),
];

/// Servers for `--endpoint`, by their name on the page. Most have one fault.
fn endpoints() -> Vec<(&'static str, OpenAi)> {
    let two = r#"{"data":[{"id":"small"},{"id":"large"}]}"#;
    let refuses = |status, headers, body| OpenAi::sends(response(status, headers, body));
    let dies = event(" a", "null") + "data: {\"error\":{\"message\":\"the engine has died\"}}\n\n";
    let too_long = r#"{"error":{"message":"max_tokens: 99999 is more than the context of 2048"}}"#;
    let full = r#"{"error":{"message":"the queue of 128 requests is full"}}"#;
    let not_found = r#"{"detail":"Not Found"}"#;
    vec![
        ("vllm", OpenAi::owned_by("vllm")),
        ("llama-server", OpenAi::owned_by("llamacpp")),
        ("locked", OpenAi { key: Some("right"), ..OpenAi::default() }),
        ("two-models", OpenAi::lists(openai::json(two))),
        ("nameless", OpenAi::lists(response("404 Not Found", "", not_found))),
        ("router", OpenAi::lists(openai::json("<html>The router's settings</html>"))),
        ("breaks", OpenAi::sends(broken_stream_of(&event(" a", "null")))),
        ("dies", OpenAi::sends(stream_of(dies))),
        ("strict", refuses("400 Bad Request", "", too_long)),
        ("busy", refuses("429 Too Many Requests", "retry-after: 120\r\n", full)),
        ("chats-only", refuses("404 Not Found", "", not_found)),
    ]
}

/// Starts the hubs and returns their addresses, by the model's name on the page.
fn start_hubs() -> HashMap<String, String> {
    let story = story("story-230k");
    let start = |(name, method, file, fault): &(&str, &'static str, &'static str, Fault)| {
        let hub = Hub::serve(&story, Large::Here).fault(method, file, usize::MAX, *fault);
        (format!("some/{name}"), hub.address)
    };
    let mut hubs: HashMap<_, _> = HUBS.iter().map(start).collect();
    let whole = Hub::serve(&story, Large::Here).address;
    hubs.extend(["some/half", "some/cache", "other/name"].map(|name| (name.into(), whole.clone())));
    hubs
}

/// A shell function in place of cargo for the page's commands.
const CARGO: &str = r#"
cargo() {
  case "$2" in
    run) "$CANDECODE" "${@:3}" ;;
    chat) "$CANDECODE" --chat "${@:3}" ;;
    *) cd "$ROOT" && "$XTASK" "${@:2}" ;;
  esac
}
"#;

/// An address where no server listens.
const NOWHERE: &str = "http://127.0.0.1:9";

/// Everything that the page's commands need.
struct Stage {
    page: Folder,
    root: PathBuf,
    candecode: PathBuf,
    xtask: PathBuf,
    hubs: HashMap<String, String>,
    endpoints: HashMap<String, String>,
}

impl Stage {
    fn set_up() -> Stage {
        let root = fs::canonicalize(root()).unwrap();
        let repo = Repo::open(&root).unwrap();
        let candecode =
            built(&repo, &["--package", "candecode-cli", "--features", "ref"], "candecode");
        let xtask = built(&repo, &["--package", "xtask"], "xtask");
        let page = Folder::new("page");
        fs::create_dir(page.0.join("homes")).unwrap();
        models::make(&page);
        let hubs = start_hubs();
        let start = |(name, server): (&str, OpenAi)| (name.to_string(), server.start().address);
        let endpoints = endpoints().into_iter().map(start).collect();
        let stage = Stage { page, root, candecode, xtask, hubs, endpoints };
        // A cache with a file missing.
        let mut fetch = Command::new(&stage.candecode);
        fetch.args(["--model", "some/name", "--where"]).env("HF_HOME", stage.home("some/half"));
        let fetched = fetch.env("HF_ENDPOINT", &stage.hubs["some/half"]).output().unwrap();
        let fetched = PathBuf::from(String::from_utf8(fetched.stdout).unwrap().trim());
        fs::remove_file(fetched.join("tokenizer.json")).unwrap();
        stage
    }

    fn home(&self, model: &str) -> PathBuf {
        self.page.0.join("homes").join(model.replace('/', "-") + "-home")
    }

    /// Runs a command. Returns the lines that the page shows below it: the exit code unless it's 0,
    /// and the output, with paths and addresses replaced by those on the page.
    fn shown(&self, typed: &str) -> Vec<String> {
        let after = |flag: &str| {
            let mut words = typed.split_whitespace().skip_while(|word| *word != flag);
            words.nth(1).unwrap_or_default().to_string()
        };
        let (model, server) = (after("--model"), after("--endpoint"));
        let hub = self.hubs.get(&model).map_or(NOWHERE, String::as_str);
        // The page refers to the test's servers by names such as `http://busy:8000`.
        let name = server.strip_prefix("http://").and_then(|rest| rest.strip_suffix(":8000"));
        let address = name.map(|name| self.endpoints.get(name).map_or(NOWHERE, String::as_str));
        let mut here = typed.to_string();
        if let Some(address) = address {
            here = here.replace(&server, address);
        }
        if model.starts_with("some/") {
            // Every test hub serves its repository under this name.
            here = here.replace(&model, "some/name");
        }
        let mut bash = Command::new("bash");
        bash.args(["-c", &format!("{CARGO}{here}")]).current_dir(&self.page.0);
        bash.env("CANDECODE", &self.candecode).env("XTASK", &self.xtask);
        bash.env("ROOT", &self.root).env("NO_COLOR", "1").env_remove("OPENAI_API_KEY");
        bash.env("HF_HOME", self.home(&model)).env("HF_ENDPOINT", hub).stdin(Stdio::null());
        let output = bash.output().unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let (mut out, err) = (text(&output.stdout), text(&output.stderr));
        if !["run", "chat"].iter().any(|command| typed.contains(&format!("xtask {command} "))) {
            out = only_bad(&out);
        }
        let mut said = format!("{out}{}", from_error(&err));
        for (real, shown) in [
            (self.home(&model).display().to_string(), "~/.cache/huggingface"),
            (format!("{}/", self.page.0.display()), ""),
            (format!("{}/", self.root.display()), ""),
            (address.unwrap_or("\0").to_string(), &server),
            (hub.to_string(), "https://huggingface.co"),
            ("some/name".to_string(), &model),
            ("models--some--name".to_string(), &format!("models--{}", model.replace('/', "--"))),
        ] {
            said = said.replace(&real, shown);
        }
        let code = output.status.code().unwrap_or(-1);
        let mut lines: Vec<String> =
            said.trim_end().lines().flat_map(|line| fold(line.trim_end())).collect();
        lines.splice(..0, (code != 0).then(|| format!("? {code}")));
        lines
    }
}

/// Builds one of the course's programs and returns its path.
fn built(repo: &Repo, args: &[&str], name: &str) -> PathBuf {
    let status = xtask::cargo::command(repo).arg("build").arg("--quiet").args(args).status();
    assert!(status.unwrap().success(), "cargo build {args:?}");
    let name = format!("{name}{}", std::env::consts::EXE_SUFFIX);
    xtask::cargo::target_dir(repo).join("debug").join(name)
}

/// Returns a message from `error:` on, without the notes before it or the usage after it.
fn from_error(text: &str) -> String {
    let at = text.find("error:").filter(|at| *at == 0 || text[..*at].ends_with('\n'));
    let is_usage = |line: &&str| line.starts_with("Usage: ") || line.starts_with("For more info");
    let lines: Vec<&str> = text[at.unwrap_or(0)..].lines().take_while(|l| !is_usage(l)).collect();
    lines.join("\n")
}

/// Returns the doctor's lines about problems, each with the line about its fix.
fn only_bad(text: &str) -> String {
    let lines: Vec<&str> = text.lines().collect();
    let bad = lines.windows(2).filter(|pair| pair[0].starts_with("✗ bad:"));
    bad.map(|pair| format!("{}\n{}\n", pair[0], pair[1])).collect()
}

/// Wraps a line at 84 characters, the most that fits in the book without scrolling. All lines but
/// the first are indented.
fn fold(line: &str) -> Vec<String> {
    let mut lines = vec![String::new()];
    for (at, word) in line.split(' ').enumerate() {
        let last = lines.last_mut().unwrap();
        if last.trim().is_empty() || last.chars().count() + 1 + word.chars().count() <= 84 {
            *last += if at > 0 { " " } else { "" };
            *last += word;
        } else {
            lines.push(format!("  {word}"));
        }
    }
    lines
}

/// Returns a page's commands, each with the range of lines below it.
fn cases(lines: &[String]) -> Vec<(String, Range<usize>)> {
    let (mut cases, mut inside) = (Vec::new(), false);
    for (at, line) in lines.iter().enumerate() {
        if line.starts_with("```") {
            inside = line == "```console";
        } else if let Some(typed) = line.strip_prefix("$ ").filter(|_| inside) {
            let ends = |at: &usize| lines[*at].starts_with("$ ") || lines[*at].starts_with("```");
            let end = (at + 1..lines.len()).find(ends).unwrap();
            cases.push((typed.to_string(), at + 1..end));
        }
    }
    cases
}

#[test]
fn commands_print_what_the_page_shows() {
    let stage = Stage::set_up();
    let path = stage.root.join("book/src/when_something_goes_wrong.md");
    let text = fs::read_to_string(&path).unwrap();
    let mut lines: Vec<String> = text.lines().map(str::to_string).collect();
    let cases = cases(&lines);
    assert!(cases.len() > 10, "{} commands", cases.len());
    let said: Vec<Vec<String>> = std::thread::scope(|scope| {
        let shown = |part: &[(String, Range<usize>)]| -> Vec<Vec<String>> {
            part.iter().map(|(typed, _)| stage.shown(typed)).collect()
        };
        let run = |part| scope.spawn(move || shown(part));
        let parts: Vec<_> = cases.chunks(cases.len().div_ceil(4)).map(run).collect();
        parts.into_iter().flat_map(|part| part.join().unwrap()).collect()
    });
    let mut differ = Vec::new();
    for ((typed, body), said) in cases.into_iter().zip(said).rev() {
        if lines[body.clone()] != said {
            let shown = lines[body.clone()].join("\n");
            differ.push(format!("$ {typed}\n{}\nbut the page shows\n{shown}\n", said.join("\n")));
            lines.splice(body, said);
        }
    }
    if std::env::var_os("CANDECODE_REFRESH").is_some() {
        fs::write(path, lines.join("\n") + "\n").unwrap();
        return;
    }
    let all = differ.join("\n");
    assert!(differ.is_empty(), "{all}\n`cargo xtask book --refresh` rewrites the page");
}
