//! Tests of text at the start of a completion.

use candecode::day07_greedy::{argmax, Sequence};
use candecode::kit::{PastContext, Request, Tokenizer};
use candecode_engine::text_after;
use candecode_testing::tiny;

/// The last tokens of a prompt are decoded together with the first new one, because a SentencePiece
/// decoder strips the space at the start of a text.
#[test]
fn a_sequence_keeps_the_space_after_its_prompt() {
    let json = tiny("sentencepiece").join("tokenizer.json");
    let tokenizer = Tokenizer::from_bytes(&std::fs::read(json).unwrap()).unwrap();
    let ids = |pieces: &[&str]| -> Vec<u32> {
        let id = |piece: &&str| {
            (0..16).find(|id| tokenizer.piece(*id).as_deref() == Some(*piece)).unwrap()
        };
        pieces.iter().map(id).collect()
    };
    let request = Request {
        id: 0,
        prompt: ids(&["▁Once", "▁upon", "▁a", "▁time", ","]),
        max_new_tokens: 3,
        eos_token_ids: Vec::new(),
        stop_strings: Vec::new(),
        past_context: PastContext::default(),
        processors: Vec::new(),
        sampler: Box::new(argmax),
        log_softmax: None,
        top_logprobs: None,
        cache_salt: String::new(),
        report: Default::default(),
    };
    let mut sequence = Sequence::new(request, &tokenizer);
    let mut text = String::new();
    for id in ids(&["▁she", "▁was", "▁happy"]) {
        text += &sequence.push(id, 0.0).unwrap().text;
    }
    assert_eq!(text, " she was happy");
    // The text of a beam keeps it too, although all of its tokens are known at once.
    let new = ids(&["▁she", "▁was", "▁happy"]);
    assert_eq!(text_after(&tokenizer, &sequence.request.prompt, &new).unwrap(), text);
}
