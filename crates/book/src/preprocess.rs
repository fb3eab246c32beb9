//! Turns the Markdown of a chapter into what mdBook renders: figures become part of the page, whose
//! themes then color them, formulas become MathML, and live figures get their place.

use crate::live::Lessons;
use crate::mathml::{mathml, DisplayMode};
use candecode_book::figures::{images, inline};
use candecode_book::marked::marker;
use candecode_book::prose::{line_at, prefix, Chapter};
use candecode_book::Problem;
use std::path::Path;

/// Returns a chapter's text for mdBook. `file` is its path in the repository at `root`.
pub fn page(
    root: &Path,
    file: &str,
    text: &str,
    lessons: &Lessons,
    problems: &mut Vec<Problem>,
) -> String {
    let mut add = |line: usize, message: String| {
        problems.push(Problem { file: file.to_string(), line, message });
    };
    let chapter = Chapter::new(text);
    for (place, message) in &chapter.problems {
        add(line_at(text, *place), message.clone());
    }
    let dir = root.join(file).parent().map(Path::to_path_buf).unwrap_or_default();
    for image in images(text, &chapter) {
        if image.alt.trim().is_empty() {
            add(image.line + 1, "describe the figure between ![ and ]".into());
        }
        if let Err(message) = inline(&dir, &image) {
            add(image.line + 1, message);
        }
    }
    let text = formulas(text, &chapter, |place, message| add(line_at(text, place), message));
    let mut lines: Vec<String> = text.lines().map(str::to_string).collect();
    // From last to first, since an edit moves all lines after it.
    for image in images(&text, &Chapter::new(&text)).iter().rev() {
        if let Ok(html) = inline(&dir, image) {
            figure(&mut lines, image.line, &html, lessons);
        }
    }
    lines.join("\n") + "\n"
}

/// Puts a figure in place of the image at a line, with its caption and its live figure, if there
/// are any. A caption is an emphasized paragraph after the image.
fn figure(lines: &mut Vec<String>, at: usize, html: &str, lessons: &Lessons) {
    let before = prefix(&lines[at]).0.to_string();
    let content = |lines: &[String], i: usize| -> String {
        lines.get(i).map(|line| prefix(line).1.trim_end().to_string()).unwrap_or_default()
    };
    let paragraph = |lines: &[String], from: usize| -> Option<(usize, usize)> {
        let start = (from..lines.len().min(from + 2)).find(|&i| !content(lines, i).is_empty())?;
        let end = (start..lines.len()).find(|&i| content(lines, i).is_empty());
        Some((start, end.unwrap_or(lines.len())))
    };
    let mut end = at + 1;
    let mut page = vec!["<figure class=\"fig\">".to_string()];
    page.extend(html.lines().map(str::to_string));
    if let Some((first, last)) = paragraph(lines, end) {
        let text: Vec<String> = (first..last).map(|i| content(lines, i)).collect();
        let text = text.join("\n");
        let inside = text.strip_prefix('*').and_then(|text| text.strip_suffix('*'));
        if let Some(caption) = inside.filter(|text| !text.starts_with('*')) {
            page.extend(["<figcaption>".into(), String::new()]);
            page.extend(caption.lines().map(str::to_string));
            page.extend([String::new(), "</figcaption>".into()]);
            end = last;
        }
    }
    if let Some((first, last)) = paragraph(lines, end) {
        let found = marker(&lines[first]).filter(|(kind, _)| *kind == "live");
        if let Some((_, name)) = found.filter(|_| lessons.are_compiled()) {
            page.push(Lessons::place(name));
            end = last;
        }
    }
    page.push("</figure>".into());
    let page = page.into_iter().map(|line| format!("{before}{line}").trim_end().to_string());
    lines.splice(at..end, page);
}

/// Replaces every formula by MathML.
fn formulas(text: &str, chapter: &Chapter, mut problem: impl FnMut(usize, String)) -> String {
    let mut out = String::new();
    let mut from = 0;
    for formula in &chapter.formulas {
        out += &text[from..formula.range.start];
        let mode = if formula.display.is_some() { DisplayMode::Block } else { DisplayMode::Inline };
        match mathml(&formula.latex, mode) {
            Ok(html) => match &formula.display {
                Some(before) => {
                    let bare = before.trim_end();
                    out += &format!("{bare}\n{before}<div class=\"formula\">{html}</div>\n{bare}");
                }
                None => out += &html,
            },
            Err(message) => problem(formula.range.start, message),
        }
        from = formula.range.end;
    }
    out + &text[from..]
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::PathBuf;
    use std::sync::LazyLock;

    /// A folder with a figure. It's written once, because the tests that read it run side by side.
    static ROOT: LazyLock<PathBuf> = LazyLock::new(|| {
        let dir = std::env::temp_dir().join(format!("candecode-book-{}", std::process::id()));
        std::fs::create_dir_all(dir.join("book/src")).unwrap();
        std::fs::write(dir.join("book/src/x.svg"), "<svg viewBox=\"0 0 720 9\">\n<g/>\n</svg>\n")
            .unwrap();
        dir
    });

    fn shown(text: &str) -> (String, Vec<String>) {
        let mut problems = Vec::new();
        let page = page(&ROOT, "book/src/a.md", text, &Lessons::none(), &mut problems);
        (page, problems.iter().map(Problem::to_string).collect())
    }

    #[test]
    fn a_figure_gets_its_caption() {
        let (page, problems) = shown("> ![A.](x.svg)\n>\n> *See `a`\n> and $n$.*\n\n*b*");
        assert_eq!(problems, [""; 0]);
        assert!(
            page.starts_with(
                "> <figure class=\"fig\">\n> <svg viewBox=\"0 0 720 9\" role=\"img\" \
             aria-label=\"A.\">\n> <g/>\n> </svg>\n> <figcaption>\n>\n> See `a`\n> and <math"
            ),
            "{page}"
        );
        assert!(page.ends_with("\n>\n> </figcaption>\n> </figure>\n\n*b*\n"), "{page}");
    }

    #[test]
    fn formulas_become_mathml_on_one_line() {
        let (page, problems) = shown("a $x_i$ `$b$`\n\n> ```math\n> a \\, b\n> + c\n> ```\n> c\n");
        assert_eq!(problems, [""; 0]);
        assert!(
            page.starts_with("a <math")
                && page.contains("</math> `$b$`\n\n>\n> <div class=\"formula\">")
        );
        assert!(page.ends_with("</div>\n>\n> c\n") && page.lines().count() == 6, "{page}");
    }

    #[test]
    fn problems_have_a_line() {
        for (text, want) in [
            ("\n![A.](gone.svg)", "book/src/a.md:2: gone.svg: "),
            ("\n![](x.svg)", "book/src/a.md:2: describe the figure"),
            ("\n$\\fraq$", "book/src/a.md:2: cannot parse the formula `\\fraq`"),
            ("\n$5", "book/src/a.md:2: an unpaired dollar"),
        ] {
            let problems = shown(text).1;
            assert!(problems.len() == 1 && problems[0].starts_with(want), "{problems:?}");
        }
    }
}
