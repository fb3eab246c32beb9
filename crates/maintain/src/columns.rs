//! Text for a terminal: lines of a width, and tables of two columns.

/// The width of the first column of [`two`].
const FIRST: usize = 26;
/// The width of a line: a page of the book shows as much without scrolling.
pub const WIDTH: usize = 84;

/// Wraps a text between words, white space joined and control characters left out. Returns at least
/// one line; a word longer than `width` has a line of its own.
pub fn wrap(text: &str, width: usize) -> Vec<String> {
    let shown: String = text.chars().filter(|c| c.is_whitespace() || !c.is_control()).collect();
    let mut lines = vec![String::new()];
    for word in shown.split_whitespace() {
        let line = lines.last_mut().filter(|line| {
            line.is_empty() || line.chars().count() + 1 + word.chars().count() <= width
        });
        match line {
            Some(line) if line.is_empty() => line.push_str(word),
            Some(line) => {
                line.push(' ');
                line.push_str(word);
            }
            None => lines.push(word.to_string()),
        }
    }
    lines
}

/// A table of two columns, each cell wrapped to its column, under a line of headings.
pub fn two(headings: (&str, &str), rows: &[(&str, &str)]) -> Vec<String> {
    let second = WIDTH - FIRST - 2;
    let rule = ("-".repeat(FIRST), "-".repeat(second));
    let head = [headings, (rule.0.as_str(), rule.1.as_str())];
    let mut lines = Vec::new();
    for (left, right) in head.iter().chain(rows) {
        let (left, right) = (wrap(left, FIRST), wrap(right, second));
        for i in 0..left.len().max(right.len()) {
            let cell = |column: &[String]| column.get(i).cloned().unwrap_or_default();
            lines.push(format!("{:<FIRST$}  {}", cell(&left), cell(&right)).trim_end().to_string());
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_wrap_and_controls_go() {
        assert_eq!(wrap("one two\n three", 8), ["one two", "three"]);
        assert_eq!(wrap("\u{1b}[31mred é", 40), ["[31mred é"]);
        assert_eq!(wrap("unbreakable x", 4), ["unbreakable", "x"]);
        assert_eq!(wrap("", 4), [""]);
    }

    #[test]
    fn both_cells_of_a_row_begin_on_one_line() {
        let long = "word ".repeat(20);
        let lines =
            two(("prompt", "text"), &[("Lily", &long), ("Tom and a ball that was big", "x")]);
        assert!(lines[0].starts_with("prompt  ") && lines[0].ends_with("  text"));
        assert!(lines[2].starts_with("Lily  ") && lines[2].ends_with(" word"));
        assert_eq!(lines[3].trim_start(), "word ".repeat(20 - 11).trim_end());
        assert!(lines[4].ends_with("  x") && lines[5] == "big");
        assert!(lines.iter().all(|line| line.chars().count() <= WIDTH));
    }
}
