//! Parses the output of Rust's test harness: test names, verdicts, and what each test printed.

use std::collections::BTreeMap;

/// The harness's verdict on one test.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It passed.
    Ok,
    /// It panicked or returned an error.
    Failed,
    /// It is marked `#[ignore]`.
    Ignored,
}

/// Returns the names of the tests in the output of `--list --format terse`.
pub fn list(stdout: &str) -> Vec<String> {
    stdout.lines().filter_map(|line| line.strip_suffix(": test")).map(str::to_string).collect()
}

/// Parses all lines such as `test NAME ... ok`.
pub fn results(stdout: &str) -> BTreeMap<String, Verdict> {
    stdout.lines().filter_map(result).collect()
}

/// Parses one line. Returns `None` if it isn't a result.
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

/// Returns each test's output, from the sections `---- NAME stdout ----`.
pub fn outputs(stdout: &str) -> BTreeMap<String, String> {
    let mut sections: BTreeMap<String, String> = BTreeMap::new();
    let mut current: Option<String> = None;
    for line in stdout.lines() {
        let head = line.strip_prefix("---- ").and_then(|rest| rest.strip_suffix(" stdout ----"));
        match (head, &current) {
            (Some(name), _) => current = Some(name.to_string()),
            (None, _) if line == "failures:" || line == "successes:" => current = None,
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

/// Returns what the code under test printed: `output` without the lines the harness adds for this
/// message.
pub fn own_output(output: &str, message: &str) -> String {
    let first = message.lines().next().unwrap_or_default();
    let harness = |line: &&str| {
        (!first.is_empty() && line.strip_prefix("Error: ").is_some_and(|said| said == first))
            || (line.starts_with("thread '") && line.contains(" panicked at "))
            || line.starts_with("note: the test returned a termination value")
    };
    let own: Vec<&str> = output.lines().take_while(|line| !harness(line)).collect();
    own.join("\n").trim_end().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_output_excludes_the_harness_failure_message() {
        let output = "one\ntwo\nError: task 6.1 · x\n  got 3\n\n";
        assert_eq!(own_output(output, "task 6.1 · x\n  got 3"), "one\ntwo");
        assert_eq!(own_output("a\n\nthread 'x' (7) panicked at tests/a.rs:3:\n", ""), "a");
        assert_eq!(own_output("a\n", ""), "a");
    }

    #[test]
    fn list_returns_tests_but_not_benchmarks() {
        assert_eq!(list("task_6_1_a: test\nb: benchmark\n"), ["task_6_1_a"]);
    }
}
