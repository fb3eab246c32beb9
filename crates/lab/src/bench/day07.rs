//! Day 7: what a stop string saves.

use crate::shared::{counted, model, tokenizer};
use crate::tally::Tally;
use anyhow::Result;
use candecode::day07_greedy::{argmax, generate};
use candecode::kit::{Model, Request};

/// Returns the tokens that are generated, and the positions computed for them.
fn cost(model: &dyn Model, stops: &[&str]) -> Result<[usize; 2]> {
    let tokenizer = tokenizer()?;
    let prompt = tokenizer.encode("Lily and her dog")?;
    let (tokens, [_, positions]) = counted(model, |model| {
        let mut request = Request::new(model.config(), &prompt, 128, argmax);
        request.stop_strings = stops.iter().map(|stop| stop.to_string()).collect();
        let tokens = generate(model, &tokenizer, request)?;
        Ok(tokens.collect::<candle_core::Result<Vec<_>>>()?.len())
    })?;
    Ok([tokens, positions])
}

pub fn count(tally: &mut Tally) -> Result<()> {
    let model = model("story-3m")?;
    let (whole, stopped) = (cost(&*model, &[])?, cost(&*model, &["ark. Th"])?);
    tally.add("tokens until the loop ends; before: no stop string", whole[0], stopped[0]);
    tally.add("positions computed for them", whole[1], stopped[1]);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stop_string_that_never_comes_saves_nothing() {
        let model = model("story-3m").unwrap();
        let whole = cost(&*model, &[]).unwrap();
        assert_eq!(cost(&*model, &["xylophone"]).unwrap(), whole);
        assert!(cost(&*model, &["ark. Th"]).unwrap()[1] < whole[1] / 4);
    }
}
