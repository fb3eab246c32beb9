//! Day 13: speculative decoding. A cheap drafter guesses K tokens, one pass of the target checks them all, and what comes
//! out is exactly what the target alone would have written, or would have drawn.

use candecode::day07_greedy::{argmax, log_softmax, window, Sequence};
use candecode::day08_sampling::{sample, softmax};
use candecode::kit::draft::{one_hot, Draft, Drafter};
use candecode::kit::processor::process_all;
use candecode::kit::rng::Coins;
use candecode::kit::{
    check_prompt, Cache, Context, GenerationOptions, Logits, LogitsProcessor, Model, Step, Token,
    Tokenizer,
};
use candle_core::{bail, Result};

/// The distribution that a token is chosen from: greedy is the one that has all of it on the best token.
///
/// # Errors
/// If there is no token to choose.
pub fn distribution(logits: &[f32], greedy: bool) -> Result<Vec<f32>> {
    match greedy {
        true => Ok(one_hot(argmax(logits)?, logits.len())),
        false => softmax(logits),
    }
}

/// What verification found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Verdict {
    /// How many drafted tokens stand.
    pub accepted: usize,
    /// The token after them: drawn from the residual where a draft fell, or the bonus token where none did.
    pub next: u32,
}

/// What is left of the target where the draft overreached: `max(p - q, 0)`, made to sum to 1.
///
/// # Errors
/// If nothing is left: then `p` is `q`, and nothing could have been rejected.
pub fn residual(p: &[f32], q: &[f32]) -> Result<Vec<f32>> {
    // task 13.1: the positive part of p - q, divided by its sum
    // <solution>
    let left: Vec<f32> = p.iter().zip(q).map(|(p, q)| (p - q).max(0.0)).collect();
    let sum = left.iter().map(|x| f64::from(*x)).sum::<f64>() as f32;
    if sum <= 0.0 {
        bail!("the residual is empty: the draft's distribution is the target's")
    }
    Ok(left.iter().map(|x| x / sum).collect())
    // </solution>
}

/// Accepts or rejects a draft so that every token is distributed as the target's (Leviathan et al. 2023; Chen et al. 2023).
///
/// `target` has one distribution `(V)` more than the draft has tokens; `coins` too. Token `i` stands if
/// `coin · q(token) < p(token)`, which is with probability `min(1, p / q)`; the first that falls is replaced by a draw from
/// the residual, and what follows it is dropped; if all stand, the last distribution gives a bonus token.
///
/// # Errors
/// If the numbers of distributions and coins do not fit.
pub fn verify(draft: &Draft, target: &[Vec<f32>], coins: &[f32]) -> Result<Verdict> {
    // task 13.2: accept by p / q; the last coin is for the residual or the bonus
    // <solution>
    let n = draft.tokens.len();
    if draft.probs.len() != n || target.len() != n + 1 || coins.len() != n + 1 {
        bail!(
            "a draft of {n} tokens needs {n} distributions, {} of the target, and as many coins",
            n + 1
        )
    }
    for (i, token) in draft.tokens.iter().enumerate() {
        let (p, q) = (&target[i], &draft.probs[i]);
        let id = *token as usize;
        if coins[i] * q[id] >= p[id] {
            return Ok(Verdict { accepted: i, next: sample(&residual(p, q)?, coins[n])? });
        }
    }
    Ok(Verdict { accepted: n, next: sample(&target[n], coins[n])? })
    // </solution>
}

/// Expected share of drafted tokens that stand: `Σ min(p, q)`.
pub fn overlap(p: &[f32], q: &[f32]) -> f32 {
    // task 13.3: sum the smaller of the two
    // <solution>
    p.iter().zip(q).map(|(p, q)| p.min(*q)).sum()
    // </solution>
}

/// Drafts by looking back: where the last `n` tokens occurred before, what followed them there is proposed (Saxena 2023;
/// vLLM `ngram`, HF `prompt_lookup_num_tokens`). It costs nothing.
pub struct NgramDrafter {
    /// Tokens that must match.
    pub n: usize,
    /// Size of the vocabulary.
    pub vocab_size: usize,
}

impl Drafter for NgramDrafter {
    fn draft(&mut self, cx: &Context, n: usize, _coins: &[f32]) -> Result<Draft> {
        // task 13.4: the latest earlier place of the last n tokens, and up to n tokens after it
        // <solution>
        let tokens = cx.tokens;
        let Some(start) = tokens.len().checked_sub(self.n) else { return Ok(Draft::default()) };
        let found = tokens.windows(self.n).take(start).rposition(|seen| *seen == tokens[start..]);
        let Some(at) = found else { return Ok(Draft::default()) };
        let tokens: Vec<u32> = tokens[at + self.n..].iter().take(n).copied().collect();
        let probs = tokens.iter().map(|id| one_hot(*id, self.vocab_size)).collect();
        Ok(Draft { tokens, probs })
        // </solution>
    }
}

/// Drafts with a smaller model of the same tokenizer, and a cache of its own.
pub struct ModelDrafter<'a> {
    /// The small model.
    pub model: &'a dyn Model,
    /// Its cache.
    pub cache: Box<dyn Cache + 'a>,
    /// The tokens that the cache holds.
    pub held: Vec<u32>,
    /// What is done to its logits: the same as to the target's, or q would be far from p.
    pub processors: Vec<Box<dyn LogitsProcessor + 'a>>,
    /// Greedy, or drawn.
    pub greedy: bool,
}

impl ModelDrafter<'_> {
    /// Logits `(V)` after `tokens`: keeps what the cache shares with them, and feeds the rest.
    ///
    /// # Errors
    /// If the model fails.
    pub fn next_logits(&mut self, tokens: &[u32]) -> Result<Vec<f32>> {
        // task 13.5: truncate to the common prefix, feed what is missing, at least one token
        // <solution>
        let same = self.held.iter().zip(tokens).take_while(|(held, token)| held == token).count();
        let keep = same.min(tokens.len() - 1).min(self.cache.len());
        self.cache.truncate(keep)?;
        let step = Step::new(self.model, &tokens[keep..], keep)?.with_logits(Logits::Last(1));
        self.held = tokens.to_vec();
        self.model.forward(&step, &mut *self.cache)?.flatten_all()?.to_vec1()
        // </solution>
    }
}

impl Drafter for ModelDrafter<'_> {
    fn draft(&mut self, cx: &Context, n: usize, coins: &[f32]) -> Result<Draft> {
        // task 13.6: n times: logits, processors, distribution, sample; never past the model's context
        // <solution>
        let context = self.model.config().max_position_embeddings;
        let first = window(cx.tokens.len() + n, context, (context / 4).max(1))?;
        let (mut tokens, mut draft) = (cx.tokens.to_vec(), Draft::default());
        for coin in &coins[..n] {
            let mut logits = self.next_logits(&tokens[first..])?;
            let drafted = draft.tokens.len();
            let cx = Context { tokens: &tokens, remaining: cx.remaining - drafted, ..*cx };
            process_all(&self.processors, &cx, &mut logits)?;
            let q = distribution(&logits, self.greedy)?;
            let id = sample(&q, *coin)?;
            draft.tokens.push(id);
            draft.probs.push(q);
            if cx.eos.contains(&id) {
                break;
            }
            tokens.push(id);
        }
        Ok(draft)
        // </solution>
    }
}

/// What speculation did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Passes of the target.
    pub passes: usize,
    /// Tokens drafted.
    pub drafted: usize,
    /// Of them, tokens that stood.
    pub accepted: usize,
    /// Tokens written.
    pub written: usize,
}

impl Counts {
    fn add(&mut self, draft: &Draft, verdict: &Verdict, written: usize) {
        self.passes += 1;
        self.drafted += draft.tokens.len();
        self.accepted += verdict.accepted;
        self.written += written;
    }
}

/// A text being generated by speculation.
pub struct Speculation<'a> {
    /// The target: its tokens, or its distribution, are what comes out.
    pub model: &'a dyn Model,
    /// When to stop, and the processors; the choice is `coins`'.
    pub options: GenerationOptions<'a>,
    /// The text so far.
    pub sequence: Sequence<'a>,
    /// The target's cache; not one that slides, for rejected tokens must be taken back.
    pub cache: Box<dyn Cache + 'a>,
    /// The first token of the window that the cache holds.
    pub first: usize,
    /// Makes the drafts.
    pub drafter: Box<dyn Drafter + 'a>,
    /// K: tokens to draft at most.
    pub num_draft_tokens: usize,
    /// Randomness; None is greedy.
    pub coins: Option<Coins>,
    /// What was done so far.
    pub counts: Counts,
}

impl<'a> Speculation<'a> {
    /// Begins a text; greedy, until `coins` are set.
    ///
    /// # Errors
    /// If the prompt does not fit, or the cache slides.
    pub fn new(
        model: &'a dyn Model,
        tokenizer: &'a Tokenizer,
        prompt: &[u32],
        options: GenerationOptions<'a>,
        cache: Box<dyn Cache + 'a>,
        drafter: Box<dyn Drafter + 'a>,
        num_draft_tokens: usize,
    ) -> Result<Self> {
        check_prompt(model, prompt)?;
        if cache.slid().is_some() {
            bail!("a sliding cache cannot take back rejected tokens; use a dynamic or static one")
        }
        let sequence = Sequence::new(0, prompt, tokenizer, &options.stop_strings);
        let (first, coins, counts) = (0, None, Counts::default());
        Ok(Self {
            model,
            options,
            sequence,
            cache,
            first,
            drafter,
            num_draft_tokens,
            coins,
            counts,
        })
    }

    /// How many tokens may be drafted now: no more than the text may still have, nor than the context has room for.
    fn room(&mut self) -> Result<usize> {
        let context = self.model.config().max_position_embeddings;
        let len = self.sequence.tokens.len();
        let first = window(len, context, self.options.stride)?;
        if first != self.first {
            self.cache.truncate(0)?;
            self.first = first;
        }
        let left = self.options.max_new_tokens - (len - self.sequence.prompt_len);
        Ok(self.num_draft_tokens.min(left - 1).min(context - (len - first)))
    }

    /// The target's logits `(V)` after the text and after each drafted token, in one pass.
    fn target(&mut self, draft: &[u32]) -> Result<Vec<Vec<f32>>> {
        // task 13.7: feed what the cache does not hold and the draft, take the last draft + 1 logits
        // <solution>
        let held = self.cache.len();
        let new = [&self.sequence.tokens[self.first + held..], draft].concat();
        let step = Step::new(self.model, &new, held)?.with_logits(Logits::Last(draft.len() + 1));
        self.model.forward(&step, &mut *self.cache)?.squeeze(0)?.to_vec2() // (K + 1, V)
                                                                           // </solution>
    }

    /// The distribution after the text and after each drafted token, each from its own context.
    fn distributions(
        &self,
        cx: &Context,
        draft: &Draft,
        raw: &[Vec<f32>],
    ) -> Result<Vec<Vec<f32>>> {
        // task 13.8: processors see the text with the draft up to there; behind a token that is sure to fall, anything goes
        // <solution>
        let (mut text, mut target) = (cx.tokens.to_vec(), Vec::<Vec<f32>>::new());
        for (i, raw) in raw.iter().enumerate() {
            if let Some(before) = i.checked_sub(1) {
                let id = draft.tokens[before];
                text.push(id);
                if target[before][id as usize] == 0.0 {
                    target.push(target[before].clone()); // never looked at; the processors might find nothing left here
                    continue;
                }
            }
            let cx = Context { tokens: &text, remaining: cx.remaining - i, ..*cx };
            let mut logits = raw.clone();
            process_all(&self.options.processors, &cx, &mut logits)?;
            target.push(distribution(&logits, self.coins.is_none())?);
        }
        Ok(target)
        // </solution>
    }

    fn toss(&mut self, n: usize) -> Vec<f32> {
        (0..n).map(|_| self.coins.as_mut().map_or(0.0, Coins::toss)).collect()
    }

    /// One block: draft, verify, take in what stands, roll the cache back. Its tokens; the last of the text has a `finish`.
    ///
    /// # Errors
    /// If a model or a processor fails.
    pub fn block(&mut self) -> Result<Vec<Token>> {
        // task 13.9: draft, target, distributions, verify; push until the text ends; truncate to what is known
        // <solution>
        let room = self.room()?;
        let (tokens, eos) = (self.sequence.tokens.clone(), self.options.eos_token_ids.clone());
        let prompt_len = self.sequence.prompt_len;
        let remaining = self.options.max_new_tokens + prompt_len - tokens.len();
        let cx = Context { tokens: &tokens, prompt_len, remaining, eos: &eos };
        let coins = self.toss(room);
        let draft = self.drafter.draft(&cx, room, &coins)?;
        let raw = self.target(&draft.tokens)?;
        let target = self.distributions(&cx, &draft, &raw)?;
        let verdict = verify(&draft, &target, &self.toss(target.len()))?;
        let mut written: Vec<Token> = Vec::new();
        for (id, raw) in draft.tokens[..verdict.accepted].iter().chain([&verdict.next]).zip(&raw) {
            let logprob = log_softmax(raw)?[*id as usize];
            written.push(self.sequence.push(*id, logprob, &self.options)?);
            if written.last().is_some_and(|token| token.finish.is_some()) {
                break; // the text ends inside the block: what was accepted behind it is dropped
            }
        }
        self.counts.add(&draft, &verdict, written.len());
        let known = self.sequence.tokens.len() - self.first - 1; // all but the newest
        self.cache.truncate(known.min(self.cache.len()))?;
        Ok(written)
        // </solution>
    }
}
