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
        // <solution>
        for byte in bytes {
            state = self.dfa.next_state(state, *byte);
        }
        state
        // </solution>
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
        // <solution>
        if self.rule == Rule::BlockSubstring {
            self.dfa.ends_in_match(state)
        } else {
            self.dfa.is_match_state(state)
        }
        // </solution>
    }

    /// True if the text may end here. The end of the text is a word border.
    pub fn may_end(&self, state: StateID) -> bool {
        if self.rule == Rule::MustMatch {
            return self.matches(state);
        }
        // task 14.3: what is blocked must not stand at the end of the text
        // <solution>
        !self.dfa.ends_in_match(state)
        // </solution>
    }

    /// Reads `bytes` one by one, and gives None as soon as one of them leads to a state that
    /// violates the rule: a token may complete a word in its middle. `state` itself is not judged:
    /// if the prompt has a blocked word at its end, the text goes on all the same.
    pub fn walk(&self, mut state: StateID, bytes: &[u8]) -> Option<StateID> {
        // task 14.4: byte by byte; look at the state behind each of them
        // <solution>
        for byte in bytes {
            state = self.read(state, &[*byte]);
            if self.violates(state) {
                return None;
            }
        }
        Some(state)
        // </solution>
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
    // <solution>
    if words.is_empty() {
        bail!("the block list is empty")
    }
    let words: Vec<String> = words.iter().map(|word| word.trim().to_string()).collect();
    if words.contains(&String::new()) {
        bail!("a blocked word is empty: it would block everything")
    }
    let any = any_word(&words);
    if whole {
        // Half borders: `\b` wants a letter on one side, so beside "c++" it would never hold.
        return Ok(format!(r"(?-u:\b{{start-half}}){any}(?-u:\b{{end-half}})"));
    }
    Ok(any)
    // </solution>
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
        // <solution>
        self.after(input.tokens)
        // </solution>
    }

    // <solution>
    /// The state after these tokens and nothing before them.
    fn after(&self, tokens: &[u32]) -> StateID {
        let mut state = self.automaton.start();
        for id in tokens {
            if let Some(piece) = self.pieces.get(*id as usize) {
                state = self.automaton.read(state, piece);
            }
        }
        state
    }
    // </solution>

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
        // <solution>
        if let Some(mask) = self.masks.borrow().get(&(state, first)) {
            return Rc::clone(mask);
        }
        let mut mask = Vec::with_capacity(self.pieces.len());
        for piece in &self.pieces {
            mask.push(!piece.is_empty() && self.follow(state, piece, first).is_some());
        }
        let mask: Rc<[bool]> = mask.into();
        let mut masks = self.masks.borrow_mut();
        if (masks.len() + 1) * mask.len() > MASK_BYTES {
            masks.clear();
        }
        masks.insert((state, first), Rc::clone(&mask));
        mask
        // </solution>
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
        // <solution>
        let state = self.state(input);
        let first = input.tokens.len() == input.prompt_len;
        let written_by_user = first && self.automaton.rule != Rule::MustMatch;
        let may_end = written_by_user || self.automaton.may_end(state);

        let mut allowed = self.legal(state, first).to_vec();
        allowed.resize(logits.len(), false);
        for id in input.eos {
            if let Some(eos) = allowed.get_mut(*id as usize) {
                *eos = may_end;
            }
        }
        if input.remaining == 1 {
            let ending = self.ending(state, first, input.eos, &allowed);
            if ending.contains(&true) {
                allowed = ending;
            }
        }
        for (logit, allowed) in logits.iter_mut().zip(allowed) {
            if !allowed {
                *logit = f32::NEG_INFINITY;
            }
        }
        Ok(())
        // </solution>
    }
}

// <solution>
impl GuardRail {
    /// Of the tokens that are allowed, those with which the text may end.
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
// </solution>

/// Forbids sequences of token ids, as HF's `bad_words_ids`: the last id of each becomes `-inf`
/// where the others stand before it. A sequence that is one EOS id and nothing else is ignored, as
/// it is by HF's `NoBadWordsLogitsProcessor`: a text must be able to end.
pub fn block_sequences(logits: &mut [f32], tokens: &[u32], sequences: &[Vec<u32>], eos: &[u32]) {
    // task 14.9 (further): if the text ends in all but the last id, that one is -inf
    // <solution>
    for sequence in sequences {
        let Some((last, before)) = sequence.split_last() else { continue };
        if before.is_empty() && eos.contains(last) {
            continue;
        }
        if tokens.ends_with(before) {
            if let Some(logit) = logits.get_mut(*last as usize) {
                *logit = f32::NEG_INFINITY;
            }
        }
    }
    // </solution>
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
    // <solution>
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
    for state in predecessors.keys() {
        if dfa.ends_in_match(*state) {
            open.push(*state);
        }
    }
    let mut live: HashSet<StateID> = open.iter().copied().collect();
    while let Some(state) = open.pop() {
        for before in &predecessors[&state] {
            if live.insert(*before) {
                open.push(*before);
            }
        }
    }
    live
    // </solution>
}

impl Automaton {
    /// What [`Automaton::violates`] says under [`Rule::MustMatch`]: true if no match can be reached
    /// any more, whatever follows.
    pub fn cannot_match(&self, state: StateID) -> bool {
        // task 14.11: ask the live states
        // <solution>
        !self.live.contains(&state)
        // </solution>
    }

    /// What [`Automaton::may_end`] says under [`Rule::MustMatch`]: true if the text so far matches.
    pub fn matches(&self, state: StateID) -> bool {
        // task 14.12: the text ends in a match
        // <solution>
        self.dfa.ends_in_match(state)
        // </solution>
    }
}

impl GuardRail {
    /// What [`GuardRail::state`] says under [`Rule::MustMatch`]: the prompt need not match, so only
    /// the generated tokens are read.
    pub fn generated_state(&self, input: &ProcessorInput) -> StateID {
        // task 14.13: as task 14.6, from the first generated token on
        // <solution>
        self.after(&input.tokens[input.prompt_len..])
        // </solution>
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
    // <solution>
    let automaton = Automaton::new(regex, Rule::MustMatch)?;
    if automaton.cannot_match(automaton.start()) {
        bail!("nothing matches the regular expression {regex}")
    }
    Ok(automaton)
    // </solution>
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
