//! The effect of quantized weights on the engine's predictions: compares the most likely token and
//! the distribution at every position of some texts with those in f32, for our engine and for
//! llama.cpp with the same files.
//!
//! The texts are evaluated with teacher forcing. With a Python that has the packages in
//! `crates/lab/peers/requirements.txt`, llama.cpp writes the files. Without one, our engine
//! quantizes the weights, and llama.cpp is left out.

use crate::args::Args;
use crate::engine::quantized_file;
use crate::shared::{cache, held_out_stories, locate, log_probs, root};
use anyhow::{ensure, Context as _, Result};
use candecode::day07_greedy::log_softmax;
use candecode::day19_quantized_weights::{mean_kl, same_best};
use candecode::kit::{Model, QuantType, Tokenizer, WeightFormat};
use candecode_engine::load::{load_transformer, quantized_format};
use candecode_engine::operations::{self, Kernels};
use candecode_formats::{read_config, read_tokenizer};
use candle_core::{DType, Device};
use std::fs::File;
use std::io::{BufReader, Read as _};
use std::path::Path;
use std::process::Command;

/// Tokens in each piece of a book page, short enough for every model.
const PIECE: usize = 400;

/// Some texts, with the f32 log probabilities at every position.
struct Texts {
    ids: Vec<Vec<u32>>,
    exact: Vec<Vec<Vec<f32>>>,
}

impl Texts {
    /// Prints how much predictions deviate from f32, averaged over positions. `read` is called with
    /// each text in order and returns the predictions for it.
    fn show(
        &self,
        name: &str,
        mut read: impl FnMut(&[u32]) -> Result<Vec<Vec<f32>>>,
    ) -> Result<()> {
        let (mut positions, mut same, mut kl) = (0.0, 0.0, 0.0);
        for (ids, exact) in self.ids.iter().zip(&self.exact) {
            let (found, weight) = (read(ids)?, ids.len() as f64);
            positions += weight;
            same += weight * same_best(exact, &found)?;
            kl += weight * mean_kl(exact, &found)?;
        }
        println!("{name:<21} {:>9.2} % {:>10.6}", 100.0 * same / positions, kl / positions);
        Ok(())
    }

    /// Prints a model's deviation from f32.
    fn show_model(&self, name: &str, model: &dyn Model) -> Result<()> {
        self.show(name, |ids| log_probs(model, ids, &mut cache(model)))
    }

    /// Prints llama.cpp's deviation from f32 for a file.
    fn show_llama_cpp(&self, name: &str, script: &[String], file: &str) -> Result<()> {
        let path = |ending: &str| {
            let name = format!("candecode-quality-{}.{ending}", std::process::id());
            std::env::temp_dir().join(name)
        };
        let (ids, out) = (path("txt"), path("logits"));
        let line = |ids: &Vec<u32>| ids.iter().map(u32::to_string).collect::<Vec<_>>().join(",");
        std::fs::write(&ids, self.ids.iter().map(line).collect::<Vec<_>>().join("\n"))?;
        let mut command = Command::new(&script[0]);
        let said = command.args(&script[1..]).arg(file).arg(&ids).arg(&out).output();
        let said = said.with_context(|| format!("couldn't start {}", script[0]))?;
        let error = String::from_utf8_lossy(&said.stderr);
        ensure!(said.status.success(), "{} failed: {error}", script[1]);
        let mut logits = BufReader::new(File::open(&out)?);
        let vocab = self.exact[0][0].len();
        self.show(name, |ids| {
            let mut rows = vec![];
            for _ in ids {
                let mut bytes = vec![0; 4 * vocab];
                logits.read_exact(&mut bytes)?;
                let (four, _) = bytes.as_chunks();
                let row: Vec<f32> = four.iter().map(|four| f32::from_le_bytes(*four)).collect();
                rows.push(log_softmax(&row)?);
            }
            Ok(rows)
        })?;
        std::fs::remove_file(&ids)?;
        Ok(std::fs::remove_file(&out)?)
    }
}

/// Prints a row for each format and each engine.
pub fn measure(args: &Args) -> Result<()> {
    let ops = operations::choose(Some(Kernels::Fast), &Device::Cpu);
    let dir = locate(args.model())?;
    let most = read_config(&dir)?.max_position_embeddings;
    ensure!(
        args.text.is_none() || args.tokens <= most,
        "--text is read in one pass, but {} has room for only {most} tokens: use --tokens {most}",
        args.model()
    );
    let tokenizer = read_tokenizer(&dir)?;
    let ids = match &args.text {
        Some(file) => vec![beginning(&tokenizer, file, args.tokens)?],
        None => texts(&tokenizer, args.tokens)?,
    };
    let exact = load_transformer(&dir, DType::F32, &Device::Cpu, &ops)?;
    let read = |ids: &Vec<u32>| log_probs(&exact, ids, &mut cache(&exact));
    let texts = Texts { exact: ids.iter().map(read).collect::<Result<_>>()?, ids };
    drop(exact);
    let positions: usize = texts.ids.iter().map(Vec::len).sum();
    println!("{}, {} texts, {positions} positions, against f32", args.model(), texts.ids.len());
    println!("{:<21} {:>11} {:>10}", "weights", "same best", "mean KL");
    for (name, kind) in [("q8_0", QuantType::Q8_0), ("q4_0", QuantType::Q4_0)] {
        let Some(python) = &args.python else {
            let model = load_transformer(&dir, quantized_format(kind), &Device::Cpu, &ops)?;
            texts.show_model(&format!("{kind}, candecode"), &model)?;
            continue;
        };
        let script = |name: &str| {
            let path = root().join("crates/lab/peers").join(name);
            [python.clone(), path.display().to_string()]
        };
        let file = quantized_file(&script("gguf_file.py"), &dir, name)?;
        let path = Path::new(&file);
        let model = load_transformer(path, WeightFormat::AsStored, &Device::Cpu, &ops)?;
        texts.show_model(&format!("{kind}, candecode"), &model)?;
        drop(model);
        // The error that remains if activations aren't quantized.
        let widened = load_transformer(path, DType::F32, &Device::Cpu, &ops)?;
        texts.show_model(&format!("{kind}, f32 activations"), &widened)?;
        drop(widened);
        let script = script("llamacpp_logits.py");
        texts.show_llama_cpp(&format!("{kind}, llama.cpp"), &script, &file)?;
    }
    Ok(())
}

/// Returns the stories and then the pieces of a book page, cut off after `tokens` tokens.
fn texts(tokenizer: &Tokenizer, tokens: usize) -> Result<Vec<Vec<u32>>> {
    let page = std::fs::read_to_string(root().join("book/src/day01_attention.md"))?;
    let mut texts = held_out_stories(tokenizer)?;
    texts.extend(tokenizer.encode(&page)?.chunks(PIECE).map(<[u32]>::to_vec));
    let mut left = tokens;
    for ids in &mut texts {
        ids.truncate(left);
        left -= ids.len();
    }
    texts.retain(|ids| ids.len() > 1);
    ensure!(left == 0, "--tokens {tokens}: the texts have {left} fewer");
    Ok(texts)
}

/// Returns the first tokens of a file.
fn beginning(tokenizer: &Tokenizer, file: &Path, tokens: usize) -> Result<Vec<u32>> {
    let text =
        std::fs::read_to_string(file).with_context(|| format!("--text {}", file.display()))?;
    let mut ids = tokenizer.encode(&text)?;
    ensure!(ids.len() >= tokens, "--tokens {tokens}: {} has only {}", file.display(), ids.len());
    ids.truncate(tokens);
    Ok(ids)
}
