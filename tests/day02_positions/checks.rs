//! Day 2's checks: positions.

#[path = "../frame/mod.rs"]
mod frame;

#[cfg(not(feature = "mine"))]
use candecode::day02_positions;
#[cfg(feature = "mine")]
#[allow(dead_code)]
#[path = "../../src/day02_positions.rs"]
mod day02_positions;

use candecode::kit::config::Llama3Scaling;
use candle_core::{DType, Device, Result, Tensor};
use frame::{close, device, ensure, equal, golden, refused, Likely, Outcome, Random};

// Products and sums of numbers near 1, and cosines and sines of angles below 10, with errors of a
// few units of 6e-8.
const TOLERANCE: f32 = 1e-5;
// At position 511, an angle can be 511 radians, where the next f32 is 3e-5 away. If frequencies
// differ in their last bit (because they were computed in f64, say), a cosine changes by that much,
// and a rotated number of size 4 by four times as much.
const FAR: f32 = 3e-4;

/// `RotaryEmbedding::new` followed by `cos_sin`.
type CosSin = fn(usize, f64, Option<Llama3Scaling>, &Tensor) -> Result<(Tensor, Tensor)>;

/// The day 2 functions under test. A rotary embedding is described by its head width, theta and
/// scaling.
#[derive(Clone, Copy)]
pub struct Day {
    pub learned: fn(&Tensor, &Tensor) -> Result<Tensor>,
    pub frequencies: fn(usize, f64) -> Result<Vec<f32>>,
    pub cos_sin: CosSin,
    pub turn: fn(f64, &Tensor, &Tensor) -> Result<Tensor>,
    pub to_halves: fn(&Tensor, usize) -> Result<Tensor>,
}

/// Builds a `Day` from a module: the reader's code, a known mistake, or the stub.
macro_rules! implementation {
    ($($path:ident)::+) => {{
        use $($path)::+ as code;
        crate::Day {
            learned: code::learned_positions,
            frequencies: code::inverse_frequencies,
            cos_sin: |d, theta, scaling, positions| {
                let rotary =
                    code::RotaryEmbedding::new(d, theta, scaling, positions.device())?;
                rotary.cos_sin(positions)
            },
            turn: |theta, x, positions| {
                let rotary = code::RotaryEmbedding::new(x.dim(3)?, theta, None, x.device())?;
                let (cos, sin) = rotary.cos_sin(positions)?;
                code::rotate(x, &cos, &sin)
            },
            to_halves: code::interleaved_to_neox,
        }
    }};
}

frame::checks! {
    day02_positions:
    2.1: a_position_picks_a_row, learned_positions_equal_gpt2,
        a_position_past_the_context_is_refused;
    2.2: frequencies_by_hand, frequencies_equal_transformers, an_odd_head_dim_is_refused;
    2.3: angles_by_hand, angles_equal_transformers, stretched_angles_equal_transformers;
    2.4: one_turn_by_hand, rope_equals_transformers, the_type_stays, position_0_changes_nothing,
        a_turn_keeps_lengths, scores_depend_only_on_distance, each_row_has_its_own_positions;
    2.5: even_rows_come_first, reordering_equals_transformers,
        reordered_weights_give_the_same_scores;
}

fn positions(rows: &[&[u32]]) -> Result<Tensor> {
    Tensor::from_vec(rows.concat(), (rows.len(), rows[0].len()), &device()?)
}

fn a_position_picks_a_row(day: &Day) -> Outcome {
    let device = device()?;
    // The table has more rows than the test uses, so that a wrong index picks another row instead
    // of always running off the end.
    let table = Tensor::from_vec(
        (0..6).flat_map(|i| [10. * i as f32, 10. * i as f32 + 1.]).collect::<Vec<f32>>(),
        (6, 2),
        &device,
    )?;
    let want = Tensor::new(
        &[[[20f32, 21.], [30., 31.]], [[0., 1.], [10., 11.]], [[10., 11.], [10., 11.]]],
        &device,
    )?;
    let got = (day.learned)(&table, &positions(&[&[2, 3], &[0, 1], &[1, 1]])?);
    close("a table of 6 rows, positions [[2, 3], [0, 1], [1, 1]]", got, &want, 0.0)
}

fn learned_positions_equal_gpt2(day: &Day) -> Outcome {
    let model = frame::models_dir()?.join("story-gpt2-1m");
    let weights = candecode_formats::open_weights(&model, DType::F32, &device()?);
    let weights = weights.map_err(|e| candle_core::Error::Msg(format!("{e:#}")))?;
    let rows = golden("day02", "wpe.rows")?;
    let table = weights.tensor("transformer.wpe.weight", &[256, rows.dim(2)?])?;
    let got = (day.learned)(&table, &golden("day02", "wpe.positions")?);
    close("wpe of story-gpt2-1m, positions [[0, 1, 255], [7, 7, 3]]", got, &rows, 0.0)
}

fn a_position_past_the_context_is_refused(day: &Day) -> Outcome {
    // On the CPU, because an accelerator wouldn't check the bounds.
    let table = Tensor::new(&[[0f32], [10.], [20.], [30.]], &Device::Cpu)?;
    let at = Tensor::new(&[[3u32, 4]], &Device::Cpu)?;
    let got = (day.learned)(&table, &at).and_then(|rows| rows.to_vec3::<f32>());
    refused("a table of 4 rows, positions [[3, 4]]", got, &["index"])
}

/// Compares frequencies by ratio, because they span many powers of ten.
fn same_frequencies(input: &str, got: Result<Vec<f32>>, want: &[f32]) -> Outcome {
    let got = got?;
    equal(&format!("number of frequencies: {input}"), Ok(got.len()), &want.len())?;
    let parts: Vec<f32> = got.iter().zip(want).map(|(got, want)| got / want).collect();
    let ones = Tensor::ones(parts.len(), DType::F32, &Device::Cpu)?;
    // One f32 unit from the power, and one from the reciprocal.
    let input = format!("each frequency divided by the expected one: {input}");
    close(&input, Tensor::new(parts, &Device::Cpu), &ones, 1e-6)
}

fn frequencies_by_hand(day: &Day) -> Outcome {
    // 10000^0, 10000^(-2/8), 10000^(-4/8), 10000^(-6/8)
    same_frequencies(
        "head_dim 8, theta 10000: 1, 0.1, 0.01, 0.001",
        (day.frequencies)(8, 10_000.0),
        &[1.0, 0.1, 0.01, 0.001],
    )
}

fn frequencies_equal_transformers(day: &Day) -> Outcome {
    for (head_dim, theta) in [(32, 1e4), (64, 1e5), (128, 1e6)] {
        let want = golden("day02", &format!("inv_freq.{head_dim}"))?.to_vec1::<f32>()?;
        let input = format!("head_dim {head_dim}, theta {theta}");
        same_frequencies(&input, (day.frequencies)(head_dim, theta), &want)?;
    }
    Ok(())
}

fn an_odd_head_dim_is_refused(day: &Day) -> Outcome {
    refused("head_dim 5", (day.frequencies)(5, 1e4), &[])?;
    refused("head_dim 0", (day.frequencies)(0, 1e4), &[])
}

/// The first thing to check if no other cause is known.
const ANGLES: &str = "the RotaryEmbedding uses task 2.2: if that task fails, fix it first. \
    An angle is position times frequency";
const TURNS: &str = "the angles come from tasks 2.2 and 2.3: if one of them fails, fix it first";

fn angles_by_hand(day: &Day) -> Outcome {
    // With head_dim 4 and theta 100, the pairs rotate by 1 and 0.1 radians per token.
    let at = positions(&[&[10, 3], &[0, 1]])?;
    let angles = [10f32, 1., 3., 0.3, 0., 0., 1., 0.1];
    let tensor =
        |f: fn(f32) -> f32| Tensor::from_vec(angles.map(f).to_vec(), (2, 2, 2), at.device());
    let (cos, sin) = (day.cos_sin)(4, 100.0, None, &at)?;
    let input = "head_dim 4, theta 100, positions [[10, 3], [0, 1]]";
    close(&format!("cosines: {input}"), Ok(cos), &tensor(f32::cos)?, TOLERANCE).likely(ANGLES)?;
    close(&format!("sines: {input}"), Ok(sin), &tensor(f32::sin)?, TOLERANCE).likely(ANGLES)
}

fn angles_equal_transformers(day: &Day) -> Outcome {
    let (cos, sin) = (day.cos_sin)(32, 1e4, None, &golden("day02", "positions")?)?;
    let input = "head_dim 32, theta 10000, positions 507 to 511 and 0 to 4";
    close(&format!("cosines: {input}"), Ok(cos), &golden("day02", "cos")?, FAR)?;
    close(&format!("sines: {input}"), Ok(sin), &golden("day02", "sin")?, FAR)
}

fn stretched_angles_equal_transformers(day: &Day) -> Outcome {
    let scaling = Llama3Scaling {
        factor: 8.0,
        low_freq_factor: 1.0,
        high_freq_factor: 4.0,
        original_max_position_embeddings: 64.0,
    };
    let (cos, sin) = (day.cos_sin)(32, 5e5, Some(scaling), &golden("day02", "positions")?)?;
    let input = "head_dim 32, theta 500000, Llama 3's scaling";
    let other = "the frequencies must come from self.inv_freq, where they are already scaled";
    let found = close(&format!("cosines: {input}"), Ok(cos), &golden("day02", "llama3.cos")?, FAR)
        .and_then(|()| {
            close(&format!("sines: {input}"), Ok(sin), &golden("day02", "llama3.sin")?, FAR)
        });
    if found.is_err() && angles_equal_transformers(day).is_err() {
        return found.likely(ANGLES); // the scaling isn't the cause
    }
    found.likely(other)
}

fn one_turn_by_hand(day: &Day) -> Outcome {
    // A head with a single pair of frequency 1, so that only the rotation itself can be wrong.
    let (c, s) = (1f32.cos(), 1f32.sin());
    let x = Tensor::new(&[[[[1f32, 0.]], [[1., 2.]]]], &device()?)?;
    let want = Tensor::new(&[[[[c, s]], [[c - 2. * s, 2. * c + s]]]], &device()?)?;
    let got = (day.turn)(100.0, &x, &positions(&[&[1]])?);
    close("heads (1, 0) and (1, 2), one pair each, position 1", got, &want, TOLERANCE)?;
    // With theta 100, pair 0 (numbers 0 and 2) rotates by 1 radian per token, and pair 1 (numbers 1
    // and 3) by 0.1.
    let (c1, s1, c2, s2) = (1f32.cos(), 1f32.sin(), 0.1f32.cos(), 0.1f32.sin());
    let device = device()?;
    let x =
        Tensor::new(&[[[[1f32, 0., 0., 0.]], [[0., 0., 0., 1.]], [[1., 2., 3., 4.]]]], &device)?;
    let want = [
        [[c1, 0., s1, 0.]],
        [[0., -s2, 0., c2]],
        [[c1 - 3. * s1, 2. * c2 - 4. * s2, 3. * c1 + s1, 4. * c2 + 2. * s2]],
    ];
    let want = Tensor::new(&[want], &device)?;
    let got = (day.turn)(100.0, &x, &positions(&[&[1]])?);
    close(
        "heads (1, 0, 0, 0), (0, 0, 0, 1), (1, 2, 3, 4), theta 100, position 1",
        got,
        &want,
        TOLERANCE,
    )
    .likely(TURNS)
}

fn rope_equals_transformers(day: &Day) -> Outcome {
    let at = golden("day02", "positions")?;
    for (name, shape) in [("q", "(2, 5, 5, 32)"), ("k", "(2, 2, 5, 32)")] {
        let got = (day.turn)(1e4, &golden("day02", name)?, &at);
        let input = format!("{name} {shape}, positions 507 to 511 and 0 to 4");
        close(&input, got, &golden("day02", &format!("{name}.turned"))?, FAR).likely(TURNS)?;
    }
    Ok(())
}

fn the_type_stays(day: &Day) -> Outcome {
    let k = golden("day02", "k")?.to_dtype(DType::BF16)?;
    let got = (day.turn)(1e4, &k, &golden("day02", "positions")?)?;
    equal("the type of a rotated bf16 k", Ok(got.dtype()), &DType::BF16)?;
    // bf16 has 8 significant bits: products and sums of numbers up to 4 round by 1/64. Going
    // through f32 rounds less often.
    close("k in bf16", Ok(got), &golden("day02", "k.turned.bf16")?, 0.04)
}

fn position_0_changes_nothing(day: &Day) -> Outcome {
    let x = Random::new(2).tensor(&[2, 3, 4, 8])?;
    let got = (day.turn)(1e4, &x, &positions(&[&[0; 4], &[0; 4]])?);
    close("x (2, 3, 4, 8), every position 0", got, &x, 0.0)
}

fn a_turn_keeps_lengths(day: &Day) -> Outcome {
    let mut random = Random::new(3);
    for _ in 0..10 {
        let (heads, t) = (1 + random.below(3), 1 + random.below(4));
        let x = random.tensor(&[1, heads, t, 8])?;
        let at: Vec<u32> = (0..t).map(|_| random.below(500) as u32).collect();
        let length = |x: &Tensor| x.sqr()?.sum_keepdim(3)?.sqrt();
        let got = (day.turn)(1e4, &x, &positions(&[&at])?);
        let input = format!("the lengths of x (1, {heads}, {t}, 8), positions {at:?}");
        close(&input, got.and_then(|x| length(&x)), &length(&x)?, TOLERANCE)?;
    }
    Ok(())
}

fn scores_depend_only_on_distance(day: &Day) -> Outcome {
    let mut random = Random::new(4);
    for _ in 0..10 {
        let (q, k) = (random.tensor(&[1, 1, 1, 16])?, random.tensor(&[1, 1, 1, 16])?);
        let (far, near) = (random.below(200) as u32, random.below(200) as u32);
        let score = |m: u32, n: u32| -> Result<Tensor> {
            let q = (day.turn)(1e4, &q, &positions(&[&[m]])?)?;
            let k = (day.turn)(1e4, &k, &positions(&[&[n]])?)?;
            (q * k)?.sum_all()
        };
        let input = |m, n| format!("query at {m}, key at {n}, against both {far} tokens earlier");
        let (m, n) = (far + near + 5, far + 5);
        close(&input(m, n), score(m, n), &score(m - far, n - far)?, FAR)?;
        let moved = (score(m, n)?.to_scalar::<f32>()? - score(m + 1, n)?.to_scalar::<f32>()?).abs();
        let what = format!("query at {m} and at {}, key at {n}", m + 1);
        ensure(&what, moved > 1e-6, "the score is the same, as if positions did not matter")?;
    }
    Ok(())
}

fn each_row_has_its_own_positions(day: &Day) -> Outcome {
    let mut random = Random::new(5);
    // The head and token counts are equal, so broadcasting a cosine along the wrong dimension fits.
    let x = random.tensor(&[3, 4, 4, 8])?;
    let rows: [&[u32]; 3] = [&[0, 1, 2, 3], &[9, 10, 11, 12], &[0, 0, 0, 1]];
    let all = (day.turn)(1e4, &x, &positions(&rows)?)?;
    for (b, at) in rows.iter().enumerate() {
        for (t, p) in at.iter().enumerate() {
            let alone = x.narrow(0, b, 1)?.narrow(2, t, 1)?;
            let alone = (day.turn)(1e4, &alone, &positions(&[&[*p]])?)?;
            let got = all.narrow(0, b, 1)?.narrow(2, t, 1);
            let input =
                format!("row {b}, token {t} of a batch, against that token alone at position {p}");
            close(&input, got, &alone, TOLERANCE)?;
        }
    }
    Ok(())
}

fn even_rows_come_first(day: &Day) -> Outcome {
    let device = device()?;
    let w = Tensor::arange(0f32, 24., &device)?.reshape((12, 2))?;
    let order = [0u32, 2, 4, 1, 3, 5, 6, 8, 10, 7, 9, 11];
    let want = w.index_select(&Tensor::new(&order, &device)?, 0)?;
    close("w (12, 2), counting up, 2 heads", (day.to_halves)(&w, 2), &want, 0.0)?;
    refused("w (12, 2), 4 heads of 3 rows", (day.to_halves)(&w, 4), &[])?;
    refused("w (12, 2), no heads", (day.to_halves)(&w, 0), &[])
}

fn reordering_equals_transformers(day: &Day) -> Outcome {
    let got = (day.to_halves)(&golden("day02", "w")?, 2);
    close("w (16, 3), 2 heads", got, &golden("day02", "w.halves")?, 0.0)
}

/// Rotates the interleaved pairs, numbers 2i and 2i + 1: the paper's layout, written out.
fn rotate_interleaved(x: &[f32], position: f32, theta: f32) -> Vec<f32> {
    let mut turned = x.to_vec();
    for (i, pair) in turned.chunks_exact_mut(2).enumerate() {
        let angle = position * theta.powf(-2.0 * i as f32 / x.len() as f32);
        let (a, b) = (pair[0], pair[1]);
        pair[0] = a * angle.cos() - b * angle.sin();
        pair[1] = b * angle.cos() + a * angle.sin();
    }
    turned
}

fn reordered_weights_give_the_same_scores(day: &Day) -> Outcome {
    let mut random = Random::new(6);
    let (wq, wk) = (random.tensor(&[8, 5])?, random.tensor(&[8, 5])?);
    let (x, y) = (random.tensor(&[5, 1])?, random.tensor(&[5, 1])?);
    let flat = |t: Tensor| t.flatten_all()?.to_vec1::<f32>();
    let q = rotate_interleaved(&flat(wq.matmul(&x)?)?, 9.0, 1e4);
    let k = rotate_interleaved(&flat(wk.matmul(&y)?)?, 4.0, 1e4);
    let want: f32 = q.iter().zip(&k).map(|(q, k)| q * k).sum();
    let turned = |w: &Tensor, x: &Tensor, p: u32| {
        let head = (day.to_halves)(w, 1)?.matmul(x)?.reshape((1, 1, 1, 8))?;
        (day.turn)(1e4, &head, &positions(&[&[p]])?)
    };
    let got = (turned(&wq, &x, 9)? * turned(&wk, &y, 4)?)?.sum_all();
    let want = Tensor::new(want, &device()?)?;
    close(
        "a NeoX-style score with reordered weights, against an interleaved score",
        got,
        &want,
        TOLERANCE,
    )
}
