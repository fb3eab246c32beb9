//! The texts that `cargo xtask compare` compares, as a program prints them.

use anyhow::{Context, Result};
use candecode_course::usage;
use serde::Deserialize;
use std::process::{Command, Stdio};
use xtask::term::wrap;

/// A text, as printed by the engine: one line of JSON.
#[derive(Deserialize)]
pub(crate) struct Text {
    pub(crate) new_ids: Vec<u64>,
    pub(crate) text: String,
    #[serde(default)]
    pub(crate) finish_reason: Option<String>,
    pub(crate) prefill_s: f64,
    pub(crate) decode_s: f64,
    #[serde(default)]
    pub(crate) drafts: Option<Drafts>,
}

impl Text {
    /// Returns the time it took, without loading the model.
    pub(crate) fn seconds(&self) -> f64 {
        self.prefill_s + self.decode_s
    }
}

/// Counts of a text's draft tokens and the passes that verified them.
#[derive(Deserialize)]
pub(crate) struct Drafts {
    pub(crate) accepted: usize,
    pub(crate) drafted: usize,
    pub(crate) passes: usize,
}

/// Runs a command that prints a line of JSON for each prompt.
///
/// # Errors
/// If the command fails. The error has the command's own message, and counts as bad usage if the
/// exit code is 2.
pub(crate) fn texts(mut command: Command, prompts: &[String]) -> Result<Vec<Text>> {
    // In this form, a prompt may begin with a dash.
    command.args(prompts.iter().map(|prompt| format!("--prompt={prompt}")));
    let program = command.get_program().to_string_lossy().into_owned();
    let out = command.stdin(Stdio::null()).output();
    let out = out.with_context(|| format!("{program} can't be started"))?;
    if out.status.success() {
        let lines = String::from_utf8_lossy(&out.stdout);
        return lines.lines().map(|line| serde_json::from_str(line).context("not JSON")).collect();
    }
    let error = String::from_utf8_lossy(&out.stderr);
    // Notes come first.
    let at = error.rfind("\nerror: ").map_or(0, |at| at + 1);
    let message = error[at..].trim().trim_start_matches("error: ").to_string();
    Err(if out.status.code() == Some(2) { usage(message) } else { anyhow::Error::msg(message) })
}

/// Indents a text and wraps it to a width that fits on the book's pages without scrolling.
pub(crate) fn indented(text: &str) -> String {
    let shown: String = text.chars().filter(|c| c.is_whitespace() || !c.is_control()).collect();
    format!("  …{}", wrap(shown.trim_start(), 82).replace('\n', "\n  "))
}

/// Puts a prompt in a column on the left, and its text in one on the right.
pub(crate) fn two_columns(prompt: &str, text: &str) -> String {
    let shown: String = text.chars().filter(|c| c.is_whitespace() || !c.is_control()).collect();
    let (prompt, text) = (wrap(prompt, 24), wrap(shown.trim(), 58));
    let (mut left, mut right) = (prompt.lines(), text.lines());
    let mut lines = Vec::new();
    loop {
        match (left.next(), right.next()) {
            (None, None) => return lines.join("\n"),
            (prompt, text) => {
                let line = format!("{:<26}{}", prompt.unwrap_or(""), text.unwrap_or(""));
                lines.push(line.trim_end().to_string());
            }
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn text(new_ids: &[u64], text: &str) -> Text {
        let (new_ids, text) = (new_ids.to_vec(), text.to_string());
        Text { new_ids, text, finish_reason: None, prefill_s: 1.0, decode_s: 2.0, drafts: None }
    }
    #[cfg(unix)]
    #[test]
    fn an_error_is_the_commands_own_without_its_notes() {
        for (code, said, is_usage) in [(1, "[m on x]\nerror: no", false), (2, "error: no", true)] {
            let mut sh = Command::new("sh");
            sh.args(["-c", "printf \"$1\" >&2; exit $0", &code.to_string(), said]);
            let error = texts(sh, &[]).err().unwrap();
            assert_eq!(error.to_string(), "no");
            assert_eq!(error.is::<candecode_course::Usage>(), is_usage);
        }
    }

    #[test]
    fn a_prompt_stands_next_to_its_text() {
        let got = two_columns("Lily and her dog", &" were in the park.".repeat(4));
        let lines: Vec<&str> = got.lines().collect();
        assert_eq!(lines[0], format!("{:<26}{}", "Lily and her dog", &got[26..lines[0].len()]));
        assert!(lines.len() > 1 && lines[1].starts_with(&" ".repeat(26)), "{got}");
        assert!(lines.iter().all(|line| line.chars().count() <= 84), "{got}");
    }
}
