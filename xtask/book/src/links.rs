//! Every link within the book leads somewhere, and nothing is fetched from elsewhere.

use crate::figures::html_only;
use crate::html::tags;
use crate::source::{Origin, Page, Problems};
use mdbook_markdown::pulldown_cmark::{BrokenLink, CowStr, Event, LinkType, Parser, Tag};
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::path::{Component, Path, PathBuf};

/// A link as written, with the page (relative to the sources) on which it stands.
pub struct Link {
    pub page: PathBuf,
    pub at: Origin,
    pub target: String,
    /// The browser fetches it by itself: an image.
    pub fetched: bool,
}

/// All links and images of a page, in Markdown and in HTML.
pub fn collect(path: &Path, page: &Page, problems: &mut Problems) -> Vec<Link> {
    let text = page.text();
    let mut found = Vec::new();
    let mut add = |offset: usize, target: &str, fetched: bool| {
        let at = page.at(&text, offset);
        found.push(Link { page: path.to_path_buf(), at, target: target.to_string(), fetched });
    };
    let mut broken: Vec<(usize, String)> = Vec::new();
    let on_broken = |link: BrokenLink| -> Option<(CowStr<'_>, CowStr<'_>)> {
        if matches!(link.link_type, LinkType::Reference | LinkType::Collapsed) {
            broken.push((link.span.start, link.reference.to_string()));
        }
        None
    };
    let options = crate::math::options();
    let parser = Parser::new_with_broken_link_callback(&text, options, Some(on_broken));
    for (event, range) in parser.into_offset_iter() {
        match event {
            Event::Start(Tag::Link { dest_url, .. }) => add(range.start, &dest_url, false),
            Event::Start(Tag::Image { dest_url, .. }) => add(range.start, &dest_url, true),
            _ => {}
        }
    }
    for tag in tags(&html_only(&text)).iter().filter(|t| !t.closing) {
        let is_link = tag.name == "a";
        for key in ["href", "src"] {
            if let Some(target) = tag.get(key).filter(|t| is_link || !t.starts_with('#')) {
                add(tag.offset, target, !is_link);
            }
        }
    }
    for (offset, name) in broken {
        problems.add(&page.at(&text, offset), format!("no link [{name}] is defined on this page"));
    }
    found
}

/// The rendered pages: by their source path, the ids in each.
pub type Anchors = BTreeMap<PathBuf, HashSet<String>>;

/// The ids of a rendered page; one that is there twice is a problem.
pub fn anchors(html: &str, page: &Page, problems: &mut Problems) -> HashSet<String> {
    let mut ids = HashSet::new();
    for tag in tags(html) {
        let Some(id) = tag.get("id").filter(|_| !tag.closing) else {
            continue;
        };
        if !ids.insert(id.to_string()) {
            let written = page.lines.iter().find(|l| l.text.contains(&format!("\"{id}\"")));
            if let Some(line) = written.or(page.lines.first()) {
                problems.add(&line.at, format!("the id `{id}` is twice on this page"));
            }
        }
    }
    ids
}

/// Checks links against the rendered pages and the files beside their sources.
pub fn check(links: &[Link], anchors: &Anchors, src: &Path, problems: &mut Problems) {
    let pages: BTreeSet<&PathBuf> = anchors.keys().collect();
    for link in links {
        if let Err(message) = follow(link, &pages, anchors, src) {
            problems.add(&link.at, message);
        }
    }
}

fn follow(
    link: &Link,
    pages: &BTreeSet<&PathBuf>,
    anchors: &Anchors,
    src: &Path,
) -> Result<(), String> {
    let target = link.target.as_str();
    let external = ["http:", "https:", "//"].iter().any(|s| target.starts_with(s));
    if external && link.fetched {
        return Err(format!("{target} would be fetched from the network"));
    } else if external || target.starts_with("mailto:") || target.starts_with("data:") {
        return Ok(());
    }
    let (file, anchor) = target.split_once('#').unwrap_or((target, ""));
    let path = match file {
        "" => link.page.clone(),
        _ => join(link.page.parent().unwrap_or(Path::new("")), file)
            .ok_or_else(|| format!("{file} lies outside the book"))?,
    };
    let is_page = path.extension().is_some_and(|e| e == "md");
    if !is_page && !src.join(&path).is_file() {
        return Err(format!("{file}: no such file"));
    }
    let Some(ids) = anchors.get(&path) else {
        return match is_page {
            true => {
                let names: Vec<String> = pages.iter().map(|p| p.display().to_string()).collect();
                Err(format!("{file} is no page of the book; there are {}", names.join(", ")))
            }
            false => Ok(()),
        };
    };
    if anchor.is_empty() || ids.contains(anchor) {
        return Ok(());
    }
    let shared = |id: &&String| id.bytes().zip(anchor.bytes()).take_while(|(a, b)| a == b).count();
    let hint = match ids.iter().max_by_key(|id| (shared(id), id.as_str())) {
        Some(id) if shared(&id) >= 3 => format!("; did you mean #{id}?"),
        _ => String::new(),
    };
    Err(format!("{} has no #{anchor}{hint}", path.display()))
}

/// `dir` and `file` as one path without `..`, if it stays inside.
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
        let links = collect(&path, &page, &mut problems);
        let html = "<h1 id=\"one\"></h1><dt id=\"kv-cache\"></dt>";
        let ids = anchors(html, &page, &mut problems);
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
    fn a_link_that_leads_nowhere_has_its_line() {
        for (text, want) in [
            ("[x](gone.md)", "a.md:2: gone.md is no page of the book"),
            ("[x](#kv-cash)", "a.md:2: a.md has no #kv-cash; did you mean #kv-cache?"),
            ("[x](../src/lib.rs)", "a.md:2: ../src/lib.rs lies outside the book"),
            ("![x](x.png)", "a.md:2: x.png: no such file"),
            ("![x](https://a.b/x.png)", "a.md:2: https://a.b/x.png would be fetched"),
            ("<a href='deep/b.md#two'>x</a>", "a.md:2: deep/b.md has no #two"),
            ("[x][gone]", "a.md:2: no link [gone] is defined"),
        ] {
            let found = problems(&format!("\n{text}"));
            assert_eq!(found.len(), 1, "{text}: {found:?}");
            assert!(found[0].starts_with(want), "{found:?}");
        }
    }

    #[test]
    fn an_id_given_twice_is_a_problem() {
        let mut problems = Problems::default();
        let page = Page::new("a.md", "x\n<b id=\"one\"></b>");
        anchors("<h1 id=\"one\"></h1><b id=\"one\"></b>", &page, &mut problems);
        assert_eq!(problems.list(), ["a.md:2: the id `one` is twice on this page"]);
    }
}
