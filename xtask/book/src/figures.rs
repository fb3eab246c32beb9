//! Every figure is an inline SVG that a screen reader can name and every theme can colour.

use crate::html::{tags, Tag};
use crate::source::{Page, Problems};
use mdbook_markdown::pulldown_cmark::Event;
use mdbook_markdown::{new_cmark_parser, MarkdownOptions};
use std::collections::{BTreeSet, HashMap};

/// Attributes that hold a colour.
const COLOURS: [&str; 6] =
    ["fill", "stroke", "color", "stop-color", "flood-color", "lighting-color"];
/// Elements that bring their own colours, their own files, or their own programs.
const REFUSED: [&str; 5] = ["style", "script", "image", "foreignObject", "animate"];

/// The text with everything blanked that is not raw HTML: offsets and lines stay the same.
pub fn html_only(text: &str) -> String {
    let blank = |b: u8| if b == b'\n' { b'\n' } else { b' ' };
    let mut bytes: Vec<u8> = text.bytes().map(blank).collect();
    let parser = new_cmark_parser(text, &MarkdownOptions::default());
    for (event, range) in parser.into_offset_iter() {
        if matches!(event, Event::Html(_) | Event::InlineHtml(_)) {
            bytes[range.clone()].copy_from_slice(&text.as_bytes()[range]);
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// The class names that a style sheet knows.
pub fn house_classes(css: &str) -> BTreeSet<String> {
    let is_name = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    let starts = css.match_indices('.').map(|(i, _)| &css[i + 1..]);
    let names = starts.map(|rest| &rest[..rest.find(|c| !is_name(c)).unwrap_or(rest.len())]);
    let named = names.filter(|n| n.starts_with(|c: char| c.is_ascii_alphabetic()));
    named.map(str::to_string).collect()
}

/// Checks the figures of a page; gives their number.
pub fn check(page: &Page, house: &BTreeSet<String>, problems: &mut Problems) -> usize {
    let text = page.text();
    let html = html_only(&text);
    let mut count = 0;
    let mut inside = false;
    let mut framed = false;
    let mut ids: HashMap<String, usize> = HashMap::new();
    for tag in tags(&html) {
        let at = page.at(&text, tag.offset);
        let mut say = |message: String| problems.add(&at, message);
        if let Some(id) = tag.get("id") {
            if let Some(first) = ids.insert(id.to_string(), tag.offset) {
                let line = page.at(&text, first);
                say(format!("the id `{id}` is already on this page ({}:{})", line.file, line.line));
            }
        }
        match (tag.name, tag.closing) {
            ("figure", closing) => framed = !closing && tag.classes().any(|c| c == "fig"),
            ("svg", true) => inside = false,
            ("svg", false) => {
                inside = true;
                count += 1;
                if !framed {
                    say("a figure stands in <figure class=\"fig\">…</figure>".into());
                }
                check_svg(&tag, &mut say);
            }
            ("img", false) if tag.get("src").is_some_and(|src| src.ends_with(".svg")) => {
                say("an SVG in an <img> cannot see the theme: {{#include}} it".into());
            }
            _ => {}
        }
        if inside && !tag.closing {
            check_shape(&tag, house, &mut say);
        }
    }
    count
}

/// What the `<svg>` tag itself must say.
fn check_svg(tag: &Tag, say: &mut impl FnMut(String)) {
    if tag.get("role") != Some("img") {
        say("this <svg> needs role=\"img\"".into());
    }
    if tag.get("aria-label").is_none_or(|label| label.trim().is_empty()) {
        say("this <svg> needs an aria-label that says what it shows".into());
    }
    let view: Vec<f32> =
        tag.get("viewBox").unwrap_or_default().split(' ').flat_map(str::parse).collect();
    if !matches!(view[..], [_, _, width, _] if (600.0..=760.0).contains(&width)) {
        say("this <svg> needs a viewBox 720 wide, as \"0 0 720 200\": so all letters are of one size".into());
    }
    if tag.get("width").is_some() || tag.get("height").is_some() {
        say("this <svg> takes its size from the page: no width or height, only a viewBox".into());
    }
}

/// What holds for every element of a figure.
fn check_shape(tag: &Tag, house: &BTreeSet<String>, say: &mut impl FnMut(String)) {
    if REFUSED.iter().any(|name| tag.name.eq_ignore_ascii_case(name)) {
        say(format!("a figure has no <{}>", tag.name));
    }
    for (key, value) in &tag.attributes {
        if COLOURS.contains(key) && !follows_theme(value) {
            say(format!("{key}=\"{value}\" is a fixed colour: use a class of figures.css"));
        } else if *key == "style" {
            say("a figure is styled by the classes of figures.css, not by style=\"…\"".into());
        } else if *key == "href" && !value.starts_with('#') {
            say(format!("href=\"{value}\" leaves the figure"));
        }
    }
    for class in tag.classes().filter(|class| !house.contains(*class)) {
        say(format!("figures.css has no class `{class}`"));
    }
}

fn follows_theme(value: &str) -> bool {
    matches!(value, "none" | "currentColor" | "inherit" | "transparent")
        || value.starts_with("var(--")
        || value.starts_with("url(#")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problems(markdown: &str) -> Vec<String> {
        let house = house_classes(".fig .box { fill: red } .fig .note, .known{stroke:1.5px}");
        let mut problems = Problems::default();
        check(&Page::new("a.md", markdown), &house, &mut problems);
        problems.list()
    }

    const OPEN: &str = "<svg viewBox=\"0 0 720 90\" role=\"img\" aria-label=\"A box.\">";

    #[test]
    fn a_figure_in_house_style_passes() {
        let figure = "<rect class=\"box known\" fill=\"none\"/><path stroke=\"url(#a)\"/></svg>";
        let markdown = format!("<figure class=\"fig\">\n{OPEN}\n{figure}\n</figure>\n");
        assert_eq!(problems(&markdown), [""; 0]);
    }

    #[test]
    fn each_breach_has_its_line() {
        for (shape, want) in [
            ("<rect fill=\"#fff\"/>", "fill=\"#fff\" is a fixed colour"),
            ("<rect style=\"fill: red\"/>", "a figure is styled by the classes"),
            ("<style>.x{}</style>", "a figure has no <style>"),
            ("<rect class=\"boks\"/>", "figures.css has no class `boks`"),
            ("<g id=\"a\"/><g id=\"a\"/>", "the id `a` is already on this page"),
        ] {
            let found =
                problems(&format!("<figure class=\"fig\">\n{OPEN}\n{shape}\n</svg>\n</figure>"));
            assert_eq!(found.len(), 1, "{shape}: {found:?}");
            assert!(found[0].starts_with(&format!("a.md:3: {want}")), "{found:?}");
        }
    }

    #[test]
    fn an_svg_needs_a_frame_and_a_name() {
        let found = problems("\n<svg width=\"3\">\n</svg>");
        assert_eq!(found.len(), 5, "{found:?}");
        assert!(found.iter().all(|p| p.starts_with("a.md:2: ")), "{found:?}");
    }

    #[test]
    fn code_is_no_figure() {
        assert_eq!(problems("`<svg>`\n\n```html\n<svg fill=\"red\">\n```\n"), [""; 0]);
    }
}
