//! `cargo xtask compare`: the same prompts through every loop of the reference, in one table: time,
//! speed-up, and whether the text is equal. With `--methods`, see [`compare_methods`].

use crate::{columns, compare_methods};
use anyhow::{bail, ensure, Context, Result};
use clap::{Args, ValueEnum};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, ExitStatus, Stdio};
use xtask::cargo::{self, Built};
use xtask::host;
use xtask::note;
use xtask::repo::Repo;
use xtask::say;
use xtask::term::{paint, Colour};
use xtask::usage;

/// The flags of `compare`.
#[derive(Args)]
pub struct Compare {
    /// The texts to continue; two of the course's if there is none
    #[arg(short, long, value_name = "TEXT", num_args = 1..)]
    pub(crate) prompt: Vec<String>,
    /// As in `run`
    #[arg(long, default_value = "story-3m")]
    pub(crate) model: String,
    /// Tokens to generate at most
    #[arg(long, default_value_t = 64)]
    pub(crate) max_new_tokens: usize,
    /// The model that drafts; without one, and with another model than story-3m, n-grams do
    #[arg(long)]
    pub(crate) draft_model: Option<String>,
    /// Tokens to draft before each pass
    #[arg(long, default_value_t = 4)]
    pub(crate) num_draft_tokens: usize,
    /// A word that the guarded row blocks; without one, a word that no text here contains
    #[arg(long)]
    pub(crate) block: Option<String>,
    /// Above 0 it samples
    #[arg(long, default_value_t = 0.0)]
    temperature: f64,
    /// As in `run`
    #[arg(long)]
    top_k: Option<usize>,
    /// As in `run`
    #[arg(long)]
    top_p: Option<f64>,
    /// As in `run`
    #[arg(long, default_value_t = 0)]
    pub(crate) seed: u64,
    /// A first row that is not ours
    #[arg(long, value_enum)]
    peer: Option<Peer>,
    /// A last row from a server that speaks OpenAI's protocol, at an address as http://127.0.0.1:8000
    #[arg(long, value_name = "URL")]
    endpoint: Option<String>,
    /// What the server calls the model [default: as --model does, or its only one]
    #[arg(long, value_name = "NAME", requires = "endpoint")]
    endpoint_model: Option<String>,
    /// The key that the server asks for [default: what OPENAI_API_KEY says]
    #[arg(long, value_name = "KEY", requires = "endpoint")]
    api_key: Option<String>,
    /// The Python that has torch and transformers
    #[arg(long, default_value = "python3")]
    python: String,
    /// Run every row this often, in turn with the others; times are medians [default: 3; with
    /// --methods 1]
    #[arg(long)]
    pub(crate) rounds: Option<usize>,
    /// Compare the decoding methods instead, by what they write: greedy, sampling, penalties, beams,
    /// drafts, guard rails
    #[arg(long, conflicts_with_all = ["temperature", "top_k", "top_p", "peer", "endpoint"])]
    methods: bool,
    /// cpu, metal or cuda
    #[arg(long, default_value = "cpu")]
    pub(crate) device: String,
    /// The engine to ask, if it is built already
    #[arg(long, hide = true)]
    program: Option<PathBuf>,
}

impl Compare {
    /// The model that drafts, if there is one: the course's small one for its large one.
    pub(crate) fn draft(&self) -> Option<&str> {
        self.draft_model.as_deref().or((self.model == "story-3m").then_some("story-230k"))
    }
}

/// What runs beside us.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Peer {
    /// `AutoModelForCausalLM.generate`
    Transformers,
}

/// One way to the same text.
struct Way {
    name: String,
    how: How,
    /// With sampling, its draws are its own: only the distribution is the same.
    own_draws: bool,
}

/// What is started.
enum How {
    Peer,
    Server(String),
    Flags(Vec<String>),
}

/// What a way gave in one round.
#[derive(Default)]
struct Texts {
    ids: Vec<Vec<u64>>,
    /// The text of each token, where a server tells texts and no ids.
    pieces: Vec<Vec<String>>,
    texts: Vec<String>,
    /// Whether each ended by an EOS id of ours, which a server may keep for itself.
    ended: Vec<bool>,
    seconds: f64,
    drafts: Option<[u64; 3]>,
}

/// The word of the guarded row that no story contains.
const UNHEARD: &str = "xylophonist";

/// Runs all ways and prints the table. Exit code 1 if a text that must be equal is not.
///
/// # Errors
/// If the reference does not build or run, or the peer is not to be had.
pub fn run(repo: &Repo, args: &Compare) -> Result<ExitCode> {
    ensure!(args.rounds != Some(0), usage("--rounds is 0; ask for at least 1"));
    let sampled = args.temperature > 0.0;
    ensure!(
        sampled || (args.top_k.is_none() && args.top_p.is_none()),
        usage("--top-k and --top-p are for sampling; add --temperature")
    );
    let feature = host::device_feature(&args.device)?;
    let python = args.peer.map(|_| python(repo, args)).transpose()?;
    let Some(program) = program(repo, args, feature)? else {
        return Ok(ExitCode::FAILURE);
    };
    if args.methods {
        return compare_methods::run(&program, args);
    }
    let prompts = match args.prompt.as_slice() {
        [] => vec![
            "Lily and her dog".to_string(),
            "Once upon a time, there was a red ball".to_string(),
        ],
        given => given.to_vec(),
    };
    let ways = ways(args, prompts.len(), sampled);
    let mut rounds: Vec<Vec<Texts>> = ways.iter().map(|_| vec![]).collect();
    for _ in 0..args.rounds.unwrap_or(3) {
        for (way, rounds) in ways.iter().zip(&mut rounds) {
            let texts = match (&way.how, &python) {
                (How::Flags(flags), _) => ours(&program, args, &prompts, flags),
                (How::Server(address), _) => served(&program, args, &prompts, address),
                (How::Peer, Some(python)) => theirs(repo, python, &program, args, &prompts),
                (How::Peer, None) => bail!("no Python for the peer"),
            };
            rounds.push(texts.with_context(|| way.name.clone())?);
        }
    }
    Ok(table(&ways, &rounds, &prompts, args, sampled))
}

/// The engine with the reference's days; `None` if it doesn't compile, which has been explained.
fn program(repo: &Repo, args: &Compare, feature: Option<&str>) -> Result<Option<PathBuf>> {
    if args.program.is_some() {
        return Ok(args.program.clone());
    }
    let features = ["ref"].into_iter().chain(feature).collect::<Vec<_>>().join(",");
    let flags = ["--bin", "candecode", "--features", &features].map(str::to_string);
    let task = "Building the reference; then every row runs, some seconds each.";
    match cargo::build(repo, "build", &flags, task)? {
        Built::Done(programs) => Ok(Some(programs.get("candecode")?.to_path_buf())),
        Built::Broken(places) => {
            note!("\n{}", cargo::explain(&places));
            Ok(None)
        }
    }
}

/// The ways, in the order of the table.
fn ways(args: &Compare, prompts: usize, sampled: bool) -> Vec<Way> {
    let flags = |flags: &[&str]| flags.iter().map(|flag| flag.to_string()).collect::<Vec<_>>();
    // Alone, a row of ours draws as transformers does if that is what it is compared with.
    let rng = if args.peer.is_some() { "torch" } else { "chacha" };
    let drawn = |mut all: Vec<String>, rng: &str| {
        if sampled {
            all.extend(flags(&["--rng", rng]));
        }
        How::Flags(all)
    };
    let mut ways = Vec::new();
    let mut add = |name: &str, how: How, own_draws: bool| {
        ways.push(Way { name: name.to_string(), how, own_draws: own_draws && sampled });
    };
    if args.peer.is_some() {
        add("transformers", How::Peer, false);
    }
    add("no cache", drawn(flags(&["--loop", "day7", "--no-cache"]), rng), false);
    add("KV cache", drawn(flags(&["--loop", "day10"]), rng), false);
    add("static KV cache", drawn(flags(&["--loop", "day10", "--cache", "static"]), rng), false);
    if prompts > 1 {
        // One torch stream serves all rows of a batch, so its draws are other ones than alone.
        add(
            &format!("batch of {prompts}"),
            drawn(flags(&["--loop", "day12"]), rng),
            rng == "torch",
        );
    }
    add("scheduled", drawn(flags(&["--loop", "day15"]), "chacha"), rng == "torch");
    let k = args.num_draft_tokens.to_string();
    if let Some(draft) = args.draft() {
        let name = format!("drafts by {}", draft.rsplit('/').next().unwrap_or(draft));
        add(
            &name,
            drawn(flags(&["--draft-model", draft, "--num-draft-tokens", &k]), "chacha"),
            true,
        );
    }
    add(
        "drafts by n-grams",
        drawn(flags(&["--draft-ngram", "2", "--num-draft-tokens", &k]), "chacha"),
        true,
    );
    let word = args.block.as_deref().unwrap_or(UNHEARD);
    add(
        &format!("guarded: no {word}"),
        drawn(flags(&["--loop", "day10", "--block", word]), rng),
        false,
    );
    if let Some(address) = &args.endpoint {
        add(&format!("at {}", host(address)), How::Server(address.clone()), false);
    }
    ways
}

/// The host of an address.
fn host(address: &str) -> &str {
    let host = address.split_once("://").map_or(address, |(_, host)| host);
    host.split('/').next().unwrap_or(host)
}

/// The flags that all of ours share.
fn shared(args: &Compare) -> Vec<String> {
    let mut all = vec!["--max-new-tokens".to_string(), args.max_new_tokens.to_string()];
    if args.temperature > 0.0 {
        all.extend([
            "--temperature".into(),
            args.temperature.to_string(),
            "--seed".into(),
            args.seed.to_string(),
        ]);
    }
    all.extend(args.top_k.into_iter().flat_map(|k| ["--top-k".to_string(), k.to_string()]));
    all.extend(args.top_p.into_iter().flat_map(|p| ["--top-p".to_string(), p.to_string()]));
    all
}

/// Runs the program once, for all prompts.
fn ours(program: &Path, args: &Compare, prompts: &[String], flags: &[String]) -> Result<Texts> {
    let mut command = asking(program, args, prompts, flags);
    host::set_threads(&mut command);
    let together = ["day12", "day15"].iter().any(|day| flags.iter().any(|flag| flag == day));
    read(&mut command, together)
}

/// The command that asks the program for a row.
fn asking(program: &Path, args: &Compare, prompts: &[String], flags: &[String]) -> Command {
    let mut command = Command::new(program);
    command.args(["--format", "json", "--raw", "--model", &args.model, "--device", &args.device]);
    command.args(shared(args)).args(flags);
    for prompt in prompts {
        command.args(["-p", prompt]);
    }
    command
}

/// Asks the server, for all prompts one after another.
fn served(program: &Path, args: &Compare, prompts: &[String], address: &str) -> Result<Texts> {
    let mut command = Command::new(program);
    command.args(["--format", "json", "--endpoint", address]).args(shared(args));
    if let Some(name) = &args.endpoint_model {
        command.args(["--model", name]);
    }
    if let Some(key) = &args.api_key {
        command.env("OPENAI_API_KEY", key); // not on the command line, where others can read it
    }
    for prompt in prompts {
        command.args(["-p", prompt]);
    }
    read(&mut command, false)
}

/// Runs a command that prints a line of JSON for each text; `together`: their times are one and the
/// same.
fn read(command: &mut Command, together: bool) -> Result<Texts> {
    let out = command.stdin(Stdio::null()).output().context("cannot be started")?;
    let error = String::from_utf8_lossy(&out.stderr);
    if !out.status.success() {
        return Err(refusal(&out.status, &error));
    }
    let lines = String::from_utf8_lossy(&out.stdout).into_owned();
    let mut all = Texts::default();
    for line in lines.lines() {
        let json: Value =
            serde_json::from_str(line).with_context(|| format!("not JSON: {line}"))?;
        let ids = json["new_ids"].as_array().context("no new_ids")?;
        all.ids.push(ids.iter().filter_map(Value::as_u64).collect());
        let pieces = json["tokens"].as_array().into_iter().flatten().filter_map(Value::as_str);
        all.pieces.push(pieces.map(str::to_string).collect());
        all.ended.push(json["finish_reason"] == "eos");
        all.texts.push(json["text"].as_str().unwrap_or_default().to_string());
        let seconds = |name: &str| json[name].as_f64().unwrap_or(0.0);
        let seconds = seconds("prefill_s") + seconds("decode_s");
        all.seconds = if together { seconds } else { all.seconds + seconds };
        if let Some(drafts) = json["drafts"].as_object() {
            let count = |name: &str| drafts.get(name).and_then(Value::as_u64).unwrap_or(0);
            let sums = all.drafts.get_or_insert([0; 3]);
            for (sum, name) in sums.iter_mut().zip(["accepted", "drafted", "passes"]) {
                *sum += count(name);
            }
        }
    }
    Ok(all)
}

/// Passes on what the engine said when it refused a command, with its exit code.
pub(crate) fn refusal(status: &ExitStatus, error: &str) -> anyhow::Error {
    let message = error.trim();
    let message = message.strip_prefix("error: ").unwrap_or(message).to_string();
    match status.code() {
        Some(2) => usage(message),
        _ => anyhow::Error::msg(message),
    }
}

/// A Python that has transformers.
fn python(repo: &Repo, args: &Compare) -> Result<PathBuf> {
    let own = [".venv/bin/python", ".venv/Scripts/python.exe"].map(|path| repo.root.join(path));
    let named = [PathBuf::from(&args.python)];
    for python in named.iter().chain(own.iter().filter(|path| path.exists())) {
        let mut probe = Command::new(python);
        probe.args(["-c", "import torch, transformers"]).stdin(Stdio::null());
        if probe.output().is_ok_and(|out| out.status.success()) {
            return Ok(python.clone());
        }
    }
    bail!(
        "--peer transformers needs a Python that has it, and {} has not. In the repository:\n  \
         python3 -m venv .venv\n  .venv/bin/pip install -r tests/oracle/requirements.txt\n\
         (some gigabytes), or name one with --python",
        args.python
    )
}

/// Runs transformers on the folder that the program itself would load.
fn theirs(
    repo: &Repo,
    python: &Path,
    program: &Path,
    args: &Compare,
    prompts: &[String],
) -> Result<Texts> {
    let mut ask = Command::new(program);
    let folder =
        ask.args(["--model", &args.model, "--where"]).output().context("cannot be started")?;
    ensure!(folder.status.success(), "{}", String::from_utf8_lossy(&folder.stderr).trim_end());
    let mut command = Command::new(python);
    command.arg(repo.root.join("benches/peers/transformers_generate.py"));
    command.arg(String::from_utf8_lossy(&folder.stdout).trim_end());
    command.args(shared(args));
    for prompt in prompts {
        command.args(["-p", prompt]);
    }
    host::set_threads(&mut command);
    read(&mut command, false)
}

/// Prints the table; the exit code tells whether all is equal that must be.
fn table(
    ways: &[Way],
    rounds: &[Vec<Texts>],
    prompts: &[String],
    args: &Compare,
    sampled: bool,
) -> ExitCode {
    let median = |rounds: &[Texts]| {
        let mut seconds: Vec<f64> = rounds.iter().map(|texts| texts.seconds).collect();
        seconds.sort_by(f64::total_cmp);
        seconds[seconds.len() / 2]
    };
    let (first, mut equal) = (&rounds[0][0], true);
    let unit = median(&rounds[0]);
    say!(
        "{}",
        paint(
            Colour::Bold,
            &format!("{:<26}{:>9}{:>11}{:>10}   {}", "", "time", "tokens/s", "speed-up", "text")
        )
    );
    for (way, rounds) in ways.iter().zip(rounds) {
        let (texts, seconds) = (&rounds[0], median(rounds));
        let tokens = texts.count();
        let guarded = way.name.starts_with("guarded") && args.block.is_some();
        let is_server = matches!(way.how, How::Server(_));
        let (colour, word) = match difference(first, texts) {
            _ if is_server && sampled => {
                (Colour::Dim, "other draws: a server has its own".to_string())
            }
            _ if is_server => match compared(first, texts) {
                Ok(words) => (Colour::Green, words),
                Err(words) => {
                    equal = false;
                    (Colour::Red, format!("DIFFERS, {words}"))
                }
            },
            _ if std::ptr::eq(first, texts) => {
                (Colour::Dim, "what the others are compared with".to_string())
            }
            None => (Colour::Green, "equal".to_string()),
            Some(_) if way.own_draws => {
                (Colour::Dim, "other draws of the same distribution".to_string())
            }
            Some(at) if guarded => (Colour::Dim, format!("{at}: the word is kept out")),
            Some(at) => {
                equal = false;
                (Colour::Red, format!("DIFFERS, {at}"))
            }
        };
        let drafts = texts.drafts.map_or(String::new(), |[accepted, drafted, passes]| {
            format!(
                "; {:.0} % of drafts accepted, {:.2} tokens a pass",
                100.0 * accepted as f64 / drafted.max(1) as f64,
                tokens as f64 / passes.max(1) as f64
            )
        });
        say!(
            "{:<26}{:>7.2} s{:>11.0}{:>9.2}x   {}{drafts}",
            way.name,
            seconds,
            tokens as f64 / seconds,
            unit / seconds,
            paint(colour, &word)
        );
    }
    if sampled {
        say!("Sampled at temperature {}, seed {}.", args.temperature, args.seed);
    }
    say!("On {}. The text of the first row:", args.device);
    let rows = prompts.iter().map(String::as_str).zip(first.texts.iter().map(String::as_str));
    for line in columns::two(("prompt", "text"), &rows.collect::<Vec<_>>()) {
        say!("{line}");
    }
    ExitCode::from(u8::from(!equal))
}

/// Where two ways part first; `None`: nowhere.
fn difference(want: &Texts, got: &Texts) -> Option<String> {
    let part = |(want, got): (&Vec<u64>, &Vec<u64>)| {
        let same = want.iter().zip(got).take_while(|(a, b)| a == b).count();
        (want != got).then_some(same)
    };
    let at = want
        .ids
        .iter()
        .zip(&got.ids)
        .map(part)
        .enumerate()
        .find_map(|(text, at)| Some((text, at?)));
    match at {
        Some((text, at)) => Some(format!("text {} from token {at} on", text + 1)),
        None if want.ids.len() != got.ids.len() => Some("another number of texts".to_string()),
        None => None,
    }
}

impl Texts {
    /// Tokens of all texts, as far as they are told.
    fn count(&self) -> usize {
        let of = |(ids, pieces): (&Vec<u64>, &Vec<String>)| ids.len().max(pieces.len());
        self.ids.iter().zip(&self.pieces).map(of).sum()
    }
}

/// Whether a server's texts equal ours: by ids where it tells them, else by text. How they were
/// compared, or where they part.
fn compared(want: &Texts, got: &Texts) -> Result<String, String> {
    let mut by_ids = true;
    if want.texts.len() != got.texts.len() {
        return Err("another number of texts".to_string());
    }
    for (i, text) in got.texts.iter().enumerate() {
        let (ours, theirs) = (&want.ids[i], &got.ids[i]);
        if theirs.is_empty() && !ours.is_empty() {
            by_ids = false;
            if want.texts[i] == *text {
                continue;
            }
            let letters = want.texts[i].chars().zip(text.chars());
            let same: String = letters.take_while(|(a, b)| a == b).map(|(a, _)| a).collect();
            let mut length = 0;
            let whole = got.pieces[i].iter().take_while(|piece| {
                length += piece.len();
                length <= same.len()
            });
            let place = match got.pieces[i].is_empty() {
                true => format!("character {}", same.chars().count()),
                false => format!("token {}", whole.count()),
            };
            return Err(format!("text {} from {place} on: {}", i + 1, beginning(text, &same)));
        }
        // The EOS that ends a text is a token for us, and for some servers none.
        let without_eos = &ours[..ours.len() - usize::from(want.ended[i])];
        if theirs != ours && theirs != without_eos {
            let same = ours.iter().zip(theirs).take_while(|(a, b)| a == b).count();
            let (our, their) = (ours.get(same), theirs.get(same));
            let id = |id: Option<&u64>| id.map_or("the end".to_string(), u64::to_string);
            let (our, their) = (id(our), id(their));
            return Err(format!("text {} from token {same} on: {our} here, {their} there", i + 1));
        }
    }
    Ok(match (by_ids, got.count()) {
        (true, tokens) => format!("equal, {tokens} tokens by their ids"),
        (false, tokens) if tokens > 0 && tokens == want.count() => {
            format!("equal, {tokens} tokens by their text")
        }
        (false, _) => "equal, by the text alone: the server tells no tokens".to_string(),
    })
}

/// What a server writes where it parts from us, shortened.
fn beginning(text: &str, same: &str) -> String {
    let rest: String = text[same.len()..].chars().take(20).collect();
    format!("there {rest:?}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(ids: &[&[u64]]) -> Texts {
        Texts {
            ids: ids.iter().map(|ids| ids.to_vec()).collect(),
            pieces: vec![vec![]; ids.len()],
            texts: vec![String::new(); ids.len()],
            ended: vec![false; ids.len()],
            ..Texts::default()
        }
    }

    #[test]
    fn every_row_passes_each_flag_once() {
        #[derive(clap::Parser)]
        struct Cli {
            #[command(flatten)]
            args: Compare,
        }
        let typed = ["compare", "--temperature", "0.8", "--top-k", "9", "--device", "cpu"];
        let args = <Cli as clap::Parser>::parse_from(typed).args;
        for way in ways(&args, 2, true) {
            let How::Flags(flags) = &way.how else { continue };
            let command = asking(Path::new("candecode"), &args, &["Lily".into()], flags);
            let mut passed: Vec<_> = command.get_args().filter(|arg| is_flag(arg)).collect();
            let all = passed.len();
            passed.sort();
            passed.dedup();
            assert_eq!(passed.len(), all, "{}: {command:?}", way.name);
        }
    }

    fn is_flag(arg: &std::ffi::OsStr) -> bool {
        arg.to_string_lossy().starts_with("--")
    }

    #[test]
    fn the_first_difference_is_named() {
        let want = texts(&[&[1, 2], &[3, 4, 5]]);
        assert_eq!(difference(&want, &texts(&[&[1, 2], &[3, 4, 5]])), None);
        let other = difference(&want, &texts(&[&[1, 2], &[3, 9, 5]]));
        assert_eq!(other.as_deref(), Some("text 2 from token 1 on"));
        assert!(difference(&want, &texts(&[&[1, 2], &[3, 4]])).is_some());
        assert!(difference(&want, &texts(&[&[1, 2]])).is_some());
    }

    #[test]
    fn a_server_is_compared_by_ids_where_it_tells_them() {
        let mut want = texts(&[&[1, 2, 0]]);
        assert!(compared(&want, &texts(&[&[1, 2]])).is_err());
        want.ended[0] = true; // 0 is the EOS
        assert_eq!(compared(&want, &texts(&[&[1, 2]])).unwrap(), "equal, 2 tokens by their ids");
        assert!(compared(&want, &texts(&[&[1, 2, 0]])).is_ok());
        let words = compared(&want, &texts(&[&[1, 7, 0]])).unwrap_err();
        assert_eq!(words, "text 1 from token 1 on: 2 here, 7 there");
    }

    #[test]
    fn a_server_without_ids_is_compared_by_text() {
        let (mut want, mut got) = (texts(&[&[1, 2]]), texts(&[&[]]));
        want.texts[0] = " a dog".into();
        got.texts[0] = " a dog".into();
        assert!(compared(&want, &got).unwrap().contains("by the text alone"));
        got.pieces[0] = vec![" a".into(), " dog".into()];
        assert_eq!(compared(&want, &got).unwrap(), "equal, 2 tokens by their text");
        got.pieces[0].clear();
        got.texts[0] = " a cat".into();
        assert_eq!(compared(&want, &got).unwrap_err(), "text 1 from character 3 on: there \"cat\"");
        got.pieces[0] = vec![" a".into(), " cat".into()];
        assert!(compared(&want, &got).unwrap_err().contains("from token 1 on"));
    }
}
