//! How a day's known mistakes fail its checks. This doesn't depend on the reader's code, so it is
//! computed once: the runner stores the rows that [`mistakes`](super::proof) sends, and passes the
//! file in `CANDECODE_RECORD`.

use super::Failure;
use std::collections::BTreeMap;

/// A known mistake, and its failures.
#[derive(Debug, serde::Deserialize, serde::Serialize)]
pub struct Row {
    /// Its name in the day's `mistakes.toml`.
    pub name: String,
    /// The message shown when the reader's output equals this mistake's.
    #[serde(rename = "words")]
    pub diagnosis: String,
    /// The failures, by the name of the check.
    pub failures: BTreeMap<String, Failure>,
}

/// Returns the rows of the record, if there is one. Skips lines that aren't rows, such as the
/// first, which holds the record's key.
pub fn rows() -> Option<Vec<Row>> {
    let text = std::fs::read_to_string(std::env::var_os("CANDECODE_RECORD")?).ok()?;
    Some(text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect())
}
