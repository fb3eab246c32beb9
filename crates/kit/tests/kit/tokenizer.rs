//! Tests of encoding text to ids, and of decoding ids as they arrive.

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
fn words_encode_to_their_vocabulary_tokens() {
    let tokenizer = tokenizer().unwrap();
    let ids = tokenizer.encode("Once upon").unwrap();
    let pieces: Vec<String> = ids.iter().map(|id| tokenizer.piece(*id).unwrap()).collect();
    assert_eq!(pieces, ["Once", "Ġupon"]);
    assert_eq!(tokenizer.piece(1 << 20), None);
}

#[test]
fn a_stream_yields_only_whole_characters() {
    let (tokenizer, mut random) = (tokenizer().unwrap(), Random::new(12));
    let mut held_back = 0;
    for _ in 0..300 {
        let text = text(&mut random);
        let mut stream = tokenizer.decode_stream();
        let mut all = String::new();
        for id in tokenizer.encode(&text).unwrap() {
            let piece = stream(id).unwrap();
            assert!(!piece.contains('\u{fffd}'), "half a character of {text:?}: {piece:?}");
            held_back += usize::from(piece.is_empty());
            all.push_str(&piece);
        }
        assert_eq!(all, text);
    }
    assert!(held_back > 300, "characters were split over tokens {held_back} times only");
}

#[test]
fn a_partial_character_is_held_back_and_decodes_as_u_fffd() {
    let tokenizer = tokenizer().unwrap();
    let ids = tokenizer.encode("日").unwrap();
    assert!(ids.len() > 1, "日 must be several tokens for this test, it is {ids:?}");
    let mut stream = tokenizer.decode_stream();
    for id in &ids[..ids.len() - 1] {
        assert_eq!(stream(*id).unwrap(), "");
    }
    assert_eq!(stream(ids[ids.len() - 1]).unwrap(), "日");
    assert!(tokenizer.decode(&ids[..ids.len() - 1]).unwrap().contains('\u{fffd}'));
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

#[test]
fn byte_level_bpe_has_a_token_for_every_byte() {
    let tokenizer = tokenizer().unwrap();
    let ids = 0..tokenizer.vocab_size() as u32;
    let mut single: Vec<Vec<u8>> =
        ids.map(|id| tokenizer.token_bytes(id)).filter(|bytes| bytes.len() == 1).collect();
    single.sort();
    assert_eq!(single.concat(), (0..=255).collect::<Vec<u8>>());
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
fn sentencepiece_tokens_map_to_their_bytes() {
    let tokenizer = Tokenizer::from_bytes(SENTENCE_PIECE.as_bytes()).unwrap();
    let bytes: Vec<Vec<u8>> = (0..8).map(|id| tokenizer.token_bytes(id)).collect();
    let want: [&[u8]; 8] = [b"", &[0xc3], &[0xa9], b" ", b"a", b" a", b"\n", b"\n\n"];
    assert_eq!(bytes, want);
    assert_eq!(tokenizer.decode(&[0, 5, 1, 2, 5]).unwrap(), " aé a");
    let mut stream = tokenizer.decode_stream();
    let pieces: Vec<String> = [5, 1, 2, 5].into_iter().map(|id| stream(id).unwrap()).collect();
    assert_eq!(pieces, [" a", "", "é", " a"]);
}

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

/// The crate returns a copy of all added tokens on every call. Calling it once per id would copy
/// 100 million of them here.
#[test]
fn added_tokens_are_looked_up_without_copying_all_of_them() {
    let mut tokenizer: serde_json::Value = serde_json::from_str(SENTENCE_PIECE).unwrap();
    for id in 8..10_000 {
        let mut added = tokenizer["added_tokens"][0].clone();
        added["id"] = id.into();
        added["content"] = format!("<added {id}>").into();
        tokenizer["added_tokens"].as_array_mut().unwrap().push(added);
    }
    let tokenizer = Tokenizer::from_bytes(tokenizer.to_string().as_bytes()).unwrap();
    let began = std::time::Instant::now();
    let special =
        (8..10_000).filter(|id| tokenizer.is_added(*id) && tokenizer.token_bytes(*id).is_empty());
    assert_eq!(special.count(), 9_992);
    assert!(began.elapsed().as_secs_f64() < 2.0, "{:?}", began.elapsed());
}

#[test]
fn an_empty_tokenizer_decodes_to_empty_text() {
    let tokenizer = Tokenizer::empty();
    assert_eq!(tokenizer.decode(&[1, 2, 3]).unwrap(), "");
    assert_eq!((tokenizer.vocab_size(), tokenizer.token_bytes(7)), (0, Vec::new()));
    let mut stream = tokenizer.decode_stream();
    assert_eq!(stream(5).unwrap(), "");
}
