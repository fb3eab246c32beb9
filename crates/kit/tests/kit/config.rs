//! Tests of `config.json` for the four families: the keys that are read, the defaults, and the keys
//! that are rejected because ignoring them would change the output.

use crate::message;
use candecode_kit::config::Llama3Scaling;
use candecode_kit::{Family, ModelConfig};
use candecode_testing::{least_config as least, refused, story};
use serde_json::{json, Value};

fn read(config: &Value) -> anyhow::Result<ModelConfig> {
    ModelConfig::from_json(&config.to_string())
}

/// Reads the smallest configuration plus these keys.
fn with(family: &str, more: Value) -> anyhow::Result<ModelConfig> {
    let mut config = least(family);
    config.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    read(&config)
}

#[test]
fn defaults_are_transformers() {
    let llama = read(&least("llama")).unwrap();
    let want = ModelConfig {
        family: Family::Llama,
        vocab_size: 50,
        hidden_size: 24,
        intermediate_size: 40,
        num_hidden_layers: 2,
        num_attention_heads: 4,
        num_key_value_heads: 4,
        head_dim: 6,
        max_position_embeddings: 32,
        norm_eps: 1e-6,
        rope_theta: 10_000.0,
        rope_scaling: None,
        tie_word_embeddings: false,
        qkv_bias: false,
        output_bias: false,
        mlp_bias: false,
        eos_token_ids: vec![],
    };
    assert_eq!(llama, want);
    let qwen2 = ModelConfig { family: Family::Qwen2, qkv_bias: true, ..want.clone() };
    assert_eq!(read(&least("qwen2")).unwrap(), qwen2);
    let qwen3 = ModelConfig { family: Family::Qwen3, head_dim: 128, ..want.clone() };
    assert_eq!(read(&least("qwen3")).unwrap(), qwen3);
    let gpt2 = ModelConfig {
        family: Family::Gpt2,
        hidden_size: 12,
        intermediate_size: 48,
        head_dim: 3, // odd, which is a problem only with RoPE
        norm_eps: 1e-5,
        tie_word_embeddings: true,
        qkv_bias: true,
        output_bias: true,
        mlp_bias: true,
        ..want
    };
    assert_eq!(read(&least("gpt2")).unwrap(), gpt2);
}

#[test]
fn explicit_config_values_are_used() {
    let said = json!({"num_key_value_heads": 2, "head_dim": 10, "rms_norm_eps": 1e-5, "tie_word_embeddings": true,
        "attention_bias": true, "mlp_bias": true, "eos_token_id": [3, 5]});
    let config = with("llama", said.clone()).unwrap();
    assert_eq!((config.num_key_value_heads, config.head_dim, config.norm_eps), (2, 10, 1e-5));
    assert!(config.tie_word_embeddings && config.qkv_bias && config.output_bias && config.mlp_bias);
    assert_eq!(config.eos_token_ids, [3, 5]);
    let config = with("qwen3", said.clone()).unwrap();
    assert_eq!((config.head_dim, config.qkv_bias, config.output_bias), (10, true, true));
    // Qwen2's attention has its own biases, for any value of `attention_bias` (HF
    // `Qwen2Attention`).
    let config = with("qwen2", said).unwrap();
    assert!(config.qkv_bias && !config.output_bias);
    let config = with(
        "gpt2",
        json!({"n_inner": 20, "layer_norm_epsilon": 1e-3, "tie_word_embeddings": false}),
    );
    let config = config.unwrap();
    assert_eq!(
        (config.intermediate_size, config.norm_eps, config.tie_word_embeddings),
        (20, 1e-3, false)
    );
    // Keys from other families have no meaning for GPT-2, as in transformers.
    let others = json!({"num_key_value_heads": 2, "head_dim": 8, "rope_scaling": {"type": "yarn"}});
    assert_eq!(with("gpt2", others).unwrap(), read(&least("gpt2")).unwrap());
}

#[test]
fn rope_theta_is_read_from_either_location() {
    let theta = |more| with("llama", more).unwrap().rope_theta;
    assert_eq!(theta(json!({"rope_theta": 500.0})), 500.0);
    assert_eq!(theta(json!({"rope_theta": 500})), 500.0);
    assert_eq!(
        theta(json!({"rope_parameters": {"rope_theta": 700.0, "rope_type": "default"}})),
        700.0
    );
    // With both, as in the embedded models, the table's value wins. If the table has none, the
    // other is used.
    assert_eq!(
        theta(json!({"rope_theta": 500.0, "rope_parameters": {"rope_theta": 700.0}})),
        700.0
    );
    assert_eq!(
        theta(json!({"rope_theta": 500.0, "rope_parameters": {"rope_type": "default"}})),
        500.0
    );
    assert_eq!(theta(json!({"rope_theta": 500.0, "rope_scaling": null})), 500.0);
    assert_eq!(theta(json!({"rope_parameters": {}, "rope_scaling": {}})), 10_000.0);
}

#[test]
fn llama3_scaling_is_read_under_either_key() {
    let table = json!({"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
        "original_max_position_embeddings": 16});
    let want = Llama3Scaling {
        factor: 8.0,
        low_freq_factor: 1.0,
        high_freq_factor: 4.0,
        original_max_position_embeddings: 16.0,
    };
    for key in ["rope_scaling", "rope_parameters"] {
        assert_eq!(with("llama", json!({key: table})).unwrap().rope_scaling, Some(want), "{key}");
    }
    // transformers prefers the older name.
    let both = json!({"rope_scaling": table, "rope_parameters": {"rope_type": "default"}});
    assert_eq!(with("llama", both).unwrap().rope_scaling, Some(want));
    for key in ["factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings"]
    {
        for bad in [Value::Null, json!(0), json!(-1.0), json!("8")] {
            let mut table = table.clone();
            table[key] = bad;
            refused(with("llama", json!({"rope_scaling": table})), &[key, "above 0"]);
        }
    }
    let mut flat = table;
    flat["high_freq_factor"] = json!(1.0);
    refused(
        with("llama", json!({"rope_scaling": flat})),
        &["high_freq_factor is 1", "low_freq_factor 1"],
    );
}

#[test]
fn llama3_scaling_by_hand() {
    let scaling = Llama3Scaling {
        factor: 8.0,
        low_freq_factor: 1.0,
        high_freq_factor: 4.0,
        original_max_position_embeddings: 16.0,
    };
    let full_turn = 2.0 * std::f64::consts::PI;
    // Wavelengths below 16 / 4 are unchanged, and those above 16 / 1 become 8 times as long.
    let apply = |wavelength: f64| f64::from(scaling.apply((full_turn / wavelength) as f32));
    let after = |wavelength: f64| full_turn / apply(wavelength);
    assert!((after(3.0) - 3.0).abs() < 1e-5); // f32 has seven digits
    assert!((after(20.0) - 160.0).abs() < 1e-3);
    // In between: 16 / 8 = 2 is a third of the way from 1 to 4, so frequency = 2/3 · f / 8 + 1/3 ·
    // f = 5/12 · f.
    assert!((apply(8.0) / (full_turn / 8.0) - 5.0 / 12.0).abs() < 1e-6);
}

/// Each of these changes the output in transformers, so none may be silently ignored.
#[test]
fn unsupported_config_values_are_refused_not_ignored() {
    for (family, more, says) in [
        ("gpt2", json!({"scale_attn_weights": false}), "scale_attn_weights is false"),
        (
            "gpt2",
            json!({"scale_attn_by_inverse_layer_idx": true}),
            "scale_attn_by_inverse_layer_idx is true",
        ),
        ("gpt2", json!({"activation_function": "relu"}), "the activation is \"relu\""),
        ("gpt2", json!({"activation_function": "gelu"}), "the activation is \"gelu\""),
        ("llama", json!({"hidden_act": "gelu_new"}), "the activation is \"gelu_new\""),
        (
            "qwen2",
            json!({"use_sliding_window": true, "sliding_window": 8, "max_window_layers": 1}),
            "use_sliding_window is true, with sliding_window 8 from layer 1 on",
        ),
        ("llama", json!({"sliding_window": 31}), "sliding_window is 31"),
        ("llama", json!({"attention_chunk_size": 8}), "attention_chunk_size is 8"),
        ("qwen2", json!({"layer_types": ["sliding_attention", "full_attention"]}), "sliding"),
        ("qwen3", json!({"is_causal": false}), "is_causal is false"),
        ("gpt2", json!({"is_encoder_decoder": true}), "is_encoder_decoder is true"),
        ("llama", json!({"per_layer_config": {"0": {"head_dim": 4}}}), "per_layer_config"),
        (
            "qwen2",
            json!({"layer_types": ["full_attention", "sliding_attention"]}),
            "\"sliding_attention\"",
        ),
        ("llama", json!({"rope_scaling": {"type": "linear", "factor": 2.0}}), "linear"),
        ("llama", json!({"rope_scaling": {"rope_type": "dynamic", "factor": 2.0}}), "dynamic"),
        ("qwen3", json!({"rope_parameters": {"rope_type": "yarn", "factor": 4.0}}), "yarn"),
        ("llama", json!({"rope_parameters": {"rope_type": 3}}), "rope_type is"),
        (
            "llama",
            json!({"rope_parameters": {"full_attention": {"rope_theta": 5.0}}}),
            "a table for \"full_attention\"",
        ),
        (
            "llama",
            json!({"rope_parameters": {"partial_rotary_factor": 0.5}}),
            "partial_rotary_factor is 0.5",
        ),
        ("llama", json!({"partial_rotary_factor": 0.25}), "partial_rotary_factor is 0.25"),
        ("llama", json!({"rope_scaling": 8.0}), "not a table"),
        (
            "llama",
            json!({"quantization_config": {"quant_method": "gptq"}}),
            "the weights are quantized",
        ),
        ("mistral", json!({}), "model_type is \"mistral\""),
    ] {
        refused(with(family, more), &[says]);
    }
}

/// Each of these asks for the behavior we already have.
#[test]
fn config_values_that_change_nothing_are_accepted() {
    for (family, more) in [
        (
            "gpt2",
            json!({"scale_attn_weights": true, "scale_attn_by_inverse_layer_idx": false, "activation_function": "gelu_new"}),
        ),
        // The products in attention are already f32.
        ("gpt2", json!({"reorder_and_upcast_attn": true})),
        ("llama", json!({"hidden_act": "silu", "pretraining_tp": 2, "attention_bias": false})),
        (
            "qwen2",
            json!({"use_sliding_window": false, "sliding_window": 4096, "max_window_layers": 1}),
        ),
        ("qwen3", json!({"sliding_window": -1})), // read only with the switch
        ("qwen3", json!({"layer_types": ["full_attention", "full_attention"], "head_dim": 128})),
        (
            "llama",
            json!({"rope_parameters": {"rope_type": "default", "partial_rotary_factor": 1.0}}),
        ),
        ("llama", json!({"quantization_config": null, "rope_parameters": null})),
        // Every layer sees the whole context, because no layer uses the window or the window is as
        // long as the context.
        ("qwen2", json!({"use_sliding_window": true, "sliding_window": 8, "max_window_layers": 2})),
        ("qwen2", json!({"use_sliding_window": true, "sliding_window": 8})), // starts at layer 28
        ("qwen2", json!({"use_sliding_window": true, "sliding_window": null})),
        (
            "qwen3",
            json!({"use_sliding_window": true, "sliding_window": 32, "max_window_layers": 0}),
        ),
        (
            "qwen3",
            json!({"use_sliding_window": true, "sliding_window": 8, "max_window_layers": 0,
                "layer_types": ["full_attention", "full_attention"]}),
        ),
        (
            "qwen2",
            json!({"use_sliding_window": true, "sliding_window": 64,
                "layer_types": ["sliding_attention", "attention"]}),
        ),
        ("llama", json!({"sliding_window": 4096, "per_layer_config": {}})),
        ("llama", json!({"hidden_act": "swish"})),
        ("gpt2", json!({"activation_function": "gelu_pytorch_tanh"})),
        ("gpt2", json!({"activation_function": "gelu_fast"})),
        ("llama", json!({"rope_scaling": {"type": "linear", "factor": 1.0}})),
        ("qwen2", json!({"rope_parameters": {"rope_type": "linear", "factor": 1}})),
        (
            "llama",
            json!({"hidden_size": 24.0, "vocab_size": 50.0, "max_position_embeddings": 32.0}),
        ),
    ] {
        assert_eq!(with(family, more.clone()).unwrap(), read(&least(family)).unwrap(), "{more}");
    }
}

/// GPT-2 has its own names for the same keys (HF `GPT2Config.attribute_map`). Some programs write
/// both names.
#[test]
fn two_names_of_one_key_must_agree() {
    for (name, own, value, other) in [
        ("hidden_size", "n_embd", json!(12), json!(24)),
        ("intermediate_size", "n_inner", json!(20), json!(21)),
        ("num_hidden_layers", "n_layer", json!(2), json!(3)),
        ("num_attention_heads", "n_head", json!(4), json!(2)),
        ("max_position_embeddings", "n_positions", json!(32), json!(64)),
        ("rms_norm_eps", "layer_norm_epsilon", json!(1e-3), json!(1e-5)),
        ("hidden_act", "activation_function", json!("gelu_new"), json!("relu")),
    ] {
        let one = with("gpt2", json!({own: value})).unwrap();
        let floats = value.as_f64().map_or(value.clone(), |n| json!(n));
        for both in [
            json!({name: value, own: value}),
            json!({name: floats, own: value}),
            json!({name: null, own: value}),
            json!({name: value, own: null}),
        ] {
            assert_eq!(with("gpt2", both.clone()).unwrap(), one, "{both}");
        }
        for family in ["gpt2", "llama"] {
            let both = with(family, json!({name: value, own: other}));
            let says = [format!("{name} is {value}"), format!("{own} is {other}")];
            refused(both, &[&says[0], &says[1], "two names of one key"]);
        }
    }
}

#[test]
fn llama3_original_context_length_matches_transformers() {
    let table = json!({"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0});
    let trained = |more: Value| {
        let scaling = with("llama", more).unwrap().rope_scaling.unwrap();
        scaling.original_max_position_embeddings
    };
    // The outer key comes first, then the table's, then the context length (HF
    // `standardize_rope_params`).
    let mut own = table.clone();
    own["original_max_position_embeddings"] = json!(16);
    let outside = json!({"rope_scaling": own, "original_max_position_embeddings": 8});
    assert_eq!(trained(outside), 8.0);
    assert_eq!(trained(json!({"rope_scaling": own})), 16.0);
    assert_eq!(trained(json!({"rope_scaling": table})), 32.0);
}

#[test]
fn untrusted_text_in_errors_is_escaped_and_truncated() {
    let bad = format!("\u{1b}[2J{}", "x".repeat(1_000_000));
    for more in [
        json!({"model_type": bad}),
        json!({"hidden_act": bad}),
        json!({"hidden_size": bad}),
        json!({"eos_token_id": bad}),
        json!({"layer_types": [bad]}),
        json!({"rope_scaling": {"type": bad}}),
        json!({"rope_scaling": {bad.clone(): {}}}),
        json!({"rope_scaling": {"partial_rotary_factor": bad}}),
        json!({"num_key_value_heads": vec![1; 100_000]}),
        json!({"n_embd": vec![1; 100_000]}),
    ] {
        let text = message(with("llama", more));
        assert!(text.len() < 700 && !text.contains('\u{1b}'), "{text}");
    }
}

#[test]
fn invalid_config_values_are_refused_by_name() {
    for (more, says) in [
        (json!({"hidden_size": 0}), "hidden_size is 0"),
        (json!({"hidden_size": 26}), "hidden_size is 26, not a multiple of num_attention_heads, 4"),
        (json!({"num_key_value_heads": 3}), "not a multiple of num_key_value_heads, 3"),
        (json!({"head_dim": 7}), "head_dim is 7"),
        (json!({"max_position_embeddings": 1u64 << 40}), "no model has"),
        (json!({"vocab_size": null}), "no vocab_size"),
        (json!({"vocab_size": 50.5}), "vocab_size is 50.5; expected a whole number"),
        (json!({"vocab_size": -1}), "vocab_size is -1; expected a whole number"),
        (json!({"hidden_size": "24"}), "hidden_size is \"24\"; expected a whole number"),
        (json!({"head_dim": true}), "head_dim is true; expected a whole number"),
        (json!({"mlp_bias": 1}), "mlp_bias is 1; expected true or false"),
        (json!({"layer_types": "full"}), "layer_types is \"full\"; expected a list"),
        (json!({"rms_norm_eps": -1.0}), "epsilon is -1"),
        (json!({"rope_theta": 0.0}), "rope_theta is 0"),
        (json!({"rope_parameters": {"rope_theta": "big"}}), "rope_theta is not a number"),
        (json!({"eos_token_id": -1}), "eos_token_id is -1"),
        (json!({"eos_token_id": [1, "two"]}), "eos_token_id"),
    ] {
        refused(with("llama", more), &[says]);
    }
    refused(ModelConfig::from_json("[]"), &["not a model configuration"]);
}

/// Without it, any context length would run, so transformers' default matters. The other sizes show
/// in the weights' shapes.
#[test]
fn a_missing_context_length_is_transformers_default() {
    for (family, name, context) in [
        ("gpt2", "n_positions", 1024),
        ("llama", "max_position_embeddings", 2048),
        ("qwen2", "max_position_embeddings", 32_768),
        ("qwen3", "max_position_embeddings", 32_768),
    ] {
        let found = with(family, json!({name: null})).unwrap().max_position_embeddings;
        assert_eq!(found, context, "{family}");
    }
}

/// What Python's `json` reads and writes, and the JSON standard doesn't allow.
#[test]
fn pythons_json_is_read() {
    let config = least("llama").to_string();
    let with = |text: &str| {
        let (open, rest) = config.split_at(1);
        ModelConfig::from_json(&format!("{open}{text}, {rest}"))
    };
    let digits = "9".repeat(400);
    for value in ["Infinity", "-Infinity", "NaN", "1e400", "-1e999", &digits] {
        let unread = [value.into(), format!("[0.0, {value}]"), format!("{{\"a\": {value}}}")];
        for unread in unread {
            assert_eq!(
                with(&format!("\"limit\": {unread}")).unwrap(),
                read(&least("llama")).unwrap()
            );
        }
        // No number where one is needed.
        refused(with(&format!("\"rope_theta\": {value}")), &["rope_theta is", "expected a number"]);
    }
    let unread = |text: &str| with(&format!("\"a\": {text}"));
    for text in [
        r#""\ud83d""#,
        r#""\ud83dx\ude00""#,
        r#""\ude00\ud83d""#,
        r#""\\\ud83d""#,
        r#""\"NaN, \ud83d""#,
    ] {
        assert!(unread(text).is_ok(), "{text}");
    }
    for text in
        ["Inf", "nan", "-NaN", "+1", "'a'", "Infinity x", r#""\x41""#, "\"", "01e400x", "[1,]"]
    {
        refused(unread(text), &["not a model configuration"]);
    }
    // Keys that aren't strings, and numbers that JSON writes otherwise.
    for text in
        ["{NaN: 1}", "{1e400: 2}", "{-Infinity\n: 3}", "01e400", "1.e400", "-01e400", "+1e400"]
    {
        refused(unread(text), &["not a model configuration"]);
    }
    let text = format!("{{\"model_type\": \"\\ud83d\\ude00\\ud83d{digits}\", \"a\": NaN}}");
    refused(ModelConfig::from_json(&text), &["model_type is \"😀\u{fffd}999"]);
}

#[test]
fn the_size_is_the_number_of_weights_in_the_matrices() {
    // Attention: q and o are 24 · 24 each, k and v 24 · 12 each. MLP: 3 · 24 · 40. Two layers, plus
    // a table and a head of 50 · 24.
    let config = with("llama", json!({"num_key_value_heads": 2})).unwrap();
    assert_eq!(config.size(), 2 * (2 * 24 * 24 + 2 * 24 * 12 + 3 * 24 * 40) + 2 * 50 * 24);
    // For the embedded models: the matrices in the file, excluding GPT-2's position table.
    for name in ["story-230k", "story-gpt2-1m", "story-3m"] {
        let file = story(name).join("model.safetensors");
        let tensors = candle_core::safetensors::load(file, &candle_core::Device::Cpu).unwrap();
        let matrices = tensors.iter().filter(|(name, t)| t.rank() == 2 && !name.contains("wpe"));
        let in_file: usize = matrices.map(|(_, tensor)| tensor.elem_count()).sum();
        let config = std::fs::read_to_string(story(name).join("config.json")).unwrap();
        assert_eq!(ModelConfig::from_json(&config).unwrap().size(), in_file, "{name}");
    }
}
