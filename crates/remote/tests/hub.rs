//! Tests the download as a value. Downloads themselves are tested with the command.

use candecode_formats::hub::{locate, Download, Repository};
use std::path::PathBuf;

#[test]
fn without_a_download_the_message_names_the_feature() {
    let error = locate("candecode-tests/not-there", None).unwrap_err().to_string();
    for words in ["candecode-tests/not-there is not in the cache", "no feature `hub`"] {
        assert!(error.contains(words), "expected \"{words}\" in: {error}");
    }
}

/// Returns a fixed folder for every repository.
struct Fixed;

impl Download for Fixed {
    fn download(&self, cached: &Repository) -> anyhow::Result<PathBuf> {
        Ok(PathBuf::from("fetched").join(&cached.name))
    }
}

#[test]
fn only_a_model_that_is_not_here_is_downloaded() {
    let place = |name| locate(name, Some(&Fixed)).unwrap();
    assert_eq!(
        place("candecode-tests/not-there"),
        PathBuf::from("fetched/candecode-tests/not-there")
    );
    assert!(place("story-230k").is_dir());
    assert_eq!(place("random-135m"), PathBuf::from("random-135m"));
}
