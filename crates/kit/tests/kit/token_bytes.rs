//! Checks that a token's bytes are exactly what decoding adds to a text.

use candecode_kit::Tokenizer;
use candecode_testing::{golden_json, story, tiny, Random};
use serde_json::{json, Value};

fn read(parts: &Value) -> Tokenizer {
    Tokenizer::from_bytes(parts.to_string().as_bytes()).unwrap()
}

fn bytes(tokenizer: &Tokenizer, ids: &[u32]) -> Vec<u8> {
    ids.iter().flat_map(|id| tokenizer.token_bytes(*id)).collect()
}

/// Checks that random ids after `start` decode to its text followed by their own bytes. Bytes that
/// aren't valid text are skipped, since decoders show them differently. Returns the number of
/// `tries` that were text.
fn bytes_are_the_text(tokenizer: &Tokenizer, start: &[u32], tries: usize) -> usize {
    let (mut random, mut texts) = (Random::new(31), 0);
    let vocabulary = tokenizer.vocab_size();
    let before = tokenizer.decode(start).unwrap();
    for _ in 0..tries {
        let new: Vec<u32> =
            (0..random.below(5) + 1).map(|_| random.below(vocabulary) as u32).collect();
        let Ok(text) = String::from_utf8(bytes(tokenizer, &new)) else { continue };
        let whole = tokenizer.decode(&[start, &new].concat()).unwrap();
        assert_eq!(whole, format!("{before}{text}"), "{new:?} after {start:?}");
        texts += 1;
    }
    texts
}

#[test]
fn of_every_model_here() {
    let folders = ["story-230k", "story-3m", "story-gpt2-1m"].map(story);
    for folder in folders.into_iter().chain([tiny("sentencepiece")]) {
        let json = std::fs::read(folder.join("tokenizer.json")).unwrap();
        let tokenizer = Tokenizer::from_bytes(&json).unwrap();
        tokenizer.check_token_bytes().unwrap();
        let start: Vec<u32> =
            (1..8).filter(|id| !tokenizer.token_bytes(*id).is_empty()).take(3).collect();
        assert!(bytes_are_the_text(&tokenizer, &start, 400) > 100, "{}", folder.display());
    }
}

/// Llama's vocabulary has `Ġ` as a letter, and its own spelling for spaces and bytes.
#[test]
fn of_real_vocabularies() {
    let golden = golden_json("vocabularies");
    for name in ["llama", "gpt2"] {
        let tokenizer = read(&golden[name]["tokenizer"]);
        tokenizer.check_token_bytes().unwrap();
        let cases = golden[name]["cases"].as_array().unwrap();
        for case in cases {
            let ids: Vec<u32> = serde_json::from_value(case["ids"].clone()).unwrap();
            let text = case["text"].as_str().unwrap();
            assert_eq!(bytes(&tokenizer, &ids), text.as_bytes(), "{name}: {ids:?}");
        }
        assert!(cases.len() > 100);
        let start: Vec<u32> = serde_json::from_value(golden[name]["start"].clone()).unwrap();
        assert!(bytes_are_the_text(&tokenizer, &start, 400) > 100, "{name}");
    }
    let llama = read(&golden["llama"]["tokenizer"]);
    let id = (0..1000).find(|id| llama.piece(*id).as_deref() == Some("Ġ")).unwrap();
    assert_eq!(llama.token_bytes(id), "Ġ".as_bytes());
    let gpt2 = read(&golden["gpt2"]["tokenizer"]);
    let id = (0..1000).find(|id| gpt2.piece(*id).as_deref() == Some("Ġ")).unwrap();
    assert_eq!(gpt2.token_bytes(id), b" ");
}

/// Returns a tokenizer with about twenty tokens and this decoder. Tokens 18 and 19 were added by
/// name.
fn with_decoder(decoder: &Value) -> Tokenizer {
    let pieces = [
        "a", "▁the", "Ġdog", "##s", "é", "Ġ", "▁", "x</w>", ".", "n't", "<0x0A>", "<0xC3>",
        "<0xA9>", "▁▁b", " c ", "do not", "日", "'m",
    ];
    let vocab: Value = pieces.iter().enumerate().map(|(id, piece)| (*piece, id)).collect();
    let added = |id: u32, name: &str| json!({"id": id, "content": name, "single_word": false, "lstrip": true, "rstrip": true, "normalized": true, "special": id == 19});
    read(&json!({
        "version": "1.0", "truncation": null, "padding": null, "normalizer": null, "pre_tokenizer": null,
        "post_processor": null, "added_tokens": [added(18, "<é\n▁Ġ>"), added(19, "<end>")], "decoder": decoder,
        "model": {"type": "WordLevel", "vocab": vocab, "unk_token": "a"},
    }))
}

#[test]
fn token_bytes_match_the_text_for_per_token_decoders() {
    let replace = |from: &str, to: &str| json!({"type": "Replace", "pattern": {"String": from}, "content": to});
    let sequence = |parts: &[Value]| json!({"type": "Sequence", "decoders": parts});
    let (fallback, fuse) = (json!({"type": "ByteFallback"}), json!({"type": "Fuse"}));
    let strip = |start: u32, stop: u32| json!({"type": "Strip", "content": " ", "start": start, "stop": stop});
    let byte_level = json!({"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": true, "use_regex": true});
    let metaspace = |scheme: &str| json!({"type": "Metaspace", "replacement": "▁", "prepend_scheme": scheme, "split": true});
    let word_piece =
        |cleanup: bool| json!({"type": "WordPiece", "prefix": "##", "cleanup": cleanup});
    for decoder in [
        byte_level.clone(),
        fuse.clone(),
        metaspace("always"),
        metaspace("never"),
        metaspace("first"),
        word_piece(true),
        word_piece(false),
        sequence(&[replace("▁", " "), fallback.clone(), fuse.clone(), strip(1, 0)]),
        sequence(&[replace("▁", " "), fallback.clone(), fuse.clone()]),
        sequence(&[sequence(&[replace("▁", " ")]), sequence(&[fallback.clone(), fuse.clone()])]),
        sequence(&[fallback.clone(), fuse.clone(), replace("x", "yz")]),
        sequence(&[fuse.clone(), replace("▁", " ")]),
        sequence(&[strip(1, 0), replace("</w>", " "), word_piece(true)]),
        sequence(&[replace("▁", " "), metaspace("always"), fuse.clone()]),
        sequence(&[byte_level.clone(), replace(".", "!"), strip(1, 0)]),
        sequence(&[]),
    ] {
        let tokenizer = with_decoder(&decoder);
        tokenizer.check_token_bytes().unwrap();
        assert!(bytes_are_the_text(&tokenizer, &[0, 8, 0], 300) > 100, "{decoder}");
        assert_eq!(tokenizer.token_bytes(19), b"", "special");
    }
}
