//! Tests of the files next to `tokenizer.json`: the tokens they add, as in transformers, and the
//! settings that are refused.

use candecode_testing::{golden_json, refused, story, Folder};
use serde_json::{json, Value as Json};

#[test]
fn added_tokens_from_other_files_equal_transformers() {
    let golden = golden_json("added_tokens");
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
        assert_eq!(template.special_tokens, *case["names"].as_object().unwrap(), "{name}");
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
        (
            "tokenizer_config.json",
            r#"{"clean_up_tokenization_spaces": true,
                "clean_up_tokenization_spaces_for_bpe_even_though_it_will_corrupt_output": true}"#,
            "clean_up_tokenization_spaces",
        ),
    ] {
        let path = folder.write(file, text);
        refused(candecode_formats::read_tokenizer(&folder.0), &[says]);
        std::fs::remove_file(path).unwrap();
    }
    // For BPE, transformers ignores this flag alone.
    folder.write("tokenizer_config.json", r#"{"clean_up_tokenization_spaces": true}"#);
    candecode_formats::read_tokenizer(&folder.0).unwrap();
}

/// transformers goes by the flag where it builds the tokenizer itself, and by `tokenizer.json`
/// (which adds no space here) where it uses that.
#[test]
fn a_prefix_space_that_only_one_file_wants_is_refused() {
    let folder = Folder::new("prefix-space");
    std::fs::copy(story("story-230k").join("tokenizer.json"), folder.0.join("tokenizer.json"))
        .unwrap();
    for (family, class, flag, refusal) in [
        ("gpt2", "", "true", true),
        ("gpt2", "", "false", false),
        ("gpt2", "", "null", false),
        ("gpt2", "PreTrainedTokenizerFast", "true", false),
        ("llama", "", "true", false),
        ("llama", "GPT2TokenizerFast", "true", true),
        ("qwen2", "PreTrainedTokenizerFast", "true", true),
        ("qwen3", "Qwen2Tokenizer", "true", true),
        // A SentencePiece class on a tokenizer of bytes is a mistake that transformers corrects.
        ("llama", "LlamaTokenizerFast", "true", false),
    ] {
        let class = if class.is_empty() { "null".into() } else { format!("\"{class}\"") };
        folder.write("config.json", format!(r#"{{"model_type": "{family}"}}"#));
        let text = format!(r#"{{"tokenizer_class": {class}, "add_prefix_space": {flag}}}"#);
        folder.write("tokenizer_config.json", text);
        let read = candecode_formats::read_tokenizer(&folder.0);
        match refusal {
            true => refused(read, &["tokenizer_config.json: add_prefix_space is true"]),
            false => assert_eq!(read.unwrap().encode("Once").unwrap(), [428], "{family} {class}"),
        }
    }
    // A SentencePiece tokenizer that puts a space in front.
    let vocab = json!({"<unk>": 0, "▁": 1, "a": 2});
    let model = json!({"type": "BPE", "vocab": vocab, "merges": [], "unk_token": "<unk>"});
    let prepend = json!({"type": "Prepend", "prepend": "▁"});
    folder.write("tokenizer.json", json!({"model": model, "normalizer": prepend}).to_string());
    for (flag, refusal) in [(false, true), (true, false)] {
        let config = json!({"tokenizer_class": "LlamaTokenizer", "add_prefix_space": flag});
        folder.write("tokenizer_config.json", config.to_string());
        let read = candecode_formats::read_tokenizer(&folder.0);
        match refusal {
            true => refused(read, &["add_prefix_space is false"]),
            false => assert_eq!(read.unwrap().encode("a").unwrap(), [1, 2]),
        }
    }
}
