//! The commits of an update, made beside the tree and the reader's index.

use super::{is_day, Plan, Step, DIR};
use anyhow::{bail, Context, Result};
use std::collections::BTreeMap;

impl Step<'_> {
    /// A tree with all files but the days as they shall be.
    ///
    /// # Errors
    /// If the reader and the course changed the same files.
    pub fn files(&self) -> Result<String> {
        let others = |commit: &str| -> Result<Vec<String>> {
            let mut names = self.git.names(&["diff", "--name-only", "-z", &self.base, commit])?;
            names.retain(|path| !is_day(path));
            Ok(names)
        };
        if others(&self.head)?.is_empty() || self.git.is_behind(&self.theirs, &self.head) {
            let newer = if self.git.is_behind(&self.theirs, &self.head) {
                &self.head
            } else {
                &self.theirs
            };
            return Ok(newer.clone());
        }
        let merge = [
            "merge-tree",
            "--write-tree",
            "--name-only",
            "--no-messages",
            "-z",
            &self.head,
            &self.theirs,
        ];
        let (code, out, err) = self.git.run(&merge, "")?;
        let mut parts = out.split('\0').filter(|part| !part.is_empty());
        let tree = parts.next().map(str::to_string);
        let mut conflicts: Vec<String> = parts.map(str::to_string).collect();
        conflicts.retain(|path| !is_day(path));
        match (code, tree) {
            (0 | 1, Some(tree)) if conflicts.is_empty() => Ok(tree),
            (1, Some(_)) => bail!(
                "you and the course changed the same files: {}\nnothing was changed. Undo your commits to them \
                 (`git checkout {} -- FILE`, then commit), or merge them yourself: `git merge {}`",
                conflicts.join(", "),
                &self.base[..12],
                &self.theirs[..12]
            ),
            _ => bail!("you committed changes to files of the course, and this git cannot merge them beside the tree (2.38 can): {}", err.trim()),
        }
    }

    /// A commit of `files`, with the days as they are in HEAD, or as they shall be.
    ///
    /// # Errors
    /// If git has no room.
    pub fn commit(&self, files: &str, plans: &[Plan], moved: bool) -> Result<String> {
        let index = self.repo.root.join(DIR).join("index");
        std::fs::create_dir_all(self.repo.root.join(DIR)).context(DIR)?;
        let git = self.git.with_index(&index);
        git.say(&["read-tree", files])?;
        let mut lines: BTreeMap<String, String> = BTreeMap::new();
        let old = git.names(&["ls-tree", "-z", "-r", &self.head, "src/"])?;
        for line in old {
            let Some((entry, path)) = line.split_once('\t').filter(|(_, path)| is_day(path)) else {
                continue;
            };
            let mut parts = entry.split(' ');
            if let (Some(mode), Some(id)) = (parts.next(), parts.nth(1)) {
                lines.insert(path.to_string(), format!("{mode} {id}\t{path}\n"));
            }
        }
        for plan in plans.iter().filter(|_| moved) {
            if let Some(text) = &plan.commit {
                let id = git.feed(&["hash-object", "-w", "--stdin"], text)?;
                lines.insert(plan.path.clone(), format!("100644 {}\t{}\n", id.trim(), plan.path));
            }
        }
        git.feed(
            &["update-index", "--add", "--index-info"],
            &lines.into_values().collect::<String>(),
        )?;
        let tree = git.say(&["write-tree"])?;
        let of = |commit: &str| self.git.say(&["rev-parse", &format!("{commit}^{{tree}}")]).ok();
        for commit in [&self.theirs, &self.head] {
            let other = if commit == &self.theirs { &self.head } else { &self.theirs };
            if of(commit).as_ref() == Some(&tree) && self.git.is_behind(other, commit) {
                return Ok(commit.clone());
            }
        }
        let mut args = Vec::new();
        if self.git.say(&["var", "GIT_COMMITTER_IDENT"]).is_err() {
            args.extend(["-c", "user.name=reader", "-c", "user.email=reader@localhost"]);
        }
        args.extend(["commit-tree", &tree, "-p", &self.head]);
        if !self.git.is_behind(&self.theirs, &self.head) {
            args.extend(["-p", &self.theirs]);
        }
        args.extend(["-m", "Bring the course up to date"]);
        self.git.say(&args)
    }
}
