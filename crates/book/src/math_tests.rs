//! Tests for formulas and dollar signs.

use super::*;

fn rendered(markdown: &str) -> (Vec<String>, Vec<String>) {
    let mut problems = Problems::default();
    let page = render(Page::new("a.md", markdown), &mut problems);
    (page.lines.into_iter().map(|line| line.text).collect(), problems.list())
}

#[test]
fn an_inline_formula_becomes_mathml() {
    let (lines, problems) = rendered("so $d_k$ is\n\nnot $a +\nb$ it");
    assert_eq!(problems, [""; 0]);
    let dk = "<msub><mi>d</mi><mi>k</mi></msub>";
    assert_eq!(lines[0], format!("so <math display=\"inline\">{dk}</math> is"));
    assert_eq!(lines.len(), 3, "{lines:?}");
    assert!(lines[2].starts_with("not <math") && lines[2].ends_with("</math> it"), "{lines:?}");
}

#[test]
fn code_and_escaped_dollars_are_left_alone() {
    let text = "`$x$` costs \\$5 and \\$6\n\n```sh\n$ cargo xtask check\n$$\n```\n\n    $indented$";
    let (lines, problems) = rendered(text);
    assert_eq!(problems, [""; 0]);
    assert_eq!(lines.join("\n"), text);
}

#[test]
fn a_display_formula_becomes_one_html_block() {
    let latex = "$$\n\\begin{aligned}\na &= b \\\\\n- c &= d\n\\end{aligned}\n$$";
    let (lines, problems) = rendered(&format!("x\n{latex}\ny"));
    assert_eq!(problems, [""; 0]);
    assert_eq!([&lines[0], &lines[1], &lines[3], &lines[4]], ["x", "", "", "y"]);
    assert!(lines[2].starts_with("<div class=\"formula\"><math display=\"block\">"), "{lines:?}");
    assert!(lines[2].contains("menv-alignlike"), "{lines:?}");
}

#[test]
fn a_display_formula_stays_in_its_list_or_blockquote() {
    let (lines, _) = rendered("> x\n> $$\n> y\n> $$\n\n- a\n  $$b$$");
    assert_eq!([&lines[1], &lines[3]], [">", ">"]);
    assert!(lines[2].starts_with("> <div"), "{lines:?}");
    assert!(lines[7].starts_with("  <div"), "{lines:?}");
}

#[test]
fn markdown_syntax_inside_a_formula_is_escaped() {
    let (lines, problems) = rendered("| a |\n|---|\n| $a * b_c * [d](e) < f \\mid g \\& h$ |");
    assert_eq!(problems, [""; 0]);
    let text: String = lines[2].split('>').flat_map(|t| t.split('<').next()).collect();
    for mark in ["*", "_", "[", "(", "|"] {
        assert!(!text.trim_matches(['|', ' ']).contains(mark), "{mark} in {text}");
    }
    assert!(text.contains("&#60;") || text.contains("&lt;"), "{text}");
}

#[test]
fn a_caption_can_contain_a_formula_but_a_figure_cannot() {
    let (lines, problems) =
        rendered("<figure>\n<figcaption>So $d_k$, $x$.</figcaption>\n</figure>");
    assert_eq!(problems, [""; 0]);
    assert_eq!(lines[1].matches("<math").count(), 2, "{lines:?}");
    assert!(lines[1].ends_with("</math>.</figcaption>"), "{lines:?}");
    for html in ["<figure><svg><text>$x$</text></svg>", "<svg>\n<text>$x$</text>", "<p>a $ b</p>"] {
        let (_, problems) = rendered(html);
        assert!(problems[0].contains("a dollar inside HTML"), "{html}: {problems:?}");
    }
    assert!(rendered("<p>a `b` c</p>").1[0].starts_with("a.md:1: Markdown isn't parsed"));
}

#[test]
fn a_bad_formula_is_reported_with_its_line() {
    for (text, want) in [
        ("$\\fraq{a}{b}$", "a.md:2: cannot parse the formula `\\fraq{a}{b}`: "),
        ("$$\n\\frac{a\n$$", "a.md:2: cannot parse the formula `\\frac{a`: "),
        ("$$\nx", "a.md:2: this $$ has no closing $$"),
        ("it costs $5", "a.md:2: an unpaired dollar"),
        ("| a |\n|---|\n| $a | b$ |", "a.md:4: an unpaired dollar"),
    ] {
        let (_, problems) = rendered(&format!("\n{text}"));
        assert!(!problems.is_empty(), "{text}");
        assert!(problems[0].starts_with(want), "{problems:?} does not start with {want:?}");
    }
}
