//! Finds the formulas of a chapter, and separates its prose from code.
//!
//! A formula is `$…$` in a line, or a block of `math`. GitHub reads the text between dollars as
//! Markdown before it reads the formula, so a formula that Markdown could misread is written as
//! `` $`…`$ `` or as a block. [`Chapter::new`] reports formulas that GitHub wouldn't show.

use std::ops::Range;

/// A fenced block of code.
#[derive(Debug, PartialEq)]
pub struct Fence {
    /// The index of the line that opens it.
    pub open: usize,
    /// The index of the line that closes it.
    pub close: usize,
    /// The word after the opening fence, such as `rust`.
    pub info: String,
}

/// A formula.
#[derive(Debug, PartialEq)]
pub struct Formula {
    /// Where it is in the text, with its delimiters. A displayed formula occupies whole lines.
    pub range: Range<usize>,
    /// The formula without its delimiters.
    pub latex: String,
    /// What its lines begin with (such as `> `) if it's displayed, and None in a line of text.
    pub display: Option<String>,
}

/// A chapter, divided into prose, code and formulas.
#[derive(Debug, Default)]
pub struct Chapter {
    /// The fenced blocks, in order.
    pub fences: Vec<Fence>,
    /// The formulas, in order.
    pub formulas: Vec<Formula>,
    /// The text with every byte of code, comments and formulas replaced by a space.
    pub prose: String,
    /// Places of problems in the text, and the problems.
    pub problems: Vec<(usize, String)>,
}

/// Splits the indentation and the marks of quotations from a line.
pub fn prefix(line: &str) -> (&str, &str) {
    line.split_at(line.len() - line.trim_start_matches([' ', '>']).len())
}

/// Returns the number of the line at this place, from 1.
pub fn line_at(text: &str, place: usize) -> usize {
    text[..place].matches('\n').count() + 1
}

impl Chapter {
    /// Divides a text.
    pub fn new(text: &str) -> Self {
        let mut chapter = Chapter { prose: text.to_string(), ..Chapter::default() };
        let mut starts = vec![0];
        starts.extend(text.match_indices('\n').map(|(i, _)| i + 1));
        let lines: Vec<&str> = text.lines().collect();
        // The paragraph that is being read, as a range of lines.
        let mut paragraph = 0..0;
        let mut i = 0;
        while i < lines.len() {
            let (before, content) = prefix(lines[i]);
            let fence = split_fence(content);
            let in_html =
                prefix(lines[paragraph.start.min(i)]).1.starts_with('<') && paragraph.end == i;
            let mut begins = ["|", "#", "- ", "* ", "<!--"].iter().any(|m| content.starts_with(m));
            begins |= content.trim_start_matches(|c: char| c.is_ascii_digit()).starts_with(". ");
            begins &= paragraph.is_empty() || !in_html;
            if fence.is_some() || begins || content.is_empty() {
                chapter.paragraph(text, &starts, paragraph);
                paragraph = i..i;
            }
            let Some((mark, info)) = fence else {
                i += 1;
                paragraph.end = i;
                if content.starts_with("<!--") && content.trim_end().ends_with("-->") {
                    chapter.paragraph(text, &starts, paragraph);
                    paragraph = i..i;
                }
                continue;
            };
            let closes = |line: &&str| {
                let content = prefix(line).1;
                content.starts_with(mark)
                    && content.trim_end().bytes().all(|b| mark.as_bytes()[0] == b)
            };
            let Some(length) = lines[i + 1..].iter().position(closes) else {
                chapter.problems.push((starts[i], "this code block never ends".into()));
                chapter.blank(starts[i]..text.len());
                return chapter;
            };
            let close = i + 1 + length;
            let range = starts[i]..starts[close] + lines[close].len();
            if info == "math" {
                let body = lines[i + 1..close].iter().map(|line| prefix(line).1);
                let latex = body.collect::<Vec<_>>().join("\n");
                chapter.formulas.push(Formula {
                    range: range.clone(),
                    latex,
                    display: Some(before.to_string()),
                });
            }
            chapter.fences.push(Fence { open: i, close, info: info.to_string() });
            chapter.blank(range);
            i = close + 1;
            paragraph = i..i;
        }
        chapter.paragraph(text, &starts, paragraph);
        chapter.refused(text);
        chapter
    }

    /// Reports commands that GitHub refuses, however the formula is written.
    fn refused(&mut self, text: &str) {
        const REFUSED: &str = "\\operatorname";
        for formula in &self.formulas {
            for (i, _) in text[formula.range.clone()].match_indices(REFUSED) {
                let why = format!("GitHub refuses {REFUSED} in formulas: write \\text{{…}}");
                self.problems.push((formula.range.start + i, why));
            }
        }
    }

    /// Replaces a range of the prose by spaces, except for line ends.
    fn blank(&mut self, range: Range<usize>) {
        let spaces: String = self.prose[range.clone()]
            .bytes()
            .map(|b| if b == b'\n' { '\n' } else { ' ' })
            .collect();
        self.prose.replace_range(range, &spaces);
    }

    /// Reads the formulas and the code in the lines of a paragraph.
    fn paragraph(&mut self, text: &str, starts: &[usize], lines: Range<usize>) {
        let Some(start) = starts.get(lines.start).copied().filter(|_| !lines.is_empty()) else {
            return;
        };
        let end = starts.get(lines.end).map_or(text.len(), |start| start - 1);
        let begin = prefix(&text[start..end]).1;
        let html = begin.starts_with('<') && !begin.starts_with("<!--");
        let bytes = text.as_bytes();
        let mut at = start;
        while at < end {
            // Only at an ASCII character, so never inside another one.
            let rest = if bytes[at].is_ascii() { &text[at..end] } else { "" };
            match bytes[at] {
                b'\\' => at += 1,
                b'<' if rest.starts_with("<!--") => {
                    let length = rest.find("-->").map_or(rest.len(), |i| i + 3);
                    self.blank(at..at + length);
                    at += length - 1;
                }
                b'`' | b'$' if html => {
                    let why = "Markdown isn't read inside HTML: write <code>…</code> or <i>…</i>, \
                               and &#36; for a dollar";
                    self.problems.push((at, why.into()));
                    return;
                }
                b'`' => {
                    let mark = &rest[..rest.len() - rest.trim_start_matches('`').len()];
                    let length = code_span(rest, mark).unwrap_or(mark.len());
                    self.blank(at..at + length);
                    at += length - 1;
                }
                b'$' => {
                    let length = self.formula(text, at, end);
                    self.blank(at..at + length);
                    at += length - 1;
                }
                _ => {}
            }
            at += 1;
        }
    }

    /// Reads the formula that begins with the dollar at `at`, and returns its length.
    fn formula(&mut self, text: &str, at: usize, end: usize) -> usize {
        let rest = &text[at..end];
        let mut problem = |why: &str| {
            self.problems.push((at, why.to_string()));
            1
        };
        if rest.starts_with("$`") {
            let Some(length) = rest.find("`$") else {
                return problem("this $` has no closing `$ in its paragraph");
            };
            let latex = rest[2..length].to_string();
            self.formulas.push(Formula { range: at..at + length + 2, latex, display: None });
            return length + 2;
        }
        let closes = |&(i, _): &(usize, &str)| !rest[..i].ends_with('\\');
        let Some((length, _)) = rest.match_indices('$').skip(1).find(closes) else {
            return problem("an unpaired dollar: write \\$ for a dollar sign");
        };
        let latex = &rest[1..length];
        let before = text[..at].chars().next_back().unwrap_or('\n');
        let after = text[at + length + 1..].chars().next().unwrap_or('\n');
        if latex.is_empty() {
            return problem(
                "write a displayed formula as a block of ```math, and \\$ for a dollar",
            );
        } else if latex.contains('\n') {
            return problem("GitHub wants a formula on one line: break the line before it");
        } else if latex.starts_with(' ') || latex.ends_with(' ') {
            return problem(
                "GitHub wants no space after the first $ and before the last: \\$ is a dollar sign",
            );
        } else if before.is_alphanumeric() || before == '-' || after.is_alphanumeric() {
            return problem(
                "GitHub wants no letter, digit or hyphen next to a formula: put a space there",
            );
        }
        if let Some(what) = misread(latex) {
            self.problems
                .push((at, format!("GitHub would misread {what} in this formula: write $`…`$")));
        }
        self.formulas.push(Formula {
            range: at..at + length + 1,
            latex: latex.to_string(),
            display: None,
        });
        length + 1
    }
}

/// Returns the length of a code span, given the text from its opening mark on.
fn code_span(rest: &str, mark: &str) -> Option<usize> {
    let mut from = mark.len();
    loop {
        let at = from + rest[from..].find('`')?;
        let length = rest[at..].len() - rest[at..].trim_start_matches('`').len();
        if length == mark.len() {
            return Some(at + length);
        }
        from = at + length;
    }
}

/// Returns what Markdown would read as its own in a formula between dollars, if anything.
fn misread(latex: &str) -> Option<String> {
    let chars: Vec<char> = latex.chars().collect();
    for (i, &c) in chars.iter().enumerate() {
        let before = i.checked_sub(1).map_or(' ', |i| chars[i]);
        let after = chars.get(i + 1).copied().unwrap_or(' ');
        let emphasis =
            !after.is_whitespace() && before.is_ascii_punctuation() && after.is_alphanumeric();
        let found = match c {
            '\\' => after.is_ascii_punctuation() || after == '\n',
            '*' | '`' | '~' => true,
            '<' => after.is_ascii_alphabetic() || after == '/',
            '_' => before != '\\' && emphasis,
            ']' => after == '(',
            _ => false,
        };
        if found {
            let shown: String = chars[i..(i + 2).min(chars.len())].iter().collect();
            return Some(format!("`{}`", shown.trim()));
        }
    }
    None
}

/// Splits a code fence into its mark and the word after it. None for other lines.
fn split_fence(text: &str) -> Option<(&str, &str)> {
    let mark = text.chars().next().filter(|c| matches!(c, '`' | '~'))?;
    let length = text.len() - text.trim_start_matches(mark).len();
    let info = text[length..].trim();
    (length >= 3 && !info.contains('`')).then_some((&text[..length], info))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn latex(text: &str) -> Vec<String> {
        let chapter = Chapter::new(text);
        assert_eq!(chapter.problems, [], "{text}");
        chapter.formulas.into_iter().map(|formula| formula.latex).collect()
    }

    #[test]
    fn formulas_are_found_and_code_is_left_alone() {
        let text = "A $x_i$, `$no$`, \\$5, ($y$) and $`a\\,b`$.\n\n```sh\n$ cargo $x$\n```\n\
                    | `a$` | $z$ |\n\n```math\na + b\n```\n> ```math\n> c \\\\\n> d\n> ```\n\
                    <!-- $q -->\n";
        assert_eq!(latex(text), ["x_i", "y", "a\\,b", "z", "a + b", "c \\\\\nd"]);
        let chapter = Chapter::new(text);
        assert_eq!(chapter.formulas[5].display.as_deref(), Some("> "));
        assert_eq!(chapter.fences[0], Fence { open: 2, close: 4, info: "sh".into() });
        assert!(!chapter.prose.contains("cargo") && chapter.prose.contains("A "));
    }

    #[test]
    fn what_github_does_not_show_is_a_problem() {
        for (text, want) in [
            ("it costs $5", "an unpaired dollar"),
            ("$ x$", "no space"),
            ("$x\ny$", "one line"),
            ("2$x$", "no letter"),
            ("$\\{x\\}$", "misread `\\{`"),
            ("$a * b$", "misread `*`"),
            ("$\\mathbf{x}_i$", "misread `_i`"),
            ("$$\na \\\\ b\n$$", "```math"),
            ("$\\operatorname{f}(x)$", "refuses \\operatorname"),
            ("$`\\operatorname{f}(x)`$", "refuses \\operatorname"),
            ("> ```math\n> \\operatorname{f}(x)\n> ```", "refuses \\operatorname"),
            ("<summary>What is $x$?</summary>", "inside HTML"),
            ("<summary>`x`</summary>", "inside HTML"),
            ("<summary>About\n10. $x$</summary>", "inside HTML"),
            ("```rust\nx", "never ends"),
        ] {
            let problems = Chapter::new(text).problems;
            assert!(problems.iter().any(|(_, why)| why.contains(want)), "{text}: {problems:?}");
        }
    }
}
