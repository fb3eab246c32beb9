#![allow(unused_variables, unused_mut, unused_imports, dead_code)] // remove when the day is done
//! Day 14: guard rails. A byte automaton reads the text; a token is legal if its bytes do not lead into a dead state. So a
//! blocked word stays out however the tokenizer could spell it, and a format is kept however it is cut into tokens.

use candecode::kit::dfa::{self, any_case, Dfa};
use candecode::kit::{LogitsProcessor, ProcessorInput, Tokenizer};
use candle_core::{bail, Result};
use regex_automata::{dfa::Automaton as _, util::primitives::StateID};
use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;

/// What an automaton's match means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rule {
    /// A match is forbidden as soon as its last byte is there.
    Never,
    /// A match is forbidden when the byte after it is there, or the text ends: `\b` can only be known then.
    NeverOnceSure,
    /// The whole text must match.
    Always,
}

/// A deterministic automaton over bytes.
pub struct Automaton {
    dfa: Dfa,
    rule: Rule,
}

impl Automaton {
    /// Compiles a regular expression over bytes.
    ///
    /// # Errors
    /// If it is no regular expression, or its automaton grows too large.
    pub fn new(pattern: &str, rule: Rule) -> Result<Self> {
        Ok(Self { dfa: dfa::compile(pattern, rule == Rule::Always)?, rule })
    }

    /// The state before the first byte.
    ///
    /// # Errors
    /// None that a pattern of [`Automaton::new`] could cause.
    pub fn start(&self) -> Result<StateID> {
        dfa::start(&self.dfa, self.rule == Rule::Always)
    }

    /// The state after these bytes. A block list reads letters as small ones.
    pub fn read(&self, state: StateID, bytes: &[u8]) -> StateID {
        // task 14.1: one transition for each byte
        todo!("day 14, task 1: one transition for each byte")
    }

    /// Whether the text may not have come here. The automaton says "match" one byte late, or at the end of the input.
    pub fn is_dead(&self, state: StateID) -> bool {
        // task 14.2: by rule: matched already, matched if the text ended here, or no way left
        todo!("day 14, task 2: by rule: matched already, matched if the text ended here, or no way left")
    }

    /// Whether the text may end here.
    pub fn may_end(&self, state: StateID) -> bool {
        // task 14.3: what must match must have, what must not must not
        todo!("day 14, task 3: what must match must have, what must not must not")
    }

    /// Whether the text so far, if it ends here, ends in a match.
    fn ends_in_match(&self, state: StateID) -> bool {
        self.dfa.is_match_state(self.dfa.next_eoi_state(state))
    }

    /// As [`Automaton::read`], but gives nothing if any byte on the way leads into a dead state: a word may be completed in
    /// the middle of a token.
    pub fn walk(&self, mut state: StateID, bytes: &[u8]) -> Option<StateID> {
        // task 14.4: byte by byte, and look at every state on the way
        todo!("day 14, task 4: byte by byte, and look at every state on the way")
    }
}

/// The pattern of a block list: any of the words, letter case ignored. `whole` keeps to words that stand alone: no ASCII
/// letter, digit or underscore beside them. White space around a word is cut: `" dog"` also finds `"(dog"`. The words are one
/// group, `whole` or not: `block_rails` appends to it. There is at least one.
///
/// # Errors
/// If a word is empty, or white space only.
pub fn block_pattern(words: &[String], whole: bool) -> Result<String> {
    // task 14.5: every word in all letter cases, the words joined by |; whole: a border at both ends
    todo!("day 14, task 5: every word in all letter cases, the words joined by |; whole: a border at both ends")
}

/// An automaton, walked over the whole vocabulary: a processor.
pub struct GuardRail {
    name: String,
    automaton: Automaton,
    pieces: Vec<Vec<u8>>,
    memo: RefCell<HashMap<StateID, Rc<Vec<Option<StateID>>>>>,
}

impl GuardRail {
    /// A rail for texts of this tokenizer; `vocab_size` is the model's, which may have more ids.
    pub fn new(
        name: impl Into<String>,
        automaton: Automaton,
        tokenizer: &Tokenizer,
        vocab_size: usize,
    ) -> Self {
        let pieces = (0..vocab_size as u32).map(|id| tokenizer.token_bytes(id)).collect();
        Self { name: name.into(), automaton, pieces, memo: RefCell::default() }
    }

    /// The state after the text so far. A block list reads the prompt, too: a word may begin there. What must match is the
    /// generated text alone.
    ///
    /// # Errors
    /// As [`Automaton::start`].
    pub fn state(&self, input: &ProcessorInput) -> Result<StateID> {
        // task 14.6: read the bytes of the tokens, with or without the prompt
        todo!("day 14, task 6: read the bytes of the tokens, with or without the prompt")
    }

    /// Where each token of the vocabulary leads from `state`; None: it is not legal. A token without bytes leads nowhere.
    /// States come back again and again, so their answers are kept.
    pub fn legal(&self, state: StateID) -> Rc<Vec<Option<StateID>>> {
        // task 14.7: walk every piece, once for each state
        todo!("day 14, task 7: walk every piece, once for each state")
    }
}

impl LogitsProcessor for GuardRail {
    fn name(&self) -> String {
        self.name.clone()
    }

    /// Sets what is not legal to `-inf`; the others keep their ratios. EOS, whatever its bytes, is legal where the text may end.
    /// The last token that there is room for must be EOS, or lead to where the text may end, if the vocabulary has such a one.
    fn process(&self, input: &ProcessorInput, logits: &mut [f32]) -> Result<()> {
        // task 14.8: legal tokens; EOS by may_end; at the length bound the text ends, too
        todo!(
            "day 14, task 8: legal tokens; EOS by may_end; at the length bound the text ends, too"
        )
    }
}

/// Forbids sequences of token ids (HF `bad_words_ids`): the last id of each, where the others stand before it.
pub fn block_sequences(logits: &mut [f32], tokens: &[u32], sequences: &[Vec<u32>]) {
    // task 14.9 (further): if the text ends in all but the last id, that one is -inf
    todo!("day 14, task 9: if the text ends in all but the last id, that one is -inf")
}

/// The rails of a block list. With `whole`, a word may also come to stand alone because a stop string cuts what follows it
/// off: that is a rail of its own.
///
/// # Errors
/// If a word is empty, or the list grows too large.
pub fn block_rails(
    words: &[String],
    whole: bool,
    stops: &[String],
    tokenizer: &Tokenizer,
    vocab_size: usize,
) -> Result<Vec<GuardRail>> {
    let rule = if whole { Rule::NeverOnceSure } else { Rule::Never };
    let pattern = block_pattern(words, whole)?;
    let mut automata = vec![Automaton::new(&pattern, rule)?];
    if whole && !stops.is_empty() {
        let stops: Vec<String> = stops.iter().map(|stop| any_case(stop)).collect();
        let (words, stops) = (block_pattern(words, false)?, stops.join("|"));
        let cut = format!(r"(?-u:\b{{start-half}}){words}(?:{stops})");
        automata.push(Automaton::new(&cut, Rule::Never)?);
    }
    let name = format!("the block list of {} words", words.len());
    let rail = |automaton| GuardRail::new(name.clone(), automaton, tokenizer, vocab_size);
    Ok(automata.into_iter().map(rail).collect())
}

/// The rail of a regular expression that the whole generated text must match.
///
/// # Errors
/// If it is no regular expression, or nothing matches it.
pub fn allow_rail(regex: &str, tokenizer: &Tokenizer, vocab_size: usize) -> Result<GuardRail> {
    let automaton = Automaton::new(&format!("(?:{regex})"), Rule::Always)?;
    if !dfa::can_match(&automaton.dfa, automaton.start()?) {
        bail!("nothing matches the regular expression {regex}")
    }
    Ok(GuardRail::new(format!("--allow-regex {regex}"), automaton, tokenizer, vocab_size))
}
