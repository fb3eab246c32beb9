//! Guard rails from the library: a rail that blocks anything shaped like a secret, and a block list
//! that changes as the text grows. `cargo run --features ref --example guard`.

use anyhow::Result;
use candecode::day10_kv_cache::generate_cached;
use candecode::day14_guard_rails::{block_rails, Automaton, GuardRail, Rule};
use candecode::kit::processor::named;
use candecode::kit::{LogitsProcessor, Model as _, SamplingParams};
use candecode_engine::{requests, text_after, Engine};
use std::rc::Rc;

fn main() -> Result<()> {
    let engine = Engine::open("story-3m")?;

    // 1. A secret. No story has one, so a pattern forces the model to write a key of 4 to 16
    // digits. The rail doesn't know that pattern, and blocks every key of 8 digits or more.
    let params = SamplingParams {
        allow_regex: Some(r" sk-[0-9]{4,16}z\.".into()),
        temperature: 1.5,
        seed: 1,
        ..Default::default()
    };
    let secret = Automaton::new(r"sk-[0-9]{8}", Rule::BlockSubstring)?;
    let rail = GuardRail::new("secrets", secret, engine.tokenizer(), vocab_size(&engine));
    println!("without the rail: {}", continue_text(&engine, "The key is", &params, None)?);
    println!(
        "with the rail:    {}",
        continue_text(&engine, "The key is", &params, Some(Rc::new(rail)))?
    );

    // 2. A list that grows with the text: each toy can be mentioned only once.
    let params = SamplingParams { max_new_tokens: 60, ..Default::default() };
    let prompt = "Lily had a ball";
    println!("\nwithout the list: {prompt}{}", continue_text(&engine, prompt, &params, None)?);
    let list = once_each(&engine, &["ball", "toy", "doll", "car", "box"])?;
    println!(
        "\nwith the list:    {prompt}{}",
        continue_text(&engine, prompt, &params, Some(list))?
    );
    Ok(())
}

/// Returns a processor that blocks each of `words` once the text contains it.
///
/// The processor is stateless: on every call, it searches the text that it is given. So it also
/// works when tokens are removed, as after a rejected draft, and for beams, whose texts differ.
fn once_each<'a>(engine: &'a Engine, words: &[&str]) -> Result<Rc<dyn LogitsProcessor + 'a>> {
    let mut rails = Vec::new();
    for word in words {
        let list = [word.to_string()];
        let rail = block_rails(&list, false, &[], engine.tokenizer(), vocab_size(engine))?;
        rails.push((word.to_string(), rail));
    }
    let tokenizer = engine.tokenizer();
    Ok(named("each toy once", move |input, logits| {
        let text = text_after(tokenizer, &[], input.tokens)?.to_lowercase();
        for (_, rails) in rails.iter().filter(|(word, _)| text.contains(word.as_str())) {
            for rail in rails {
                rail.process(input, logits)?;
            }
        }
        Ok(())
    }))
}

/// Returns the text that the engine adds to `prompt`. If `rail` is given, it runs before all other
/// processors.
fn continue_text(
    engine: &Engine,
    prompt: &str,
    params: &SamplingParams,
    rail: Option<Rc<dyn LogitsProcessor + '_>>,
) -> Result<String> {
    let config = engine.model().config();
    let ids = engine.tokenizer().encode(prompt)?;
    let mut processors: Vec<Rc<dyn LogitsProcessor + '_>> = rail.into_iter().collect();
    for processor in requests::processors(params, engine.tokenizer(), config)? {
        processors.push(processor);
    }
    let sampler = requests::sampler(params, 0, engine.ops());
    let request = requests::request(config, &ids, params, &processors, sampler, engine.ops());
    let mut text = String::new();
    for token in generate_cached(engine.new_cached(engine.model())?, engine.tokenizer(), request)? {
        text += &token?.text;
    }
    Ok(text)
}

fn vocab_size(engine: &Engine) -> usize {
    engine.model().config().vocab_size
}
