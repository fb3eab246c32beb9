//! What Rust's test harness prints: the fallback where a test left no report, and the reader's own output.

use std::collections::BTreeMap;

/// The harness's word for one test.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It returned.
    Ok,
    /// It panicked.
    Failed,
    /// It is marked `#[ignore]`.
    Ignored,
}

/// The tests that `--list --format terse` names.
pub fn list(stdout: &str) -> Vec<String> {
    stdout.lines().filter_map(|line| line.strip_suffix(": test")).map(str::to_string).collect()
}

/// `test NAME ... ok` and its like.
pub fn results(stdout: &str) -> BTreeMap<String, Verdict> {
    stdout.lines().filter_map(result).collect()
}

/// One line, if it tells a result.
pub fn result(line: &str) -> Option<(String, Verdict)> {
    let (name, verdict) = line.strip_prefix("test ")?.split_once(" ... ")?;
    let name = name.strip_suffix(" - should panic").unwrap_or(name);
    let verdict = match verdict.split([' ', ',']).next()? {
        "ok" => Verdict::Ok,
        "FAILED" => Verdict::Failed,
        "ignored" => Verdict::Ignored,
        _ => return None,
    };
    Some((name.to_string(), verdict))
}

/// What each failing test printed: the sections `---- NAME stdout ----`.
pub fn outputs(stdout: &str) -> BTreeMap<String, String> {
    let mut sections: BTreeMap<String, String> = BTreeMap::new();
    let mut current: Option<String> = None;
    for line in stdout.lines() {
        let head = line.strip_prefix("---- ").and_then(|rest| rest.strip_suffix(" stdout ----"));
        match (head, &current) {
            (Some(name), _) => current = Some(name.to_string()),
            (None, _) if line == "failures:" => current = None,
            (None, Some(name)) => {
                let text = sections.entry(name.clone()).or_default();
                text.push_str(line);
                text.push('\n');
            }
            (None, None) => {}
        }
    }
    sections
}

/// Passed and failed, summed over all `test result:` lines of a `cargo test`.
pub fn totals(stdout: &str) -> (usize, usize) {
    let (mut passed, mut failed) = (0, 0);
    for line in stdout.lines().filter(|line| line.starts_with("test result:")) {
        let words: Vec<&str> = line.split_whitespace().collect();
        let before = |word: &str| {
            let at = words.iter().position(|w| *w == word)?;
            words.get(at.checked_sub(1)?)?.parse::<usize>().ok()
        };
        passed += before("passed;").unwrap_or(0);
        failed += before("failed;").unwrap_or(0);
    }
    (passed, failed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn totals_are_summed() {
        let stdout = "test result: ok. 3 passed; 0 failed; 1 ignored;\nx\ntest result: FAILED. 2 passed; 1 failed; 0";
        assert_eq!(totals(stdout), (5, 1));
    }

    #[test]
    fn names_come_from_the_list() {
        assert_eq!(list("task_6_1_a: test\nb: benchmark\n"), ["task_6_1_a"]);
    }
}
