//! What the command shows: text as it is made, or one line of JSON a sequence; and `--stats`.

use crate::cli::flags::{Args, Format};
use crate::cli::interrupt;
use crate::cli::memory_check;
use crate::cli::statistics::{Report, Timings, TopLogprob};
use crate::engine::forecast::{self, Bound, Machine, Prediction, Transformer};
use crate::engine::{self, loops::Sink, Engine};
use crate::kernels;
use crate::kit::draft::Counts;
use crate::kit::error::OutputClosed;
use crate::kit::note::note;
use crate::kit::units::bytes;
use crate::kit::{FinishReason, Hypothesis, SharedOps, Token, Tokenizer};
use anyhow::{Context as _, Result};
use std::io::{IsTerminal as _, Write as _};
use std::time::Instant;

/// One text as it comes.
#[derive(Default)]
struct Text {
    prompt: Vec<u32>,
    /// What was asked, if the prompt is a chat template around it.
    question: Option<String>,
    new_ids: Vec<u32>,
    text: String,
    finish: Option<FinishReason>,
    error: Option<String>,
    logprobs: Vec<f32>,
    /// The likeliest tokens of each step, if they were asked for.
    top: Vec<Vec<(u32, f32)>>,
    score: Option<f32>,
}

/// Collects tokens, and shows them.
pub struct Output<'a> {
    args: &'a Args,
    tokenizer: &'a Tokenizer,
    ops: &'a SharedOps,
    texts: Vec<Text>,
    began: Instant,
    /// When the first token came, in seconds, and what the kernels had read by then.
    first: Option<(f64, u64)>,
    load_s: f64,
    counts: Option<Counts>,
    /// The model, if the run's passes are those that day 16 predicts.
    pub predicted: Option<&'a Transformer>,
}

impl<'a> Output<'a> {
    /// For these prompts, of which the first is number `number` of all.
    ///
    /// # Errors
    /// If the prompt cannot be shown.
    pub fn new(
        args: &'a Args,
        engine: &'a Engine,
        prompts: &[Vec<u32>],
        load_s: f64,
        number: usize,
        questions: Option<&[String]>,
    ) -> Result<Self> {
        let samples = questions.map_or(1, |all| (prompts.len() / all.len()).max(1));
        let question = |row: usize| Some(questions?.get(number + row / samples)?.clone());
        let text = |(row, prompt): (usize, &Vec<u32>)| Text {
            prompt: prompt.clone(),
            question: question(row),
            ..Text::default()
        };
        let texts = prompts.iter().enumerate().map(text).collect();
        let out = Self {
            args,
            tokenizer: engine.tokenizer(),
            ops: engine.ops(),
            texts,
            began: Instant::now(),
            first: None,
            load_s,
            counts: None,
            predicted: None,
        };
        if out.streams() {
            show_text(&format!("{}{}", if number > 0 { "\n" } else { "" }, out.prompt(0)?))?;
        }
        Ok(out)
    }

    /// One text is shown as it is made; several would be mixed up, and follow each other at the end.
    fn streams(&self) -> bool {
        self.args.format == Format::Text && self.texts.len() == 1 && self.args.num_beams == 1
    }

    /// The prompt as it's shown before the text: decoded, or the question that was typed and an empty line.
    fn prompt(&self, row: usize) -> Result<String> {
        let text = &self.texts[row];
        match &text.question {
            Some(question) => Ok(format!("{question}\n\n")),
            None => Ok(self.tokenizer.decode(&text.prompt)?),
        }
    }

    /// The tokens of every row so far, prompt included.
    pub fn sequences(&self) -> Vec<Vec<u32>> {
        self.texts.iter().map(|text| [&text.prompt[..], &text.new_ids].concat()).collect()
    }

    /// The number of rows.
    pub fn num_texts(&self) -> usize {
        self.texts.len()
    }

    /// The rows that failed, and what went wrong.
    pub fn failed(&self) -> Vec<(usize, &str)> {
        let texts = self.texts.iter().enumerate();
        texts.filter_map(|(row, text)| Some((row, text.error.as_deref()?))).collect()
    }

    /// How many tokens the prompt of a row has.
    pub fn prompt_len(&self, row: usize) -> usize {
        self.texts.get(row).map_or(0, |text| text.prompt.len())
    }

    /// How many sequences ended because the model's context did.
    pub fn ended_at_context(&self, context: usize) -> usize {
        let at_context = |text: &&Text| {
            text.finish == Some(FinishReason::Length)
                && text.prompt.len() + text.new_ids.len() > context
        };
        self.texts.iter().filter(at_context).count()
    }

    /// Ends the line of a text that is shown as it is made, so that an error begins a line of its own.
    pub fn break_line(&self) {
        if self.streams() {
            let _ = show("\n");
        }
    }

    /// Shows what is left to show.
    ///
    /// # Errors
    /// If it cannot be shown.
    pub fn finish(self) -> Result<()> {
        let all_read = kernels::bytes_read();
        let (prefill_s, prefill_read) = self.first.unwrap_or((0.0, all_read));
        let decode_s = self.began.elapsed().as_secs_f64() - prefill_s;
        let new: usize = self.texts.iter().map(|text| text.new_ids.len()).sum();
        let timings = Timings { load_s: self.load_s, prefill_s, decode_s, tokens_per_second: 0.0 };
        let timings = timings.with_rate(new, self.texts.len());
        if self.streams() {
            show(&format!("\n{}", self.likeliest(0)?))?;
        } else {
            for row in 0..self.texts.len() {
                let gap = if row > 0 { "\n" } else { "" };
                match self.args.format {
                    Format::Text => {
                        let text = &self.texts[row].text;
                        show_text(&format!("{gap}{}{text}\n", self.prompt(row)?))?;
                        show(&self.likeliest(row)?)?;
                    }
                    Format::Json => show(&self.json(row, timings)?)?,
                }
            }
        }
        if self.args.stats {
            let prompt: usize = self.texts.iter().map(|text| text.prompt.len()).sum();
            note!("{}", timings.lines(prompt, new, self.texts.len()));
            note!("device  {}", self.args.device);
            note!("kernels {}", self.ops.describe(self.args.device == "cpu"));
            if let Some(peak) = memory_check::peak() {
                note!("process {} of memory at its peak", bytes(peak));
            }
            let later = new.saturating_sub(self.texts.len()) as u64;
            // Plain tensor code and day 17's kernel count nothing.
            let counted = self.ops.counts_bytes() && all_read > prefill_read;
            let predicted = self.predicted.filter(|_| self.args.device == "cpu");
            if later > 0 && (counted || predicted.is_some()) {
                let machine = forecast::this_machine();
                if counted {
                    let read = (all_read - prefill_read) as f64;
                    note!("{}", memory(read, later as f64, decode_s, machine.bandwidth));
                }
                if let Some(model) = predicted {
                    note!("{}", self.forecast(model, &machine));
                }
            }
            if let Some(Counts { passes, drafted, accepted, written }) = self.counts {
                let rate = 100.0 * accepted as f64 / drafted.max(1) as f64;
                let yields = written as f64 / passes.max(1) as f64;
                note!("drafts  {accepted} of {drafted} accepted ({rate:.0} %), {yields:.2} tokens a pass of the model");
            }
        }
        Ok(())
    }

    /// What the run should have taken at least, and why: day 16's prediction.
    fn forecast(&self, model: &Transformer, machine: &Machine) -> String {
        let longest = |of: fn(&Text) -> usize| self.texts.iter().map(of).max().unwrap_or(0);
        let sizes = forecast::RunSizes {
            rows: self.texts.len(),
            prompt: longest(|text| text.prompt.len()),
            new: longest(|text| text.new_ids.len()),
        };
        let said = |prediction: &Prediction| {
            let bound = match prediction.bound {
                Bound::Memory => "memory",
                Bound::Compute => "operations",
            };
            format!("{:.1} ms, bound by {bound}", 1e3 * prediction.seconds)
        };
        match forecast::forecast(model, sizes, machine) {
            Err(words) => format!("roofline not predicted: {words}"),
            Ok(found) => {
                let decode = found.decode.as_ref().map(said).map(|said| format!("; a step {said}"));
                format!(
                    "roofline at least: prefill {}{}",
                    said(&found.prefill),
                    decode.unwrap_or_default()
                )
            }
        }
    }

    /// The likeliest tokens of each step of a row, with their text; None if they were not asked for.
    fn top_logprobs(&self, row: usize) -> Result<Option<Vec<Vec<TopLogprob>>>> {
        if self.args.top_logprobs.is_none() {
            return Ok(None);
        }
        let mut steps = Vec::new();
        for step in &self.texts[row].top {
            let mut tokens = Vec::new();
            for (id, logprob) in step {
                let token = self.tokenizer.decode(&[*id])?;
                tokens.push(TopLogprob { id: *id, token, logprob: *logprob });
            }
            steps.push(tokens);
        }
        Ok(Some(steps))
    }

    /// An empty line, then a line for each token of a row: what was chosen, and the likeliest ones.
    /// Nothing if they were not asked for.
    fn likeliest(&self, row: usize) -> Result<String> {
        let Some(steps) = self.top_logprobs(row)? else { return Ok(String::new()) };
        let mut lines = "\n".to_string();
        for (id, step) in self.texts[row].new_ids.iter().zip(&steps) {
            let chosen = format!("{:?}", self.tokenizer.decode(&[*id])?);
            let words: Vec<String> =
                step.iter().map(|top| format!("{:?} {:.2}", top.token, top.logprob)).collect();
            lines += &format!("{chosen:<10} of {}\n", words.join(", "));
        }
        Ok(lines)
    }

    fn json(&self, row: usize, timings: Timings) -> Result<String> {
        let text = &self.texts[row];
        let report = Report {
            prompt_ids: text.prompt.clone(),
            new_ids: text.new_ids.clone(),
            text: text.text.clone(),
            finish_reason: text.finish,
            error: text.error.clone(),
            logprobs: text.logprobs.clone(),
            top_logprobs: self.top_logprobs(row)?,
            score: text.score,
            drafts: self.counts,
            timings,
        };
        Ok(serde_json::to_string(&report)? + "\n")
    }
}

impl Sink for Output<'_> {
    /// Takes a token, and goes on until Ctrl-C.
    fn token(&mut self, token: Token) -> Result<bool> {
        self.first
            .get_or_insert_with(|| (self.began.elapsed().as_secs_f64(), kernels::bytes_read()));
        if self.streams() {
            show_text(&token.text)?;
        }
        let text = self.texts.get_mut(token.row).context("a token of a row that does not exist")?;
        if token.error.is_none() {
            text.new_ids.push(token.id);
            text.logprobs.push(token.logprob);
            text.top.push(token.top);
        }
        text.error = token.error;
        text.text.push_str(&token.text);
        text.finish = token.finish;
        Ok(!interrupt::asked())
    }

    fn counts(&mut self, counts: Counts) {
        self.counts = Some(counts);
    }

    /// Takes the result of a beam search for the one prompt.
    fn hypotheses(&mut self, hypotheses: Vec<Hypothesis>) {
        let first = std::mem::take(&mut self.texts).into_iter().next().unwrap_or_default();
        let Text { prompt, question, .. } = first;
        for found in hypotheses {
            let shown = match found.finish {
                FinishReason::Eos => &found.new_ids[..found.new_ids.len() - 1],
                _ => &found.new_ids[..],
            };
            let text = engine::text_after(self.tokenizer, &prompt, shown);
            let mut text = text.unwrap_or_default();
            let stop = self.args.stop.iter().filter_map(|stop| text.find(stop)).min(); // none is empty
            text.truncate(stop.unwrap_or(text.len()));
            self.texts.push(Text {
                prompt: prompt.clone(),
                question: question.clone(),
                new_ids: found.new_ids,
                text,
                finish: Some(found.finish),
                score: Some(found.score),
                ..Text::default()
            });
        }
    }
}

/// Bytes that each token cost, and how near their reading comes to what memory allows.
fn memory(read: f64, tokens: f64, seconds: f64, bandwidth: f64) -> String {
    let share = read / seconds / bandwidth;
    let memory = format!("the {:.1} GB/s that memory gives", bandwidth / 1e9);
    // A last-level cache is rarely larger.
    let cached = read / tokens <= 32e6;
    let beside = match share > 1.0 {
        true if cached => format!("more than {memory}: the processor's caches hold some of it"),
        true => format!("more than {memory} in a short test, which other programs may slow down"),
        false => format!("{:.0} % of {memory}", 100.0 * share),
    };
    let (a_token, rate) = (bytes(read / tokens), read / seconds / 1e9);
    format!("memory  {a_token} read a token, {rate:.1} GB/s, {beside}")
}

/// [`show`], for the text of a prompt or a model: a terminal gets no control characters but line ends
/// and tabs, which would move its cursor, or do more. A file or a pipe gets the text as it is.
///
/// # Errors
/// As [`show`].
pub fn show_text(text: &str) -> Result<()> {
    match std::io::stdout().is_terminal() {
        true => show(&without_controls(text)),
        false => show(text),
    }
}

/// A text whose control characters are escaped, as `\u{1b}`.
fn without_controls(text: &str) -> String {
    let mut visible = String::new();
    for c in text.chars() {
        match c.is_control() && !"\n\t".contains(c) {
            true => visible.extend(c.escape_default()),
            false => visible.push(c),
        }
    }
    visible
}

/// Writes and flushes.
///
/// # Errors
/// If it cannot be written; as [`OutputClosed`] if the reader has gone away (`| head`).
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
            "memory  3.0 MB read a token, 30.0 GB/s, more than the 10.0 GB/s that memory gives: the \
             processor's caches hold some of it"
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
