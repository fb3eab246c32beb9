//! A step is validated when it is created: an accelerator would silently read another row's
//! numbers, and a NaN doesn't show where it came from.

use candecode_kit::{Cache, Logits, Model, ModelConfig, Step};
use candecode_testing::{least_config, refused, Random};
use candle_core::{DType, Device, Result, Tensor};

/// A model that only a step looks at.
struct Configured(ModelConfig);

impl Model for Configured {
    fn config(&self) -> &ModelConfig {
        &self.0
    }

    fn device(&self) -> &Device {
        &Device::Cpu
    }

    fn forward(&self, _step: &Step, _cache: &mut dyn Cache) -> Result<Tensor> {
        unreachable!("no step is computed here")
    }
}

fn of(family: &str) -> Configured {
    let config = ModelConfig::from_json(&least_config(family).to_string()).unwrap();
    Configured(ModelConfig { vocab_size: 10, max_position_embeddings: 8, ..config })
}

fn model() -> Configured {
    of("llama")
}

fn mask(numbers: &[u8], shape: &[usize]) -> Tensor {
    Tensor::from_vec(numbers.to_vec(), shape, &Device::Cpu).unwrap()
}

/// Builds a step of rows at positions 0, 1, …
fn batch(ids: &[Vec<u32>], mask: Option<Tensor>) -> anyhow::Result<Step> {
    let positions: Vec<Vec<u32>> = ids.iter().map(|row| (0..row.len() as u32).collect()).collect();
    Ok(Step::batch(&model(), ids, &positions, mask)?)
}

#[test]
fn positions_of_a_single_row_count_up_from_start() {
    let step = Step::new(&model(), &[9, 0, 4], 5).unwrap();
    assert_eq!(step.ids.to_vec2::<u32>().unwrap(), [[9, 0, 4]]);
    assert_eq!(step.positions.to_vec2::<u32>().unwrap(), [[5, 6, 7]]);
    assert!(step.mask.is_none() && step.logits == Logits::All);
}

#[test]
fn ids_and_positions_out_of_range_are_refused() {
    let step =
        |ids: &[u32], start| -> anyhow::Result<Step> { Ok(Step::new(&model(), ids, start)?) };
    refused(step(&[], 0), &["at least one token"]);
    refused(step(&[3, 10], 0), &["token id 10 is not in the vocabulary of 10"]);
    refused(step(&[3, 3], 7), &["position 8 is past the context of 8"]);
    assert!(step(&[9], 7).is_ok());
    refused(batch(&[vec![1, 2], vec![1]], None), &["one length"]);
    refused(batch(&[vec![1, 2], vec![1, 99]], None), &["token id 99"]);
    let unplaced = Step::batch(&model(), &[vec![1], vec![2]], &[vec![0]], None);
    refused(unplaced.map_err(Into::into), &["each needs its positions"]);
}

#[test]
fn a_mask_with_the_wrong_shape_or_type_is_refused() {
    let ids = [vec![1, 2], vec![3, 4]];
    for shape in [&[2, 1, 2, 1][..], &[2, 1, 1, 2], &[3, 1, 2, 2], &[2, 2, 2, 2], &[2, 2, 2]] {
        let ones = Tensor::ones(shape, DType::U8, &Device::Cpu).unwrap();
        let says = format!("the mask is {shape:?}");
        refused(batch(&ids, Some(ones)), &[&says, "(2, 1, 2, past + 2)"]);
    }
    let additive = Tensor::zeros((2, 1, 2, 2), DType::F32, &Device::Cpu).unwrap();
    refused(batch(&ids, Some(additive)), &["F32", "1 = may attend"]);
    // One mask shared by all rows, and one that includes past columns.
    assert!(batch(&ids, Some(mask(&[1, 0, 1, 1], &[1, 1, 2, 2]))).is_ok());
    let longer = Tensor::ones((2, 1, 2, 7), DType::U8, &Device::Cpu).unwrap();
    assert!(batch(&ids, Some(longer)).is_ok());
}

#[test]
fn an_inverted_mask_is_refused() {
    let ids = [vec![1, 2, 3]];
    let causal = [1, 0, 0, 1, 1, 0, 1, 1, 1];
    assert!(batch(&ids, Some(mask(&causal, &[1, 1, 3, 3]))).is_ok());
    let inverted = causal.map(|may| 1 - may);
    refused(
        batch(&ids, Some(mask(&inverted, &[1, 1, 3, 3]))),
        &["new token 0 of row 0", "inverted"],
    );
    let twos = causal.map(|may| 2 * may);
    refused(batch(&ids, Some(mask(&twos, &[1, 1, 3, 3]))), &["has a 2"]);
}

#[test]
fn a_mask_that_hides_a_token_from_itself_is_refused() {
    // A single gap in the diagonal, in any batch, with or without past tokens.
    let mut random = Random::new(21);
    for _ in 0..100 {
        let (rows, new, past) = (1 + random.below(3), 1 + random.below(4), random.below(4));
        let all = past + new;
        let ids = vec![vec![1; new]; rows];
        let mut numbers = vec![1u8; rows * new * all];
        let (row, token) = (random.below(rows), random.below(new));
        numbers[(row * new + token) * all + past + token] = 0;
        let says = format!("new token {token} of row {row}");
        refused(batch(&ids, Some(mask(&numbers, &[rows, 1, new, all]))), &[&says]);
    }
}

#[test]
fn chosen_keeps_the_positions_that_get_logits() {
    let hidden = Tensor::arange(0f32, 6.0, &Device::Cpu).unwrap().reshape((2, 3, 1)).unwrap();
    let ids = [vec![1, 2, 3], vec![4, 5, 6]];
    let chosen = |logits: Logits| -> Result<Vec<f32>> {
        let step = batch(&ids, None).unwrap().with_logits(logits);
        step.chosen(&hidden)?.flatten_all()?.to_vec1()
    };
    assert_eq!(chosen(Logits::All).unwrap(), [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]);
    assert_eq!(chosen(Logits::Last(2)).unwrap(), [1.0, 2.0, 4.0, 5.0]);
    assert_eq!(chosen(Logits::At(vec![2, 0])).unwrap(), [2.0, 3.0]);
    for (logits, says) in [
        (Logits::Last(4), "Last(4) of 3"),
        (Logits::At(vec![0]), "does not fit 2 rows"),
        (Logits::At(vec![0, 3]), "does not fit 2 rows of 3"),
    ] {
        refused(chosen(logits).map_err(Into::into), &[says]);
    }
}

#[test]
fn a_sliding_step_may_pass_the_context_but_needs_rope() {
    let tokens: Vec<u32> = (0..12).map(|i| i % 10).collect();
    let step = Step::sliding(&model(), &tokens[11..], 11).unwrap();
    assert_eq!(step.ids.to_vec2::<u32>().unwrap(), [[1]]);
    assert_eq!(step.positions.to_vec2::<u32>().unwrap(), [[11]]);
    refused(Step::sliding(&model(), &[], 12).map_err(Into::into), &["at least one token"]);
    refused(Step::sliding(&of("gpt2"), &[2], 1).map_err(Into::into), &["needs RoPE"]);
}
