//! What becomes of each day.

use super::{Step, DIR};
use crate::moved::{self, Moved};
use crate::repo::Day;
use crate::stubs;
use anyhow::{anyhow, Context, Result};

/// A day's new text in the tree and in the commit, and what to say of it.
pub struct Plan {
    /// Relative to the root.
    pub path: String,
    /// For the working tree; `None`: as it is.
    pub tree: Option<String>,
    /// For the commit; `None`: as it is in HEAD.
    pub commit: Option<String>,
    /// What became of it.
    pub words: String,
    /// Whether lines of the reader's are in it.
    pub yours: bool,
    /// Whether no merge fits.
    pub by_hand: bool,
}

impl Plan {
    /// A file that stays as it is.
    fn leave(path: String, commit: Option<String>, words: &str) -> Plan {
        Plan { path, tree: None, commit, words: words.to_string(), yours: false, by_hand: false }
    }
}

impl Step<'_> {
    /// What becomes of each day. Nothing is written but what a merge needs.
    ///
    /// # Errors
    /// If a reference breaks the rules of its markers, or there is no room.
    pub fn plans(&self) -> Result<Vec<Plan>> {
        let list = self.git.names(&["ls-tree", "-z", "--name-only", &self.theirs, "solutions/"])?;
        let name =
            |path: &String| Some(path.strip_prefix("solutions/")?.strip_suffix(".rs")?.to_string());
        let days = list.iter().filter_map(name).filter_map(|name| Day::from_name(&name));
        days.map(|day| self.plan(&day)).collect()
    }

    fn plan(&self, day: &Day) -> Result<Plan> {
        let path = day.src();
        let new = self.git.file(&self.theirs, &day.solution()).with_context(|| day.solution())?;
        let Some(old) = self.git.file(&self.base, &day.solution()) else {
            let stub = stubs::stub(&new).map_err(|e| anyhow!("{}: {e}", day.solution()))?;
            let mut plan = Plan::leave(path, None, "a new day");
            if !self.repo.root.join(&plan.path).exists() {
                (plan.tree, plan.commit) = (Some(stub.clone()), Some(stub));
            }
            return Ok(plan);
        };
        let dir = self.repo.root.join(DIR);
        let moved = |mine: &str| {
            moved::day(mine, &old, &new, |mine, base, theirs| {
                self.git.merge(&dir, mine, base, theirs)
            })
            .with_context(|| day.solution())
        };
        let text = |moved: &Moved| match moved {
            Moved::Fresh(text) | Moved::Merged(text, _) => Some(text.clone()),
            Moved::Same | Moved::ByHand => None,
        };
        let committed = self.git.file(&self.head, &path);
        let commit = committed.as_deref().map(moved).transpose()?.and_then(|moved| text(&moved));
        let Ok(mine) = self.repo.read(&path) else {
            return Ok(Plan::leave(path, commit, "absent, and left so"));
        };
        let outcome = moved(&mine)?;
        let words = match &outcome {
            Moved::Same => "nothing new".to_string(),
            Moved::Fresh(_) => "the new stub (or reference): no line in it was yours".to_string(),
            Moved::Merged(_, gone) if gone.is_empty() => "yours, in the new signatures".to_string(),
            Moved::Merged(_, gone) => format!(
                "yours, in the new signatures; task {} is gone from the course, and what you wrote for it is in the copy",
                gone.join(", ")
            ),
            Moved::ByHand => "yours, as it was: to be done by hand, see below".to_string(),
        };
        let by_hand = outcome == Moved::ByHand;
        let yours = matches!(outcome, Moved::Merged(..) | Moved::ByHand);
        Ok(Plan { path, tree: text(&outcome), commit, words, yours, by_hand })
    }
}
