#![allow(unused_variables, unused_mut, unused_imports, dead_code)] // remove when the day is done
//! Day 14: guard rails. An automaton reads the text byte by byte, and a token is legal if none of
//! its bytes breaks the rule. This keeps an answer in its format, and a blocked word out of the
//! text, however they are split into tokens.

use candecode::kit::dfa::{any_word, Dfa, StateID};
use candecode::kit::{LogitsProcessor, ProcessorInput, Schema, Tokenizer};
use candle_core::{bail, Result};
use std::cell::RefCell;
use std::collections::{HashMap, HashSet};
use std::rc::Rc;
use std::sync::Arc;

// part 1: formats

/// Returns whether a token with the bytes `piece` may come next, if the answer must
/// be one of `choices` and `written` has been generated so far. A token without
/// bytes, such as EOS, never may.
pub fn may_choose(choices: &[String], written: &[u8], piece: &[u8]) -> bool {
    // task 14.1: Check that the token leaves at least one choice possible
    todo!("day 14, task 1: Check that the token leaves at least one choice possible")
}

/// The meaning of a match.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rule {
    /// The whole generated text must match.
    MustMatch,
    /// The text must not contain a match. A match breaks the rule with its last byte.
    BlockSubstring,
    /// The text must not contain a match, and the pattern ends in a word boundary. One
    /// more byte, or the end of the text, decides whether there is one: "dog" may still
    /// become "dogs".
    BlockWord,
}

/// A byte automaton, and the rule that its matches stand for.
pub struct Automaton {
    dfa: Dfa,
    rule: Rule,
    /// Under [`Rule::MustMatch`], the states from which a match can be reached.
    live: HashSet<StateID>,
}

/// Returns, for every state that the automaton can reach, the states that lead to it
/// in one byte. The start state is among the keys even if no state leads to it.
pub fn predecessors(dfa: &Dfa) -> HashMap<StateID, Vec<StateID>> {
    let mut predecessors = HashMap::from([(dfa.start(), Vec::new())]);
    let mut open = vec![dfa.start()];
    while let Some(state) = open.pop() {
        for next in dfa.successors(state) {
            if !predecessors.contains_key(&next) {
                open.push(next);
            }
            predecessors.entry(next).or_default().push(state);
        }
    }
    predecessors
}

/// Returns the live states: those from which a match can be reached. A state in
/// which the text ends in a match is one of them. In all other states the text can
/// never match again.
pub fn live_states(dfa: &Dfa) -> HashSet<StateID> {
    let predecessors = predecessors(dfa);
    // task 14.2: Collect the states from which a match can be reached
    todo!("day 14, task 2: Collect the states from which a match can be reached")
}

impl Automaton {
    /// Compiles a regular expression. Under [`Rule::MustMatch`] a match begins with the
    /// first byte; under the other rules it can begin anywhere.
    ///
    /// # Errors
    /// If the pattern isn't a regular expression, or its automaton is too large.
    pub fn new(pattern: &str, rule: Rule) -> Result<Self> {
        if rule == Rule::MustMatch {
            let dfa = Dfa::anchored(pattern)?;
            let live = live_states(&dfa);
            return Ok(Self { dfa, rule, live });
        }
        Ok(Self { dfa: Dfa::search(pattern)?, rule, live: HashSet::new() })
    }

    /// Returns the automaton's memory, in bytes.
    pub fn memory_usage(&self) -> usize {
        self.dfa.memory_usage() + self.live.capacity() * (size_of::<StateID>() + 1)
    }

    /// Returns the state before the first byte.
    pub fn start(&self) -> StateID {
        self.dfa.start()
    }

    /// Returns the state after these bytes, whether or not they break the rule.
    pub fn read(&self, mut state: StateID, bytes: &[u8]) -> StateID {
        for byte in bytes {
            state = self.dfa.next_state(state, *byte);
        }
        state
    }

    /// Returns whether the last byte of the text broke the rule. Under
    /// [`Rule::MustMatch`] that means that no continuation can match.
    pub fn violates(&self, state: StateID) -> bool {
        match self.rule {
            Rule::MustMatch => !self.live.contains(&state),
            Rule::BlockSubstring | Rule::BlockWord => self.violates_block(state),
        }
    }

    /// Returns whether the text may end here: under [`Rule::MustMatch`] if it matches,
    /// under the other rules unless it ends in a match.
    pub fn may_end(&self, state: StateID) -> bool {
        let matches = self.dfa.ends_in_match(state);
        if self.rule == Rule::MustMatch {
            matches
        } else {
            !matches
        }
    }
}

/// The maximum number of mask bytes that a rail keeps.
pub const MASK_BYTES: usize = 16 << 20;

/// A logits processor: an automaton and the vocabulary that it judges. It holds
/// nothing that belongs to one text, so all sequences of a run can share it.
pub struct GuardRail {
    name: String,
    automaton: Arc<Automaton>,
    /// The bytes of every token. Special tokens have none.
    pieces: Arc<[Vec<u8>]>,
    /// The masks that [`GuardRail::legal`] has computed, one byte per token.
    masks: RefCell<HashMap<(StateID, bool), Rc<[bool]>>>,
}

impl GuardRail {
    /// Creates a rail for texts of this tokenizer. `vocab_size` is the model's, which
    /// can be larger than the tokenizer's.
    pub fn new(
        name: impl Into<String>,
        automaton: impl Into<Arc<Automaton>>,
        tokenizer: &Tokenizer,
        vocab_size: usize,
    ) -> Self {
        let (automaton, pieces) = (automaton.into(), tokenizer.pieces(vocab_size));
        Self { name: name.into(), automaton, pieces, masks: RefCell::default() }
    }

    /// Returns the automaton's state after the text so far. Under [`Rule::MustMatch`]
    /// only the generated tokens count. A block list reads every token of the text,
    /// from the first one of the prompt on. An id beyond `pieces` has no bytes, so it
    /// changes nothing.
    pub fn state(&self, input: &ProcessorInput) -> StateID {
        // task 14.3: Read the answer for a format, or the whole text for a block list
        todo!("day 14, task 3: Read the answer for a format, or the whole text for a block list")
    }

    /// Returns the state that a token with these bytes leads to, or None if the token
    /// is illegal. `first` says that nothing has been generated yet.
    fn follow(&self, state: StateID, piece: &[u8], first: bool) -> Option<StateID> {
        match self.automaton.rule {
            // A dead state stays dead, so it's enough to look at the last one.
            Rule::MustMatch => {
                let next = self.automaton.read(state, piece);
                Some(next).filter(|next| !self.automaton.violates(*next))
            }
            Rule::BlockSubstring | Rule::BlockWord if first => self.follow_prompt(state, piece),
            Rule::BlockSubstring | Rule::BlockWord => self.automaton.walk(state, piece),
        }
    }

    /// Judges every token of the vocabulary: true if it may come next in `state`. A token
    /// without bytes, such as EOS, is always false here; `process` decides about EOS.
    /// `first` is passed on to `follow`.
    fn mask(&self, state: StateID, first: bool) -> Vec<bool> {
        // task 14.4: Judge every token of the vocabulary
        todo!("day 14, task 4: Judge every token of the vocabulary")
    }

    /// Returns `mask(state, first)`, computed once: a text returns to the same states
    /// again and again. When all masks together exceed [`MASK_BYTES`], the old ones are
    /// dropped.
    pub fn legal(&self, state: StateID, first: bool) -> Rc<[bool]> {
        if let Some(mask) = self.masks.borrow().get(&(state, first)) {
            return Rc::clone(mask);
        }
        let mask: Rc<[bool]> = self.mask(state, first).into();
        let mut masks = self.masks.borrow_mut();
        if (masks.len() + 1) * mask.len() > MASK_BYTES {
            masks.clear();
        }
        masks.insert((state, first), Rc::clone(&mask));
        mask
    }

    /// Returns whether the text may end here. Right after the prompt a block list
    /// always allows it, because the user wrote those words.
    fn may_end(&self, state: StateID, first: bool) -> bool {
        let written_by_user = first && self.automaton.rule != Rule::MustMatch;
        written_by_user || self.automaton.may_end(state)
    }

    /// Returns a mask of those allowed tokens with which the text may end: EOS, and
    /// tokens that lead to a state where it may end.
    fn ending(&self, state: StateID, first: bool, eos: &[u32], allowed: &[bool]) -> Vec<bool> {
        let mut ending = vec![false; allowed.len()];
        for (id, ends) in ending.iter_mut().enumerate() {
            if !allowed[id] {
                continue;
            }
            if eos.contains(&(id as u32)) {
                *ends = true;
            } else if let Some(next) = self.follow(state, &self.pieces[id], first) {
                *ends = self.automaton.may_end(next);
            }
        }
        ending
    }
}

impl LogitsProcessor for GuardRail {
    fn name(&self) -> String {
        self.name.clone()
    }

    /// Sets the logits of all illegal tokens to `-inf` and leaves the others as they
    /// are. Ids beyond the mask are illegal.
    ///
    /// EOS ids are legal exactly where the text may end; their bytes don't matter. If
    /// this is the last token (`remaining` is 1), only tokens with which the text may
    /// end are legal. If there are none, the rule for the last token is ignored.
    fn process(&self, input: &ProcessorInput, logits: &mut [f32]) -> Result<()> {
        // task 14.5: Set the logits of illegal tokens to -inf; mind EOS and the last token
        todo!(
            "day 14, task 5: Set the logits of illegal tokens to -inf; mind EOS and the last token"
        )
    }
}

/// Compiles a regular expression that the whole generated text must match. Nothing
/// is added to it, and letter case counts. (A stop string is cut off at the end;
/// what is left need not match.)
///
/// # Errors
/// If it isn't a regular expression, its automaton is too large, or nothing matches
/// it.
pub fn allow_automaton(regex: &str) -> Result<Automaton> {
    let automaton = Automaton::new(regex, Rule::MustMatch)?;
    if automaton.violates(automaton.start()) {
        bail!("nothing matches the regular expression {regex}")
    }
    Ok(automaton)
}

/// Creates the rail of that automaton.
///
/// # Errors
/// As [`allow_automaton`], or if the tokenizer's tokens have no bytes of their own.
pub fn allow_rail(regex: &str, tokenizer: &Tokenizer, vocab_size: usize) -> Result<GuardRail> {
    tokenizer.check_token_bytes()?;
    let automaton = allow_automaton(regex)?;
    Ok(GuardRail::new(format!("--allow-regex {regex}"), automaton, tokenizer, vocab_size))
}

// part 2: block lists

/// Returns the pattern of a block list: it finds each of the words, in any letter
/// case, composed or decomposed. White space around a word is trimmed, so `" dog"`
/// also finds `"(dog"`. With `whole` it finds only words that stand alone, with no
/// ASCII letter, digit or underscore on either side.
///
/// # Errors
/// If there are no words, or one is empty or only white space.
pub fn block_pattern(words: &[String], whole: bool) -> Result<String> {
    if words.is_empty() {
        bail!("the block list is empty")
    }
    let words: Vec<String> = words.iter().map(|word| word.trim().to_string()).collect();
    if words.contains(&String::new()) {
        bail!("a blocked word is empty: it would block everything")
    }
    let any = any_word(&words);
    if whole {
        // `\b` needs a letter on one side, so it never holds at the end of "c++". A half boundary
        // looks at one side only.
        return Ok(format!(r"(?-u:\b{{start-half}}){any}(?-u:\b{{end-half}})"));
    }
    Ok(any)
}

impl Automaton {
    /// Returns whether the last byte of the text broke the rule of a block list: under
    /// [`Rule::BlockSubstring`] by completing a match, under [`Rule::BlockWord`] by
    /// showing that the word before it stands alone. Never called under
    /// [`Rule::MustMatch`].
    pub fn violates_block(&self, state: StateID) -> bool {
        // task 14.6: Decide for each of the two rules whether the last byte broke it
        todo!("day 14, task 6: Decide for each of the two rules whether the last byte broke it")
    }

    /// Reads `bytes` and returns the state after them, or None if one of them breaks
    /// the rule. What the text contained before isn't held against them.
    pub fn walk(&self, mut state: StateID, bytes: &[u8]) -> Option<StateID> {
        // task 14.7: Read byte by byte, and stop at the first byte that breaks the rule
        todo!("day 14, task 7: Read byte by byte, and stop at the first byte that breaks the rule")
    }
}

impl GuardRail {
    /// [`GuardRail::follow`] for a block list and the first token after the prompt. A
    /// match that ends in the prompt is the user's and doesn't count against the token;
    /// a match that the token's own bytes complete does.
    fn follow_prompt(&self, state: StateID, piece: &[u8]) -> Option<StateID> {
        // task 14.8: Judge the first token after the prompt, but not for the prompt's words
        todo!("day 14, task 8: Judge the first token after the prompt, but not for the prompt's words")
    }
}

/// Compiles the automata of a block list. With `whole`, a stop string can make a
/// word stand alone, because it is cut off: with the stop string `s`, `dogs` becomes
/// `dog`. That takes a second automaton.
///
/// # Errors
/// If a word is empty, or the list is too large.
pub fn block_automata(words: &[String], whole: bool, stops: &[String]) -> Result<Vec<Automaton>> {
    let pattern = block_pattern(words, false)?;
    if !whole {
        return Ok(vec![Automaton::new(&pattern, Rule::BlockSubstring)?]);
    }
    let mut automata = vec![Automaton::new(&block_pattern(words, true)?, Rule::BlockWord)?];
    // An empty stop string ends no text. The others are case-sensitive.
    let stops = stops.iter().filter(|stop| !stop.is_empty());
    let stops: Vec<String> = stops.map(|stop| regex_syntax::escape(stop)).collect();
    if !stops.is_empty() {
        let cut = format!(r"(?-u:\b{{start-half}}){pattern}(?:{})", stops.join("|"));
        automata.push(Automaton::new(&cut, Rule::BlockSubstring)?);
    }
    Ok(automata)
}

/// Creates the rails of a block list, one for each of its automata.
///
/// # Errors
/// As [`block_automata`], or if the tokenizer's tokens have no bytes of their own.
pub fn block_rails(
    words: &[String],
    whole: bool,
    stops: &[String],
    tokenizer: &Tokenizer,
    vocab_size: usize,
) -> Result<Vec<GuardRail>> {
    tokenizer.check_token_bytes()?;
    let name = format!("the block list of size {}", words.len());
    let rail = |automaton: Automaton| -> Result<GuardRail> {
        Ok(GuardRail::new(name.as_str(), automaton, tokenizer, vocab_size))
    };
    block_automata(words, whole, stops)?.into_iter().map(rail).collect()
}

// part 3: the challenge, and lists of ids

impl Automaton {
    /// Returns the bytes that must come next under [`Rule::MustMatch`], up to the first
    /// point where there is a choice. The end of the text is a choice too. Empty if
    /// nothing is forced.
    pub fn forced(&self, mut state: StateID) -> Vec<u8> {
        // task 14.9 (challenge): Return the bytes that must come next
        todo!("day 14, task 9: Return the bytes that must come next")
    }
}

/// Forbids sequences of token ids, as HF's `bad_words_ids` does: if the text ends in
/// all but the last id of a sequence, the logit of that last id becomes `-inf`. A
/// sequence that consists of a single EOS id is ignored, as in HF's
/// `NoBadWordsLogitsProcessor`, because a text must be able to end. Ids beyond
/// `logits` are skipped.
pub fn block_sequences(logits: &mut [f32], tokens: &[u32], sequences: &[Vec<u32>], eos: &[u32]) {
    // task 14.10 (optional): Forbid the last id of each sequence that the text would complete
    todo!("day 14, task 10: Forbid the last id of each sequence that the text would complete")
}

/// Returns a regular expression for the JSON texts that a schema describes, written
/// without white space: `{"toys":["ball","kite"]}`. A whole number has no leading
/// zeros.
pub fn schema_pattern(schema: &Schema) -> String {
    // task 14.11 (challenge): Turn a schema into a pattern that your automaton enforces
    todo!("day 14, task 11: Turn a schema into a pattern that your automaton enforces")
}
