//! Regular expressions over bytes, compiled to the deterministic automata that day 14 walks.

use candle_core::{Error, Result};
use regex_automata::dfa::{dense, Automaton as _, StartKind};
use regex_automata::nfa::thompson::{self, State, NFA};
use regex_automata::{Anchored, Input, MatchKind};
use std::collections::{BTreeMap, BTreeSet};
use tokenizers::NormalizedString;

pub use regex_automata::util::primitives::StateID;

/// Maximum length, in characters, of a pattern that the whole text must match. The parser has its
/// own limit of 250 levels of nesting.
///
/// A server compiles patterns from strangers, and a pattern of nine characters, `\w{99999}`, can
/// take gigabytes of memory and minutes to compile. These limits are sizes, not times, so every
/// machine accepts and rejects the same patterns. Accepted patterns compile within a second and 100
/// MB. A list of blocked words can be long, so its limits are far higher.
const MOST_CHARS: usize = 1 << 15;

/// Maximum length of a blocked word, in bytes. Automata of longer words take memory and time that
/// grow with the square of their length.
pub const MOST_WORD_BYTES: usize = 200;

/// Maximum length of all blocked words together, in bytes.
pub const MOST_LIST_BYTES: usize = 1 << 18;

/// Maximum length of the pattern of such a list, in characters.
const MOST_LIST_CHARS: usize = 4 * MOST_LIST_BYTES;

/// Maximum number of states. Day 14's `live_states` visits every one.
const MOST_STATES: usize = 1 << 18;

/// Returns the maximum size, in bytes, of the sets of NFA states that the automaton's states
/// represent. Building the automaton walks each set once for each of the `classes` byte classes, so
/// this also bounds the time. A pattern without choices has one NFA state per set and needs no
/// limit.
fn most_set_bytes(nfa: &NFA, classes: usize) -> Option<usize> {
    let choice = |state: &State| matches!(state, State::Union { .. } | State::BinaryUnion { .. });
    // The crate always adds one union at the start, to search from any position.
    let search = usize::from(nfa.start_unanchored() != nfa.start_anchored());
    let choices = nfa.states().iter().filter(|state| choice(state)).count();
    (choices > search).then_some((120_000_000 / classes).max(1 << 20))
}

/// A deterministic automaton: it maps every state and byte to the next state.
pub struct Dfa {
    table: dense::DFA<Vec<u32>>,
    start: StateID,
}

impl Dfa {
    /// Compiles an automaton that finds matches starting anywhere in the text.
    ///
    /// # Errors
    /// If `pattern` is not a regular expression, or its automaton is too large.
    pub fn search(pattern: &str) -> Result<Self> {
        Self::compile(pattern, StartKind::Unanchored, Anchored::No)
    }

    /// Compiles an automaton that finds matches starting at the first byte of the text.
    ///
    /// # Errors
    /// Same as [`Dfa::search`].
    pub fn anchored(pattern: &str) -> Result<Self> {
        Self::compile(pattern, StartKind::Anchored, Anchored::Yes)
    }

    fn compile(pattern: &str, kind: StartKind, anchored: Anchored) -> Result<Self> {
        let refused =
            |reason: String| Error::Msg(format!("invalid pattern \"{pattern:.60}\": {reason}"));
        let block_list = kind == StartKind::Unanchored;
        let chars = pattern.chars().count();
        let too_large = || {
            if block_list {
                let reason = "the automaton of the blocked words is too large; block fewer or \
                    shorter words";
                return Error::Msg(reason.into());
            }
            refused(
                "its automaton is too large; use smaller counts, as in {1000}, and smaller \
                 classes: \\w alone is 140,000 characters, [a-z] 26"
                    .into(),
            )
        };
        if block_list && chars > MOST_LIST_CHARS {
            return Err(too_large());
        }
        if !block_list && chars > MOST_CHARS {
            let reason = format!("it has {chars} characters, and {MOST_CHARS} are the limit");
            return Err(refused(reason));
        }
        let hir = regex_syntax::ParserBuilder::new().utf8(false).build().parse(pattern);
        let hir = hir.map_err(|e| refused(syntax_error(pattern, &e)))?;
        if hir.properties().look_set().contains_word_unicode() {
            return Err(refused(
                r"a Unicode word boundary needs more than one byte; write (?-u:\b) for \b".into(),
            ));
        }
        let config = thompson::Config::new()
            .utf8(false)
            .which_captures(thompson::WhichCaptures::None)
            .nfa_size_limit(Some(if block_list { 1 << 30 } else { 10 << 20 }));
        let nfa = thompson::Compiler::new().configure(config).build_from_hir(&hir);
        drop(hir);
        let nfa = nfa.map_err(|e| match e.size_limit() {
            Some(_) => too_large(),
            None => refused(causes(e)),
        })?;
        let classes = nfa.byte_classes().alphabet_len();
        let (table_bytes, set_bytes) = if block_list {
            (1 << 27, Some(1 << 27))
        } else {
            // A row has a 4-byte entry per class and is padded to the next power of two.
            let row = 4 * classes.next_power_of_two();
            ((MOST_STATES * row).min(1 << 25), most_set_bytes(&nfa, classes))
        };
        let config = dense::Config::new()
            .start_kind(kind)
            .match_kind(MatchKind::All)
            .dfa_size_limit(Some(table_bytes))
            .determinize_size_limit(set_bytes);
        let table = dense::Builder::new().configure(config).build_from_nfa(&nfa);
        let table = table.map_err(|e| {
            if e.is_size_limit_exceeded() {
                too_large()
            } else {
                refused(causes(e))
            }
        })?;
        let start = table.start_state_forward(&Input::new("").anchored(anchored));
        let start = start.map_err(|e| refused(e.to_string()))?;
        Ok(Self { table, start })
    }

    /// Returns the automaton's memory, in bytes.
    pub fn memory_usage(&self) -> usize {
        self.table.memory_usage()
    }

    /// Returns the state before the first byte.
    pub fn start(&self) -> StateID {
        self.start
    }

    /// Returns the state after one more byte.
    pub fn next_state(&self, state: StateID, byte: u8) -> StateID {
        self.table.next_state(state, byte)
    }

    /// Returns true if a match ended *one byte ago*, before the byte that led to `state`. The regex
    /// crates' automata report matches with this delay because a boundary such as `\b` depends on
    /// the next byte.
    pub fn is_match_state(&self, state: StateID) -> bool {
        self.table.is_match_state(state)
    }

    /// Returns true if the text would end in a match if it stopped here.
    pub fn ends_in_match(&self, state: StateID) -> bool {
        self.table.is_match_state(self.table.next_eoi_state(state))
    }

    /// Returns the states reachable from `state` in one byte, without duplicates.
    pub fn successors(&self, state: StateID) -> Vec<StateID> {
        // Bytes that the pattern never distinguishes form a class, so one byte per class is enough.
        let classes = self.table.byte_classes().representatives(0..=255);
        let bytes = classes.filter_map(|unit| unit.as_u8());
        let mut next: Vec<StateID> = bytes.map(|byte| self.next_state(state, byte)).collect();
        next.sort_unstable();
        next.dedup();
        next
    }
}

/// Describes a syntax error in a pattern and its location.
fn syntax_error(pattern: &str, error: &regex_syntax::Error) -> String {
    let (reason, span) = match error {
        regex_syntax::Error::Parse(e) => (e.kind().to_string(), e.span()),
        regex_syntax::Error::Translate(e) => (e.kind().to_string(), e.span()),
        _ => return causes(error.clone()),
    };
    let before = pattern.get(..span.start.offset).unwrap_or(pattern);
    format!("{reason} at character {}", before.chars().count() + 1)
}

/// Formats an error and its causes on one line.
fn causes(error: impl Into<anyhow::Error>) -> String {
    format!("{:#}", error.into())
}

/// Returns a pattern, as a group, that matches these words in any letter case, composed ("é" is one
/// character) or decomposed ("e" and an accent), and with ligatures and ß written either way ("ss"
/// or "ß", "fi" or "ﬁ").
pub fn any_word(words: &[String]) -> String {
    let spellings = spellings();
    let mut forms = BTreeSet::new();
    for word in words {
        // `(?i:…)` folds case letter by letter. It doesn't match "ß" with "SS", but std's case
        // conversion does.
        let small_word = word.to_lowercase();
        // ẞ is already a capital, but ß in capitals is SS.
        let capitals = [word.to_uppercase(), small_word.to_uppercase()];
        for cased in [word.to_string(), small_word].into_iter().chain(capitals) {
            let mut composed = NormalizedString::from(cased.as_str());
            let mut decomposed = composed.clone();
            composed.nfc();
            decomposed.nfd();
            for form in [composed.get(), decomposed.get()] {
                forms.insert(parts(&small(form), &spellings));
            }
            if word.is_ascii() {
                break; // all forms are the same
            }
        }
    }
    let forms: Vec<Vec<String>> = forms.into_iter().collect();
    format!("(?i:{})", alternatives(&forms, 0, 0))
}

/// The characters that are several letters in capitals, by these letters: ß by "ss", ﬁ by "fi".
type Spellings = BTreeMap<Vec<char>, Vec<char>>;

fn spellings() -> Spellings {
    let mut spellings = Spellings::new();
    // All others lie beyond the Basic Multilingual Plane and have capitals of one letter, or none.
    for c in '\u{80}'..='\u{ffff}' {
        if c.to_uppercase().len() > 1 {
            let letters = small(&c.to_uppercase().to_string());
            spellings.entry(letters).or_default().push(c);
        }
    }
    spellings
}

/// The longest run of letters that is tried with every combination of its spellings.
const LONGEST_RUN: usize = 8;

/// Splits a word into patterns: a letter, or letters that have other spellings, with these.
fn parts(word: &[char], spellings: &Spellings) -> Vec<String> {
    // The spellings of what starts at a letter, with their lengths.
    let at = |at: usize| {
        let lengths = (2..=3).filter_map(move |length| word.get(at..at + length));
        lengths.filter_map(move |letters| Some((letters.len(), spellings.get(letters)?)))
    };
    let mut parts = Vec::new();
    let mut begin = 0;
    while begin < word.len() {
        let mut end = begin + 1;
        let mut inside = begin;
        while inside < end {
            for (length, _) in at(inside).filter(|(n, _)| inside + n <= begin + LONGEST_RUN) {
                end = end.max(inside + length);
            }
            inside += 1;
        }
        // The ways to write the letters up to each place in the run.
        let mut ways: Vec<Vec<String>> = vec![Vec::new(); end - begin + 1];
        ways[0].push(String::new());
        for inside in begin..end {
            let before = std::mem::take(&mut ways[inside - begin]);
            let mut add = |length: usize, c: char| {
                let next =
                    before.iter().map(|way| way.clone() + &regex_syntax::escape(&c.to_string()));
                ways[inside - begin + length].extend(next);
            };
            add(1, word[inside]);
            for (length, others) in at(inside).filter(|(length, _)| inside + length <= end) {
                others.iter().for_each(|c| add(length, *c));
            }
        }
        let ways = &ways[end - begin];
        parts.push(if ways.len() == 1 {
            ways[0].clone()
        } else {
            format!("(?:{})", ways.join("|"))
        });
        begin = end;
    }
    parts
}

/// Returns a word's characters, lowercased where the result is a single character.
fn small(word: &str) -> Vec<char> {
    let one = |c: char| {
        let mut small = c.to_lowercase();
        if small.len() == 1 {
            small.next().unwrap_or(c)
        } else {
            c
        }
    };
    word.chars().map(one).collect()
}

/// Returns a pattern for sorted words, each a list of patterns, without the first `at` of these,
/// which they all share. Further common prefixes are written once. This keeps the number of
/// alternatives at each point small, and that number determines the cost of the automaton.
fn alternatives(words: &[Vec<String>], at: usize, depth: usize) -> String {
    let [first, .., last] = words else {
        return words.iter().map(|word| word[at..].concat()).collect();
    };
    let mut shared = first[at..].iter().zip(&last[at..]).take_while(|(a, b)| a == b).count();
    let mut branches = Vec::new();
    if depth < 64 {
        for branch in words.chunk_by(|a, b| a.get(at + shared) == b.get(at + shared)) {
            branches.push(alternatives(branch, at + shared, depth + 1));
        }
    } else {
        // The parser rejects nesting deeper than 250.
        shared = 0;
        branches.extend(words.iter().map(|word| word[at..].concat()));
    }
    format!("{}(?:{})", first[at..at + shared].concat(), branches.join("|"))
}
