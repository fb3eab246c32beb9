//! Checks that every figure is an inline SVG with a description for screen readers and with colors
//! that follow the theme.

use crate::source::{Origin, Page, Problems};
use roxmltree::{Document, Node};
use std::collections::BTreeSet;
use std::path::Path;

/// Attributes that hold a color.
const COLORS: [&str; 6] =
    ["fill", "stroke", "color", "stop-color", "flood-color", "lighting-color"];
/// Elements that bring their own colors, files or scripts.
const REFUSED: [&str; 5] = ["style", "script", "image", "foreignObject", "animate"];

/// Returns the class names defined in a style sheet.
pub fn house_classes(css: &str) -> BTreeSet<String> {
    let is_name = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    let starts = css.match_indices('.').map(|(i, _)| &css[i + 1..]);
    let names = starts.map(|rest| &rest[..rest.find(|c| !is_name(c)).unwrap_or(rest.len())]);
    let named = names.filter(|n| n.starts_with(|c: char| c.is_ascii_alphabetic()));
    named.map(str::to_string).collect()
}

/// Checks a page's figures, which are included files.
pub fn check(page: &Page, root: &Path, house: &BTreeSet<String>, problems: &mut Problems) {
    let mut figures = BTreeSet::new();
    let mut before = "";
    for line in &page.lines {
        if line.text.contains("<img") && line.text.contains(".svg") {
            problems.add(&line.at, "an SVG in an <img> can't follow the theme: {{#include}} it");
        }
        if line.text.starts_with("<svg") {
            if !line.at.file.ends_with(".svg") {
                problems.add(&line.at, "a figure must be a file in figures/: {{#include}} it");
            } else if figures.insert(line.at.file.clone()) {
                let text = std::fs::read_to_string(root.join(&*line.at.file)).unwrap_or_default();
                check_figure(&line.at, &text, house, problems);
            }
            if before != "<figure class=\"fig\">" {
                problems.add(&line.at, "a figure must be inside <figure class=\"fig\">…</figure>");
            }
        }
        before = line.text.trim();
    }
}

/// Checks the contents of a figure's file.
fn check_figure(at: &Origin, text: &str, house: &BTreeSet<String>, problems: &mut Problems) {
    let document = match Document::parse(text) {
        Ok(document) => document,
        Err(error) => {
            let at = Origin { line: error.pos().row as usize, ..at.clone() };
            return problems.add(&at, format!("not well-formed: {error}"));
        }
    };
    let mut say = |node: Node, message: String| {
        let line = document.text_pos_at(node.range().start).row as usize;
        problems.add(&Origin { line, ..at.clone() }, message);
    };
    let svg = document.root_element();
    if svg.attribute("role") != Some("img") {
        say(svg, "this <svg> needs role=\"img\"".into());
    }
    if svg.attribute("aria-label").is_none_or(|label| label.trim().is_empty()) {
        say(svg, "this <svg> needs an aria-label that describes it".into());
    }
    let view = svg.attribute("viewBox").unwrap_or_default().split(' ');
    let view: Vec<f32> = view.flat_map(str::parse).collect();
    if !matches!(view[..], [_, _, width, _] if (600.0..=760.0).contains(&width)) {
        let why = "this <svg> needs a viewBox about 720 wide, such as \"0 0 720 200\", \
                   so that text is the same size in all figures";
        say(svg, why.into());
    }
    if svg.attribute("width").is_some() || svg.attribute("height").is_some() {
        let why = "this <svg> gets its size from the page: drop width and height, keep viewBox";
        say(svg, why.into());
    }
    for node in document.descendants().filter(Node::is_element) {
        let name = node.tag_name().name();
        if REFUSED.contains(&name) {
            say(node, format!("<{name}> is not allowed in a figure"));
        }
        for attribute in node.attributes() {
            let (key, value) = (attribute.name(), attribute.value());
            if COLORS.contains(&key) && !follows_theme(value) {
                let why = "is a fixed color: use a class from figures.css";
                say(node, format!("{key}=\"{value}\" {why}"));
            } else if key == "style" {
                let why = "a figure is styled with classes from figures.css, not with style=\"…\"";
                say(node, why.into());
            } else if key == "href" && !value.starts_with('#') {
                say(node, format!("href=\"{value}\" points outside the figure"));
            }
        }
        let classes = node.attribute("class").unwrap_or_default().split_whitespace();
        for class in classes.filter(|class| !house.contains(*class)) {
            say(node, format!("figures.css has no class `{class}`"));
        }
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

    fn problems(figure: &str) -> Vec<String> {
        let house = house_classes(".fig .box { fill: red } .fig .note, .known{stroke:1.5px}");
        let mut problems = Problems::default();
        let at = Origin { file: "a.svg".into(), line: 1 };
        check_figure(&at, figure, &house, &mut problems);
        problems.list()
    }

    const OPEN: &str = "<svg viewBox=\"0 0 720 90\" role=\"img\" aria-label=\"A box.\">";

    #[test]
    fn a_figure_in_house_style_passes() {
        let shape = "<rect class=\"box known\" fill=\"none\"/><path stroke=\"url(#a)\"/>";
        assert_eq!(problems(&format!("{OPEN}\n{shape}\n</svg>\n")), [""; 0]);
    }

    #[test]
    fn each_problem_is_reported_with_its_line() {
        for (shape, want) in [
            ("<rect fill=\"#fff\"/>", "fill=\"#fff\" is a fixed color"),
            ("<rect style=\"fill: red\"/>", "a figure is styled with classes"),
            ("<style>.x{}</style>", "<style> is not allowed in a figure"),
            ("<rect class=\"boks\"/>", "figures.css has no class `boks`"),
            ("<rect>", "not well-formed: "),
        ] {
            let found = problems(&format!("{OPEN}\n\n{shape}</svg>"));
            assert_eq!(found.len(), 1, "{shape}: {found:?}");
            assert!(found[0].starts_with(&format!("a.svg:3: {want}")), "{found:?}");
        }
    }

    #[test]
    fn an_svg_needs_a_name_and_a_size() {
        assert_eq!(problems("<svg width=\"3\"></svg>").len(), 4);
    }

    #[test]
    fn a_figure_must_be_a_file_inside_a_figure_element() {
        let mut problems = Problems::default();
        let page = Page::new("a.md", "\n<svg></svg>\n\n<img src=\"a.svg\">\n`<svg>`");
        check(&page, Path::new(""), &BTreeSet::new(), &mut problems);
        let found = problems.list();
        assert_eq!(found.len(), 3, "{found:?}");
        assert!(found[0].starts_with("a.md:2: a figure must be a file"), "{found:?}");
        assert!(found[1].starts_with("a.md:2: a figure must be inside"), "{found:?}");
    }
}
