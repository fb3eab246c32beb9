//! Generates `tests/oracle/live.json` of this crate: texts that the page must generate exactly as
//! the command does.
//!
//! ```console
//! $ cargo run -p candecode-live --features ref --example goldens > goldens.json
//! $ mv goldens.json crates/live/tests/oracle/live.json
//! ```
//!
//! The page and the command's kernels add numbers in different orders, so their sums differ in the
//! last bits. A text is therefore kept only if none of its choices was close. In greedy decoding,
//! the two largest logits must be at least 1e-3 apart. In sampling, the random number must be at
//! least 1e-4 from either end of its token's interval.

use anyhow::{bail, ensure, Result};
use candecode::day08_sampling::{sample, softmax};
use candecode::day10_kv_cache::{generate_cached, Cached, DynamicCache};
use candecode::kit::rng::RequestRng;
use candecode::kit::{Model, Sampler, SamplingParams};
use candecode_engine::kernels;
use candecode_engine::requests::{processors, request};
use candecode_engine::Engine;
use serde_json::{json, Value};
use std::cell::Cell;
use std::rc::Rc;

const GREEDY: usize = 20;
const SAMPLED: usize = 12;

const PROMPTS: &[&str] = &[
    "Once upon a time",
    "Lily",
    "Tom had a big red ball",
    "The little cat",
    "One day, a boy",
    "Mom said",
    "There was a dog",
    "The sun was",
    "Ben and Mia went to the park",
    "She was very happy because",
    "In the garden",
    "The bird could not fly",
    "A small fish",
    "He looked at the moon",
    "It was raining and",
    "The old man",
    "They played all day",
    "Her friend gave her",
    "The bear was hungry",
    "On the farm",
    "Sam liked to",
    "The girl found a",
    "Dad made a cake",
    "The train went",
    "At night the stars",
    "A frog jumped",
    "The king had",
    "Anna wanted a",
    "The tree was tall",
    "Max saw a bug",
    "The boat was",
    "Every morning",
];

fn main() -> Result<()> {
    kernels::set_threads();
    let engine = Engine::open("story-230k")?;
    let mut cases = Vec::new();
    for prompt in PROMPTS {
        let params = SamplingParams { max_new_tokens: 24, ..Default::default() };
        if cases.len() < GREEDY {
            cases.extend(case(&engine, prompt, &params, 1e-3)?);
        }
    }
    ensure!(cases.len() == GREEDY, "only {} greedy texts have clear choices", cases.len());
    for (seed, prompt) in PROMPTS.iter().enumerate() {
        let params = SamplingParams {
            max_new_tokens: 16,
            temperature: [0.7, 1.0, 1.4][seed % 3],
            top_k: [None, Some(50)][seed % 2],
            repetition_penalty: [1.0, 1.0, 1.2][seed / 2 % 3],
            seed: seed as u64,
            ..Default::default()
        };
        if cases.len() < GREEDY + SAMPLED {
            cases.extend(case(&engine, prompt, &params, 1e-4)?);
        }
    }
    ensure!(cases.len() == GREEDY + SAMPLED, "only {} texts have clear choices", cases.len());
    let made_by = "cargo run -p candecode-live --features ref --example goldens";
    println!("{{\n\"made by\": \"{made_by}\",\n\"model\": \"story-230k\",\n\"cases\": [");
    for (i, case) in cases.iter().enumerate() {
        println!("{case}{}", if i + 1 < cases.len() { "," } else { "" });
    }
    println!("]\n}}");
    Ok(())
}

/// Returns the text that the command generates, or None if a choice in it was closer than `least`.
fn case(
    engine: &Engine,
    prompt: &str,
    params: &SamplingParams,
    least: f32,
) -> Result<Option<Value>> {
    let margin = Rc::new(Cell::new(f32::INFINITY));
    let closest = margin.clone();
    let sampler: Sampler = if params.temperature == 0.0 {
        Box::new(move |logits| {
            let best = candecode::day07_greedy::argmax(logits)?;
            let others = logits.iter().enumerate().filter(|(id, _)| *id != best as usize);
            let second = others.map(|(_, logit)| *logit).fold(f32::NEG_INFINITY, f32::max);
            closest.set(closest.get().min(logits[best as usize] - second));
            Ok(best)
        })
    } else {
        let mut rng = RequestRng::new(params.seed, 0);
        Box::new(move |logits| {
            let probs = softmax(logits)?;
            let u = rng.uniform();
            let id = sample(&probs, u)?;
            let low: f64 = probs[..id as usize].iter().map(|p| f64::from(*p)).sum();
            let high = low + f64::from(probs[id as usize]);
            let u = f64::from(u);
            closest.set(closest.get().min((u - low).min(high - u) as f32));
            Ok(id)
        })
    };
    let (model, tokenizer) = (engine.model(), engine.tokenizer());
    let all = processors(params, tokenizer, model.config())?;
    let ids = tokenizer.encode(prompt)?;
    let request = request(model.config(), &ids, params, &all, sampler, engine.ops());
    let cache = DynamicCache::new(model.config().num_hidden_layers);
    let mut chosen = Vec::new();
    for token in generate_cached(Cached::new(model, Box::new(cache)), tokenizer, request)? {
        chosen.push(token?.id);
    }
    let mut command = Vec::new();
    for token in engine.generate(prompt, params)? {
        command.push(token?.id);
    }
    if chosen != command {
        bail!("{prompt}: {chosen:?} here, {command:?} from the engine");
    }
    if margin.get() < least {
        return Ok(None);
    }
    let mut asked = json!({ "max_new_tokens": params.max_new_tokens });
    if params.temperature != 0.0 {
        asked["temperature"] = json!(params.temperature);
        asked["top_k"] = json!(params.top_k);
        asked["seed"] = json!(params.seed);
        asked["repetition_penalty"] = json!(params.repetition_penalty);
    }
    let margin = f64::from((margin.get() * 1e5).round()) / 1e5;
    Ok(Some(json!({ "prompt": prompt, "params": asked, "margin": margin, "ids": chosen })))
}
