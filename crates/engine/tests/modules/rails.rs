//! Tests that guard rails are refused where a token's bytes are unknown.

use candecode::kit::{SamplingParams, Tokenizer};
use candecode_engine::requests;
use candecode_testing::{refused, story};
use serde_json::{json, Value};

/// Returns a tokenizer with about twenty tokens and this decoder. Tokens 18 and 19 were added by
/// name.
fn with_decoder(decoder: &Value) -> Tokenizer {
    let pieces = [
        "a", "▁the", "Ġdog", "##s", "é", "Ġ", "▁", "x</w>", ".", "n't", "<0x0A>", "<0xC3>",
        "<0xA9>", "▁▁b", " c ", "do not", "日", "'m",
    ];
    let vocab: Value = pieces.iter().enumerate().map(|(id, piece)| (*piece, id)).collect();
    let added = |id: u32, name: &str| json!({"id": id, "content": name, "single_word": false, "lstrip": true, "rstrip": true, "normalized": true, "special": id == 19});
    let parts = json!({
        "version": "1.0", "truncation": null, "padding": null, "normalizer": null, "pre_tokenizer": null,
        "post_processor": null, "added_tokens": [added(18, "<é\n▁Ġ>"), added(19, "<end>")], "decoder": decoder,
        "model": {"type": "WordLevel", "vocab": vocab, "unk_token": "a"},
    });
    Tokenizer::from_bytes(parts.to_string().as_bytes()).unwrap()
}

/// The decoder is unknown, or decodes a token differently depending on its neighbors.
#[test]
fn rails_are_refused_for_unsupported_decoders() {
    let replace = |pattern: Value| json!({"type": "Replace", "pattern": pattern, "content": " "});
    let sequence = |parts: &[Value]| json!({"type": "Sequence", "decoders": parts});
    let (fallback, fuse) = (json!({"type": "ByteFallback"}), json!({"type": "Fuse"}));
    let strip = json!({"type": "Strip", "content": " ", "start": 0, "stop": 1});
    let byte_level = json!({"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": true, "use_regex": true});
    let ctc =
        json!({"type": "CTC", "pad_token": "<pad>", "word_delimiter_token": "|", "cleanup": true});
    for (decoder, reason) in [
        (Value::Null, "it has no decoder, and joins tokens with spaces"),
        (json!({"type": "BPEDecoder", "suffix": "</w>"}), "its BPEDecoder decoder"),
        (ctc, "its CTC decoder"),
        (replace(json!({"Regex": "▁+"})), "its Replace decoder"),
        (sequence(&[fuse.clone(), replace(json!({"String": "ab"}))]), "its Replace decoder"),
        (sequence(&[fallback.clone(), replace(json!({"String": "é"}))]), "its Replace decoder"),
        (sequence(&[byte_level.clone(), replace(json!({"String": "é"}))]), "its Replace decoder"),
        (sequence(&[fuse.clone(), strip.clone()]), "its Strip decoder"),
        (sequence(&[fallback.clone(), strip]), "its Strip decoder"),
        (sequence(&[fuse.clone(), byte_level]), "its ByteLevel decoder"),
        (sequence(&[fuse, fallback]), "its ByteFallback decoder"),
    ] {
        let tokenizer = with_decoder(&decoder);
        let config = candecode_formats::read_config(&story("story-230k")).unwrap();
        let words = SamplingParams { block: vec!["dog".into()], ..Default::default() };
        let regex = SamplingParams { allow_regex: Some("dog".into()), ..Default::default() };
        for params in [words, regex] {
            let processors = requests::processors(&params, &tokenizer, &config).map(|_| ());
            refused(processors, &["--block and --allow-regex", reason]);
        }
        requests::processors(&SamplingParams::default(), &tokenizer, &config).unwrap();
        // The token's own text is still known, for use with logprobs.
        assert_eq!(tokenizer.token_bytes(0), b"a");
    }
}
