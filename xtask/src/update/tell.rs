//! What an update says when it is done.

use super::{Plan, Step};
use crate::backup;
use crate::compare;
use crate::paint::{paint, Colour};
use crate::say;
use crate::stubs;
use anyhow::{anyhow, Result};
use std::process::ExitCode;

impl Step<'_> {
    /// Says what became of each day, and what is left to do.
    ///
    /// # Errors
    /// If the news cannot be read, or the new stub of a day not be put beside the reader's.
    pub fn tell(&self, from: &str, plans: &[Plan], kept: Option<String>) -> Result<ExitCode> {
        let range = format!("{}..{}", self.base, self.theirs);
        let news =
            self.git.say(&["log", "--no-merges", "--format=%s", "--max-count=10", &range])?;
        say!("{}", paint(Colour::Bold, &format!("The course is what {from} has. New:")));
        news.lines().for_each(|line| say!("  {line}"));
        say!("");
        for plan in plans.iter().filter(|plan| plan.tree.is_some() || plan.by_hand) {
            let (colour, symbol) =
                if plan.by_hand { (Colour::Red, "✗") } else { (Colour::Green, "✓") };
            say!("{} {}  {}", paint(colour, symbol), plan.path, plan.words);
        }
        if let Some(copy) = kept {
            let stamp = copy.split('/').nth(2).unwrap_or_default();
            say!(
                "Copies of the files as they were: {}/{stamp} (`cargo xtask restore {stamp}`)",
                backup::DIR
            );
        }
        for plan in plans.iter().filter(|plan| plan.by_hand) {
            self.by_hand(plan)?;
        }
        say!("\nWhere you are: cargo xtask list");
        Ok(ExitCode::from(u8::from(plans.iter().any(|plan| plan.by_hand))))
    }

    /// Exactly what changed in a stub, for a file that no merge fits.
    fn by_hand(&self, plan: &Plan) -> Result<()> {
        let Some(day) = self.repo.days.iter().find(|day| day.src() == plan.path) else {
            return Ok(());
        };
        let stub = |commit: &str| {
            let source = self.git.file(commit, &day.solution()).unwrap_or_default();
            stubs::stub(&source).map_err(|e| anyhow!("{}: {e}", day.solution()))
        };
        let new = format!(".candecode/new/{}.rs", day.name);
        let (old, text) = (stub(&self.base)?, stub(&self.theirs)?);
        backup::write(&self.repo.root.join(&new), text.as_bytes())?;
        say!(
            "\n{}",
            paint(
                Colour::Bold,
                &format!(
                    "By hand, in {}: lines that you changed have changed in the course, too.",
                    plan.path
                )
            )
        );
        say!("Its new stub is {new}. Make these changes in yours (- goes, + comes):");
        let (old, text): (Vec<&str>, Vec<&str>) = (old.lines().collect(), text.lines().collect());
        for (sign, line) in compare::lines(&old, &text).into_iter().filter(|(sign, _)| *sign != ' ')
        {
            let colour = if sign == '-' { Colour::Red } else { Colour::Green };
            say!("  {}", paint(colour, &format!("{sign} {line}")));
        }
        Ok(())
    }
}
