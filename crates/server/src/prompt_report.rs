//! What the server finds out about a prompt while a scheduler computes it: how many of its tokens
//! were cached, and the log-probabilities of its tokens.
//!
//! The days know nothing of it. A scheduler gets a [`Reporter`] in place of its model, which looks
//! at each step, and asks the model for the logits of all positions if a report needs them.

use crate::util::{lock, random};
use candecode::day07_greedy::log_softmax;
use candecode::kit::error::plain;
use candecode::kit::{top_logprobs, Cache, CacheLoad, Chunk, Logits, Model, ModelConfig, Request};
use candecode::kit::{SchedulerInterface, SchedulerLoad, Step, Token};
use candle_core::{Device, Result, Tensor};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};

/// The report of one choice, which the model's thread fills in and the answer reads.
#[derive(Debug)]
pub struct PromptReport {
    /// The prompt, which the choices of a request share.
    pub prompt: Arc<[u32]>,
    /// Number of top alternatives for each token. None: no log-probabilities.
    pub top: Option<usize>,
    found: Mutex<Found>,
}

/// What is known about a prompt. Complete once its choice has a token.
#[derive(Debug, Default)]
pub struct Found {
    /// Number of tokens that were cached.
    pub cached_tokens: usize,
    /// The score of each token, or nothing without log-probabilities.
    pub scores: Vec<Score>,
    /// The reason some log-probabilities couldn't be computed.
    pub error: Option<String>,
}

/// A token of a prompt, as the model saw it coming.
#[derive(Debug, Default, Clone, PartialEq)]
pub struct Score {
    /// Its log-probability. None for the first token, which nothing predicts.
    pub logprob: Option<f32>,
    /// Its rank among all tokens, from 1.
    pub rank: usize,
    /// The most likely tokens with their log-probabilities, best first.
    pub top: Vec<(u32, f32)>,
}

impl PromptReport {
    /// Creates an empty report.
    pub fn new(prompt: Arc<[u32]>, top: Option<usize>) -> Self {
        let scores = top.map(|_| vec![Score::default(); prompt.len()]).unwrap_or_default();
        Self { prompt, top, found: Mutex::new(Found { scores, ..Found::default() }) }
    }

    /// Returns what is known so far.
    pub fn found(&self) -> MutexGuard<'_, Found> {
        lock(&self.found)
    }
}

/// A request whose prompt is being computed.
struct Row {
    report: Arc<PromptReport>,
    #[allow(clippy::type_complexity)] // as in the kit's request
    log_softmax: Option<fn(&[f32]) -> Option<Vec<f32>>>,
    /// Whether a step has computed tokens of it.
    begun: bool,
}

impl Row {
    /// Enters the score of the token after `position` into the report, from the logits there.
    fn score(&self, position: usize, raw: &[f32]) {
        let (report, at) = (&self.report, position + 1);
        let logprobs = match self.log_softmax.and_then(|kernel| kernel(raw)) {
            Some(logprobs) => Ok(logprobs),
            None => log_softmax(raw), // also has the error message for an invalid row
        };
        let mut found = report.found();
        match logprobs {
            Ok(all) => {
                let logprob = all[report.prompt[at] as usize];
                let rank = 1 + all.iter().filter(|other| **other > logprob).count();
                let top = top_logprobs(&all, report.top.unwrap_or_default());
                found.scores[at] = Score { logprob: Some(logprob), rank, top };
            }
            Err(error) => found.error = Some(plain(&error)),
        }
    }
}

/// A position in a step whose logits predict a token of a prompt.
struct Wanted {
    row: usize,
    position: usize,
    column: usize,
}

/// A model that fills in the reports of the prompts it computes.
pub struct Reporter<'a> {
    model: &'a dyn Model,
    rows: RefCell<BTreeMap<usize, Row>>,
}

impl<'a> Reporter<'a> {
    /// Wraps a model.
    pub fn new(model: &'a dyn Model) -> Self {
        Self { model, rows: RefCell::default() }
    }

    /// Returns the positions in a step that predict tokens of prompts, and records which tokens
    /// were cached.
    fn wanted(&self, step: &Step) -> Result<Vec<Wanted>> {
        let mut rows = self.rows.borrow_mut();
        let mut wanted = Vec::new();
        let mut first = 0;
        for Chunk { sequence, start, new } in chunks(step, &rows)? {
            if let Some(row) = rows.get_mut(&sequence) {
                if !row.begun {
                    row.begun = true;
                    row.report.found().cached_tokens = start;
                }
                if row.report.top.is_some() {
                    let end = (start + new).min(row.report.prompt.len() - 1);
                    wanted.extend((start..end).map(|position| {
                        let column = first + position - start;
                        Wanted { row: sequence, position, column }
                    }));
                }
            }
            first += new;
        }
        Ok(wanted)
    }
}

/// Returns the new tokens of each sequence in a step. A step of day 15's scheduler computes a whole
/// prompt or one token of each row; it doesn't say whose, so the prompt is recognized by its
/// tokens.
fn chunks(step: &Step, rows: &BTreeMap<usize, Row>) -> Result<Vec<Chunk>> {
    if let Some(chunks) = &step.chunks {
        return Ok(chunks.clone());
    }
    let waits = |row: &Row| !row.begun && row.report.top.is_some();
    if step.ids.dim(0)? != 1 || step.mask.is_some() || !rows.values().any(waits) {
        return Ok(Vec::new());
    }
    let ids: Vec<u32> = step.ids.flatten_all()?.to_vec1()?;
    let start: u32 = step.positions.flatten_all()?.get(0)?.to_scalar()?;
    let begins = |row: &Row| start == 0 && waits(row) && *row.report.prompt == ids[..];
    let begun = rows.iter().filter(|(_, row)| begins(row)).take(1);
    Ok(begun.map(|(id, _)| Chunk { sequence: *id, start: 0, new: ids.len() }).collect())
}

impl Model for Reporter<'_> {
    fn config(&self) -> &ModelConfig {
        self.model.config()
    }

    fn device(&self) -> &Device {
        self.model.device()
    }

    fn forward(&self, step: &Step, cache: &mut dyn Cache) -> Result<Tensor> {
        let wanted = self.wanted(step)?;
        if wanted.is_empty() {
            return self.model.forward(step, cache);
        }
        let all = step.clone().with_logits(Logits::All);
        let logits = self.model.forward(&all, cache)?; // (1, T, V)
        let rows = self.rows.borrow();
        for Wanted { row, position, column } in wanted {
            let raw: Vec<f32> = logits.get(0)?.get(column)?.to_vec1()?;
            rows[&row].score(position, &raw);
        }
        step.chosen(&logits)
    }
}

/// A scheduler whose model is a [`Reporter`].
pub struct ReportedScheduler<'a, S> {
    /// The scheduler.
    pub scheduler: S,
    /// Its model.
    pub reporter: &'a Reporter<'a>,
}

impl<'a, S: SchedulerInterface<'a>> SchedulerInterface<'a> for ReportedScheduler<'a, S> {
    fn submit(&mut self, mut request: Request<'a>) -> Result<()> {
        let Some(report) = request.report.get::<PromptReport>() else {
            return self.scheduler.submit(request);
        };
        if report.top.is_some() {
            // Cached positions have no logits, so all of them are computed, as in vLLM: nobody else
            // has this salt.
            request.cache_salt = format!("{}\0{:016x}", request.cache_salt, random());
        }
        let (id, log_softmax) = (request.id, request.log_softmax);
        self.scheduler.submit(request)?;
        let row = Row { report, log_softmax, begun: false };
        self.reporter.rows.borrow_mut().insert(id, row);
        Ok(())
    }

    fn step(&mut self) -> Result<Vec<Token>> {
        let stepped = self.scheduler.step();
        let mut rows = self.reporter.rows.borrow_mut();
        match &stepped {
            // With its first token, a prompt is computed.
            Ok(tokens) => tokens.iter().for_each(|token| drop(rows.remove(&token.row))),
            Err(_) => rows.clear(), // all requests are lost
        }
        stepped
    }

    fn cancel(&mut self, id: usize) {
        self.scheduler.cancel(id);
        self.reporter.rows.borrow_mut().remove(&id);
    }

    fn load(&self) -> SchedulerLoad {
        self.scheduler.load()
    }

    fn cache_load(&self) -> CacheLoad {
        self.scheduler.cache_load()
    }
}
