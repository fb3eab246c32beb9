//! Day 6: passes that predict a known text; the time of the pass for the next token without a
//! cache, against the length of the text.

use crate::shared::{counted, model, plain_story};
use crate::tally::Tally;
use crate::times::{shown, Times};
use anyhow::Result;
use candecode::day06_generate::{next_logits, predictions};
use candecode::day07_greedy::argmax;
use candecode::kit::{Logits, Model, NoCache, Step};
use std::path::Path;

/// Text lengths in tokens.
const LENGTHS: [u32; 6] = [50, 100, 200, 300, 400, 500];

/// A way to predict every token of a text after its first.
type Predict = fn(&dyn Model, &[u32]) -> candle_core::Result<Vec<u32>>;

/// Predicts token after token, as the loop does.
fn in_a_loop(model: &dyn Model, ids: &[u32]) -> candle_core::Result<Vec<u32>> {
    (1..ids.len()).map(|len| argmax(&next_logits(model, &ids[..len])?)).collect()
}

fn at_once(model: &dyn Model, ids: &[u32]) -> candle_core::Result<Vec<u32>> {
    predictions(model, ids, 1, argmax)
}

/// Returns the passes and the positions that it takes to predict the 63 tokens after the first.
fn cost(model: &dyn Model, predict: Predict) -> Result<[usize; 2]> {
    let ids: Vec<u32> = (4..68).collect();
    let (_, cost) = counted(model, |model| Ok(predict(model, &ids)?))?;
    Ok(cost)
}

pub fn count(tally: &mut Tally) -> Result<()> {
    let model = model("story-3m")?;
    let (before, after) = (cost(&*model, in_a_loop)?, cost(&*model, at_once)?);
    tally.add("passes that predict 63 known tokens", before[0], after[0]);
    tally.add("positions computed in them", before[1], after[1]);
    Ok(())
}

pub fn measure(times: &mut Times) -> Result<()> {
    let model = plain_story()?;
    let mut pass = |name: &str, tokens: u32, logits: Logits| {
        let ids: Vec<u32> = (4..4 + tokens).collect();
        let step = Step::new(&model, &ids, 0)?.with_logits(logits);
        times.measure(name, || model.forward(&step, &mut NoCache))
    };
    for tokens in LENGTHS {
        pass(&format!("pass_{tokens}"), tokens, Logits::Last(1))?;
    }
    pass("one_pass_64", 64, Logits::All)
}

pub fn report(times: &Times, _: &Path) -> Result<()> {
    let first = times.of("pass_50")?;
    for tokens in LENGTHS {
        let seconds = times.of(&format!("pass_{tokens}"))?;
        println!("token after {tokens:3}: {:>9}, {:4.1} times", shown(seconds), seconds / first);
    }
    println!("64 known tokens in one pass: {}", shown(times.of("one_pass_64")?));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_loop_costs_more_than_one_pass() {
        let model = model("story-230k").unwrap();
        assert_eq!(cost(&*model, at_once).unwrap(), [1, 64]);
        assert_eq!(cost(&*model, in_a_loop).unwrap(), [63, 63 * 64 / 2]);
    }
}
