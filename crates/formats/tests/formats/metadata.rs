//! Tests every key that transformers, llama.cpp and its Python package know in a model's files, and
//! its meaning here: it is read, rejected, reported, or has no effect for a stated reason. The keys
//! come from the packages themselves (`oracle/metadata.py`), so a new key without an entry
//! fails the test.

use crate::message;
use candecode_formats::ModelFiles;
use candecode_kit::ModelConfig;
use candecode_testing::{golden_json, least_config, refused, story, Folder, GgufParts};
use candle_core::quantized::gguf_file::Value;
use candle_core::quantized::GgmlDType;
use serde_json::{json, Value as Json};

/// The meaning of a key, with a value that demonstrates it.
enum Means<T> {
    /// The key is read: this value changes the model, or is rejected.
    Read(T),
    /// Any value that could change something is rejected.
    Refused,
    /// No value changes anything, for this reason.
    Without(&'static str),
}

use Means::{Read, Refused, Without};

fn golden() -> Json {
    golden_json("metadata")
}

fn texts(list: &Json) -> Vec<&str> {
    list.as_array().unwrap().iter().map(|text| text.as_str().unwrap()).collect()
}

/// Classifies a key in a GGUF file's metadata. Keys of an architecture come without its name.
fn in_gguf(key: &str) -> Means<Value> {
    let text = |text: &str| Read(Value::String(text.into()));
    let list = |values: Vec<Value>| Read(Value::Array(values));
    match key {
        "context_length" | "embedding_length" | "feed_forward_length" => Read(Value::U32(128)),
        "block_count" => Read(Value::U32(1)),
        "expert_count" => Read(Value::U32(8)),
        "attention.head_count" => Read(Value::U32(4)),
        "attention.head_count_kv" => Read(Value::U32(2)),
        "attention.key_length" | "attention.value_length" | "rope.dimension_count" => {
            Read(Value::U32(16))
        }
        "attention.layer_norm_rms_epsilon" | "attention.scale" => Read(Value::F32(0.5)),
        "attention.sliding_window" => Read(Value::U32(16)),
        "rope.freq_base" => Read(Value::F32(500.0)),
        "rope.scaling.type" => text("yarn"),
        "rope.scaling.factor" | "rope.scale_linear" => Read(Value::F32(4.0)),

        "attention.layer_norm_epsilon" => Without("GPT-2 has LayerNorm, the others RMSNorm"),
        "vocab_size" => Without("the embedding table says it"),
        "tensor_data_layout" => Without("it is the same in every file that llama.cpp reads"),
        "pooling_type" | "classifier.output_labels" | "classifier.pooling_type" => {
            Without("of embeddings and classifiers")
        }
        "leading_dense_block_count"
        | "expert_feed_forward_length"
        | "expert_shared_feed_forward_length"
        | "expert_chunk_feed_forward_length"
        | "expert_used_count"
        | "expert_shared_count"
        | "expert_group_count"
        | "expert_group_used_count"
        | "expert_weights_scale"
        | "expert_weights_norm"
        | "expert_gating_func"
        | "expert_group_scale"
        | "experts_per_group"
        | "moe_every_n_layers"
        | "interleave_moe_layer_step"
        | "router_logit_softcapping" => Without("there are no experts: expert_count is refused"),
        "attention.sliding_window_pattern"
        | "attention.key_length_swa"
        | "attention.value_length_swa"
        | "rope.dimension_count_swa"
        | "rope.freq_base_swa" => {
            Without("there is no window: attention.sliding_window is refused")
        }
        "rope.scaling.original_context_length"
        | "rope.scaling.yarn_log_multiplier"
        | "rope.scaling.yarn_beta_fast"
        | "rope.scaling.yarn_beta_slow" => Without("of YaRN: rope.scaling.type is refused"),
        "rope.scaling.finetuned" => Without("it says how the model was trained"),

        "general.type" => text("adapter"),
        "general.architecture" => text("gemma3"),
        "general.alignment" => Read(Value::U32(0)),
        "general.quantization_version" => Without("these tensors are not quantized"),
        "general.sampling.sequence" => text("top_k"),
        key if key.starts_with("general.sampling.") => Read(Value::F32(0.5)),
        key if key.starts_with("general.") => Without("about the file"),
        "split.count" => Read(Value::U16(3)),
        "split.no" | "split.tensors.count" => Without("of files in parts: split.count is refused"),
        key if key.starts_with("imatrix.") => Without("of files that help to quantize"),

        "tokenizer.ggml.model" => text("bert"),
        "tokenizer.ggml.pre" => text("tekken"),
        "tokenizer.ggml.tokens" => list(vec![Value::String("a".into())]),
        "tokenizer.ggml.token_type" => list(vec![Value::I32(1)]),
        "tokenizer.ggml.merges" => list(vec![]),
        "tokenizer.ggml.bos_token_id"
        | "tokenizer.ggml.eos_token_id"
        | "tokenizer.ggml.eot_token_id"
        | "tokenizer.ggml.eom_token_id"
        | "tokenizer.ggml.fim_pad_token_id"
        | "tokenizer.ggml.fim_rep_token_id"
        | "tokenizer.ggml.fim_sep_token_id" => Read(Value::U32(5)),
        "tokenizer.ggml.add_bos_token" | "tokenizer.ggml.add_eos_token" => Read(Value::Bool(true)),
        "tokenizer.ggml.suppress_tokens" => list(vec![Value::I32(5)]),
        "tokenizer.chat_template" => text("{{ messages[0].content }}"),
        "tokenizer.chat_template.{name}" | "tokenizer.chat_templates" => {
            Without("templates for other uses; the one without a name counts")
        }
        "tokenizer.ggml.scores"
        | "tokenizer.ggml.unknown_token_id"
        | "tokenizer.ggml.add_space_prefix" => Without("of SentencePiece, where they are read"),
        "tokenizer.ggml.remove_extra_whitespaces" | "tokenizer.ggml.precompiled_charsmap" => {
            Without("of Unigram (T5): tokenizer.ggml.model is refused")
        }
        "tokenizer.ggml.add_sep_token"
        | "tokenizer.ggml.token_type_count"
        | "tokenizer.ggml.normalizer.lowercase"
        | "tokenizer.ggml.normalizer.strip_accents" => {
            Without("of WordPiece (BERT): tokenizer.ggml.model is refused")
        }
        "tokenizer.ggml.seperator_token_id"
        | "tokenizer.ggml.padding_token_id"
        | "tokenizer.ggml.cls_token_id"
        | "tokenizer.ggml.mask_token_id" => Without("names of tokens that a decoder doesn't use"),
        "tokenizer.ggml.fim_pre_token_id"
        | "tokenizer.ggml.fim_suf_token_id"
        | "tokenizer.ggml.fim_mid_token_id"
        | "tokenizer.ggml.prefix_token_id"
        | "tokenizer.ggml.suffix_token_id"
        | "tokenizer.ggml.middle_token_id" => Without("for filling gaps in code"),
        "tokenizer.huggingface.json" | "tokenizer.rwkv.world" => {
            Without("llama.cpp doesn't read them for these models")
        }
        _ => Refused, // any other key of the architecture
    }
}

/// Returns everything read from a model's files, or the error message.
fn model(path: &std::path::Path) -> String {
    let read = || -> anyhow::Result<String> {
        let files = ModelFiles::at(path)?;
        let tokenizer = files.tokenizer()?;
        let ids = tokenizer.encode("Once upon 12 <|endoftext|>")?;
        let template = files.chat_template()?;
        Ok(format!("{:?} {ids:?} {template:?} {:?}", files.config(), files.generation_config()))
    };
    read().unwrap_or_else(|error| message::<()>(Err(error)))
}

#[test]
fn every_gguf_key_is_read_or_refused_or_has_no_effect() {
    let folder = Folder::new("metadata-gguf");
    // Only the embedding table is needed, because no weights are read.
    let plain_parts = GgufParts::of("story-230k").with_tensors(&["token_embd.weight"]);
    let write =
        |key: &str, value| plain_parts.clone().set(key, value).write(&folder, GgmlDType::BF16);
    let plain = model(&write("nothing", None));
    assert!(plain.contains("ModelConfig"), "{plain}");
    let all = golden();
    let keys = texts(&all["gguf keys"]);
    assert!(keys.len() > 250, "{} keys", keys.len());
    for name in keys {
        let own = ["general.", "tokenizer.", "split.", "imatrix."];
        let other = ["adapter.", "clip.", "diffusion.", "xielu."];
        let has = |starts: &[&str]| starts.iter().any(|start| name.starts_with(start));
        let key = if has(&own) || has(&other) { name.to_string() } else { format!("qwen2.{name}") };
        match in_gguf(name) {
            Read(value) => assert_ne!(model(&write(&key, Some(value))), plain, "{key}"),
            Refused => {
                let said = model(&write(&key, Some(Value::U32(7))));
                assert!(said.contains(&format!("{key} is 7")), "{key}: {said}");
                if !has(&other) {
                    let none = if name == "attention.causal" { 1 } else { 0 };
                    let none = if name.ends_with("attn_factor") { 1 } else { none };
                    assert_eq!(model(&write(&key, Some(Value::U32(none)))), plain, "{key}");
                }
            }
            Without(why) => {
                assert_eq!(model(&write(&key, Some(Value::U32(7)))), plain, "{key}: {why}");
            }
        }
    }
}

/// Classifies a key in `config.json`, with a change that shows it is read.
fn in_config(family: &str, key: &str) -> Means<Json> {
    let gpt2 = family == "gpt2";
    let qwen = family.starts_with("qwen");
    let window = json!({"use_sliding_window": true, "sliding_window": 8, "max_window_layers": 0});
    let llama3 = json!({"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0});
    match key {
        "model_type" => Read(json!({key: "mamba"})),
        "vocab_size" => Read(json!({key: 51})),
        "hidden_size" | "n_embd" => Read(json!({key: 48})),
        "intermediate_size" | "n_inner" => Read(json!({key: 80})),
        "num_hidden_layers" | "n_layer" => Read(json!({key: 3})),
        "num_attention_heads" | "n_head" => Read(json!({key: 2})),
        "num_key_value_heads" => Read(json!({key: 2})),
        "head_dim" => Read(json!({key: 10})),
        "max_position_embeddings" | "n_positions" => Read(json!({key: 64})),
        "rms_norm_eps" | "layer_norm_epsilon" => Read(json!({key: 0.5})),
        "hidden_act" | "activation_function" => Read(json!({key: "relu"})),
        "attention_bias" | "mlp_bias" => Read(json!({key: true})),
        "tie_word_embeddings" => Read(json!({key: !gpt2})),
        "eos_token_id" => Read(json!({key: 7})),
        "rope_theta" | "rope_scaling" | "rope_parameters" | "original_max_position_embeddings"
            if gpt2 =>
        {
            Without("GPT-2 learns its positions")
        }
        "rope_theta" => Read(json!({key: 5.0})),
        "rope_scaling" | "rope_parameters" => Read(json!({key: llama3})),
        "original_max_position_embeddings" => Read(json!({key: 4, "rope_scaling": llama3})),
        "partial_rotary_factor" => Read(json!({key: 0.5})),
        "scale_attn_weights" | "is_causal" => Read(json!({key: false})),
        "scale_attn_by_inverse_layer_idx" | "is_encoder_decoder" => Read(json!({key: true})),
        "per_layer_config" => Read(json!({key: {"0": {"head_dim": 2}}})),
        "layer_types" => Read(json!({key: ["full_attention", "sliding_attention"]})),
        "use_sliding_window" | "max_window_layers" | "sliding_window" if qwen => Read(window),
        "sliding_window" | "attention_chunk_size" => Read(json!({key: 8})),
        "use_sliding_window" => Without("Qwen's switch"),
        "quantization_config" => Read(json!({key: {"quant_method": "gptq"}})),

        "_name_or_path" | "architectures" | "transformers_version" => Without("about the file"),
        "dtype" | "torch_dtype" => Without("--dtype says it, or the weights"),
        "attention_dropout" | "attn_pdrop" | "embd_pdrop" | "resid_pdrop" | "initializer_range" => {
            Without("of training")
        }
        "attn_implementation"
        | "use_cache"
        | "chunk_size_feed_forward"
        | "pretraining_tp"
        | "reorder_and_upcast_attn" => Without("another way to the same numbers"),
        "output_hidden_states" | "return_dict" => Without("what a call returns"),
        "id2label"
        | "label2id"
        | "problem_type"
        | "summary_activation"
        | "summary_first_dropout"
        | "summary_proj_to_labels"
        | "summary_type"
        | "summary_use_proj" => Without("of heads for other tasks"),
        "bos_token_id" | "pad_token_id" => Without("the tokenizer puts them into a prompt"),
        "add_cross_attention" => Without("of a decoder behind an encoder; its tensors are refused"),
        other => panic!("config.json has a key without an entry: {other} ({family})"),
    }
}

#[test]
fn every_config_key_is_read_or_has_no_effect() {
    for family in ["gpt2", "llama", "qwen2", "qwen3"] {
        let with = |more: &Json| {
            let mut config = least_config(family);
            config.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            let read = ModelConfig::from_json(&config.to_string());
            read.map_or_else(|e| message::<()>(Err(e)), |config| format!("{config:?}"))
        };
        let plain = with(&json!({}));
        assert!(plain.contains("ModelConfig"), "{plain}");
        for key in texts(&golden()["config keys"][family]) {
            match in_config(family, key) {
                Read(more) => assert_ne!(with(&more), plain, "{family}: {more}"),
                Refused => unreachable!("a key that is refused is read"),
                Without(why) => {
                    for value in [json!(true), json!(7), json!("seven"), json!({"a": 1})] {
                        assert_eq!(with(&json!({key: value})), plain, "{family}: {key}: {why}");
                    }
                }
            }
        }
    }
}

/// Keys of the RoPE table are either read, or belong to kinds of scaling that are rejected.
#[test]
fn every_rope_key_is_read_or_belongs_to_a_refused_kind() {
    let llama3 = json!({"rope_type": "llama3", "rope_theta": 500.0, "factor": 8.0, "low_freq_factor": 1.0,
        "high_freq_factor": 4.0, "original_max_position_embeddings": 16});
    let with = |key: &str, value: Json| {
        let (mut config, mut table) = (least_config("llama"), llama3.clone());
        table[key] = value;
        config["rope_parameters"] = table;
        let read = ModelConfig::from_json(&config.to_string());
        read.map_or_else(|e| message::<()>(Err(e)), |config| format!("{config:?}"))
    };
    let plain = with("rope_type", json!("llama3"));
    assert!(plain.contains("Llama3Scaling"), "{plain}");
    for key in texts(&golden()["rope keys"]) {
        let same = with(key, json!(2.0)) == plain;
        match key {
            "rope_type"
            | "rope_theta"
            | "factor"
            | "low_freq_factor"
            | "high_freq_factor"
            | "original_max_position_embeddings"
            | "partial_rotary_factor" => {
                assert!(!same, "{key}");
            }
            "attention_factor" | "beta_fast" | "beta_slow" | "mscale" | "mscale_all_dim"
            | "truncate" | "short_factor" | "long_factor" => {
                assert!(same, "{key}: YaRN's, LongRoPE's")
            }
            "mrope_section" => assert!(same, "{key}: a text has one kind of positions"),
            other => panic!("a key without an entry: {other}"),
        }
    }
}

/// Classifies a key in `tokenizer_config.json`.
fn in_tokenizer_config(key: &str) -> Means<Json> {
    match key {
        "bos_token" | "eos_token" | "unk_token" | "sep_token" | "pad_token" | "cls_token"
        | "mask_token" => Read(json!({key: "<x>"})),
        "additional_special_tokens" | "extra_special_tokens" => Read(json!({key: ["<x>"]})),
        "model_specific_special_tokens" => Without("saved as the tokens that it names"),
        "added_tokens_decoder" => Read(json!({key: {"2048": {"content": "<x>"}}})),
        "split_special_tokens" => Read(json!({key: true})),
        "chat_template" => Read(json!({key: "{{ messages }}"})),
        "clean_up_tokenization_spaces_for_bpe_even_though_it_will_corrupt_output" => {
            Read(json!({key: true, "clean_up_tokenization_spaces": true}))
        }
        "clean_up_tokenization_spaces" => Without("transformers ignores it for BPE"),
        "add_bos_token"
        | "add_eos_token"
        | "add_prefix_space"
        | "unk_id"
        | "vocab"
        | "merges"
        | "vocab_file"
        | "gguf_file"
        | "tokenizer"
        | "tokenizer_file"
        | "tokenizer_object"
        | "tokenizer_padding"
        | "tokenizer_truncation"
        | "post_processor"
        | "_json_padding"
        | "_json_truncation"
        | "_spm_precompiled_charsmap"
        | "fix_mistral_regex" => Without("tokenizer.json says it"),
        "max_len"
        | "max_length"
        | "model_max_length"
        | "stride"
        | "truncation_side"
        | "truncation_strategy"
        | "padding_side"
        | "pad_to_multiple_of"
        | "pad_token_type_id"
        | "model_input_names" => Without("of batches that are cut and padded"),
        "chat_control_tokens" | "response_schema" | "response_template" => {
            Without("of answers that are taken apart")
        }
        "backend" | "files_loaded" | "name_or_path" | "processor_class" | "verbose" => {
            Without("about the file")
        }
        other => panic!("tokenizer_config.json has a key without an entry: {other}"),
    }
}

#[test]
fn every_tokenizer_config_key_is_read_or_has_no_effect() {
    let folder = Folder::new("metadata-tokenizer");
    for file in ["config.json", "tokenizer.json", "model.safetensors"] {
        std::fs::copy(story("story-230k").join(file), folder.0.join(file)).unwrap();
    }
    let with = |config: &Json| {
        folder.write("tokenizer_config.json", config.to_string());
        let ids = candecode_formats::read_tokenizer(&folder.0)
            .map(|t| t.encode("a<x>b <|endoftext|>").unwrap());
        let ids = ids.map_or_else(|error| message::<()>(Err(error)), |ids| format!("{ids:?}"));
        format!("{ids} {}", model(&folder.0))
    };
    let plain = with(&json!({}));
    assert!(plain.contains("ModelConfig"), "{plain}");
    for key in texts(&golden()["tokenizer keys"]) {
        match in_tokenizer_config(key) {
            Read(config) => assert_ne!(with(&config), plain, "{config}"),
            Refused => unreachable!("a key that is refused is read"),
            Without(why) => assert_eq!(with(&json!({key: true})), plain, "{key}: {why}"),
        }
    }
}

#[test]
fn added_tokens_from_other_files_equal_transformers() {
    let golden = golden();
    for (name, case) in golden["added tokens"].as_object().unwrap() {
        let folder = Folder::new("added-tokens");
        let bytes = std::fs::read(story("story-230k").join("tokenizer.json")).unwrap();
        let mut tokenizer: Json = serde_json::from_slice(&bytes).unwrap();
        let more = case["files"]["added"].as_array().cloned().unwrap_or_default();
        tokenizer["added_tokens"].as_array_mut().unwrap().extend(more);
        folder.write("tokenizer.json", tokenizer.to_string());
        let files = case["files"].as_object().unwrap();
        for (file, text) in files.iter().filter(|(file, _)| *file != "added") {
            folder.write(file, text.to_string());
        }
        let tokenizer = candecode_formats::read_tokenizer(&folder.0).unwrap();
        for text in case["texts"].as_array().unwrap() {
            let ids: Vec<u32> = serde_json::from_value(text[1].clone()).unwrap();
            let [written, shown] = [&text[0], &text[2]].map(|text| text.as_str().unwrap());
            assert_eq!(tokenizer.encode(written).unwrap(), ids, "{name}: {written}");
            assert_eq!(tokenizer.decode(&ids).unwrap(), shown, "{name}: {written}");
        }
        let template = candecode_formats::chat_template(&folder.0).unwrap();
        let names = case["names"].as_object().unwrap();
        for (key, token) in names {
            let found = template.special_tokens.get(key);
            // Names in a table of extra tokens exist only in transformers.
            assert!(found == Some(token) || key == "image_token", "{name}: {key} is {found:?}");
        }
        let extra = template.special_tokens.keys().find(|key| !names.contains_key(*key));
        assert_eq!(extra, None, "{name}");
    }
}

#[test]
fn invalid_token_settings_are_refused_by_file_and_key() {
    let folder = Folder::new("odd-tokens");
    std::fs::copy(story("story-230k").join("tokenizer.json"), folder.0.join("tokenizer.json"))
        .unwrap();
    for (file, text, says) in [
        ("tokenizer_config.json", r#"{"added_tokens_decoder": []}"#, "added_tokens_decoder"),
        ("tokenizer_config.json", r#"{"added_tokens_decoder": {"x": "<a>"}}"#, "token x"),
        ("tokenizer_config.json", r#"{"added_tokens_decoder": {"5": 7}}"#, "token 5"),
        ("tokenizer_config.json", r#"{"additional_special_tokens": 7}"#, "are 7"),
        ("tokenizer_config.json", r#"{"eos_token": {"text": "a"}}"#, "eos_token"),
        ("tokenizer_config.json", "[]", "tokenizer_config.json: expected a JSON object"),
        ("special_tokens_map.json", "[]", "special_tokens_map.json: expected a JSON object"),
        ("added_tokens.json", r#"{"<a>": "x"}"#, "added_tokens.json: not a table of ids"),
        ("tokenizer_config.json", r#"{"split_special_tokens": true}"#, "split_special_tokens"),
    ] {
        let path = folder.write(file, text);
        refused(candecode_formats::read_tokenizer(&folder.0), &[says]);
        std::fs::remove_file(path).unwrap();
    }
}
