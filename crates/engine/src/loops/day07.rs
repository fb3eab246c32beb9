//! Day 7: every request's processors and sampler, without a cache.

use super::run::stream;
use super::{Ability, Found, Loop, OnToken, Run};
use anyhow::Result;
use candecode::day07_greedy::generate;

pub static LOOP: Loop = Loop {
    day: 7,
    cache: None,
    abilities: &[
        Ability::NoCache,
        Ability::Sampling,
        Ability::TorchStream,
        Ability::Processors,
        Ability::TopLogprobs,
        Ability::Window,
        Ability::Trace,
    ],
    needs: None,
    pads: false,
    predictable: false,
    run,
};

fn run(run: &Run, prompts: &[Vec<u32>], first: usize, on_token: &mut OnToken) -> Result<Found> {
    let request = run.only_request(prompts, first)?;
    stream(generate(run.model, run.tokenizer(), request)?, on_token)
}
