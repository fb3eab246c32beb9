//! Day 6: the pass for the next token without a cache, against the length of the text.

use crate::shared::plain_story;
use crate::times::{shown, Times};
use anyhow::Result;
use candecode::kit::{Logits, Model, NoCache, Step};
use std::path::Path;

/// Text lengths in tokens.
const LENGTHS: [u32; 6] = [50, 100, 200, 300, 400, 500];

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
