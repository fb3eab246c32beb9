//! Day 21's checks: pages.

#[path = "../frame/mod.rs"]
mod frame;

#[cfg(not(feature = "mine"))]
use candecode::day21_pages;
#[cfg(feature = "mine")]
#[allow(dead_code)]
#[path = "../../src/day21_pages.rs"]
mod day21_pages;

use candecode::day04_attention_block::grouped_attention;
use candecode::day07_greedy::argmax;
use candecode::day08_sampling::chacha_sampler;
use candecode::day10_kv_cache::{generate_cached, Cached, DynamicCache};
use candecode::day11_beam_search::beam_search;
use candecode::day12_batching::BatchCache;
use candecode::kit::{
    Batch, BeamParams, Cache, Chunk, EarlyStopping, Logits, Model, PagedSequence, Pages,
};
use candecode::kit::{Request, Sampler, Step, Token, Tokenizer, View};
use candecode_engine::load::load_transformer;
use candle_core::{DType, Device, Error, Result, Tensor};
use frame::{close, device, equal, golden_json, models_dir, near, refused, tokenizer};
use frame::{own_ops, Failure, Fake, Likely, Outcome, Random};
use std::collections::BTreeMap;
use std::sync::Arc;

// Compares a softmax over up to 100 scores, gathered block by block in f32, with one over
// contiguous keys: weighted means of numbers up to 1, so errors of a few times 1e-7.
const TOLERANCE: f32 = 2e-6;

/// One operation on a pool.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum PoolDo {
    Allocate,
    Share(u32),
    Release(u32),
}

/// The state of a pool: the blocks that it handed out, in order, the counts, and the free list.
#[derive(Debug, Clone, PartialEq)]
pub struct PoolSeen {
    pub taken: Vec<u32>,
    pub counts: Vec<u32>,
    pub free: Vec<u32>,
}

/// One operation on a cache of one layer. Keys are `(mark)`, values are `(-mark)`.
#[derive(Debug, Clone, PartialEq)]
pub enum Do {
    /// Reserves room for this many more positions of a sequence: (sequence, positions).
    Reserve(usize, usize),
    /// One varlen batch: for each sequence, the marks of its new tokens.
    Feed(Vec<(usize, Vec<f32>)>),
    Fork(usize, usize),
    Truncate(usize, usize),
    Release(usize),
    CopyOnWrite(usize),
}

/// A cache after an operation.
#[derive(Debug, Clone, PartialEq)]
pub struct Seen {
    /// Whether the operation failed.
    pub failed: bool,
    /// Each sequence, its blocks and its number of positions.
    pub tables: Vec<(usize, Vec<u32>, usize)>,
    /// The number of holders of each block.
    pub counts: Vec<u32>,
    /// The free blocks, in the order in which they will be taken.
    pub free: Vec<u32>,
    /// The marks that each sequence holds, read through its blocks, if there was a step.
    pub marks: Vec<(usize, Vec<f32>)>,
    /// Positions reserved and used, if requested.
    pub usage: Option<(usize, usize)>,
}

/// The parameters of a cache, and whether to report its usage.
#[derive(Debug, Clone, Copy)]
pub struct Setup {
    pub blocks: usize,
    pub block_size: usize,
    pub usage: bool,
}

/// The queries' numbers, all keys and values, a block table, the visible positions, and the head;
/// `(kv_heads, block_size, width)`.
pub struct Asked<'a> {
    pub queries: &'a [Vec<f32>],
    pub keys: &'a [f32],
    pub values: &'a [f32],
    pub table: &'a [u32],
    pub visible: usize,
    pub kv_head: usize,
    pub shape: (usize, usize, usize),
}

/// A sequence, its first position, and its new tokens.
pub type Part = (usize, usize, Vec<u32>);

type Generate =
    for<'a> fn(&'a dyn Model, &'a Tokenizer, Vec<Request<'a>>, usize, usize) -> Result<Vec<Token>>;

/// The day 21 functions under test.
#[derive(Clone, Copy)]
pub struct Day {
    pub pool: fn(usize, &[PoolDo]) -> Result<PoolSeen>,
    pub slot: fn(&[u32], usize, usize) -> u32,
    pub run: fn(Setup, &[Do]) -> Result<Vec<Seen>>,
    pub varlen_step: fn(&dyn Model, &[Part]) -> Result<Step>,
    /// Returns the final attention of each query.
    pub attend_blocks: fn(&Asked) -> Vec<Vec<f32>>,
    pub attend_pages: fn(&Tensor, &View, &Pages) -> Result<Tensor>,
    pub generate: Generate,
    /// Creates a cache with this many layers, blocks, and positions per block.
    pub new_cache: fn(usize, usize, usize) -> Result<Box<dyn Batch>>,
}

/// Builds a `Day` from a module: the reader's code, a known mistake, or the stub.
macro_rules! implementation {
    ($($path:ident)::+) => {{
        use $($path)::+ as code;
        crate::Day {
            pool: |blocks, script| {
                let mut pool = code::BlockPool::new(blocks);
                let mut taken = Vec::new();
                for what in script {
                    match what {
                        crate::PoolDo::Allocate => taken.push(pool.allocate()?),
                        crate::PoolDo::Share(block) => pool.share(*block),
                        crate::PoolDo::Release(block) => pool.release(*block),
                    }
                }
                let free = pool.free.iter().copied().collect();
                Ok(crate::PoolSeen { taken, counts: pool.ref_counts, free })
            },
            slot: |blocks, position, block_size| {
                let len = blocks.len() * block_size;
                code::BlockTable { blocks: blocks.to_vec(), len }.slot(position, block_size)
            },
            run: |setup, script| {
                use candecode::kit::Cache as _;
                let mut cache = code::PagedCache::new(1, setup.blocks, setup.block_size)?;
                let (mut all, mut view) = (Vec::new(), None);
                for what in script {
                    let done = match what {
                        crate::Do::Reserve(sequence, new) => cache.reserve(*sequence, *new),
                        crate::Do::Feed(parts) => {
                            let fed = crate::fed(parts, |id| cache.len_of(id));
                            fed.and_then(|(step, k, v)| {
                                cache.begin(&step)?;
                                view = Some(cache.append(0, &k, &v)?);
                                Ok(())
                            })
                        }
                        crate::Do::Fork(old, new) => {
                            cache.fork(*old, *new);
                            Ok(())
                        }
                        crate::Do::Truncate(sequence, len) => cache.truncate_to(*sequence, *len),
                        crate::Do::CopyOnWrite(sequence) => cache.copy_on_write(*sequence),
                        crate::Do::Release(sequence) => {
                            cache.release(*sequence);
                            Ok(())
                        }
                    };
                    let table = |(id, table): (&usize, &code::BlockTable)| {
                        (*id, table.blocks.clone(), table.len)
                    };
                    let tables: Vec<_> = cache.tables.iter().map(table).collect();
                    let marks = match &view {
                        Some(view) => crate::marks(view, &tables, setup.block_size)?,
                        None => Vec::new(),
                    };
                    all.push(crate::Seen {
                        failed: done.is_err(),
                        counts: cache.pool.ref_counts.clone(),
                        free: cache.pool.free.iter().copied().collect(),
                        usage: setup.usage.then(|| cache.usage()),
                        tables,
                        marks,
                    });
                }
                Ok(all)
            },
            varlen_step: |model, parts| {
                let line: Vec<code::NewTokens> = parts
                    .iter()
                    .map(|(sequence, start, ids)| code::NewTokens {
                        sequence: *sequence,
                        start: *start,
                        ids,
                    })
                    .collect();
                code::varlen_step(model, &line)
            },
            attend_blocks: |asked| {
                use candecode::day18_flash_attention::Query;
                let mut queries = Vec::new();
                for numbers in asked.queries {
                    queries.push(Query { numbers, token: 0 });
                }
                let (kv_heads, block_size, width) = asked.shape;
                let shape = code::BlockShape { kv_heads, block_size, width };
                let gathered = code::attend_blocks(
                    &queries,
                    asked.keys,
                    asked.values,
                    asked.table,
                    asked.visible,
                    asked.kv_head,
                    &shape,
                );
                let finished = |partial: &candecode::day18_flash_attention::Partial| {
                    let mut out = vec![0.0; width];
                    partial.finish(&mut out);
                    out
                };
                gathered.iter().map(finished).collect()
            },
            attend_pages: code::attend_pages,
            generate: |model, tokenizer, requests, blocks, block_size| {
                let layers = model.config().num_hidden_layers;
                let cache = code::PagedCache::new(layers, blocks, block_size)?;
                code::generate_paged(model, tokenizer, requests, cache)?.collect()
            },
            new_cache: |layers, blocks, block_size| {
                Ok(Box::new(code::PagedCache::new(layers, blocks, block_size)?))
            },
        }
    }};
}

frame::checks! {
    day21_pages:
    21.1: blocks_are_allocated_from_the_front, allocating_from_an_empty_pool_is_an_error;
    21.2: the_longest_free_block_is_allocated_first, the_last_holder_frees_a_block,
        no_block_in_use_is_allocated_again;
    21.3: slots_by_hand;
    21.4: only_the_missing_blocks_are_taken, keys_and_values_are_read_back_in_order;
    21.5: a_line_by_hand;
    21.6: blocks_by_hand, any_block_table_equals_contiguous_keys_and_values,
        unused_slots_are_never_read, every_sequence_equals_transformers;
    21.7: a_fork_allocates_no_blocks, a_fork_replaces_an_old_sequence;
    21.8: diverging_forks_do_not_overwrite_each_other, full_blocks_stay_shared,
        samples_share_their_prompt, beams_are_forks;
    21.9: truncating_frees_blocks_past_the_new_end, the_last_block_is_reused_first,
        an_unshared_block_is_not_copied, any_order_of_operations;
    21.10: reserved_and_used;
}

/// Returns a varlen batch of these marks, with its keys and values, `(1, 1, N, 1)`. `held` returns
/// the number of positions that a sequence holds.
fn fed(
    parts: &[(usize, Vec<f32>)],
    held: impl Fn(usize) -> usize,
) -> Result<(Step, Tensor, Tensor)> {
    let marks: Vec<f32> = parts.iter().flat_map(|(_, marks)| marks).copied().collect();
    let chunk = |(sequence, marks): &(usize, Vec<f32>)| Chunk {
        sequence: *sequence,
        start: held(*sequence),
        new: marks.len(),
    };
    let ids = Tensor::zeros((1, marks.len()), DType::U32, &Device::Cpu)?;
    let step = Step {
        positions: ids.clone(),
        ids,
        mask: None,
        logits: Logits::All,
        chunks: Some(parts.iter().map(chunk).collect()),
    };
    let k = Tensor::from_vec(marks.clone(), (1, 1, marks.len(), 1), &Device::Cpu)?;
    let v = k.neg()?;
    Ok((step, k, v))
}

/// Returns the marks that each sequence holds, read through its blocks. A mark whose value isn't
/// its negative reads as NaN; positions without a block are missing.
fn marks(
    view: &View,
    tables: &[(usize, Vec<u32>, usize)],
    block_size: usize,
) -> Result<Vec<(usize, Vec<f32>)>> {
    let (keys, values) = (view.k.flatten_all()?, view.v.flatten_all()?);
    let (keys, values): (Vec<f32>, Vec<f32>) = (keys.to_vec1()?, values.to_vec1()?);
    let mark = |blocks: &[u32], position: usize| {
        let block = *blocks.get(position / block_size)? as usize;
        let slot = block * block_size + position % block_size;
        let (key, value) = (*keys.get(slot)?, *values.get(slot)?);
        Some(if value == -key { key } else { f32::NAN })
    };
    let of_table = |(id, blocks, len): &(usize, Vec<u32>, usize)| {
        (*id, (0..*len).filter_map(|position| mark(blocks, position)).collect())
    };
    Ok(tables.iter().map(of_table).collect())
}

/// Runs a script and returns the last state.
fn last(day: &Day, setup: Setup, script: &[Do]) -> Result<Seen> {
    let mut seen = (day.run)(setup, script)?;
    seen.pop().ok_or_else(|| Error::Msg("an empty script".into()))
}

fn setup(blocks: usize, block_size: usize) -> Setup {
    Setup { blocks, block_size, usage: false }
}

/// Returns the marks `from`, `from + 1`, … of `len` new tokens.
fn run_of(from: usize, len: usize) -> Vec<f32> {
    (from..from + len).map(|mark| mark as f32).collect()
}

// 21.1

fn blocks_are_allocated_from_the_front(day: &Day) -> Outcome {
    let want = PoolSeen { taken: vec![0, 1], counts: vec![1, 1, 0, 0], free: vec![2, 3] };
    let got = (day.pool)(4, &[PoolDo::Allocate; 2]);
    equal("a pool of 4: take two: blocks taken, holders of each, free", got, &want)
        .likely("the block that has been free the longest is at the front of `free`")
}

fn allocating_from_an_empty_pool_is_an_error(day: &Day) -> Outcome {
    use PoolDo::Allocate;
    refused("a pool of 2: take three blocks", (day.pool)(2, &[Allocate; 3]), &["2"])
        .likely("the error says how many blocks there are")
}

// 21.2

fn the_longest_free_block_is_allocated_first(day: &Day) -> Outcome {
    use PoolDo::{Allocate, Release};
    let script = [Allocate, Allocate, Release(0), Allocate, Allocate, Allocate];
    let input = "a pool of 4: take two, release block 0, take three";
    let want = PoolSeen { taken: vec![0, 1, 2, 3, 0], counts: vec![1; 4], free: vec![] };
    equal(&format!("{input}: blocks taken, holders of each, free"), (day.pool)(4, &script), &want)
        .likely("the block that has been free the longest is at the front of `free`")
}

fn the_last_holder_frees_a_block(day: &Day) -> Outcome {
    use PoolDo::{Allocate, Release, Share};
    let mut script = vec![Allocate, Allocate, Share(1), Share(1), Release(1)];
    let input = "a pool of 3: take blocks 0 and 1, share block 1 twice, release it";
    for (more, counts, free) in [
        (vec![], vec![1, 2, 0], vec![2]),
        (vec![Release(1)], vec![1, 1, 0], vec![2]),
        (vec![Release(1)], vec![1, 0, 0], vec![2, 1]),
        (vec![Release(0)], vec![0, 0, 0], vec![2, 1, 0]),
    ] {
        script.extend(more);
        let want = PoolSeen { taken: vec![0, 1], counts, free };
        let times = script.iter().filter(|what| matches!(what, Release(_))).count();
        let input = format!("{input}, {times} releases in all: blocks taken, holders, free");
        equal(&input, (day.pool)(3, &script), &want)
            .likely("a block without holders is free, and goes to the back of the list")?;
    }
    Ok(())
}

fn no_block_in_use_is_allocated_again(day: &Day) -> Outcome {
    let mut random = Random::new(211);
    for round in 0..20 {
        let blocks = 1 + random.below(6);
        let (mut script, mut held): (Vec<PoolDo>, Vec<u32>) = (Vec::new(), Vec::new());
        let mut free: Vec<u32> = (0..blocks as u32).collect();
        let mut taken = Vec::new();
        for _ in 0..40 {
            match random.below(3) {
                0 if !free.is_empty() => {
                    let block = free.remove(0);
                    held.push(block);
                    taken.push(block);
                    script.push(PoolDo::Allocate);
                }
                1 if !held.is_empty() => {
                    let block = held[random.below(held.len())];
                    held.push(block);
                    script.push(PoolDo::Share(block));
                }
                _ if !held.is_empty() => {
                    let block = held.swap_remove(random.below(held.len()));
                    script.push(PoolDo::Release(block));
                    if !held.contains(&block) {
                        free.push(block);
                    }
                }
                _ => {}
            }
        }
        let count = |block: u32| held.iter().filter(|held| **held == block).count() as u32;
        let counts = (0..blocks as u32).map(count).collect();
        let input = format!("a pool of {blocks}, 40 random operations (round {round})");
        equal(&input, (day.pool)(blocks, &script), &PoolSeen { taken, counts, free })?;
    }
    Ok(())
}

// 21.3

fn slots_by_hand(day: &Day) -> Outcome {
    for (blocks, block_size, position, want) in [
        (vec![7u32, 2, 5], 4, 0, 28),
        (vec![7, 2, 5], 4, 3, 31),
        (vec![7, 2, 5], 4, 4, 8),
        (vec![7, 2, 5], 4, 9, 21),
        (vec![3], 16, 15, 63),
        (vec![4, 0, 1], 1, 2, 1),
    ] {
        let input =
            format!("blocks {blocks:?} of {block_size} positions: the slot of position {position}");
        equal(&input, Ok((day.slot)(&blocks, position, block_size)), &want)
            .likely("the table gives the block; a block's slots are adjacent")?;
    }
    Ok(())
}

// 21.4

fn only_the_missing_blocks_are_taken(day: &Day) -> Outcome {
    let cases = [
        (vec![3], 1),
        (vec![4], 1),
        (vec![5], 2),
        (vec![3, 1], 1),
        (vec![4, 1], 2),
        (vec![1; 9], 3),
        (vec![8, 8], 4),
        (vec![2, 0], 1),
    ];
    for (reserved, blocks) in cases {
        let script: Vec<Do> = reserved.iter().map(|new| Do::Reserve(9, *new)).collect();
        let got = last(day, setup(8, 4), &script)
            .map(|seen| seen.tables.iter().map(|(_, b, len)| (b.len(), *len)).collect::<Vec<_>>());
        let input = format!(
            "8 blocks of 4 positions; a sequence reserves {reserved:?}: (blocks, positions) that \
             it holds"
        );
        equal(&input, got, &vec![(blocks, reserved.iter().sum::<usize>())])
            .likely("a block that has room is filled before another one is taken")?;
    }
    Ok(())
}

fn keys_and_values_are_read_back_in_order(day: &Day) -> Outcome {
    let script = [
        Do::Feed(vec![(1, run_of(10, 3)), (2, run_of(20, 6))]),
        Do::Feed(vec![(1, run_of(13, 1)), (2, run_of(26, 1))]),
        Do::Feed(vec![(2, run_of(27, 2)), (1, run_of(14, 4))]),
    ];
    let seen = (day.run)(setup(9, 4), &script)?;
    let want = [(3, 6), (4, 7), (8, 9)];
    for (i, (seen, (one, two))) in seen.into_iter().zip(want).enumerate() {
        let input =
            format!("blocks of 4; sequences 1 and 2 grow in turn: marks after step {}", i + 1);
        equal(&input, Ok(seen.marks), &vec![(1, run_of(10, one)), (2, run_of(20, two))])
            .likely("each new position goes to its own slot, in its own sequence's blocks")?;
    }
    Ok(())
}

// 21.5

/// The contents of a step: ids, positions, chunks as (sequence, start, new), and logits columns.
type Line = (Vec<u32>, Vec<u32>, Vec<(usize, usize, usize)>, String);

fn line(step: Result<Step>) -> Result<Line> {
    let step = step?;
    let chunks = step
        .chunks
        .iter()
        .flatten()
        .map(|chunk| (chunk.sequence, chunk.start, chunk.new))
        .collect();
    let flat = |x: &Tensor| x.flatten_all()?.to_vec1::<u32>();
    Ok((flat(&step.ids)?, flat(&step.positions)?, chunks, format!("{:?}", step.logits)))
}

fn small_model() -> Fake {
    Fake::wants(100, 20, 50, |ids| ids[ids.len() - 1] + 1)
}

fn a_line_by_hand(day: &Day) -> Outcome {
    let parts = [(3, 0, vec![5, 6, 7]), (0, 9, vec![8]), (7, 2, vec![1, 2])];
    let want = (
        vec![5, 6, 7, 8, 1, 2],
        vec![0, 1, 2, 9, 2, 3],
        vec![(3, 0, 3), (0, 9, 1), (7, 2, 2)],
        "Columns([2, 3, 5])".to_string(),
    );
    let input = "sequence 3: 5 6 7 from position 0; 0: 8 at 9; 7: 1 2 from 2";
    equal(
        &format!("{input}: ids, positions, (sequence, start, new), logits"),
        line((day.varlen_step)(&small_model(), &parts)),
        &want,
    )?;
    let one = [(4, 6, vec![9])];
    let want = (vec![9], vec![6], vec![(4, 6, 1)], "Columns([0])".to_string());
    equal("sequence 4: 9 at 6", line((day.varlen_step)(&small_model(), &one)), &want)
}

// 21.6

fn blocks_by_hand(day: &Day) -> Outcome {
    // One head of one number, blocks of 2. The scores are the keys, and equal keys produce a plain
    // mean.
    let keys = [0.0; 8];
    let values = [1.0, 2.0, 40.0, 50.0, 7.0, 8.0, 300.0, 400.0];
    for (table, visible, want) in [
        (vec![0u32], 2, 1.5),
        (vec![0], 1, 1.0),
        (vec![2, 0], 4, 4.5),
        (vec![2, 0], 3, 16.0 / 3.0),
        (vec![1, 3, 2], 5, (40.0 + 50.0 + 300.0 + 400.0 + 7.0) / 5.0),
    ] {
        let queries = [vec![1.0]];
        let (keys, values) = (&keys[..], &values[..]);
        let asked = Asked {
            queries: &queries,
            keys,
            values,
            table: &table,
            visible,
            kv_head: 0,
            shape: (1, 2, 1),
        };
        let got = (day.attend_blocks)(&asked);
        let input = format!(
            "values 1 2 | 40 50 | 7 8 | 300 400, all keys 0; blocks {table:?}, {visible} positions"
        );
        // A mean of up to five numbers up to 400.
        near(&input, Ok(got[0][0].into()), want, 1e-6)?;
    }
    Ok(())
}

/// Random blocks, and sequences that each use a random choice of them.
struct Case {
    q: Tensor,
    view: View,
    /// Keys and values of each sequence in order, `(1, Hkv, len, D)`.
    dense: Vec<(Tensor, Tensor)>,
    pages: Arc<Pages>,
}

/// Builds sequences of `(len, new)` positions, each in its own blocks, in random order.
fn case(
    seed: u64,
    heads: (usize, usize),
    block_size: usize,
    lens: &[(usize, usize)],
) -> Result<Case> {
    let mut random = Random::new(seed);
    let (heads, kv_heads) = heads;
    let width = 8;
    let tables: Vec<usize> = lens.iter().map(|(len, _)| len.div_ceil(block_size)).collect();
    let blocks = tables.iter().sum::<usize>() + 2;
    let mut free: Vec<u32> = (0..blocks as u32).collect();
    let k = random.tensor(&[blocks, kv_heads, block_size, width])?;
    let v = random.tensor(&[blocks, kv_heads, block_size, width])?;
    let (mut sequences, mut dense) = (Vec::new(), Vec::new());
    for ((len, new), count) in lens.iter().zip(tables) {
        let take =
            |random: &mut Random, free: &mut Vec<u32>| free.swap_remove(random.below(free.len()));
        let block_table: Vec<u32> = (0..count).map(|_| take(&mut random, &mut free)).collect();
        let gather = |pool: &Tensor| {
            let table = Tensor::new(&block_table[..], pool.device())?;
            let all = pool.index_select(&table, 0)?.transpose(0, 1)?; // (Hkv, blocks, size, D)
            all.reshape((1, kv_heads, count * block_size, width))?.narrow(2, 0, *len)
        };
        dense.push((gather(&k)?, gather(&v)?));
        sequences.push(PagedSequence { block_table, len: *len, new: *new });
    }
    let pages = Arc::new(Pages { block_size, sequences });
    let q = random.tensor(&[1, heads, pages.num_new(), width])?;
    Ok(Case { q, view: View { k, v, pages: Some(pages.clone()) }, dense, pages })
}

/// Compares attention over pages with attention over each sequence's contiguous keys and values.
fn as_one_piece(day: &Day, input: &str, case: &Case) -> Outcome {
    let got = (day.attend_pages)(&case.q, &case.view, &case.pages)?;
    let mut first = 0;
    for (i, (PagedSequence { new, len, .. }, (k, v))) in
        case.pages.sequences.iter().zip(&case.dense).enumerate()
    {
        let q = case.q.narrow(2, first, *new)?;
        let mask = candecode::day01_attention::causal_mask(*new, len - new, q.device())?;
        let want = grouped_attention(&q, k, v, Some(&mask))?;
        let got = got.narrow(2, first, *new);
        close(&format!("{input}: sequence {i}, {new} new of {len}"), got, &want, TOLERANCE)?;
        first += new;
    }
    Ok(())
}

fn any_block_table_equals_contiguous_keys_and_values(day: &Day) -> Outcome {
    for (seed, heads, block_size, lens) in [
        (1, (1, 1), 4, vec![(5, 1)]),
        (2, (2, 2), 4, vec![(8, 3), (4, 4), (9, 1)]),
        (3, (6, 2), 16, vec![(33, 2), (16, 1), (7, 7)]),
        (4, (4, 2), 1, vec![(6, 2), (3, 1)]),
        (5, (3, 1), 64, vec![(100, 5), (64, 1)]),
    ] {
        let (h, kv) = heads;
        let input = format!("{h} query and {kv} key/value heads, blocks of {block_size}");
        as_one_piece(day, &input, &case(seed, heads, block_size, &lens)?)?;
    }
    Ok(())
}

fn unused_slots_are_never_read(day: &Day) -> Outcome {
    let mut case = case(9, (2, 1), 4, &[(6, 1), (5, 2)])?;
    // Slots after the last position, and blocks that no table names, hold NaN.
    let spoilt = |x: &Tensor| -> Result<Tensor> {
        let (blocks, heads, size, width) = x.dims4()?;
        let mut numbers: Vec<f32> = x.flatten_all()?.to_vec1()?;
        let used = |block: usize, offset: usize| {
            case.pages.sequences.iter().any(|sequence| {
                let place = sequence.block_table.iter().position(|b| *b as usize == block);
                place.is_some_and(|place| place * size + offset < sequence.len)
            })
        };
        for (i, number) in numbers.iter_mut().enumerate() {
            let (block, offset) = (i / (heads * size * width), i / width % size);
            if !used(block, offset) {
                *number = f32::NAN;
            }
        }
        Tensor::from_vec(numbers, (blocks, heads, size, width), x.device())
    };
    let (k, v) = (spoilt(&case.view.k)?, spoilt(&case.view.v)?);
    case.view = View { k, v, pages: case.view.pages.clone() };
    as_one_piece(day, "blocks of 4, NaN in all slots that no sequence uses", &case)
        .likely("the last block is rarely full: its other slots hold whatever was there before")
}

/// The requests of day 15's `oracle.json`, with transformers' completion of each one alone.
#[derive(serde::Deserialize)]
struct Group {
    model: String,
    max_new_tokens: usize,
    eos: Vec<u32>,
    texts: Vec<Golden>,
}

#[derive(serde::Deserialize)]
struct Golden {
    prompt_ids: Vec<u32>,
    new_ids: Vec<u32>,
}

fn group(name: &str) -> Result<Group> {
    let group = golden_json("day15")?[name].take();
    serde_json::from_value(group).map_err(|e| Error::Msg(format!("day15.json: {e}")))
}

/// Loads an embedded model whose attention over pages is the code being checked.
fn model(day: &Day, name: &str) -> Result<impl Model> {
    let ops = own_ops::with_pages(day.attend_pages);
    load_transformer(&models_dir()?.join(name), DType::F32, &device()?, &ops)
        .map_err(|e| Error::Msg(format!("{e:#}")))
}

fn request<'a>(model: &dyn Model, prompt: &[u32], most: usize, eos: &[u32]) -> Request<'a> {
    let mut request = Request::new(model.config(), prompt, most, Box::new(argmax));
    request.eos_token_ids = eos.to_vec();
    request
}

/// Returns the ids of every row.
fn by_row(tokens: &[Token]) -> BTreeMap<usize, Vec<u32>> {
    let mut rows: BTreeMap<usize, Vec<u32>> = BTreeMap::new();
    for token in tokens {
        rows.entry(token.row).or_default().push(token.id);
    }
    rows
}

fn every_sequence_equals_transformers(day: &Day) -> Outcome {
    for (name, block_size) in [("commas", 4), ("stories", 16)] {
        let group = group(name)?;
        let model = model(day, &group.model)?;
        let ask =
            |text: &Golden| request(&model, &text.prompt_ids, group.max_new_tokens, &group.eos);
        let requests = group.texts.iter().map(ask).collect();
        let tokens = (day.generate)(&model, &tokenizer()?, requests, 200, block_size)?;
        let want: BTreeMap<usize, Vec<u32>> =
            group.texts.iter().map(|text| text.new_ids.clone()).enumerate().collect();
        let input = format!(
            "{}, {} prompts in one varlen batch, blocks of {block_size}: tokens by row",
            group.model,
            group.texts.len()
        );
        equal(&input, Ok(by_row(&tokens)), &want)?;
    }
    Ok(())
}

// 21.7

fn a_fork_allocates_no_blocks(day: &Day) -> Outcome {
    let script =
        [Do::Feed(vec![(1, run_of(10, 6))]), Do::Fork(1, 2), Do::Release(1), Do::Release(2)];
    let seen = (day.run)(setup(4, 4), &script)?;
    let input = "4 blocks of 4; sequence 1 holds 6 positions; 2 is forked from it";
    let got = (seen[1].free.len(), seen[1].counts.clone(), seen[1].tables.len());
    equal(
        &format!("{input}: free blocks, holders of each, sequences"),
        Ok(got),
        &(2, vec![2, 2, 0, 0], 2),
    )?;
    equal(
        &format!("{input}: marks"),
        Ok(seen[1].marks.clone()),
        &vec![(1, run_of(10, 6)), (2, run_of(10, 6))],
    )?;
    let input = format!("{input}; 1 ends");
    equal(&format!("{input}: marks"), Ok(seen[2].marks.clone()), &vec![(2, run_of(10, 6))])?;
    equal(&format!("{input}, then 2: free blocks"), Ok(seen[3].free.len()), &4)
        .likely("every holder counts: a block that is shared must not be freed early, nor kept")
}

fn a_fork_replaces_an_old_sequence(day: &Day) -> Outcome {
    let script = [
        Do::Feed(vec![(1, run_of(10, 3)), (2, run_of(20, 9))]),
        Do::Fork(1, 2),
        Do::Fork(2, 2),
        Do::Release(1),
        Do::Release(2),
    ];
    let seen = (day.run)(setup(4, 4), &script)?;
    let input = "4 blocks of 4; 1 holds 3 positions, 2 holds 9; 2 becomes a fork of 1";
    equal(&format!("{input}: free blocks"), Ok(seen[1].free.len()), &3)
        .likely("the blocks that the replaced sequence held are released")?;
    equal(
        &format!("{input}, then of itself: marks"),
        Ok(seen[2].marks.clone()),
        &vec![(1, run_of(10, 3)), (2, run_of(10, 3))],
    )
    .likely("share first, then release: a fork of itself must not lose its blocks")?;
    equal(&format!("{input}; both end: free blocks"), Ok(seen[4].free.len()), &4)
}

// 21.8

fn diverging_forks_do_not_overwrite_each_other(day: &Day) -> Outcome {
    let script = [
        Do::Feed(vec![(1, run_of(10, 6))]),
        Do::Fork(1, 2),
        Do::Fork(1, 3),
        Do::Feed(vec![(1, run_of(100, 1)), (2, run_of(200, 1)), (3, run_of(300, 1))]),
        Do::Feed(vec![(1, run_of(101, 3)), (3, run_of(301, 3))]),
    ];
    let seen = (day.run)(setup(12, 4), &script)?;
    let text = |more: Vec<f32>| [run_of(10, 6), more].concat();
    let input = "blocks of 4; 1 holds 6 positions; 2 and 3 are forks; each writes its own marks";
    let want = (vec![3, 1, 1, 1], 8);
    let mut counts: Vec<u32> = seen[3].counts.iter().copied().filter(|count| *count > 0).collect();
    counts.sort_unstable_by(|a, b| b.cmp(a));
    equal(
        &format!("{input}: holders of the blocks in use, free blocks"),
        Ok((counts, seen[3].free.len())),
        &want,
    )
    .likely("the last holder of a block doesn't need to copy it; a copied block has one holder")?;
    let want =
        vec![(1, text(run_of(100, 1))), (2, text(run_of(200, 1))), (3, text(run_of(300, 1)))];
    equal(&format!("{input}: marks"), Ok(seen[3].marks.clone()), &want)
        .likely("a block that others hold is copied before it is written")?;
    let want =
        vec![(1, text(run_of(100, 4))), (2, text(run_of(200, 1))), (3, text(run_of(300, 4)))];
    equal(
        &format!("{input}, then 1 and 3 write three more: marks"),
        Ok(seen[4].marks.clone()),
        &want,
    )?;
    let full = last(day, setup(4, 4), &script[..4])?;
    equal(&format!("{input}, in a pool of only 4 blocks: refused"), Ok(full.failed), &false)
        .likely(
            "two copies are enough for three holders: the last one writes to the block itself",
        )?;
    let script = [Do::Feed(vec![(1, run_of(10, 6))]), Do::Fork(1, 2), Do::CopyOnWrite(2)];
    let full = last(day, setup(2, 4), &script)?;
    let input =
        "2 blocks of 4; 1 holds 6 positions, 2 is its fork and needs a copy: refused, holders";
    equal(input, Ok((full.failed, full.counts)), &(true, vec![2, 2]))
        .likely("take the new block first: if there is none, nothing has changed")
}

fn full_blocks_stay_shared(day: &Day) -> Outcome {
    let script =
        [Do::Feed(vec![(1, run_of(10, 8))]), Do::Fork(1, 2), Do::Feed(vec![(2, run_of(200, 1))])];
    let seen = last(day, setup(4, 4), &script)?;
    let input = "4 blocks of 4; 1 holds 8 positions, 2 is its fork and writes one";
    equal(
        &format!("{input}: free blocks, holders"),
        Ok((seen.free.len(), seen.counts)),
        &(1, vec![2, 2, 1, 0]),
    )
    .likely("no new position goes into a full block, so it needs no copy")
}

fn an_unshared_block_is_not_copied(day: &Day) -> Outcome {
    let script = [
        Do::Feed(vec![(1, run_of(10, 2))]),
        Do::Feed(vec![(1, run_of(12, 1))]),
        Do::Truncate(1, 3),
        Do::Feed(vec![(1, run_of(13, 1))]),
    ];
    let seen = (day.run)(setup(1, 4), &script)?;
    let input =
        "a single block of 4; a sequence writes 2 positions, 1 more, is truncated to all 3 \
                 of them, and writes 1";
    let failed: Vec<bool> = seen.iter().map(|seen| seen.failed).collect();
    equal(&format!("{input}: refused"), Ok(failed), &vec![false; 4])
        .likely("a block that only one sequence holds needs no copy")
}

/// A model that counts the tokens it is fed.
struct Counting<M> {
    model: M,
    fed: std::cell::Cell<usize>,
}

impl<M: Model> Model for Counting<M> {
    fn config(&self) -> &candecode::kit::ModelConfig {
        self.model.config()
    }

    fn device(&self) -> &Device {
        self.model.device()
    }

    fn forward(&self, step: &Step, cache: &mut dyn Cache) -> Result<Tensor> {
        self.fed.set(self.fed.get() + step.ids.elem_count());
        self.model.forward(step, cache)
    }
}

fn samples_share_their_prompt(day: &Day) -> Outcome {
    let model = Counting { model: model(day, "story-3m")?, fed: Default::default() };
    let tokenizer = tokenizer()?;
    let prompt: Vec<u32> = group("commas")?.texts[0].prompt_ids.clone();
    let sampler = |row: usize| -> Sampler<'static> { chacha_sampler(7, row) };
    let ask = |row: usize| Request::new(model.config(), &prompt, 12, sampler(row));
    let alone = |row: usize| -> Result<Vec<u32>> {
        let cache = DynamicCache::new(model.config().num_hidden_layers);
        let cached = Cached::new(&model, Box::new(cache));
        let tokens: Result<Vec<Token>> = generate_cached(cached, &tokenizer, ask(row))?.collect();
        Ok(tokens?.iter().map(|token| token.id).collect())
    };
    let want: Result<BTreeMap<usize, Vec<u32>>> =
        (0..4).map(|row| Ok((row, alone(row)?))).collect();
    model.fed.set(0);
    let tokens = (day.generate)(&model, &tokenizer, (0..4).map(ask).collect(), 40, 4);
    let fed = model.fed.get();
    let input = "story-3m, 4 samples of one prompt, blocks of 4: tokens by row";
    let want = want?;
    let new: usize = want.values().map(|ids| ids.len() - 1).sum();
    equal(input, tokens.map(|tokens| by_row(&tokens)), &want).likely(
        "each sample is what it would be alone, even though they share the prompt's blocks",
    )?;
    let one = Request::new(model.config(), &prompt[..1], 3, Box::new(argmax));
    let two = Request::new(model.config(), &prompt[..1], 3, Box::new(argmax));
    (day.generate)(&model, &tokenizer, vec![one, two], 40, 4)?; // nothing to share in one token
    let input = format!("{input}: tokens fed");
    equal(&input, Ok(fed), &(prompt.len() - 1 + 4 + new))
        .likely("the prompt is computed once, all but its last token, and then forked")
}

fn beams_are_forks(day: &Day) -> Outcome {
    let model = model(day, "story-3m")?;
    let tokenizer = tokenizer()?;
    let prompt: Vec<u32> = group("commas")?.texts[0].prompt_ids.clone();
    let layers = model.config().num_hidden_layers;
    let params = BeamParams {
        num_beams: 4,
        num_return_sequences: 4,
        length_penalty: 1.0,
        early_stopping: EarlyStopping::False,
    };
    let search = |cache: &mut dyn Batch| -> Result<Vec<Vec<u32>>> {
        let mut request = request(&model, &prompt, 12, &[0]);
        let found = beam_search(&model, &tokenizer, &mut request, &params, cache)?;
        Ok(found.into_iter().map(|found| found.new_ids).collect())
    };
    let want = search(&mut BatchCache::new(layers, None))?;
    let mut cache = (day.new_cache)(layers, 60, 4)?;
    equal("story-3m, 4 beams, blocks of 4: the hypotheses", search(&mut *cache), &want)
        .likely("a beam that continues twice is forked, and both forks write their own next token")
}

// 21.9

fn truncating_frees_blocks_past_the_new_end(day: &Day) -> Outcome {
    for (len, free, more) in
        [(10, 1, 0), (9, 1, 0), (5, 2, 0), (8, 2, 1), (4, 3, 1), (1, 3, 0), (0, 4, 1)]
    {
        let script = [
            Do::Feed(vec![(1, run_of(10, 10))]),
            Do::Truncate(1, len),
            Do::Feed(vec![(1, run_of(90, 1))]),
        ];
        let seen = (day.run)(setup(4, 4), &script)?;
        let input = format!("4 blocks of 4; a sequence of 10 positions is truncated to {len}");
        // A sequence without positions can be kept or not.
        let blocks = seen[1].tables.first().map_or(0, |(_, blocks, _)| blocks.len());
        let got = (seen[1].free.len(), blocks);
        equal(&format!("{input}: free blocks, its blocks"), Ok(got), &(free, 4 - free))
            .likely("a block that still holds a position is kept, all later ones are released")?;
        let marks = seen[1].marks.iter().flat_map(|(_, marks)| marks.clone()).collect();
        equal(&format!("{input}: marks"), Ok(marks), &run_of(10, len))?;
        let marks = [run_of(10, len), run_of(90, 1)].concat();
        let input = format!("{input}, then it writes one: free blocks, marks");
        equal(
            &input,
            Ok((seen[2].free.len(), seen[2].marks.clone())),
            &(free - more, vec![(1, marks)]),
        )?;
    }
    let script = [Do::Feed(vec![(1, run_of(10, 10))]), Do::Truncate(1, 11)];
    let seen = last(day, setup(4, 4), &script)?;
    equal("a sequence of 10 positions, truncated to 11: refused", Ok(seen.failed), &true)
}

fn the_last_block_is_reused_first(day: &Day) -> Outcome {
    for (len, want) in [(5, vec![4, 3, 2]), (1, vec![4, 3, 2, 1]), (0, vec![4, 3, 2, 1, 0])] {
        let script = [Do::Feed(vec![(1, run_of(10, 16))]), Do::Truncate(1, len)];
        let seen = last(day, setup(5, 4), &script)?;
        let input = format!("5 blocks of 4; 0 to 3 hold a sequence, which is truncated to {len}");
        equal(&format!("{input}: free blocks in order"), Ok(seen.free), &want).likely(
            "release the last block first: the first blocks are worth keeping the longest",
        )?;
    }
    let script = [
        Do::Feed(vec![(1, run_of(10, 16))]),
        Do::Truncate(1, 9),
        Do::Fork(1, 2),
        Do::Release(1),
        Do::Release(2),
    ];
    let seen = last(day, setup(5, 4), &script)?;
    let input = "5 blocks of 4; a sequence is truncated from 16 positions to 9 and forked, and \
                 both end: free blocks in order";
    equal(input, Ok(seen.free), &vec![4, 3, 2, 1, 0])
        .likely("`release` returns a sequence's blocks from its last to its first")
}

/// Returns a random operation on a cache, and applies it to `plain`.
fn operate(random: &mut Random, plain: &mut BTreeMap<usize, Vec<f32>>, mark: &mut usize) -> Do {
    let known: Vec<usize> = plain.keys().copied().collect();
    let any = |random: &mut Random| known[random.below(known.len())];
    match random.below(if known.is_empty() { 1 } else { 8 }) {
        4 => {
            let (old, new) = (any(random), random.below(6));
            let copy = plain[&old].clone();
            plain.insert(new, copy);
            Do::Fork(old, new)
        }
        5 => {
            let sequence = any(random);
            let len = random.below(plain[&sequence].len() + 1);
            plain.entry(sequence).or_default().truncate(len);
            Do::Truncate(sequence, len)
        }
        6 => {
            let sequence = any(random);
            plain.remove(&sequence);
            Do::Release(sequence)
        }
        _ => {
            let mut parts: BTreeMap<usize, Vec<f32>> = BTreeMap::new();
            for _ in 0..1 + random.below(3) {
                let len = 1 + random.below(5);
                parts.insert(random.below(6), run_of(*mark, len));
                *mark += len;
            }
            for (sequence, marks) in &parts {
                plain.entry(*sequence).or_default().extend(marks);
            }
            Do::Feed(parts.into_iter().collect())
        }
    }
}

fn any_order_of_operations(day: &Day) -> Outcome {
    let mut random = Random::new(219);
    for round in 0..12 {
        let block_size = [1, 2, 4, 8][round % 4];
        let (mut plain, mut mark, mut script) = (BTreeMap::new(), 1, Vec::new());
        let mut states = Vec::new();
        for _ in 0..30 {
            script.push(operate(&mut random, &mut plain, &mut mark));
            states.push(plain.clone());
        }
        let seen = (day.run)(setup(600, block_size), &script)?;
        for (i, (seen, want)) in seen.iter().zip(&states).enumerate() {
            let input = format!("blocks of {block_size}, after {:?}", &script[..=i].last());
            if !seen.marks.is_empty() {
                let mut want: Vec<(usize, Vec<f32>)> = want.clone().into_iter().collect();
                let mut got = seen.marks.clone();
                // A sequence without positions can be kept or not.
                want.retain(|(_, marks)| !marks.is_empty());
                got.retain(|(_, marks)| !marks.is_empty());
                equal(&format!("{input} (operation {i}): marks"), Ok(got), &want)?;
            }
            let held = |block: usize| {
                let tables = seen.tables.iter().flat_map(|(_, blocks, _)| blocks);
                tables.filter(|held| **held as usize == block).count() as u32
            };
            let holders: Vec<u32> = (0..seen.counts.len()).map(held).collect();
            let free = holders.iter().filter(|holders| **holders == 0).count();
            let ok = seen.counts == holders && seen.free.len() == free;
            frame::ensure(
                &format!("{input} (operation {i}): counts of holders, and free blocks"),
                ok,
                "a block's count isn't the number of tables that contain it",
            )?;
        }
    }
    Ok(())
}

// 21.10

fn reserved_and_used(day: &Day) -> Outcome {
    let usage = |script: &[Do]| -> std::result::Result<Option<(usize, usize)>, Failure> {
        let setup = Setup { blocks: 20, block_size: 4, usage: true };
        Ok(last(day, setup, script)?.usage)
    };
    let one = Do::Feed(vec![(1, run_of(10, 6))]);
    let cases = [
        ("1 holds 6", vec![one.clone()], (8, 6)),
        ("1 holds 6, 2 holds 3", vec![one.clone(), Do::Feed(vec![(2, run_of(20, 3))])], (12, 9)),
        ("1 holds 8", vec![Do::Feed(vec![(1, run_of(10, 8))])], (8, 8)),
        (
            "1 holds 8, 2, 3 and 4 are its forks, then 1 is truncated to 6, 3 to 5 and 4 to 7",
            vec![
                Do::Feed(vec![(1, run_of(10, 8))]),
                Do::Fork(1, 2),
                Do::Fork(1, 3),
                Do::Fork(1, 4),
                Do::Truncate(1, 6),
                Do::Truncate(3, 5),
                Do::Truncate(4, 7),
            ],
            (8, 8),
        ),
        (
            "1 holds 6, 2 and 3 are its forks",
            vec![one.clone(), Do::Fork(1, 2), Do::Fork(1, 3)],
            (8, 6),
        ),
        (
            "1 holds 6, 2 is its fork, and 1 is truncated to 5",
            vec![one.clone(), Do::Fork(1, 2), Do::Truncate(1, 5)],
            (8, 6),
        ),
        (
            "1 holds 6, 2 is its fork, and 2 is truncated to 5",
            vec![one.clone(), Do::Fork(1, 2), Do::Truncate(2, 5)],
            (8, 6),
        ),
        (
            "1 holds 6, 2 is its fork and writes one",
            vec![one.clone(), Do::Fork(1, 2), Do::Feed(vec![(2, run_of(90, 1))])],
            (12, 9),
        ),
        ("1 held 6 and ended", vec![one, Do::Release(1)], (0, 0)),
    ];
    for (what, script, want) in cases {
        let input = format!("blocks of 4; {what}: positions reserved, positions used");
        equal(&input, Ok(usage(&script)?), &Some(want))
            .likely("shared blocks and positions count once")?;
    }
    Ok(())
}
