//! Tests the Medusa heads of story-3m and the file that they come from:
//! `cargo test --features ref --test medusa_heads`.

#![cfg(feature = "ref")]

use candecode::day05_model::Transformer;
use candecode::day07_greedy::argmax;
use candecode::day10_kv_cache::{generate_cached, Cached, DynamicCache};
use candecode::day24_draft_trees::{decode_tree, MedusaHeads, MedusaTree, TreeDecoder};
use candecode::kit::draft::Counts;
use candecode::kit::{Model as _, NoCache, Request, Step};
use candecode_engine::watched::Watched;
use candecode_engine::{medusa, Engine};
use candecode_formats::hub::models_dir;
use candle_core::{DType, Device, Tensor};
use std::collections::{HashMap, HashSet};
use std::path::PathBuf;

fn file(name: &str) -> PathBuf {
    models_dir().unwrap().join("story-3m").join(name)
}

fn heads(engine: &Engine) -> MedusaHeads {
    medusa::load(&file(medusa::FILE), engine.model()).unwrap()
}

/// Returns the stories that the heads were not trained on, as ids.
fn held_out() -> Vec<Vec<u32>> {
    let text = std::fs::read_to_string(file("held_out.jsonl")).unwrap();
    let story = |line: &str| -> Vec<u32> {
        let value: serde_json::Value = serde_json::from_str(line).unwrap();
        serde_json::from_value(value["ids"].clone()).unwrap()
    };
    text.lines().map(story).collect()
}

/// The number of tokens in an opening, after BOS, as in `models/train/medusa.py`.
const OPENING: usize = 12;

/// Returns the 64-bit FNV-1a hash of a story's opening, two bytes per id.
fn hash(ids: &[u32]) -> String {
    let bytes = ids[1..=OPENING].iter().flat_map(|id| (*id as u16).to_le_bytes());
    let step = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    format!("{:016x}", bytes.fold(0xcbf2_9ce4_8422_2325, step))
}

#[test]
fn no_held_out_story_opens_like_a_training_story() {
    let text = std::fs::read_to_string(file("train_openings.txt")).unwrap();
    let trained: HashSet<&str> = text.lines().collect();
    assert!(trained.len() > 1000);
    let stories = held_out();
    assert!(stories.len() > 30);
    for ids in stories {
        assert!(!trained.contains(&*hash(&ids)), "{ids:?}");
    }
}

/// Generates text after `prompt` with Medusa heads, and returns it with its counts.
fn grown(
    model: &Transformer,
    engine: &Engine,
    heads: &MedusaHeads,
    prompt: &[u32],
) -> (Vec<u32>, Counts) {
    let watched = Watched::new(model, "the target".into(), || false);
    let request = Request::new(model.config(), prompt, 48, argmax);
    let drafter = Box::new(MedusaTree { heads });
    let tokenizer = engine.tokenizer();
    let mut decoder =
        TreeDecoder::new(&watched, tokenizer, request, drafter, vec![3, 2, 1, 1]).unwrap();
    let mut ids = Vec::new();
    while decoder.sequence.finish.is_none() {
        ids.extend(decode_tree(&mut decoder).unwrap().iter().map(|token| token.id));
    }
    (ids, decoder.counts)
}

fn plain(engine: &Engine, prompt: &[u32]) -> Vec<u32> {
    let model = engine.model();
    let cache = Box::new(DynamicCache::new(model.config().num_hidden_layers));
    let request = Request::new(model.config(), prompt, 48, argmax);
    let tokens = generate_cached(Cached::new(model, cache), engine.tokenizer(), request).unwrap();
    tokens.map(|token| token.unwrap().id).collect()
}

#[test]
fn held_out_stories_are_unchanged_and_take_fewer_passes() {
    let engine = Engine::open("story-3m").unwrap();
    let heads = heads(&engine);
    let (mut written, mut passes) = (0, 0);
    for ids in held_out().iter().take(8) {
        let prompt = &ids[..=OPENING];
        let (got, counts) = grown(engine.model(), &engine, &heads, prompt);
        assert_eq!(got, plain(&engine, prompt));
        written += counts.written;
        passes += counts.passes;
    }
    let per_pass = written as f64 / passes as f64;
    assert!(per_pass >= 1.8, "{per_pass} tokens per pass");
}

/// Builds heads for a model whose blocks change nothing, so they repeat the model's own head.
fn untrained(model: &Transformer) -> HashMap<String, Tensor> {
    let width = model.config().hidden_size;
    let norm = match &model.norm {
        candecode::day05_model::Norm::Rms { weight, .. }
        | candecode::day05_model::Norm::Layer { weight, .. } => weight.clone(),
    };
    let zeros = |shape: &[usize]| Tensor::zeros(shape, DType::F32, &Device::Cpu).unwrap();
    let vocab = Tensor::new(&[model.config().vocab_size as i64], &Device::Cpu).unwrap();
    let mut all = HashMap::from([("norm.weight".to_string(), norm), ("vocab_size".into(), vocab)]);
    for k in 0..4 {
        all.insert(format!("heads.{k}.weight"), zeros(&[width, width]));
        all.insert(format!("heads.{k}.bias"), zeros(&[width]));
    }
    all
}

fn saved(name: &str, tensors: &HashMap<String, Tensor>) -> PathBuf {
    let path = std::env::temp_dir().join(format!("candecode-{}-{name}", std::process::id()));
    candle_core::safetensors::save(tensors, &path).unwrap();
    path
}

#[test]
fn medusa_heads_do_not_change_gpt2s_text() {
    let engine = Engine::open("story-gpt2-1m").unwrap();
    let path = saved("gpt2", &untrained(engine.model()));
    let heads = medusa::load(&path, engine.model()).unwrap();
    let prompt = engine.tokenizer().encode("Lily and her dog").unwrap();
    let (got, counts) = grown(engine.model(), &engine, &heads, &prompt);
    assert_eq!(got, plain(&engine, &prompt));
    assert!(counts.drafted > 0);
}

#[test]
fn hidden_states_are_the_inputs_of_the_lm_head() {
    for name in ["story-3m", "story-gpt2-1m"] {
        let engine = Engine::open(name).unwrap();
        let model = engine.model();
        let step = Step::new(model, &[5, 77, 300], 0).unwrap();
        let (logits, hidden) = medusa::forward_with_hidden(model, &step, &mut NoCache).unwrap();
        let plain = model.forward(&step, &mut NoCache).unwrap();
        let bits = |x: &Tensor| x.flatten_all().unwrap().to_vec1::<f32>().unwrap();
        assert_eq!(bits(&logits), bits(&plain));
        let head = model.lm_head.as_ref().unwrap_or(&model.embed_tokens);
        let from_states = model.ops.linear(&hidden.unwrap(), &[head]).unwrap().remove(0);
        assert_eq!(bits(&from_states), bits(&plain));
    }
}

#[test]
fn files_without_valid_heads_for_this_model_are_refused() {
    let engine = Engine::open("story-230k").unwrap();
    let model = engine.model();
    let good = untrained(model);
    assert_eq!(medusa::load(&saved("good", &good), model).unwrap().blocks.len(), 4);
    let refused = |name: &str, change: &dyn Fn(&mut HashMap<String, Tensor>), says: &str| {
        let mut tensors = good.clone();
        change(&mut tensors);
        let error = medusa::load(&saved(name, &tensors), model).err().unwrap();
        assert!(format!("{error:#}").contains(says), "{name}: {error:#}");
    };
    let replaced = |name: &'static str, tensor: Tensor| {
        move |tensors: &mut HashMap<String, Tensor>| {
            tensors.insert(name.to_string(), tensor.clone());
        }
    };
    let full = |x: f32, shape: &[usize]| Tensor::full(x, shape, &Device::Cpu).unwrap();
    let vocab = Tensor::new(&[50_257i64], &Device::Cpu).unwrap();
    refused("vocabulary", &replaced("vocab_size", vocab), "50257");
    refused("norm", &replaced("norm.weight", full(7.0, &[64])), "another model");
    refused("width", &replaced("heads.1.weight", full(0.0, &[64, 32])), "[64, 64]");
    refused("nan", &replaced("heads.2.bias", full(f32::NAN, &[64])), "heads.2.bias contains NaN");
    refused("none", &|tensors| tensors.retain(|name, _| !name.starts_with("heads")), "heads.0");
    let error = medusa::load(&file(medusa::FILE), model).err().unwrap();
    assert!(format!("{error:#}").contains("another model"), "{error:#}");
    let error = medusa::load(&file("config.json"), model).err().unwrap();
    assert!(format!("{error:#}").contains("damaged"), "{error:#}");
}
