//! `cargo xtask compare --methods`: every decoding method on the same prompts and model, with the text
//! that each one writes and the time it takes.

use crate::columns;
use crate::compare_loops::{refusal, Compare};
use anyhow::{Context, Result};
use serde_json::Value;
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};
use xtask::host;
use xtask::say;
use xtask::term::{paint, Colour};

/// The default prompt.
const PROMPT: &str = "One day, Tom found a big";

/// A decoding method, as flags of `run`.
struct Method {
    name: &'static str,
    flags: Vec<String>,
}

/// The texts that a method wrote, one per prompt.
struct Written {
    texts: Vec<String>,
    tokens: usize,
    seconds: f64,
}

/// Runs all methods and prints their texts. Prints nothing if one of them fails.
///
/// # Errors
/// If the engine refuses a flag, a prompt or the model.
pub fn run(program: &Path, args: &Compare) -> Result<ExitCode> {
    let prompts = match args.prompt.as_slice() {
        [] => vec![PROMPT.to_string()],
        given => given.to_vec(),
    };
    let ask = |method: &Method| write(program, args, &prompts, &method.flags);
    let greedy = Method { name: "greedy", flags: vec![] };
    let plain = ask(&greedy)?;
    let word = args.block.clone().or_else(|| first_word(&plain.texts));
    let mut rows = vec![(greedy, plain)];
    for method in methods(args, word.as_deref()) {
        let written = ask(&method).with_context(|| method.name)?;
        rows.push((method, written));
    }
    say!(
        "{} on {}, seed {}, {} tokens at most",
        args.model,
        args.device,
        args.seed,
        args.max_new_tokens
    );
    if let [prompt] = prompts.as_slice() {
        say!("prompt: {prompt}");
    }
    for (method, written) in &rows {
        show(method, written, &prompts);
    }
    Ok(ExitCode::SUCCESS)
}

/// All methods but greedy decoding; `word` is the one that the guarded row blocks.
fn methods(args: &Compare, word: Option<&str>) -> Vec<Method> {
    let method = |name: &'static str, flags: &str| Method {
        name,
        flags: flags.split_whitespace().map(str::to_string).collect(),
    };
    let mut all = vec![
        method("temperature", "--temperature 0.8"),
        method("top-k", "--temperature 1 --top-k 20"),
        method("top-p", "--temperature 1 --top-p 0.9"),
        method("min-p", "--temperature 1 --min-p 0.1"),
        method("repetition penalty", "--repetition-penalty 1.3"),
        method("presence, frequency", "--presence-penalty 0.5 --frequency-penalty 0.5"),
        method("no n-gram twice", "--no-repeat-ngram 3"),
        method("beams", "--num-beams 4"),
    ];
    let drafts = args.num_draft_tokens.to_string();
    let mut add = |name, flags: &[&str]| {
        all.push(Method { name, flags: flags.iter().map(|flag| flag.to_string()).collect() });
    };
    if let Some(draft) = args.draft() {
        add("drafts by a model", &["--draft-model", draft, "--num-draft-tokens", &drafts]);
    }
    add("drafts by n-grams", &["--draft-ngram", "2", "--num-draft-tokens", &drafts]);
    if let Some(word) = word {
        add("guarded", &["--block", word]);
    }
    all
}

/// The first word of the texts that is long enough to be a noun, and not a part of most others.
fn first_word(texts: &[String]) -> Option<String> {
    let mut words = texts.iter().flat_map(|text| text.split(|c: char| !c.is_alphabetic()));
    words.find(|word| word.chars().count() >= 4).map(str::to_string)
}

/// One method on all prompts, one after another; the time is the median of the rounds, without
/// loading the model.
fn write(program: &Path, args: &Compare, prompts: &[String], flags: &[String]) -> Result<Written> {
    let mut rounds = Vec::new();
    for _ in 0..args.rounds.unwrap_or(1) {
        let mut round = Written { texts: vec![], tokens: 0, seconds: 0.0 };
        for prompt in prompts {
            let json = one(program, args, prompt, flags)?;
            let seconds = |name: &str| json[name].as_f64().unwrap_or(0.0);
            round.seconds += seconds("prefill_s") + seconds("decode_s");
            round.tokens += json["new_ids"].as_array().map_or(0, Vec::len);
            round.texts.push(json["text"].as_str().unwrap_or_default().to_string());
        }
        rounds.push(round);
    }
    rounds.sort_by(|a, b| a.seconds.total_cmp(&b.seconds));
    Ok(rounds.swap_remove(rounds.len() / 2))
}

/// Asks the engine to continue one prompt and returns its JSON.
fn one(program: &Path, args: &Compare, prompt: &str, flags: &[String]) -> Result<Value> {
    let mut command = Command::new(program);
    command.args(["--format", "json", "--raw", "--model", &args.model, "--device", &args.device]);
    command.args(["--max-new-tokens", &args.max_new_tokens.to_string()]);
    command.args(flags);
    if flags.iter().any(|flag| flag == "--temperature") {
        command.args(["--seed", &args.seed.to_string()]);
    }
    command.args(["-p", prompt]).stdin(Stdio::null());
    host::set_threads(&mut command);
    let out = command.output().context("cannot be started")?;
    if !out.status.success() {
        return Err(refusal(&out.status, &String::from_utf8_lossy(&out.stderr)));
    }
    serde_json::from_slice(&out.stdout).context("the engine's answer isn't JSON")
}

/// Prints a method: its name, its flags, its time, and what it wrote.
fn show(method: &Method, written: &Written, prompts: &[String]) {
    let flags = method.flags.join(" ");
    let time = format!("{:.2} s for {} tokens", written.seconds, written.tokens);
    say!("");
    say!("{}", paint(Colour::Bold, format!("{:<20} {flags}", method.name).trim_end()));
    let lines = match prompts {
        [_] => columns::wrap(&format!("…{}", written.texts[0].trim_start()), columns::WIDTH - 2),
        _ => {
            let rows = prompts.iter().map(String::as_str);
            let rows: Vec<_> = rows.zip(written.texts.iter().map(String::as_str)).collect();
            columns::two(("prompt", "text"), &rows)
        }
    };
    lines.iter().for_each(|line| say!("  {line}"));
    say!("  {}", paint(Colour::Dim, &time));
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Cli {
        #[command(flatten)]
        args: Compare,
    }

    fn args(flags: &[&str]) -> Compare {
        Cli::parse_from(["compare"].iter().chain(flags)).args
    }

    #[test]
    fn another_model_has_no_draft_model_unless_one_is_named() {
        let names = |flags: &[&str]| -> Vec<&str> {
            methods(&args(flags), Some("ball")).iter().map(|method| method.name).collect()
        };
        let ours = names(&["--methods"]);
        assert!(ours.contains(&"drafts by a model") && ours.contains(&"guarded"));
        assert!(!names(&["--model", "story-gpt2-1m"]).contains(&"drafts by a model"));
        assert!(names(&["--model", "gpt2", "--draft-model", "x"]).contains(&"drafts by a model"));
    }

    #[test]
    fn what_the_methods_set_themselves_is_refused() {
        for flag in [["--temperature", "1"], ["--top-p", "0.5"], ["--peer", "transformers"]] {
            let typed = ["compare", "--methods"].iter().chain(&flag).copied();
            assert!(Cli::try_parse_from(typed.collect::<Vec<_>>()).is_err(), "{flag:?}");
        }
    }

    #[test]
    fn the_guarded_word_is_of_the_greedy_text() {
        let word = |text: &str| first_word(&[text.to_string()]);
        assert_eq!(word(" red ball in the park.").as_deref(), Some("ball"));
        assert_eq!(word(" a b c."), None);
    }
}
