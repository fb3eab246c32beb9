//! Day 6: greedy, on ids alone.

use super::{Ability, Found, Loop, OnToken, Run};
use anyhow::Result;
use candecode::day06_generate::{simple_generate, TextStream};
use candecode::day07_greedy::argmax;
use candecode::kit::{FinishReason, Token};

pub static LOOP: Loop = Loop {
    day: 6,
    cache: None,
    abilities: &[Ability::NoCache, Ability::Trace],
    needs: None,
    pads: false,
    predictable: false,
    run,
};

/// The loop works with ids only, so text and finish reasons are added here. It doesn't compute
/// log-probabilities.
fn run(run: &Run, prompts: &[Vec<u32>], first: usize, on_token: &mut OnToken) -> Result<Found> {
    let mut request = run.only_request(prompts, first)?;
    request.fit(run.model)?;
    let prompt = &prompts[0];
    let eos = &request.eos_token_ids;
    let mut stream = TextStream::after(run.tokenizer(), prompt);
    let mut remaining = request.max_new_tokens;
    let mut ended = Ok(true);
    let on_id = |id| {
        remaining -= 1;
        let is_eos = eos.contains(&id);
        let finish = match (is_eos, remaining) {
            (true, _) => Some(FinishReason::Eos),
            (_, 0) => Some(FinishReason::Length),
            _ => None,
        };
        let mut text = if is_eos { String::new() } else { stream.push(id)? };
        if finish.is_some() {
            text.push_str(&stream.finish()?);
        }
        let logprob = f32::NAN;
        ended = on_token(Token { id, logprob, text, finish, ..Token::default() });
        if !matches!(ended, Ok(true)) {
            candle_core::bail!("the loop was stopped")
        }
        Ok(())
    };
    let result = simple_generate(run.model, prompt, request.max_new_tokens, eos, argmax, on_id);
    if ended? {
        result?;
    }
    Ok(Found::default())
}
