//! Tests every key that transformers knows in `generation_config.json`: the note reports it, or it
//! has no effect for a stated reason. The keys come from transformers itself, through the oracle of
//! `crates/formats`, so a new key without an entry fails the test.

use candecode_cli::flags::Args;
use candecode_engine::generation_config::advice;
use clap::Parser as _;
use serde_json::{json, Value as Json};

/// The meaning of a key, with a value that demonstrates it.
enum Means {
    /// The note reports this value.
    Read(Json),
    /// No value changes anything, for this reason.
    Without(&'static str),
}

use Means::{Read, Without};

/// Classifies a key in `generation_config.json`, with a value that requests something.
fn in_generation(key: &str) -> Means {
    match key {
        "temperature" | "top_p" | "min_p" => Read(json!({key: 0.5, "do_sample": true})),
        "top_k" => Read(json!({key: 7, "do_sample": true})),
        "do_sample" => Read(json!({key: true})),
        "repetition_penalty"
        | "length_penalty"
        | "no_repeat_ngram_size"
        | "num_beams"
        | "num_return_sequences"
        | "max_new_tokens"
        | "max_length"
        | "min_length"
        | "min_new_tokens"
        | "max_time"
        | "num_beam_groups"
        | "diversity_penalty"
        | "encoder_repetition_penalty"
        | "encoder_no_repeat_ngram_size"
        | "epsilon_cutoff"
        | "eta_cutoff"
        | "typical_p"
        | "top_h"
        | "guidance_scale"
        | "penalty_alpha"
        | "forced_bos_token_id"
        | "forced_eos_token_id" => Read(json!({key: 7})),
        "early_stopping" | "token_healing" => Read(json!({key: true})),
        "stop_strings" | "dola_layers" => Read(json!({key: "low"})),
        "suppress_tokens"
        | "begin_suppress_tokens"
        | "bad_words_ids"
        | "force_words_ids"
        | "constraints"
        | "exponential_decay_length_penalty" => Read(json!({key: [7]})),
        "sequence_bias" | "watermarking_config" => Read(json!({key: {"a": 7}})),
        "eos_token_id" => Without("read before, as the ids that end a text"),
        "bos_token_id" | "pad_token_id" | "decoder_start_token_id" => {
            Without("the tokenizer puts them into a prompt")
        }
        "_from_model_config" | "transformers_version" => Without("about the file"),
        "output_attentions"
        | "output_hidden_states"
        | "output_logits"
        | "output_scores"
        | "return_dict_in_generate" => Without("what a call returns"),
        "use_cache"
        | "cache_implementation"
        | "cache_config"
        | "max_cache_len"
        | "low_memory"
        | "prefill_chunk_size"
        | "disable_compile"
        | "compile_config"
        | "continuous_batching_config"
        | "renormalize_logits"
        | "remove_invalid_values" => Without("another way to the same numbers"),
        "is_assistant"
        | "use_mtp"
        | "speculation_type"
        | "num_assistant_tokens"
        | "num_assistant_tokens_schedule"
        | "assistant_confidence_threshold"
        | "assistant_early_exit"
        | "assistant_ensemble_weight"
        | "assistant_lookbehind"
        | "target_lookbehind"
        | "prompt_lookup_num_tokens"
        | "max_matching_ngram_size" => Without("of drafts, which change no text"),
        other => panic!("generation_config.json has a key without an entry: {other}"),
    }
}

#[test]
fn every_generation_config_key_is_reported_or_has_no_effect() {
    let args = Args::parse_from(["candecode"]);
    let say = |config: &Json| advice(config, "generation_config.json", &args.settings());
    let oracle = candecode_testing::root().join("crates/formats/tests/oracle/metadata.json");
    let golden: Json = serde_json::from_slice(&std::fs::read(oracle).unwrap()).unwrap();
    for key in golden["generation keys"].as_array().unwrap() {
        let key = key.as_str().unwrap();
        match in_generation(key) {
            Read(config) => {
                let said = say(&config).unwrap_or_default();
                assert!(said.contains(&format!("{key}=")), "{config}: {said}");
            }
            Without(why) => assert_eq!(say(&json!({key: 7})), None, "{key}: {why}"),
        }
    }
    // Unknown keys are also reported, in one line of limited length.
    let said = say(&json!({"new_\u{1b}[2J": "x".repeat(10_000)})).unwrap();
    assert!(said.contains("new_\\u{1b}[2J=") && said.len() < 500, "{said}");
    let many: serde_json::Map<_, _> = (0..100_000).map(|i| (format!("k{i}"), json!(1))).collect();
    let said = say(&many.into()).unwrap();
    assert!(said.contains("99970 more;") && said.len() < 1000, "{said}");
}
