//! Lets a model with random weights write texts of 200 schemas at temperature 1.5: 50 of other
//! tools' tests (`schemas.json`), and 150 random ones. `validate.py` then checks the texts with
//! Python's jsonschema.

use candecode::kit::{
    FinishReason, LogitsProcessor, ModelConfig, ProcessorInput, SamplingParams, Tokenizer, Weights,
};
use candecode_engine::Engine;
use candecode_structured::{Compiler, Constraint};
use candecode_testing::{story, Random};
use candle_core::{DType, Device, Tensor};
use serde_json::{json, Map, Value};
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;

const VOCAB: usize = 2048;
const EOS: u32 = 0;
/// Maximum number of tokens of a text.
const MOST: usize = 1500;

/// A small Llama with random weights and an embedded model's tokenizer.
fn random_engine() -> Engine {
    let (width, inner) = (32, 64);
    let config = json!({
        "model_type": "llama", "hidden_size": width, "intermediate_size": inner, "num_hidden_layers": 1,
        "num_attention_heads": 2, "num_key_value_heads": 1, "vocab_size": VOCAB, "rms_norm_eps": 1e-6,
        "max_position_embeddings": 4096, "rope_theta": 10000.0, "tie_word_embeddings": false,
        "eos_token_id": EOS, "hidden_act": "silu",
    });
    let mut random = Random::new(11);
    let mut tensor = |shape: &[usize]| {
        let count = shape.iter().product();
        let values: Vec<f32> = (0..count).map(|_| random.float() * 0.4 - 0.2).collect();
        Tensor::from_vec(values, shape, &Device::Cpu).unwrap()
    };
    let layer = |name: &str| format!("model.layers.0.{name}.weight");
    let ones = Tensor::ones(width, DType::F32, &Device::Cpu).unwrap();
    let weights: HashMap<String, Tensor> = HashMap::from([
        ("model.embed_tokens.weight".into(), tensor(&[VOCAB, width])),
        ("lm_head.weight".into(), tensor(&[VOCAB, width])),
        ("model.norm.weight".into(), ones.clone()),
        (layer("input_layernorm"), ones.clone()),
        (layer("post_attention_layernorm"), ones),
        (layer("self_attn.q_proj"), tensor(&[width, width])),
        (layer("self_attn.k_proj"), tensor(&[width / 2, width])),
        (layer("self_attn.v_proj"), tensor(&[width / 2, width])),
        (layer("self_attn.o_proj"), tensor(&[width, width])),
        (layer("mlp.gate_proj"), tensor(&[inner, width])),
        (layer("mlp.up_proj"), tensor(&[inner, width])),
        (layer("mlp.down_proj"), tensor(&[width, inner])),
    ]);
    let config = ModelConfig::from_json(&config.to_string()).unwrap();
    let json = std::fs::read(story("story-230k").join("tokenizer.json")).unwrap();
    let tokenizer = Tokenizer::from_bytes(&json).unwrap();
    let weights = Weights::new(Arc::new(weights), DType::F32, &Device::Cpu);
    Engine::from_parts(config, tokenizer, &weights).unwrap()
}

/// Returns a random schema whose texts have bounded lengths.
fn random_schema(random: &mut Random, depth: usize) -> Value {
    let kinds = if depth == 0 { 8 } else { 12 };
    match random.below(kinds) {
        0 => json!({"type": "boolean"}),
        1 => json!({"type": "null"}),
        2 => json!({"enum": ["red", "blue", 3, null, {"a": [true]}]}),
        3 => json!({"const": format!("é\"{}", random.below(100))}),
        4 => {
            let low = random.below(2000) as i64 - 1000;
            json!({"type": "integer", "minimum": low, "maximum": low + random.below(300) as i64})
        }
        5 => json!({"type": "string", "maxLength": random.below(20), "minLength": 0}),
        6 => json!({"type": "string", "pattern": "^[a-z]{2,6}(-[0-9]+)?$", "maxLength": 12}),
        7 => json!({"type": "number", "minimum": 0, "exclusiveMaximum": random.below(50) + 1}),
        8 => {
            let least = random.below(3);
            json!({
                "type": "array", "items": random_schema(random, depth - 1), "minItems": least,
                "maxItems": least + random.below(3),
            })
        }
        9 => {
            let branches = (0..2 + random.below(2)).map(|_| random_schema(random, depth - 1));
            json!({"anyOf": branches.collect::<Vec<_>>()})
        }
        _ => {
            let mut properties = Map::new();
            for n in 0..random.below(5) {
                properties.insert(format!("key {n}"), random_schema(random, depth - 1));
            }
            let names: Vec<_> = properties.keys().filter(|_| random.below(2) == 0).collect();
            json!({
                "type": "object", "required": names, "properties": properties,
                "additionalProperties": false,
            })
        }
    }
}

/// Returns the ids that `rule` allows after these tokens.
fn allowed(rule: &Rc<dyn LogitsProcessor>, tokens: &[u32]) -> Vec<u32> {
    let mut logits = vec![0.0; VOCAB];
    let input = ProcessorInput { tokens, prompt_len: 0, remaining: 9, eos: &[EOS] };
    rule.process(&input, &mut logits).unwrap();
    (0..).zip(&logits).filter(|(_, x)| **x > f32::NEG_INFINITY).map(|(id, _)| id).collect()
}

/// Completes a text with tokens that close what is open, or if there are none, with random letters.
fn complete(rule: &Rc<dyn LogitsProcessor>, tokenizer: &Tokenizer, ids: &mut Vec<u32>) {
    let mut random = Random::new(1);
    for _ in 0..2000 {
        let all = allowed(rule, ids);
        if all.contains(&EOS) {
            return;
        }
        let rank = |id: &u32| {
            let bytes = tokenizer.token_bytes(*id);
            let place = ["\"", "}", "]"].iter().position(|text| text.as_bytes() == bytes);
            (place.unwrap_or(9), bytes.len())
        };
        let best = all.iter().map(rank).min().unwrap();
        let best: Vec<u32> = all.into_iter().filter(|id| rank(id) == best).collect();
        ids.push(best[random.below(best.len())]);
    }
    panic!("no end in sight");
}

/// Returns the length of the longest run of white space outside of strings.
fn longest_white_space(text: &str) -> usize {
    let (mut longest, mut run, mut in_string, mut escaped) = (0, 0, false, false);
    for byte in text.bytes() {
        in_string ^= byte == b'"' && !escaped;
        escaped = byte == b'\\' && !escaped;
        run = if !in_string && byte.is_ascii_whitespace() { run + 1 } else { 0 };
        longest = longest.max(run);
    }
    longest
}

#[test]
fn texts_of_200_schemas_are_finished_and_parse() {
    let engine = random_engine();
    let tokenizer = engine.tokenizer();
    let compiler = Compiler::new(tokenizer, VOCAB).unwrap();
    let listed = std::fs::read("tests/schemas.json").unwrap();
    let mut all: Vec<Value> = serde_json::from_slice(&listed).unwrap();
    assert_eq!(all.len(), 50);
    let mut random = Random::new(54);
    while all.len() < 200 {
        all.push(json!({"source": "random", "schema": random_schema(&mut random, 3)}));
    }
    let (mut finished, mut passes, mut forced) = (0, 0, 0);
    for (seed, case) in all.iter_mut().enumerate() {
        let format = compiler.compile(&Constraint::JsonSchema(case["schema"].clone()));
        let format = format.unwrap_or_else(|error| panic!("{}: {error:#}", case["source"]));
        let params = SamplingParams {
            max_new_tokens: MOST,
            temperature: 1.5,
            seed: seed as u64,
            format: Some(format.clone()),
            ..SamplingParams::default()
        };
        let tokens = engine.generate("Once upon a time", &params).unwrap();
        let tokens: Vec<_> = tokens.collect::<candle_core::Result<_>>().unwrap();
        let is_finished = tokens.last().unwrap().finish == Some(FinishReason::Eos);
        let mut ids: Vec<u32> =
            tokens.iter().map(|token| token.id).filter(|id| *id != EOS).collect();
        let text: String = tokens.iter().map(|token| &*token.text).collect();
        assert!(longest_white_space(&text) <= 17, "{text}");
        // A pass whose allowed tokens all begin one text could be saved.
        let rule = format.processor();
        for at in 0..ids.len().min(200) {
            let mut next: Vec<_> =
                allowed(&rule, &ids[..at]).iter().map(|id| tokenizer.token_bytes(*id)).collect();
            next.sort_by_key(Vec::len);
            passes += 1;
            forced += usize::from(next.windows(2).all(|two| two[1].starts_with(&two[0])));
        }
        finished += usize::from(is_finished);
        if !is_finished {
            complete(&rule, tokenizer, &mut ids);
        }
        let bytes: Vec<u8> = ids.iter().flat_map(|id| tokenizer.token_bytes(*id)).collect();
        let whole = String::from_utf8(bytes).unwrap();
        assert!(
            is_finished == (whole == text) && whole.starts_with(text.trim_end_matches('\u{fffd}'))
        );
        // `4E787` is JSON, but more than a float can hold.
        let parsed = serde_json::from_str::<Value>(&whole).map_err(|error| error.to_string());
        assert!(parsed.map_or_else(|error| error.contains("out of range"), |_| true), "{whole}");
        case["text"] = json!(whole);
    }
    println!("{finished} of 200 finished; {forced} of {passes} passes were forced");
    assert!(finished >= 190, "{finished} of 200 texts finished");
    let path = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("schemas.json");
    std::fs::write(path, Value::Array(all).to_string()).unwrap();
}
