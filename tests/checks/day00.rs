//! The checks of day 0. Most tasks are one line, and a first attempt often fails with a candle
//! error rather than a wrong number, so the checks explain what that error means.

use super::checks::{
    close, device, ensure, equal, for_candle_nn, golden_json, models_dir, refused, refused_calmly,
    tokenizer, Likely, Outcome, Random,
};
use candecode::kit::{error::plain, Tokenizer};
use candle_core::{DType, Device, Error, IndexOp, Module, Result, Tensor, D};

// f32 sums of up to 192 products near 0.03: candle and torch add in different orders, which changes
// them by a few units of 6e-8.
const TOLERANCE: f32 = 1e-5;

/// Day 0 as a bundle of functions.
#[derive(Clone, Copy)]
pub struct Day {
    pub text_to_ids: fn(&Tokenizer, &str) -> Result<Tensor>,
    pub embed: fn(&Tensor, &Tensor) -> Result<Tensor>,
    pub score: fn(&Tensor, &Tensor) -> Result<Tensor>,
    pub best_text: fn(&Tokenizer, &Tensor) -> Result<String>,
    pub add_bias: fn(&Tensor, &Tensor) -> Result<Tensor>,
    pub heads_first: fn(&Tensor) -> Result<Tensor>,
    pub pick_rows: fn(&Tensor, &[usize]) -> Result<Tensor>,
    pub last_position: fn(&Tensor) -> Result<Tensor>,
    pub product_f32: fn(&Tensor, &Tensor) -> Result<Tensor>,
    pub dot_products: fn(&Tensor, &Tensor) -> Result<Tensor>,
}

/// Fills the bundle from a module: the reader's, a known mistake, or the stub.
macro_rules! implementation {
    ($($path:ident)::+) => {{
        use $($path)::+ as code;
        day::Day {
            text_to_ids: code::text_to_ids,
            embed: code::embed,
            score: code::score,
            best_text: code::best_text,
            add_bias: code::add_bias,
            heads_first: code::heads_first,
            pick_rows: code::pick_rows,
            last_position: code::last_position,
            product_f32: code::product_f32,
            dot_products: code::dot_products,
        }
    }};
}

/// Returns 0, 1, 2, … in this shape.
fn counting(shape: &[usize]) -> Result<Tensor> {
    Tensor::arange(0f32, shape.iter().product::<usize>() as f32, &device()?)?.reshape(shape)
}

/// Returns the embedding table of story-3m, (2048, 192).
fn table() -> Result<Tensor> {
    let dir = models_dir()?.join("story-3m");
    let weights = candecode::formats::open_weights(&dir, DType::F32, &device()?);
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

pub fn a_text_becomes_ids(day: &Day) -> Outcome {
    let tokenizer = tokenizer()?;
    let got = (day.text_to_ids)(&tokenizer, "Once upon a time")?;
    let input = "text_to_ids(\"Once upon a time\")";
    equal(&format!("the type of {input}"), Ok(got.dtype()), &DType::U32)?;
    close(input, Ok(got), &Tensor::new(&[[428u32, 437, 259, 395]], &Device::Cpu)?, 0.0)
}

pub fn ids_equal_transformers(day: &Day) -> Outcome {
    let tokenizer = tokenizer()?;
    for Text { text, ids, .. } in texts()? {
        let got = (day.text_to_ids)(&tokenizer, &text).and_then(|ids| ids.i(0)?.to_vec1::<u32>());
        equal(&format!("row 0 of text_to_ids({text:?})"), got, &ids)?;
    }
    Ok(())
}

pub fn ids_pick_rows_of_the_table(day: &Day) -> Outcome {
    let device = device()?;
    let table = Tensor::new(&[[0f32, 1.], [10., 11.], [20., 21.]], &device)?;
    let ids = Tensor::new(&[[2u32, 0, 0], [1, 2, 1]], &device)?;
    let want = Tensor::new(
        &[[[20f32, 21.], [0., 1.], [0., 1.]], [[10., 11.], [20., 21.], [10., 11.]]],
        &device,
    )?;
    close("a table of 3 rows, ids [[2, 0, 0], [1, 2, 1]]", (day.embed)(&table, &ids), &want, 0.0)
}

pub fn any_ids_pick_their_rows(day: &Day) -> Outcome {
    let mut random = Random::new(1);
    for _ in 0..20 {
        let (b, t, v, c) =
            (1 + random.below(3), 1 + random.below(5), 1 + random.below(9), 1 + random.below(4));
        let table = random.tensor(&[v, c])?;
        let ids: Vec<u32> = (0..b * t).map(|_| random.below(v) as u32).collect();
        let rows: Vec<Tensor> =
            ids.iter().map(|id| table.i(*id as usize)).collect::<Result<_>>()?;
        let want = Tensor::stack(&rows, 0)?.reshape((b, t, c))?;
        let input = format!("a table ({v}, {c}), ids ({b}, {t}) {ids:?}");
        let ids = Tensor::from_vec(ids, (b, t), &device()?)?;
        close(&input, (day.embed)(&table, &ids), &want, 0.0)?;
    }
    Ok(())
}

pub fn an_id_outside_is_refused(day: &Day) -> Outcome {
    // On the CPU, because an accelerator wouldn't check the bounds.
    let table = Tensor::zeros((3, 2), DType::F32, &Device::Cpu)?;
    let ids = Tensor::new(&[[3u32]], &Device::Cpu)?;
    refused("a table of 3 rows, id 3", (day.embed)(&table, &ids), &["index"])
}

pub fn scores_are_dot_products(day: &Day) -> Outcome {
    let device = device()?;
    let table = Tensor::new(&[[1f32, 0.], [0., 2.], [3., 4.]], &device)?;
    let hidden = Tensor::new(&[[[1f32, 2.], [0., 1.]], [[1., 0.], [3., 4.]]], &device)?;
    // (1, 2) · (3, 4) = 11, and so on.
    let want =
        Tensor::new(&[[[1f32, 4., 11.], [0., 2., 4.]], [[1., 0., 3.], [3., 8., 25.]]], &device)?;
    close("hidden (2, 2, 2), a table of 3 rows", (day.score)(&table, &hidden), &want, TOLERANCE)
}

pub fn a_token_scores_its_length_squared(day: &Day) -> Outcome {
    let table = table()?;
    for Text { text, ids, own, .. } in texts()? {
        // Looked up directly, so that a wrong `embed` isn't blamed on the score.
        let at = Tensor::new(ids.as_slice(), table.device())?;
        let hidden = table.index_select(&at, 0)?.unsqueeze(0)?;
        let logits = (day.score)(&table, &hidden)?;
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

pub fn most_tokens_come_back(day: &Day) -> Outcome {
    let table = table()?;
    let logits = (day.score)(&table, &table.unsqueeze(0)?)?;
    let best = logits.i(0)?.argmax(1)?.to_vec1::<u32>()?;
    let got = best.iter().enumerate().filter(|(id, best)| *id as u32 == **best).count() as u64;
    let want = golden_json("day00")?["come_back"].as_u64().unwrap_or_default();
    let words = |count: u64| format!("{count} of {} tokens score themselves best", best.len());
    equal("every token of story-3m, scored against all", Ok(words(got)), &words(want))
}

pub fn the_best_ids_become_text(day: &Day) -> Outcome {
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
    )
}

pub fn without_layers_the_text_comes_back(day: &Day) -> Outcome {
    through_no_layers(day)
        .likely("this runs tasks 0.1 to 0.4 in a row: if one of 0.1 to 0.3 fails, mend that first")
}

fn through_no_layers(day: &Day) -> Outcome {
    let (tokenizer, table) = (tokenizer()?, table()?);
    for Text { text, echo, .. } in texts()? {
        let ids = (day.text_to_ids)(&tokenizer, &text)?.to_device(table.device())?;
        let logits = (day.score)(&table, &(day.embed)(&table, &ids)?)?;
        equal(
            &format!("{text:?}, through no layers"),
            (day.best_text)(&tokenizer, &logits),
            &echo,
        )?;
    }
    Ok(())
}

pub fn a_bias_is_lent_to_every_vector(day: &Day) -> Outcome {
    let bias = Tensor::new(&[100f32, 200., 300., 400.], &device()?)?;
    let x = counting(&[2, 3, 4])?;
    let want: Vec<f32> = (0..24).map(|i| (i + 100 * (i % 4 + 1)) as f32).collect();
    let want = Tensor::from_vec(want, (2, 3, 4), &device()?)?;
    close("x (2, 3, 4), bias (4)", (day.add_bias)(&x, &bias), &want, 0.0).likely_even_of_an_error(
        "an operator wants equal shapes; the broadcast_* functions lend the smaller one",
    )
}

pub fn heads_come_first(day: &Day) -> Outcome {
    let x = counting(&[2, 4, 3, 5])?;
    let got = (day.heads_first)(&x)?;
    let mut want = Vec::new();
    for (b, h, t, d) in (0..120).map(|i| (i / 60, i / 20 % 3, i / 5 % 4, i % 5)) {
        want.push((((b * 4 + t) * 3 + h) * 5 + d) as f32);
    }
    let want = Tensor::from_vec(want, (2, 3, 4, 5), &device()?)?;
    close("x (2, 4, 3, 5), counting up", Ok(got), &want, 0.0)
}

pub fn heads_are_laid_out_anew(day: &Day) -> Outcome {
    let got = (day.heads_first)(&counting(&[2, 4, 3, 5])?)?;
    let product = got.matmul(&got.t()?);
    let said = product.as_ref().err().map(plain).unwrap_or_default();
    let said: String = said.chars().take_while(|c| *c != '{').collect();
    ensure(
        "the result times its own transpose",
        product.is_ok() && got.is_contiguous(),
        &format!("the numbers still lie in their old order; candle says: {}", said.trim()),
    )
}

pub fn rows_are_picked(day: &Day) -> Outcome {
    let x = counting(&[400, 3])?;
    let rows = [7usize, 300, 0, 7];
    let want: Vec<f32> =
        rows.iter().flat_map(|r| (0..3).map(move |c| (3 * r + c) as f32)).collect();
    let want = Tensor::from_vec(want, (4, 3), &device()?)?;
    close("x (400, 3), rows [7, 300, 0, 7]", (day.pick_rows)(&x, &rows), &want, 0.0)
        .likely_even_of_an_error(
            "index_select takes a vector of u32, and the dimension to pick along",
        )
}

pub fn the_last_position_is_left(day: &Day) -> Outcome {
    let want = Tensor::new(&[[8f32, 9., 10., 11.], [20., 21., 22., 23.]], &device()?)?;
    close("x (2, 3, 4), counting up", (day.last_position)(&counting(&[2, 3, 4])?), &want, 0.0)
        .likely(
        "`narrow` keeps a dimension of 1, `i` drops it; both count from 0, and neither knows -1",
    )
}

pub fn no_position_is_refused(day: &Day) -> Outcome {
    let x = Tensor::zeros((2, 0, 4), DType::F32, &device()?)?;
    refused_calmly("x (2, 0, 4): no position", || (day.last_position)(&x))
}

pub fn a_product_is_in_f32(day: &Day) -> Outcome {
    let device = device()?;
    // 1 + 1/256 needs more digits than bf16 has; 2 and 0.5 don't.
    let a = Tensor::new(&[[1f32 + 1.0 / 256.0, 1.0]], &device)?;
    let b = Tensor::new(&[[2f32, 0.5], [1.0, 2.0]], &device)?;
    let want = Tensor::new(&[[3f32 + 2.0 / 256.0, 2.5 + 0.5 / 256.0]], &device)?;
    for dtype in [DType::BF16, DType::F16, DType::F32] {
        let got = (day.product_f32)(&a, &b.to_dtype(dtype)?)?;
        let input = format!("[[1.00390625, 1]] in f32, times [[2, 0.5], [1, 2]] in {dtype:?}");
        equal(&format!("the type of {input}"), Ok(got.dtype()), &DType::F32)?;
        // Every product and sum here is exact in f32.
        close(&input, Ok(got), &want, 0.0)?;
    }
    Ok(())
}

pub fn rows_are_multiplied_with_rows(day: &Day) -> Outcome {
    let device = device()?;
    let q = Tensor::new(&[[1f32, 0., 2.], [0., 1., 1.]], &device)?;
    let k = Tensor::new(&[[1f32, 2., 3.], [4., 5., 6.], [0., 1., 0.], [2., 2., 2.]], &device)?;
    // (1, 0, 2) · (4, 5, 6) = 16, and so on.
    let want = Tensor::new(&[[7f32, 16., 0., 6.], [5., 11., 1., 4.]], &device)?;
    close("q (2, 3), k (4, 3)", (day.dot_products)(&q, &k), &want, TOLERANCE)
}

pub fn square_shapes_hide_nothing(day: &Day) -> Outcome {
    let mut random = Random::new(10);
    let (q, k) = (random.tensor(&[3, 3])?, random.tensor(&[3, 3])?);
    let (rows, others) = (q.to_vec2::<f32>()?, k.to_vec2::<f32>()?);
    let dot = |a: &[f32], b: &[f32]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f32>();
    let want: Vec<f32> = rows.iter().flat_map(|a| others.iter().map(move |b| dot(a, b))).collect();
    let want = Tensor::from_vec(want, (3, 3), &device()?)?;
    close("q (3, 3), k (3, 3): every shape fits", (day.dot_products)(&q, &k), &want, TOLERANCE)
}

/// Checks that every row of the chapter's table, torch to candle, compiles and does what it says.
pub fn the_chapters_table() -> Result<()> {
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

pub fn embed_equals_candle_nn(day: &Day) -> Outcome {
    let mut random = Random::new(11);
    for _ in 0..20 {
        let (b, t) = (1 + random.below(4), 1 + random.below(6));
        let (v, c) = (1 + random.below(9), 1 + random.below(7));
        let table = random.tensor(&[v, c])?;
        let ids: Vec<u32> = (0..b * t).map(|_| random.below(v) as u32).collect();
        let ids = Tensor::from_vec(ids, (b, t), &device()?)?;
        let want = candle_nn::Embedding::new(for_candle_nn(&table)?, c);
        let want = want.forward(&for_candle_nn(&ids)?)?;
        let input = format!("a table ({v}, {c}), ids ({b}, {t}), against candle_nn::Embedding");
        close(&input, (day.embed)(&table, &ids), &want, 0.0)?;
    }
    Ok(())
}

pub fn score_equals_candle_nn(day: &Day) -> Outcome {
    let mut random = Random::new(12);
    for _ in 0..20 {
        let (b, t) = (1 + random.below(4), 1 + random.below(6));
        let (v, c) = (1 + random.below(9), 1 + random.below(7));
        let (table, hidden) = (random.tensor(&[v, c])?, random.tensor(&[b, t, c])?);
        let linear = candle_nn::Linear::new(for_candle_nn(&table)?, None);
        let want = linear.forward(&for_candle_nn(&hidden)?)?;
        let input =
            format!("hidden ({b}, {t}, {c}), a table ({v}, {c}), against candle_nn::Linear");
        close(&input, (day.score)(&table, &hidden), &want, TOLERANCE)?;
    }
    Ok(())
}
