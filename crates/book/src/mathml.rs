//! Converts one formula from LaTeX to MathML that is safe inside Markdown.

pub use pulldown_latex::config::DisplayMode;
use pulldown_latex::{push_mathml, Parser, RenderConfig, Storage};

/// Returns a formula as MathML, or an error message.
pub fn mathml(latex: &str, mode: DisplayMode) -> Result<String, String> {
    let latex = latex.trim();
    let wrong = |why: &str| format!("cannot parse the formula `{latex}`: {why}");
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
    // For `\Bigl(`, the renderer omits the space before this attribute.
    let html = html.replace("\"minsize=", "\" minsize=");
    // TeX puts no space around a slash.
    Ok(guard(&html.replace("<mo>/</mo>", "<mo lspace=\"0\" rspace=\"0\">/</mo>")))
}

/// Puts MathML on one line, and escapes everything between tags that Markdown could interpret.
fn guard(html: &str) -> String {
    let mut out = String::with_capacity(html.len() * 2);
    let mut rest = html;
    while let Some(c) = rest.chars().next() {
        // The renderer doesn't escape less-than signs.
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

/// Returns the length of the entity at the start of `text`, or 0.
fn entity(text: &str) -> usize {
    match text[1..].find(|c: char| !c.is_ascii_alphanumeric() && c != '#') {
        Some(i) if i > 0 && text[1 + i..].starts_with(';') => i + 2,
        _ => 0,
    }
}
