//! Day 6: greedy, on ids alone.

/// Day 6 of the reference. Its stream shows the text while the reader's isn't written.
#[allow(dead_code)]
#[path = "../../../../solutions/day06_generate.rs"]
mod reference;

use super::{Ability, Found, Loop, OnToken, Run};
use anyhow::Result;
use candecode::day06_generate::{simple_generate, TextStream};
use candecode::day07_greedy::argmax;
use candecode::kit::panics::Unwritten;
use candecode::kit::{FinishReason, Token, Tokenizer};

pub static LOOP: Loop = Loop {
    day: 6,
    cache: None,
    abilities: &[Ability::NoCache, Ability::Trace],
    needs: None,
    pads: false,
    predictable: false,
    run,
};

/// The stream that turns the loop's ids into text.
enum Stream<'a> {
    Day6(TextStream<'a>),
    Reference(reference::TextStream<'a>),
}

impl<'a> Stream<'a> {
    /// Returns a stream that continues the prompt: day 6's, if all of it is written. Otherwise,
    /// returns the reference's, and the tasks that are still to write.
    fn after(tokenizer: &'a Tokenizer, prompt: &[u32]) -> (Self, Vec<String>) {
        let id = prompt.first().copied().unwrap_or_default();
        let missing = [
            Unwritten::reached_by(|| TextStream::new(tokenizer).push(id)),
            Unwritten::reached_by(|| TextStream::new(tokenizer).finish()),
            Unwritten::reached_by(|| TextStream::after(tokenizer, prompt)),
        ];
        let tasks: Vec<String> = missing.into_iter().flatten().map(|found| found.task).collect();
        let stream = match tasks.is_empty() {
            true => Self::Day6(TextStream::after(tokenizer, prompt)),
            false => Self::Reference(reference::TextStream::after(tokenizer, prompt)),
        };
        (stream, tasks)
    }

    fn push(&mut self, id: u32) -> candle_core::Result<String> {
        match self {
            Self::Day6(stream) => stream.push(id),
            Self::Reference(stream) => stream.push(id),
        }
    }

    fn finish(&mut self) -> candle_core::Result<String> {
        match self {
            Self::Day6(stream) => stream.finish(),
            Self::Reference(stream) => stream.finish(),
        }
    }
}

/// The loop works with ids only, so text and finish reasons are added here. It doesn't compute
/// log-probabilities.
fn run(run: &Run, prompts: &[Vec<u32>], first: usize, on_token: &mut OnToken) -> Result<Found> {
    let mut request = run.only_request(prompts, first)?;
    request.fit(run.model)?;
    let prompt = &prompts[0];
    let eos = &request.eos_token_ids;
    let (mut stream, open_tasks) = Stream::after(run.tokenizer(), prompt);
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
    Ok(Found { open_tasks, ..Found::default() })
}
