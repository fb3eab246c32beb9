//! What the known mistakes of a day do to its checks. That doesn't depend on the reader's code, so
//! it is computed once: the runner keeps the rows that [`teeth::mistakes`](super::teeth::mistakes)
//! reports, and names the file in `CANDECODE_RECORD`.

use super::Failure;
use std::collections::BTreeMap;

/// A known mistake, and how it fails the checks that it fails.
#[derive(Debug, serde::Deserialize, serde::Serialize)]
pub struct Row {
    /// What it is called in `tests/wrong/`.
    pub name: String,
    /// What the reader is told whose output equals this mistake's.
    #[serde(rename = "words")]
    pub diagnosis: String,
    /// The checks that it fails.
    pub failures: BTreeMap<String, Failure>,
}

/// The rows of the record, if there is one. A line that is no row, as the first with the record's
/// key, is passed over.
pub fn rows() -> Option<Vec<Row>> {
    let text = std::fs::read_to_string(std::env::var_os("CANDECODE_RECORD")?).ok()?;
    Some(text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect())
}
