//! The book's figures: SVG files that show themselves in light and dark, and the images in chapters
//! that name them.
//!
//! A figure is drawn with the classes of `book/theme/figures.css`. The rules that it uses are
//! copied into the file, so that it looks right wherever an image can be shown.

use crate::prose::Chapter;
use std::collections::BTreeSet;
use std::path::Path;

/// The style sheet of all figures, relative to the repository.
pub const CSS: &str = "book/theme/figures.css";

/// The colors and letters of a page, for a figure that is shown as an image.
const PAGE: &str =
    "svg{--fg:#1f2328;--bg:#fff;--mono-font:ui-monospace,SFMono-Regular,Menlo,Consolas,\
monospace;color:var(--fg);background:var(--bg);\
font-family:\"Open Sans\",\"Noto Sans\",\"Segoe UI\",Helvetica,Arial,sans-serif}
@media(prefers-color-scheme:dark){svg{--fg:#d7dce5;--bg:#0d1117}}";

/// An image on a line of its own in a chapter.
#[derive(Debug, PartialEq)]
pub struct Image {
    /// The index of its line.
    pub line: usize,
    /// The description for people who can't see it.
    pub alt: String,
    /// The file, as the chapter names it.
    pub file: String,
    /// The part of the file after `#`, such as `day10`.
    pub part: Option<String>,
}

/// Returns the images of a chapter that have a line to themselves.
pub fn images(text: &str, chapter: &Chapter) -> Vec<Image> {
    let mut images = Vec::new();
    for (line, (written, prose)) in text.lines().zip(chapter.prose.lines()).enumerate() {
        let content = crate::prose::prefix(written).1.trim_end();
        let inside = content.strip_prefix("![").and_then(|rest| rest.strip_suffix(')'));
        let Some((alt, target)) = inside.and_then(|inside| inside.rsplit_once("](")) else {
            continue;
        };
        let (file, part) = match target.split_once('#') {
            Some((file, part)) => (file, Some(part.to_string())),
            None => (target, None),
        };
        if prose.contains("](") {
            let alt = alt.replace('\\', "");
            images.push(Image { line, alt, file: file.to_string(), part });
        }
    }
    images
}

/// Returns a figure's file with its head and its style renewed.
///
/// # Errors
/// The line (from 1) and the problem, if it can't be a figure of the book.
pub fn standalone(css: &str, svg: &str) -> Result<String, (usize, String)> {
    let (head, rest) = split(svg).ok_or((1, "a figure begins with <svg …>".to_string()))?;
    let view: Vec<&str> =
        attribute(head, "viewBox").unwrap_or_default().split_whitespace().collect();
    let size = |i: usize| view.get(i).and_then(|n| n.parse::<f32>().ok());
    let (Some(width @ 600.0..=760.0), Some(height)) = (size(2), size(3)) else {
        let why = "this <svg> needs a viewBox about 720 wide, such as \"0 0 720 200\", so that \
                   letters have one size in all figures";
        return Err((1, why.into()));
    };
    let first = crate::prose::line_at(svg, svg.len() - rest.len());
    let used = check(css, rest).map_err(|(line, why)| (first + line, why))?;
    // A plot brings its description; a chapter describes the other figures.
    let label = attribute(head, "aria-label");
    let label = label.map(|label| format!(" role=\"img\" aria-label=\"{label}\""));
    Ok(format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"{}\" width=\"{width}\" \
         height=\"{height}\"{}>\n<style>\n{PAGE}\n{}</style>\n{rest}",
        view.join(" "),
        label.unwrap_or_default(),
        rules(css, &used, rest),
    ))
}

/// Returns an image as HTML. A figure becomes part of the page, whose style sheet colors it. `dir`
/// is the folder of the chapter.
///
/// # Errors
/// If the file can't be read, isn't a figure, or has no such part.
pub fn inline(dir: &Path, image: &Image) -> Result<String, String> {
    let (file, alt) = (&image.file, escaped(&image.alt));
    let path = dir.join(file);
    if !file.ends_with(".svg") && path.is_file() {
        // mdBook lets a reader enlarge an image that is written in Markdown.
        return Ok(format!("\n![{}]({file})\n\n", image.alt));
    }
    let svg = std::fs::read_to_string(path).map_err(|e| format!("{file}: {e}"))?;
    page_figure(&svg, image, &alt)
}

fn page_figure(svg: &str, image: &Image, alt: &str) -> Result<String, String> {
    let (head, rest) = split(svg).ok_or("not a figure: it doesn't begin with <svg …>")?;
    let mut rest = rest.to_string();
    if let Some(part) = &image.part {
        let known = format!("class=\"known\" id=\"{part}\"");
        if !rest.contains(&known) {
            return Err(format!("{} has no part {part}", image.file));
        }
        rest = rest.replace(&known, "class=\"new\"");
    }
    let lines: Vec<&str> = rest.lines().filter(|line| !line.trim().is_empty()).collect();
    let view = attribute(head, "viewBox").unwrap_or_default();
    Ok(format!("<svg viewBox=\"{view}\" role=\"img\" aria-label=\"{alt}\">\n{}", lines.join("\n")))
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('"', "&quot;")
}

/// Splits a file into its opening tag and everything after it, without its style.
fn split(svg: &str) -> Option<(&str, &str)> {
    let start = svg.find("<svg")?;
    let end = start + svg[start..].find('>')? + 1;
    let rest = svg[end..].trim_start();
    let rest = match rest.strip_prefix("<style>") {
        Some(styled) => styled.split_once("</style>")?.1.trim_start(),
        None => rest,
    };
    Some((&svg[start..end], rest))
}

fn attribute<'a>(tag: &'a str, name: &str) -> Option<&'a str> {
    let from = tag.find(&format!(" {name}=\""))? + name.len() + 3;
    Some(&tag[from..from + tag[from..].find('"')?])
}

/// Returns the classes that a figure uses.
fn check(css: &str, rest: &str) -> Result<BTreeSet<String>, (usize, String)> {
    let mut used = BTreeSet::new();
    for (line, text) in rest.lines().enumerate() {
        for refused in ["<style", "<script", "<image", "<foreignObject", "style=\""] {
            if text.contains(refused) {
                return Err((line, format!("{refused} in a figure: use the classes of {CSS}")));
            }
        }
        for (name, value) in attributes(text) {
            let follows = |v: &str| {
                ["none", "currentColor", "inherit"].contains(&v) || v.starts_with("url(#")
            };
            if ["fill", "stroke", "color", "stop-color"].contains(&name) && !follows(value) {
                let why = format!(
                    "{name}=\"{value}\" is one color for light and dark: use a class of {CSS}"
                );
                return Err((line, why));
            } else if name == "class" {
                for class in value.split_whitespace() {
                    if !has_class(css, class) {
                        return Err((line, format!("{CSS} has no class `{class}`")));
                    }
                    used.insert(class.to_string());
                }
            }
        }
    }
    Ok(used)
}

/// Returns the attributes in a line.
fn attributes(line: &str) -> Vec<(&str, &str)> {
    let mut found = Vec::new();
    let mut rest = line;
    while let Some((before, after)) = rest.split_once("=\"") {
        let Some((value, next)) = after.split_once('"') else { break };
        found.push((before.rsplit([' ', '<']).next().unwrap_or_default(), value));
        rest = next;
    }
    found
}

fn has_class(css: &str, class: &str) -> bool {
    css.split('.').skip(1).any(|part| {
        part.strip_prefix(class)
            .is_some_and(|rest| !rest.starts_with(|c: char| c.is_alphanumeric() || c == '-'))
    })
}

/// Returns the rules of a style sheet for these classes, without the class of the frame, `.fig`.
fn rules(css: &str, used: &BTreeSet<String>, rest: &str) -> String {
    let mut out = String::new();
    for line in css.lines().filter(|line| line.starts_with(".fig ")) {
        let Some((selectors, body)) = line.split_once('{') else { continue };
        let applies = |selector: &&str| {
            let parts = selector.split(|c: char| ". ~".contains(c)).filter(|part| !part.is_empty());
            parts.into_iter().all(|part| match part {
                "text" => rest.contains("<text"),
                "svg" => true,
                class => used.contains(class),
            })
        };
        let selectors = selectors.split(',').map(|one| one.trim().trim_start_matches(".fig"));
        let selectors = selectors.map(|one| if one.is_empty() { "svg" } else { one.trim() });
        let kept: Vec<&str> = selectors.filter(applies).collect();
        let body = body.split('}').next().unwrap_or_default().trim();
        if !kept.is_empty() {
            out += &format!("{}{{{body}}}\n", kept.join(","));
        }
    }
    // The part that an address names, such as map.svg#day10.
    if rest.contains(" id=\"day") {
        out += ":target{--c:var(--new)}:target .box{stroke-width:2.5}\n";
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    const STYLE: &str = ".fig { --known: gray; }\n.fig text { fill: red; }\n\
                         .fig .box { rx: 5px; }\n.fig .known, .fig .wire { --c: red; }\n";

    fn figure(shape: &str) -> Result<String, (usize, String)> {
        standalone(
            STYLE,
            &format!("<svg viewBox=\"0 0 720 90\" role=\"img\">\n\n{shape}\n</svg>\n"),
        )
    }

    #[test]
    fn a_figure_gets_the_rules_that_it_uses_once() {
        let svg = figure("<rect class=\"box known\" fill=\"none\"/>").unwrap();
        assert!(svg.contains("width=\"720\" height=\"90\">\n<style>"), "{svg}");
        assert!(svg.contains("\nsvg{--known: gray;}\n.box{rx: 5px;}\n.known{--c: red;}\n</style>"));
        assert!(svg.contains("prefers-color-scheme:dark") && !svg.contains("text{"));
        assert_eq!(standalone(STYLE, &svg).unwrap(), svg);
    }

    #[test]
    fn a_problem_has_a_line() {
        for (shape, want) in [
            ("<rect fill=\"#fff\"/>", "one color for light and dark"),
            ("<rect style=\"fill: red\"/>", "use the classes"),
            ("<rect class=\"boks\"/>", "no class `boks`"),
        ] {
            let (line, why) = figure(shape).unwrap_err();
            assert!(line == 3 && why.contains(want), "{line}: {why}");
        }
        assert!(standalone(STYLE, "<svg viewBox=\"0 0 90 90\"></svg>").is_err());
    }

    #[test]
    fn a_page_gets_the_description_and_one_part_lit() {
        let svg =
            figure("<g class=\"known\" id=\"day01\"></g>\n<g class=\"known\" id=\"day02\"></g>");
        let text = "> ![A \\[b\\] \"c\".](figures/map.svg#day01)";
        let image = images(text, &Chapter::new(text)).remove(0);
        let page = page_figure(&svg.unwrap(), &image, &escaped(&image.alt)).unwrap();
        assert_eq!(
            page,
            "<svg viewBox=\"0 0 720 90\" role=\"img\" aria-label=\"A [b] &quot;c&quot;.\">\n\
             <g class=\"new\"></g>\n<g class=\"known\" id=\"day02\"></g>\n</svg>"
        );
        assert!(images("`![a](b.svg)`", &Chapter::new("`![a](b.svg)`")).is_empty());
    }
}
