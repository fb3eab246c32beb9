//! What a mutant need not compile again: items that neither change nor mention what does are the
//! reference's.
//!
//! A mutant is a module inside the reference's, so that it sees all that is private there.

use super::functions::{blanked, named};
use std::collections::BTreeSet;
use std::ops::Range;

/// An item at the top of a file.
struct Item {
    /// Its bytes, with the comments before it.
    place: Range<usize>,
    /// Names that are defined anew with it: a function's, a type's; of an `impl` those of its types
    /// and traits.
    defines: BTreeSet<String>,
    /// All words of its code.
    words: BTreeSet<String>,
}

/// The items of a mutant that differ from the reference, or may mean something else there; `edited`
/// is the mutant's whole code, and `place` the bytes of `source` that it replaces.
pub fn own_items(source: &str, place: &Range<usize>, edited: &str) -> String {
    let items = items(source);
    let Some(first) = items.iter().position(|item| item.place.contains(&place.start)) else {
        return edited.to_string();
    };
    let mut own = BTreeSet::from([first]);
    let mut names = items[first].defines.clone();
    loop {
        let concerned =
            |item: &Item| !item.defines.is_disjoint(&names) || !item.words.is_disjoint(&names);
        let more: Vec<usize> =
            (0..items.len()).filter(|at| !own.contains(at) && concerned(&items[*at])).collect();
        if more.is_empty() {
            break;
        }
        for at in more {
            own.insert(at);
            names.extend(items[at].defines.iter().cloned());
        }
    }
    let grown = edited.len() as isize - source.len() as isize;
    let moved = |at: usize| if at > place.start { at.wrapping_add_signed(grown) } else { at };
    let parts = own.iter().map(|at| {
        let item = &items[*at].place;
        &edited[moved(item.start)..moved(item.end)]
    });
    format!("pub use super::*;\n{}", parts.collect::<String>())
}

/// The items of a file, imports left out.
fn items(source: &str) -> Vec<Item> {
    let code = blanked(source);
    let (mut places, mut at, mut start, mut depth) = (Vec::new(), 0, 0, 0);
    for line in code.split_inclusive('\n') {
        let text = line.trim();
        depth += text.matches(['(', '[', '{']).count() as i32;
        depth -= text.matches([')', ']', '}']).count() as i32;
        at += line.len();
        if depth == 0 && text.ends_with(['}', ';']) {
            places.push(start..at);
            start = at;
        }
    }
    let heads: Vec<Head> = places.iter().map(|place| head(&code[place.clone()])).collect();
    let types: BTreeSet<String> = heads.iter().filter_map(Head::type_name).collect();
    let mut found = Vec::new();
    for (place, head) in places.into_iter().zip(heads) {
        let defines = match head {
            Head::Import => continue,
            Head::Type(name) | Head::Other(name) => BTreeSet::from([name]),
            Head::Impl(of) => of.intersection(&types).cloned().collect(),
        };
        // Strings stay in: "{N}" means the constant.
        let lines = source[place.clone()].lines();
        let words = lines.flat_map(|line| words(line.split("//").next().unwrap_or_default()));
        found.push(Item { words: words.collect(), place, defines });
    }
    found
}

/// What an item is.
enum Head {
    Import,
    /// A type or a trait.
    Type(String),
    /// The words between `impl` and its brace.
    Impl(BTreeSet<String>),
    /// A function or a constant.
    Other(String),
}

impl Head {
    fn type_name(&self) -> Option<String> {
        match self {
            Head::Type(name) => Some(name.clone()),
            _ => None,
        }
    }
}

/// What an item is, from its first line of code that is no attribute.
fn head(code: &str) -> Head {
    let line = code.lines().map(str::trim).find(|line| !line.is_empty() && !line.starts_with('#'));
    let all: Vec<String> = words(line.unwrap_or_default()).collect();
    let mut rest = all.iter().skip_while(|word| *word == "pub" || *word == "crate");
    let (word, name) = (rest.next(), rest.next().cloned().unwrap_or_default());
    match word.map(String::as_str) {
        None | Some("use") => Head::Import,
        Some("impl") => {
            let header = code.split(" {").next().unwrap_or_default();
            Head::Impl(words(header).collect())
        }
        Some("struct" | "enum" | "trait" | "type" | "union") => Head::Type(name),
        _ => Head::Other(name),
    }
}

fn words(text: &str) -> impl Iterator<Item = String> + '_ {
    text.split(|c: char| !named(c)).filter(|word| !word.is_empty()).map(str::to_string)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOURCE: &str = "\
//! Words.
use a::B;

/// One.
struct One {
    x: u8,
}

impl One {
    fn get(&self) -> u8 {
        self.x + 1
    }
}

/// Nothing to do with `One`.
fn two() -> u8 {
    2
}

fn three() -> u8 {
    two() + 3
}

fn four(one: &One) -> u8 {
    4
}

impl B for One {}
";

    fn own(from: &str, to: &str) -> String {
        let at = SOURCE.find(from).unwrap();
        own_items(SOURCE, &(at..at + from.len()), &SOURCE.replacen(from, to, 1))
    }

    #[test]
    fn a_function_and_those_that_call_it_are_a_mutant_s_own() {
        let own = own("    2\n", "    1_000\n");
        assert!(own.contains("1_000") && own.contains("fn three() -> u8 {\n    two() + 3\n}"));
        assert!(!own.contains("One {") && !own.contains("four") && !own.contains("use a"));
    }

    #[test]
    fn a_type_comes_with_all_that_is_written_for_it() {
        let own = own("self.x + 1", "0");
        for part in ["struct One", "fn get", "        0\n", "fn four", "impl B for One {}"] {
            assert!(own.contains(part), "{part}: {own}");
        }
        assert!(!own.contains("fn two") && !own.contains("fn three"));
    }
}
