//! Git, run so that a command does the same whatever the reader's own settings say.

use crate::repo::Repo;
use anyhow::{bail, Context, Result};
use std::process::Command;

/// What holds for one call, before the reader's configuration: the merge driver of the days, no
/// hooks, no signatures that ask for a password, no other way to merge than the plain one, and
/// nothing in the background.
const SETTINGS: [&str; 32] = [
    "merge.ours.driver=true",
    "merge.autoStash=false",
    "merge.conflictStyle=merge",
    "merge.default=text",
    "merge.directoryRenames=false",
    "merge.ff=true",
    "merge.log=false",
    "merge.renames=false",
    "merge.renormalize=false",
    "merge.stat=false",
    "merge.verifySignatures=false",
    "pull.twohead=recursive",
    "rerere.autoUpdate=false",
    "rerere.enabled=false",
    "commit.cleanup=default",
    "commit.gpgSign=false",
    "commit.verbose=false",
    "color.ui=false",
    "core.fsmonitor=false",
    "core.hooksPath=/dev/null",
    "core.ignoreStat=false",
    "core.quotePath=false",
    "core.safecrlf=false",
    "diff.orderFile=/dev/null",
    "fetch.prune=false",
    "gc.auto=0",
    "i18n.commitEncoding=UTF-8",
    "i18n.logOutputEncoding=UTF-8",
    "log.follow=false",
    "log.showSignature=false",
    "maintenance.auto=false",
    "submodule.recurse=false",
];

/// Variables with which git would work on another repository, or read paths in another way: a
/// command that was started by a hook or by `git rebase --exec` has some of them.
const VARIABLES: [&str; 16] = [
    "GIT_ALTERNATE_OBJECT_DIRECTORIES",
    "GIT_ATTR_SOURCE",
    "GIT_COMMON_DIR",
    "GIT_DIR",
    "GIT_EXTERNAL_DIFF",
    "GIT_GLOB_PATHSPECS",
    "GIT_ICASE_PATHSPECS",
    "GIT_INDEX_FILE",
    "GIT_LITERAL_PATHSPECS",
    "GIT_MERGE_AUTOEDIT",
    "GIT_MERGE_VERBOSITY",
    "GIT_NAMESPACE",
    "GIT_NOGLOB_PATHSPECS",
    "GIT_OBJECT_DIRECTORY",
    "GIT_PREFIX",
    "GIT_WORK_TREE",
];

/// What git prints, without the end of the last line.
///
/// # Errors
/// If it cannot be started or fails; the text has its own words.
pub fn git(repo: &Repo, args: &[&str]) -> Result<String> {
    git_with(repo, &[], args)
}

/// [`git`], with more settings for this one call, as `name=value`.
///
/// # Errors
/// As [`git`].
pub fn git_with(repo: &Repo, settings: &[&str], args: &[&str]) -> Result<String> {
    let mut git = Command::new("git");
    for setting in SETTINGS.iter().chain(settings) {
        git.args(["-c", setting]);
    }
    if ["commit", "merge"].contains(&args[0]) && nameless(repo) {
        git.args(["-c", "user.name=reader", "-c", "user.email=reader@localhost"]);
    }
    git.args(args).current_dir(&repo.root);
    for name in VARIABLES {
        git.env_remove(name);
    }
    git.env("LC_ALL", "C").env("GIT_TERMINAL_PROMPT", "0").env("GIT_EDITOR", "true");
    let out = git.output().context("cannot start git")?;
    if !out.status.success() {
        let words = [out.stdout, out.stderr].concat();
        let words = String::from_utf8_lossy(&words).trim().to_string();
        bail!("`git {}` failed: {words}", args.join(" "));
    }
    Ok(String::from_utf8_lossy(&out.stdout).trim_end().to_string())
}

/// Whether git knows no name to commit under.
fn nameless(repo: &Repo) -> bool {
    let mut ask = Command::new("git");
    ask.args(["var", "GIT_COMMITTER_IDENT"]).current_dir(&repo.root);
    !ask.output().is_ok_and(|out| out.status.success())
}

/// The paths that a git command prints one after another, each ended by a NUL (`-z`).
///
/// # Errors
/// As [`git`].
pub fn paths(repo: &Repo, args: &[&str]) -> Result<Vec<String>> {
    let said = git(repo, args)?;
    Ok(said.split('\0').filter(|path| !path.is_empty()).map(str::to_string).collect())
}
