//! Day 8: how many tokens each cut keeps, on average over a story.

use crate::shared::{held_out_stories, model, tokenizer};
use crate::tally::Tally;
use anyhow::{Context as _, Result};
use candecode::day08_sampling::{min_p, top_k, top_p};
use candecode::kit::{NoCache, Step};

type Cut<'a> = &'a dyn Fn(&mut [f32]) -> candle_core::Result<()>;

/// Returns the mean number of tokens that are left of each row of logits.
fn kept(rows: &[Vec<f32>], cut: Cut) -> Result<f64> {
    let mut kept = 0;
    for row in rows {
        let mut row = row.clone();
        cut(&mut row)?;
        kept += row.iter().filter(|logit| logit.is_finite()).count();
    }
    Ok(kept as f64 / rows.len() as f64)
}

pub fn count(tally: &mut Tally) -> Result<()> {
    let (model, stories) = (model("story-3m")?, held_out_stories(&tokenizer()?)?);
    let step = Step::new(&*model, stories.first().context("a story")?, 0)?;
    let rows = model.forward(&step, &mut NoCache)?.squeeze(0)?.to_vec2::<f32>()?;
    let all = format!("{:.1}", kept(&rows, &|_| Ok(()))?);
    let cuts: [(&str, Cut); 3] = [
        ("tokens to draw from, top-k 50", &|row| top_k(row, 50)),
        ("tokens to draw from, top-p 0.9", &|row| top_p(row, 0.9)),
        ("tokens to draw from, min-p 0.05", &|row| min_p(row, 0.05)),
    ];
    for (name, cut) in cuts {
        tally.add(name, &all, format!("{:.1}", kept(&rows, cut)?));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_looser_cut_keeps_more() {
        let row: Vec<f32> = (0..100).map(|i| -(i as f32) / 10.0).collect();
        let rows = [row.clone(), row];
        assert_eq!(kept(&rows, &|row| top_k(row, 50)).unwrap(), 50.0);
        assert_eq!(kept(&rows, &|row| top_k(row, 51)).unwrap(), 51.0);
        assert_eq!(kept(&rows, &|_| Ok(())).unwrap(), 100.0);
    }
}
