//! The command's output: text as it is generated, or one line of JSON per sequence, and `--stats`.

use crate::flags::{Args, Format};
use crate::interrupt;
use anyhow::{Context as _, Result};
use candecode::kit::draft::Counts;
use candecode::kit::error::OutputClosed;
use candecode::kit::note::note;
use candecode::kit::units::bytes;
use candecode::kit::{FinishReason, Token};
use candecode_engine::forecast::{self, Transformer};
use candecode_engine::kernels;
use candecode_engine::loops::Found;
use candecode_engine::memory_check;
use candecode_engine::watched::TextSoFar;
use candecode_engine::Engine;
use serde::Serialize;
use std::io::{IsTerminal as _, Write as _};
use std::time::Instant;

/// A sequence being generated, in the form that `--format json` prints.
#[derive(Clone, Default, Serialize)]
pub struct Text {
    /// Token ids of the prompt.
    prompt_ids: Vec<u32>,
    /// Generated token ids, including EOS.
    new_ids: Vec<u32>,
    /// The generated text.
    text: String,
    /// Why it ended. None if it was interrupted.
    finish_reason: Option<FinishReason>,
    /// The error, if it failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// Natural log of each new token's probability.
    logprobs: Vec<f32>,
    /// Top alternatives of each step, best first, if requested.
    #[serde(skip_serializing_if = "Option::is_none")]
    top_logprobs: Option<Vec<Vec<TopLogprob>>>,
    /// Beam score: log-probability divided by `length ^ length_penalty`.
    #[serde(skip_serializing_if = "Option::is_none")]
    score: Option<f32>,
    /// Statistics of speculative decoding.
    #[serde(skip_serializing_if = "Option::is_none")]
    drafts: Option<Counts>,
    #[serde(flatten)]
    timings: Timings,
    /// Text to show before the completion: the prompt, or the question before the chat template was
    /// applied.
    #[serde(skip)]
    shown_prompt: String,
}

/// One of a step's top tokens (OpenAI's `top_logprobs`).
#[derive(Clone, Serialize)]
struct TopLogprob {
    id: u32,
    token: String,
    /// Natural log of its probability, according to the model itself.
    logprob: f32,
}

/// Timings, in seconds.
#[derive(Clone, Copy, Default, Serialize)]
struct Timings {
    /// Time to load the model.
    load_s: f64,
    /// Time to the first token. 0 for a beam search, which reports no tokens.
    prefill_s: f64,
    /// Time from the first token to the last, or of all of a beam search.
    decode_s: f64,
    /// New tokens after the first, per second of `decode_s`.
    tokens_per_second: f64,
}

/// Collects tokens and shows them.
pub struct Output<'a> {
    args: &'a Args,
    engine: &'a Engine,
    /// The number of the first prompt in the whole run.
    number: usize,
    /// Whether the loop is a beam search, which reports hypotheses at its end instead of tokens.
    beams: bool,
    /// The text of each row.
    pub texts: Vec<Text>,
    began: Instant,
    /// Time of the first token, in seconds, and the number of bytes that the kernels had read by
    /// then.
    first: Option<(f64, u64)>,
    load_s: f64,
    /// The model, if day 16 can predict this run's passes.
    pub predicted: Option<&'a Transformer>,
}

impl<'a> Output<'a> {
    /// Creates the output for these prompts, the first of which is prompt number `number` of the
    /// whole run. `beams` is true for a beam search. `questions` are the prompts as typed, if a
    /// chat template was applied to them.
    ///
    /// # Errors
    /// If the prompt can't be shown.
    pub fn new(
        args: &'a Args,
        engine: &'a Engine,
        prompts: &[Vec<u32>],
        load_s: f64,
        number: usize,
        beams: bool,
        questions: Option<&[String]>,
    ) -> Result<Self> {
        let mut texts = Vec::new();
        for (row, prompt) in prompts.iter().enumerate() {
            let shown_prompt = match questions {
                Some(all) => {
                    let samples = (prompts.len() / all.len()).max(1);
                    format!("{}\n\n", all[number + row / samples])
                }
                None if args.format == Format::Json => String::new(), // needs no tokenizer
                None => engine.tokenizer().decode(prompt)?,
            };
            texts.push(Text {
                prompt_ids: prompt.clone(),
                top_logprobs: args.top_logprobs.map(|_| Vec::new()),
                shown_prompt,
                ..Text::default()
            });
        }
        let out = Self {
            args,
            engine,
            number,
            beams,
            texts,
            began: Instant::now(),
            first: None,
            load_s,
            predicted: None,
        };
        if out.streams() {
            let gap = if number > 0 { "\n" } else { "" };
            show_text(&format!("{gap}{}", out.texts[0].shown_prompt))?;
        }
        Ok(out)
    }

    /// Returns true if text is shown as it is generated. Several texts would be interleaved, so
    /// they are shown one after another at the end. So is a text under the lines of a trace.
    fn streams(&self) -> bool {
        let Self { args, texts, beams, .. } = self;
        args.format == Format::Text && texts.len() == 1 && !beams && !args.trace
    }

    /// Returns the texts generated so far, labeled for error messages.
    pub fn so_far(&self) -> Vec<TextSoFar> {
        let count = self.texts.len();
        let so_far = |(row, text): (usize, &Text)| TextSoFar {
            which: match count {
                1 => String::new(),
                _ => format!("text {} of {count}: ", row + 1),
            },
            tokens: [&text.prompt_ids[..], &text.new_ids].concat(),
            prompt_len: text.prompt_ids.len(),
        };
        self.texts.iter().enumerate().map(so_far).collect()
    }

    /// Returns true if a sequence ended because the context was full.
    pub fn ended_at_context(&self, context: usize) -> bool {
        self.texts.iter().any(|text| {
            text.finish_reason == Some(FinishReason::Length)
                && text.prompt_ids.len() + text.new_ids.len() > context
        })
    }

    /// Ends the current line if text is being streamed, so that an error starts on a new line.
    pub fn break_line(&self) {
        if self.streams() {
            let _ = show("\n");
        }
    }

    /// Records a token. Returns true to continue, or false after Ctrl-C.
    ///
    /// # Errors
    /// If the token can't be shown.
    pub fn token(&mut self, token: Token) -> Result<bool> {
        self.first
            .get_or_insert_with(|| (self.began.elapsed().as_secs_f64(), kernels::bytes_read()));
        if self.streams() {
            show_text(&token.text)?;
        }
        let text = self.texts.get_mut(token.row).context("a token of a row that does not exist")?;
        if token.error.is_none() {
            text.new_ids.push(token.id);
            text.logprobs.push(token.logprob);
            if let Some(steps) = &mut text.top_logprobs {
                let top = |(id, logprob)| {
                    let token = self.engine.tokenizer().decode(&[id])?;
                    Ok(TopLogprob { id, token, logprob })
                };
                steps.push(token.top.into_iter().map(top).collect::<Result<_>>()?);
            }
        }
        text.error = token.error;
        text.text.push_str(&token.text);
        text.finish_reason = token.finish;
        Ok(!interrupt::asked())
    }

    /// Records a loop's other results, such as a beam search's hypotheses for its one prompt.
    pub fn found(&mut self, found: Found) {
        if self.beams {
            let asked = std::mem::take(&mut self.texts).into_iter().next().unwrap_or_default();
            for beam in found.hypotheses {
                let shown = match beam.finish {
                    FinishReason::Eos => &beam.new_ids[..beam.new_ids.len() - 1],
                    _ => &beam.new_ids[..],
                };
                let text =
                    candecode_engine::text_after(self.engine.tokenizer(), &asked.prompt_ids, shown);
                let mut text = text.unwrap_or_default();
                let stop = self.args.stop.iter().filter_map(|stop| text.find(stop)).min();
                text.truncate(stop.unwrap_or(text.len()));
                self.texts.push(Text {
                    new_ids: beam.new_ids,
                    text,
                    finish_reason: Some(beam.finish),
                    score: Some(beam.score),
                    ..asked.clone()
                });
            }
        }
        self.texts.iter_mut().for_each(|text| text.drafts = found.counts);
    }

    /// Shows the text so far, after which the run can't go on.
    ///
    /// # Errors
    /// If the output can't be shown.
    pub fn keep(&mut self) -> Result<()> {
        let has_begun = self.texts.iter().any(|text| !text.new_ids.is_empty());
        if self.streams() {
            self.break_line();
        } else if has_begun {
            self.show_all(Timings::default())?;
        }
        Ok(())
    }

    /// Shows all remaining output.
    ///
    /// # Errors
    /// If the output can't be shown.
    pub fn finish(mut self) -> Result<()> {
        let all_read = kernels::bytes_read();
        let (prefill_s, prefill_read) = self.first.unwrap_or((0.0, all_read));
        let decode_s = self.began.elapsed().as_secs_f64() - prefill_s;
        let new: usize = self.texts.iter().map(|text| text.new_ids.len()).sum();
        // Prefill produced the first token of each row.
        let later = new.saturating_sub(self.texts.len());
        let tokens_per_second = if decode_s > 0.0 { later as f64 / decode_s } else { 0.0 };
        let timings = Timings { load_s: self.load_s, prefill_s, decode_s, tokens_per_second };
        self.show_all(timings)?;
        if self.args.stats {
            self.stats(timings, new, all_read - prefill_read);
        }
        Ok(())
    }

    /// Shows all texts, or the end of the text that was shown as it was generated.
    fn show_all(&mut self, timings: Timings) -> Result<()> {
        let streamed = self.streams();
        for (row, text) in self.texts.iter_mut().enumerate() {
            text.timings = timings;
            let gap = if self.number + row > 0 { "\n" } else { "" };
            match self.args.format {
                Format::Json => show(&(serde_json::to_string(text)? + "\n"))?,
                Format::Text if streamed => show("\n")?,
                Format::Text => show_text(&format!("{gap}{}{}\n", text.shown_prompt, text.text))?,
            }
            if self.args.format == Format::Text {
                show(&likeliest(text, self.engine)?)?;
            }
        }
        Ok(())
    }

    /// Writes the lines of `--stats`. `read` is the number of bytes the kernels have read since the
    /// first token.
    fn stats(&self, timings: Timings, new: usize, read: u64) {
        let Timings { load_s, prefill_s, decode_s, tokens_per_second } = timings;
        let prompt: usize = self.texts.iter().map(|text| text.prompt_ids.len()).sum();
        let rate = if prefill_s > 0.0 { prompt as f64 / prefill_s } else { 0.0 };
        let later = new.saturating_sub(self.texts.len());
        let (ops, device) = (self.engine.ops(), &self.args.device);
        note!("load    {:>8.1} ms", load_s * 1e3);
        if self.beams {
            note!("search  {:>8.1} ms  prefill and decode; {new} tokens returned", decode_s * 1e3);
        } else {
            note!("prefill {:>8.1} ms  {prompt} tokens, {rate:.0} tokens/s", prefill_s * 1e3);
            note!(
                "decode  {:>8.1} ms  {later} tokens, {tokens_per_second:.0} tokens/s",
                decode_s * 1e3
            );
        }
        note!("device  {device}");
        note!("kernels {}", ops.describe(device == "cpu"));
        if let Some(peak) = memory_check::peak() {
            note!("process {} of memory at its peak", bytes(peak));
        }
        // Plain tensor code and day 17's kernel don't count bytes.
        let counted = ops.counts_bytes() && read > 0;
        let predicted = self.predicted.filter(|_| device == "cpu");
        if later > 0 && (counted || predicted.is_some()) {
            let machine = forecast::this_machine();
            if counted {
                note!("{}", memory(read as f64, later as f64, decode_s, machine.bandwidth));
            }
            if let Some(model) = predicted {
                let longest = |of: fn(&Text) -> usize| self.texts.iter().map(of).max().unwrap_or(0);
                let sizes = forecast::RunSizes {
                    rows: self.texts.len(),
                    prompt: longest(|text| text.prompt_ids.len()),
                    new: longest(|text| text.new_ids.len()),
                };
                note!("{}", forecast::words(model, sizes, &machine));
            }
        }
        let counts = self.texts.first().and_then(|text| text.drafts);
        if let Some(Counts { passes, drafted, accepted, written }) = counts {
            let rate = 100.0 * accepted as f64 / drafted.max(1) as f64;
            let yields = written as f64 / passes.max(1) as f64;
            let shape: Vec<String> = self.args.tree_shape().iter().map(usize::to_string).collect();
            let trees = if shape.is_empty() {
                String::new()
            } else {
                format!(" in trees of {}", shape.join("x"))
            };
            note!(
                "drafts  {accepted} of {drafted} accepted ({rate:.0} %){trees}, {yields:.2} tokens \
                 a pass of the model"
            );
        }
    }
}

/// Returns an empty line, then a line per token with the chosen token and its top alternatives.
/// Empty if they weren't requested.
fn likeliest(text: &Text, engine: &Engine) -> Result<String> {
    let Some(steps) = &text.top_logprobs else { return Ok(String::new()) };
    let mut lines = "\n".to_string();
    for (id, step) in text.new_ids.iter().zip(steps) {
        let chosen = format!("{:?}", engine.tokenizer().decode(&[*id])?);
        let words: Vec<String> =
            step.iter().map(|top| format!("{:?} {:.2}", top.token, top.logprob)).collect();
        lines += &format!("{chosen:<10} of {}\n", words.join(", "));
    }
    Ok(lines)
}

/// Reports the bytes read per token, and how close that comes to the memory bandwidth.
fn memory(read: f64, tokens: f64, seconds: f64, bandwidth: f64) -> String {
    let share = read / seconds / bandwidth;
    let memory = format!("the {:.1} GB/s that memory gives", bandwidth / 1e9);
    // Last-level caches are rarely larger.
    let cached = read / tokens <= 32e6;
    let beside = if share <= 1.0 {
        format!("{:.0} % of {memory}", 100.0 * share)
    } else if cached {
        format!("more than {memory}: the processor's caches hold some of it")
    } else {
        format!("more than {memory} in a short test, which other programs may slow down")
    };
    let (a_token, rate) = (bytes(read / tokens), read / seconds / 1e9);
    format!("memory  {a_token} read per token, {rate:.1} GB/s, {beside}")
}

/// Like [`show`], but for text from a prompt or a model. On a terminal, escapes control characters
/// other than newlines and tabs, because they can move the cursor or worse. Files and pipes receive
/// the text unchanged.
///
/// # Errors
/// Same as [`show`].
pub fn show_text(text: &str) -> Result<()> {
    if std::io::stdout().is_terminal() {
        show(&without_controls(text))
    } else {
        show(text)
    }
}

/// Returns the text with its control characters escaped, as in `\u{1b}`.
fn without_controls(text: &str) -> String {
    let mut visible = String::new();
    for c in text.chars() {
        if c.is_control() && !"\n\t".contains(c) {
            visible.extend(c.escape_default())
        } else {
            visible.push(c)
        }
    }
    visible
}

/// Writes to standard output and flushes.
///
/// # Errors
/// If it can't be written. [`OutputClosed`] if the program reading the output has exited
/// (`| head`).
pub fn show(text: &str) -> Result<()> {
    let mut out = std::io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(e) if e.kind() == std::io::ErrorKind::BrokenPipe => Err(OutputClosed.into()),
        other => other.context("could not write to standard output"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_small_is_said_to_be_cached() {
        let small = memory(3e6 * 10.0, 10.0, 1e-3, 10e9);
        assert_eq!(
            small,
            "memory  3.0 MB read per token, 30.0 GB/s, more than the 10.0 GB/s that memory \
             gives: the processor's caches hold some of it"
        );
        let large = memory(500e6 * 10.0, 10.0, 0.4, 10e9);
        assert!(large.ends_with("in a short test, which other programs may slow down"), "{large}");
        let plain = memory(500e6 * 10.0, 10.0, 1.0, 10e9);
        assert!(plain.ends_with(", 50 % of the 10.0 GB/s that memory gives"), "{plain}");
    }

    #[test]
    fn a_terminal_gets_no_control_characters() {
        let text = "\u{1b}]0;title\u{7}a\u{9b}2Jb\rc\td\ne é 👩‍👧";
        let shown = "\\u{1b}]0;title\\u{7}a\\u{9b}2Jb\\rc\td\ne é 👩‍👧";
        assert_eq!(without_controls(text), shown);
    }
}
