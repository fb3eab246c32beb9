//! Tests of the error of a row that fails.

use crate::common::{model, tokenizer};
use candecode::day07_greedy::{argmax, Sequence};
use candecode::kit::{named, FinishReason, Request, Token};

/// Any error in a step ends the sequence, reports the error, and releases the pending text.
#[test]
fn a_step_that_fails_ends_the_sequence() {
    let tokenizer = tokenizer().unwrap();
    let config = model("story-230k").unwrap().config().clone();
    let ids = tokenizer.encode("Once upon a").unwrap();
    let logits = |id: u32| -> Vec<f32> {
        (0..config.vocab_size as u32).map(|other| f32::from(u8::from(other == id))).collect()
    };
    let nan = vec![f32::NAN; config.vocab_size];
    for (what, says) in [
        ("a rule", "the rule left no token to choose after 3 generated tokens"),
        ("a processor", "the processor fails"),
        ("a sampler", "the sampler fails"),
        ("an id", "99999"),
        ("logits", "NaN"),
    ] {
        let mut request =
            Request::new(&config, &[5], 20, |logits: &[f32]| match (logits[0], what) {
                (2.0, "a sampler") => candle_core::bail!("the sampler fails"),
                (2.0, "an id") => Ok(99999),
                _ => argmax(logits),
            });
        request.id = 4;
        request.top_logprobs = Some(1);
        request.stop_strings = vec![" a timeless".to_string()];
        request.processors.push(named("the rule", |_, logits| {
            match (logits[0], what) {
                (2.0, "a rule") => logits.fill(f32::NEG_INFINITY),
                (2.0, "a processor") => candle_core::bail!("the processor fails"),
                _ => {}
            }
            Ok(())
        }));
        let mut sequence = Sequence::new(request, &tokenizer);
        let shown: String = ids.iter().map(|id| sequence.advance(&logits(*id)).text).collect();
        assert_eq!(shown, "Once upon");
        let mut bad = logits(0);
        bad[0] = 2.0;
        let token = sequence.advance(if what == "logits" { &nan } else { &bad });
        let error = token.error.clone().unwrap();
        assert!(error.contains(says), "{what}: {error}");
        let want = Token {
            row: 4,
            text: " a".to_string(), // it could have become a stop string
            finish: Some(FinishReason::Failed),
            error: Some(error),
            ..Token::default()
        };
        assert_eq!(token, want, "{what}");
        assert_eq!(sequence.finish, Some(FinishReason::Failed), "{what}");
        assert_eq!(sequence.tokens.len(), 4, "{what}");
    }
}
