//! Days 21 to 23 in one listing, with the standard library alone. Its model is a stand-in: the
//! "keys" of a position are its token, and the next token is computed from those that the
//! sequence reads through its block table. A wrong block therefore leads to a wrong token.

// ANCHOR: engine
use std::collections::{HashMap, VecDeque};

const BLOCK: usize = 4; // positions in a block
const BUDGET: usize = 8; // max_num_batched_tokens
const SEQUENCES: usize = 4; // max_num_seqs

/// Its tokens, and the blocks that hold the keys of the first `computed` of them.
struct Sequence {
    id: usize,
    tokens: Vec<u32>,
    max_len: usize,
    blocks: Vec<usize>,
    computed: usize,
}

impl Sequence {
    fn slot(&self, position: usize) -> usize {
        self.blocks[position / BLOCK] * BLOCK + position % BLOCK
    }

    fn uncomputed(&self) -> usize {
        self.tokens.len() - self.computed
    }

    fn blocks_needed(&self, new: usize) -> usize {
        (self.computed + new).div_ceil(BLOCK).saturating_sub(self.blocks.len())
    }
}

/// Day 21's pool, and day 22's cached blocks.
struct BlockPool {
    ref_counts: Vec<usize>,
    free: VecDeque<usize>,               // the front has been free the longest
    cached: HashMap<Vec<u32>, usize>,    // full blocks, by all tokens up to their end
    prefix_of: HashMap<usize, Vec<u32>>, // the same, by block
}

impl BlockPool {
    fn allocate(&mut self) -> usize {
        let block = self.free.pop_front().expect("the scheduler counts free blocks first");
        if let Some(prefix) = self.prefix_of.remove(&block) {
            self.cached.remove(&prefix); // it is about to be overwritten
        }
        self.ref_counts[block] = 1;
        block
    }

    fn share(&mut self, block: usize) {
        if self.ref_counts[block] == 0 {
            self.free.retain(|free| *free != block);
        }
        self.ref_counts[block] += 1;
    }

    fn release(&mut self, sequence: &mut Sequence) {
        for block in sequence.blocks.drain(..).rev() {
            self.ref_counts[block] -= 1;
            if self.ref_counts[block] == 0 {
                self.free.push_back(block);
            }
        }
        sequence.computed = 0;
    }

    /// Starts a sequence with its longest cached prefix. One token is left to compute.
    fn attach_prefix(&mut self, sequence: &mut Sequence) {
        for end in (BLOCK..sequence.tokens.len()).step_by(BLOCK) {
            let Some(block) = self.cached.get(&sequence.tokens[..end]).copied() else { break };
            self.share(block);
            sequence.blocks.push(block);
            sequence.computed = end;
        }
    }

    fn cache_full_blocks(&mut self, sequence: &Sequence) {
        for end in (BLOCK..=sequence.computed).step_by(BLOCK) {
            let (prefix, block) = (&sequence.tokens[..end], sequence.blocks[end / BLOCK - 1]);
            if !self.cached.contains_key(prefix) {
                self.cached.insert(prefix.to_vec(), block);
                self.prefix_of.insert(block, prefix.to_vec());
            }
        }
    }
}

/// Day 23's scheduler.
struct Scheduler {
    pool: BlockPool,
    keys: Vec<u32>, // one per slot
    waiting: VecDeque<Sequence>,
    running: Vec<Sequence>, // the oldest first
    preemptions: usize,
}

impl Scheduler {
    /// Decides how many tokens each running sequence computes in this step.
    fn schedule(&mut self) -> Vec<usize> {
        let (mut plan, mut budget) = (Vec::new(), BUDGET);
        let before = self.preemptions;
        while budget > 0 && plan.len() < self.running.len() {
            let sequence = &self.running[plan.len()];
            let new = sequence.uncomputed().min(budget);
            if sequence.blocks_needed(new) > self.pool.free.len() {
                self.preempt();
                continue;
            }
            self.take(new, &mut plan, &mut budget);
        }
        while budget > 0 && self.running.len() < SEQUENCES && self.preemptions == before {
            let Some(mut sequence) = self.waiting.pop_front() else { break };
            self.pool.attach_prefix(&mut sequence);
            let new = sequence.uncomputed();
            if sequence.blocks_needed(new) > self.pool.free.len() {
                self.pool.release(&mut sequence);
                self.waiting.push_front(sequence);
                break;
            }
            self.running.push(sequence);
            self.take(new.min(budget), &mut plan, &mut budget);
        }
        plan
    }

    fn take(&mut self, new: usize, plan: &mut Vec<usize>, budget: &mut usize) {
        let sequence = &mut self.running[plan.len()];
        for _ in 0..sequence.blocks_needed(new) {
            sequence.blocks.push(self.pool.allocate());
        }
        plan.push(new);
        *budget -= new;
    }

    /// The youngest loses its blocks and keeps its tokens.
    fn preempt(&mut self) {
        let mut youngest = self.running.pop().expect("a sequence that lacks blocks runs");
        self.pool.release(&mut youngest);
        self.waiting.push_front(youngest);
        self.preemptions += 1;
    }

    /// Schedules, runs, and postprocesses. Returns the sequences that ended.
    fn step(&mut self) -> Vec<Sequence> {
        let plan = self.schedule();
        for (sequence, new) in self.running.iter_mut().zip(plan) {
            for position in sequence.computed..sequence.computed + new {
                self.keys[sequence.slot(position)] = sequence.tokens[position];
            }
            sequence.computed += new;
            self.pool.cache_full_blocks(sequence);
            if sequence.uncomputed() == 0 {
                let read = (0..sequence.computed).map(|at| self.keys[sequence.slot(at)]);
                sequence.tokens.push(next_token(read));
            }
        }
        let is_finished = |sequence: &mut Sequence| sequence.tokens.len() == sequence.max_len;
        let mut finished: Vec<_> = self.running.extract_if(.., is_finished).collect();
        finished.iter_mut().for_each(|sequence| self.pool.release(sequence));
        finished
    }
}
// ANCHOR_END: engine

/// The stand-in for a model.
fn next_token(keys: impl Iterator<Item = u32>) -> u32 {
    keys.fold(17, |hash: u32, key| hash.wrapping_mul(31).wrapping_add(key)) % 1000
}

fn sequence(id: usize, tokens: Vec<u32>, max_len: usize) -> Sequence {
    Sequence { id, tokens, max_len, blocks: Vec::new(), computed: 0 }
}

/// Runs sequences to their ends. Returns their tokens by id, the number of preemptions, and the
/// number of blocks in use at the end.
fn run(blocks: usize, waiting: Vec<Sequence>) -> (Vec<Vec<u32>>, usize, usize) {
    let pool = BlockPool {
        ref_counts: vec![0; blocks],
        free: (0..blocks).collect(),
        cached: HashMap::new(),
        prefix_of: HashMap::new(),
    };
    let keys = vec![0; blocks * BLOCK];
    let mut texts = vec![Vec::new(); waiting.len()];
    let waiting = waiting.into();
    let mut scheduler = Scheduler { pool, keys, waiting, running: Vec::new(), preemptions: 0 };
    while !(scheduler.waiting.is_empty() && scheduler.running.is_empty()) {
        for finished in scheduler.step() {
            texts[finished.id] = finished.tokens;
        }
    }
    let used = blocks - scheduler.pool.free.len();
    (texts, scheduler.preemptions, used)
}

#[test]
fn crowded_sequences_get_the_tokens_that_they_get_alone() {
    let prompt = |id: usize| (0..5 + id as u32 % 7).chain([id as u32 % 3]).collect::<Vec<_>>();
    let all = || (0..12).map(|id| sequence(id, prompt(id), 25)).collect::<Vec<_>>();
    let (texts, preemptions, used) = run(10, all());
    assert!(preemptions > 0, "ten blocks are too few for four sequences");
    assert_eq!(used, 0);
    for (id, text) in texts.iter().enumerate() {
        let mut alone = prompt(id);
        while alone.len() < 25 {
            alone.push(next_token(alone.iter().copied()));
        }
        assert_eq!(*text, alone, "sequence {id}");
    }
}
