//! Day 11: what a wider search finds.

use crate::shared::{batch_cache, counted, log_probs, model, tokenizer};
use crate::tally::Tally;
use anyhow::{Context as _, Result};
use candecode::day07_greedy::argmax;
use candecode::day11_beam_search::beam_search;
use candecode::kit::{BeamParams, EarlyStopping, Model, NoCache, Request};

/// Tokens in the text.
const NEW: usize = 16;

/// The log-probability of a text and the positions computed to find it.
struct Found {
    logprob: f64,
    positions: usize,
}

/// Searches for a text of at most [`NEW`] tokens, and scores the one that it finds.
fn search(model: &dyn Model, num_beams: usize) -> Result<Found> {
    let tokenizer = tokenizer()?;
    let prompt = tokenizer.encode("Lily and her dog")?;
    let params = BeamParams {
        num_beams,
        num_return_sequences: 1,
        length_penalty: 0.0,
        early_stopping: EarlyStopping::True,
    };
    let (found, [_, positions]) = counted(model, |model| {
        let mut request = Request::new(model.config(), &prompt, NEW, argmax);
        let mut cache = batch_cache(model);
        Ok(beam_search(model, &tokenizer, &mut request, &params, &mut cache)?)
    })?;
    let text = &found.first().context("a text")?.new_ids;
    let ids = [&prompt[..], text].concat();
    let rows = log_probs(model, &ids, &mut NoCache)?;
    let of = |at: usize| f64::from(rows[at - 1][ids[at] as usize]);
    Ok(Found { logprob: (prompt.len()..ids.len()).map(of).sum(), positions })
}

pub fn count(tally: &mut Tally) -> Result<()> {
    let model = model("story-3m")?;
    let (one, four) = (search(&*model, 1)?, search(&*model, 4)?);
    let shown = |found: &Found| format!("{:.2}", found.logprob);
    tally.add("log-probability of the text; before: 1 beam, now 4", shown(&one), shown(&four));
    tally.add("positions computed", one.positions, four.positions);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wider_search_finds_more_and_costs_more() {
        let model = model("story-3m").unwrap();
        let [one, two, four] = [1, 2, 4].map(|beams| search(&*model, beams).unwrap());
        assert!(one.logprob < four.logprob, "{} {}", one.logprob, four.logprob);
        assert!(one.positions < two.positions && two.positions < four.positions);
    }
}
