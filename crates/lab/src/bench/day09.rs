//! Day 9: how often a text repeats itself.

use crate::shared::{model, request, text_of, tokenizer};
use crate::tally::Tally;
use anyhow::Result;
use candecode::day09_penalties::penalties;
use candecode::kit::{LogitsProcessor, Model, SamplingParams};
use std::collections::BTreeSet;
use std::rc::Rc;

/// Returns the number of times that three tokens in a row have been there before.
fn repeats(text: &[u32]) -> usize {
    let mut seen = BTreeSet::new();
    text.windows(3).filter(|three| !seen.insert(three.to_vec())).count()
}

/// Returns the repeats in a text of 110 tokens that is generated with these processors.
fn with(model: &dyn Model, processors: Vec<Rc<dyn LogitsProcessor>>) -> Result<usize> {
    let tokenizer = tokenizer()?;
    let prompt = tokenizer.encode("The sun was")?;
    let mut request = request(model, &prompt, 110);
    request.processors = processors;
    let text = text_of(model, &tokenizer, request)?;
    Ok(repeats(&[prompt, text].concat()))
}

pub fn count(tally: &mut Tally) -> Result<()> {
    let model = model("story-3m")?;
    let before = with(&*model, vec![])?;
    let asked = SamplingParams::default;
    let params = [
        ("--repetition-penalty 1.2", SamplingParams { repetition_penalty: 1.2, ..asked() }),
        ("--frequency-penalty 0.5", SamplingParams { frequency_penalty: 0.5, ..asked() }),
        ("--no-repeat-ngram 3", SamplingParams { no_repeat_ngram: Some(3), ..asked() }),
    ];
    for (flag, params) in params {
        let name = format!("repeats of three tokens, {flag}");
        tally.add(&name, before, with(&*model, penalties(&params)?)?);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_penalty_that_does_nothing_repeats_as_before() {
        assert_eq!(repeats(&[1, 2, 3, 1, 2, 3, 1]), 2);
        let model = model("story-3m").unwrap();
        let before = with(&*model, vec![]).unwrap();
        let none = SamplingParams { no_repeat_ngram: Some(300), ..SamplingParams::default() };
        assert_eq!(with(&*model, penalties(&none).unwrap()).unwrap(), before);
        let three = SamplingParams { no_repeat_ngram: Some(3), ..none };
        assert_eq!(with(&*model, penalties(&three).unwrap()).unwrap(), 0);
        assert!(before > 10);
    }
}
