//! What day 13's checkers assert.

use super::checks::{close, ensure, equal, equal_tokens, model, refused, tokenizer, Fake, Keep};
use super::checks::{Likely, Outcome, Random, Witness};
use candecode::day07_greedy;
use candecode::day08_sampling::{sample, warpers, SamplingParams};
use candecode::day09_penalties::{penalties, PenaltyParams};
use candecode::day10_kv_cache::{generate_cached, KvCache};
use candecode::kit::draft::{one_hot, Draft, Drafter, Speculation};
use candecode::kit::rng::RequestRng;
use candecode::kit::{named, Cache, CacheKind, FinishReason, GenerationOptions, ProcessorInput};
use candecode::kit::{Logits, LogitsProcessor, Model, NoCache, Step, Token, Tokenizer};
use candle_core::{bail, Device, IndexOp, Result, Tensor};
use std::cell::RefCell;

/// A drafting model with its cache: its logits after some tokens, one text after another.
pub type Follow = fn(&dyn Model, Box<dyn Cache + '_>, &[Vec<u32>]) -> Result<Vec<Vec<f32>>>;

/// A drafting model with its cache and processors, greedy or not.
pub type Small = for<'a> fn(
    &'a dyn Model,
    Box<dyn Cache + 'a>,
    Vec<Box<dyn LogitsProcessor + 'a>>,
    bool,
) -> Box<dyn Drafter + 'a>;

/// Day 13 as a bundle of functions.
#[derive(Clone, Copy)]
pub struct Day {
    pub residual: fn(&[f32], &[f32]) -> Result<Vec<f32>>,
    pub verify: fn(&Draft, &[Vec<f32>], &[f32]) -> Result<(usize, u32)>,
    pub overlap: fn(&[f32], &[f32]) -> f32,
    pub ngram: fn(usize, usize) -> Box<dyn Drafter>,
    pub follow: Follow,
    pub small: Small,
    pub room: fn(&Speculation) -> Result<usize>,
    pub target: fn(&mut Speculation, &[u32]) -> Result<Vec<Vec<f32>>>,
    pub distributions: fn(&Speculation, &[u32], &[Vec<f32>]) -> Result<Vec<Vec<f32>>>,
    pub block: fn(&mut Speculation) -> Result<Vec<Token>>,
}

/// Fills the bundle from a module: the reader's, a known mistake, or the stub.
macro_rules! implementation {
    ($($path:ident)::+) => {{
        use $($path)::+ as code;
        day::Day {
            residual: code::residual,
            verify: |draft, target, coins| {
                code::verify(draft, target, coins).map(|verdict| (verdict.accepted, verdict.next))
            },
            overlap: code::overlap,
            ngram: |n, vocab_size| Box::new(code::NgramDrafter { n, vocab_size }),
            follow: |model, cache, texts| {
                let (held, processors) = (Vec::new(), Vec::new());
                let mut drafter = code::ModelDrafter { model, cache, held, processors, greedy: true };
                texts.iter().map(|text| drafter.next_logits(text)).collect()
            },
            small: |model, cache, processors, greedy| {
                let held = Vec::new();
                Box::new(code::ModelDrafter { model, cache, held, processors, greedy })
            },
            room: code::room,
            target: code::target,
            distributions: code::distributions,
            block: code::block,
        }
    }};
}

/// Block after block, until the text has ended.
fn speculate(day: &Day, text: &mut Speculation) -> Result<Vec<Token>> {
    let mut tokens: Vec<Token> = Vec::new();
    while tokens.last().is_none_or(|token| token.finish.is_none()) {
        let new = (day.block)(text)?;
        if new.is_empty() || tokens.len() > 2000 {
            bail!("{} tokens, and a block of {} more: no end", tokens.len(), new.len())
        }
        tokens.extend(new);
    }
    Ok(tokens)
}

/// Drafts nothing.
struct Mute;

impl Drafter for Mute {
    fn draft(&mut self, _: &ProcessorInput, _: usize, _: &[f32]) -> Result<Draft> {
        Ok(Draft::default())
    }
}

const P: [f32; 3] = [0.5, 0.3, 0.2];
const Q: [f32; 3] = [0.2, 0.6, 0.2];

fn row(numbers: &[f32]) -> Result<Tensor> {
    Tensor::new(numbers, &Device::Cpu)
}

// Sums of a few f32 near 1: a few units of 6e-8.
const TOLERANCE: f32 = 1e-6;

pub fn the_residual_by_hand(day: &Day) -> Outcome {
    let got = (day.residual)(&P, &Q).and_then(|r| row(&r));
    close("p = (.5, .3, .2), q = (.2, .6, .2)", got, &row(&[1.0, 0.0, 0.0])?, TOLERANCE)?;
    let got = (day.residual)(&[0.6, 0.4, 0.0], &[0.2, 0.2, 0.6]).and_then(|r| row(&r));
    let want = row(&[2.0 / 3.0, 1.0 / 3.0, 0.0])?;
    close("p = (.6, .4, 0), q = (.2, .2, .6)", got, &want, TOLERANCE)
        .likely("what is left of p must be made to sum to 1")?;
    let got = (day.residual)(&P, &P).and_then(|r| row(&r));
    close("p = q = (.5, .3, .2)", got, &row(&P)?, TOLERANCE)
        .likely("where nothing is left, p itself is the answer; 0 / 0 is NaN")?;
    refused("three p, two q", (day.residual)(&P, &Q[..2]), &[])
}

pub fn the_overlap_by_hand(day: &Day) -> Outcome {
    let got = row(&[(day.overlap)(&P, &Q)]);
    close("p = (.5, .3, .2), q = (.2, .6, .2)", got, &row(&[0.7])?, TOLERANCE)
}

fn draft(tokens: &[u32], probs: &[[f32; 3]]) -> Draft {
    Draft { tokens: tokens.to_vec(), probs: probs.iter().map(|q| q.to_vec()).collect() }
}

/// What `verify` found, as (accepted, next).
fn verdict(what: &str, got: Result<(usize, u32)>, want: &(usize, u32)) -> Outcome {
    equal(&format!("{what}: (accepted, next)"), got, want)
}

pub fn a_draft_stands_with_p_over_q(day: &Day) -> Outcome {
    let target = [P.to_vec(), vec![0.0, 0.0, 1.0]];
    // Token 0 is likelier to the target than to the draft: it always stands.
    let zero = draft(&[0], &[Q]);
    verdict("token 0 drafted, coin .999", (day.verify)(&zero, &target, &[0.999, 0.0]), &(1, 2))?;
    // What the target never says always falls.
    let never = [vec![0.5, 0.5, 0.0], vec![0.0, 0.0, 1.0]];
    let two = draft(&[2], &[[0.5, 0.25, 0.25]]);
    verdict("token 2, of p = 0, drafted", (day.verify)(&two, &never, &[0.0, 0.0]), &(0, 1))?;
    // Token 1 stands with probability .3 / .6: at a coin of .49, and at .51 no more.
    let one = draft(&[1], &[Q]);
    verdict("token 1 drafted, coin .49", (day.verify)(&one, &target, &[0.49, 0.0]), &(1, 2))?;
    verdict("token 1 drafted, coin .51", (day.verify)(&one, &target, &[0.51, 0.0]), &(0, 0)).likely(
        "a fallen token is replaced by a draw from the residual, which is all on token 0 here",
    )
}

pub fn what_follows_a_fallen_token_is_dropped(day: &Day) -> Outcome {
    let target = [P.to_vec(), P.to_vec(), P.to_vec(), vec![0.0, 0.0, 1.0]];
    let three = draft(&[0, 1, 0], &[Q, Q, Q]);
    let got = (day.verify)(&three, &target, &[0.1, 0.9, 0.1, 0.3]);
    verdict("tokens 0, 1, 0 drafted, the second falls", got, &(1, 0))?;
    let got = (day.verify)(&three, &target, &[0.1, 0.1, 0.1, 0.3]);
    verdict("all three stand, the bonus is the target's next", got, &(3, 2))
        .likely("the bonus token is drawn from the target's last distribution")?;
    let none = draft(&[], &[]);
    verdict("nothing drafted, coin .6", (day.verify)(&none, &[P.to_vec()], &[0.6]), &(0, 1))
        .likely("without a draft, one token of the target is still drawn")
}

pub fn numbers_that_do_not_fit_are_refused(day: &Day) -> Outcome {
    let one = draft(&[1], &[Q]);
    refused("one draft, one target", (day.verify)(&one, &[P.to_vec()], &[0.1, 0.1]), &[])?;
    refused("one draft, one coin", (day.verify)(&one, &[P.to_vec(), P.to_vec()], &[0.1]), &[])?;
    let foreign = draft(&[3], &[Q]);
    let got = (day.verify)(&foreign, &[P.to_vec(), P.to_vec()], &[0.1, 0.1]);
    refused("token 3 of a vocabulary of 3", got, &[])
}

/// Draws whole blocks with drafts from `q`, and tallies the first token of each, and how many drafts stood.
fn tally(day: &Day, p: &[f32], q: &[f32], draws: usize) -> Result<(Vec<usize>, usize)> {
    let (mut coins, mut seen, mut stood) = (RequestRng::new(13, 0), vec![0; p.len()], 0);
    for _ in 0..draws {
        let drafted = sample(q, coins.uniform())?;
        let draft = Draft { tokens: vec![drafted], probs: vec![q.to_vec()] };
        let coins = [coins.uniform(), coins.uniform()];
        let (accepted, next) = (day.verify)(&draft, &[p.to_vec(), p.to_vec()], &coins)?;
        stood += accepted;
        seen[if accepted > 0 { drafted } else { next } as usize] += 1;
    }
    Ok((seen, stood))
}

fn chi_square(seen: &[usize], p: &[f32]) -> f64 {
    let total = seen.iter().sum::<usize>() as f64;
    let cell = |(n, p): (&usize, &f32)| {
        let want = total * f64::from(*p);
        if want == 0.0 {
            if *n > 0 {
                f64::INFINITY
            } else {
                0.0
            }
        } else {
            (*n as f64 - want).powi(2) / want
        }
    };
    seen.iter().zip(p).map(cell).sum()
}

const CASES: [([f32; 4], [f32; 4]); 4] = [
    ([0.5, 0.3, 0.2, 0.0], [0.2, 0.6, 0.2, 0.0]),
    ([0.1, 0.2, 0.3, 0.4], [0.4, 0.3, 0.2, 0.1]),
    ([0.25, 0.25, 0.25, 0.25], [0.0, 0.0, 0.0, 1.0]),
    ([0.7, 0.2, 0.1, 0.0], [0.0, 0.0, 0.0, 1.0]), // a drafter that is always wrong
];

pub fn the_distribution_is_the_targets(day: &Day) -> Outcome {
    for (p, q) in CASES {
        let (seen, _) = tally(day, &p, &q, 60_000)?;
        let x = chi_square(&seen, &p);
        // Three degrees of freedom: above 30.7 a right distribution comes once in a million times. The coins are seeded,
        // so a right answer that passes once passes always.
        let what = format!("60,000 draws with p = {p:?}, q = {q:?}: {seen:?}");
        ensure(&what, x < 30.7, &format!("chi-square is {x:.1}: these are not drawn from p"))
            .likely(
                "accept with min(1, p / q); what falls is replaced from the residual, not from p",
            )?;
    }
    Ok(())
}

pub fn drafts_stand_as_often_as_the_overlap_says(day: &Day) -> Outcome {
    for (p, q) in CASES {
        let draws = 60_000;
        let (_, stood) = tally(day, &p, &q, draws)?;
        let want: f64 = p.iter().zip(&q).map(|(p, q)| f64::from(p.min(*q))).sum();
        // Five standard deviations of a binomial: a right rate misses them twice in three million times.
        let five = 5.0 * (want * (1.0 - want) / draws as f64).sqrt() + 1e-9;
        let rate = stood as f64 / draws as f64;
        let what = format!(
            "p = {p:?}, q = {q:?}: {rate:.4} of the drafts stood, Σ min(p, q) is {want:.4}"
        );
        ensure(&what, (rate - want).abs() <= five, "that is not the overlap")?;
    }
    Ok(())
}

fn context(tokens: &[u32]) -> ProcessorInput<'_> {
    ProcessorInput { tokens, prompt_len: 1, remaining: 100, eos: &[0] }
}

pub fn n_grams_are_looked_up(day: &Day) -> Outcome {
    let mut drafter = (day.ngram)(2, 50);
    let mut look = |tokens: &[u32], n: usize| drafter.draft(&context(tokens), n, &vec![0.5; n]);
    let tokens = [7, 8, 1, 7, 8, 2, 3, 7, 8];
    let got = look(&tokens, 2).map(|draft| draft.tokens);
    equal("7 8 1 7 8 2 3 7 8, the last two looked up, K = 2", got, &vec![2, 3])
        .likely("the latest earlier place counts, and what followed it there")?;
    let got = look(&tokens, 9).map(|draft| draft.tokens);
    equal("the same, K = 9", got, &vec![2, 3, 7, 8])?;
    equal("4 5 6 never occurred", look(&[4, 5, 6], 4).map(|draft| draft.tokens), &vec![])?;
    equal("one token", look(&[4], 4).map(|draft| draft.tokens), &vec![])?;
    equal("5 5 5: a place may overlap", look(&[5, 5, 5], 1).map(|draft| draft.tokens), &vec![5])?;
    equal("no tokens", look(&[], 4).map(|draft| draft.tokens), &vec![])?;
    equal("K = 0", look(&tokens, 0).map(|draft| draft.tokens), &vec![])?;
    let probs = look(&tokens, 1).map(|draft| draft.probs);
    equal("its probabilities: all on the token", probs, &vec![one_hot(2, 50)])?;
    let mut long = (day.ngram)(3, 50);
    let got = long.draft(&context(&[1, 2, 3, 4, 2, 3, 9, 1, 2, 3]), 2, &[0.5; 2]);
    equal("1 2 3 4 2 3 9 1 2 3, the last three", got.map(|draft| draft.tokens), &vec![4, 2])
}

fn cache(model: &dyn Model) -> KvCache {
    KvCache::new(CacheKind::Dynamic, model.config().num_hidden_layers)
}

pub fn the_drafter_follows_the_text(day: &Day) -> Outcome {
    let small = model("story-230k")?;
    let texts: Vec<Vec<u32>> = vec![
        vec![433, 100, 50, 60, 70],
        vec![433, 100, 50, 60, 70, 80],         // one more
        vec![433, 100, 50, 60, 70, 80, 81, 82], // two more: a whole draft stood, and a bonus
        vec![433, 100, 50, 61, 71, 81, 91],     // the end was rejected
        vec![433, 100],                         // much was
        vec![433, 100],                         // nothing new
        vec![100, 50, 61],                      // the window moved
    ];
    let got = (day.follow)(&*small, Box::new(cache(&*small)), &texts)?;
    for (text, got) in texts.iter().zip(got) {
        let want = (day.follow)(&*small, Box::new(NoCache), std::slice::from_ref(text))?.remove(0);
        // The same sums in other shapes: 1e-4 is HF's own cached-against-uncached distance on these models.
        close(&format!("logits after {text:?}"), row(&got), &row(&want)?, 1e-4)
            .likely("keep only the tokens that the cache and the text begin with alike")?;
    }
    refused("no tokens", (day.follow)(&*small, Box::new(cache(&*small)), &[vec![]]), &[])
}

pub fn the_drafter_computes_what_is_new(day: &Day) -> Outcome {
    let texts: Vec<Vec<u32>> = vec![
        vec![5, 6, 7, 8],
        vec![5, 6, 7, 8, 9],
        vec![5, 6, 7, 8, 9, 10, 11],
        vec![5, 6, 7, 3, 2],
        vec![5, 6, 7, 3, 2],
    ];
    let small = Witness::mixing(12, 16, 20);
    (day.follow)(&small, Box::new(Keep::default()), &texts)?;
    let fed: Vec<Vec<u32>> = small.passes.borrow().iter().map(|p| p.ids.concat()).collect();
    let want = vec![vec![5, 6, 7, 8], vec![9], vec![10, 11], vec![3, 2], vec![2]];
    equal(&format!("tokens fed for {texts:?}, one after another"), Ok(fed), &want)
}

/// The probabilities that follow each of four tokens; token 0 follows what nothing is known of.
const AFTER: [[f32; 4]; 4] =
    [[0.4, 0.3, 0.2, 0.1], [0.1, 0.2, 0.3, 0.4], [0.4, 0.3, 0.2, 0.1], [0.1, 0.6, 0.2, 0.1]];

/// A model that says just that.
fn table(bound: usize) -> Fake {
    Fake::new(4, 64, bound, |ids| {
        let last = ids.last().map_or(0, |id| *id as usize);
        AFTER[last].iter().map(|p| p.ln()).collect()
    })
}

fn rows(numbers: &[Vec<f32>]) -> Result<Tensor> {
    let width = numbers.first().map_or(0, Vec::len);
    if numbers.iter().any(|row| row.len() != width) {
        bail!("rows of {:?} numbers", numbers.iter().map(Vec::len).collect::<Vec<_>>())
    }
    Tensor::from_vec(numbers.concat(), (numbers.len(), width), &Device::Cpu)
}

fn after(last: &[usize]) -> Vec<Vec<f32>> {
    last.iter().map(|last| AFTER[*last].to_vec()).collect()
}

pub fn the_draft_comes_with_its_distributions(day: &Day) -> Outcome {
    let fake = table(20);
    let mut drafter = (day.small)(&fake, Box::new(NoCache), vec![], false);
    let cx = ProcessorInput { tokens: &[0, 1], prompt_len: 1, remaining: 100, eos: &[] };
    let got = drafter.draft(&cx, 3, &[0.5, 0.95, 0.3])?;
    let what = "after 1: (.1, .2, .3, .4), after 2: (.4, .3, .2, .1), after 3: (.1, .6, .2, .1); coins .5, .95, .3";
    equal(what, Ok(got.tokens), &vec![2, 3, 1]).likely("one coin a token, in order")?;
    close(&format!("{what}: q"), rows(&got.probs), &rows(&after(&[1, 2, 3]))?, TOLERANCE)
        .likely("q is the whole distribution that the token was drawn from")?;
    equal("K = 2", drafter.draft(&cx, 2, &[0.5, 0.95]).map(|d| d.tokens), &vec![2, 3])?;
    equal("K = 0", drafter.draft(&cx, 0, &[]).map(|d| d.tokens), &vec![])?;
    let mut greedy = (day.small)(&fake, Box::new(NoCache), vec![], true);
    let got = greedy.draft(&cx, 3, &[0.0; 3])?;
    equal("the same, greedy", Ok(got.tokens), &vec![3, 1, 3])?;
    let want = [one_hot(3, 4), one_hot(1, 4), one_hot(3, 4)];
    close("the same, greedy: q", rows(&got.probs), &rows(&want)?, TOLERANCE)
}

pub fn a_drafted_eos_ends_the_draft(day: &Day) -> Outcome {
    let fake = table(20);
    let mut drafter = (day.small)(&fake, Box::new(NoCache), vec![], false);
    let cx = ProcessorInput { tokens: &[0, 1], prompt_len: 1, remaining: 100, eos: &[0, 3] };
    let got = drafter.draft(&cx, 3, &[0.5, 0.95, 0.3])?;
    equal("tokens 2, 3, 1 would be drafted, 3 is EOS", Ok(got.tokens), &vec![2, 3])
        .likely("EOS is drafted, and nothing behind it")?;
    equal("the same: how many q", Ok(got.probs.len()), &2)
}

/// What a processor saw: the text, and how many tokens remained.
type Seen = RefCell<Vec<(Vec<u32>, usize)>>;

/// Writes down what it sees, and doubles the logits, as temperature 1/2 does.
fn recorder(seen: &Seen) -> Vec<Box<dyn LogitsProcessor + '_>> {
    let process = move |cx: &ProcessorInput, logits: &mut [f32]| {
        seen.borrow_mut().push((cx.tokens.to_vec(), cx.remaining));
        logits.iter_mut().for_each(|logit| *logit *= 2.0);
        Ok(())
    };
    vec![Box::new(named("recorder", process))]
}

/// `p²` over its sum: what doubled logits come to.
fn squared(last: &[usize]) -> Vec<Vec<f32>> {
    let square = |p: &[f32; 4]| {
        let sum: f32 = p.iter().map(|p| p * p).sum();
        p.iter().map(|p| p * p / sum).collect()
    };
    last.iter().map(|last| square(&AFTER[*last])).collect()
}

pub fn the_drafters_processors_see_the_draft(day: &Day) -> Outcome {
    let (fake, seen) = (table(20), Seen::default());
    let mut drafter = (day.small)(&fake, Box::new(NoCache), recorder(&seen), false);
    let cx = ProcessorInput { tokens: &[0, 1], prompt_len: 1, remaining: 9, eos: &[] };
    // Squared, after 1: (.03, .13, .3, .53); after 2: (.53, .3, .13, .03); after 3: (.02, .86, .1, .02).
    let got = drafter.draft(&cx, 3, &[0.2, 0.98, 0.3])?;
    equal("a processor that doubles the logits: the draft", Ok(got.tokens), &vec![2, 3, 1])
        .likely("tokens are drawn from what the processors leave")?;
    close("the same: q", rows(&got.probs), &rows(&squared(&[1, 2, 3]))?, TOLERANCE)
        .likely("q is taken after the processors: it is what the token was drawn from")?;
    let want = vec![(vec![0, 1], 9), (vec![0, 1, 2], 8), (vec![0, 1, 2, 3], 7)];
    equal("what the processors saw: text, and tokens that remain", Ok(seen.take()), &want)
}

/// As [`Witness::mixing`]: depends on every token seen, on its position, and on their order.
fn mix(seen: &[(u32, u32)]) -> Vec<f32> {
    let step = |hash: u32, (id, at): &(u32, u32)| (hash * 31 + id + 53 * at + 1) % 65_521;
    let hash = seen.iter().fold(7, step);
    let mut logits: Vec<f32> =
        (0..VOCAB as u32).map(|id| ((hash + 13 * id) % 97) as f32 / 97.0).collect();
    logits[hash as usize % VOCAB] = 4.0;
    logits
}

const VOCAB: usize = 12;

fn placed(tokens: &[u32]) -> Vec<(u32, u32)> {
    tokens.iter().copied().zip(0..).collect()
}

fn some_tokens(random: &mut Random, n: usize) -> Vec<u32> {
    (0..n).map(|_| random.below(VOCAB) as u32).collect()
}

pub fn past_its_context_the_drafter_uses_a_window(day: &Day) -> Outcome {
    let mut random = Random::new(13);
    for (context, len, n) in
        [(16, 10, 4), (16, 13, 6), (16, 16, 1), (16, 40, 6), (16, 15, 40), (4, 9, 9), (1, 3, 2)]
    {
        let small = Witness::new(VOCAB, context, 200, mix);
        let mut drafter = (day.small)(&small, Box::new(Keep::default()), vec![], true);
        let mut text = some_tokens(&mut random, len);
        for round in 1..=3 {
            let cx = ProcessorInput { tokens: &text, prompt_len: 1, remaining: 100, eos: &[] };
            small.passes.borrow_mut().clear();
            let what = format!(
                "a drafter with a context of {context}, {} tokens of text, K = {n}, draft {round}",
                text.len()
            );
            let drafted = drafter.draft(&cx, n, &vec![0.0; n])?.tokens;
            let (passes, mut all) = (small.passes.borrow(), text.clone());
            // A window that moves with every token would compute nearly all of the context for each.
            let computed: usize = passes.iter().skip(1).map(|pass| pass.ids[0].len()).sum();
            let bound = if context < 16 { context * n } else { context / 2 * n };
            let words = format!("{computed} positions for {n} tokens behind the first");
            ensure(&what, computed <= bound, &words)
                .likely("let the window move by some tokens at once: until then the cache fits")?;
            equal(
                &format!("{what}: tokens, and passes"),
                Ok((drafted.len(), passes.len())),
                &(n, n),
            )?;
            for (id, pass) in drafted.iter().zip(passes.iter()) {
                let seen = &pass.seen[0];
                let first = all.len() - seen.len().min(all.len());
                let right = *seen == placed(&all[first..]);
                let otherwise = format!("after {all:?} it saw tokens and positions {seen:?}");
                ensure(&what, right, &otherwise)
                    .likely("the window is the end of the text, and its positions count from 0")?;
                let least = all.len().min((context / 2).max(1));
                ensure(
                    &what,
                    seen.len() >= least,
                    &format!("it saw {} of {} tokens", seen.len(), all.len()),
                )?;
                equal(&what, Ok(*id), &day07_greedy::argmax(&mix(seen))?)?;
                all.push(*id);
            }
            // Half of it stands, and the text goes on otherwise.
            text.extend(&drafted[..n / 2]);
            text.push(random.below(VOCAB) as u32);
        }
    }
    Ok(())
}

pub fn greedy_drafts_are_the_small_models_own_text(day: &Day) -> Outcome {
    let (small, tokenizer) = (model("story-230k")?, tokenizer()?);
    let ids = tokenizer.encode("Lily and her dog")?;
    let want = plain(&*small, &tokenizer, &ids, 12, &[])?;
    let want: Vec<u32> = want.iter().map(|token| token.id).collect();
    let mut drafter = (day.small)(&*small, Box::new(cache(&*small)), vec![], true);
    let mut text = ids.clone();
    for _ in 0..3 {
        let cx = ProcessorInput { tokens: &text, prompt_len: ids.len(), remaining: 50, eos: &[0] };
        let draft = drafter.draft(&cx, 4, &[0.0; 4])?;
        text.extend(draft.tokens);
    }
    let what = "story-230k drafts 4 tokens after \"Lily and her dog\", three times";
    equal_tokens(what, Ok(text[ids.len()..].to_vec()), &want, &[])
}

/// Speculation of a check's own making: its drafts do not matter.
fn mute<'a>(
    model: &'a dyn Model,
    tokenizer: &'a Tokenizer,
    prompt: &[u32],
    max_new_tokens: usize,
    cache: Box<dyn Cache + 'a>,
) -> Result<Speculation<'a>> {
    let options = options(model, max_new_tokens);
    Speculation::new(model, tokenizer, prompt, options, cache, Box::new(Mute), 4)
}

pub fn the_room_for_drafts_by_hand(day: &Day) -> Outcome {
    let (fake, tokenizer) = (Fake::new(2048, 16, 0, |_| vec![]), tokenizer()?);
    // ProcessorInput 16, so the window moves by 4; K = 4.
    for (len, max, want, why) in [
        (5, 100, 4, "K"),
        (5, 4, 3, "the text may have 4 more, and the pass itself gives one"),
        (5, 1, 0, "the text may have 1 more, and the pass itself gives it"),
        (5, 0, 0, "the text may have no more"),
        (13, 100, 3, "the context has room for 3"),
        (16, 100, 0, "the context is full"),
    ] {
        let text = mute(&fake, &tokenizer, &vec![5; len], max, Box::new(NoCache))?;
        let what = format!("context 16, K = 4, {len} tokens, {max} new at most");
        equal(&what, (day.room)(&text), &want).likely(why)?;
    }
    let mut text = mute(&fake, &tokenizer, &[5; 10], 100, Box::new(NoCache))?;
    for (len, want) in [(17, 3), (18, 2), (20, 0), (21, 3)] {
        text.sequence.tokens.resize(len, 5);
        let what = format!("context 16, K = 4, {len} tokens: the window has moved");
        equal(&what, (day.room)(&text), &want)
            .likely("count what the window leaves of the text, not the whole text")?;
    }
    text.num_draft_tokens = 0;
    equal("K = 0", (day.room)(&text), &0)
}

pub fn one_pass_gives_every_row(day: &Day) -> Outcome {
    let (model, tokenizer) = (Witness::new(VOCAB, 16, 10, mix), tokenizer()?);
    let mut text = mute(&model, &tokenizer, &[5, 6, 7], 50, Box::new(Keep::default()))?;
    for (held, draft, fed) in [
        (0, vec![8, 9], vec![5, 6, 7, 8, 9]),
        (2, vec![4, 3, 2], vec![7, 4, 3, 2]),
        (2, vec![], vec![7]),
        (0, vec![], vec![5, 6, 7]),
    ] {
        text.cache.truncate(held)?;
        let what = format!("text [5, 6, 7], {held} of it in the cache, drafted {draft:?}");
        let got = (day.target)(&mut text, &draft)?;
        equal(&format!("{what}: rows"), Ok(got.len()), &(draft.len() + 1))
            .likely("one row after the text, and one after each drafted token")?;
        let all = [&[5, 6, 7], &draft[..]].concat();
        let want: Vec<Vec<f32>> = (3..=all.len()).map(|end| mix(&placed(&all[..end]))).collect();
        close(&what, rows(&got), &rows(&want)?, 0.0)?; // a fake: the numbers are copied
        let passes = model.passes.take();
        equal(
            &format!("{what}: passes, by the tokens fed"),
            Ok(passes.iter().map(|p| p.ids.concat()).collect()),
            &vec![fed],
        )
        .likely("feed what the cache lacks of the text, and the draft, in one pass")?;
        equal(&format!("{what}: columns in the cache"), Ok(text.cache.len()), &all.len())?;
    }
    refused("token 12 of a vocabulary of 12 drafted", (day.target)(&mut text, &[12]), &["12"])
}

pub fn one_pass_equals_passes_one_by_one(day: &Day) -> Outcome {
    let (model, tokenizer) = (model("story-230k")?, tokenizer()?);
    let prompt = tokenizer.encode("Lily and her dog")?;
    let draft = tokenizer.encode(" went to the park")?;
    let mut text = mute(&*model, &tokenizer, &prompt, 50, Box::new(cache(&*model)))?;
    let got = (day.target)(&mut text, &draft)?;
    let all = [&prompt[..], &draft[..]].concat();
    let mut want = Vec::new();
    for end in prompt.len()..=all.len() {
        let step = Step::new(&*model, &all[..end], 0)?.with_logits(Logits::Last(1));
        want.push(model.forward(&step, &mut NoCache)?.i((0, 0))?);
    }
    // The same sums in other shapes: 1e-4 is HF's own cached-against-uncached distance on these models.
    let what = "story-230k, \"Lily and her dog\" and \" went to the park\" drafted";
    close(what, rows(&got), &Tensor::stack(&want, 0)?, 1e-4)
}

pub fn a_moved_window_is_filled_anew(day: &Day) -> Outcome {
    let (model, tokenizer) = (Witness::new(VOCAB, 8, 10, mix), tokenizer()?);
    let mut text = mute(&model, &tokenizer, &[5, 6, 7, 8, 9, 1], 50, Box::new(Keep::default()))?;
    (day.target)(&mut text, &[2])?;
    text.sequence.tokens.extend([2, 3, 4]);
    model.passes.take();
    let got = (day.target)(&mut text, &[5])?;
    // 9 tokens, context 8, stride 2: the window begins at token 2.
    let all = [7, 8, 9, 1, 2, 3, 4, 5];
    let want = [mix(&placed(&all[..7])), mix(&placed(&all))];
    let what = "context 8, 9 tokens of text, one drafted";
    close(what, rows(&got), &rows(&want)?, 0.0) // a fake: the numbers are copied
        .likely("the cache is emptied when the window moves, and positions count from 0 again")?;
    equal(&format!("{what}: columns in the cache"), Ok(text.cache.len()), &8)
}

pub fn each_row_from_its_own_context(day: &Day) -> Outcome {
    let (fake, tokenizer, seen) = (table(0), tokenizer()?, Seen::default());
    let raw: Vec<Vec<f32>> =
        after(&[1, 2, 3]).iter().map(|row| row.iter().map(|p| p.ln()).collect()).collect();
    let mut text = mute(&fake, &tokenizer, &[0, 1], 5, Box::new(NoCache))?;
    text.options.processors = recorder(&seen);
    text.options.eos_token_ids = vec![];
    text.coins = Some(RequestRng::new(13, 0));
    let what = "raw (.1, .2, .3, .4), (.4, .3, .2, .1), (.1, .6, .2, .1); a processor that doubles the logits; tokens 2, 3 drafted";
    let got = (day.distributions)(&text, &[2, 3], &raw)?;
    close(what, rows(&got), &rows(&squared(&[1, 2, 3]))?, TOLERANCE)?;
    let want = vec![(vec![0, 1], 5), (vec![0, 1, 2], 4), (vec![0, 1, 2, 3], 3)];
    equal("what the processors saw: text, and tokens that remain", Ok(seen.take()), &want)
        .likely("at position i: the text with the first i drafted tokens, and i fewer to come")?;
    text.coins = None;
    let got = (day.distributions)(&text, &[3, 1], &raw)?;
    let want = [one_hot(3, 4), one_hot(0, 4), one_hot(1, 4)];
    close("greedy: the first row", row(&got[0]), &row(&want[0])?, TOLERANCE)?;
    equal("greedy: rows", Ok(got.len()), &3)
}

pub fn behind_a_certain_end_nothing_is_processed(day: &Day) -> Outcome {
    let (fake, tokenizer, calls) = (table(0), tokenizer()?, RefCell::new(0));
    let raw: Vec<Vec<f32>> =
        after(&[1, 2, 3]).iter().map(|row| row.iter().map(|p| p.ln()).collect()).collect();
    // Token 2 is never left to choose; behind it, and behind EOS, nothing is.
    let rail = |name: &str| -> Vec<Box<dyn LogitsProcessor + '_>> {
        let process = |cx: &ProcessorInput, logits: &mut [f32]| {
            *calls.borrow_mut() += 1;
            logits[2] = f32::NEG_INFINITY;
            if cx.tokens.iter().any(|id| *id >= 2) {
                logits.fill(f32::NEG_INFINITY);
            }
            Ok(())
        };
        vec![Box::new(named(format!("a rail behind a token {name}"), process))]
    };
    for (draft, name) in [(vec![2, 1], "which is forbidden"), (vec![3, 1], "which is EOS")] {
        for coins in [None, Some(RequestRng::new(13, 0))] {
            let mut text = mute(&fake, &tokenizer, &[0, 1], 5, Box::new(NoCache))?;
            (text.options.processors, text.options.eos_token_ids) = (rail(name), vec![3]);
            let want = match &coins {
                None => one_hot(3, 4),
                Some(_) => vec![1.0 / 7.0, 2.0 / 7.0, 0.0, 4.0 / 7.0],
            };
            text.coins = coins;
            let what = format!(
                "a rail that leaves nothing behind token {}, {name}; drafted {draft:?}",
                draft[0]
            );
            let got = (day.distributions)(&text, &draft, &raw)?;
            close(&what, row(&got[0]), &row(&want)?, TOLERANCE)?;
            equal(&format!("{what}: rows"), Ok(got.len()), &3)?;
            equal(&format!("{what}: rows that were processed"), Ok(calls.take()), &1)?;
        }
    }
    Ok(())
}

/// Drafts the same nonsense whatever was said.
struct Sabotage;

impl Drafter for Sabotage {
    fn draft(&mut self, _cx: &ProcessorInput, n: usize, _coins: &[f32]) -> Result<Draft> {
        let tokens: Vec<u32> = (0..n as u32).map(|i| 2000 + i).collect();
        let probs = tokens.iter().map(|id| one_hot(*id, 2048)).collect();
        Ok(Draft { tokens, probs })
    }
}

fn options<'a>(model: &dyn Model, max_new_tokens: usize) -> GenerationOptions<'a> {
    GenerationOptions::new(model.config(), max_new_tokens, |_, logits| day07_greedy::argmax(logits))
}

fn plain(
    model: &dyn Model,
    tokenizer: &Tokenizer,
    prompt: &[u32],
    max: usize,
    stops: &[String],
) -> Result<Vec<Token>> {
    let mut options = options(model, max);
    options.stop_strings = stops.to_vec();
    generate_cached(model, tokenizer, prompt, options, cache(model))?.collect()
}

fn same_text(what: &str, got: &[Token], want: &[Token]) -> Outcome {
    let ids = |tokens: &[Token]| tokens.iter().map(|token| token.id).collect::<Vec<_>>();
    let text =
        |tokens: &[Token]| tokens.iter().map(|token| token.text.as_str()).collect::<String>();
    equal_tokens(what, Ok(ids(got)), &ids(want), &[])?;
    equal(&format!("{what}: the text"), Ok(text(got)), &text(want))?;
    let finish = |tokens: &[Token]| tokens.last().and_then(|token| token.finish);
    equal(&format!("{what}: why it ended"), Ok(finish(got)), &finish(want))?;
    let logprobs = |tokens: &[Token]| row(&tokens.iter().map(|t| t.logprob).collect::<Vec<_>>());
    close(&format!("{what}: log-probabilities"), logprobs(got), &logprobs(want)?, 1e-3)
}

pub fn greedy_text_is_the_targets_own(day: &Day) -> Outcome {
    a_draft_stands_with_p_over_q(day)?; // greedy cannot tell p / q from q / p
    let (target, small, tokenizer) = (model("story-3m")?, model("story-230k")?, tokenizer()?);
    let prompt = "Lily and her dog";
    let ids = tokenizer.encode(prompt)?;
    let want = plain(&*target, &tokenizer, &ids, 24, &[])?;
    for (name, k) in [("small model", 4), ("n-grams", 6), ("sabotage", 3)] {
        let drafter: Box<dyn Drafter + '_> = match name {
            "small model" => (day.small)(&*small, Box::new(cache(&*small)), vec![], true),
            "n-grams" => (day.ngram)(1, 2048),
            _ => Box::new(Sabotage),
        };
        let (options, cache) = (options(&*target, 24), Box::new(cache(&*target)));
        let mut text = Speculation::new(&*target, &tokenizer, &ids, options, cache, drafter, k)?;
        let got = speculate(day, &mut text)?;
        same_text(&format!("\"{prompt}\", drafts by {name}, K = {k}"), &got, &want)?;
    }
    Ok(())
}

/// Counts on from the last token, and is sure of it.
struct Counting;

impl Drafter for Counting {
    fn draft(&mut self, cx: &ProcessorInput, n: usize, _: &[f32]) -> Result<Draft> {
        let last = cx.tokens.last().copied().unwrap_or(0);
        let tokens: Vec<u32> = (1..=n as u32).map(|i| last + i).collect();
        let probs = tokens.iter().map(|id| one_hot(*id, 2048)).collect();
        Ok(Draft { tokens, probs })
    }
}

pub fn processors_see_the_drafted_tokens(day: &Day) -> Outcome {
    // The model always likes 300 best, then 301, …, and no token may come twice: so it counts. The drafter knows.
    let like = |id: usize| if id < 300 { f32::NEG_INFINITY } else { -(id as f32) };
    let fake = Fake::new(2048, 400, 100, move |_| (0..2048).map(like).collect());
    let tokenizer = tokenizer()?;
    let params = PenaltyParams { no_repeat_ngram: Some(1), ..Default::default() };
    let options = GenerationOptions { processors: penalties(&params)?, ..options(&fake, 9) };
    let (cache, drafter) = (Box::new(NoCache), Box::new(Counting));
    let mut text = Speculation::new(&fake, &tokenizer, &[300], options, cache, drafter, 4)?;
    let got = speculate(day, &mut text)?;
    let ids: Vec<u32> = got.iter().map(|token| token.id).collect();
    equal_tokens(
        "no token twice, a model that likes small ids, K = 4",
        Ok(ids),
        &[301, 302, 303, 304, 305, 306, 307, 308, 309],
        &[],
    )
    .likely("the processors at position i must see the text with the first i drafted tokens")?;
    equal("and every draft stood: passes", Ok(text.counts.passes), &2)
}

pub fn the_window_moves_as_without_drafts(day: &Day) -> Outcome {
    a_draft_stands_with_p_over_q(day)?; // greedy cannot tell p / q from q / p
    let (target, tokenizer) = (model("story-gpt2-1m")?, tokenizer()?);
    let ids: Vec<u32> = tokenizer.encode(&"Once upon a time there was a red ball. ".repeat(22))?;
    let ids = &ids[..240.min(ids.len())];
    let want = plain(&*target, &tokenizer, ids, 24, &[])?;
    let (options, drafter) = (options(&*target, 24), (day.ngram)(2, 2048));
    let cache = Box::new(cache(&*target));
    let mut text = Speculation::new(&*target, &tokenizer, ids, options, cache, drafter, 4)?;
    let got = speculate(day, &mut text)?;
    same_text("GPT-2, 240 tokens of prompt and 24 new ones in a context of 256", &got, &want)
        .likely("drafts must not reach past the context: K is clamped there")
}

pub fn the_text_ends_inside_a_block(day: &Day) -> Outcome {
    let (tokenizer, vocab) = (tokenizer()?, 2048);
    // The model counts: 300, 301, …; the drafter knows. EOS is 305, in the middle of a block of 4 after 2 tokens.
    let count = |ids: &[u32]| ids.last().copied().unwrap_or(300) + 1;
    let run = |max: usize, eos: Vec<u32>, stops: Vec<String>| {
        let fake = Fake::wants(vocab, 400, 100, count);
        let mut options = options(&fake, max);
        (options.eos_token_ids, options.stop_strings) = (eos, stops);
        let (cache, drafter) = (Box::new(NoCache), Box::new(Counting));
        let mut text = Speculation::new(&fake, &tokenizer, &[302], options, cache, drafter, 6)?;
        speculate(day, &mut text)
    };
    let ids = |tokens: Vec<Token>| tokens.iter().map(|t| t.id).collect::<Vec<_>>();
    let got = run(50, vec![305], vec![]).map(ids);
    equal_tokens("EOS is the third of a block of 7", got, &[303, 304, 305], &[]).likely(
        "EOS inside an accepted block ends the text there: what was accepted behind it is dropped",
    )?;
    equal_tokens("3 new tokens at most", run(3, vec![0], vec![]).map(ids), &[303, 304, 305], &[])?;
    let stop = tokenizer.decode(&[304])?;
    let got = run(50, vec![0], vec![stop.clone()])?;
    let finish = got.last().and_then(|token| token.finish);
    equal(&format!("stop string {stop:?} inside a block"), Ok(finish), &Some(FinishReason::Stop))
}

pub fn nothing_more_is_nothing_more(day: &Day) -> Outcome {
    let (fake, tokenizer) = (Fake::wants(2048, 16, 20, |_| 7), tokenizer()?);
    let mut text = mute(&fake, &tokenizer, &[5], 0, Box::new(NoCache))?;
    let got = (day.block)(&mut text).map(|tokens| tokens.len());
    equal("0 new tokens at most: tokens of a block", got, &0)?;
    let mut text = mute(&fake, &tokenizer, &[5], 1, Box::new(NoCache))?;
    let got = [(day.block)(&mut text)?.len(), (day.block)(&mut text)?.len()];
    equal("1 new token at most: tokens of two blocks", Ok(got), &[1, 0])?;
    text.num_draft_tokens = usize::MAX;
    text.options.max_new_tokens = usize::MAX;
    let got = (day.block)(&mut text).map(|tokens| tokens.len());
    equal("K and bound beyond all numbers, nothing drafted: tokens of a block", got, &1)
}

/// Whatever is drafted.
struct Fixed(Draft);

impl Drafter for Fixed {
    fn draft(&mut self, _: &ProcessorInput, _: usize, _: &[f32]) -> Result<Draft> {
        Ok(self.0.clone())
    }
}

pub fn a_bad_draft_is_refused(day: &Day) -> Outcome {
    let (fake, tokenizer) = (Fake::wants(4, 16, 20, |_| 1), tokenizer()?);
    let block = |tokens: &[u32], probs: Vec<Vec<f32>>| {
        let drafter = Box::new(Fixed(Draft { tokens: tokens.to_vec(), probs }));
        let (options, cache) = (options(&fake, 9), Box::new(NoCache));
        let mut text = Speculation::new(&fake, &tokenizer, &[2], options, cache, drafter, 2)?;
        (day.block)(&mut text).map(|tokens| tokens.len())
    };
    let one = || vec![0.25; 4];
    refused("token 4 of a vocabulary of 4 drafted", block(&[4], vec![one()]), &["4"])?;
    let got = block(&[1, 1, 1], vec![one(), one(), one()]);
    refused("three drafted, K = 2", got, &["asked for 2"])?;
    refused("two drafted, one q", block(&[1, 1], vec![one()]), &[])?;
    refused("q of a vocabulary of 2", block(&[3], vec![vec![0.5; 2]]), &[])
}

pub fn any_drafter_gives_the_same_text(day: &Day) -> Outcome {
    let (tokenizer, mut random) = (tokenizer()?, Random::new(31));
    for round in 0..60 {
        let (context, other) = (2 + random.below(20), 1 + random.below(20));
        let (len, k, max) = (1 + random.below(context), random.below(6), 1 + random.below(50));
        let prompt = some_tokens(&mut random, len);
        let (target, small) =
            (Witness::new(VOCAB, context, 400, mix), Witness::new(VOCAB, other, 2000, mix));
        let name = ["the same model", "n-grams", "a lucky guess", "nothing"][round % 4];
        let drafter: Box<dyn Drafter + '_> = match name {
            "the same model" => (day.small)(&small, Box::new(Keep::default()), vec![], true),
            "n-grams" => (day.ngram)(1, VOCAB),
            "a lucky guess" => Box::new(Lucky { context }),
            _ => Box::new(Mute),
        };
        let what = format!(
            "{len} tokens of prompt, context {context}, {max} new ones, K = {k}, drafted by {name} with a context of {other}"
        );
        let mut opts = options(&target, max);
        opts.eos_token_ids = vec![];
        let cache = Box::new(Keep::default());
        let mut text = Speculation::new(&target, &tokenizer, &prompt, opts, cache, drafter, k)?;
        let got: Vec<u32> = speculate(day, &mut text)?.iter().map(|token| token.id).collect();
        let passes = target.passes.take();
        let mut opts = options(&target, max);
        opts.eos_token_ids = vec![];
        let want = generate_cached(&target, &tokenizer, &prompt, opts, Keep::default())?;
        let want: Vec<u32> =
            want.map(|token| token.map(|token| token.id)).collect::<Result<_>>()?;
        equal_tokens(&what, Ok(got), &want, &[])
            .likely("the cache must hold the text and nothing else, at its own positions")?;
        if prompt.len() + max < context {
            let most = passes.iter().skip(1).map(|pass| pass.ids[0].len()).max().unwrap_or(0);
            let otherwise = format!("a later pass went over {most} tokens, K + 1 are enough");
            ensure(&what, most <= k + 1, &otherwise)
                .likely("only what fell leaves the cache; what stands is not computed again")?;
        }
    }
    Ok(())
}

/// Right at every second token.
struct Lucky {
    context: usize,
}

impl Drafter for Lucky {
    fn draft(&mut self, cx: &ProcessorInput, n: usize, _: &[f32]) -> Result<Draft> {
        let (mut tokens, mut draft) = (cx.tokens.to_vec(), Draft::default());
        for i in 0..n {
            let first =
                day07_greedy::window(tokens.len(), self.context, (self.context / 4).max(1))?;
            let best = day07_greedy::argmax(&mix(&placed(&tokens[first..])))?;
            let id = (best + (i as u32 + tokens.len() as u32) % 2) % VOCAB as u32;
            tokens.push(id);
            draft.tokens.push(id);
            draft.probs.push(one_hot(id, VOCAB));
        }
        Ok(draft)
    }
}

pub fn blocks_are_counted(day: &Day) -> Outcome {
    a_draft_stands_with_p_over_q(day)?; // greedy cannot tell p / q from q / p
    let (target, small, tokenizer) = (model("story-3m")?, model("story-230k")?, tokenizer()?);
    let ids = tokenizer.encode("Lily and her dog")?;
    let run = |drafter: Box<dyn Drafter + '_>, k: usize| {
        let (options, cache) = (options(&*target, 32), Box::new(cache(&*target)));
        let mut text = Speculation::new(&*target, &tokenizer, &ids, options, cache, drafter, k)?;
        Ok::<_, candle_core::Error>((speculate(day, &mut text)?, text.counts))
    };
    let (tokens, counts) = run(Box::new(Sabotage), 4)?;
    let n = tokens.len();
    let what = "a drafter that is always wrong: one token a pass, none accepted";
    equal(what, Ok([counts.passes, counts.accepted, counts.written]), &[n, 0, n])?;
    // The target drafting for itself: everything stands, so K + 1 tokens a pass.
    let itself = (day.small)(&*target, Box::new(cache(&*target)), vec![], true);
    let (tokens, counts) = run(itself, 3)?;
    let what = "the target drafts for itself, K = 3: four tokens a pass";
    let want = (counts.accepted, tokens.len().div_ceil(4));
    equal(what, Ok((counts.drafted, counts.passes)), &want).likely(
        "if all stand, the bonus token makes K + 1; and the drafter's cache must not fall behind",
    )?;
    let drafter = (day.small)(&*small, Box::new(cache(&*small)), vec![], true);
    let (tokens, counts) = run(drafter, 4)?;
    let rate = tokens.len() as f64 / counts.passes as f64;
    let what = format!("story-230k drafts for story-3m, K = 4: {rate:.2} tokens a pass");
    ensure(&what, rate >= 1.5, "too few: is something accepted that is then computed again?")
}

/// A model of four tokens whose next distribution depends on the last token; `tilt` tells target and draft apart.
fn dice(tilt: f32) -> Fake {
    Fake::new(4, 64, 1_000_000, move |ids| {
        let last = f32::from(ids.last().copied().unwrap_or(0) as u8);
        vec![f32::NEG_INFINITY, 0.3 * last + tilt, 1.0 - 0.4 * last, 0.2 + tilt * last]
    })
}

/// Draws every token from the same distribution.
struct Blunt;

impl Drafter for Blunt {
    fn draft(&mut self, _: &ProcessorInput, n: usize, coins: &[f32]) -> Result<Draft> {
        let q = vec![0.1, 0.6, 0.1, 0.2];
        let draw = |coin: &f32| sample(&q, *coin);
        let tokens = coins[..n].iter().map(draw).collect::<Result<_>>()?;
        Ok(Draft { tokens, probs: vec![q; n] })
    }
}

pub fn sampled_texts_follow_the_target(day: &Day) -> Outcome {
    a_draft_stands_with_p_over_q(day)?;
    let (target, small, tokenizer) = (dice(0.0), dice(0.7), tokenizer()?);
    let cool = SamplingParams { temperature: Some(0.6), ..Default::default() };
    let probs = |last: usize| -> Result<Vec<f32>> {
        let last = last as f32;
        let exp = [0.3 * last, 1.0 - 0.4 * last, 0.2].map(|x| (x / 0.6).exp());
        let sum: f32 = exp.iter().sum();
        Ok(exp.map(|x| x / sum).to_vec())
    };
    for name in ["one distribution for all", "a small model"] {
        let mut seen = vec![0; 27];
        for draw in 0..4_000 {
            let drafter: Box<dyn Drafter + '_> = match name {
                "a small model" => (day.small)(&small, Box::new(NoCache), warpers(&cool)?, false),
                _ => Box::new(Blunt),
            };
            let options = GenerationOptions { processors: warpers(&cool)?, ..options(&target, 3) };
            let cache = Box::new(NoCache);
            let mut text = Speculation::new(&target, &tokenizer, &[1], options, cache, drafter, 3)?;
            text.coins = Some(RequestRng::new(13, draw));
            let tokens = speculate(day, &mut text)?;
            let ids: Vec<usize> = tokens.iter().map(|token| token.id as usize).collect();
            let [a, b, c] = ids[..] else {
                return equal(
                    "at most 3 new tokens, and nothing ends the text before: how many it has",
                    Ok(ids.len()),
                    &3,
                );
            };
            if a * b * c == 0 {
                return equal("token 0 has probability 0", Ok(ids), &vec![]);
            }
            seen[9 * (a - 1) + 3 * (b - 1) + c - 1] += 1;
        }
        let mut p = Vec::new();
        for i in 0..27 {
            let (a, b, c) = (i / 9, i / 3 % 3, i % 3);
            p.push(probs(1)?[a] * probs(a + 1)?[b] * probs(b + 1)?[c]);
        }
        let x = chi_square(&seen, &p);
        // 26 degrees of freedom: above 76.6 once in a million times. Seeded: it cannot flicker.
        let what = format!("4,000 texts of three tokens, drafted by {name}: {seen:?}");
        ensure(&what, x < 76.6, &format!("chi-square is {x:.1}")).likely(
            "every position's distribution must be the one after the drafted tokens before it",
        )?;
    }
    Ok(())
}
