//! Python packages that a stage needs: in a virtual environment of its own, in `target/`.

use anyhow::{Context as _, Result};
use std::path::PathBuf;
use std::process::Command;
use xtask::cargo;
use xtask::repo::Repo;

/// A Python with the packages of a `requirements.txt`, made once; or why there is none.
pub fn environment(repo: &Repo, name: &str, wanted: &str) -> Result<Result<PathBuf, String>> {
    let dir = cargo::target_dir(repo).join(name);
    let python = dir.join(if cfg!(windows) { "Scripts/python.exe" } else { "bin/python" });
    let list = repo.root.join(wanted);
    let done = dir.join("complete");
    if std::fs::read(&done).ok() == Some(std::fs::read(&list).context(wanted.to_string())?) {
        return Ok(Ok(python));
    }
    let made = Command::new("python3").args(["-m", "venv"]).arg(&dir).status();
    if !made.is_ok_and(|status| status.success()) {
        return Ok(Err("there is no python3 with venv here".to_string()));
    }
    let mut pip = Command::new(&python);
    pip.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "-r"]).arg(&list);
    if !pip.status().is_ok_and(|status| status.success()) {
        return Ok(Err(format!("pip cannot bring what {wanted} names")));
    }
    std::fs::copy(&list, &done)?;
    Ok(Ok(python))
}
