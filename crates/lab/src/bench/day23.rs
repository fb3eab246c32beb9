//! Day 23: the longest gap between two tokens of a running sequence while a long prompt is served,
//! and the cost of a pool with too few blocks.

use crate::shared::{model, request, tokenizer};
use crate::times::Times;
use anyhow::{ensure, Result};
use candecode::day12_batching::BatchCache;
use candecode::day15_scheduler::Scheduler;
use candecode::day21_pages::PagedCache;
use candecode::day22_shared_prefixes::PrefixCache;
use candecode::day23_token_budget::{Limits, TokenScheduler};
use candecode::kit::{Batch, Model, SchedulerInterface, Tokenizer};
use candecode_engine::score::trace as mix;
use std::collections::BTreeMap;
use std::time::Instant;

/// Number of texts that are running when the long prompt arrives.
const RUNNING: usize = 4;
/// Tokens in the long prompt.
const LONG: usize = 1000;
/// Token budgets to compare.
const BUDGETS: [usize; 3] = [512, 128, 32];
/// Number of runs for each measurement. The best one counts.
const RUNS: usize = 3;

/// The waiting times, in seconds.
struct Waits {
    /// The longest gap between two tokens of a running sequence.
    gap: f64,
    /// The time from the arrival of the long prompt to its first token.
    first: f64,
}

/// Runs a few short texts, submits the long prompt once they have eight tokens each, and measures
/// until its first token arrives.
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
                return Ok(Waits { gap, first });
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
    let layers = model.config().num_hidden_layers;
    let new_cache = Box::new(move || Box::new(BatchCache::new(layers, None)) as Box<dyn Batch>);
    let mut scheduler = Scheduler::new(model, tokenizer, new_cache, usize::MAX);
    let mut waits = watch(model, &mut scheduler)?;
    let begun = Instant::now();
    SchedulerInterface::step(&mut scheduler)?;
    waits.gap = waits.gap.max(waits.first + begun.elapsed().as_secs_f64());
    Ok(waits)
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
    /// The tokens of each text.
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
    for (id, (prompt, wanted)) in mix().iter().enumerate() {
        let mut request = request(model, prompt, *wanted);
        request.id = id;
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

/// Returns the shortest waits of several runs.
fn best(mut run: impl FnMut() -> Result<Waits>) -> Result<Waits> {
    let mut best = run()?;
    for _ in 1..RUNS {
        let waits = run()?;
        best.gap = best.gap.min(waits.gap);
        best.first = best.first.min(waits.first);
    }
    Ok(best)
}

/// Does nothing. [`report`] measures everything, without rounds.
#[expect(clippy::unnecessary_wraps, reason = "the table of days needs a result")]
pub fn measure(_times: &mut Times) -> Result<()> {
    Ok(())
}

pub fn report(_times: &Times) -> Result<()> {
    gaps()?;
    println!();
    few_blocks()
}

/// Prints the waits, with the prompt computed at once and in chunks.
fn gaps() -> Result<()> {
    let (model, tokenizer) = (model("random-135m")?, tokenizer()?);
    println!(
        "{RUNNING} texts run, a prompt of {LONG} tokens arrives    longest gap   its first token"
    );
    let print = |name: &str, waits: &Waits| {
        println!("{name:<47}{:>8.2} s{:>16.2} s", waits.gap, waits.first);
    };
    print("day 15, the whole prompt", &best(|| whole(&*model, &tokenizer))?);
    for budget in BUDGETS {
        let name = format!("day 23, {budget} tokens per step");
        print(&name, &best(|| pieces(&*model, &tokenizer, budget))?);
    }
    Ok(())
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
