#![allow(unused_variables, unused_mut, unused_imports, dead_code)] // remove when the day is done
//! Day 13: speculative decoding. A cheap drafter guesses K tokens, one pass of the target checks
//! them all, and what comes out is exactly what the target alone would have written, or would have
//! drawn.

use candecode::day07_greedy::{argmax, log_softmax, Sequence};
use candecode::day08_sampling::{sample, softmax};
use candecode::day10_kv_cache::Cached;
use candecode::kit::draft::{Counts, Draft, Drafter, Verdict};
use candecode::kit::processor::process_all;
use candecode::kit::rng::RequestRng;
use candecode::kit::{LogitsProcessor, ProcessorInput, Request, Token, Tokenizer};
use candle_core::{bail, Result};
use std::rc::Rc;

/// All probability on one token of `vocab_size`.
pub fn one_hot(id: u32, vocab_size: usize) -> Vec<f32> {
    let mut probs = vec![0.0; vocab_size];
    if let Some(p) = probs.get_mut(id as usize) {
        *p = 1.0;
    }
    probs
}

/// The distribution that a token is chosen from: the softmax, or for greedy decoding all of it on
/// the best token.
///
/// # Errors
/// If there is no token to choose.
pub fn distribution(logits: &[f32], greedy: bool) -> Result<Vec<f32>> {
    if greedy {
        Ok(one_hot(argmax(logits)?, logits.len()))
    } else {
        softmax(logits)
    }
}

/// A sequence that grows by drafts that a model, the *target*, verifies.
pub struct SpeculativeDecoder<'a> {
    /// The target and its cache: its tokens, or its distribution, are what comes out.
    pub target: Cached<'a>,
    /// The sequence so far, with its processors; its sampler is not used, see `rng`.
    pub sequence: Sequence<'a>,
    /// Makes the drafts.
    pub drafter: Box<dyn Drafter + 'a>,
    /// K: tokens to draft at most.
    pub num_draft_tokens: usize,
    /// Randomness; None is greedy.
    pub rng: Option<RequestRng>,
    /// What was done so far.
    pub counts: Counts,
}

impl<'a> SpeculativeDecoder<'a> {
    /// Begins a sequence; greedy, until `rng` is set.
    ///
    /// # Errors
    /// If the prompt does not fit, or the target's cache slides.
    pub fn new(
        target: Cached<'a>,
        tokenizer: &'a Tokenizer,
        mut request: Request<'a>,
        drafter: Box<dyn Drafter + 'a>,
        num_draft_tokens: usize,
    ) -> Result<Self> {
        request.fit(target.model)?;
        if target.cache.num_evicted().is_some() {
            bail!("a sliding cache cannot take back rejected tokens; use a dynamic or static one")
        }
        let sequence = Sequence::new(request, tokenizer);
        let counts = Counts::default();
        Ok(Self { target, sequence, drafter, num_draft_tokens, rng: None, counts })
    }

    /// `n` random numbers in [0, 1); greedy decoding needs none, so all are 0.
    pub fn uniforms(&mut self, n: usize) -> Vec<f32> {
        match &mut self.rng {
            Some(rng) => (0..n).map(|_| rng.uniform()).collect(),
            None => vec![0.0; n],
        }
    }

    /// Asks the drafter for up to `n` tokens; it gets random numbers of their own.
    ///
    /// # Errors
    /// If it fails, or gives more than it was asked for.
    pub fn draft(&mut self, n: usize) -> Result<Draft> {
        let uniforms = self.uniforms(n);
        let draft = self.drafter.draft(&self.sequence.processor_input(), n, &uniforms)?;
        if draft.tokens.len() > n {
            bail!("the drafter was asked for {n} tokens at most, and gave {}", draft.tokens.len())
        }
        if draft.probs.len() != draft.tokens.len() {
            bail!("{} tokens drafted, {} distributions", draft.tokens.len(), draft.probs.len())
        }
        Ok(draft)
    }
}

// part 1: greedy, with n-grams

/// Drafts by looking back: where the last `n` tokens occurred before, the tokens that followed them
/// there are proposed (Saxena 2023; vLLM `ngram`, HF `prompt_lookup_num_tokens`). It costs nothing.
/// The earlier place may overlap the last tokens themselves; near the end fewer tokens follow it.
pub struct NgramDrafter {
    /// Tokens that must match, 1 at least; not the `n` of `draft`, which is how many to propose.
    pub n: usize,
    /// Size of the target's vocabulary.
    pub vocab_size: usize,
}

impl Drafter for NgramDrafter {
    fn draft(&mut self, input: &ProcessorInput, n: usize, _uniforms: &[f32]) -> Result<Draft> {
        // task 13.1: the latest earlier place of the last self.n tokens, and up to n tokens after it
        todo!("day 13, task 1: the latest earlier place of the last self.n tokens, and up to n tokens after it")
    }
}

/// How many tokens may be drafted now: at most K, and one fewer than the sequence may still get,
/// for the pass itself gives one.
pub fn num_draft_tokens_now(decoder: &SpeculativeDecoder) -> usize {
    // task 13.2: the smaller of K and the room that the pass's own token leaves
    todo!("day 13, task 2: the smaller of K and the room that the pass's own token leaves")
}

/// The target's logits `(V)` after the sequence and after each drafted token, in one pass: K tokens
/// give K + 1 rows. The rollback after a rejection needs no code: [`Cached::logits`] finds the
/// common prefix.
///
/// # Errors
/// If a drafted token is not in the vocabulary, or the model fails.
pub fn target_logits(decoder: &mut SpeculativeDecoder, draft: &[u32]) -> Result<Vec<Vec<f32>>> {
    // task 13.3: the logits of the last K + 1 tokens of the sequence with the draft
    todo!("day 13, task 3: the logits of the last K + 1 tokens of the sequence with the draft")
}

/// The target's distribution `(V)` after the sequence and after each drafted token, from `raw`, its
/// logits there. The processors see each position's own input: the tokens with the draft up to
/// there, and as many fewer that remain.
///
/// The rows behind EOS, and behind a drafted token with p(token) = 0, which is sure to be rejected,
/// are never used: any distribution may fill them. No processor may see such a text, for it may
/// find no token left there. Stop strings are not looked for: the text behind one is processed.
///
/// # Errors
/// If a processor fails.
pub fn target_probs(
    decoder: &SpeculativeDecoder,
    draft: &[u32],
    raw: &[Vec<f32>],
) -> Result<Vec<Vec<f32>>> {
    // task 13.4: processors and distribution, row by row; behind a certain end, repeat the last row
    todo!("day 13, task 4: processors and distribution, row by row; behind a certain end, repeat the last row")
}

/// Accepts or rejects a greedy draft: a token is accepted while it is the target's own choice.
/// `target` has one distribution `(V)` more than the draft has tokens; with all probability on one
/// token each, as greedy decoding makes them. The next token is the target's choice behind the
/// accepted ones.
///
/// # Errors
/// If there are not as many distributions.
pub fn verify_greedy(draft: &[u32], target: &[Vec<f32>]) -> Result<Verdict> {
    // task 13.5: count the drafted tokens that the target would have chosen, and add its own next one
    todo!("day 13, task 5: count the drafted tokens that the target would have chosen, and add its own next one")
}

/// One block: draft, verify, and take the accepted tokens in. Its tokens, one at least; the last of
/// the sequence has a `finish`. An empty `Vec` if the sequence may get no more.
///
/// A token's `logprob` is the raw one, as on day 7. Greedy decoding (`rng` is None) takes
/// [`verify_greedy`]; sampling takes [`verify`], with one of `decoder.uniforms` for each row of the
/// target (`decoder.draft` has drawn those of the draft itself). `decoder.counts.add` counts the
/// block.
///
/// # Errors
/// If a model or a processor fails.
pub fn decode_block(decoder: &mut SpeculativeDecoder) -> Result<Vec<Token>> {
    // task 13.6: draft, target_logits, target_probs, verify; push until the sequence ends; count
    todo!("day 13, task 6: draft, target_logits, target_probs, verify; push until the sequence ends; count")
}

// part 2: sampled

/// The residual distribution, from which a rejected token is replaced: `max(p - q, 0)`, made to sum
/// to 1. Where `p` equals `q` it is all zero, and a rejection can only be rounding: then it is `p`
/// itself.
///
/// # Errors
/// If the two are of different lengths.
pub fn residual(p: &[f32], q: &[f32]) -> Result<Vec<f32>> {
    // task 13.7: the positive part of p - q, divided by its sum
    todo!("day 13, task 7: the positive part of p - q, divided by its sum")
}

/// Accepts or rejects a draft so that every token is distributed as the target's (Leviathan et al.
/// 2023; Chen et al. 2023).
///
/// `target` has one distribution `(V)` more than the draft has tokens; `uniforms`, numbers in [0,
/// 1), too. Token `i` is accepted if `uniforms[i] · q(token) < p(token)`, which is with probability
/// `min(1, p / q)`. The first rejected token is replaced by a draw from the residual, and the draft
/// behind it is dropped; if all are accepted, the last distribution gives a bonus token. The last
/// number is for the residual or the bonus.
///
/// # Errors
/// If the counts of distributions and numbers do not fit, or a token is not in the vocabulary.
pub fn verify(draft: &Draft, target: &[Vec<f32>], uniforms: &[f32]) -> Result<Verdict> {
    // task 13.8: accept by p / q; replace the first rejected token from the residual, or add a bonus
    todo!("day 13, task 8: accept by p / q; replace the first rejected token from the residual, or add a bonus")
}

/// Expected share of drafted tokens that are accepted: `Σ min(p, q)`.
pub fn overlap(p: &[f32], q: &[f32]) -> f32 {
    // task 13.9 (further): sum the smaller of the two
    todo!("day 13, task 9: sum the smaller of the two")
}

// part 3: a model drafts

/// Drafts with a smaller model of the same tokenizer, and a cache of its own. At the end of its own
/// context it drafts nothing, nor after a token that only the target's table has.
pub struct ModelDrafter<'a> {
    /// The small model and its cache; not one that slides.
    pub cached: Cached<'a>,
    /// What is done to its logits: the same as to the target's, or q would be far from p. Their
    /// error is the draft's.
    pub processors: Vec<Rc<dyn LogitsProcessor + 'a>>,
    /// Greedy, or drawn.
    pub greedy: bool,
    /// Size of the target's vocabulary. Models of one family pad their tables differently: tokens
    /// that only one of the two has are never drafted.
    pub vocab_size: usize,
}

impl Drafter for ModelDrafter<'_> {
    fn draft(&mut self, input: &ProcessorInput, n: usize, uniforms: &[f32]) -> Result<Draft> {
        // task 13.10: n times, or until EOS or the context's end: logits, processors, distribution, sample
        todo!("day 13, task 10: n times, or until EOS or the context's end: logits, processors, distribution, sample")
    }
}

/// Rejection sampling, the classical rule: draws from `p (V)` with proposals from `q (V)`. Returns
/// the token, and how many proposals it took: `m` on average (von Neumann 1951).
///
/// A proposal takes two numbers of `uniform`, each in [0, 1): the first draws a token from `q`, the
/// second accepts it with probability `p / (m · q)`. `m` must be at least `p / q` for each token,
/// up to rounding of one in 100,000.
///
/// # Errors
/// If the lengths differ, `m` is not finite or does not bound `p / q`, or 100 · `m` proposals were
/// all rejected.
pub fn rejection_sample(
    p: &[f32],
    q: &[f32],
    m: f32,
    uniform: &mut dyn FnMut() -> f32,
) -> Result<(u32, usize)> {
    // task 13.11 (further): propose from q until a proposal is accepted, and count the proposals
    todo!("day 13, task 11: propose from q until a proposal is accepted, and count the proposals")
}
