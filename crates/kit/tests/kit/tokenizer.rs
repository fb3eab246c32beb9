//! Tests of encoding text to ids, and of decoding ids.

use candecode_kit::Tokenizer;
use candecode_testing::{story, Random};

/// Returns the embedded models' tokenizer.
fn tokenizer() -> candle_core::Result<Tokenizer> {
    Tokenizer::from_bytes(&std::fs::read(story("story-3m").join("tokenizer.json"))?)
}

/// Returns characters of one to four bytes, including combining and control characters. U+FFFD is
/// excluded, because it stands for broken text.
fn text(random: &mut Random) -> String {
    let ranges = [
        (0x20, 0x7e),
        (0x61, 0x7a),
        (0x20, 0x20),
        (0x09, 0x0d),
        (0xa0, 0x17f),
        (0x300, 0x36f),
        (0x370, 0x3ff),
        (0x590, 0x6ff),
        (0x4e00, 0x9fff),
        (0x1f300, 0x1faff),
        (0xe000, 0xe0ff),
        (0x10_ff00, 0x10_fffd),
    ];
    let len = random.below(40);
    let one = |_| {
        let (low, high) = ranges[random.below(ranges.len())];
        char::from_u32(low + random.below((high - low + 1) as usize) as u32).unwrap()
    };
    (0..len).map(one).collect()
}

#[test]
fn any_text_round_trips_through_its_ids() {
    let (tokenizer, mut random) = (tokenizer().unwrap(), Random::new(11));
    for _ in 0..500 {
        let text = text(&mut random);
        let ids = tokenizer.encode(&text).unwrap();
        assert_eq!(tokenizer.decode(&ids).unwrap(), text);
        assert!(ids.iter().all(|id| (*id as usize) < tokenizer.vocab_size()));
        let bytes: Vec<u8> = ids.iter().flat_map(|id| tokenizer.token_bytes(*id)).collect();
        assert_eq!(bytes, text.as_bytes(), "the bytes of the tokens are those of the text");
    }
}

#[test]
fn special_tokens_have_no_text() {
    let tokenizer = tokenizer().unwrap();
    let ids = tokenizer.encode("The end<|endoftext|>").unwrap();
    assert_eq!(ids.last(), Some(&0));
    assert_eq!(tokenizer.decode(&ids).unwrap(), "The end");
    assert!(tokenizer.token_bytes(0).is_empty());
    assert!(tokenizer.token_bytes(1 << 20).is_empty());
}

/// A vocabulary in SentencePiece's style: `▁` for a space, and bytes for unknown characters.
const SENTENCE_PIECE: &str = r#"{
  "version": "1.0", "truncation": null, "padding": null, "normalizer": null, "pre_tokenizer": null, "post_processor": null,
  "added_tokens": [
    {"id": 0, "content": "<s>", "single_word": false, "lstrip": false, "rstrip": false, "normalized": false, "special": true},
    {"id": 7, "content": "\n\n", "single_word": false, "lstrip": false, "rstrip": false, "normalized": false, "special": false}
  ],
  "decoder": {"type": "Sequence", "decoders": [
    {"type": "Replace", "pattern": {"String": "▁"}, "content": " "}, {"type": "ByteFallback"}, {"type": "Fuse"}]},
  "model": {"type": "BPE", "dropout": null, "unk_token": null, "continuing_subword_prefix": null, "end_of_word_suffix": null,
    "fuse_unk": true, "byte_fallback": true, "ignore_merges": false,
    "vocab": {"<s>": 0, "<0xC3>": 1, "<0xA9>": 2, "▁": 3, "a": 4, "▁a": 5, "<0x0A>": 6}, "merges": [["▁", "a"]]}
}"#;

#[test]
fn two_tokenizers_are_compared_token_by_token() {
    let one = Tokenizer::from_bytes(SENTENCE_PIECE.as_bytes()).unwrap();
    let other = SENTENCE_PIECE.replace("\"a\": 4, \"▁a\": 5", "\"▁a\": 4, \"a\": 5");
    let other = Tokenizer::from_bytes(other.as_bytes()).unwrap();
    assert_eq!(one.difference(&one), None);
    assert_eq!(one.difference(&other), Some("token 4 is \"a\" in only one of them".into()));
    let stories = tokenizer().unwrap();
    assert_eq!(one.difference(&stories), Some("one has 8 tokens, the other 2048".into()));
}

#[test]
fn an_empty_tokenizer_decodes_to_empty_text() {
    let tokenizer = Tokenizer::empty();
    assert_eq!(tokenizer.decode(&[1, 2, 3]).unwrap(), "");
    assert_eq!((tokenizer.vocab_size(), tokenizer.token_bytes(7)), (0, Vec::new()));
}
