//! Tests of `tokenizer_config.json`: the special tokens that it names, and those that
//! `tokenizer.json` must have.

use candecode_testing::{copy_of, refused};
use serde_json::json;

#[test]
fn special_tokens_have_the_names_of_the_file() {
    let folder = copy_of("story-230k", "names");
    let eos = json!({"content": "<|endoftext|>", "special": true});
    let config =
        json!({"eos_token": eos, "bos_token": null, "pad_token": "<pad>", "add_bos_token": true});
    folder.write("tokenizer_config.json", config.to_string());
    let template = candecode_formats::chat_template(&folder.0).unwrap();
    let names = json!({"eos_token": "<|endoftext|>", "pad_token": "<pad>"});
    assert_eq!(template.special_tokens, *names.as_object().unwrap());
    folder.write("tokenizer_config.json", "[]");
    let template = candecode_formats::chat_template(&folder.0);
    refused(template, &["tokenizer_config.json: expected a JSON object"]);
}

#[test]
fn a_declared_token_that_the_tokenizer_lacks_is_named() {
    let folder = copy_of("story-230k", "declared");
    let declare = |token: &str| {
        let token = json!({"content": token, "special": true});
        let config = json!({"added_tokens_decoder": {"2048": token}});
        folder.write("tokenizer_config.json", config.to_string());
        candecode_formats::read_tokenizer(&folder.0)
    };
    declare("<|endoftext|>").unwrap();
    refused(declare("<|im_end|>"), &["tokenizer_config.json", "<|im_end|>", "save_pretrained"]);
}
