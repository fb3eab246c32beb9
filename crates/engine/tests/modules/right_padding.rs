//! Tests of padding on the right.

use crate::common::model;
use candecode::kit::{Logits, NoCache, Step};
use candecode_engine::right_padding::logits_of_right_padded;

#[test]
fn padding_on_the_right_changes_no_row() {
    let rows = [vec![300, 301, 302, 303, 304], vec![310], vec![320, 321, 322]];
    for name in ["story-230k", "story-gpt2-1m"] {
        let model = model(name).unwrap();
        let eos = model.config().eos_token_ids[0];
        let padded = logits_of_right_padded(&*model, &rows, eos).unwrap();
        assert_eq!(padded, logits_of_right_padded(&*model, &rows, 7).unwrap(), "{name}: pad id");
        for (row, padded) in rows.iter().zip(padded) {
            let step = Step::new(&*model, row, 0).unwrap().with_logits(Logits::Last(1));
            let alone = model.forward(&step, &mut NoCache).unwrap().flatten_all().unwrap();
            let alone = alone.to_vec1::<f32>().unwrap();
            let largest = alone.iter().zip(&padded).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
            assert!(largest < 1e-4, "{name}, {row:?}: {largest}");
        }
        assert!(logits_of_right_padded(&*model, &[vec![1], vec![]], eos).is_err());
    }
}
