//! Day 0's checks: the warm-up.
//!
//! Most tasks are one line, and a first attempt often fails with a candle error rather than a wrong
//! number, so the checks explain what that error means.

#[path = "../frame/mod.rs"]
mod frame;

#[cfg(not(feature = "mine"))]
use candecode::day00_warm_up;
#[cfg(feature = "mine")]
#[allow(dead_code)]
#[path = "../../src/day00_warm_up.rs"]
mod day00_warm_up;

use candecode::kit::Tokenizer;
use candle_core::{DType, Device, Error, IndexOp, Result, Tensor, D};
use frame::{
    close, device, equal, golden_json, models_dir, refused_calmly, tokenizer, Likely, Outcome,
    Random,
};

// f32 sums of up to 192 products near 0.03: candle and torch add in different orders, which changes
// them by a few units of 6e-8.
const TOLERANCE: f32 = 1e-5;

/// The day 0 functions under test.
#[derive(Clone, Copy)]
pub struct Day {
    pub text_to_ids: fn(&Tokenizer, &str) -> Result<Tensor>,
    pub embed: fn(&Tensor, &Tensor) -> Result<Tensor>,
    pub logits: fn(&Tensor, &Tensor) -> Result<Tensor>,
    pub best_text: fn(&Tokenizer, &Tensor) -> Result<String>,
    pub last_position: fn(&Tensor) -> Result<Tensor>,
    pub nearest: fn(&Tensor, u32, usize) -> Result<Vec<u32>>,
}

/// Builds a `Day` from a module: the reader's code, a known mistake, or the stub.
macro_rules! implementation {
    ($($path:ident)::+) => {{
        use $($path)::+ as code;
        crate::Day {
            text_to_ids: code::text_to_ids,
            embed: code::embed,
            logits: code::logits,
            best_text: code::best_text,
            last_position: code::last_position,
            nearest: code::nearest_tokens,
        }
    }};
}

frame::checks! {
    day00_warm_up:
    0.1: a_text_becomes_ids, ids_equal_transformers;
    0.2: ids_pick_rows_of_the_table, an_out_of_range_id_is_refused;
    0.3: scores_are_dot_products, a_token_scores_its_length_squared, most_tokens_come_back;
    0.4: the_best_ids_become_text, a_model_without_layers_echoes_the_text;
    0.5: the_last_position_is_returned, no_positions_are_refused;
    0.6: direction_decides, a_cat_is_near_a_dog, nearest_equals_the_formula,
        an_out_of_range_token_is_refused;
    also: the_chapters_table_is_true;
}

/// Returns 0, 1, 2, … in this shape.
fn counting(shape: &[usize]) -> Result<Tensor> {
    Tensor::arange(0f32, shape.iter().product::<usize>() as f32, &device()?)?.reshape(shape)
}

/// Returns the embedding table of story-3m, (2048, 192).
fn table() -> Result<Tensor> {
    let dir = models_dir()?.join("story-3m");
    let weights = candecode_formats::open_weights(&dir, DType::F32, &device()?);
    let weights = weights.map_err(|e| Error::Msg(format!("{e:#}")))?;
    weights.matrix("model.embed_tokens.weight", 2048, 192)?.tensor()
}

/// A text from the oracle, with its ids, each token's score against itself, and the output of a
/// model without layers.
struct Text {
    text: String,
    ids: Vec<u32>,
    own: Vec<f32>,
    echo: String,
}

fn texts() -> Result<Vec<Text>> {
    let texts = golden_json("day00")?["texts"].as_array().cloned().unwrap_or_default();
    let words = |value: &serde_json::Value| value.as_str().unwrap_or_default().to_string();
    let numbers = |value: &serde_json::Value| -> Vec<f64> {
        value.as_array().into_iter().flatten().filter_map(serde_json::Value::as_f64).collect()
    };
    let text = |entry: &serde_json::Value| Text {
        text: words(&entry["text"]),
        ids: numbers(&entry["ids"]).iter().map(|id| *id as u32).collect(),
        own: numbers(&entry["own"]).iter().map(|score| *score as f32).collect(),
        echo: words(&entry["echo"]),
    };
    Ok(texts.iter().map(text).collect())
}

fn a_text_becomes_ids(day: &Day) -> Outcome {
    let tokenizer = tokenizer()?;
    let got = (day.text_to_ids)(&tokenizer, "Once upon a time")?;
    let input = "text_to_ids(\"Once upon a time\")";
    equal(&format!("the type of {input}"), Ok(got.dtype()), &DType::U32)?;
    close(input, Ok(got), &Tensor::new(&[[428u32, 437, 259, 395]], &Device::Cpu)?, 0.0)
}

fn ids_equal_transformers(day: &Day) -> Outcome {
    let tokenizer = tokenizer()?;
    for Text { text, ids, .. } in texts()? {
        let got = (day.text_to_ids)(&tokenizer, &text).and_then(|ids| ids.i(0)?.to_vec1::<u32>());
        equal(&format!("row 0 of text_to_ids({text:?})"), got, &ids)?;
    }
    Ok(())
}

fn ids_pick_rows_of_the_table(day: &Day) -> Outcome {
    let device = device()?;
    let table = Tensor::new(&[[0f32, 1.], [10., 11.], [20., 21.]], &device)?;
    let ids = Tensor::new(&[[2u32, 0, 0], [1, 2, 1]], &device)?;
    let want = Tensor::new(
        &[[[20f32, 21.], [0., 1.], [0., 1.]], [[10., 11.], [20., 21.], [10., 11.]]],
        &device,
    )?;
    close("a table of 3 rows, ids [[2, 0, 0], [1, 2, 1]]", (day.embed)(&table, &ids), &want, 0.0)
}

fn an_out_of_range_id_is_refused(day: &Day) -> Outcome {
    // On the CPU, because an accelerator wouldn't check the bounds.
    let table = Tensor::zeros((3, 2), DType::F32, &Device::Cpu)?;
    let ids = Tensor::new(&[[3u32]], &Device::Cpu)?;
    refused_calmly("a table of 3 rows, id 3", || (day.embed)(&table, &ids))
}

fn scores_are_dot_products(day: &Day) -> Outcome {
    let device = device()?;
    let table = Tensor::new(&[[1f32, 0.], [0., 2.], [3., 4.]], &device)?;
    let hidden = Tensor::new(&[[[1f32, 2.], [0., 1.]], [[1., 0.], [3., 4.]]], &device)?;
    // (1, 2) · (3, 4) = 11, and so on.
    let want =
        Tensor::new(&[[[1f32, 4., 11.], [0., 2., 4.]], [[1., 0., 3.], [3., 8., 25.]]], &device)?;
    close("hidden (2, 2, 2), a table of 3 rows", (day.logits)(&table, &hidden), &want, TOLERANCE)
}

fn a_token_scores_its_length_squared(day: &Day) -> Outcome {
    let table = table()?;
    for Text { text, ids, own, .. } in texts()? {
        // Looked up directly, so that a wrong `embed` isn't blamed on the score.
        let at = Tensor::new(ids.as_slice(), table.device())?;
        let hidden = table.index_select(&at, 0)?.unsqueeze(0)?;
        let logits = (day.logits)(&table, &hidden)?;
        equal(
            &format!("the shape of the scores of {text:?}"),
            Ok(logits.dims().to_vec()),
            &vec![1, ids.len(), 2048],
        )?;
        let got: Result<Vec<Tensor>> =
            ids.iter().enumerate().map(|(t, id)| logits.i((0, t, *id as usize))).collect();
        let got = got.and_then(|own| Tensor::stack(&own, 0));
        let want = Tensor::new(own.as_slice(), table.device())?;
        close(&format!("each token's own score, {text:?}"), got, &want, TOLERANCE)?;
    }
    Ok(())
}

fn most_tokens_come_back(day: &Day) -> Outcome {
    let table = table()?;
    let logits = (day.logits)(&table, &table.unsqueeze(0)?)?;
    let best = logits.i(0)?.argmax(1)?.to_vec1::<u32>()?;
    let got = best.iter().enumerate().filter(|(id, best)| *id as u32 == **best).count() as u64;
    let want = golden_json("day00")?["come_back"].as_u64().unwrap_or_default();
    let words =
        |count: u64| format!("{count} of {} tokens score highest against themselves", best.len());
    equal("every token of story-3m, scored against every token", Ok(words(got)), &words(want))
}

fn the_best_ids_become_text(day: &Day) -> Outcome {
    let mut logits = vec![0f32; 2 * 4 * 2048];
    for (t, id) in [428, 437, 259, 395].into_iter().enumerate() {
        logits[t * 2048 + id] = 1.0;
        logits[(4 + t) * 2048 + 14] = 1.0; // row 1 predicts "...."
    }
    let logits = Tensor::from_vec(logits, (2, 4, 2048), &device()?)?;
    let got = (day.best_text)(&tokenizer()?, &logits);
    equal(
        "logits (2, 4, 2048), 1 at ids 428, 437, 259, 395 of row 0",
        got,
        &"Once upon a time".into(),
    )?;
    let ids = [428u32, 14, 14, 395];
    let mut logits = vec![0f32; 4 * 2048];
    for (t, id) in ids.into_iter().enumerate() {
        logits[t * 2048 + id as usize] = 1.0;
    }
    let logits = Tensor::from_vec(logits, (1, 4, 2048), &device()?)?;
    let want = tokenizer()?.decode(&ids)?;
    let got = (day.best_text)(&tokenizer()?, &logits);
    equal("logits (1, 4, 2048), 1 at ids 428, 14, 14, 395", got, &want)
}

fn a_model_without_layers_echoes_the_text(day: &Day) -> Outcome {
    through_no_layers(day)
        .likely("this runs tasks 0.1 to 0.4 in a row: if one of 0.1 to 0.3 fails, fix that first")
}

fn through_no_layers(day: &Day) -> Outcome {
    let (tokenizer, table) = (tokenizer()?, table()?);
    for Text { text, echo, .. } in texts()? {
        let ids = (day.text_to_ids)(&tokenizer, &text)?.to_device(table.device())?;
        let logits = (day.logits)(&table, &(day.embed)(&table, &ids)?)?;
        equal(&format!("{text:?}, with no layers"), (day.best_text)(&tokenizer, &logits), &echo)?;
    }
    Ok(())
}

fn the_last_position_is_returned(day: &Day) -> Outcome {
    let want = Tensor::new(&[[8f32, 9., 10., 11.], [20., 21., 22., 23.]], &device()?)?;
    close("x (2, 3, 4), counting up", (day.last_position)(&counting(&[2, 3, 4])?), &want, 0.0)
        .likely("`narrow` keeps the dimension with size 1, and `i` drops it; both count from 0")
}

fn no_positions_are_refused(day: &Day) -> Outcome {
    let x = Tensor::zeros((2, 0, 4), DType::F32, &device()?)?;
    refused_calmly("x (2, 0, 4): no positions", || (day.last_position)(&x))
}

/// Only the direction counts, not the distance or the dot product: row 1 is short and exactly
/// parallel to row 0, row 2 has the largest dot product, row 3 is closest in space, and row 4
/// points away.
fn direction_decides(day: &Day) -> Outcome {
    let rows = [[2f32, 0.], [0.5, 0.], [9., 9.], [2., 1.], [-2., 0.]];
    let table = Tensor::new(&rows, &device()?)?;
    for (id, n, want) in
        [(0, 3, vec![1, 3, 2]), (4, 2, vec![2, 3]), (0, 9, vec![1, 3, 2, 4]), (1, 2, vec![0, 3])]
    {
        let input = format!("rows (2, 0) (0.5, 0) (9, 9) (2, 1) (-2, 0), id {id}, n {n}");
        equal(&input, (day.nearest)(&table, id, n), &want)?;
    }
    Ok(())
}

fn a_cat_is_near_a_dog(day: &Day) -> Outcome {
    let (tokenizer, table) = (tokenizer()?, table()?);
    let cat = tokenizer.encode(" cat")?[0];
    let got = (day.nearest)(&table, cat, 3)
        .and_then(|ids| ids.iter().map(|id| tokenizer.decode(&[*id])).collect::<Result<Vec<_>>>());
    let want = [" dog", " bird", " mouse"].map(String::from).to_vec();
    equal("the three tokens of story-3m closest to \" cat\"", got, &want)
}

/// Computes the cosines with plain numbers, in f64.
fn nearest_equals_the_formula(day: &Day) -> Outcome {
    let mut random = Random::new(13);
    for _ in 0..10 {
        let (v, c) = (2 + random.below(9), 2 + random.below(4));
        let table = random.tensor(&[v, c])?;
        let rows = table.to_vec2::<f32>()?;
        let dot = |a: &[f32], b: &[f32]| -> f64 {
            a.iter().zip(b).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum()
        };
        let id = random.below(v);
        let cosine = |other: &usize| {
            let (a, b) = (&rows[id], &rows[*other]);
            dot(a, b) / (dot(a, a) * dot(b, b)).sqrt()
        };
        let mut want: Vec<usize> = (0..v).filter(|other| *other != id).collect();
        want.sort_by(|a, b| cosine(b).total_cmp(&cosine(a)));
        let want: Vec<u32> = want.into_iter().map(|id| id as u32).collect();
        let input = format!("a random table ({v}, {c}), id {id}, n {v}");
        equal(&input, (day.nearest)(&table, id as u32, v), &want)?;
    }
    Ok(())
}

fn an_out_of_range_token_is_refused(day: &Day) -> Outcome {
    let table = Tensor::ones((3, 2), DType::F32, &device()?)?;
    refused_calmly("a table of 3 rows, id 3", || (day.nearest)(&table, 3, 1))
}

/// Checks that every row of the chapter's torch-to-candle table compiles and does what it says.
fn the_chapters_table_is_true() -> Result<()> {
    let device = Device::Cpu;
    let x = Tensor::new(&[[1f32, 2., 3.], [4., 5., 6.]], &device)?;
    assert_eq!(Tensor::zeros((2, 3), DType::F32, &device)?.shape(), x.shape());
    assert_eq!(Tensor::arange(0u32, 5, &device)?.to_vec1::<u32>()?, [0, 1, 2, 3, 4]);
    assert_eq!((x.dims(), x.dim(1)?, x.dims2()?), (&[2, 3][..], 3, (2, 3)));
    assert_eq!(x.reshape((3, ()))?.to_vec2::<f32>()?, [[1., 2.], [3., 4.], [5., 6.]]);
    assert_eq!(x.transpose(0, 1)?.to_vec2::<f32>()?, x.t()?.to_vec2::<f32>()?);
    assert_eq!(
        (x.unsqueeze(0)?.dims(), x.unsqueeze(0)?.squeeze(0)?.dims()),
        (&[1, 2, 3][..], &[2, 3][..])
    );
    assert_eq!(
        (x.i(0)?.to_vec1::<f32>()?, x.i((.., 2))?.to_vec1::<f32>()?),
        (vec![1., 2., 3.], vec![3., 6.])
    );
    assert_eq!(x.narrow(1, 1, 2)?.to_vec2::<f32>()?, x.i((.., 1..3))?.to_vec2::<f32>()?);
    let ids = Tensor::new(&[1u32, 0, 1], &device)?;
    assert_eq!(x.index_select(&ids, 0)?.dims(), [3, 3]);
    let bias = Tensor::new(&[10f32, 20., 30.], &device)?;
    assert_eq!((&x + &x)?.i(0)?.to_vec1::<f32>()?, [2., 4., 6.]);
    assert_eq!(x.broadcast_add(&bias)?.i(1)?.to_vec1::<f32>()?, [14., 25., 36.]);
    assert_eq!(((&x * 0.5)? + 1.0)?.i(0)?.to_vec1::<f32>()?, [1.5, 2., 2.5]);
    assert_eq!(x.matmul(&x.t()?)?.to_vec2::<f32>()?, [[14., 32.], [32., 77.]]);
    assert_eq!(x.unsqueeze(0)?.broadcast_matmul(&x.t()?)?.dims(), [1, 2, 2]);
    assert_eq!(x.sum_keepdim(D::Minus1)?.to_vec2::<f32>()?, [[6.], [15.]]);
    assert_eq!(x.max(D::Minus1)?.to_vec1::<f32>()?, [3., 6.]);
    assert_eq!(x.argmax(D::Minus1)?.to_vec1::<u32>()?, [2, 2]);
    let mask = x.gt(2.5)?; // u8
    assert_eq!(mask.where_cond(&x, &x.zeros_like()?)?.i(0)?.to_vec1::<f32>()?, [0., 0., 3.]);
    assert_eq!(Tensor::cat(&[&x, &x], 0)?.dims(), [4, 3]);
    assert_eq!(x.to_dtype(DType::BF16)?.dtype(), DType::BF16);
    assert_eq!(
        (x.sum_all()?.to_scalar::<f32>()?, x.t()?.contiguous()?.is_contiguous()),
        (21., true)
    );
    Ok(())
}
