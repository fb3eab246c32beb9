//! Hints: three tiers a task, from `xtask/hints.toml`, and how many of them the reader has seen.

use crate::backup;
use crate::repo::Repo;
use anyhow::{anyhow, Context, Result};
use serde_json::{json, Value};
use std::collections::BTreeMap;
use toml::Table;

/// Where the hints are, relative to the root.
const FILE: &str = "xtask/hints.toml";
/// What was shown, relative to the root.
const SEEN: &str = ".candecode/hints.json";

/// The tiers, from the least help to the most, and what each is called on the screen.
pub const TIERS: [(&str, &str); 3] =
    [("question", "a question"), ("idea", "the idea"), ("shape", "the shape of the code")];

/// All hints: by task, the texts of the tiers.
pub struct Hints(Table);

impl Hints {
    /// Reads the hints.
    ///
    /// # Errors
    /// If the file is absent or no TOML; the text names it and the line.
    pub fn read(repo: &Repo) -> Result<Hints> {
        let table = repo.read(FILE)?.parse().map_err(|e| anyhow!("{FILE}: {e}"))?;
        Ok(Hints(table))
    }

    /// One tier of a task, counted from 0.
    ///
    /// # Errors
    /// If the file has none; the text names task and tier.
    pub fn tier(&self, task: &str, tier: usize) -> Result<&str> {
        let (key, _) = TIERS[tier.min(TIERS.len() - 1)];
        let text = self.0.get(task).and_then(|table| table.get(key)?.as_str());
        let text = text.map(|text| text.trim_matches('\n')).filter(|text| !text.trim().is_empty());
        text.with_context(|| format!("{FILE}: task {task} has no `{key}`"))
    }

    /// Whether every task has every tier, and nothing else is there: a list of what is wrong.
    ///
    /// # Errors
    /// If the reference's task lines cannot be read.
    pub fn complaints(&self, repo: &Repo) -> Result<Vec<String>> {
        let mut complaints = Vec::new();
        let mut known = Vec::new();
        for day in &repo.days {
            known.extend(repo.tasks(day)?.into_iter().map(|task| task.id));
        }
        for task in &known {
            let lacks = (0..TIERS.len()).filter_map(|tier| self.tier(task, tier).err());
            complaints.extend(lacks.map(|problem| format!("{problem:#}")));
        }
        for (task, table) in &self.0 {
            if !known.contains(task) {
                complaints.push(format!("{FILE}: there is no task {task}"));
            }
            for key in table.as_table().into_iter().flat_map(Table::keys) {
                if TIERS.iter().all(|(name, _)| name != key) {
                    complaints.push(format!("{FILE}: task {task} has a `{key}`, which is no tier"));
                }
            }
        }
        Ok(complaints)
    }
}

/// How many tiers of each task the reader has seen. What cannot be read counts as nothing seen.
pub struct Seen(BTreeMap<String, usize>);

impl Seen {
    /// Reads what was shown.
    pub fn read(repo: &Repo) -> Seen {
        let text = repo.read(SEEN).unwrap_or_default();
        let value: Value = serde_json::from_str(&text).unwrap_or_default();
        let pairs = value.as_object().into_iter().flatten();
        let number = |value: &Value| usize::try_from(value.as_u64()?).ok();
        Seen(pairs.filter_map(|(task, n)| Some((task.clone(), number(n)?))).collect())
    }

    /// The tiers of a task that were shown.
    pub fn of(&self, task: &str) -> usize {
        self.0.get(task).copied().unwrap_or(0).min(TIERS.len())
    }

    /// Remembers that so many tiers of a task were shown.
    ///
    /// # Errors
    /// If there is no space or no permission.
    pub fn set(&mut self, repo: &Repo, task: &str, tiers: usize) -> Result<()> {
        self.0.insert(task.to_string(), tiers);
        backup::write(&repo.root.join(SEEN), format!("{}\n", json!(self.0)).as_bytes())
    }
}

/// Prose in lines of at most `width` characters; empty lines part paragraphs.
pub fn wrap(text: &str, width: usize) -> String {
    let paragraph = |text: &str| {
        let mut lines = vec![String::new()];
        for word in text.split_whitespace() {
            let line = lines.last().map_or(0, |line| line.chars().count());
            if line > 0 && line + 1 + word.chars().count() > width {
                lines.push(String::new());
            }
            if let Some(line) = lines.last_mut() {
                line.push_str(if line.is_empty() { "" } else { " " });
                line.push_str(word);
            }
        }
        lines.join("\n")
    };
    text.split("\n\n").map(paragraph).collect::<Vec<_>>().join("\n\n")
}

#[cfg(test)]
mod tests {
    use super::wrap;

    #[test]
    fn prose_is_wrapped_and_paragraphs_stay() {
        assert_eq!(wrap("one two\nthree\n\nfour", 9), "one two\nthree\n\nfour");
        assert_eq!(wrap("a b c", 3), "a b\nc");
        assert_eq!(wrap("longer than that", 4), "longer\nthan\nthat");
    }
}
