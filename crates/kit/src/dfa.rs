//! Regular expressions over bytes, as deterministic automata: what day 14 walks.

use candle_core::{Error, Result};
use regex_automata::dfa::{dense, Automaton as _, StartKind};
use regex_automata::nfa::thompson::{self, State, Transition, NFA};
use regex_automata::{Anchored, Input, MatchKind};
use std::collections::BTreeSet;
use tokenizers::NormalizedString;

pub use regex_automata::util::primitives::StateID;

/// How large a pattern and its automata may become. A server compiles the patterns of strangers, and nine
/// characters, `\w{99999}`, can ask for gigabytes and minutes. These are sizes, not times, so that a
/// pattern is accepted or refused on every machine alike.
struct Limits {
    /// Characters of the pattern. The parser's own limit is 250 brackets inside each other.
    chars: usize,
    /// Bytes of the nondeterministic automaton, which writes out every repetition.
    nfa_bytes: usize,
    /// Bytes of the table, and states: `live_states` of day 14 visits each.
    table_bytes: usize,
    states: usize,
    /// Bytes of the sets of nondeterministic states that each state of the table stands for: at least
    /// `set_bytes`, and more where bytes fall into few classes. Each set is walked once for each class,
    /// so this bounds the time. Where there is never a choice, every set is one state: no limit.
    set_bytes: usize,
    set_bytes_times_classes: usize,
}

/// What must match. Compiled or refused within a second, and 100 MB.
const FORMAT: Limits = Limits {
    chars: 1 << 15,
    nfa_bytes: 10 << 20,
    table_bytes: 1 << 25,
    states: 1 << 18,
    set_bytes: 1 << 20,
    set_bytes_times_classes: 120_000_000,
};

/// Words to be blocked. Their automaton cannot grow without end, only long.
const BLOCK_LIST: Limits = Limits {
    chars: usize::MAX,
    nfa_bytes: 1 << 30,
    table_bytes: 1 << 27,
    states: usize::MAX,
    set_bytes: 1 << 29,
    set_bytes_times_classes: 0,
};

impl Limits {
    /// The limit of the table: a row has a number of 4 bytes for each class of bytes, and is padded to
    /// the next power of two.
    fn dfa_bytes(&self, nfa: &NFA) -> usize {
        let row = 4 * nfa.byte_classes().alphabet_len().next_power_of_two();
        self.states.saturating_mul(row).min(self.table_bytes)
    }

    fn determinize_bytes(&self, nfa: &NFA) -> Option<usize> {
        // The crate always puts the search for a beginning in front, as one union.
        let search = usize::from(nfa.start_unanchored() != nfa.start_anchored());
        let choice = |state: &&State| !alternates(state).is_empty();
        let classes = nfa.byte_classes().alphabet_len();
        let most = (self.set_bytes_times_classes / classes).max(self.set_bytes);
        (nfa.states().iter().filter(choice).count() > search).then_some(most)
    }
}

/// A deterministic automaton: for every state and byte the next state.
pub struct Dfa {
    table: dense::DFA<Vec<u32>>,
    start: StateID,
}

impl Dfa {
    /// An automaton whose matches may begin anywhere in the text.
    ///
    /// # Errors
    /// If `pattern` is not a regular expression, or its automaton is too large.
    pub fn search(pattern: &str) -> Result<Self> {
        Self::compile(pattern, StartKind::Unanchored, Anchored::No)
    }

    /// An automaton whose matches begin with the first byte of the text.
    ///
    /// # Errors
    /// As [`Dfa::search`].
    pub fn anchored(pattern: &str) -> Result<Self> {
        Self::compile(pattern, StartKind::Anchored, Anchored::Yes)
    }

    fn compile(pattern: &str, kind: StartKind, anchored: Anchored) -> Result<Self> {
        let refused =
            |reason: String| Error::Msg(format!("the pattern {pattern:.60} is refused: {reason}"));
        let limits = if kind == StartKind::Anchored { FORMAT } else { BLOCK_LIST };
        let chars = pattern.chars().count();
        if chars > limits.chars {
            let most = limits.chars;
            return Err(refused(format!("it has {chars} characters, and {most} are the limit")));
        }
        let hir = regex_syntax::ParserBuilder::new().utf8(false).build().parse(pattern);
        let hir = hir.map_err(|e| refused(syntax_error(pattern, &e)))?;
        if hir.properties().look_set().contains_word_unicode() {
            return Err(refused(
                r"a word border of Unicode needs more than a byte; write (?-u:\b) for \b".into(),
            ));
        }
        let too_large = || {
            refused(
                r"its automaton is too large; use smaller counts, as in {1000}, and smaller classes: \w alone is 140,000 characters, [a-z] 26"
                    .into(),
            )
        };
        let config = thompson::Config::new()
            .utf8(false)
            .which_captures(thompson::WhichCaptures::None)
            .nfa_size_limit(Some(limits.nfa_bytes));
        let nfa = thompson::Compiler::new()
            .configure(config)
            .build_from_hir(&hir)
            .map_err(Box::new)
            .and_then(|nfa| merge_alternatives(&nfa, 2 * limits.nfa_bytes));
        drop(hir);
        let nfa = nfa.map_err(|e| match e.size_limit() {
            Some(_) => too_large(),
            None => refused(causes(&*e)),
        })?;
        let config = dense::Config::new()
            .start_kind(kind)
            .match_kind(MatchKind::All)
            .dfa_size_limit(Some(limits.dfa_bytes(&nfa)))
            .determinize_size_limit(limits.determinize_bytes(&nfa));
        let table = dense::Builder::new().configure(config).build_from_nfa(&nfa);
        let table = table.map_err(|e| {
            if e.is_size_limit_exceeded() {
                too_large()
            } else {
                refused(causes(&e))
            }
        })?;
        let start = table.start_state_forward(&Input::new("").anchored(anchored));
        let start = start.map_err(|e| refused(e.to_string()))?;
        Ok(Self { table, start })
    }

    /// Bytes of memory that the automaton takes.
    pub fn memory_usage(&self) -> usize {
        self.table.memory_usage()
    }

    /// The state before the first byte.
    pub fn start(&self) -> StateID {
        self.start
    }

    /// One transition: the state after one more byte.
    pub fn next_state(&self, state: StateID, byte: u8) -> StateID {
        self.table.next_state(state, byte)
    }

    /// True if a match ended *one byte ago*, before the byte that led to `state`. This is how the
    /// automata of the regex crates say "match": a border such as `\b` shows one byte late.
    pub fn is_match_state(&self, state: StateID) -> bool {
        self.table.is_match_state(state)
    }

    /// True if the text so far, were it the whole text, ends in a match.
    pub fn ends_in_match(&self, state: StateID) -> bool {
        self.table.is_match_state(self.table.next_eoi_state(state))
    }

    /// The states that one byte leads to from `state`, each once.
    pub fn successors(&self, state: StateID) -> Vec<StateID> {
        // Bytes that no part of the pattern tells apart are one class: one byte stands for all.
        let classes = self.table.byte_classes().representatives(0..=255);
        let bytes = classes.filter_map(|unit| unit.as_u8());
        let mut next: Vec<StateID> = bytes.map(|byte| self.next_state(state, byte)).collect();
        next.sort_unstable();
        next.dedup();
        next
    }
}

/// The same automaton with fewer states at a time: the alternatives of a union that begin with
/// different bytes become one state. A block list is one large union, and to determinise it costs
/// what all states that the text may be in cost: with this, 10,000 words take a second.
fn merge_alternatives(
    nfa: &NFA,
    most_bytes: usize,
) -> std::result::Result<NFA, Box<thompson::BuildError>> {
    let mut builder = thompson::Builder::new();
    builder.set_utf8(nfa.is_utf8());
    builder.set_size_limit(Some(most_bytes))?;
    builder.start_pattern()?;
    // States are numbered as they are added, so all that is copied keeps its number, and what is
    // new comes behind.
    let mut new: Vec<Vec<Transition>> = Vec::new();
    for state in nfa.states() {
        match state {
            State::ByteRange { trans } => builder.add_range(*trans)?,
            State::Sparse(sparse) => builder.add_sparse(sparse.transitions.to_vec())?,
            State::Dense(dense) => {
                let next = |byte| Some((byte, dense.matches_byte(byte)?));
                let each = (0..=255).filter_map(next);
                let each = each.map(|(byte, next)| Transition { start: byte, end: byte, next });
                builder.add_sparse(each.collect())?
            }
            State::Look { look, next } => builder.add_look(*next, *look)?,
            State::Union { .. } | State::BinaryUnion { .. } => {
                let (merged, mut others) = merged(nfa, &alternates(state));
                if others.is_empty() {
                    builder.add_sparse(merged)?
                } else {
                    let id = StateID::new(nfa.states().len() + new.len());
                    // `(|||)` leads to one state three times.
                    others.sort_unstable();
                    others.dedup();
                    others.extend(id);
                    new.push(merged);
                    builder.add_union(others)?
                }
            }
            State::Capture { next, .. } => builder.add_union(vec![*next])?,
            State::Fail => builder.add_fail()?,
            State::Match { .. } => builder.add_match()?,
        };
    }
    for transitions in new {
        builder.add_sparse(transitions)?;
    }
    builder.finish_pattern(nfa.start_anchored())?;
    Ok(builder.build(nfa.start_anchored(), nfa.start_unanchored())?)
}

/// The states that a union leads to.
fn alternates(union: &State) -> Vec<StateID> {
    match union {
        State::Union { alternates } => alternates.to_vec(),
        State::BinaryUnion { alt1, alt2 } => vec![*alt1, *alt2],
        _ => Vec::new(),
    }
}

/// The transitions of alternatives that begin with different bytes, in order, and the alternatives
/// that are left.
fn merged(nfa: &NFA, alternates: &[StateID]) -> (Vec<Transition>, Vec<StateID>) {
    let mut merged: Vec<Transition> = Vec::new();
    let mut others = Vec::new();
    let mut taken = [false; 256];
    for id in alternates {
        let transitions = match nfa.state(*id) {
            State::ByteRange { trans } => std::slice::from_ref(trans),
            State::Sparse(sparse) => &sparse.transitions[..],
            _ => &[],
        };
        let bytes = transitions.iter().flat_map(|t| usize::from(t.start)..=usize::from(t.end));
        if transitions.is_empty() || bytes.clone().any(|byte| taken[byte]) {
            others.push(*id);
            continue;
        }
        for byte in bytes {
            taken[byte] = true;
        }
        merged.extend_from_slice(transitions);
    }
    merged.sort_by_key(|transition| transition.start);
    (merged, others)
}

/// What is wrong with a pattern, and where.
fn syntax_error(pattern: &str, error: &regex_syntax::Error) -> String {
    let (reason, span) = match error {
        regex_syntax::Error::Parse(e) => (e.kind().to_string(), e.span()),
        regex_syntax::Error::Translate(e) => (e.kind().to_string(), e.span()),
        _ => return causes(error),
    };
    let before = pattern.get(..span.start.offset).unwrap_or(pattern);
    format!("{reason} at character {}", before.chars().count() + 1)
}

/// An error and its causes on one line.
fn causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text += &format!(": {error}");
        cause = error.source();
    }
    text
}

/// Words as one pattern, a group: it matches any of them, in any letter case, composed ("é" is one
/// character) or decomposed ("e" and an accent), and nothing else.
pub fn any_word(words: &[String]) -> String {
    let mut forms = BTreeSet::new();
    for word in words {
        if word.is_ascii() {
            forms.insert(small(word));
            continue;
        }
        // `(?i:…)` joins letters one by one. "ß" and "SS" it does not, but std's letter case does.
        for cased in [word.to_string(), word.to_lowercase(), word.to_uppercase()] {
            let mut composed = NormalizedString::from(cased.as_str());
            let mut decomposed = composed.clone();
            composed.nfc();
            decomposed.nfd();
            forms.insert(small(composed.get()));
            forms.insert(small(decomposed.get()));
        }
    }
    let forms: Vec<Vec<char>> = forms.into_iter().collect();
    format!("(?i:{})", alternatives(&forms, 0, 0))
}

/// The characters of a word, small where that is one character.
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

/// Sorted words as a pattern, without the `at` characters that they all begin with. What some of
/// them have in common next is written once, so that alternatives begin with different characters
/// and `merge_alternatives` can merge them.
fn alternatives(words: &[Vec<char>], at: usize, depth: usize) -> String {
    let literal = |chars: &[char]| regex_syntax::escape(&chars.iter().collect::<String>());
    let [first, .., last] = words else {
        return words.iter().map(|word| literal(&word[at..])).collect();
    };
    let mut shared = first[at..].iter().zip(&last[at..]).take_while(|(a, b)| a == b).count();
    let mut branches = Vec::new();
    if depth < 64 {
        for branch in words.chunk_by(|a, b| a.get(at + shared) == b.get(at + shared)) {
            branches.push(alternatives(branch, at + shared, depth + 1));
        }
    } else {
        // The parser refuses what is nested more than 250 times.
        shared = 0;
        branches.extend(words.iter().map(|word| literal(&word[at..])));
    }
    format!("{}(?:{})", literal(&first[at..at + shared]), branches.join("|"))
}
