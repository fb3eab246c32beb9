//! Checks that no link within the book is dead, and that pages load nothing from the network.

use crate::source::{Origin, Page, Problems};
use mdbook_markdown::pulldown_cmark::{BrokenLink, CowStr, Event, LinkType, Parser, Tag};
use regex::Regex;
use std::collections::{BTreeMap, HashSet};
use std::path::{Component, Path, PathBuf};

/// A link as written, with its page (relative to the book's sources).
pub struct Link {
    pub page: PathBuf,
    pub at: Origin,
    pub target: String,
    /// Whether the browser loads the target without a click, as with images.
    pub fetched: bool,
}

/// Returns all links and images of a page, from both Markdown and HTML.
pub fn collect(path: &Path, page: &Page, problems: &mut Problems) -> anyhow::Result<Vec<Link>> {
    let text = page.text();
    let in_html = Regex::new(r#"<(\w+)[^<>]*\s(?:href|src)=["']([^"']*)["']"#)?;
    let mut found = Vec::new();
    let mut add = |offset: usize, target: &str, fetched: bool| {
        let at = page.at(&text, offset);
        found.push(Link { page: path.to_path_buf(), at, target: target.to_string(), fetched });
    };
    let mut undefined: Vec<(usize, String)> = Vec::new();
    let on_broken = |link: BrokenLink| -> Option<(CowStr<'_>, CowStr<'_>)> {
        if matches!(link.link_type, LinkType::Reference | LinkType::Collapsed) {
            undefined.push((link.span.start, link.reference.to_string()));
        }
        None
    };
    let options = crate::math::options();
    let parser = Parser::new_with_broken_link_callback(&text, options, Some(on_broken));
    for (event, range) in parser.into_offset_iter() {
        match event {
            Event::Start(Tag::Link { dest_url, .. }) => add(range.start, &dest_url, false),
            Event::Start(Tag::Image { dest_url, .. }) => add(range.start, &dest_url, true),
            Event::Html(_) | Event::InlineHtml(_) => {
                for tag in in_html.captures_iter(&text[range.clone()]) {
                    let (_, [name, target]) = tag.extract();
                    if name == "a" || !target.starts_with('#') {
                        let offset = tag.get(0).map_or(0, |tag| tag.start());
                        add(range.start + offset, target, name != "a");
                    }
                }
            }
            _ => {}
        }
    }
    for (offset, name) in undefined {
        problems.add(&page.at(&text, offset), format!("link [{name}] isn't defined on this page"));
    }
    Ok(found)
}

/// The ids in each rendered page, by the page's source path.
pub type Anchors = BTreeMap<PathBuf, HashSet<String>>;

/// Returns the ids in a rendered page, and reports duplicates.
pub fn anchors(
    html: &str,
    page: &Page,
    problems: &mut Problems,
) -> anyhow::Result<HashSet<String>> {
    let mut ids = HashSet::new();
    for id in Regex::new(r#"<[^<>]*\sid="([^"]+)""#)?.captures_iter(html) {
        let (_, [id]) = id.extract();
        if !ids.insert(id.to_string()) {
            let written = page.lines.iter().find(|l| l.text.contains(&format!("\"{id}\"")));
            if let Some(line) = written.or(page.lines.first()) {
                problems.add(&line.at, format!("the id `{id}` occurs more than once on this page"));
            }
        }
    }
    Ok(ids)
}

/// Checks links against the rendered pages and the files in the source directory.
pub fn check(links: &[Link], anchors: &Anchors, src: &Path, problems: &mut Problems) {
    for link in links {
        if let Err(message) = follow(link, anchors, src) {
            problems.add(&link.at, message);
        }
    }
}

fn follow(link: &Link, anchors: &Anchors, src: &Path) -> Result<(), String> {
    let target = link.target.as_str();
    let external = ["http:", "https:", "//"].iter().any(|s| target.starts_with(s));
    if external && link.fetched {
        return Err(format!("{target} would be fetched from the network"));
    }
    if external || target.starts_with("mailto:") || target.starts_with("data:") {
        return Ok(());
    }
    let (file, anchor) = target.split_once('#').unwrap_or((target, ""));
    let path = match file {
        "" => link.page.clone(),
        _ => join(link.page.parent().unwrap_or(Path::new("")), file)
            .ok_or_else(|| format!("{file} is outside the book"))?,
    };
    match anchors.get(&path) {
        Some(ids) if anchor.is_empty() || ids.contains(anchor) => Ok(()),
        Some(_) => Err(format!("{} has no #{anchor}", path.display())),
        None if path.extension().is_some_and(|ending| ending == "md") => {
            Err(format!("{file} isn't a page of the book"))
        }
        None if src.join(&path).is_file() => Ok(()),
        None => Err(format!("{file}: no such file")),
    }
}

/// Joins `dir` and `file` and resolves `..`. None if the path leaves the book.
fn join(dir: &Path, file: &str) -> Option<PathBuf> {
    let mut path = dir.to_path_buf();
    for part in Path::new(file).components() {
        match part {
            Component::Normal(name) => path.push(name),
            Component::ParentDir if path.pop() => {}
            Component::CurDir => {}
            _ => return None,
        }
    }
    Some(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problems(markdown: &str) -> Vec<String> {
        let mut problems = Problems::default();
        let path = PathBuf::from("a.md");
        let page = Page::new("a.md", markdown);
        let links = collect(&path, &page, &mut problems).unwrap();
        let html = "<h1 id=\"one\"></h1><dt id=\"kv-cache\"></dt>";
        let ids = anchors(html, &page, &mut problems).unwrap();
        let rendered = Anchors::from([(path, ids.clone()), ("deep/b.md".into(), ids)]);
        check(&links, &rendered, Path::new("/nonexistent"), &mut problems);
        problems.list()
    }

    #[test]
    fn good_links_pass() {
        let text =
            "[x](#one) [y](deep/b.md#kv-cache) [z](./deep/../a.md) [w](https://a.b) [q][r]\n\n\
                    [r]: deep/b.md\n\n<a href=\"deep/b.md\">b</a> `[x](gone.md)` [a, b]";
        assert_eq!(problems(text), [""; 0]);
    }

    #[test]
    fn a_dead_link_is_reported_with_its_line() {
        for (text, want) in [
            ("[x](gone.md)", "a.md:2: gone.md isn't a page of the book"),
            ("[x](#kv-cash)", "a.md:2: a.md has no #kv-cash"),
            ("[x](../src/lib.rs)", "a.md:2: ../src/lib.rs is outside the book"),
            ("![x](x.png)", "a.md:2: x.png: no such file"),
            ("![x](https://a.b/x.png)", "a.md:2: https://a.b/x.png would be fetched"),
            ("<a href='deep/b.md#two'>x</a>", "a.md:2: deep/b.md has no #two"),
            ("[x][gone]", "a.md:2: link [gone] isn't defined"),
        ] {
            let found = problems(&format!("\n{text}"));
            assert_eq!(found.len(), 1, "{text}: {found:?}");
            assert!(found[0].starts_with(want), "{found:?}");
        }
    }

    #[test]
    fn a_duplicate_id_is_a_problem() {
        let mut problems = Problems::default();
        let page = Page::new("a.md", "x\n<b id=\"one\"></b>");
        let _ = anchors("<h1 id=\"one\"></h1><b id=\"one\"></b>", &page, &mut problems);
        assert_eq!(problems.list(), ["a.md:2: the id `one` occurs more than once on this page"]);
    }
}
