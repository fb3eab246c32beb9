//! A reference as text: what of it is code, and where its functions are. The references are
//! formatted by rustfmt, so lines and indents are enough.

use std::ops::Range;

/// A function, and where its body is.
pub struct Function {
    /// Its name.
    pub name: String,
    /// The bytes between its braces.
    pub body: Range<usize>,
}

/// The source with blanks in place of comments, strings and characters, byte for byte.
pub fn blanked(source: &str) -> String {
    let mut out = source.as_bytes().to_vec();
    let mut at = 0;
    while at < source.len() {
        let rest = &source[at..];
        let length = if rest.starts_with("//") {
            rest.find('\n').unwrap_or(rest.len())
        } else if rest.starts_with('"') {
            let escaped = |quote: usize| {
                rest[..quote].bytes().rev().take_while(|byte| *byte == b'\\').count() % 2 == 1
            };
            let mut quotes = rest.match_indices('"').skip(1).map(|(quote, _)| quote);
            quotes.find(|quote| !escaped(*quote)).map_or(rest.len(), |quote| quote + 1)
        } else if rest.starts_with('\'') {
            character(rest).unwrap_or(0)
        } else {
            0
        };
        for byte in &mut out[at..at + length] {
            if *byte != b'\n' {
                *byte = b' ';
            }
        }
        at += length.max(rest.chars().next().map_or(1, char::len_utf8));
    }
    String::from_utf8(out).unwrap_or_default()
}

/// The length of a character literal, if it is none of a lifetime.
fn character(rest: &str) -> Option<usize> {
    let mut chars = rest.char_indices().skip(1);
    let (_, first) = chars.next()?;
    let close = if first == '\\' { chars.nth(1) } else { chars.next() };
    close.filter(|(_, c)| *c == '\'').map(|(at, _)| at + 1)
}

/// Every function that has a body of its own lines.
pub fn functions(code: &str) -> Vec<Function> {
    let mut found = Vec::new();
    let (mut at, mut open): (usize, Option<(String, usize, usize)>) = (0, None);
    for line in code.split_inclusive('\n') {
        let (text, indent) = (line.trim(), line.len() - line.trim_start().len());
        let opens = ["fn ", "pub fn "].iter().find_map(|word| text.strip_prefix(word));
        match (&open, opens) {
            (None, Some(rest)) => {
                let end =
                    rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(rest.len());
                open = Some((rest[..end].to_string(), indent, 0));
            }
            (Some((name, column, start)), _) if text == "}" && *column == indent => {
                found.push(Function { name: name.clone(), body: *start..at });
                open = None;
            }
            _ => {}
        }
        at += line.len();
        // The body begins behind the line that ends with the brace of the function.
        if let Some((_, column, start @ 0)) = &mut open {
            if text.ends_with('{') && *column == indent {
                *start = at;
            } else if text.ends_with(';') && *column == indent {
                open = None;
            }
        }
    }
    found
}

/// Items that only a build with some feature has (`#[cfg(feature = "metal")]`): what is changed in
/// them, no check meets.
pub fn of_a_feature(source: &str) -> Vec<Range<usize>> {
    let mut found = Vec::new();
    let (mut at, mut open): (usize, Option<(usize, usize)>) = (0, None);
    for line in source.split_inclusive('\n') {
        let (text, indent) = (line.trim(), line.len() - line.trim_start().len());
        if open.is_none() && text.starts_with("#[cfg(feature") {
            open = Some((at, indent));
        }
        at += line.len();
        let ends = text == "}" || text.ends_with(';');
        if let Some((start, _)) = open.filter(|(_, column)| ends && *column == indent) {
            found.push(start..at);
            open = None;
        }
    }
    found
}

/// Whether a character can be part of a name.
pub fn named(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_strings_and_characters_are_blank() {
        let source = "let a = \"1 \\\" 2\"; // 3\nlet b: &'a str = '4';\n";
        let code = blanked(source);
        assert_eq!(code.len(), source.len());
        assert!(code.contains("let a =") && code.contains("&'a str") && code.contains(';'));
        assert!(!code.contains(|c: char| c.is_ascii_digit()), "{code}");
    }

    #[test]
    fn functions_are_found_with_their_bodies() {
        let code = "trait A {\n    fn a(&self);\n}\npub fn b(\n    x: u8,\n) -> u8 {\n    x\n}\n";
        let found = functions(code);
        assert_eq!(found.len(), 1);
        assert_eq!((found[0].name.as_str(), &code[found[0].body.clone()]), ("b", "    x\n"));
    }

    #[test]
    fn what_only_a_feature_has_is_found() {
        let items = [
            "#[cfg(feature = \"metal\")]\nuse a;\n",
            "fn b() {\n    c();\n}\n",
            "#[cfg(feature = \"metal\")]\nfn d() {\n    e();\n}\n",
            "use f;\n",
        ];
        let source = items.concat();
        let found: Vec<&str> = of_a_feature(&source).into_iter().map(|of| &source[of]).collect();
        assert_eq!(found, [items[0], items[2]]);
    }
}
