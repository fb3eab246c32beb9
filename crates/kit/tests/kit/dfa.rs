//! Tests of regular expressions as automata, which day 14 builds on.

use candecode_kit::dfa::{any_word, Dfa, StateID};
use candecode_testing::{refused, Random};

fn anchored(pattern: &str) -> Dfa {
    Dfa::anchored(pattern).unwrap()
}

fn walk(dfa: &Dfa, bytes: &[u8]) -> StateID {
    bytes.iter().fold(dfa.start(), |state, byte| dfa.next_state(state, *byte))
}

/// Returns whether the whole text matches.
fn matches(pattern: &str, text: &str) -> bool {
    let dfa = anchored(pattern);
    dfa.ends_in_match(walk(&dfa, text.as_bytes()))
}

/// Returns whether a match ends at the end of the text, wherever it starts.
fn ends(pattern: &str, text: &str) -> bool {
    let dfa = Dfa::search(pattern).unwrap();
    dfa.ends_in_match(walk(&dfa, text.as_bytes()))
}

fn word_pattern(word: &str) -> String {
    any_word(&[word.to_string()])
}

fn text(random: &mut Random, letters: &[char]) -> String {
    (0..random.below(8)).map(|_| letters[random.below(letters.len())]).collect()
}

#[test]
fn anchored_matches_at_the_start_and_search_anywhere() {
    assert!(matches("ab*", "abb") && !matches("ab*", "xabb") && !matches("ab*", "abbx"));
    assert!(ends("ab", "xxab") && ends("ab", "ab") && !ends("ab", "abx"));
    // Alternatives don't need a group.
    assert!(matches("a|b", "b") && !matches("a|b", "ab") && ends("ab|c", "xc"));
}

#[test]
fn every_alternative_counts_not_only_the_first_match() {
    assert!(matches("a|ab", "ab") && matches("a|ab", "a"));
    assert!(matches("a??b?", "ab"));
}

#[test]
fn the_dfa_walks_bytes_not_characters() {
    let dfa = anchored("日+");
    let bytes = "日日".as_bytes();
    let matched = |n: usize| dfa.ends_in_match(walk(&dfa, &bytes[..n]));
    assert_eq!(
        (0..=6).map(matched).collect::<Vec<_>>(),
        [false, false, false, true, false, false, true]
    );
}

#[test]
fn a_match_appears_one_byte_late_or_at_the_end() {
    let dfa = Dfa::search("ab").unwrap();
    let (at, behind) = (walk(&dfa, b"ab"), walk(&dfa, b"abx"));
    assert!(dfa.ends_in_match(at) && !dfa.is_match_state(at));
    assert!(!dfa.ends_in_match(behind) && dfa.is_match_state(behind));
}

#[test]
fn successors_are_the_states_reached_by_any_byte() {
    for pattern in ["ab*", "[a-c]x|日", "(?s:.*)", "[a&&b]"] {
        let dfa = anchored(pattern);
        let mut seen = vec![dfa.start()];
        let mut at = 0;
        while at < seen.len() {
            let mut every: Vec<StateID> =
                (0..=255).map(|byte| dfa.next_state(seen[at], byte)).collect();
            every.sort_unstable();
            every.dedup();
            assert_eq!(dfa.successors(seen[at]), every, "{pattern}");
            every.retain(|state| !seen.contains(state));
            seen.extend(every);
            at += 1;
        }
    }
}

#[test]
fn an_invalid_pattern_is_refused_with_reason_and_position() {
    for (pattern, reason) in [
        ("(?:(", "unclosed group at character 4"),
        ("a)(b", "unopened group at character 2"),
        ("é[z-a]", "invalid character class range, the start must be <= the end at character 3"),
        ("a{2,1}", "at character 2"),
        ("*", "at character 1"),
        ("a(?=b)", "look-around, including look-ahead and look-behind, is not supported"),
        (r"\bdog", r"write (?-u:\b) for \b"),
    ] {
        for compiled in [Dfa::anchored(pattern), Dfa::search(pattern)] {
            let says = [&format!("invalid pattern \"{pattern}\": ")[..], reason];
            refused(compiled.map(|_| ()).map_err(Into::into), &says);
        }
    }
}

/// Short patterns that would take gigabytes or minutes to compile: the expanded pattern is too
/// large, there are too many states, or the sets that the states represent are too large. The test
/// measures no time, because actually compiling any of these would exhaust the machine.
#[test]
fn patterns_too_large_to_compile_are_refused() {
    let alternatives = [r"[\p{L}\p{N} ]{20000}"; 4].join("|");
    let optional = "(?:a|b)?c?".repeat(3000);
    for pattern in [
        r"\w{99999}",
        "((a{1000}){1000}){1000}",
        "a{1000}{1000}",
        r"(\w{1000}){1000}",
        r"(?:\w{500}){500}",
        "(((a{0,1000}){0,1000}){0,1000})",
        r"[\p{L}\p{N} ]{20000}",
        &alternatives,
        r"(?i)(\p{L}{200}){20}",
        "(?:(?:(?:a?){100}){100}){100}",
        "([a&&b]{1000}){1000}{1000}",
        "(?:a|b)*a(?:a|b){30}",
        r"(?:\w|[a-z])*x\w{12}",
        r"(?:.{0,50}\w){0,50}",
        "(?s)(?:.{0,100}){100}",
        "(?:foo|bar|[0-9]{1,3}){9999}",
        &optional,
        &r"\w".repeat(5_000),
    ] {
        let compiled = Dfa::anchored(pattern).map(|_| ()).map_err(Into::into);
        refused(compiled, &["\": its automaton is too large; use smaller counts"]);
    }
    let long = "a".repeat(40_000);
    let refused_at_once = Dfa::anchored(&long).map(|_| ()).map_err(Into::into);
    refused(refused_at_once, &["it has 40000 characters, and 32768 are the limit"]);
    for (open, close) in [("(", ")"), ("[", "]"), ("(?:a|", ")"), ("[a&&[b--", "]]")] {
        let deep = format!("{}a{}", open.repeat(2_000), close.repeat(2_000));
        refused(Dfa::anchored(&deep).map(|_| ()).map_err(Into::into), &["nested", "250"]);
    }
}

/// A pattern isn't rejected for its length alone, even at ten thousand characters.
#[test]
fn long_but_cheap_patterns_compile() {
    let mut random = Random::new(46);
    let mut any = |low: u32, many: usize| -> String {
        (0..10_000).filter_map(|_| char::from_u32(low + random.below(many) as u32)).collect()
    };
    let words: Vec<String> = (0..1_200).map(|n| format!("word{n}")).collect();
    for (pattern, text) in [
        ("a".repeat(10_000), "a".repeat(10_000)),
        ("[a-z]{10000}".into(), "x".repeat(10_000)),
        (".{10000}".into(), "é".repeat(10_000)),
        (r#"[^"\\]{1,10000}"#.into(), "日".repeat(9_999)),
        ("(?:[01][0-9a-z]){5000}".into(), "1x".repeat(5_000)),
        ("(?:ab|cd|ef){1,2000}".into(), "abcdef".repeat(500)),
        ("[0-9]{4}-".repeat(1_100), "2026-".repeat(1_100)),
        (words.join("|"), "word1199".into()),
        (format!("(?i)(?:{})", words.join("|")), "WORD7".into()),
        ("(?:a|b)?c".repeat(1_000), "c".repeat(1_000)),
    ] {
        assert!(matches(&pattern, &text), "{pattern:.40}");
    }
    for text in [any(0x61, 26), any(0x4e00, 20_000), any(0x1f300, 500), any(0xa0, 0x4000)] {
        assert!(matches(&regex_syntax::escape(&text), &text), "{text:.40}");
    }
}

const LETTERS: [char; 24] = [
    'a', 'B', '0', ' ', '.', '*', '+', '(', ')', '[', ']', '\\', '|', '^', '$', '-', '#', '&', '<',
    '>', '~', '/', 'é', '日',
];

/// Returns whether two words are equal up to letter case and normal form.
fn same_word(one: &str, other: &str) -> bool {
    one.to_lowercase() == other.to_lowercase()
}

#[test]
fn a_word_pattern_matches_the_word_literally() {
    let mut random = Random::new(42);
    for _ in 0..150 {
        let (one, other) = (text(&mut random, &LETTERS), text(&mut random, &LETTERS));
        let pattern = word_pattern(&one);
        assert!(matches(&pattern, &one), "{one:?} as {pattern:?}");
        let same = same_word(&one, &other);
        assert_eq!(matches(&pattern, &other), same, "{one:?} as {pattern:?} and {other:?}");
    }
    for word in ["<3", "->", "a>b", "<", ">"] {
        assert!(matches(&word_pattern(word), word), "{word}");
        assert!(ends(&word_pattern(word), &format!("so {word}")), "{word}");
    }
}

#[test]
fn a_word_matches_in_any_letter_case() {
    for (word, ways, others) in [
        ("cat", &["cat", "Cat", "CAT", "cAt"][..], &["cart", "ca", "c.t"][..]),
        ("Été", &["été", "ÉTÉ", "Été", "éTé"], &["ete", "Ete"]),
        ("c++", &["c++", "C++"], &["ccc", "c+"]),
        ("STRASSE", &["strasse", "straße"], &["strase"]),
        ("straße", &["straße", "STRASSE", "STRAßE", "STRAẞE"], &["strase"]),
        ("ΣΊΣΥΦΟΣ", &["σίσυφοσ", "σίσυφος", "ΣΊΣΥΦΟΣ"], &["σισυφος"]),
        ("ΟΔΟΣ", &["οδος", "οδοσ", "Οδος"], &["οδο"]),
        ("ǆ", &["ǆ", "ǅ", "Ǆ"], &["dž"]),
        ("kiss", &["\u{212a}iss", "kiſs", "KISS"], &["kis"]),
        ("日本", &["日本"], &["日"]),
    ] {
        let pattern = word_pattern(word);
        for way in ways {
            assert!(matches(&pattern, way), "{word} should match {way}: {pattern}");
        }
        for other in others {
            assert!(!matches(&pattern, other), "{word} should not match {other}: {pattern}");
        }
    }
}

#[test]
fn a_word_matches_in_both_normalization_forms() {
    for (composed, decomposed) in [
        ("caf\u{e9}", "cafe\u{301}"),
        ("\u{c5}ngstr\u{f6}m", "A\u{30a}ngstro\u{308}m"),
        ("\u{439}", "\u{438}\u{306}"),
        ("\u{d55c}", "\u{1112}\u{1161}\u{11ab}"),
    ] {
        for word in [composed, decomposed] {
            let pattern = word_pattern(word);
            for way in [composed, decomposed] {
                let (large, small) = (way.to_uppercase(), way.to_lowercase());
                for way in [way, &large, &small] {
                    assert!(matches(&pattern, way), "{word:?} should match {way:?}: {pattern}");
                }
            }
        }
    }
    assert!(!matches(&word_pattern("caf\u{e9}"), "cafe"));
}

/// A character that is several letters in capitals has them as another spelling.
#[test]
fn a_ligature_matches_its_letters() {
    for (letters, ligature) in [
        ("STRASSE", "straße"),
        ("gross", "groß"),
        ("ss", "ß"),
        ("SS", "ẞ"),
        ("office", "oﬃce"),
        ("office", "oﬀice"),
        ("office", "ofﬁce"),
        ("fish", "ﬁsh"),
        ("first", "ﬁrﬆ"),
        ("first", "firﬅ"),
        ("αι", "ᾳ"),
        ("ssss", "sßs"),
        ("\u{2bc}n", "ŉ"),
    ] {
        for (word, way) in [(letters, ligature), (ligature, letters)] {
            for way in [way.to_string(), way.to_uppercase(), way.to_lowercase()] {
                let pattern = word_pattern(word);
                assert!(matches(&pattern, &way), "{word} should match {way}: {pattern}");
            }
        }
    }
    assert!(!matches(&word_pattern("fish"), "ﬀsh") && !matches(&word_pattern("as"), "aß"));
    // A run of letters with other spellings is only tried in full up to a limit.
    assert!(word_pattern(&"s".repeat(200)).len() < 10_000);
}

#[test]
fn random_words_are_found_in_every_letter_case() {
    let mut random = Random::new(43);
    let letters = ['a', 'Z', 'é', 'Ö', 'ж', '日', '.', '(', '7'];
    for _ in 0..150 {
        let (word, other) = (text(&mut random, &letters), text(&mut random, &letters));
        let pattern = word_pattern(&word);
        for way in [&word, &word.to_uppercase(), &word.to_lowercase()] {
            assert!(matches(&pattern, way), "{word} should match {way}: {pattern}");
        }
        assert_eq!(
            matches(&pattern, &other),
            same_word(&word, &other),
            "{word} and {other}: {pattern}"
        );
    }
}

/// Parts that words share are written only once, which must not change the matches.
#[test]
fn a_word_list_matches_exactly_its_words() {
    let mut random = Random::new(44);
    for _ in 0..40 {
        let letters = ['a', 'b', 'é', '.'];
        let words: Vec<String> = (0..random.below(12) + 1)
            .map(|_| format!("a{}", text(&mut random, &letters)))
            .collect();
        let pattern = any_word(&words);
        let dfa = Dfa::anchored(&pattern).unwrap();
        for other in words.clone().into_iter().chain((0..40).map(|_| text(&mut random, &letters))) {
            let found = dfa.ends_in_match(walk(&dfa, other.as_bytes()));
            assert_eq!(found, words.contains(&other), "{other} in {words:?}: {pattern}");
        }
    }
    // Each word is a prefix of the next. The parser would reject that many nested groups.
    let nested: Vec<String> = (1..150).map(|n| "ab".repeat(n)).collect();
    let dfa = Dfa::anchored(&any_word(&nested)).unwrap();
    assert!(nested.iter().all(|word| dfa.ends_in_match(walk(&dfa, word.as_bytes()))));
    assert!(!dfa.ends_in_match(walk(&dfa, b"aba")));
}

#[test]
fn a_list_with_too_many_words_is_refused() {
    let mut random = Random::new(46);
    let mut word = || format!("{}{}", random.below(1 << 31), random.below(1 << 31));
    let words: Vec<String> = (0..100_000).map(|_| word()).collect();
    let compiled = Dfa::search(&any_word(&words)).map_err(Into::into);
    refused(compiled, &["the automaton of the blocked words is too large"]);
}

/// A long list compiles quickly, even in an unoptimized build.
#[test]
fn a_long_list_compiles_quickly() {
    let mut random = Random::new(45);
    let letters: Vec<char> = ('a'..='z').collect();
    let mut word = || -> String { (0..9).map(|_| letters[random.below(26)]).collect() };
    let words: Vec<String> = (0..5_000).map(|_| word()).collect();
    let dfa = Dfa::search(&any_word(&words)).unwrap();
    let text = format!("it is {} again", words[7].to_uppercase());
    let states = text.bytes().scan(dfa.start(), |state, byte| {
        *state = dfa.next_state(*state, byte);
        Some(*state)
    });
    assert_eq!(states.filter(|state| dfa.ends_in_match(*state)).count(), 1);
}
