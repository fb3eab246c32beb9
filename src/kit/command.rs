//! What the `candecode` command does with its flags.

use crate::kit::args::{Args, Format};
use crate::kit::report::{plain, Report, Timings};
use crate::kit::{days, device, hub, load_model};
use crate::kit::{FinishReason, GenerationOptions, Model, Token, Tokenizer};
use crate::{day06_generate, day07_greedy};
use anyhow::{ensure, Context as _, Result};
use std::io::{Read as _, Write as _};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

/// A mistake in the flags: exit code 2.
#[derive(Debug)]
pub struct Usage(String);

impl std::fmt::Display for Usage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Usage {}

fn usage(message: impl std::fmt::Display) -> anyhow::Error {
    Usage(message.to_string()).into()
}

/// The chain of an error on one line, without candle's backtraces.
pub fn describe(error: &anyhow::Error) -> String {
    let link = |link: &(dyn std::error::Error + 'static)| match link.downcast_ref() {
        Some(error) => plain(error),
        None => link.to_string(),
    };
    error.chain().map(link).collect::<Vec<_>>().join(": ")
}

static INTERRUPTED: AtomicBool = AtomicBool::new(false);

/// Runs the command; gives its exit code.
///
/// # Errors
/// If a flag is wrong ([`Usage`]), or the model or the text fails.
pub fn run(args: &Args) -> Result<u8> {
    let day = loop_day(args)?;
    ensure!(args.max_new_tokens > 0, usage("--max-new-tokens is 0; ask for at least 1"));
    let device = device::device(&args.device).map_err(usage)?;
    let dtype = device::dtype(&args.dtype).map_err(usage)?;
    // The first Ctrl-C ends the text after the token at work, the second ends the program.
    let _ = ctrlc::set_handler(|| {
        if INTERRUPTED.swap(true, Ordering::SeqCst) {
            std::process::exit(130);
        }
    });
    if args.prompt.is_empty() && args.prompt_file.is_none() && args.prompt_ids.is_none() {
        return Err(usage("no prompt; give one with --prompt, --prompt-file or --prompt-ids"));
    }
    let began = Instant::now();
    let dir = hub::resolve(&args.model)?;
    let tokenizer = Tokenizer::from_dir(&dir)?;
    let prompts = prompts(args, &tokenizer)?;
    let model = load_model(&dir, dtype, &device)?;
    let load_s = began.elapsed().as_secs_f64();
    eprintln!("{}", days::credits(day));
    if args.seed.is_some() || args.rng.is_some() {
        eprintln!("note: greedy decoding draws nothing, so --seed and --rng have no effect");
    }
    for (row, prompt) in prompts.iter().enumerate() {
        let run = Run { args, model: &*model, tokenizer: &tokenizer, day, load_s };
        run.sequence(row, prompt)?;
        if INTERRUPTED.load(Ordering::SeqCst) {
            return Ok(130);
        }
    }
    Ok(0)
}

fn loop_day(args: &Args) -> Result<usize> {
    let day = args.loop_day.as_deref().unwrap_or("day7");
    match day.trim_start_matches("day").parse() {
        Ok(day @ 6..=7) => {
            ensure!(
                day == 7 || args.stop.is_empty(),
                usage("day 6's loop knows no --stop; day 7's does")
            );
            Ok(day)
        }
        _ => Err(usage(format!("--loop {day}: no such loop; there are day6 and day7"))),
    }
}

/// The token ids of every prompt.
fn prompts(args: &Args, tokenizer: &Tokenizer) -> Result<Vec<Vec<u32>>> {
    let texts = match (&args.prompt_ids, &args.prompt_file) {
        (Some(ids), _) => return Ok(vec![ids.clone()]),
        (_, Some(file)) => vec![prompt_file(file)?],
        _ => args.prompt.clone(),
    };
    let encode = |text: &String| -> Result<Vec<u32>> {
        ensure!(!text.is_empty(), usage("the prompt is empty; give it at least one character"));
        Ok(tokenizer.encode(text)?)
    };
    texts.iter().map(encode).collect()
}

fn prompt_file(file: &std::path::Path) -> Result<String> {
    if file.as_os_str() == "-" {
        let mut text = String::new();
        std::io::stdin().read_to_string(&mut text).context("could not read standard input")?;
        return Ok(text);
    }
    std::fs::read_to_string(file).with_context(|| {
        format!("--prompt-file {}: could not be read as UTF-8 text", file.display())
    })
}

struct Run<'a> {
    args: &'a Args,
    model: &'a dyn Model,
    tokenizer: &'a Tokenizer,
    day: usize,
    load_s: f64,
}

impl Run<'_> {
    /// One prompt: streams or collects its text, then reports.
    fn sequence(&self, row: usize, prompt: &[u32]) -> Result<()> {
        let text = self.args.format == Format::Text;
        if text {
            let newline = if row > 0 { "\n" } else { "" };
            show(&format!("{newline}{}", self.tokenizer.decode(prompt)?))?;
        }
        let began = Instant::now();
        let mut first = None;
        let mut tokens: Vec<Token> = Vec::new();
        self.generate(prompt, &mut |token| {
            first.get_or_insert_with(|| began.elapsed().as_secs_f64());
            if text {
                show(&token.text)?;
            }
            tokens.push(token);
            Ok(!INTERRUPTED.load(Ordering::SeqCst))
        })?;
        let prefill_s = first.unwrap_or_default();
        let decode_s = began.elapsed().as_secs_f64() - prefill_s;
        let timings = Timings { load_s: self.load_s, prefill_s, decode_s, tokens_per_second: 0.0 };
        let timings = timings.with_rate(tokens.len());
        match self.args.format {
            Format::Text => show("\n")?,
            Format::Json => show(&report(prompt, &tokens, timings)?)?,
        }
        if self.args.stats {
            eprintln!("{}", timings.lines(prompt.len(), tokens.len()));
        }
        Ok(())
    }

    /// Hands every token to `take`, until it says false.
    fn generate(&self, prompt: &[u32], take: &mut dyn FnMut(Token) -> Result<bool>) -> Result<()> {
        let max = self.args.max_new_tokens;
        let mut options = GenerationOptions::new(self.model.config(), max, day07_greedy::greedy);
        options.stop_strings.clone_from(&self.args.stop);
        if self.day == 6 {
            return self.simple(prompt, &options.eos_token_ids, take);
        }
        for token in day07_greedy::generate(self.model, self.tokenizer, prompt, options)? {
            if !take(token?)? {
                break;
            }
        }
        Ok(())
    }

    /// Day 6's loop knows ids only: text, log-probabilities (which it does not compute) and ends are added here.
    fn simple(
        &self,
        prompt: &[u32],
        eos: &[u32],
        take: &mut dyn FnMut(Token) -> Result<bool>,
    ) -> Result<()> {
        let mut stream = day06_generate::TextStream::new(self.tokenizer);
        let mut left = self.args.max_new_tokens;
        let mut stopped = None;
        let on_token = |id| {
            left -= 1;
            let finish = match (eos.contains(&id), left) {
                (true, _) => Some(FinishReason::Eos),
                (_, 0) => Some(FinishReason::Length),
                _ => None,
            };
            let mut text = if eos.contains(&id) { String::new() } else { stream.push(id)? };
            if finish.is_some() {
                text.push_str(&stream.finish()?);
            }
            match take(Token { row: 0, id, logprob: f32::NAN, text, finish }) {
                Ok(true) => Ok(()),
                other => {
                    stopped = Some(other.map(|_| ()));
                    candle_core::bail!("stopped")
                }
            }
        };
        let (model, pick) = (self.model, day07_greedy::argmax);
        let max = self.args.max_new_tokens;
        let result = day06_generate::simple_generate(model, prompt, max, eos, pick, on_token);
        match (stopped, result) {
            (Some(stopped), _) => stopped,
            (None, result) => Ok(result.map(|_| ())?),
        }
    }
}

fn report(prompt: &[u32], tokens: &[Token], timings: Timings) -> Result<String> {
    let report = Report {
        prompt_ids: prompt.to_vec(),
        new_ids: tokens.iter().map(|token| token.id).collect(),
        text: tokens.iter().map(|token| token.text.as_str()).collect(),
        finish_reason: tokens.last().and_then(|token| token.finish),
        logprobs: tokens.iter().map(|token| token.logprob).collect(),
        timings,
    };
    Ok(serde_json::to_string(&report)? + "\n")
}

/// Writes and flushes; a reader that went away (`| head`) ends the program quietly.
fn show(text: &str) -> Result<()> {
    let mut out = std::io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(e) if e.kind() == std::io::ErrorKind::BrokenPipe => std::process::exit(0),
        other => other.context("could not write to standard output"),
    }
}
