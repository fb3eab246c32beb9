//! Whether the clone is old, or in the middle of something.

use super::Finding::{self, Bad, Good, Note};
use crate::git::Git;
use crate::lift;
use crate::progress::{self, Progress};
use crate::repo::{Day, Repo};
use anyhow::Result;
use std::time::{Duration, SystemTime};

/// News older than this are worth a look.
const OLD: Duration = Duration::from_secs(30 * 24 * 60 * 60);

/// What git knows without a network, and what the days lack.
pub fn findings(repo: &Repo) -> Vec<Finding> {
    let mut findings = Vec::new();
    if repo.root.join(".candecode/update/journal").exists() {
        let what = "an update of the course did not end".to_string();
        findings.push(Bad(what, "`cargo xtask update` goes on with it".into()));
    }
    match Git::open(repo) {
        Ok(git) => findings.extend(behind(repo, &git)),
        Err(problem) => {
            findings.push(Note(format!("the course cannot be kept up to date: {problem:#}")))
        }
    }
    for day in &repo.days {
        findings.extend(old_file(repo, day).ok().flatten());
    }
    findings
}

/// How far the clone is behind what was fetched last, and how long ago that was.
fn behind(repo: &Repo, git: &Git) -> Option<Finding> {
    let refs = [
        "refs/remotes/upstream/HEAD",
        "refs/remotes/upstream/main",
        "refs/remotes/origin/HEAD",
        "refs/remotes/origin/main",
    ];
    let known = refs
        .into_iter()
        .find(|name| git.say(&["rev-parse", "--verify", "--quiet", name]).is_ok())?;
    let count = git.say(&["rev-list", "--count", &format!("HEAD..{known}")]).ok()?;
    let fetched = git.say(&["rev-parse", "--git-path", "FETCH_HEAD"]).ok()?;
    let when = std::fs::metadata(repo.root.join(fetched)).and_then(|meta| meta.modified()).ok();
    let age = when.and_then(|at| SystemTime::now().duration_since(at).ok());
    let days = age.map(|age| age.as_secs() / 86_400);
    let name = known.trim_start_matches("refs/remotes/").trim_end_matches("/HEAD");
    let ago = days.map_or(String::new(), |days| format!(", as of {days} days ago"));
    Some(match (count.as_str(), age) {
        ("0", Some(age)) if age > OLD => Note(format!(
            "the course was last looked for news {} days ago: `cargo xtask update` looks",
            age.as_secs() / 86_400
        )),
        ("0", _) => Good(format!("the clone has all that {name} had{ago}")),
        (n, _) => Note(format!(
            "the clone is {n} commits behind {name}{ago}: `cargo xtask update` brings them"
        )),
    })
}

/// A begun day that lacks a function of the course: its file is of an older version.
fn old_file(repo: &Repo, day: &Day) -> Result<Option<Finding>> {
    if !matches!(progress::of(repo, day)?, Progress::Begun(_)) {
        return Ok(None);
    }
    let (mine, reference) = (repo.read(&day.src())?, repo.read(&day.solution())?);
    let (mine, reference): (Vec<_>, Vec<_>) = (mine.lines().collect(), reference.lines().collect());
    let lacks = |id: &str| {
        let place = lift::function_of(&reference, id);
        place.is_some_and(|(name, nth)| lift::body(&mine, &name, nth).is_none())
    };
    let ids: Vec<String> = repo.tasks(day)?.into_iter().map(|task| task.id).collect();
    let lacking: Vec<String> = ids.into_iter().filter(|id| lacks(id)).collect();
    Ok((!lacking.is_empty()).then(|| {
        Bad(
            format!("{} has no function for task {}: it is of an older version of the course, or was renamed", day.src(), lacking.join(", ")),
            format!("take it from the stub: `cargo xtask reset day{}` puts it there, `restore` brings yours back, then copy", day.number),
        )
    }))
}
