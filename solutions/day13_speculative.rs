//! Day 13: speculative decoding. A cheap drafter guesses K tokens, one pass of the target checks them all, and what comes
//! out is exactly what the target alone would have written, or would have drawn.

use candecode::day07_greedy::{log_softmax, window};
use candecode::day08_sampling::sample;
use candecode::day10_kv_cache::next_step;
use candecode::kit::draft::{distribution, one_hot, Draft, Drafter, Speculation, Verdict};
use candecode::kit::processor::process_all;
use candecode::kit::{Cache, Logits, LogitsProcessor, Model, ProcessorInput, Step, Token};
use candle_core::{bail, Result};

/// What is left of the target where the draft overreached: `max(p - q, 0)`, made to sum to 1. Nothing is left where `p` is
/// `q`: a token falls there by rounding only, and `p` itself is right.
///
/// # Errors
/// If the two are of different lengths.
pub fn residual(p: &[f32], q: &[f32]) -> Result<Vec<f32>> {
    // task 13.1: the positive part of p - q, divided by its sum
    // <solution>
    if p.len() != q.len() {
        bail!("the target has {} probabilities, the draft {}: not one vocabulary", p.len(), q.len())
    }
    let left: Vec<f32> = p.iter().zip(q).map(|(p, q)| (p - q).max(0.0)).collect();
    let sum = left.iter().map(|x| f64::from(*x)).sum::<f64>() as f32;
    if sum == 0.0 {
        return Ok(p.to_vec());
    }
    Ok(left.iter().map(|x| x / sum).collect())
    // </solution>
}

/// Accepts or rejects a draft so that every token is distributed as the target's (Leviathan et al. 2023; Chen et al. 2023).
///
/// `target` has one distribution `(V)` more than the draft has tokens; `coins` too. Token `i` stands if
/// `coin · q(token) < p(token)`, which is with probability `min(1, p / q)`; the first that falls is replaced by a draw from
/// the residual, and what follows it is dropped; if all stand, the last distribution gives a bonus token. The last coin is
/// for the residual or the bonus.
///
/// # Errors
/// If the numbers of distributions and coins do not fit, or a token is not in the vocabulary.
pub fn verify(draft: &Draft, target: &[Vec<f32>], coins: &[f32]) -> Result<Verdict> {
    // task 13.2: accept by p / q; the first that falls gives way to the residual, and if none falls there is a bonus
    // <solution>
    let n = draft.tokens.len();
    if draft.probs.len() != n || target.len() != n + 1 || coins.len() != n + 1 {
        bail!("a draft of {n} tokens needs {n} distributions; the target's, and coins: one more")
    }
    for (i, token) in draft.tokens.iter().enumerate() {
        let (p, q) = (&target[i], &draft.probs[i]);
        let id = *token as usize;
        if id >= p.len() || id >= q.len() {
            bail!("token id {id} was drafted; the target has {} tokens, q {}", p.len(), q.len())
        }
        if coins[i] * q[id] >= p[id] {
            return Ok(Verdict { accepted: i, next: sample(&residual(p, q)?, coins[n])? });
        }
    }
    Ok(Verdict { accepted: n, next: sample(&target[n], coins[n])? })
    // </solution>
}

/// Expected share of drafted tokens that stand: `Σ min(p, q)`.
pub fn overlap(p: &[f32], q: &[f32]) -> f32 {
    // task 13.10 (further): sum the smaller of the two
    // <solution>
    p.iter().zip(q).map(|(p, q)| p.min(*q)).sum()
    // </solution>
}

/// Drafts by looking back: where the last `n` tokens occurred before, what followed them there is proposed (Saxena 2023;
/// vLLM `ngram`, HF `prompt_lookup_num_tokens`). It costs nothing. The place may overlap the end of the text, and where it
/// is near the end fewer tokens follow.
pub struct NgramDrafter {
    /// TokenIter that must match, 1 at least; not the `n` of `draft`, which is how many to propose.
    pub n: usize,
    /// Size of the vocabulary.
    pub vocab_size: usize,
}

impl Drafter for NgramDrafter {
    fn draft(&mut self, input: &ProcessorInput, n: usize, _coins: &[f32]) -> Result<Draft> {
        // task 13.4: the latest earlier place of the last self.n tokens, and up to n tokens after it
        // <solution>
        let Some(start) = input.tokens.len().checked_sub(self.n) else {
            return Ok(Draft::default());
        };
        let last = &input.tokens[start..];
        let found = (0..start).rev().find(|at| input.tokens[*at..].starts_with(last));
        let Some(at) = found else { return Ok(Draft::default()) };
        let tokens: Vec<u32> = input.tokens[at + self.n..].iter().take(n).copied().collect();
        let probs = tokens.iter().map(|id| one_hot(*id, self.vocab_size)).collect();
        Ok(Draft { tokens, probs })
        // </solution>
    }
}

/// Drafts with a smaller model of the same tokenizer, and a cache of its own. Past its own context it has a window of its own,
/// whose stride is free: a quarter of that context, say, but with 1 the cache would be filled anew for every token.
pub struct ModelDrafter<'a> {
    /// The small model.
    pub model: &'a dyn Model,
    /// Its cache; not one that slides.
    pub cache: Box<dyn Cache + 'a>,
    /// The tokens that the cache holds.
    pub held: Vec<u32>,
    /// What is done to its logits: the same as to the target's, or q would be far from p. Their error is the draft's.
    pub processors: Vec<Box<dyn LogitsProcessor + 'a>>,
    /// Greedy, or drawn.
    pub greedy: bool,
}

impl ModelDrafter<'_> {
    /// Logits `(V)` after `tokens`: keeps what the cache shares with them, and feeds the rest.
    ///
    /// # Errors
    /// If there are no tokens, or the model fails.
    pub fn next_logits(&mut self, tokens: &[u32]) -> Result<Vec<f32>> {
        // task 13.5: truncate to the common prefix, feed what is missing, at least one token
        // <solution>
        let same = self.held.iter().zip(tokens).take_while(|(held, token)| held == token).count();
        let keep = same.min(tokens.len().saturating_sub(1)).min(self.cache.len());
        self.cache.truncate(keep)?;
        let step = Step::new(self.model, &tokens[keep..], keep)?.with_logits(Logits::Last(1));
        self.held = tokens.to_vec();
        self.model.forward(&step, &mut *self.cache)?.flatten_all()?.to_vec1()
        // </solution>
    }
}

impl Drafter for ModelDrafter<'_> {
    fn draft(&mut self, input: &ProcessorInput, n: usize, coins: &[f32]) -> Result<Draft> {
        // task 13.6: n times, or until EOS: window, logits, processors, distribution, sample
        // <solution>
        let context = self.model.config().max_position_embeddings;
        let (mut tokens, mut draft) = (input.tokens.to_vec(), Draft::default());
        for (i, coin) in (0..n).zip(coins) {
            let first = window(tokens.len(), context, (context / 4).max(1))?;
            let mut logits = self.next_logits(&tokens[first..])?;
            let remaining = input.remaining.saturating_sub(i);
            let now = ProcessorInput { tokens: &tokens, remaining, ..*input };
            process_all(&self.processors, &now, &mut logits)?;
            let q = distribution(&logits, self.greedy)?;
            let id = sample(&q, *coin)?;
            draft.tokens.push(id);
            draft.probs.push(q);
            tokens.push(id);
            if input.eos.contains(&id) {
                break; // a text has nothing behind it
            }
        }
        Ok(draft)
        // </solution>
    }
}

/// How many tokens may be drafted now: K at most; one fewer than the text may still have, for the pass itself gives one; and
/// no more than the context has room for behind the window.
///
/// # Errors
/// If the stride is out of range.
pub fn room(text: &Speculation) -> Result<usize> {
    // task 13.3: the smallest of K, what the text may still have, and what the context has room for
    // <solution>
    let context = text.model.config().max_position_embeddings;
    let len = text.sequence.tokens.len();
    let held = len - window(len, context, text.options.stride)?;
    let left = text.context().remaining.saturating_sub(1);
    Ok(text.num_draft_tokens.min(left).min(context - held))
    // </solution>
}

/// The target's logits `(V)` after the text and after each drafted token, in one pass: K tokens give K + 1 rows. The cache
/// holds all of them afterwards; where the window has moved, it is filled anew.
///
/// # Errors
/// If a drafted token is not in the vocabulary, or the model fails.
pub fn target(text: &mut Speculation, draft: &[u32]) -> Result<Vec<Vec<f32>>> {
    // task 13.7: day 10's next_step of the text with the draft; logits of the last K + 1 positions
    // <solution>
    let (stride, tokens) = (text.options.stride, [&text.sequence.tokens[..], draft].concat());
    let step = next_step(text.model, &tokens, &mut text.first, stride, &mut *text.cache)?;
    let step = step.with_logits(Logits::Last(draft.len() + 1));
    let logits = text.model.forward(&step, &mut *text.cache)?; // (1, K + 1, V)
    logits.squeeze(0)?.to_vec2()
    // </solution>
}

/// The distribution `(V)` after the text and after each drafted token, from `raw`, the target's logits there. The processors
/// see each position's own context: the text with the draft up to there, and so many tokens fewer that remain.
///
/// What stands behind a drafted token that is sure to fall, or behind EOS, is dropped: any distribution may fill these rows. No
/// processor is to see such a text, for it may find no token left there. Stop strings are not looked for: the text behind one
/// is processed.
///
/// # Errors
/// If a processor fails.
pub fn distributions(text: &Speculation, draft: &[u32], raw: &[Vec<f32>]) -> Result<Vec<Vec<f32>>> {
    // task 13.8: processors and distribution, row by row; behind a certain end, repeat the last row
    // <solution>
    let input = text.context();
    let (mut tokens, mut rows) = (input.tokens.to_vec(), Vec::<Vec<f32>>::new());
    for (i, raw) in raw.iter().enumerate() {
        let (mut logits, remaining) = (raw.clone(), input.remaining - i);
        let now = ProcessorInput { tokens: &tokens, remaining, ..input };
        process_all(&text.options.processors, &now, &mut logits)?;
        rows.push(distribution(&logits, text.coins.is_none())?);
        let Some(id) = draft.get(i) else { break };
        if rows[i].get(*id as usize).is_none_or(|p| *p == 0.0) || input.eos.contains(id) {
            break;
        }
        tokens.push(*id);
    }
    let last = rows.last().cloned().unwrap_or_default();
    rows.resize(raw.len(), last);
    Ok(rows)
    // </solution>
}

/// One block: draft, verify, take in what stands, roll the cache back. Its tokens; the last of the text has a `finish`. None
/// if the text may have no more.
///
/// A token's `logprob` is the raw one, as on day 7. `text.draft` tosses its own coins; then toss one for each row of `target`.
/// The cache keeps all tokens from `text.first` on but the newest, or what it holds if that is less (`NoCache`).
///
/// # Errors
/// If a model or a processor fails.
pub fn block(text: &mut Speculation) -> Result<Vec<Token>> {
    // task 13.9: draft, target, distributions, verify; push until the text ends; cut the cache to what is known
    // <solution>
    let mut written: Vec<Token> = Vec::new();
    if text.context().remaining == 0 {
        return Ok(written);
    }
    let draft = text.draft(room(text)?)?;
    let raw = target(text, &draft.tokens)?;
    let rows = distributions(text, &draft.tokens, &raw)?;
    let verdict = verify(&draft, &rows, &text.uniform(rows.len()))?;
    for (id, raw) in draft.tokens[..verdict.accepted].iter().chain([&verdict.next]).zip(&raw) {
        let logprob = log_softmax(raw)?[*id as usize];
        written.push(text.sequence.push(*id, logprob, &text.options)?);
        if written.last().is_some_and(|token| token.finish.is_some()) {
            break; // the text ends inside the block: what was accepted behind it is dropped
        }
    }
    text.counts.add(&draft, &verdict, written.len());
    let known = text.sequence.tokens.len() - text.first - 1; // all but the newest
    text.cache.truncate(known.min(text.cache.len()))?;
    Ok(written)
    // </solution>
}
