//! Regular expressions as automata: what day 14 builds on.

use crate::checks::Random;
use crate::refused;
use candecode::kit::dfa::{any_case, can_match, compile, escape, is_spent, start, Dfa};
use regex_automata::dfa::Automaton as _;
use regex_automata::util::primitives::StateID;

fn dfa(pattern: &str, whole: bool) -> Dfa {
    compile(pattern, whole).unwrap()
}

fn walk(dfa: &Dfa, whole: bool, bytes: &[u8]) -> StateID {
    bytes.iter().fold(start(dfa, whole).unwrap(), |state, byte| dfa.next_state(state, *byte))
}

/// Whether the whole text matches.
fn matches(pattern: &str, text: &str) -> bool {
    let dfa = dfa(pattern, true);
    dfa.is_match_state(dfa.next_eoi_state(walk(&dfa, true, text.as_bytes())))
}

/// Whether a match ends where the text does, wherever it begins.
fn ends(pattern: &str, text: &str) -> bool {
    let dfa = dfa(pattern, false);
    dfa.is_match_state(dfa.next_eoi_state(walk(&dfa, false, text.as_bytes())))
}

fn text(random: &mut Random, letters: &[char]) -> String {
    (0..random.below(8)).map(|_| letters[random.below(letters.len())]).collect()
}

#[test]
fn whole_begins_at_the_first_byte_and_else_anywhere() {
    assert!(matches("ab*", "abb") && !matches("ab*", "xabb") && !matches("ab*", "abbx"));
    assert!(ends("ab", "xxab") && ends("ab", "ab") && !ends("ab", "abx"));
}

#[test]
fn all_matches_count_not_the_first_alternative_only() {
    assert!(matches("a|ab", "ab") && matches("a|ab", "a"));
    assert!(matches("a??b?", "ab"));
}

#[test]
fn it_walks_bytes_not_characters() {
    let dfa = dfa("日+", true);
    let bytes = "日日".as_bytes();
    let after = |n: usize| walk(&dfa, true, &bytes[..n]);
    let matched = |n: usize| dfa.is_match_state(dfa.next_eoi_state(after(n)));
    assert_eq!(
        (0..=6).map(matched).collect::<Vec<_>>(),
        [false, false, false, true, false, false, true]
    );
    assert!((0..=6).all(|n| can_match(&dfa, after(n))));
    assert!(!can_match(&dfa, walk(&dfa, true, &[bytes[0], b'x'])));
}

#[test]
fn what_is_no_pattern_is_refused() {
    for pattern in ["(", "[z-a]", "a{2,1}", "*"] {
        refused(compile(pattern, true).map_err(Into::into), &["the pattern", "is refused"]);
    }
    // Its automaton would have more than 2^30 states: refused, not computed.
    refused(compile("(?:a|b)*a(?:a|b){30}", true).map_err(Into::into), &["is refused"]);
}

#[test]
fn nothing_matches_an_empty_class() {
    let none = dfa("[a&&b]", true);
    assert!(!can_match(&none, start(&none, true).unwrap()));
    let empty = dfa("", true);
    assert!(can_match(&empty, start(&empty, true).unwrap()));
}

#[test]
fn spent_means_that_nothing_more_can_follow() {
    for (pattern, text, spent) in [
        ("ab", "", false),
        ("ab", "a", false),
        ("ab", "ab", false), // it may end here
        ("ab", "abx", true),
        ("ab", "x", true),
        ("a*", "aaa", false),
        ("a*", "aab", true),
        ("ab?", "a", false),
    ] {
        let dfa = dfa(pattern, true);
        assert_eq!(
            is_spent(&dfa, walk(&dfa, true, text.as_bytes())),
            spent,
            "{pattern} after {text:?}"
        );
    }
}

/// By trying: a state is spent if and only if no continuation of up to four letters, the empty one too, makes a match.
#[test]
fn spent_agrees_with_trying_everything() {
    let patterns = ["ab", "a*b", "(ab)+", "a|bba", "a{2,3}", "(a|b)*bb", "b?a?", "(aa|b)*a"];
    let mut continuations = vec![String::new()];
    for _ in 0..4 {
        let longer: Vec<String> = continuations
            .iter()
            .flat_map(|text| ["a", "b"].map(|c| format!("{text}{c}")))
            .collect();
        continuations.extend(longer);
    }
    let mut random = Random::new(41);
    let mut seen = [0; 2];
    for _ in 0..200 {
        let pattern = patterns[random.below(patterns.len())];
        let text = text(&mut random, &['a', 'b']);
        let dfa = dfa(pattern, true);
        let possible = continuations.iter().any(|more| matches(pattern, &format!("{text}{more}")));
        assert_eq!(
            is_spent(&dfa, walk(&dfa, true, text.as_bytes())),
            !possible,
            "{pattern} after {text:?}"
        );
        seen[usize::from(possible)] += 1;
    }
    assert!(seen.iter().all(|n| *n > 20), "{seen:?}");
}

const LETTERS: [char; 20] = [
    'a', 'B', '0', ' ', '.', '*', '+', '(', ')', '[', ']', '\\', '|', '^', '$', '-', '#', '&', 'é',
    '日',
];

#[test]
fn an_escaped_text_matches_itself_and_nothing_else() {
    let mut random = Random::new(42);
    for _ in 0..150 {
        let (one, other) = (text(&mut random, &LETTERS), text(&mut random, &LETTERS));
        let pattern = escape(&one);
        assert!(matches(&pattern, &one), "{one:?} as {pattern:?}");
        assert_eq!(matches(&pattern, &other), one == other, "{one:?} as {pattern:?} and {other:?}");
        // Inside a class and verbose mode it means the same.
        assert!(matches(&format!("(?x:{pattern})"), &one) || one.contains(char::is_whitespace));
    }
}

/// Texts are read with their ASCII letters small, as day 14 does it.
fn small(text: &str) -> String {
    text.to_ascii_lowercase()
}

#[test]
fn any_case_matches_every_way_to_write_a_word() {
    for (word, ways, others) in [
        ("cat", &["cat", "Cat", "CAT", "cAt"][..], &["cart", "ca", "c.t"][..]),
        ("Été", &["été", "ÉTÉ", "Été", "éTé"], &["ete", "Ete"]),
        ("c++", &["c++", "C++"], &["ccc", "c+"]),
        ("STRASSE", &["strasse"], &["straße"]),
        ("straße", &["straße", "STRASSE", "STRAßE"], &["strase"]),
        ("ΣΊΣΥΦΟΣ", &["σίσυφοσ", "ΣΊΣΥΦΟΣ"], &["σισυφος"]),
        ("日本", &["日本"], &["日"]),
    ] {
        let pattern = any_case(word);
        for way in ways {
            assert!(matches(&pattern, &small(way)), "{word} should match {way}: {pattern}");
        }
        for other in others {
            assert!(
                !matches(&pattern, &small(other)),
                "{word} should not match {other}: {pattern}"
            );
        }
    }
}

#[test]
fn any_case_of_random_words() {
    let mut random = Random::new(43);
    let letters = ['a', 'Z', 'é', 'Ö', 'ж', '日', '.', '(', '7'];
    for _ in 0..150 {
        let (word, other) = (text(&mut random, &letters), text(&mut random, &letters));
        let pattern = any_case(&word);
        for way in [&word, &word.to_uppercase(), &word.to_lowercase()] {
            assert!(matches(&pattern, &small(way)), "{word} should match {way}: {pattern}");
        }
        let same = word.to_lowercase() == other.to_lowercase();
        assert_eq!(matches(&pattern, &small(&other)), same, "{word} and {other}: {pattern}");
    }
}
