//! Converts LaTeX between dollar signs to MathML, so that pages need no JavaScript and no network.
//!
//! Inline formulas are `$…$`. Display formulas are `$$…$$`, preferably on their own lines. Code is
//! left alone, and `\$` is a literal dollar sign. Characters that Markdown could misread inside a
//! formula are written as numeric entities.

use crate::mathml::{mathml, DisplayMode};
use crate::source::{Line, Page, Problems};
use mdbook_markdown::pulldown_cmark::{Event, Options, Parser as Markdown, Tag, TagEnd};
use std::ops::Range;

/// Replaces every formula on a page.
pub fn render(page: Page, problems: &mut Problems) -> Page {
    let page = display_blocks(page, problems);
    inline(page, problems)
}

/// Replaces each `$$…$$` that is alone on its lines. Markdown never sees its contents.
fn display_blocks(page: Page, problems: &mut Problems) -> Page {
    let blocks = page.code_blocks(&mut Problems::default());
    let in_code = |i: usize| blocks.iter().any(|b| b.body.contains(&i));
    let mut out: Vec<Line> = Vec::new();
    let mut i = 0;
    while i < page.lines.len() {
        let line = &page.lines[i];
        let content = line.text.trim_start_matches([' ', '>']);
        let Some(first) = content.strip_prefix("$$").filter(|_| !in_code(i)) else {
            out.push(line.clone());
            i += 1;
            continue;
        };
        let prefix = line.text[..line.text.len() - content.len()].to_string();
        let one_line = first.trim_end().strip_suffix("$$");
        if one_line.is_none() && first.contains("$$") {
            out.push(line.clone());
            i += 1;
            continue;
        }
        let (latex, next) = match one_line {
            Some(latex) => (latex.to_string(), i + 1),
            None => match closing(&page.lines[i + 1..]) {
                Some((rest, used)) => (format!("{first}\n{rest}"), i + 1 + used),
                None => {
                    problems.add(&line.at, "this $$ has no closing $$ before the next blank line");
                    (String::new(), i + 1)
                }
            },
        };
        let html = match mathml(&latex, DisplayMode::Block) {
            Ok(html) => html,
            Err(message) => {
                problems.add(&line.at, message);
                String::new()
            }
        };
        for text in ["", &format!("<div class=\"formula\">{html}</div>"), ""] {
            let text = format!("{prefix}{text}").trim_end().to_string();
            out.push(Line { text, at: line.at.clone() });
        }
        i = next;
    }
    Page { lines: out }
}

/// Returns the lines through the one that ends with `$$`, and how many there are.
fn closing(lines: &[Line]) -> Option<(String, usize)> {
    let mut latex = String::new();
    for (i, line) in lines.iter().enumerate() {
        let text = line.text.trim_start_matches([' ', '>']).trim_end();
        if let Some(last) = text.strip_suffix("$$") {
            return Some((latex + last, i + 1));
        } else if text.is_empty() {
            return None;
        }
        latex += text;
        latex += "\n";
    }
    None
}

/// Replaces formulas in paragraphs, tables and headings, and reports unpaired dollars.
fn inline(page: Page, problems: &mut Problems) -> Page {
    let text = page.text();
    let mut formulas: Vec<(Range<usize>, String)> = Vec::new();
    let mut in_code = false;
    let mut in_figure = false;
    for (event, range) in Markdown::new_ext(&text, options()).into_offset_iter() {
        let (latex, mode) = match &event {
            Event::InlineMath(latex) => (latex, DisplayMode::Inline),
            Event::DisplayMath(latex) => (latex, DisplayMode::Block),
            Event::Html(_) => {
                match in_html(&text[range.clone()], &mut in_figure) {
                    Ok(found) => formulas.extend(found.into_iter().map(|(part, html)| {
                        (range.start + part.start..range.start + part.end, html)
                    })),
                    Err(message) => problems.add(&page.at(&text, range.start), message),
                }
                continue;
            }
            Event::Start(Tag::CodeBlock(_)) => {
                in_code = true;
                continue;
            }
            Event::End(TagEnd::CodeBlock) => {
                in_code = false;
                continue;
            }
            Event::Text(_) if !in_code => {
                if let Some(offset) = lone_dollar(&text, range) {
                    let why = "an unpaired dollar: write \\$ for a dollar sign, \
                               and in a table, \\mid or \\vert for |";
                    problems.add(&page.at(&text, offset), why);
                }
                continue;
            }
            _ => continue,
        };
        match mathml(latex, mode) {
            Ok(html) => formulas.push((range, html)),
            Err(message) => problems.add(&page.at(&text, range.start), message),
        }
    }
    replace(page, &text, formulas)
}

/// Returns mdBook's own parser options, plus math.
pub fn options() -> Options {
    Options::ENABLE_MATH
        | Options::ENABLE_TABLES
        | Options::ENABLE_FOOTNOTES
        | Options::ENABLE_STRIKETHROUGH
        | Options::ENABLE_TASKLISTS
        | Options::ENABLE_HEADING_ATTRIBUTES
        | Options::ENABLE_DEFINITION_LIST
        | Options::ENABLE_GFM
}

fn lone_dollar(text: &str, range: Range<usize>) -> Option<usize> {
    let dollars = text[range.clone()].match_indices('$').map(|(i, _)| range.start + i);
    dollars.into_iter().find(|&i| !text[..i].ends_with('\\'))
}

/// Returns the formulas in a line of raw HTML, such as a caption. Markdown isn't parsed there.
fn in_html(line: &str, in_figure: &mut bool) -> Result<Vec<(Range<usize>, String)>, String> {
    let figure = *in_figure || line.contains("<svg");
    *in_figure = figure && !line.contains("</svg");
    if line.contains('`') && !line.trim_start().starts_with("<!--") {
        return Err("Markdown isn't parsed inside HTML: write <code>…</code> for `…`".into());
    }
    let dollars: Vec<usize> = line.match_indices('$').map(|(i, _)| i).collect();
    if dollars.len() % 2 == 1 || (figure && !dollars.is_empty()) {
        return Err("a dollar inside HTML that isn't part of a formula: write &#36;".into());
    }
    let formula = |pair: &[usize]| {
        let html = mathml(&line[pair[0] + 1..pair[1]], DisplayMode::Inline)?;
        Ok((pair[0]..pair[1] + 1, html))
    };
    dollars.chunks(2).map(formula).collect()
}

/// Replaces each formula's source with its HTML, which has no line breaks.
fn replace(page: Page, text: &str, formulas: Vec<(Range<usize>, String)>) -> Page {
    let mut lines = Vec::new();
    let mut line = String::new();
    let mut line_start = 0;
    let mut from = 0;
    let end = text.len();
    for (range, html) in formulas.into_iter().chain([(end..end, String::new())]) {
        for (i, piece) in text[from..range.start].split('\n').enumerate() {
            if i > 0 {
                let at = page.at(text, line_start);
                lines.push(Line { text: std::mem::take(&mut line), at });
                line_start = from + (piece.as_ptr() as usize - text[from..].as_ptr() as usize);
            }
            line.push_str(piece);
        }
        line.push_str(&html);
        from = range.end;
    }
    Page { lines }
}

#[cfg(test)]
#[path = "math_tests.rs"]
mod tests;
