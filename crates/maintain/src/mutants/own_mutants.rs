//! The mutants that `cargo mutants` does not make: numbers one more or less, words exchanged,
//! conditions negated, statements left out. The references are formatted by rustfmt, so lines and
//! indents are enough to find them.

use super::functions::{blanked, functions, named};
use super::Mutant;
use std::ops::Range;

/// Words that are exchanged for each other.
const PAIRS: &[(&str, &str)] = &[
    (".min(", ".max("),
    (".any(", ".all("),
    (".first()", ".last()"),
    (".is_some()", ".is_none()"),
    (".is_some_and(", ".is_none_or("),
    (".saturating_sub(", ".wrapping_sub("),
    ("f32::NEG_INFINITY", "f32::INFINITY"),
    ("f32::NEG_INFINITY", "0.0"),
    ("true", "false"),
    ("break", "continue"),
    ("..=", ".."),
];

/// Calls in the middle of a chain that often could go without an error of the compiler.
const CALLS: &[&str] =
    &["min", "max", "filter", "take", "skip", "take_while", "rev", "trim", "contiguous", "copy"];

/// What begins so is no statement that could go.
const KEPT: &[&str] =
    &["let ", "use ", "pub ", "fn ", "const ", "struct ", "enum ", "impl", "type "];

/// All of them, in the order of the source.
pub fn mutants(source: &str) -> Vec<Mutant> {
    let code = blanked(source);
    let mut found = Vec::new();
    for function in functions(&code) {
        let mut add = |place: Range<usize>, change: &str, replacement: &str| {
            found.push(Mutant::new(source, place, &function.name, change, replacement));
        };
        numbers(&code, &function.body, &mut add);
        words(&code, &function.body, &mut add);
        calls(&code, &function.body, &mut add);
        conditions(source, &code, &function.body, &mut add);
        statements(&code, &function.body, &mut add);
    }
    found
}

/// Takes a place, what changes in words, and the replacement.
type Add<'a> = &'a mut dyn FnMut(Range<usize>, &str, &str);

/// Numbers: one more, one less; `0.5` becomes `1.5`.
fn numbers(code: &str, body: &Range<usize>, add: Add) {
    let mut at = body.start;
    while at < body.end {
        let rest = &code[at..body.end];
        let Some(first) = rest.chars().next() else { return };
        let before = code[..at].chars().next_back().unwrap_or(' ');
        let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '_').unwrap_or(rest.len());
        if !first.is_ascii_digit() || named(before) {
            at += first.len_utf8();
            continue;
        }
        let field = before == '.' && !code[..at].ends_with("..");
        let text = &rest[..digits];
        let tail = &rest[digits..];
        let fraction = tail
            .strip_prefix('.')
            .map_or(0, |tail| tail.find(|c: char| !c.is_ascii_digit()).unwrap_or(tail.len()));
        if fraction > 0 {
            let float = &rest[..digits + 1 + fraction];
            if let (false, Ok(value)) = (rest[float.len()..].starts_with('e'), float.parse::<f64>())
            {
                add(
                    at..at + float.len(),
                    &format!("replace {float} with {:?}", value + 1.0),
                    &format!("{:?}", value + 1.0),
                );
            }
            at += float.len();
            continue;
        }
        if let (false, Ok(value)) = (field, text.replace('_', "").parse::<u64>()) {
            for other in [Some(value + 1), value.checked_sub(1)].into_iter().flatten() {
                add(at..at + digits, &format!("replace {text} with {other}"), &other.to_string());
            }
        }
        at += digits;
    }
}

/// Words exchanged.
fn words(code: &str, body: &Range<usize>, add: Add) {
    for (one, other) in PAIRS {
        for (from, to) in [(*one, *other), (*other, *one)] {
            // Too much of it stands for something else.
            if ["..", "0.0"].contains(&from) {
                continue;
            }
            for (offset, _) in code[body.clone()].match_indices(from) {
                let at = body.start + offset;
                let whole = |c: Option<char>| !c.is_some_and(named);
                let word = from.starts_with(named);
                if word
                    && !(whole(code[..at].chars().next_back())
                        && whole(code[at + from.len()..].chars().next()))
                {
                    continue;
                }
                add(at..at + from.len(), &format!("replace {from} with {to}"), to);
            }
        }
    }
}

/// Calls left out of their chain, with the `?` behind them.
fn calls(code: &str, body: &Range<usize>, add: Add) {
    for call in CALLS {
        let from = format!(".{call}(");
        for (offset, _) in code[body.clone()].match_indices(&from) {
            let at = body.start + offset;
            let mut depth = 0;
            let close = code[at..].find(|c| {
                depth += i32::from(c == '(') - i32::from(c == ')');
                c == ')' && depth == 0
            });
            let Some(close) = close else { continue };
            let mut end = at + close + 1;
            end += usize::from(code[end..].starts_with('?'));
            add(at..end, &format!("leave out .{call}(…)"), "");
        }
    }
}

/// Conditions of one line without a binding, negated.
fn conditions(source: &str, code: &str, body: &Range<usize>, add: Add) {
    for word in ["if ", "while "] {
        for (offset, _) in code[body.clone()].match_indices(word) {
            let at = body.start + offset;
            if code[..at].chars().next_back().is_some_and(named) {
                continue;
            }
            let start = at + word.len();
            let line = code[start..].lines().next().unwrap_or_default();
            let end = line.find(" {").or(line.find(" =>"));
            let Some(end) = end.filter(|_| !line.contains("let ")) else { continue };
            if line.starts_with('!') {
                continue; // without its `!` it is in the other list
            }
            let condition = &source[start..start + end];
            add(
                start..start + end,
                &format!("negate {word}{condition}"),
                &format!("!({condition})"),
            );
        }
    }
}

/// Statements that end with a semicolon, loops, and blocks of `if` without an `else`, left out.
fn statements(code: &str, body: &Range<usize>, add: Add) {
    let mut lines = Vec::new();
    let mut at = body.start;
    for line in code[body.clone()].split_inclusive('\n') {
        let indent = line.len() - line.trim_start().len();
        lines.push((at + indent, line.trim()));
        at += line.len();
    }
    lines.retain(|(_, text)| !text.is_empty());
    for (i, (start, text)) in lines.iter().enumerate() {
        let begins = i == 0 || lines[i - 1].1.ends_with(['{', '}', ';']);
        if !begins || KEPT.iter().any(|word| text.starts_with(word)) {
            continue;
        }
        let block = ["if ", "for ", "while "].iter().any(|word| text.starts_with(word));
        let mut depth = 0;
        for (at, text) in &lines[i..] {
            depth += text.matches(['(', '[', '{']).count() as i32;
            depth -= text.matches([')', ']', '}']).count() as i32;
            let whole = if block { *text == "}" } else { text.ends_with(';') };
            if depth == 0 && whole {
                let what = if block { "leave out the block" } else { "leave out the statement" };
                add(*start..at + text.len(), what, "");
            }
            // What goes on (`else`), or ends without a semicolon, is no statement to leave out.
            let goes_on = depth == 1 && block && text.starts_with("} else");
            if depth < 0 || goes_on || depth == 0 && (whole || block) {
                break;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOURCE: &str = r#"
/// A comment with 7.
pub fn f(x: &mut [f32], n: usize) -> usize {
    if n == 0 {
        bail!("at least 1, got {n}")
    }
    x.iter()
        .for_each(|x| {
            g(x);
        });
    if n > x.1 {
        x.sort();
    } else {
        x.clear()
    }
    let k = n.min(x.len() - 10) + x.0;
    *x = 0.5; // 3
    k
}
"#;

    fn changes() -> Vec<(String, String)> {
        mutants(SOURCE)
            .into_iter()
            .map(|mutant| (mutant.id.line.clone(), mutant.id.change))
            .collect()
    }

    #[test]
    fn numbers_of_code_change_and_no_others() {
        let changes = changes();
        let has = |change: &str| changes.iter().any(|(_, found)| found == change);
        assert!(has("replace 0 with 1") && has("replace 10 with 11") && has("replace 10 with 9"));
        assert!(has("replace 0.5 with 1.5"));
        assert!(!has("replace 1 with 2") && !has("replace 7 with 8") && !has("replace 3 with 4"));
        assert_eq!(changes.iter().filter(|(_, found)| found == "replace 0 with 1").count(), 1);
    }

    #[test]
    fn words_conditions_and_statements_change() {
        let changes = changes();
        let at =
            |line: &str, change: &str| changes.contains(&(line.to_string(), change.to_string()));
        assert!(at("let k = n.min(x.len() - 10) + x.0;", "replace .min( with .max("));
        assert!(at("let k = n.min(x.len() - 10) + x.0;", "leave out .min(…)"));
        assert!(at("if n == 0 {", "negate if n == 0"));
        assert!(at("if n == 0 {", "leave out the block"));
        assert!(at("x.sort();", "leave out the statement"));
        assert!(at("x.iter()", "leave out the statement"));
        assert!(!at("if n > x.1 {", "leave out the block"));
        assert!(!at("x.clear()", "leave out the statement"));
        assert!(at("*x = 0.5; // 3", "leave out the statement"));
    }

    #[test]
    fn what_is_left_out_is_whole() {
        let left =
            mutants(SOURCE).into_iter().find(|mutant| mutant.id.change == "leave out the block");
        let code = left.map(|mutant| mutant.of(SOURCE)).unwrap_or_default();
        assert!(code.contains("usize {\n    \n    x.iter()"), "{code}");
        let left = mutants(SOURCE).into_iter().find(|mutant| mutant.id.line == "x.iter()");
        let code = left.map(|mutant| mutant.of(SOURCE)).unwrap_or_default();
        assert!(code.contains("}\n    \n    if n > x.1 {"), "{code}");
    }
}
