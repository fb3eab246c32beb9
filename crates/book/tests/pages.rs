//! Runs the whole tool on `pages/`, which has every element that the book uses: good pages are
//! built, bad ones are rejected.

use serde_json::{json, Value};
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

/// A repository with only the book's theme and configuration, and these pages.
struct Repo(PathBuf);

impl Repo {
    fn new(name: &str) -> Repo {
        let root =
            std::env::temp_dir().join(format!("candecode-book-{name}-{}", std::process::id()));
        let here = Path::new(env!("CARGO_MANIFEST_DIR"));
        let book = here.join("../../book");
        copy(&book.join("theme"), &root.join("book/theme"));
        copy(&here.join("tests/pages"), &root.join("book/src"));
        fs::copy(book.join("book.toml"), root.join("book/book.toml")).unwrap();
        Repo(root)
    }

    fn write(&self, page: &str, text: &str) {
        fs::write(self.0.join("book/src").join(page), text).unwrap();
    }

    fn build(&self) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_candecode-book"));
        command.args(["build", "--root"]).arg(&self.0).env("CANDECODE_BOOK", "still");
        command.output().unwrap()
    }

    /// Sends a book with one chapter, `elements.md`, as mdBook does.
    fn preprocess(&self, content: &str, live: &str) -> Output {
        let context = json!({
            "root": self.0.join("book"), "config": { "book": { "src": "src" } },
            "renderer": "html", "mdbook_version": "0.5.4",
        });
        let chapter = json!({
            "name": "Elements", "content": content, "number": null, "sub_items": [],
            "path": "elements.md", "source_path": "elements.md", "parent_names": [],
        });
        let book = json!([context, { "items": [{ "Chapter": chapter }] }]);
        let mut command = Command::new(env!("CARGO_BIN_EXE_candecode-book"));
        command.env("CANDECODE_BOOK", live).stdin(Stdio::piped());
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        // If the tool rejects its settings, it exits before it has read the book.
        let _ = child.stdin.take().unwrap().write_all(book.to_string().as_bytes());
        child.wait_with_output().unwrap()
    }

    fn page(&self, name: &str) -> String {
        fs::read_to_string(self.0.join("book/book").join(name)).unwrap()
    }
}

impl Drop for Repo {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let path = entry.unwrap().path();
        let target = to.join(path.file_name().unwrap());
        if path.is_dir() {
            copy(&path, &target);
        } else {
            fs::copy(&path, &target).unwrap();
        }
    }
}

#[test]
fn the_pages_are_built_and_load_nothing_from_the_network() {
    let repo = Repo::new("good");
    let output = repo.build();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{said}");
    let math = repo.page("math.html");
    let main = &math[math.find("<main>").unwrap()..math.find("</main>").unwrap()];
    let count = |what: &str| main.matches(what).count();
    assert_eq!(count("<math display=\"block\""), 8);
    assert_eq!(count("<div class=\"formula\">"), 8);
    for what in ["menv-alignlike", "menv-cases", "<munderover>", "<msqrt>", "<mfrac>"] {
        assert!(count(what) > 0, "{what}");
    }
    assert!(main.contains("<code>$x$</code>") && main.contains("a price is $5"));
    assert!(main.contains("$not$ math $$either$$"));
    assert_eq!(count("<blockquote"), 1, "a formula stays inside its note");
    assert_eq!(count("<tr>"), 4, "and inside its table");
    let elements = repo.page("elements.html");
    assert!(elements.contains("<svg") && elements.contains("pub fn last_logits"));
    assert!(!elements.contains("narrow(1"), "a signature comes without its body");
    for html in [&math, &elements] {
        for tag in html.split('<').filter(|tag| !tag.starts_with("a ")) {
            let fetched = ["src=\"http", "href=\"http", "src=\"//", "href=\"//"];
            assert!(!fetched.iter().any(|f| tag.contains(f)), "{tag}");
        }
    }
}

#[test]
fn all_problems_are_reported_at_once_and_nothing_is_built() {
    let repo = Repo::new("bad");
    repo.write("elements.md", "# x\n\n{{#include code.rs}}\n\n$\\fraq$ and {{#include gone}}\n");
    let output = repo.build();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{said}");
    let file = "book/src/elements.md";
    for want in [
        format!("{file}:3: book/src/code.rs: lines 4 to 6 are a solution"),
        format!("{file}:5: a {{{{#…}}}} must be on its own line"),
        "the book has 2 problems".to_string(),
    ] {
        assert!(said.contains(&want), "{want:?} is not in {said}");
    }
    assert!(!repo.0.join("book/book").exists());
}

#[test]
fn mdbook_warnings_fail_the_build() {
    let repo = Repo::new("warned");
    repo.write("elements.md", "# x\n\n<div>\n\nnever closed\n");
    let output = repo.build();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("unclosed HTML tag `<div>`"), "{said}");
}

#[test]
fn a_dead_link_fails_the_build() {
    let repo = Repo::new("dead");
    repo.write("elements.md", "# x\n\n[a](math.md#maths)\n");
    let output = repo.build();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.contains("elements.md:3: math.md has no #maths"), "{said}");
    assert_eq!(output.status.code(), Some(1));
}

#[test]
fn mdbook_gets_its_book_back_with_the_chapters_expanded() {
    let repo = Repo::new("protocol");
    let output =
        repo.preprocess("# x\n\n$a$\n\n```rust\n{{#include code.rs:loop}}\n```\n", "still");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{said}");
    let book: Value = serde_json::from_slice(&output.stdout).unwrap();
    let chapter = &book["items"][0]["Chapter"];
    assert_eq!((&chapter["name"], &chapter["path"]), (&json!("Elements"), &json!("elements.md")));
    let content = chapter["content"].as_str().unwrap();
    assert!(content.starts_with("# x\n\n<math"), "{content}");
    assert!(!content.contains("{{#"), "{content}");
}

#[test]
fn mdbook_gets_no_book_if_something_is_wrong() {
    let repo = Repo::new("refused");
    let one = "book/src/elements.md:3: gone.rs: ";
    for (content, live, want) in [
        ("# x\n\n{{#include gone.rs}}\n", "still", one),
        ("# x\n", "lively", "CANDECODE_BOOK is \"lively\": expected `still` or `mine`"),
    ] {
        let output = repo.preprocess(content, live);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert!(said.contains(want), "{said}");
        assert_eq!(output.stdout, b"", "half a book");
    }
}
