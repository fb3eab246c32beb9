//! LaTeX between dollars becomes MathML: no JavaScript, no network.
//!
//! Inline: `$…$`. Display: `$$…$$`, best on lines of its own. Code is left alone, and `\$` is a
//! dollar. What Markdown could misread inside a formula goes out as numeric entities.

use crate::source::{Line, Page, Problems};
use mdbook_markdown::pulldown_cmark::{Event, Options, Parser as Markdown, Tag, TagEnd};
use pulldown_latex::config::DisplayMode;
use pulldown_latex::{push_mathml, Parser, RenderConfig, Storage};
use std::ops::Range;

/// Replaces every formula of a page; also gives their number.
pub fn render(page: Page, problems: &mut Problems) -> (Page, usize) {
    let (page, displayed) = display_blocks(page, problems);
    let (page, inline) = inline(page, problems);
    (page, displayed + inline)
}

/// `$$…$$` that begins and ends on lines of its own; Markdown never sees what is inside.
fn display_blocks(page: Page, problems: &mut Problems) -> (Page, usize) {
    let blocks = page.code_blocks(&mut Problems::default());
    let in_code = |i: usize| blocks.iter().any(|b| b.body.contains(&i));
    let mut out: Vec<Line> = Vec::new();
    let mut count = 0;
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
        count += 1;
        for text in ["", &format!("<div class=\"formula\">{html}</div>"), ""] {
            let text = format!("{prefix}{text}").trim_end().to_string();
            out.push(Line { text, at: line.at.clone() });
        }
        i = next;
    }
    (Page { lines: out }, count)
}

/// The lines up to the one that ends with `$$`, and how many they are.
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

/// The formulas within paragraphs, tables and headings, and dollars that are none.
fn inline(page: Page, problems: &mut Problems) -> (Page, usize) {
    let text = page.text();
    let mut formulas: Vec<(Range<usize>, String)> = Vec::new();
    let mut in_code = false;
    for (event, range) in Markdown::new_ext(&text, options()).into_offset_iter() {
        let (latex, mode) = match &event {
            Event::InlineMath(latex) => (latex, DisplayMode::Inline),
            Event::DisplayMath(latex) => (latex, DisplayMode::Block),
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
                    let why = "a dollar without its pair: write \\$ for a dollar sign, \
                               and in a table \\mid or \\vert for |";
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
    let count = formulas.len();
    (replace(page, &text, formulas), count)
}

/// As mdBook reads a page, with math.
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

/// Puts each formula, one line long, in place of its source.
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

/// One formula as MathML, or what is wrong with it.
fn mathml(latex: &str, mode: DisplayMode) -> Result<String, String> {
    let latex = latex.trim();
    let wrong = |why: &str| format!("cannot read the formula `{latex}`: {why}");
    if latex.is_empty() {
        return Err("this formula is empty".into());
    }
    let storage = Storage::new();
    for event in Parser::new(latex, &storage) {
        if let Err(error) = event {
            let text = error.to_string();
            let short = text.lines().next().unwrap_or_default();
            return Err(wrong(short.trim_start_matches("parsing error: ")));
        }
    }
    let mut html = String::new();
    let config = RenderConfig { display_mode: mode, ..RenderConfig::default() };
    push_mathml(&mut html, Parser::new(latex, &storage), config)
        .map_err(|e| wrong(&e.to_string()))?;
    // TeX sets no space around a slash.
    Ok(guard(&html.replace("<mo>/</mo>", "<mo lspace=\"0\" rspace=\"0\">/</mo>")))
}

/// MathML on one line, in which nothing between the tags means anything to Markdown.
fn guard(html: &str) -> String {
    let mut out = String::with_capacity(html.len() * 2);
    let mut rest = html;
    while let Some(c) = rest.chars().next() {
        // The renderer writes a less-than sign as it is.
        let after = &rest[c.len_utf8()..];
        let opens = after.starts_with(|c: char| c.is_ascii_alphabetic() || c == '/');
        let length = match c {
            '<' if opens => rest.find('>').map_or(rest.len(), |i| i + 1),
            '&' => entity(rest),
            _ => 0,
        };
        if length > 0 {
            out.push_str(&rest[..length]);
            rest = &rest[length..];
            continue;
        }
        match c {
            '\n' => out.push(' '),
            _ if c.is_ascii_punctuation() => out.push_str(&format!("&#{};", c as u32)),
            _ => out.push(c),
        }
        rest = after;
    }
    out
}

/// The length of the entity at the start of `text`, or 0.
fn entity(text: &str) -> usize {
    match text[1..].find(|c: char| !c.is_ascii_alphanumeric() && c != '#') {
        Some(i) if i > 0 && text[1 + i..].starts_with(';') => i + 2,
        _ => 0,
    }
}

#[cfg(test)]
#[path = "math_tests.rs"]
mod tests;
