//! JSON as Python's `json.load` reads it, since that's what wrote and reads a model's files.

use serde::de::IgnoredAny;
use serde_json::Value;
use std::borrow::Cow;

/// Parses JSON, with what Python's module adds to the standard: `NaN`, `Infinity`, `-Infinity` and
/// numbers too large for a float become strings, so nothing takes them for a number; half of a
/// surrogate pair becomes U+FFFD.
///
/// # Errors
/// If Python wouldn't read it, either.
pub fn parse(text: &str) -> serde_json::Result<Value> {
    serde_json::from_str(text).or_else(|_| serde_json::from_str(&strict(text)))
}

/// Rewrites Python's JSON as standard JSON, token by token.
fn strict(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while !rest.is_empty() {
        let length = token_length(rest);
        let (token, after) = rest.split_at(length);
        // Ignoring a number checks its grammar, but not its size.
        let infinite = || {
            token.parse().is_ok_and(f64::is_infinite)
                && serde_json::from_str::<IgnoredAny>(token).is_ok()
        };
        let special = ["NaN", "Infinity", "-Infinity"].contains(&token) || infinite();
        // As a string, it could be a key.
        let is_key = || after.trim_start().starts_with(':');
        if token.starts_with('"') {
            out.push_str(&with_whole_pairs(token));
        } else if special && !is_key() {
            out.extend(["\"", token, "\""]);
        } else {
            out.push_str(token);
        }
        rest = after;
    }
    out
}

/// Returns the length of a string with its quotes, of a word or number, or of one other character.
fn token_length(text: &str) -> usize {
    let of_word = |c: char| c.is_ascii_alphanumeric() || ['-', '+', '.'].contains(&c);
    let first = text.chars().next().map_or(0, char::len_utf8);
    if !text.starts_with('"') {
        return text.find(|c| !of_word(c)).unwrap_or(text.len()).max(first);
    }
    let mut escaped = false;
    let end = text[first..].find(|c| {
        let ends = c == '"' && !escaped;
        escaped = c == '\\' && !escaped;
        ends
    });
    end.map_or(text.len(), |end| first + end + 1)
}

/// Replaces each escaped half of a surrogate pair that stands alone.
fn with_whole_pairs(string: &str) -> Cow<'_, str> {
    let unit = |at: usize| {
        let escape = string.get(at..at + 6)?.strip_prefix("\\u")?;
        u16::from_str_radix(escape, 16).ok()
    };
    let mut out = String::new();
    let (mut copied, mut at) = (0, 0);
    while let Some(found) = string[at..].find('\\') {
        at += found;
        match (unit(at), unit(at + 6)) {
            (Some(0xd800..=0xdbff), Some(0xdc00..=0xdfff)) => at += 12,
            (Some(0xd800..=0xdfff), _) => {
                out.extend([&string[copied..at], "\\ufffd"]);
                at += 6;
                copied = at;
            }
            // The escaped character can be a backslash, too.
            _ => at += 1 + string[at + 1..].chars().next().map_or(0, char::len_utf8),
        }
    }
    if copied == 0 {
        return string.into();
    }
    out.push_str(&string[copied..]);
    out.into()
}
