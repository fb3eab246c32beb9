//! The known mistakes of a day, and a way to choose among them.

use crate::repo::{Day, Repo};
use anyhow::{anyhow, ensure, Context, Result};
use std::ops::RangeInclusive;
use toml::{Table, Value};

/// A known mistake, as an edit of the reference.
#[derive(Clone, Debug)]
pub struct Mistake {
    /// What it is called in `tests/wrong/`.
    pub name: String,
    /// What is wrong, in words.
    pub diagnosis: String,
    /// What stands in the reference, and what stands here.
    pub edits: Vec<(String, String)>,
}

impl Mistake {
    /// The reference with the mistake in it, and the lines of the reference that it changes, from 1.
    ///
    /// # Errors
    /// If an edit does not fit the reference exactly once.
    pub fn apply(&self, reference: &str) -> Result<(String, Vec<RangeInclusive<usize>>)> {
        let (mut text, mut lines) = (reference.to_string(), Vec::new());
        for (find, replace) in &self.edits {
            ensure!(text.matches(find).count() == 1, "{}: does not fit the reference", self.name);
            if let Some(at) = reference.find(find) {
                let first = reference[..at].matches('\n').count() + 1;
                lines.push(first..=first + find.matches('\n').count());
            }
            text = text.replacen(find, replace, 1);
        }
        Ok((text, lines))
    }
}

/// All known mistakes of a day.
///
/// # Errors
/// If there is no bank of that day, or it lacks something; the text names it.
pub fn read(repo: &Repo, day: &Day) -> Result<Vec<Mistake>> {
    let path = format!("tests/wrong/day{:02}.toml", day.number);
    let table: Table = repo.read(&path)?.parse().map_err(|e| anyhow!("{path}: {e}"))?;
    let entries = table.get("mistake").and_then(Value::as_array).into_iter().flatten();
    entries.map(|entry| mistake(entry).with_context(|| path.clone())).collect()
}

fn mistake(entry: &Value) -> Result<Mistake> {
    let text = |value: &Value, key: &str| {
        let text = value.get(key).and_then(Value::as_str).map(str::to_string);
        text.with_context(|| format!("an entry lacks {key}"))
    };
    let edits = match entry.get("edits").and_then(Value::as_array) {
        Some(edits) => edits.clone(),
        None => vec![entry.clone()],
    };
    let edit = |edit: &Value| -> Result<(String, String)> {
        let plain = |key| Ok::<_, anyhow::Error>(text(edit, key)?.trim_matches('\n').to_string());
        Ok((plain("find")?, plain("replace")?))
    };
    Ok(Mistake {
        name: text(entry, "name")?,
        diagnosis: text(entry, "diagnosis")?,
        edits: edits.iter().map(edit).collect::<Result<_>>()?,
    })
}

/// Chance from a seed: the same hunt again, for whoever asks for its seed (SplitMix64).
pub struct Dice(u64);

impl Dice {
    /// Thrown from this seed on.
    pub fn new(seed: u64) -> Dice {
        Dice(seed)
    }

    /// A number below `n`; 0 if there is none.
    pub fn below(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) % n.max(1) as u64) as usize
    }

    /// All of them, in another order.
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for at in (1..items.len()).rev() {
            items.swap(at, self.below(at + 1));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_edit_is_made_and_its_lines_are_known() {
        let edits = vec![("b\nc".to_string(), "x".to_string()), ("e".into(), "y".into())];
        let mistake = Mistake { name: "m".into(), diagnosis: "d".into(), edits };
        let (text, lines) = mistake.apply("a\nb\nc\nd\ne\n").unwrap();
        assert_eq!((text.as_str(), lines), ("a\nx\nd\ny\n", vec![2..=3, 5..=5]));
        assert!(mistake.apply("b\nc b\nc e").is_err());
    }

    #[test]
    fn a_seed_gives_the_same_order_again() {
        let order = |seed| {
            let mut items: Vec<u32> = (0..20).collect();
            Dice::new(seed).shuffle(&mut items);
            items
        };
        assert_eq!(order(1), order(1));
        assert_ne!(order(1), order(2));
        let mut sorted = order(3);
        sorted.sort_unstable();
        assert_eq!(sorted, (0..20).collect::<Vec<_>>());
    }
}
