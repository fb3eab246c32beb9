//! Tests that a model with random weights runs like any other.

use candecode::kit::SamplingParams;
use candecode_engine::Engine;

#[test]
fn every_token_of_a_random_model_can_be_shown() {
    let engine = Engine::open("random-10m").unwrap();
    let tokenizer = engine.tokenizer();
    assert_eq!(tokenizer.vocab_size(), 49_152);
    // Tokens that the story models' tokenizer has are unchanged. Ids it lacks get names of their
    // own.
    assert_eq!(tokenizer.encode("Once upon a time").unwrap(), [428, 437, 259, 395]);
    assert_eq!(tokenizer.decode(&[428, 2048, 437, 49_151]).unwrap(), "Once<2048> upon<49151>");
    assert_eq!(tokenizer.token_bytes(2048), b"<2048>");
    assert_eq!(tokenizer.encode("Once<2048>").unwrap(), [428, 2048]);

    let params = SamplingParams { max_new_tokens: 12, ..SamplingParams::default() };
    let tokens = || -> Vec<_> {
        engine.generate("Once upon a time", &params).unwrap().map(|token| token.unwrap()).collect()
    };
    let first = tokens();
    assert_eq!(first.len(), 12, "no token ends it");
    assert!(first.iter().any(|token| token.id >= 2048), "{first:?}");
    let shown: String = first.iter().map(|token| token.text.as_str()).collect();
    let ids: Vec<u32> = first.iter().map(|token| token.id).collect();
    assert_eq!(shown, tokenizer.decode(&ids).unwrap());
    assert_eq!(ids, tokens().iter().map(|token| token.id).collect::<Vec<_>>());
}
