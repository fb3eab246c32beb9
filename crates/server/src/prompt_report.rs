//! What the server finds out about a prompt while a scheduler computes it: how many of its tokens
//! were cached, and the log-probabilities of its tokens.
//!
//! The days know nothing of it. A scheduler gets a [`Reporter`] in place of its model, which looks
//! at each step, and asks the model for the logits of more positions if a report needs them.

use crate::util::{lock, random};
use candecode::day07_greedy::log_softmax;
use candecode::kit::error::plain;
use candecode::kit::{top_logprobs, Cache, CacheLoad, Logits, Model, ModelConfig, Request};
use candecode::kit::{SchedulerInterface, SchedulerLoad, Step, Token};
use candle_core::{bail, Device, Result, Tensor};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};

/// The report of one choice, which the model's thread fills in and the answer reads.
#[derive(Debug, Default)]
pub struct PromptReport {
    /// The first token of the prompt, which nothing predicts.
    pub first: u32,
    /// Number of top alternatives for each other token. None: no log-probabilities.
    pub top: Option<usize>,
    found: Mutex<Found>,
}

/// What is known about a prompt. Complete once its choice has a token.
#[derive(Debug, Default)]
pub struct Found {
    /// Number of tokens that were cached.
    pub cached_tokens: usize,
    /// The scores of all tokens but the first, or nothing without log-probabilities.
    pub scores: Vec<Score>,
    /// The reason some log-probabilities couldn't be computed.
    pub error: Option<String>,
}

/// A token of a prompt, as the model saw it coming.
#[derive(Debug, Default, Clone, PartialEq)]
pub struct Score {
    /// The token.
    pub id: u32,
    /// Its log-probability.
    pub logprob: f32,
    /// Its rank among all tokens, from 1.
    pub rank: usize,
    /// The most likely tokens with their log-probabilities, best first.
    pub top: Vec<(u32, f32)>,
}

impl PromptReport {
    /// Creates an empty report.
    pub fn new(prompt: &[u32], top: Option<usize>) -> Self {
        let first = prompt.first().copied().unwrap_or_default();
        Self { first, top, found: Mutex::default() }
    }

    /// Returns what is known so far.
    pub fn found(&self) -> MutexGuard<'_, Found> {
        lock(&self.found)
    }
}

/// A request whose prompt is being computed.
struct Row {
    prompt: Vec<u32>,
    report: Arc<PromptReport>,
    #[allow(clippy::type_complexity)] // as in the kit's request
    log_softmax: Option<fn(&[f32]) -> Option<Vec<f32>>>,
    /// Whether a step has computed tokens of it.
    begun: bool,
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
        let mut column = 0;
        for (id, start, new) in self.sequences(step, &rows)? {
            if let Some(row) = rows.get_mut(&id) {
                if !row.begun {
                    row.begun = true;
                    row.report.found().cached_tokens = start.min(row.prompt.len());
                }
                let end = (start + new).min(row.prompt.len().saturating_sub(1));
                if row.report.top.is_some() {
                    wanted.extend((start..end).map(|position| Wanted {
                        row: id,
                        position,
                        column: column + position - start,
                    }));
                }
            }
            column += new;
        }
        Ok(wanted)
    }

    /// Returns the request, the first position and the number of the new tokens of each sequence in
    /// a step. A step without chunks, of day 15's scheduler, computes a whole prompt or one token
    /// of each row; it doesn't say whose, so the prompt is recognized by its tokens.
    fn sequences(
        &self,
        step: &Step,
        rows: &BTreeMap<usize, Row>,
    ) -> Result<Vec<(usize, usize, usize)>> {
        if let Some(chunks) = &step.chunks {
            let of = chunks.iter().map(|chunk| (chunk.sequence, chunk.start, chunk.new));
            return Ok(of.collect());
        }
        let waits = |row: &Row| !row.begun && row.report.top.is_some();
        if step.ids.dim(0)? != 1 || step.mask.is_some() || !rows.values().any(waits) {
            return Ok(Vec::new());
        }
        let ids: Vec<u32> = step.ids.flatten_all()?.to_vec1()?;
        let start: u32 = step.positions.flatten_all()?.get(0)?.to_scalar()?;
        let row = rows.iter().find(|(_, row)| start == 0 && waits(row) && row.prompt == ids);
        Ok(row.map(|(id, _)| (*id, 0, ids.len())).into_iter().collect())
    }

    /// Enters the scores of these positions, `(n, V)`, into the reports.
    fn score(&self, wanted: &[Wanted], logits: &Tensor) -> Result<()> {
        let rows = self.rows.borrow();
        for (i, Wanted { row, position, .. }) in wanted.iter().enumerate() {
            let Some(row) = rows.get(row) else { continue };
            let raw: Vec<f32> = logits.get(i)?.to_vec1()?;
            let logprobs = match row.log_softmax.and_then(|kernel| kernel(&raw)) {
                Some(logprobs) => Ok(logprobs),
                None => log_softmax(&raw),
            };
            let id = row.prompt[position + 1];
            let mut found = row.report.found();
            match logprobs.map(|all| (all.get(id as usize).copied(), all)) {
                Ok((Some(logprob), all)) => {
                    found.scores.resize(row.prompt.len() - 1, Score::default());
                    let rank = 1 + all.iter().filter(|other| **other > logprob).count();
                    let top = top_logprobs(&all, row.report.top.unwrap_or_default());
                    found.scores[*position] = Score { id, logprob, rank, top };
                }
                Ok((None, all)) => bail!("token id {id} is not in a row of {} logits", all.len()),
                Err(error) => found.error = Some(plain(&error)),
            }
        }
        Ok(())
    }
}

/// Returns the columns of a step that its logits are for.
fn columns(step: &Step) -> Result<Vec<u32>> {
    let width = step.ids.dim(1)? as u32;
    Ok(match &step.logits {
        Logits::All => (0..width).collect(),
        Logits::Last(n) => (width.saturating_sub(*n as u32)..width).collect(),
        Logits::At(columns) | Logits::Columns(columns) => columns.clone(),
    })
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
        let mut all = columns(step)?;
        let own = all.len();
        all.extend(wanted.iter().map(|wanted| wanted.column as u32));
        let more = step.clone().with_logits(Logits::Columns(all));
        let logits = self.model.forward(&more, cache)?; // (1, own + wanted, V)
        self.score(&wanted, &logits.get(0)?.narrow(0, own, wanted.len())?)?;
        logits.narrow(1, 0, own)
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
        let row = Row { prompt: request.prompt.clone(), report, log_softmax, begun: false };
        self.scheduler.submit(request)?;
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
