//! A small scanner for HTML tags: enough to check pages, not to change them.

/// One tag, its attributes as written, and where it starts.
#[derive(Debug, PartialEq)]
pub struct Tag<'a> {
    pub name: &'a str,
    pub closing: bool,
    /// Ends with `/>`.
    pub empty: bool,
    pub attributes: Vec<(&'a str, &'a str)>,
    pub offset: usize,
}

impl Tag<'_> {
    /// The value of an attribute, entities as written.
    pub fn get(&self, name: &str) -> Option<&str> {
        let wanted = |(key, _): &&(&str, &str)| key.eq_ignore_ascii_case(name);
        self.attributes.iter().find(wanted).map(|(_, value)| *value)
    }

    /// The words of `class`.
    pub fn classes(&self) -> impl Iterator<Item = &str> {
        self.get("class").unwrap_or_default().split_whitespace()
    }
}

/// All tags in order. Comments, declarations, scripts and style sheets are passed over.
pub fn tags(html: &str) -> Vec<Tag<'_>> {
    let mut found = Vec::new();
    let mut at = 0;
    while let Some(start) = html[at..].find('<').map(|i| at + i) {
        let rest = &html[start..];
        if rest.starts_with("<!--") {
            at = rest.find("-->").map_or(html.len(), |end| start + end + 3);
            continue;
        }
        let Some((tag, length)) = read_tag(rest, start) else {
            at = start + 1;
            continue;
        };
        at = start + length;
        let raw = matches!(tag.name, "script" | "style") && !tag.closing && !tag.empty;
        if raw {
            let end = format!("</{}", tag.name);
            at = html[at..].find(&end).map_or(html.len(), |i| at + i);
        }
        found.push(tag);
    }
    found
}

/// Reads the tag at the start of `text`; gives it and its length.
fn read_tag(text: &str, offset: usize) -> Option<(Tag<'_>, usize)> {
    let closing = text.starts_with("</");
    let name_start = if closing { 2 } else { 1 };
    let name_length = text[name_start..].find(|c: char| !c.is_ascii_alphanumeric() && c != '-')?;
    let name = &text[name_start..name_start + name_length];
    if !name.starts_with(|c: char| c.is_ascii_alphabetic()) {
        return None;
    }
    let mut tag = Tag { name, closing, empty: false, attributes: Vec::new(), offset };
    let mut at = name_start + name_length;
    loop {
        at += text[at..].len() - text[at..].trim_start().len();
        let rest = &text[at..];
        if rest.starts_with('>') {
            return Some((tag, at + 1));
        } else if rest.starts_with("/>") {
            tag.empty = true;
            return Some((tag, at + 2));
        } else if rest.starts_with('/') {
            at += 1;
            continue;
        }
        let key_length = rest.find(|c: char| c.is_whitespace() || matches!(c, '=' | '>' | '/'))?;
        if key_length == 0 {
            return None;
        }
        let key = &rest[..key_length];
        at += key_length;
        let Some(value) = text[at..].strip_prefix('=') else {
            tag.attributes.push((key, ""));
            continue;
        };
        at += 1;
        let quote = value.chars().next()?;
        if matches!(quote, '"' | '\'') {
            let length = value[1..].find(quote)?;
            tag.attributes.push((key, &value[1..1 + length]));
            at += length + 2;
        } else {
            let length = value.find(|c: char| c.is_whitespace() || c == '>')?;
            tag.attributes.push((key, &value[..length]));
            at += length;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tags_are_read_with_their_attributes() {
        let html = "a < b <!-- <x> --><svg viewBox='0 0 1 1' role=\"img\"><path d=\"M0\"/></svg>";
        let found = tags(html);
        let names: Vec<_> = found.iter().map(|t| (t.name, t.closing, t.empty)).collect();
        let want = [("svg", false, false), ("path", false, true), ("svg", true, false)];
        assert_eq!(names, want);
        assert_eq!(found[0].get("viewbox"), Some("0 0 1 1"));
        assert_eq!(&html[found[1].offset..][..5], "<path");
    }

    #[test]
    fn a_value_may_hold_a_bracket_and_a_script_is_passed_over() {
        let found = tags("<p title=\"a > b\" hidden id=x><script>if (a<b) {}</script>");
        let names: Vec<_> = found.iter().map(|t| t.name).collect();
        assert_eq!(names, ["p", "script", "script"]);
        let attributes = [("title", "a > b"), ("hidden", ""), ("id", "x")];
        assert_eq!(found[0].attributes, attributes);
    }

    #[test]
    fn an_unfinished_tag_is_text() {
        assert_eq!(tags("1 <2 and <b"), []);
    }
}
