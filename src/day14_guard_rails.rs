#![allow(unused_variables, unused_mut, unused_imports, dead_code)] // remove when the day is done
//! Day 14: guard rails. An automaton reads the text byte by byte, and a token is legal if none of
//! its bytes breaks the rule. So a blocked word stays out however the tokenizer could spell it, and
//! a format is kept however it is cut into tokens.

use candecode::kit::dfa::{any_word, Dfa, StateID};
use candecode::kit::{LogitsProcessor, ProcessorInput, Tokenizer};
use candle_core::{bail, Result};
use std::cell::RefCell;
use std::collections::{HashMap, HashSet};
use std::rc::Rc;
use std::sync::Arc;

/// What a match of the pattern means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rule {
    /// The text must not contain a match. A match breaks the rule with its last byte.
    BlockSubstring,
    /// The text must not contain a match, and the pattern ends in a word border. Whether there is
    /// one shows a byte later, or where the text ends: "dog" may still become "dogs".
    BlockWord,
    /// The whole generated text must match.
    MustMatch,
}

/// A deterministic automaton over bytes, and what its matches mean. Any thread can compile it.
pub struct Automaton {
    dfa: Dfa,
    rule: Rule,
    /// Under [`Rule::MustMatch`]: the states from which a match can be reached.
    live: HashSet<StateID>,
}

// part 1: words

impl Automaton {
    /// Compiles a regular expression. What must match has to match from the first byte on; what is
    /// blocked may begin anywhere.
    ///
    /// # Errors
    /// If it is not a regular expression, or its automaton is too large.
    pub fn new(pattern: &str, rule: Rule) -> Result<Self> {
        if rule == Rule::MustMatch {
            let dfa = Dfa::anchored(pattern)?;
            let live = live_states(&dfa);
            return Ok(Self { dfa, rule, live });
        }
        Ok(Self { dfa: Dfa::search(pattern)?, rule, live: HashSet::new() })
    }

    /// Bytes of memory that it takes.
    pub fn memory_usage(&self) -> usize {
        self.dfa.memory_usage() + self.live.capacity() * (size_of::<StateID>() + 1)
    }

    /// The state before the first byte.
    pub fn start(&self) -> StateID {
        self.dfa.start()
    }

    /// The state after these bytes; without bytes it stays as it is.
    /// `self.dfa.next_state(state, byte)` is one transition.
    pub fn read(&self, mut state: StateID, bytes: &[u8]) -> StateID {
        // task 14.1: one transition for each byte
        todo!("day 14, task 1: one transition for each byte")
    }

    /// True if the text so far already breaks the rule: under [`Rule::BlockSubstring`] if it ends
    /// in a match, under [`Rule::BlockWord`] if it did so before its last byte.
    ///
    /// `self.dfa.ends_in_match(state)` speaks of the text as it stands, as if it were the whole
    /// text; `self.dfa.is_match_state(state)` of the text without its last byte.
    pub fn violates(&self, state: StateID) -> bool {
        if self.rule == Rule::MustMatch {
            return self.cannot_match(state);
        }
        // task 14.2: BlockSubstring: the text ends in a match; BlockWord: it did one byte ago
        todo!("day 14, task 2: BlockSubstring: the text ends in a match; BlockWord: it did one byte ago")
    }

    /// True if the text may end here. The end of the text is a word border.
    pub fn may_end(&self, state: StateID) -> bool {
        if self.rule == Rule::MustMatch {
            return self.matches(state);
        }
        // task 14.3: what is blocked must not stand at the end of the text
        todo!("day 14, task 3: what is blocked must not stand at the end of the text")
    }

    /// Reads `bytes` one by one, and gives None as soon as one of them leads to a state that
    /// violates the rule: a token may complete a word in its middle. `state` itself is not judged:
    /// if the prompt has a blocked word at its end, the text goes on all the same.
    pub fn walk(&self, mut state: StateID, bytes: &[u8]) -> Option<StateID> {
        // task 14.4: byte by byte; look at the state behind each of them
        todo!("day 14, task 4: byte by byte; look at the state behind each of them")
    }
}

/// The pattern of a block list. `any_word` makes it, a group: it finds every word in any letter
/// case, composed or decomposed; the text is read as it is. White space around a word is cut:
/// `" dog"` also finds `"(dog"`. `whole` puts half a border on each side of the group,
/// `(?-u:\b{start-half})` and `(?-u:\b{end-half})`, so that only words that stand alone are found:
/// no ASCII letter, digit or underscore beside them.
///
/// # Errors
/// If there is no word, or one that is empty or only white space.
pub fn block_pattern(words: &[String], whole: bool) -> Result<String> {
    // task 14.5: cut white space, refuse what is empty; any_word; whole: half a border on each side
    todo!("day 14, task 5: cut white space, refuse what is empty; any_word; whole: half a border on each side")
}

/// As many bytes of masks a rail keeps at most.
pub const MASK_BYTES: usize = 16 << 20;

/// An automaton, walked over a whole vocabulary: a processor. It knows nothing of one text, so one
/// rail serves all sequences of a run.
pub struct GuardRail {
    name: String,
    automaton: Arc<Automaton>,
    /// The bytes of every token; special tokens have none.
    pieces: Vec<Vec<u8>>,
    /// What [`GuardRail::legal`] has answered so far: one byte for each token.
    masks: RefCell<HashMap<(StateID, bool), Rc<[bool]>>>,
}

impl GuardRail {
    /// A rail for texts of this tokenizer. `vocab_size` is the model's, which may have more ids.
    pub fn new(
        name: impl Into<String>,
        automaton: impl Into<Arc<Automaton>>,
        tokenizer: &Tokenizer,
        vocab_size: usize,
    ) -> Self {
        let pieces = (0..vocab_size as u32).map(|id| tokenizer.token_bytes(id)).collect();
        let automaton = automaton.into();
        Self { name: name.into(), automaton, pieces, masks: RefCell::default() }
    }

    /// The state after the text so far. A block list reads every token, those of the prompt and EOS
    /// too: a word may begin in the prompt, and behind a blocked word reading goes on, for another
    /// may begin in it. Special tokens have no bytes, nor has an id that is not in `pieces`.
    pub fn state(&self, input: &ProcessorInput) -> StateID {
        if self.automaton.rule == Rule::MustMatch {
            return self.generated_state(input);
        }
        // task 14.6: read the bytes of all tokens, from the automaton's start
        todo!("day 14, task 6: read the bytes of all tokens, from the automaton's start")
    }

    /// Where a token with these bytes leads from `state`; None if it breaks the rule on its way.
    /// `first` says that it follows the prompt. Under [`Rule::BlockWord`] its first byte is then
    /// free: that byte can only show that a word *of the prompt* stands alone.
    fn follow(&self, state: StateID, piece: &[u8], first: bool) -> Option<StateID> {
        let free = first && self.automaton.rule == Rule::BlockWord && !piece.is_empty();
        let (unjudged, judged) = piece.split_at(usize::from(free));
        self.automaton.walk(self.automaton.read(state, unjudged), judged)
    }

    /// For each token of the vocabulary: true if it may follow in `state`. A token without bytes is
    /// no text, and never legal. `first` goes to `follow`. States come back again and again, so
    /// answers are kept by state and `first`; of masks that take more than [`MASK_BYTES`] in all,
    /// the old ones are dropped.
    pub fn legal(&self, state: StateID, first: bool) -> Rc<[bool]> {
        // task 14.7: follow every piece, once for each state; keep the answer
        todo!("day 14, task 7: follow every piece, once for each state; keep the answer")
    }
}

impl LogitsProcessor for GuardRail {
    fn name(&self) -> String {
        self.name.clone()
    }

    /// Sets the logits of all that is not legal to `-inf` and leaves the others as they are.
    ///
    /// EOS, whatever its bytes, is legal where the text may end. Right behind the prompt a block
    /// list always lets it end: what stands there the model has not written. With one token
    /// remaining, that token must be EOS or lead to where the text may end; if no legal token does,
    /// all that are legal stay.
    fn process(&self, input: &ProcessorInput, logits: &mut [f32]) -> Result<()> {
        // task 14.8: legal tokens; EOS where the text may end; the last token ends the text, too
        todo!("day 14, task 8: legal tokens; EOS where the text may end; the last token ends the text, too")
    }
}

/// Forbids sequences of token ids, as HF's `bad_words_ids`: the last id of each becomes `-inf`
/// where the others stand before it. A sequence that is one EOS id and nothing else is ignored, as
/// it is by HF's `NoBadWordsLogitsProcessor`: a text must be able to end.
pub fn block_sequences(logits: &mut [f32], tokens: &[u32], sequences: &[Vec<u32>], eos: &[u32]) {
    // task 14.9 (further): if the text ends in all but the last id, that one is -inf
    todo!("day 14, task 9: if the text ends in all but the last id, that one is -inf")
}

/// The automata of a block list. With `whole`, a word may also come to stand alone because a stop
/// string cuts off what follows it: that takes an automaton of its own.
///
/// # Errors
/// If a word is empty, or the list is too large.
pub fn block_automata(words: &[String], whole: bool, stops: &[String]) -> Result<Vec<Automaton>> {
    let pattern = block_pattern(words, false)?;
    if !whole {
        return Ok(vec![Automaton::new(&pattern, Rule::BlockSubstring)?]);
    }
    let mut automata = vec![Automaton::new(&block_pattern(words, true)?, Rule::BlockWord)?];
    // An empty stop string ends no text. The others are found in their own letter case.
    let stops = stops.iter().filter(|stop| !stop.is_empty());
    let stops: Vec<String> = stops.map(|stop| regex_syntax::escape(stop)).collect();
    if !stops.is_empty() {
        let cut = format!(r"(?-u:\b{{start-half}}){pattern}(?:{})", stops.join("|"));
        automata.push(Automaton::new(&cut, Rule::BlockSubstring)?);
    }
    Ok(automata)
}

/// The rails of a block list: one for each of its automata.
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
    let name = format!("the block list of {} words", words.len());
    let rail = |automaton: Automaton| -> Result<GuardRail> {
        Ok(GuardRail::new(name.as_str(), automaton, tokenizer, vocab_size))
    };
    block_automata(words, whole, stops)?.into_iter().map(rail).collect()
}

// part 2: formats

/// The states from which a match can be reached, that is: from which some bytes, or none, lead to a
/// state where the text so far ends in a match. All others are dead: whatever follows, there is no
/// match. `dfa.successors(state)` are the states that one byte leads to.
pub fn live_states(dfa: &Dfa) -> HashSet<StateID> {
    // task 14.10: find all states and their predecessors; then go backwards from those that match
    todo!("day 14, task 10: find all states and their predecessors; then go backwards from those that match")
}

impl Automaton {
    /// What [`Automaton::violates`] says under [`Rule::MustMatch`]: true if no match can be reached
    /// any more, whatever follows.
    pub fn cannot_match(&self, state: StateID) -> bool {
        // task 14.11: ask the live states
        todo!("day 14, task 11: ask the live states")
    }

    /// What [`Automaton::may_end`] says under [`Rule::MustMatch`]: true if the text so far matches.
    pub fn matches(&self, state: StateID) -> bool {
        // task 14.12: the text ends in a match
        todo!("day 14, task 12: the text ends in a match")
    }
}

impl GuardRail {
    /// What [`GuardRail::state`] says under [`Rule::MustMatch`]: the prompt need not match, so only
    /// the generated tokens are read.
    pub fn generated_state(&self, input: &ProcessorInput) -> StateID {
        // task 14.13: as task 14.6, from the first generated token on
        todo!("day 14, task 13: as task 14.6, from the first generated token on")
    }
}

/// The automaton of a regular expression that the whole generated text must match, in its letter
/// case. The expression is compiled as it is written, with nothing put around it. (A stop string is
/// cut off at the end; what is left need not match.)
///
/// # Errors
/// If it is not a regular expression, its automaton is too large, or nothing matches it.
pub fn allow_automaton(regex: &str) -> Result<Automaton> {
    // task 14.14: an automaton under MustMatch; an error if no match can be reached from its start
    todo!("day 14, task 14: an automaton under MustMatch; an error if no match can be reached from its start")
}

/// The rail of that automaton.
///
/// # Errors
/// As [`allow_automaton`], or if the tokenizer's tokens have no bytes of their own.
pub fn allow_rail(regex: &str, tokenizer: &Tokenizer, vocab_size: usize) -> Result<GuardRail> {
    tokenizer.check_token_bytes()?;
    let automaton = allow_automaton(regex)?;
    Ok(GuardRail::new(format!("--allow-regex {regex}"), automaton, tokenizer, vocab_size))
}
