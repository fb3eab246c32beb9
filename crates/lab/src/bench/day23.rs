//! Day 23: the longest gap between two tokens of a running sequence while a long prompt is served,
//! and the cost of a pool with too few blocks.

use crate::shared::{mix, model, request, scheduler, tokenizer};
use crate::tally::Tally;
use crate::times::Times;
use anyhow::{ensure, Result};
use candecode::day21_pages::PagedCache;
use candecode::day22_shared_prefixes::PrefixCache;
use candecode::day23_token_budget::{Limits, TokenScheduler};
use candecode::kit::{Model, SchedulerInterface, Tokenizer};
use std::collections::BTreeMap;
use std::path::Path;
use std::time::Instant;

/// Number of requests that are decoding when the long prompt arrives.
const RUNNING: usize = 4;
/// Tokens in the long prompt.
const LONG: usize = 1000;
/// Token budgets to compare.
const BUDGETS: [usize; 3] = [512, 128, 32];

/// The longest gap between two tokens of a running sequence, and the time from the arrival of the
/// long prompt to its first token, in seconds.
type Waits = [f64; 2];

/// Runs a few short requests, submits the long prompt once they have eight tokens each, and
/// measures until its first token arrives.
fn watch<'a>(model: &dyn Model, scheduler: &mut dyn SchedulerInterface<'a>) -> Result<Waits> {
    let submit = |scheduler: &mut dyn SchedulerInterface<'a>, id: usize, len: usize| {
        let prompt: Vec<u32> = (0..len).map(|i| 300 + (id + i * 7) as u32 % 1000).collect();
        let mut request = request(model, &prompt, 500);
        request.id = id;
        scheduler.submit(request)
    };
    for id in 0..RUNNING {
        submit(scheduler, id, 8)?;
    }
    let mut last: BTreeMap<usize, Instant> = BTreeMap::new();
    let (mut made, mut gap) = (0, 0f64);
    let mut arrived: Option<Instant> = None;
    loop {
        let tokens = scheduler.step()?;
        let now = Instant::now();
        for token in tokens {
            if token.row == RUNNING {
                let first = arrived.map_or(0.0, |arrived| (now - arrived).as_secs_f64());
                return Ok([gap, first]);
            }
            let before = last.insert(token.row, now);
            if let (Some(before), Some(_)) = (before, arrived) {
                gap = gap.max((now - before).as_secs_f64());
            }
            made += 1;
        }
        if arrived.is_none() && made >= 8 * RUNNING {
            submit(scheduler, RUNNING, LONG)?;
            arrived = Some(now);
        }
    }
}

/// Measures the waits with day 15's scheduler.
///
/// The prefill returns the prompt's first token, but the running sequences get their next tokens
/// only in the pass after it, which therefore counts toward the gap.
fn whole(model: &dyn Model, tokenizer: &Tokenizer) -> Result<Waits> {
    let mut scheduler = scheduler(model, tokenizer, usize::MAX);
    let [gap, first] = watch(model, &mut scheduler)?;
    let begun = Instant::now();
    SchedulerInterface::step(&mut scheduler)?;
    Ok([gap.max(first + begun.elapsed().as_secs_f64()), first])
}

/// Measures the waits with day 23's scheduler.
fn pieces(model: &dyn Model, tokenizer: &Tokenizer, budget: usize) -> Result<Waits> {
    let cache = PagedCache::new(model.config().num_hidden_layers, 128, 16)?;
    let limits = Limits { max_num_batched_tokens: budget, max_num_seqs: RUNNING + 1 };
    watch(model, &mut TokenScheduler::new(model, tokenizer, cache, None, limits)?)
}

/// The results and the cost of serving the mix from a pool.
struct Served {
    /// Maximum number of blocks in use.
    most: usize,
    steps: usize,
    preemptions: usize,
    /// Number of tokens computed, including those computed again.
    computed: usize,
    /// The tokens that each request generated.
    texts: BTreeMap<usize, Vec<u32>>,
}

/// Serves day 15's mix from a pool of blocks with 16 positions each.
fn serve(
    model: &dyn Model,
    tokenizer: &Tokenizer,
    blocks: usize,
    prefixes: bool,
) -> Result<Served> {
    let cache = PagedCache::new(model.config().num_hidden_layers, blocks, 16)?;
    let limits = Limits { max_num_batched_tokens: 64, max_num_seqs: 24 };
    let prefixes = prefixes.then(PrefixCache::new);
    let mut scheduler = TokenScheduler::new(model, tokenizer, cache, prefixes, limits)?;
    for request in mix(model) {
        scheduler.submit(request)?;
    }
    let mut served =
        Served { most: 0, steps: 0, preemptions: 0, computed: 0, texts: BTreeMap::new() };
    while !scheduler.is_idle() {
        let plan = scheduler.schedule()?;
        served.most = served.most.max(blocks - scheduler.cache.pool.num_free());
        served.steps += 1;
        served.computed += plan.iter().map(|chunk| chunk.new).sum::<usize>();
        let logits = scheduler.run(&plan)?;
        for token in scheduler.postprocess(&plan, &logits) {
            served.texts.entry(token.row).or_default().push(token.id);
        }
    }
    served.preemptions = scheduler.num_preemptions;
    Ok(served)
}

/// The names of the measurements, for the whole prompt and for each budget.
fn ways() -> Vec<(String, Option<usize>)> {
    let whole = ("day 15, the whole prompt".to_string(), None);
    let pieces = BUDGETS.map(|n| (format!("day 23, {n} tokens per step"), Some(n)));
    std::iter::once(whole).chain(pieces).collect()
}

/// Returns the positions in the longest step while a long prompt is served next to short ones,
/// with at most this many tokens per step.
fn longest_step(model: &dyn Model, tokenizer: &Tokenizer, budget: usize) -> Result<usize> {
    let cache = PagedCache::new(model.config().num_hidden_layers, 40, 16)?;
    let limits = Limits { max_num_batched_tokens: budget, max_num_seqs: RUNNING + 1 };
    let mut scheduler = TokenScheduler::new(model, tokenizer, cache, None, limits)?;
    for id in 0..=RUNNING {
        let len = if id < RUNNING { 8 } else { 400 };
        let prompt: Vec<u32> = (0..len).map(|i| 300 + (id + i * 7) as u32 % 1000).collect();
        let mut request = request(model, &prompt, 16);
        request.id = id;
        scheduler.submit(request)?;
    }
    let mut longest = 0;
    while !scheduler.is_idle() {
        let plan = scheduler.schedule()?;
        longest = longest.max(plan.iter().map(|chunk| chunk.new).sum());
        let logits = scheduler.run(&plan)?;
        scheduler.postprocess(&plan, &logits);
    }
    Ok(longest)
}

pub fn count(tally: &mut Tally) -> Result<()> {
    let (model, tokenizer) = (model("story-3m")?, tokenizer()?);
    let whole = longest_step(&*model, &tokenizer, 512)?;
    for budget in [128, 32] {
        let what = format!("positions in the longest step, budget of {budget}");
        tally.add(&what, whole, longest_step(&*model, &tokenizer, budget)?);
    }
    let full = serve(&*model, &tokenizer, 1000, false)?;
    let half = serve(&*model, &tokenizer, full.most / 2, false)?;
    ensure!(half.texts == full.texts, "with half of the blocks, a text has changed");
    tally.add("blocks for 24 requests; before: as many as needed", full.most, full.most / 2);
    tally.add("positions computed for them", full.computed, half.computed);
    Ok(())
}

pub fn measure(times: &mut Times) -> Result<()> {
    let (model, tokenizer) = (model("random-135m")?, tokenizer()?);
    for (way, budget) in ways() {
        times.several([&format!("{way}: gap"), &format!("{way}: first")], || match budget {
            None => whole(&*model, &tokenizer),
            Some(budget) => pieces(&*model, &tokenizer, budget),
        })?;
    }
    Ok(())
}

pub fn report(times: &Times, _: &Path) -> Result<()> {
    println!(
        "{RUNNING} requests decode, a {LONG}-token prompt arrives  longest gap   its first token"
    );
    for (way, _) in ways() {
        let (gap, first) = (times.of(&format!("{way}: gap"))?, times.of(&format!("{way}: first"))?);
        println!("{way:<47}{gap:>8.2} s{first:>16.2} s");
    }
    println!();
    few_blocks()
}

/// Prints the cost of serving day 15's requests with fewer and fewer blocks.
fn few_blocks() -> Result<()> {
    let (model, tokenizer) = (model("story-3m")?, tokenizer()?);
    let full = serve(&*model, &tokenizer, 1000, false)?;
    println!("24 requests        blocks  steps  preemptions  computed  computed again");
    let rows = [
        ("as many as needed", full.most, false),
        ("half", full.most / 2, false),
        ("half, day 22 too", full.most / 2, true),
        ("a quarter", full.most / 4, false),
    ];
    for (name, blocks, prefixes) in rows {
        let served = serve(&*model, &tokenizer, blocks, prefixes)?;
        ensure!(served.texts == full.texts, "{name}: a text has changed");
        println!(
            "{name:<18}{blocks:>7}{:>7}{:>13}{:>10}{:>16}",
            served.steps,
            served.preemptions,
            served.computed,
            served.computed.saturating_sub(full.computed),
        );
    }
    println!("All texts are the same.");
    Ok(())
}
