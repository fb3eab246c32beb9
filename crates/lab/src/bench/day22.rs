//! Day 22: 32 conversations that start with the same system prompt, without and with shared
//! prefixes.

use crate::shared::{model, request, tokenizer};
use crate::tally::Tally;
use crate::times::{median, shown, Times};
use anyhow::Result;
use candecode::day07_greedy::Sequence;
use candecode::day21_pages::{PagedBatch, PagedCache};
use candecode::day22_shared_prefixes::PrefixBatch;
use candecode::kit::{Model, Token, Tokenizer};
use std::path::Path;
use std::time::Instant;

const CONVERSATIONS: usize = 32;
/// Tokens in the system prompt, which all conversations share.
const SYSTEM: u32 = 384;
/// Tokens in a question. Each conversation has its own questions.
const QUESTION: u32 = 8;
/// Tokens in an answer.
const ANSWER: usize = 48;
const BLOCKS: usize = 1024;
const BLOCK_SIZE: usize = 16;

/// The operations that both days' batches have in common.
trait Runs<'a> {
    fn add(&mut self, sequence: Sequence<'a>);
    fn step(&mut self) -> candle_core::Result<Vec<Token>>;
    fn cache(&self) -> &PagedCache;
}

impl<'a> Runs<'a> for PagedBatch<'a> {
    fn add(&mut self, sequence: Sequence<'a>) {
        self.running.push(sequence);
    }

    fn step(&mut self) -> candle_core::Result<Vec<Token>> {
        PagedBatch::step(self)
    }

    fn cache(&self) -> &PagedCache {
        &self.cache
    }
}

impl<'a> Runs<'a> for PrefixBatch<'a> {
    fn add(&mut self, sequence: Sequence<'a>) {
        PrefixBatch::add(self, sequence);
    }

    fn step(&mut self) -> candle_core::Result<Vec<Token>> {
        PrefixBatch::step(self)
    }

    fn cache(&self) -> &PagedCache {
        &self.cache
    }
}

/// The results of one turn of all conversations.
#[derive(Default)]
struct Turn {
    /// Seconds until each conversation's first token.
    waits: Vec<f64>,
    /// Number of prompt tokens.
    asked: usize,
    /// Number of prompt tokens that were computed.
    computed: usize,
    /// Maximum number of blocks in use.
    blocks: usize,
}

/// Serves one turn of all conversations. Before each step, one more arrives, until all of them are
/// running. Appends the answer and the next question to each text.
fn turn<'a>(
    batch: &mut dyn Runs<'a>,
    (model, tokenizer): (&'a dyn Model, &'a Tokenizer),
    texts: &mut [Vec<u32>],
    salts: usize,
) -> Result<Turn> {
    let mut turn = Turn::default();
    let prompts = texts.to_vec();
    for step in 0.. {
        if let Some(prompt) = prompts.get(step) {
            let mut request = request(model, prompt, ANSWER);
            request.id = step;
            request.cache_salt = (step % salts).to_string();
            batch.add(Sequence::new(request, tokenizer));
            turn.asked += prompt.len();
            turn.computed += prompt.len() - batch.cache().len_of(step);
        }
        let begun = Instant::now();
        let tokens = batch.step()?;
        if step < prompts.len() {
            turn.waits.push(begun.elapsed().as_secs_f64());
        }
        for token in &tokens {
            texts[token.row].push(token.id);
        }
        let pool = &batch.cache().pool;
        turn.blocks = turn.blocks.max(BLOCKS - pool.num_free());
        if pool.num_free() == BLOCKS {
            break;
        }
    }
    for (text, i) in texts.iter_mut().zip(0..) {
        text.extend(question(i + 1));
    }
    Ok(turn)
}

/// Returns the tokens of a question, which differ between conversations.
fn question(i: u32) -> impl Iterator<Item = u32> {
    (0..QUESTION).map(move |at| 300 + 37 * i + at)
}

/// Serves two turns: with day 21's batch if `salts` is 0, otherwise with day 22's and that many
/// salts.
fn serve(model: &dyn Model, tokenizer: &Tokenizer, salts: usize) -> Result<[Turn; 2]> {
    let system: Vec<u32> = (300..300 + SYSTEM).collect();
    let mut texts: Vec<Vec<u32>> = (0..CONVERSATIONS as u32)
        .map(|i| system.iter().copied().chain(question(i)).collect())
        .collect();
    let cache = PagedCache::new(model.config().num_hidden_layers, BLOCKS, BLOCK_SIZE)?;
    let mut batch: Box<dyn Runs> = match salts {
        0 => Box::new(PagedBatch::new(model, Vec::new(), cache)),
        _ => Box::new(PrefixBatch::new(model, cache)),
    };
    let first = turn(&mut *batch, (model, tokenizer), &mut texts, salts.max(1))?;
    let second = turn(&mut *batch, (model, tokenizer), &mut texts, salts.max(1))?;
    Ok([first, second])
}

/// The ways to serve the conversations, with the number of salts for each.
const WAYS: [(&str, usize); 3] = [("day 21", 0), ("day 22", 1), ("day 22, 8 salts", 8)];
const TURNS: [&str; 2] = ["first turn", "second turn"];

pub fn count(tally: &mut Tally) -> Result<()> {
    let (model, tokenizer) = (model("story-3m")?, tokenizer()?);
    let of = |salts| serve(&*model, &tokenizer, salts);
    let (before, after) = (of(0)?, of(1)?);
    for ((before, after), name) in before.iter().zip(&after).zip(TURNS) {
        let what = format!("prompt tokens computed, {name} of 32 chats");
        tally.add(&what, before.computed, after.computed);
    }
    tally.add("blocks in use at most", before[1].blocks, after[1].blocks);
    Ok(())
}

pub fn measure(times: &mut Times) -> Result<()> {
    let (model, tokenizer) = (model("story-3m")?, tokenizer()?);
    for (way, salts) in WAYS {
        let names = TURNS.map(|turn| format!("{way}, {turn}"));
        times.several(names.each_ref().map(String::as_str), || {
            Ok(serve(&*model, &tokenizer, salts)?.map(|turn| median(turn.waits)))
        })?;
    }
    Ok(())
}

pub fn report(times: &Times, _: &Path) -> Result<()> {
    let (model, tokenizer) = (model("story-3m")?, tokenizer()?);
    println!(
        "{CONVERSATIONS} conversations: a system prompt of {SYSTEM} tokens, questions of \
         {QUESTION}, answers of {ANSWER}\n(prompt tokens computed, blocks in use at most, median \
         time to first token)"
    );
    for (way, salts) in WAYS {
        let turns = serve(&*model, &tokenizer, salts)?;
        for (turn, name) in turns.iter().zip(TURNS) {
            let way = format!("{way}, {name}");
            println!(
                "{way:<28}{:>7} of {} tokens {:>5} blocks {:>10}",
                turn.computed,
                turn.asked,
                turn.blocks,
                shown(times.of(&way)?)
            );
        }
    }
    Ok(())
}
