//! Days that were begun before the course changed: the old names in them, the functions that they
//! lack, and the text that brings them up to date.
//!
//! A name is changed only where it is code, also inside `"{name}"`: comments and all other bytes
//! stay. Missing functions are appended as they are in the stub, with the types that they need.

use std::collections::BTreeSet;
use std::ops::Range;

/// What an old name stands for, and so where it occurs.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// A word of its own: every use of it.
    Word,
    /// A function with a common name, if the file defines it: there, and where it is called.
    Function,
    /// A method: where it is defined, and after a dot or a path.
    Method,
    /// A field, if the file defines or reads it: every use of the word that isn't a call.
    Field,
}

/// The names that version 0.1.0 changed: in which days, what they stand for, old and new. Readers
/// who began earlier have the old ones.
const RENAMED: &[(&[u32], Kind, &str, &str)] = &[
    (&[0], Kind::Function, "score", "logits"),
    (&[7], Kind::Function, "score", "token_logprobs"),
    (&[15], Kind::Method, "turn", "run_iteration"),
    (&[15], Kind::Field, "turns", "iterations"),
    (&[18, 21], Kind::Method, "place", "offset"),
    (&[20], Kind::Word, "Piece", "ChoiceToken"),
    (&[20], Kind::Word, "has_place", "has_free_slot"),
    (&[20], Kind::Word, "turns_until_place", "steps_until_slot"),
    (&[20], Kind::Method, "turn", "step"),
    (&[21, 22, 23, 24], Kind::Word, "flat_step", "varlen_step"),
    (&[21, 22, 23, 24], Kind::Word, "own_last_block", "copy_on_write"),
    (&[22, 23], Kind::Word, "adopt", "attach_prefix"),
    (&[22, 23], Kind::Word, "KnownBlock", "CachedBlock"),
    (&[22, 23], Kind::Field, "known", "cached"),
    (&[22, 23], Kind::Method, "remember", "cache_full_blocks"),
    (&[23], Kind::Method, "lacks", "num_uncomputed"),
    (&[23], Kind::Word, "Scheduled", "Chunk"),
];

/// What brings a day up to date.
#[derive(Debug, PartialEq, Eq)]
pub struct Migration {
    /// The day's file as it was.
    pub before: String,
    /// The day's file afterwards.
    pub text: String,
    /// The names that it changes, old and new.
    pub renamed: Vec<(&'static str, &'static str)>,
    /// The functions that it appends.
    pub added: Vec<String>,
}

/// Compares a day's file with its stub. Returns `None` if it is up to date.
///
/// # Errors
/// If the file's brackets don't match, so that its functions can't be told apart.
pub fn migration(source: &str, stub: &str, day: u32) -> Result<Option<Migration>, String> {
    let (mut text, renamed) = rename(source, day);
    let added = append_missing(&mut text, stub)?;
    let is_needed = !renamed.is_empty() || !added.is_empty();
    Ok(is_needed.then(|| Migration { before: source.to_string(), text, renamed, added }))
}

/// Changes the old names of a day. Returns the text and the names that occurred.
fn rename(source: &str, day: u32) -> (String, Vec<(&'static str, &'static str)>) {
    let tokens = tokens(source);
    let word = |at: usize| tokens.get(at).map_or("", |token| &source[token.range.clone()]);
    let before = |at: usize, n: usize| at.checked_sub(n).map_or("", word);
    let (mut changes, mut names) = (Vec::new(), Vec::new());
    for (_, kind, old, new) in RENAMED.iter().filter(|(days, ..)| days.contains(&day)) {
        let defined = |at| before(at, 1) == "fn";
        let after_dot = |at| before(at, 1) == "." && before(at, 2) != ".";
        let called = |at: usize| word(at + 1) == "(";
        let after_path = |at| before(at, 1) == ":" && before(at, 2) == ":";
        let uses: Vec<usize> = (0..tokens.len()).filter(|at| word(*at) == *old).collect();
        let reads = |at: &usize| before(*at, 1) == "pub" || (after_dot(*at) && !called(*at));
        let (has_function, has_field) =
            (uses.iter().any(|at| defined(*at)), uses.iter().any(reads));
        let is_old = |at: &usize| match (kind, tokens[*at].in_string) {
            (Kind::Field, _) => has_field && !defined(*at) && !(after_dot(*at) && called(*at)),
            (_, true) => false,
            (Kind::Word, _) => true,
            (Kind::Function, _) => {
                has_function && (defined(*at) || (called(*at) && !after_dot(*at)))
            }
            (Kind::Method, _) => defined(*at) || after_path(*at) || (after_dot(*at) && called(*at)),
        };
        let places: Vec<usize> = uses.into_iter().filter(is_old).collect();
        if !places.is_empty() {
            names.push((*old, *new));
        }
        changes.extend(places.into_iter().map(|at| (tokens[at].range.clone(), *new)));
    }
    changes.sort_by_key(|(range, _)| range.start);
    let mut text = source.to_string();
    for (range, new) in changes.into_iter().rev() {
        text.replace_range(range, new);
    }
    (text, names)
}

/// Appends the functions of the stub that a file lacks, and returns their names: those that are
/// public or a task, and whatever else of the stub these mention.
fn append_missing(text: &mut String, stub: &str) -> Result<Vec<String>, String> {
    let theirs = items(stub).ok_or("the stub's brackets don't match")?;
    let yours = items(text).ok_or("its brackets don't match")?;
    let is_missing = |item: &&Item| {
        let same = |other: &Item| other.name == item.name && same_type(other, item);
        !["use", "impl"].contains(&item.keyword) && !yours.iter().any(same)
    };
    let missing: Vec<&Item> = theirs.iter().filter(is_missing).collect();
    let (mut added, mut others): (Vec<&Item>, Vec<&Item>) = missing.into_iter().partition(|item| {
        item.keyword == "fn" && (item.is_public || item.text.contains("todo!(\"day "))
    });
    let names = added.iter().map(|item| item.name.to_string()).collect();
    let mut at = 0;
    while at < added.len() {
        let words = words(added[at].text);
        let (needed, rest) = others.into_iter().partition(|item| words.contains(item.name));
        others = rest;
        added.extend::<Vec<&Item>>(needed);
        at += 1;
    }
    let mentioned: BTreeSet<&str> = added.iter().flat_map(|item| words(item.text)).collect();
    let imports = |items: &[Item]| -> Vec<String> {
        let uses = items.iter().filter(|item| item.keyword == "use");
        uses.flat_map(|item| leaves(item.text)).collect()
    };
    let leaf = |path: &str| path.rsplit("::").next().unwrap_or_default().to_string();
    let has: Vec<String> = imports(&yours).iter().map(|path| leaf(path)).collect();
    let mut uses = imports(&theirs);
    uses.retain(|path| mentioned.contains(&*leaf(path)) && !has.contains(&leaf(path)));
    let uses: String = uses.iter().map(|path| format!("\nuse {path};")).collect();
    let last_use = yours.iter().rfind(|item| item.keyword == "use").map(|item| item.end);
    let mut end = String::new();
    for (at, item) in added.iter().enumerate() {
        let of_same_type = |other: &&&Item| same_type(other, item);
        match item.owner {
            None => end += &format!("\n{}\n", item.text),
            // It's added with the first one.
            Some(_) if added[..at].iter().any(|other| of_same_type(&other)) => {}
            Some(owner) => {
                let methods: Vec<&str> =
                    added.iter().filter(of_same_type).map(|item| item.text).collect();
                end += &format!("\nimpl{owner}{{\n{}\n}}\n", methods.join("\n\n"));
            }
        }
    }
    let (uses, end) = if text.contains("\r\n") {
        (uses.replace('\n', "\r\n"), end.replace('\n', "\r\n"))
    } else {
        (uses, end)
    };
    if !end.is_empty() && !text.ends_with('\n') {
        text.push('\n');
    }
    text.push_str(&end);
    text.insert_str(last_use.unwrap_or(0), if last_use.is_some() { &uses } else { "" });
    Ok(names)
}

/// A word or a sign of a source, outside comments and strings, or a word in `"{word}"`.
struct Token {
    range: Range<usize>,
    in_string: bool,
}

/// Returns the words and signs of a source.
fn tokens(source: &str) -> Vec<Token> {
    let bytes = source.as_bytes();
    let is_word = |at: usize| {
        bytes.get(at).is_some_and(|b| b.is_ascii_alphanumeric() || *b == b'_' || !b.is_ascii())
    };
    let word_end = |from: usize| (from..).find(|at| !is_word(*at)).unwrap_or(from);
    let find = |from: usize, what: &str| {
        source.get(from..).and_then(|rest| rest.find(what)).map_or(source.len(), |n| from + n)
    };
    let (mut found, mut at) = (Vec::new(), 0);
    while at < bytes.len() {
        let rest = &source[at..];
        if rest.starts_with("//") {
            at = find(at, "\n");
        } else if rest.starts_with("/*") {
            at = (find(at, "*/") + 2).min(bytes.len());
        } else if is_word(at) {
            let end = word_end(at);
            let hashes = bytes[end..].iter().take_while(|b| **b == b'#').count();
            let is_raw = ["r", "br"].contains(&&source[at..end]);
            if is_raw && bytes.get(end + hashes) == Some(&b'"') {
                let close = format!("\"{}", "#".repeat(hashes));
                at = (find(end + hashes + 1, &close) + close.len()).min(bytes.len());
            } else {
                found.push(Token { range: at..end, in_string: false });
                at = end;
            }
        } else if bytes[at] == b'"' {
            at += 1;
            while at < bytes.len() && bytes[at] != b'"' {
                let end = word_end(at + 1);
                if bytes[at] == b'{' && end > at + 1 && matches!(bytes.get(end), Some(b'}' | b':'))
                {
                    found.push(Token { range: at + 1..end, in_string: true });
                }
                at += if bytes[at] == b'\\' { 2 } else { 1 };
            }
            at += 1;
        } else if rest.starts_with("'\\") {
            at = (find(at + 3, "'") + 1).min(bytes.len());
        } else if bytes[at] == b'\'' {
            let next = rest.chars().nth(1).map_or(0, char::len_utf8);
            at += if rest[1 + next..].starts_with('\'') { next + 2 } else { 1 };
        } else {
            if !bytes[at].is_ascii_whitespace() {
                found.push(Token { range: at..at + 1, in_string: false });
            }
            at += 1;
        }
    }
    found
}

/// Returns the words of a source, outside comments and strings.
fn words(source: &str) -> BTreeSet<&str> {
    tokens(source).into_iter().map(|token| &source[token.range]).collect()
}

/// An item of a source, or a method.
struct Item<'a> {
    /// `fn`, `struct`, `use`, `impl` and so on.
    keyword: &'a str,
    name: &'a str,
    /// The line of a method's `impl`, after the word.
    owner: Option<&'a str>,
    is_public: bool,
    /// The item with its comments and attributes.
    text: &'a str,
    /// The end of the item in the source.
    end: usize,
}

/// Returns whether two items are methods of the same type, or none of any.
fn same_type(one: &Item, other: &Item) -> bool {
    fn name(head: &str) -> &str {
        let generic = head.find('>').filter(|_| head.trim_start().starts_with('<'));
        let named = head[generic.map_or(0, |at| at + 1)..].trim();
        named.split(|c: char| !(c.is_alphanumeric() || c == '_')).next().unwrap_or_default()
    }
    one.owner.map(name) == other.owner.map(name)
}

/// Returns the items of a source, and the methods of its types after them. `None` if the brackets
/// don't match.
fn items(source: &str) -> Option<Vec<Item<'_>>> {
    let tokens: Vec<Token> = tokens(source).into_iter().filter(|t| !t.in_string).collect();
    items_in(source, &tokens, 0, None)
}

fn items_in<'a>(
    source: &'a str,
    tokens: &[Token],
    mut from: usize,
    owner: Option<&'a str>,
) -> Option<Vec<Item<'a>>> {
    let word = |at: usize| tokens.get(at).map_or("", |token| &source[token.range.clone()]);
    let (mut found, mut methods, mut first, mut depth) = (Vec::new(), Vec::new(), 0, 0);
    for at in 0..tokens.len() {
        match word(at) {
            "{" | "(" | "[" => depth += 1,
            "}" | ")" | "]" => depth -= 1,
            _ => {}
        }
        if depth < 0 {
            return None;
        }
        if depth > 0 || !(word(at) == ";" || (word(at) == "}" && word(at + 1) != ";")) {
            continue;
        }
        let end = tokens[at].range.end;
        let lead = &source[from..tokens[first].range.start];
        let blank = ["\n\n", "\n\r\n"].iter().filter_map(|gap| Some(lead.rfind(gap)? + gap.len()));
        let text = source[from + blank.max().unwrap_or(0)..end].trim_start_matches(['\r', '\n']);
        if let Some(start) = (first..at).find(|at| is_keyword(word(*at))) {
            let start = if word(start + 1) == "fn" { start + 1 } else { start };
            let keyword = word(start);
            if keyword == "impl" {
                let open = (start..at).find(|at| word(*at) == "{")?;
                let head = &source[tokens[start].range.end..tokens[open].range.start];
                if !(start..open).any(|at| word(at) == "for") {
                    let inside = tokens[open].range.end;
                    methods.extend(items_in(source, &tokens[open + 1..at], inside, Some(head))?);
                }
            }
            let is_public = (first..start).any(|at| word(at) == "pub");
            found.push(Item { keyword, name: word(start + 1), owner, is_public, text, end });
        }
        (first, from) = (at + 1, end);
    }
    found.append(&mut methods);
    (depth == 0).then_some(found)
}

/// Returns whether a word says what kind of item it begins.
fn is_keyword(word: &str) -> bool {
    let of_types = matches!(word, "struct" | "enum" | "union" | "trait" | "type" | "impl");
    of_types || matches!(word, "fn" | "const" | "static" | "use" | "macro_rules")
}

/// Returns the paths of a `use`, each in full.
fn leaves(item: &str) -> Vec<String> {
    let (mut open, mut path, mut found) = (Vec::new(), String::new(), Vec::new());
    let item = item.find("use ").map_or("", |at| &item[at + "use ".len()..]);
    for token in tokens(item) {
        let word = &item[token.range];
        match word {
            "{" => open.push(path.clone()),
            "}" | "," | ";" => {
                if !path.is_empty() && !path.ends_with("::") {
                    found.push(path.trim_end_matches("::self").to_string());
                }
                let inside = open.last().filter(|_| word == ",");
                path = inside.cloned().unwrap_or_default();
                open.truncate(open.len().saturating_sub(usize::from(word == "}")));
            }
            _ => path += word,
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Renames in a day's file.
    fn renamed_text(source: &str, day: u32) -> String {
        rename(source, day).0
    }

    #[test]
    fn only_code_is_renamed() {
        let source =
            "// adopt(1)\nlet a = \"adopt\"; r#\"adopt\"#; 'a'; fn adopt<'a>() {} adopt();\n";
        let want =
            source.replace("fn adopt", "fn attach_prefix").replace("} adopt", "} attach_prefix");
        assert_eq!(renamed_text(source, 22), want);
        assert_eq!(renamed_text(source, 21), source, "another day's");
        assert_eq!(renamed_text("adopted, re_adopt", 22), "adopted, re_adopt");
    }

    #[test]
    fn a_method_is_renamed_but_not_a_variable_of_its_name() {
        let source =
            "fn turn(&mut self) {}\nlet turn = self.take_turn(); turn.next; s.turn(); 0..turn;";
        let want = source.replace("fn turn", "fn step").replace("s.turn()", "s.step()");
        assert_eq!(renamed_text(source, 20), want);
        assert_eq!(renamed_text("self\n    .lacks(&a)", 23), "self\n    .num_uncomputed(&a)");
    }

    #[test]
    fn a_field_is_renamed_with_all_variables_of_its_name_or_not_at_all() {
        let source = "pub known: u32 } let known = self.known; f(known(1), \"{known:?} known\")";
        let want = "pub cached: u32 } let cached = self.cached; f(cached(1), \"{cached:?} known\")";
        assert_eq!(renamed_text(source, 22), want);
        let own = "let known = 1; known + 1";
        assert_eq!(renamed_text(own, 22), own, "a variable in a day that has the new field");
    }

    #[test]
    fn a_common_name_is_renamed_only_where_the_file_defines_it() {
        assert_eq!(
            renamed_text("fn score() { score(); x.score }", 0),
            "fn logits() { logits(); x.score }"
        );
        assert_eq!(renamed_text("let score = |x| x; score(1)", 0), "let score = |x| x; score(1)");
    }

    const STUB: &str = "#![allow(unused)] // remove when the day is done
//! The day.

use a::{b::Other, One};
use c::Two;

/// A pair.
#[derive(Debug)]
pub struct Pair(u32);

impl<'a> Pair {
    /// The first.
    pub fn first(&self) -> One {
        todo!(\"day 6, task 1: x\")
    }

    /// Both: `{`.
    pub fn both(&self) -> Two {
        help(\"}\")
    }
}

// part 2: more

/// Helps.
fn help(text: &str) -> Two {
    todo!()
}

/// Is not needed.
fn unused() {}

/// The last.
pub fn last() -> Pair {
    todo!(\"day 6, task 2: y\")
}
";

    #[test]
    fn missing_functions_are_appended_with_what_they_need() {
        assert_eq!(migration(STUB, STUB, 6), Ok(None));
        let mine = "use a::One;\nstruct Pair(u8);\nimpl Pair { fn first(&self) -> One { One } }";
        let Ok(Some(done)) = migration(mine, STUB, 6) else { panic!("it lacks two functions") };
        assert_eq!(done.added, ["last", "both"]);
        let want = "use a::One;
use c::Two;
struct Pair(u8);
impl Pair { fn first(&self) -> One { One } }

/// The last.
pub fn last() -> Pair {
    todo!(\"day 6, task 2: y\")
}

impl<'a> Pair {
    /// Both: `{`.
    pub fn both(&self) -> Two {
        help(\"}\")
    }
}

/// Helps.
fn help(text: &str) -> Two {
    todo!()
}
";
        assert_eq!(done.text, want);
        assert_eq!(migration(&done.text, STUB, 6), Ok(None), "the second time");
        let half = want.replace(
            "/// The last.\npub fn last() -> Pair {\n    todo!(\"day 6, task 2: y\")\n}\n\n",
            "",
        );
        assert_eq!(migration(&half, STUB, 6).unwrap().unwrap().added, ["last"]);
    }

    #[test]
    fn windows_line_ends_are_kept() {
        let mine = "use a::One;\r\nuse c::Two;\r\n\r\nfn last() {}\r\n";
        let text = migration(mine, STUB, 6).unwrap().unwrap().text;
        assert!(text.starts_with(mine) && !text.replace("\r\n", "").contains('\n'), "{text:?}");
    }

    #[test]
    fn a_file_whose_brackets_do_not_match_is_refused() {
        for mine in ["fn a() {", "fn a() }", "fn a( {}"] {
            assert!(migration(mine, STUB, 6).is_err(), "{mine}");
        }
        for odd in ["\"", "'", "r#\"", "/*", "b'\\''", "'{'", "\"\\", "é", "'é'", "\"{é", "{x:}\""]
        {
            let _ = migration(odd, STUB, 6); // no panic
        }
    }
}
