//! The engine as a library: `cargo run --features ref --example generate`.

use candecode::kit::SamplingParams;
use candecode_engine::kernels;
use candecode_engine::Engine;
use std::io::Write as _;

fn main() -> anyhow::Result<()> {
    kernels::set_threads();
    let engine = Engine::open("story-3m")?; // a name, a folder or a GGUF file

    // One prompt: tokens arrive as they are generated, each with the text that it completes.
    let params = SamplingParams { temperature: 0.8, top_p: 0.9, seed: 1, ..Default::default() };
    print!("Once upon a time");
    for token in engine.generate("Once upon a time", &params)? {
        print!("{}", token?.text);
        std::io::stdout().flush()?;
    }

    // Several prompts in one batch, each with its own parameters.
    let prompts = ["Lily and her dog", "Tom found a big"];
    let short = SamplingParams { max_new_tokens: 16, ..Default::default() };
    let sentence = SamplingParams { stop: vec![".".into()], ..Default::default() };
    let completions = engine.generate_batch(&prompts, &[short, sentence])?;
    for (prompt, completion) in prompts.iter().zip(&completions) {
        println!("\n\n{prompt}{}\n[{:?}]", completion.text, completion.finish);
    }
    Ok(())
}
