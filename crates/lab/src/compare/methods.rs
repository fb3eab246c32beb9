//! `cargo xtask compare --methods`: runs every decoding method on the same prompts and model, and
//! prints each one's texts and its time.

use super::args::Compare;
use super::texts::{indented, texts, Text};
use anyhow::{Context, Result};
use std::path::Path;
use std::process::{Command, ExitCode};
use xtask::term::{paint, Color};
use xtask::{host, say};

/// The default prompt.
const PROMPT: &str = "One day, Tom found a big";

/// The methods that don't depend on the command line, as flags of `run`. Greedy decoding comes
/// first.
const METHODS: [(&str, &str); 9] = [
    ("greedy", ""),
    ("temperature", "--temperature 0.8"),
    ("top-k", "--temperature 1 --top-k 20"),
    ("top-p", "--temperature 1 --top-p 0.9"),
    ("min-p", "--temperature 1 --min-p 0.1"),
    ("repetition penalty", "--repetition-penalty 1.3"),
    ("presence, frequency", "--presence-penalty 0.5 --frequency-penalty 0.5"),
    ("no n-gram twice", "--no-repeat-ngram 3"),
    ("beams", "--num-beams 4"),
];

/// Runs all methods and prints their texts. Prints nothing if one of them fails.
///
/// # Errors
/// If the engine refuses a flag, a prompt or the model.
pub fn run(program: &Path, args: &Compare) -> Result<ExitCode> {
    let mut prompts = args.prompt.clone();
    if prompts.is_empty() {
        prompts.push(PROMPT.to_string());
    }
    let mut written = Vec::new();
    for (name, flags) in methods(args) {
        let texts = write(program, args, &prompts, &flags).context(name)?;
        written.push((name, flags, texts));
    }
    // The guarded method blocks a word from the greedy text.
    if let Some(word) = args.block.clone().or_else(|| noun(&written[0].2)) {
        let flags = vec!["--block".to_string(), word];
        let texts = write(program, args, &prompts, &flags).context("guarded")?;
        written.push(("guarded", flags, texts));
    }
    let (model, device, seed) = (&args.model, &args.device, args.seed);
    say!("{model} on {device}, seed {seed}, {} tokens at most", args.max_new_tokens);
    if let [prompt] = prompts.as_slice() {
        say!("prompt: {prompt}");
    }
    for (name, flags, texts) in &written {
        let head = format!("{name:<20} {}", flags.join(" "));
        say!("\n{}", paint(Color::Bold, head.trim_end()));
        for (prompt, text) in prompts.iter().zip(texts) {
            if prompts.len() > 1 {
                say!("  {prompt}");
            }
            say!("{}", indented(&text.text));
        }
        let seconds: f64 = texts.iter().map(Text::seconds).sum();
        let tokens: usize = texts.iter().map(|text| text.new_ids.len()).sum();
        say!("  {}", paint(Color::Dim, &format!("{seconds:.2} s for {tokens} tokens")));
    }
    Ok(ExitCode::SUCCESS)
}

/// Returns all methods except the guarded one, with their flags for `run`.
fn methods(args: &Compare) -> Vec<(&'static str, Vec<String>)> {
    let words = |flags: &str| flags.split_whitespace().map(str::to_string).collect::<Vec<_>>();
    let mut all: Vec<_> = METHODS.iter().map(|(name, flags)| (*name, words(flags))).collect();
    let drafts = ["--num-draft-tokens".to_string(), args.num_draft_tokens.to_string()];
    let mut add = |name, flags: &[&str]| {
        all.push((name, flags.iter().map(|flag| flag.to_string()).chain(drafts.clone()).collect()));
    };
    if let Some(draft) = args.draft() {
        add("drafts by a model", &["--draft-model", draft]);
    }
    add("drafts by n-grams", &["--draft-ngram", "2"]);
    all
}

/// Returns the first word of at least four letters, likely a noun and unlikely to occur inside
/// other words.
fn noun(texts: &[Text]) -> Option<String> {
    let mut words = texts.iter().flat_map(|text| text.text.split(|c: char| !c.is_alphabetic()));
    words.find(|word| word.chars().count() >= 4).map(str::to_string)
}

/// Generates a text for each prompt, one at a time.
fn write(
    program: &Path,
    args: &Compare,
    prompts: &[String],
    flags: &[String],
) -> Result<Vec<Text>> {
    let one = |prompt: &String| -> Result<Text> {
        let mut command = Command::new(program);
        command.args(["--format", "json", "--raw", "--model", &args.model]);
        command.args(["--device", &args.device]);
        command.args(["--max-new-tokens", &args.max_new_tokens.to_string()]).args(flags);
        if flags.iter().any(|flag| flag == "--temperature") {
            command.args(["--seed", &args.seed.to_string()]);
        }
        host::set_threads(&mut command);
        texts(command, std::slice::from_ref(prompt))?.pop().context("no text")
    };
    prompts.iter().map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compare::args::tests::Cli;
    use crate::compare::texts::tests::text;
    use clap::Parser as _;

    #[test]
    fn other_models_get_no_draft_model_unless_one_is_given() {
        let drafts = |flags: &[&str]| {
            let args = Cli::parse_from(["compare", "--methods"].iter().chain(flags)).args;
            methods(&args).iter().any(|(name, _)| *name == "drafts by a model")
        };
        assert!(drafts(&[]) && !drafts(&["--model", "story-gpt2-1m"]));
        assert!(drafts(&["--model", "gpt2", "--draft-model", "x"]));
    }

    #[test]
    fn flags_that_the_methods_set_are_refused() {
        for flag in [["--temperature", "1"], ["--rounds", "2"]] {
            let typed = ["compare", "--methods"].iter().chain(&flag).copied();
            assert!(Cli::try_parse_from(typed.collect::<Vec<_>>()).is_err(), "{flag:?}");
        }
    }

    #[test]
    fn the_guarded_word_comes_from_the_greedy_text() {
        assert_eq!(noun(&[text(&[], " red ball in the park.")]).as_deref(), Some("ball"));
        assert_eq!(noun(&[text(&[], " a b c.")]), None);
    }
}
