//! `--trace`: shows a loop at work, a line for each pass of its model.
//!
//! The days know nothing of it. A loop gets a [`Trace`] in place of its model, which looks at each
//! step before the model computes it: a step has its sequences and their positions and, over
//! pages, their blocks. How far each request has come follows from the tokens that the loop
//! returns. What only a scheduler knows is read from its public fields between two steps
//! ([`Watch`]). Without `--trace`, nothing of this exists.

use candecode::day07_greedy::Sequence;
use candecode::day15_scheduler::Scheduler;
use candecode::day21_pages::PagedCache;
use candecode::day22_shared_prefixes::{PrefixBatch, PrefixCache};
use candecode::day23_token_budget::TokenScheduler;
use candecode::kit::draft::Counts;
use candecode::kit::{Cache, CacheLoad, Model, ModelConfig, Pages, Request, SchedulerInterface};
use candecode::kit::{SchedulerLoad, Step, Token, View};
use candle_core::{Device, Result, Tensor};
use serde::Serialize;
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

/// One pass of a model, as a line of the trace. The names are vLLM's, where vLLM has one.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct TracedStep {
    /// Its number, from 1.
    pub step: usize,
    /// The number of tokens that it computes, without padding.
    pub total_num_scheduled_tokens: usize,
    /// The requests that it computes tokens of.
    pub requests: Vec<TracedRequest>,
    /// Drafted tokens that it verifies, and how many are accepted. None: the loop doesn't draft.
    #[serde(flatten)]
    pub drafts: Option<TracedDrafts>,
    /// The blocks after it. None: the cache has no pages.
    #[serde(flatten)]
    pub blocks: Option<Blocks>,
    /// The requests that lost their blocks to make room for it.
    pub preempted_req_ids: Vec<usize>,
}

/// A request's part of a pass.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct TracedRequest {
    /// The request's number, from 0. None if the loop has ended before it was known.
    pub req_id: Option<usize>,
    /// Whether these tokens are its prompt or the one that was chosen last.
    pub kind: Kind,
    /// The number of its tokens in the cache, before the pass.
    pub num_computed_tokens: usize,
    /// The number of tokens that it has, before the pass: its prompt and the generated ones.
    pub num_tokens: usize,
    /// The number of tokens that the pass computes, drafted ones included.
    pub num_scheduled_tokens: usize,
}

/// What a pass computes for a request. To a scheduler it's the same, only longer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// Its prompt, or a part of it. After a preemption, the tokens generated so far belong to it.
    Prompt,
    /// The token that was chosen last, and drafted ones.
    Decode,
}

/// The drafted tokens of a pass.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct TracedDrafts {
    /// Tokens drafted.
    pub num_draft_tokens: usize,
    /// Drafted tokens accepted.
    pub num_accepted_tokens: usize,
}

/// The blocks of a paged cache.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Blocks {
    /// Blocks that requests hold.
    pub num_used_blocks: usize,
    /// Blocks that a prompt can find, whether a request holds them or not.
    pub num_cached_blocks: usize,
    /// Blocks that no request holds.
    pub num_free_blocks: usize,
}

/// How the trace is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "clap", derive(clap::ValueEnum))]
pub enum TraceFormat {
    /// A table.
    #[cfg_attr(feature = "clap", value(name = "text"))]
    Table,
    /// A JSON object per line.
    Json,
}

/// A model whose passes are shown.
pub struct Trace<'a> {
    model: &'a dyn Model,
    format: TraceFormat,
    /// Whether the loop drafts.
    drafts: bool,
    /// Writes a line.
    write: Box<dyn Fn(&str) + 'a>,
    state: RefCell<State>,
}

/// What is known of a loop.
#[derive(Default)]
struct State {
    /// The number that the loop's request 0 has in the trace.
    first: usize,
    /// Requests that haven't ended, by the loop's own number.
    requests: BTreeMap<usize, Progress>,
    /// Passes that aren't written yet, because their tokens may be missing.
    passes: Vec<Pass>,
    /// The tokens chosen since the last line: their request, and whether they end it.
    tokens: Vec<(usize, bool)>,
    /// The drafts of the last pass.
    drafts: TracedDrafts,
    /// Counts of drafts up to the last pass.
    counts: Counts,
    /// The number of passes written.
    steps: usize,
}

/// How far a request has come.
#[derive(Default)]
struct Progress {
    prompt_len: usize,
    num_tokens: usize,
    /// Whether the scheduler runs it.
    running: bool,
    /// Its blocks in its last pass.
    blocks: Vec<u32>,
}

/// A pass of the model.
struct Pass {
    rows: Vec<Row>,
    /// The number of blocks in the pool.
    pool: Option<usize>,
}

/// New tokens of one sequence.
struct Row {
    /// The request's number, if the step names it.
    id: Option<usize>,
    /// The position of the first of them.
    start: usize,
    new: usize,
    blocks: Vec<u32>,
}

impl<'a> Trace<'a> {
    /// Wraps a model. `drafts`: whether the loop verifies drafts. `write` gets every line.
    pub fn new(
        model: &'a dyn Model,
        format: TraceFormat,
        drafts: bool,
        write: impl Fn(&str) + 'a,
    ) -> Self {
        Self { model, format, drafts, write: Box::new(write), state: RefCell::default() }
    }

    /// Announces the requests 0, 1, … of a loop, which begins. In the trace, they are counted from
    /// `first`.
    pub fn begin(&self, first: usize, prompts: &[Vec<u32>]) {
        let steps = self.state.borrow().steps;
        self.state.replace(State { first, steps, ..State::default() });
        prompts.iter().enumerate().for_each(|(id, prompt)| self.add(id, prompt.len()));
    }

    /// Announces a request.
    pub fn add(&self, id: usize, prompt_len: usize) {
        let progress = Progress { prompt_len, num_tokens: prompt_len, ..Progress::default() };
        self.state.borrow_mut().requests.insert(id, progress);
    }

    /// Records a token that the loop has returned.
    pub fn token(&self, token: &Token) {
        self.state.borrow_mut().tokens.push((token.row, token.finish.is_some()));
    }

    /// Records the counts of a loop that drafts, after a pass.
    pub fn counts(&self, counts: Counts) {
        let mut state = self.state.borrow_mut();
        state.drafts = TracedDrafts {
            num_draft_tokens: counts.drafted - state.counts.drafted,
            num_accepted_tokens: counts.accepted - state.counts.accepted,
        };
        state.counts = counts;
    }

    /// Writes the passes so far. Their tokens must have been recorded.
    pub fn flush(&self) {
        self.write_passes(Vec::new(), None);
    }

    /// Writes the passes of a scheduler's step, whose tokens have been recorded.
    pub fn after_step(&self, scheduler: &impl Watch) {
        let Watched { waiting, blocks, .. } = scheduler.watch();
        let mut preempted = waiting.clone();
        preempted.retain(|id| {
            let mut state = self.state.borrow_mut();
            let progress = state.requests.get_mut(id);
            progress.is_some_and(|progress| std::mem::take(&mut progress.running))
        });
        self.write_passes(preempted, blocks);
    }

    /// Writes the passes so far. Before the last of them, these requests were preempted, and after
    /// it the pool has these blocks, if that is known.
    fn write_passes(&self, preempted: Vec<usize>, blocks: Option<Blocks>) {
        let mut lines = self.state.borrow_mut().lines(self.drafts);
        if let Some(last) = lines.last_mut() {
            let first = self.state.borrow().first;
            last.preempted_req_ids = preempted.iter().map(|id| first + id).collect();
            last.blocks = blocks.or(last.blocks);
        }
        for line in &lines {
            match self.format {
                TraceFormat::Table => {
                    if line.step == 1 {
                        (self.write)(&line.header());
                    }
                    (self.write)(&line.to_string());
                }
                TraceFormat::Json => (self.write)(&serde_json::json!(line).to_string()),
            }
        }
    }

    /// Records a pass.
    fn pass(&self, step: &Step, pages: Option<(usize, Arc<Pages>)>) -> Result<()> {
        let mut rows = rows_of(step)?;
        if let Some((_, pages)) = &pages {
            for (row, sequence) in rows.iter_mut().zip(&pages.sequences) {
                row.blocks.clone_from(&sequence.block_table);
            }
        }
        let pass = Pass { rows, pool: pages.map(|(pool, _)| pool) };
        self.state.borrow_mut().passes.push(pass);
        Ok(())
    }

    /// Writes the passes before this one, if their tokens are known.
    fn flush_complete(&self) {
        if !self.state.borrow().tokens.is_empty() {
            self.flush();
        }
    }
}

/// Returns the new tokens of each sequence in a step.
fn rows_of(step: &Step) -> Result<Vec<Row>> {
    let row = |id, start, new| Row { id, start, new, blocks: Vec::new() };
    if let Some(chunks) = &step.chunks {
        let rows = chunks.iter().map(|chunk| row(Some(chunk.sequence), chunk.start, chunk.new));
        return Ok(rows.collect());
    }
    let positions: Vec<Vec<u32>> = step.positions.to_vec2()?;
    let alone = positions.len() == 1;
    let rows = positions.iter().map(|positions| {
        let at = |position: Option<&u32>| position.map_or(0, |position| *position as usize);
        let (first, end) = (at(positions.first()), at(positions.last()) + 1);
        // In a batch, a row may begin with padding. It ends with its last token.
        let new = if alone { positions.len() } else { positions.len().min(end) };
        row(None, if alone { first } else { end - new }, new)
    });
    Ok(rows.collect())
}

impl State {
    /// Takes the passes and their tokens, and returns their lines.
    fn lines(&mut self, drafts: bool) -> Vec<TracedStep> {
        let passes = std::mem::take(&mut self.passes);
        let last = passes.len();
        let mut lines = Vec::new();
        for (i, pass) in passes.into_iter().enumerate() {
            self.steps += 1;
            let mut line = TracedStep { step: self.steps, ..TracedStep::default() };
            for row in pass.rows {
                line.total_num_scheduled_tokens += row.new;
                line.requests.push(self.request(row, drafts));
            }
            if drafts {
                // Only the last pass of a block verifies drafts.
                let of_pass = if i + 1 == last { self.drafts } else { TracedDrafts::default() };
                line.drafts = Some(of_pass);
            }
            line.blocks = pass.pool.map(|pool| {
                let held: BTreeSet<u32> =
                    self.requests.values().flat_map(|request| request.blocks.clone()).collect();
                let used = held.len();
                Blocks { num_used_blocks: used, num_cached_blocks: 0, num_free_blocks: pool - used }
            });
            lines.push(line);
        }
        self.drafts = TracedDrafts::default();
        self.tokens.clear();
        lines
    }

    /// Returns a request's part of a pass, and counts the tokens that it led to.
    fn request(&mut self, row: Row, drafts: bool) -> TracedRequest {
        let end = row.start + row.new;
        let id = row.id.or_else(|| self.request_at(end));
        let progress = id.and_then(|id| self.requests.get(&id));
        let (prompt_len, num_tokens) =
            progress.map_or((end, end), |progress| (progress.prompt_len, progress.num_tokens));
        let decodes = row.start >= prompt_len && row.start + 1 == num_tokens;
        if let Some(id) = id {
            let led_to = if end < num_tokens { 0 } else { usize::MAX };
            self.count(id, row.blocks, if drafts { led_to } else { led_to.min(1) });
        }
        TracedRequest {
            req_id: id.map(|id| self.first + id),
            kind: if decodes { Kind::Decode } else { Kind::Prompt },
            num_computed_tokens: row.start,
            num_tokens,
            num_scheduled_tokens: row.new,
        }
    }

    /// Returns the request of a row that a step doesn't name: the only one, or else the first that
    /// has this many tokens and got another one.
    fn request_at(&self, num_tokens: usize) -> Option<usize> {
        if self.requests.len() == 1 {
            return self.requests.keys().next().copied();
        }
        let is_here = |id: &usize| {
            self.requests.get(id).is_some_and(|progress| progress.num_tokens == num_tokens)
        };
        self.tokens.iter().map(|(id, _)| *id).find(is_here)
    }

    /// Records that a request has run and holds these blocks, and takes at most `most` of its new
    /// tokens.
    fn count(&mut self, id: usize, blocks: Vec<u32>, most: usize) {
        let Some(progress) = self.requests.get_mut(&id) else { return };
        progress.running = true;
        progress.blocks = blocks;
        let mut left = most;
        let mut ended = false;
        self.tokens.retain(|(of, ends)| {
            let taken = *of == id && left > 0;
            left -= usize::from(taken);
            progress.num_tokens += usize::from(taken);
            ended |= taken && *ends;
            !taken
        });
        if ended {
            self.requests.remove(&id);
        }
    }
}

impl TracedStep {
    /// Returns the names of this line's columns.
    fn header(&self) -> String {
        let drafts = self.drafts.map_or("", |_| "  drafted  accepted");
        let blocks = self.blocks.map_or("", |_| "  used  cached  free");
        format!("step  tokens{drafts}{blocks}  requests: computed/tokens +scheduled")
    }
}

impl fmt::Display for TracedStep {
    /// Writes a line of the table, such as "decode 0 23/24, 2 57/58; prompt 1 0/40 +14" after the
    /// numbers.
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "{:4}  {:6}", self.step, self.total_num_scheduled_tokens)?;
        if let Some(drafts) = self.drafts {
            write!(f, "  {:7}  {:8}", drafts.num_draft_tokens, drafts.num_accepted_tokens)?;
        }
        if let Some(blocks) = self.blocks {
            let Blocks { num_used_blocks, num_cached_blocks, num_free_blocks } = blocks;
            write!(f, "  {num_used_blocks:4}  {num_cached_blocks:6}  {num_free_blocks:4}")?;
        }
        let of_one_kind = self.requests.chunk_by(|a, b| a.kind == b.kind);
        for (i, requests) in of_one_kind.enumerate() {
            let kind = if requests[0].kind == Kind::Prompt { "prompt" } else { "decode" };
            let requests: Vec<String> = requests.iter().map(ToString::to_string).collect();
            let before = if i == 0 { " " } else { ";" };
            write!(f, "{before} {kind} {}", requests.join(", "))?;
        }
        if !self.preempted_req_ids.is_empty() {
            let ids: Vec<String> = self.preempted_req_ids.iter().map(usize::to_string).collect();
            write!(f, "; preempted {}", ids.join(", "))?;
        }
        Ok(())
    }
}

impl fmt::Display for TracedRequest {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        let Self { num_computed_tokens, num_tokens, .. } = self;
        let id = self.req_id.map_or("?".to_string(), |id| id.to_string());
        write!(f, "{id} {num_computed_tokens}/{num_tokens}")?;
        match self.num_scheduled_tokens {
            1 => Ok(()),
            new => write!(f, " +{new}"),
        }
    }
}

impl Model for Trace<'_> {
    fn config(&self) -> &ModelConfig {
        self.model.config()
    }

    fn device(&self) -> &Device {
        self.model.device()
    }

    fn forward(&self, step: &Step, cache: &mut dyn Cache) -> Result<Tensor> {
        self.flush_complete();
        let mut seen = Seen { cache, pages: None };
        let logits = self.model.forward(step, &mut seen)?;
        self.pass(step, seen.pages)?;
        Ok(logits)
    }

    fn forward_with_hidden(
        &self,
        step: &Step,
        cache: &mut dyn Cache,
    ) -> Result<(Tensor, Option<Tensor>)> {
        self.flush_complete();
        let mut seen = Seen { cache, pages: None };
        let computed = self.model.forward_with_hidden(step, &mut seen)?;
        self.pass(step, seen.pages)?;
        Ok(computed)
    }
}

/// A loop's cache, which notes the blocks of the sequences in a pass.
struct Seen<'a> {
    cache: &'a mut dyn Cache,
    /// The number of blocks in the pool, and where the sequences are.
    pages: Option<(usize, Arc<Pages>)>,
}

impl Cache for Seen<'_> {
    fn begin(&mut self, step: &Step) -> Result<()> {
        self.cache.begin(step)
    }

    fn append(&mut self, layer: usize, k: &Tensor, v: &Tensor) -> Result<View> {
        let view = self.cache.append(layer, k, v)?;
        if let (None, Some(pages)) = (&self.pages, &view.pages) {
            self.pages = Some((view.k.dim(0)?, pages.clone()));
        }
        Ok(view)
    }

    fn len(&self) -> usize {
        self.cache.len()
    }

    fn is_empty(&self) -> bool {
        self.cache.is_empty()
    }

    fn truncate(&mut self, len: usize) -> Result<()> {
        self.cache.truncate(len)
    }

    fn num_evicted(&self) -> Option<usize> {
        self.cache.num_evicted()
    }
}

/// A scheduler that can be watched between two steps.
pub trait Watch {
    /// Returns what the scheduler's public fields show.
    fn watch(&self) -> Watched;
}

/// What can be seen of a scheduler between two steps.
pub struct Watched {
    waiting: Vec<usize>,
    running: Vec<usize>,
    blocks: Option<Blocks>,
}

impl Watched {
    fn new<'s, 'r: 's>(
        waiting: impl IntoIterator<Item = &'s Sequence<'r>>,
        running: impl IntoIterator<Item = &'s Sequence<'r>>,
        blocks: Option<Blocks>,
    ) -> Self {
        let id = |sequence: &Sequence| sequence.request.id;
        let waiting = waiting.into_iter().map(id).collect();
        Self { waiting, running: running.into_iter().map(id).collect(), blocks }
    }
}

/// Counts the blocks of a paged cache.
fn blocks(cache: &PagedCache, prefixes: Option<&PrefixCache>) -> Option<Blocks> {
    let num_free_blocks = cache.pool.num_free();
    Some(Blocks {
        num_used_blocks: cache.pool.ref_counts.len() - num_free_blocks,
        num_cached_blocks: prefixes.map_or(0, |prefixes| prefixes.cached.len()),
        num_free_blocks,
    })
}

impl Watch for Scheduler<'_> {
    fn watch(&self) -> Watched {
        Watched::new(&self.waiting, self.running.iter().map(|row| &row.sequence), None)
    }
}

impl Watch for PrefixBatch<'_> {
    fn watch(&self) -> Watched {
        Watched::new([], &self.running, blocks(&self.cache, Some(&self.prefixes)))
    }
}

impl Watch for TokenScheduler<'_> {
    fn watch(&self) -> Watched {
        let blocks = blocks(&self.cache, self.prefixes.as_ref());
        Watched::new(&self.waiting, &self.running, blocks)
    }
}

/// A scheduler whose steps are shown. Its model is the trace.
pub struct TracedScheduler<'a, S> {
    /// The scheduler.
    pub scheduler: S,
    /// Its model.
    pub trace: &'a Trace<'a>,
}

impl<'a, S: SchedulerInterface<'a> + Watch> SchedulerInterface<'a> for TracedScheduler<'a, S> {
    fn submit(&mut self, request: Request<'a>) -> Result<()> {
        let (id, prompt_len) = (request.id, request.prompt.len());
        self.scheduler.submit(request)?;
        self.trace.add(id, prompt_len);
        Ok(())
    }

    fn step(&mut self) -> Result<Vec<Token>> {
        let tokens = self.scheduler.step();
        match &tokens {
            Ok(tokens) => {
                tokens.iter().for_each(|token| self.trace.token(token));
                self.trace.after_step(&self.scheduler);
            }
            Err(_) => self.trace.begin(0, &[]), // all requests are lost
        }
        tokens
    }

    fn cancel(&mut self, id: usize) {
        self.scheduler.cancel(id);
        let Watched { waiting, running, .. } = self.scheduler.watch();
        if !waiting.contains(&id) && !running.contains(&id) {
            self.trace.state.borrow_mut().requests.remove(&id); // or else it gets one more token
        }
    }

    fn load(&self) -> SchedulerLoad {
        self.scheduler.load()
    }

    fn cache_load(&self) -> CacheLoad {
        self.scheduler.cache_load()
    }
}
