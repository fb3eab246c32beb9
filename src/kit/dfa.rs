//! Regular expressions over bytes, as deterministic automata: what day 14 walks.

use candle_core::{Error, Result};
use regex_automata::dfa::{dense, Automaton as _, StartKind};
use regex_automata::nfa::thompson;
use regex_automata::util::{primitives::StateID, syntax};
use regex_automata::{Anchored, Input, MatchKind};
use std::collections::HashSet;

/// A table: for every state and byte the next state.
pub type Dfa = dense::DFA<Vec<u32>>;

/// Compiles a regular expression. `whole`: the text must match from its first byte on; else a match may begin anywhere.
///
/// # Errors
/// If it is no regular expression, or its automaton grows too large.
pub fn compile(pattern: &str, whole: bool) -> Result<Dfa> {
    let config = dense::Config::new()
        .start_kind(if whole { StartKind::Anchored } else { StartKind::Unanchored })
        .match_kind(MatchKind::All)
        // So that what grows without end, as (a|b)*a(a|b){30}, is refused in seconds: at eight times as much it takes a minute.
        .dfa_size_limit(Some(1 << 25))
        .determinize_size_limit(Some(1 << 27));
    let dfa = dense::Builder::new()
        .configure(config)
        .syntax(syntax::Config::new().utf8(false))
        .thompson(thompson::Config::new().utf8(false))
        .build(pattern);
    dfa.map_err(|e| Error::Msg(format!("the pattern {pattern:.60} is refused: {e}")))
}

/// The state before the first byte.
///
/// # Errors
/// None that a pattern of [`compile`] could cause.
pub fn start(dfa: &Dfa, whole: bool) -> Result<StateID> {
    let anchored = if whole { Anchored::Yes } else { Anchored::No };
    let start = dfa.start_state_forward(&Input::new("").anchored(anchored));
    start.map_err(|e| Error::Msg(e.to_string()))
}

/// Whether any text at all leads from `state` to a match.
pub fn can_match(dfa: &Dfa, state: StateID) -> bool {
    let (mut seen, mut open) = (HashSet::from([state]), vec![state]);
    while let Some(state) = open.pop() {
        if dfa.is_match_state(state) || dfa.is_match_state(dfa.next_eoi_state(state)) {
            return true;
        }
        let next = (0..=255).map(|byte| dfa.next_state(state, byte));
        open.extend(next.filter(|next| seen.insert(*next)));
    }
    false
}

/// Whether nothing that follows can lead to a match that covers it. One byte behind the last possible match the automaton
/// still says "match", for it says so one byte late; from there on it is dead.
pub fn is_spent(dfa: &Dfa, state: StateID) -> bool {
    let nothing_follows = |state| {
        let ends = dfa.is_match_state(dfa.next_eoi_state(state));
        !ends && (0..=255).all(|byte| dfa.is_dead_state(dfa.next_state(state, byte)))
    };
    dfa.is_dead_state(state) || (dfa.is_match_state(state) && nothing_follows(state))
}

/// A text as a regular expression that matches just it.
pub fn escape(text: &str) -> String {
    let special = |c: char| c.is_ascii() && !c.is_ascii_alphanumeric() && !c.is_ascii_whitespace();
    text.chars().flat_map(|c| special(c).then_some('\\').into_iter().chain([c])).collect()
}

/// A text as a pattern without letter case, for texts whose ASCII letters are read as small ones: those small, of other
/// letters both forms.
pub fn any_case(text: &str) -> String {
    let forms = |c: char| match c.is_ascii() {
        true => escape(&c.to_ascii_lowercase().to_string()),
        false => {
            let (small, large) = (c.to_lowercase(), c.to_uppercase());
            format!("(?:{}|{})", small, large.to_string().to_ascii_lowercase())
        }
    };
    text.chars().map(forms).collect()
}
