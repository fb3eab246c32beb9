//! Builds the reference's engine, or the engine with a known mistake.
//!
//! The mistake is in a copy of the course, in the target directory. The copy's `src/` holds one day
//! of the reference with the mistake applied, and all other days are compiled from the reference.
//! The reader's `src/` isn't touched.

use anyhow::{bail, Context, Result};
use candecode_course::{Day, Mistake, Repo};
use std::fs;
use std::path::{Path, PathBuf};
use xtask::backup;
use xtask::cargo::{self, Built};

/// Builds the reference's engine.
///
/// # Errors
/// If it can't be built.
pub fn reference(repo: &Repo, feature: Option<&str>) -> Result<PathBuf> {
    build(repo, &repo.root, repo.features(|_| true), feature, "reference")
}

/// Builds the engine with a known mistake.
///
/// # Errors
/// If it can't be built.
pub fn mistaken(
    repo: &Repo,
    day: &Day,
    mistake: &Mistake,
    feature: Option<&str>,
) -> Result<PathBuf> {
    let (course, features) = mistaken_course(repo, day, mistake)?;
    build(repo, &course, features, feature, &mistake.name)
}

/// Creates a copy of the course with a known mistake in its `src/`. Returns its path, and the
/// features that compile all other days from the reference.
///
/// # Errors
/// If the copy can't be written.
pub fn mistaken_course(
    repo: &Repo,
    day: &Day,
    mistake: &Mistake,
) -> Result<(PathBuf, Vec<String>)> {
    let course = dir(repo).join("course");
    copy_changed(&repo.root, &course, &cargo::target_dir(repo))?;
    // The compiler may have something to say about a mistake.
    let text = mistake.change.applied_to(&repo.read(&day.solution())?);
    let text = text.with_context(|| format!("{}: {}", day.mistakes(), mistake.name))?;
    let text = format!("#![allow(warnings)]\n{text}");
    backup::write(&course.join(day.src()), text.as_bytes())?;
    Ok((course, repo.features(|other| other != day)))
}

/// Returns the known mistake with this day and name.
///
/// # Errors
/// If it doesn't exist.
pub fn named(repo: &Repo, day: &str, name: &str) -> Result<(Day, Mistake)> {
    let day = repo.day(day)?;
    let found = repo.mistakes(day)?.mistakes.into_iter().find(|mistake| mistake.name == name);
    let found = found.with_context(|| format!("day {} has no mistake `{name}`", day.number))?;
    Ok((day.clone(), found))
}

fn dir(repo: &Repo) -> PathBuf {
    cargo::target_dir(repo).join("xtask/mistaken")
}

/// Builds an engine and copies the program, because the next build overwrites it.
fn build(
    repo: &Repo,
    course: &Path,
    features: Vec<String>,
    feature: Option<&str>,
    name: &str,
) -> Result<PathBuf> {
    let days = features.iter().map(|day| format!("candecode/{day}"));
    let features: Vec<String> = days.chain(feature.map(str::to_string)).collect();
    let manifest = course.join("Cargo.toml").display().to_string();
    let target = cargo::target_dir(repo).display().to_string();
    let features = features.join(",");
    let args = ["--manifest-path", &manifest, "--target-dir", &target, "--offline"];
    let args = [&args[..], &["--package", "candecode-cli", "--features", &features]].concat();
    let args: Vec<String> = args.into_iter().map(str::to_string).collect();
    let next = format!("Building the engine ({name}).");
    let Built::Done(programs) = cargo::build(repo, "build", &args, &next)? else {
        bail!("the engine doesn't build; `cargo xtask doctor` checks for common causes");
    };
    let kept = dir(repo).join(format!("{name}{}", std::env::consts::EXE_SUFFIX));
    fs::create_dir_all(dir(repo)).with_context(|| kept.display().to_string())?;
    fs::copy(programs.get("candecode")?, &kept).with_context(|| kept.display().to_string())?;
    Ok(kept)
}

/// Directories that an engine doesn't need. It doesn't need hidden ones either, except `.cargo`.
const LEFT_OUT: [&str; 4] = ["target", "book", "models", "oracle"];

/// Returns whether an engine needs the directory. Cargo's target directory may have any name, and
/// the copy is inside it. Links to directories aren't followed.
fn is_needed(dir: &Path, target: &Path) -> bool {
    let name = dir.file_name().unwrap_or_default().to_string_lossy();
    let hidden = name.starts_with('.') && name != ".cargo";
    let is_target = fs::canonicalize(dir).ok() == fs::canonicalize(target).ok();
    if hidden || is_target || dir.is_symlink() {
        return false;
    }
    let is_member = dir.join("Cargo.toml").exists();
    is_member || !LEFT_OUT.contains(&&*name)
}

/// Updates the copy to match the course, except for the directories that an engine doesn't need.
/// Skips files with equal contents, because cargo rebuilds based on modification times.
fn copy_changed(from: &Path, to: &Path, target: &Path) -> Result<()> {
    for entry in fs::read_dir(from).with_context(|| from.display().to_string())? {
        let (path, name) = entry.map(|entry| (entry.path(), entry.file_name()))?;
        if path.is_dir() {
            if is_needed(&path, target) {
                copy_changed(&path, &to.join(name), target)?;
            }
            continue;
        }
        let mut bytes = fs::read(&path).with_context(|| path.display().to_string())?;
        if name == "Cargo.toml" {
            bytes = another_version(&String::from_utf8_lossy(&bytes)).into_bytes();
        }
        if fs::read(to.join(&name)).ok().as_ref() != Some(&bytes) {
            fs::create_dir_all(to)?;
            fs::write(to.join(&name), bytes).with_context(|| path.display().to_string())?;
        }
    }
    Ok(())
}

/// Returns a manifest with a different version of the workspace. Within one target directory, cargo
/// tells packages apart by name and version, so with equal versions it would mistake the copy's
/// library for the reader's.
fn another_version(manifest: &str) -> String {
    let version = "[workspace.package]\nversion = \"";
    match manifest.split_once(version) {
        Some((before, after)) => {
            format!("{before}{version}{}", after.replacen('"', "-copy\"", 1))
        }
        None => manifest.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use toml::Table;

    fn course() -> Repo {
        Repo::open(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")).unwrap()
    }

    #[test]
    fn the_copy_has_a_different_package_version() {
        let ours = course().read("Cargo.toml").unwrap();
        let copy = another_version(&ours);
        let version = |manifest: &str| -> String {
            let table: Table = manifest.parse().unwrap();
            table["workspace"]["package"]["version"].as_str().unwrap().to_string()
        };
        assert_eq!(version(&copy), version(&ours) + "-copy");
    }

    #[test]
    fn the_copy_contains_exactly_the_files_cargo_needs() {
        let root = std::env::temp_dir().join(format!("candecode-copy-{}", std::process::id()));
        let (build, course) = (root.join("build"), root.join("build/course"));
        let needed = ["Cargo.toml", "src/lib.rs", ".cargo/config.toml", "book/Cargo.toml"];
        let needless = ["build/debug/a", ".venv/bin/python", "models/a.gguf"];
        for path in needed.iter().chain(&needless) {
            backup::write(&root.join(path), b"").unwrap();
        }
        copy_changed(&root, &course, &build).unwrap();
        assert!(needed.iter().all(|path| course.join(path).is_file()));
        assert!(!needless.iter().any(|path| course.join(path).exists()));
        fs::remove_dir_all(root).unwrap();
    }
}
