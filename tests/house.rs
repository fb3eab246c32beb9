//! Which part of `src/` may use which: the days use the kit alone, the engine uses the days, and
//! the command uses the engine. Between crates, cargo sees to it.

use std::path::{Path, PathBuf};

/// Rust files directly in a folder or below it.
fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let inside = |path: PathBuf| if path.is_dir() { files(&path) } else { vec![path] };
    entries.flat_map(inside).filter(|path| path.extension().is_some_and(|e| e == "rs")).collect()
}

#[test]
fn arrows_inside_src_point_down() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut sources = files(&root.join("src"));
    sources.extend(files(&root.join("solutions")));
    for file in sources {
        let name = file.strip_prefix(root).unwrap().to_string_lossy().replace('\\', "/");
        let forbidden: &[&str] = match name.as_str() {
            _ if name.contains("/day") => &["cli", "engine", "formats", "kernels"],
            _ if name.starts_with("src/engine/") => &["cli"],
            "src/kernels.rs" | "src/days.rs" => &["cli", "engine", "formats"],
            _ => &[],
        };
        let text = std::fs::read_to_string(&file).unwrap();
        for line in text.lines().filter(|line| !line.trim_start().starts_with("//")) {
            for room in forbidden {
                let used = |krate| line.contains(&format!("{krate}::{room}"));
                assert!(!used("crate") && !used("candecode"), "{name} uses {room}: {line}");
            }
        }
    }
}
