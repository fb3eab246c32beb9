//! Day 13: speculative decoding. A cheap drafter guesses up to K tokens, and one pass of the target
//! model checks them all. The output is exactly what the target alone would write or, with
//! sampling, has exactly its distribution.

use candecode::day07_greedy::{argmax, log_softmax, Sequence};
use candecode::day08_sampling::{sample, softmax};
use candecode::day10_kv_cache::Cached;
use candecode::kit::draft::{Counts, Draft, Drafter, Verdict};
use candecode::kit::processor::{process_all, process_draft};
use candecode::kit::rng::RequestRng;
use candecode::kit::{LogitsProcessor, ProcessorInput, Request, Token, Tokenizer};
use candle_core::{bail, Error, Result};
use std::rc::Rc;

/// Returns a distribution over `vocab_size` tokens with all its probability on `id`.
pub fn one_hot(id: u32, vocab_size: usize) -> Vec<f32> {
    let mut probs = vec![0.0; vocab_size];
    if let Some(p) = probs.get_mut(id as usize) {
        *p = 1.0;
    }
    probs
}

/// Returns the distribution that a token is chosen from: the softmax, or for greedy
/// decoding a one-hot on the best token.
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

/// Extends a sequence with drafted tokens that the *target* model verifies.
pub struct SpeculativeDecoder<'a> {
    /// The target model and its cache. The output is what the target alone would write
    /// or, with sampling, has the same distribution.
    pub target: Cached<'a>,
    /// The sequence so far, with its processors. Its sampler isn't used; see `rng`.
    pub sequence: Sequence<'a>,
    /// Proposes the drafts.
    pub drafter: Box<dyn Drafter + 'a>,
    /// K, the maximum number of tokens in a draft.
    pub num_draft_tokens: usize,
    /// The source of random numbers. None: greedy decoding.
    pub rng: Option<RequestRng>,
    /// Statistics so far.
    pub counts: Counts,
}

impl<'a> SpeculativeDecoder<'a> {
    /// Starts a sequence. Decoding is greedy until `rng` is set.
    ///
    /// # Errors
    /// If the prompt doesn't fit, or if the target's cache is a sliding one.
    pub fn new(
        target: Cached<'a>,
        tokenizer: &'a Tokenizer,
        mut request: Request<'a>,
        drafter: Box<dyn Drafter + 'a>,
        num_draft_tokens: usize,
    ) -> Result<Self> {
        request.fit(target.model)?;
        if target.cache.num_evicted().is_some() {
            bail!("a sliding cache can't roll back rejected tokens; use a dynamic or static one")
        }
        let sequence = Sequence::new(request, tokenizer);
        let counts = Counts::default();
        Ok(Self { target, sequence, drafter, num_draft_tokens, rng: None, counts })
    }

    /// Returns `n` random numbers in [0, 1). Greedy decoding needs none and gets zeros.
    pub fn uniforms(&mut self, n: usize) -> Vec<f32> {
        match &mut self.rng {
            Some(rng) => (0..n).map(|_| rng.uniform()).collect(),
            None => vec![0.0; n],
        }
    }

    /// Asks the drafter for up to `n` tokens, and passes it `n` random numbers.
    ///
    /// # Errors
    /// If the drafter fails, or returns more tokens than it was asked for.
    pub fn draft(&mut self, n: usize) -> Result<Draft> {
        let uniforms = self.uniforms(n);
        let draft = self.drafter.draft(&self.sequence.processor_input(), n, &uniforms)?;
        if draft.tokens.len() > n {
            bail!("the drafter was asked for {n} tokens at most, but gave {}", draft.tokens.len())
        }
        if draft.probs.len() != draft.tokens.len() {
            bail!(
                "tokens drafted: {}, but distributions: {}; each token needs one",
                draft.tokens.len(),
                draft.probs.len()
            )
        }
        Ok(draft)
    }

    /// Verifies a draft with [`verify_greedy`], or with [`verify`] if tokens are
    /// sampled. `raw` has the target's logits `(V)` after the sequence and after each
    /// drafted token.
    ///
    /// # Errors
    /// If a processor fails, or if a drafted token or its distribution doesn't fit the
    /// target's vocabulary.
    pub fn judge(&mut self, draft: &Draft, raw: &[Vec<f32>]) -> Result<Verdict> {
        if raw.len() != draft.tokens.len() + 1 {
            bail!(
                "tokens drafted: {}, rows of logits: {}; there must be one more row than tokens",
                draft.tokens.len(),
                raw.len()
            )
        }
        let vocab_size = raw[0].len();
        if let Some(id) = draft.tokens.iter().find(|id| **id as usize >= vocab_size) {
            bail!("token id {id} was drafted, but the target's vocabulary has {vocab_size} tokens")
        }
        if let Some(q) = draft.probs.iter().find(|q| q.len() != vocab_size) {
            bail!(
                "the drafter's distribution has {} tokens, but the target has {vocab_size}",
                q.len()
            )
        }
        let (target, failed) = self.target_probs(&draft.tokens, raw)?;
        let verdict = if self.rng.is_none() {
            verify_greedy(&draft.tokens, &target)?
        } else {
            let uniforms = self.uniforms(target.len());
            verify(draft, &target, &uniforms)?
        };
        match failed {
            Some((row, error)) if verdict.accepted >= row => Err(error),
            _ => Ok(verdict),
        }
    }

    /// Turns the target's logits into distributions `(V)`, one per row of `raw`. The
    /// processors see each row's own context: the sequence and the drafted tokens
    /// before that row, with that many fewer tokens remaining.
    ///
    /// Rows after a drafted EOS, or after a drafted token with p(token) = 0 (which is
    /// always rejected), can't affect the output. No processor runs on them, because it
    /// might rule out every token and fail; they are copies of the last row computed.
    /// Stop strings are ignored here: tokens after one are processed like any others.
    ///
    /// If a row after the first fails, the rows from there on are copies, too, and the
    /// error is returned next to them, with the row's index. It counts only if all
    /// drafted tokens before that row are accepted.
    ///
    /// # Errors
    /// If the first row fails.
    fn target_probs(
        &self,
        draft: &[u32],
        raw: &[Vec<f32>],
    ) -> Result<(Vec<Vec<f32>>, Option<(usize, Error)>)> {
        let input = self.sequence.processor_input();
        let mut tokens = input.tokens.to_vec();
        let mut rows: Vec<Vec<f32>> = Vec::new();
        let mut failed = None;
        for (i, raw) in raw.iter().enumerate() {
            let now = ProcessorInput { tokens: &tokens, remaining: input.remaining - i, ..input };
            match self.target_row(&now, raw.clone()) {
                Ok(row) => rows.push(row),
                Err(error) if i == 0 => return Err(error),
                Err(error) => {
                    failed = Some((i, error));
                    break;
                }
            }
            let Some(id) = draft.get(i) else { break };
            if rows[i][*id as usize] == 0.0 || input.eos.contains(id) {
                break;
            }
            tokens.push(*id);
        }
        let last = rows.last().cloned().unwrap_or_default();
        rows.resize(raw.len(), last);
        Ok((rows, failed))
    }

    /// Turns one row of the target's logits into a distribution, in the context `now`.
    fn target_row(&self, now: &ProcessorInput, mut logits: Vec<f32>) -> Result<Vec<f32>> {
        process_all(&self.sequence.request.processors, now, &mut logits)?;
        distribution(&logits, self.rng.is_none())
    }
}

// part 1: greedy

/// Verifies a greedy draft: accepts tokens as long as each one is the target's own
/// choice.
///
/// `target` holds the target's distributions `(V)`, one more than the draft has tokens:
/// row `i` is for the position of drafted token `i`, and the last row for the token
/// after the draft. The token after the accepted ones is the target's own choice.
///
/// # Errors
/// If a row has no best token.
pub fn verify_greedy(draft: &[u32], target: &[Vec<f32>]) -> Result<Verdict> {
    // task 13.1: Count the accepted tokens of a greedy draft, and choose the token after them
    // <solution>
    let mut accepted = 0;
    while accepted < draft.len() && draft[accepted] == argmax(&target[accepted])? {
        accepted += 1;
    }
    Ok(Verdict { accepted, next: argmax(&target[accepted])? })
    // </solution>
}

/// Returns the target's logits `(V)` after the sequence and after each drafted token,
/// from a single pass: K + 1 rows for K drafted tokens.
///
/// # Errors
/// If a drafted token isn't in the vocabulary, or the model fails.
pub fn target_logits(decoder: &mut SpeculativeDecoder, draft: &[u32]) -> Result<Vec<Vec<f32>>> {
    // task 13.2: Run the target once, and return the K + 1 rows that judge the draft
    // <solution>
    let tokens = [&decoder.sequence.tokens[..], draft].concat();
    decoder.target.logits(&tokens, draft.len() + 1)
    // </solution>
}

/// Drafts by looking back: finds the most recent earlier occurrence of the last tokens,
/// and proposes what followed them there (Saxena 2023; `ngram` in vLLM,
/// `prompt_lookup_num_tokens` in transformers).
pub struct NgramDrafter {
    /// Number of tokens that must match, at least 1. (The `n` of `draft` is how many to
    /// propose.)
    pub n: usize,
    /// Size of the target's vocabulary.
    pub vocab_size: usize,
}

impl Drafter for NgramDrafter {
    /// Proposes up to `n` tokens: those that followed the most recent earlier
    /// occurrence of the last `self.n` tokens. The two occurrences may overlap. The
    /// draft is shorter where fewer tokens follow, and empty without a match. Each
    /// distribution is one-hot.
    fn draft(&mut self, input: &ProcessorInput, n: usize, _uniforms: &[f32]) -> Result<Draft> {
        // task 13.3: Find the most recent match of the last tokens, and propose what followed it
        // <solution>
        let tokens = input.tokens;
        let Some(start) = tokens.len().checked_sub(self.n) else { return Ok(Draft::default()) };
        let last = &tokens[start..];
        let found = (0..start).rev().find(|at| tokens[*at..].starts_with(last));
        let Some(at) = found else { return Ok(Draft::default()) };
        let following = &tokens[at + self.n..];
        let proposed = following[..n.min(following.len())].to_vec();
        let probs = proposed.iter().map(|id| one_hot(*id, self.vocab_size)).collect();
        Ok(Draft { tokens: proposed, probs })
        // </solution>
    }
}

/// Decodes one block: drafts, runs the target once, verifies, and appends the accepted
/// tokens and the token after them. Returns the tokens that were appended: at least
/// one, or none if the sequence has no room left. Only called while the text hasn't
/// ended.
///
/// The draft has at most `num_draft_tokens` tokens, and leaves room in the sequence for
/// the one token that the target adds. If the sequence ends inside the block, the rest
/// of the block is dropped. A token's log-probability is the target's own, before any
/// processor, as on day 7.
///
/// # Errors
/// If a model or a processor fails.
pub fn decode_block(decoder: &mut SpeculativeDecoder) -> Result<Vec<Token>> {
    // task 13.4: Decode one block, and update the counts
    // <solution>
    let mut written: Vec<Token> = Vec::new();
    let remaining = decoder.sequence.remaining();
    if remaining == 0 {
        return Ok(written);
    }
    let draft = decoder.draft(decoder.num_draft_tokens.min(remaining - 1))?;
    let raw = target_logits(decoder, &draft.tokens)?;
    let verdict = decoder.judge(&draft, &raw)?;
    let accepted = &draft.tokens[..verdict.accepted];
    for (id, raw) in accepted.iter().chain([&verdict.next]).zip(&raw) {
        let logprob = log_softmax(raw)?[*id as usize];
        written.push(decoder.sequence.push(*id, logprob)?);
        if decoder.sequence.finish.is_some() {
            break; // the text has ended, so the rest of the block is dropped
        }
    }
    decoder.counts.add(&draft, &verdict, written.len());
    Ok(written)
    // </solution>
}

// part 2: sampled

/// Returns the residual distribution, from which the replacement for a rejected token
/// is drawn: what `p` has more of than `q`, scaled to sum to 1. Always returns a
/// distribution, even if `p` equals `q`: a rounding error can reject a token where
/// nothing is left over.
///
/// # Errors
/// If `p` and `q` have different lengths.
pub fn residual(p: &[f32], q: &[f32]) -> Result<Vec<f32>> {
    // task 13.5: Compute the residual distribution
    // <solution>
    if p.len() != q.len() {
        bail!(
            "p has {} probabilities but q has {}; they must cover the same vocabulary",
            p.len(),
            q.len()
        )
    }
    let left: Vec<f32> = p.iter().zip(q).map(|(p, q)| (p - q).max(0.0)).collect();
    let sum = left.iter().map(|x| f64::from(*x)).sum::<f64>() as f32;
    if sum == 0.0 {
        return Ok(p.to_vec());
    }
    Ok(left.iter().map(|x| x / sum).collect())
    // </solution>
}

/// Verifies a sampled draft so that every token has the target's distribution
/// (Leviathan et al. 2023; Chen et al. 2023).
///
/// For `n` drafted tokens there are `n + 1` distributions `(V)` in `target`, and
/// `n + 1` numbers in [0, 1) in `uniforms`. Drafted token `i` is accepted with
/// probability `min(1, p / q)`, decided by `uniforms[i]`. The first rejected token is
/// replaced by a draw from the residual, which ends the block. If all are accepted, the
/// last distribution yields a bonus token. The last number draws the replacement or the
/// bonus.
///
/// # Errors
/// If no token can be drawn.
pub fn verify(draft: &Draft, target: &[Vec<f32>], uniforms: &[f32]) -> Result<Verdict> {
    // task 13.6: Accept tokens with min(1, p / q), and choose the token after them
    // <solution>
    let n = draft.tokens.len();
    for (i, token) in draft.tokens.iter().enumerate() {
        let (p, q, id) = (&target[i], &draft.probs[i], *token as usize);
        if uniforms[i] * q[id] >= p[id] {
            return Ok(Verdict { accepted: i, next: sample(&residual(p, q)?, uniforms[n])? });
        }
    }
    Ok(Verdict { accepted: n, next: sample(&target[n], uniforms[n])? })
    // </solution>
}

/// Returns the probability that a token drafted from `q` is accepted: `Σ min(p, q)`.
pub fn overlap(p: &[f32], q: &[f32]) -> f32 {
    p.iter().zip(q).map(|(p, q)| p.min(*q)).sum()
}

/// Drafts with a smaller model that shares the target's tokenizer, and keeps a cache of
/// its own.
pub struct ModelDrafter<'a> {
    /// The small model and its cache, which must not be a sliding one.
    pub cached: Cached<'a>,
    /// Processors for the small model's logits. They should be the target's own:
    /// otherwise q is far from p, and drafts are rejected more often.
    pub processors: Vec<Rc<dyn LogitsProcessor + 'a>>,
    /// Whether drafts are greedy (true) or sampled.
    pub greedy: bool,
    /// Size of the target's vocabulary. Models in the same family may pad theirs
    /// differently; a token that only one of the two models has is never drafted.
    pub vocab_size: usize,
}

impl ModelDrafter<'_> {
    /// Returns the small model's logits `(V)` after `tokens`, over the target's
    /// vocabulary. None if the model can't read them: because they don't fit its
    /// context, or because one of them lies beyond its own vocabulary.
    ///
    /// # Errors
    /// If the model fails.
    pub fn logits(&mut self, tokens: &[u32]) -> Result<Option<Vec<f32>>> {
        let config = self.cached.model.config();
        let unknown = tokens.iter().any(|id| *id as usize >= config.vocab_size);
        if unknown || tokens.len() > config.max_position_embeddings {
            return Ok(None);
        }
        let mut logits = self.cached.logits(tokens, 1)?.remove(0);
        logits.resize(self.vocab_size, f32::NEG_INFINITY);
        Ok(Some(logits))
    }
}

impl Drafter for ModelDrafter<'_> {
    /// Drafts up to `n` tokens, drawing the i-th with `uniforms[i]` from the small
    /// model's distribution after `self.processors`. The draft ends early after an EOS
    /// token, where the processors leave no token, or once the text no longer fits the
    /// small model.
    fn draft(&mut self, input: &ProcessorInput, n: usize, uniforms: &[f32]) -> Result<Draft> {
        // task 13.7: Draft token by token with the small model, and record each distribution
        // <solution>
        let mut tokens = input.tokens.to_vec();
        let mut draft = Draft::default();
        for (i, u) in (0..n).zip(uniforms) {
            let Some(mut logits) = self.logits(&tokens)? else { break };
            let remaining = input.remaining.saturating_sub(i);
            let now = ProcessorInput { tokens: &tokens, remaining, ..*input };
            if !process_draft(&self.processors, &now, &mut logits)? {
                break; // the target decides how the text continues here
            }
            let q = distribution(&logits, self.greedy)?;
            let id = sample(&q, *u)?;
            draft.tokens.push(id);
            draft.probs.push(q);
            tokens.push(id);
            if input.eos.contains(&id) {
                break; // EOS itself is drafted, but no text continues after it
            }
        }
        Ok(draft)
        // </solution>
    }
}

// part 3: the challenge, and rejection sampling (optional)

/// Verifies a draft so that the text is token for token the one that sampling without
/// drafts would have produced from the same random numbers.
///
/// Without drafts, the token at row `i` of `target` would be sampled with
/// `uniforms[i]`. Drafted tokens are accepted for as long as they equal that token.
///
/// # Errors
/// If no token can be drawn.
pub fn verify_same_seed(draft: &[u32], target: &[Vec<f32>], uniforms: &[f32]) -> Result<Verdict> {
    // task 13.8 (challenge): Verify a draft so that the same seed writes the same text
    // <solution>
    for (i, token) in draft.iter().enumerate() {
        let next = sample(&target[i], uniforms[i])?;
        if *token != next {
            return Ok(Verdict { accepted: i, next });
        }
    }
    let n = draft.len();
    Ok(Verdict { accepted: n, next: sample(&target[n], uniforms[n])? })
    // </solution>
}

/// Draws a token from `p (V)` with proposals from `q (V)` by classical rejection
/// sampling (von Neumann 1951). Returns the token and the number of proposals, which is
/// `m` on average.
///
/// Each proposal takes two numbers in [0, 1) from `uniform`: the first draws a token
/// from `q`, the second accepts it with probability `p / (m · q)`. `m` must be at least
/// `p / q` for every token, with a tolerance of one in 100,000 for rounding.
///
/// # Errors
/// If the lengths differ, if `m` isn't finite or doesn't bound `p / q`, or if 100 · `m`
/// proposals in a row are rejected.
pub fn rejection_sample(
    p: &[f32],
    q: &[f32],
    m: f32,
    uniform: &mut dyn FnMut() -> f32,
) -> Result<(u32, usize)> {
    // task 13.9 (optional): Draw proposals from q until one is accepted, and count them
    // <solution>
    if p.len() != q.len() {
        bail!(
            "p has {} probabilities but q has {}; they must cover the same vocabulary",
            p.len(),
            q.len()
        )
    }
    let bounded = p.iter().zip(q).all(|(p, q)| *p <= m * q * 1.00001);
    if !m.is_finite() || !bounded {
        bail!("m is {m}, but it must be finite and at least p / q for every token")
    }
    let most = (100.0 * m) as usize;
    for proposals in 1..=most {
        let id = sample(q, uniform())?;
        if uniform() * m * q[id as usize] < p[id as usize] {
            return Ok((id, proposals));
        }
    }
    bail!("{most} proposals were rejected; do p and q sum to 1?")
    // </solution>
}
