//! Got against want: the first difference, in words.

use super::{Failure, Kind, Outcome};
use candle_core::{DType, Result, Tensor};
use std::fmt::Debug;

fn wrong(input: &str, got: String, mut lines: Vec<String>) -> Outcome {
    if !input.is_empty() {
        lines.insert(0, format!("input  {input}"));
    }
    Err(Failure::new(Kind::Wrong { got }, lines))
}

/// Where element `at` of a tensor of that shape is: `[0, 1, 3]`.
fn place(mut at: usize, shape: &[usize]) -> Vec<usize> {
    let mut index = vec![0; shape.len()];
    for (i, size) in index.iter_mut().zip(shape).rev() {
        *i = at % size;
        at /= size;
    }
    index
}

/// A number as the reader sees it: seven digits, so that two mistakes with other numbers also read
/// differently.
fn digits(x: f32) -> String {
    format!("{x:.6e}").parse::<f64>().map_or(format!("{x}"), |x| format!("{x}"))
}

/// How far apart two lists of numbers are. NaN is no distance, so it is counted.
fn how_far(got: &[f32], want: &[f32]) -> String {
    let pairs = || got.iter().zip(want);
    let most = pairs().map(|(g, w)| if g == w { 0.0 } else { (g - w).abs() }).fold(0.0, f32::max);
    match pairs().filter(|(g, _)| g.is_nan()).count() {
        0 => format!("the largest difference is {}", digits(most)),
        nan if nan == got.len() => "all of the numbers are NaN".to_string(),
        nan => format!("{nan} of the {} numbers are NaN", got.len()),
    }
}

/// Two tensors agree in shape, and in every number to `tolerance` (absolute; every call says in a
/// comment why that much). On Metal and CUDA, whose fast math rounds otherwise, ten times as much
/// is allowed.
///
/// `got` may be an error of the reader's code.
pub fn close(input: &str, got: Result<Tensor>, want: &Tensor, tolerance: f32) -> Outcome {
    let got = got?;
    if got.dims() != want.dims() {
        let lines = vec![
            format!("got    shape {:?}", got.dims()),
            format!("want   shape {:?}", want.dims()),
        ];
        return wrong(input, format!("shape {:?}", got.dims()), lines);
    }
    let tolerance = if got.device().is_cpu() { tolerance } else { 10.0 * tolerance };
    let flat = |t: &Tensor| t.flatten_all()?.to_dtype(DType::F32)?.to_vec1::<f32>();
    let (g, w) = (flat(&got)?, flat(want)?);
    // Written so that NaN is a difference, and equal infinities are none.
    let same = |(g, w): (&f32, &f32)| g == w || (g - w).abs() <= tolerance;
    let Some(at) = g.iter().zip(&w).position(|pair| !same(pair)) else { return Ok(()) };
    let exact = tolerance == 0.0;
    let to = if exact { "exactly".to_string() } else { format!("to {tolerance:e}") };
    let wanted = if w[at].is_nan() {
        "a number, but what this is compared with is NaN as well".to_string()
    } else {
        format!("{}   ({to})", digits(w[at]))
    };
    let lines = vec![
        format!("first difference at {:?} of shape {:?}", place(at, want.dims()), want.dims()),
        format!("got    {}", digits(g[at])),
        format!("want   {wanted}"),
        how_far(&g, &w),
    ];
    let got: Vec<String> = g.iter().map(|x| digits(*x)).collect();
    wrong(input, got.join(" "), lines)
}

/// Two tensors agree to the last bit.
pub fn bits_equal(input: &str, got: Result<Tensor>, want: &Tensor) -> Outcome {
    close(input, got, want, 0.0)
}

/// Two numbers agree, to `tolerance` of the wanted one (every call says in a comment why that
/// much).
pub fn near(input: &str, got: Result<f64>, want: f64, tolerance: f64) -> Outcome {
    let got = got?;
    // Written so that NaN is a difference, and equal infinities are none.
    if got == want || (got - want).abs() <= tolerance * want.abs() {
        return Ok(());
    }
    let shown =
        |x: f64| format!("{x:.6e}").parse::<f64>().map_or(format!("{x}"), |x| format!("{x}"));
    let lines = vec![format!("got    {}", shown(got)), format!("want   {}", shown(want))];
    wrong(input, shown(got), lines)
}

/// Two values are equal.
pub fn equal<T: Debug + PartialEq>(input: &str, got: Result<T>, want: &T) -> Outcome {
    let got = got?;
    if got == *want {
        return Ok(());
    }
    let lines = vec![format!("got    {got:?}"), format!("want   {want:?}")];
    wrong(input, format!("{got:?}"), lines)
}

/// Two lists of tokens are equal. `margins`, if there are any, are the oracle's decision margins
/// token by token: a difference where the two best tokens are closer than 1e-3 is a near-tie that
/// another order of sums may flip.
pub fn equal_tokens(input: &str, got: Result<Vec<u32>>, want: &[u32], margins: &[f32]) -> Outcome {
    let got = got?;
    if got == want {
        return Ok(());
    }
    let at = got.iter().zip(want).position(|(g, w)| g != w).unwrap_or(got.len().min(want.len()));
    let show = |ids: &[u32]| match ids.get(at) {
        Some(id) => format!(
            "token {at} is {id}, in {:?}",
            &ids[at.saturating_sub(2)..(at + 3).min(ids.len())]
        ),
        None => format!("{} tokens, the end", ids.len()),
    };
    let mut lines = vec![
        format!("first difference at token {at}"),
        format!("got    {}", show(&got)),
        format!("want   {}", show(want)),
    ];
    if margins.get(at).is_some_and(|margin| *margin < 1e-3) {
        lines.push(
            "a near-tie: the two best tokens are less than 0.001 apart here, so this is no bug"
                .into(),
        );
    }
    wrong(input, format!("{got:?}"), lines)
}

/// The call must fail, and its message must contain every word of `says`: only letters and digits
/// are compared, so that `top_k`, `top-k` and `Top k` are one word.
pub fn refused<T: Debug>(input: &str, got: Result<T>, says: &[&str]) -> Outcome {
    match got {
        Ok(value) => {
            let lines = vec![format!("got    {value:?}"), "want   an error".to_string()];
            wrong(input, format!("{value:?}"), lines)
        }
        Err(error) => {
            let text = candecode::kit::error::plain(&error);
            let plain = letters(&text);
            match says.iter().find(|word| !plain.contains(&letters(word))) {
                None => Ok(()),
                Some(word) => {
                    let lines = vec![
                        format!("got    the error: {text}"),
                        format!("want   an error that says \"{word}\""),
                    ];
                    wrong(input, text, lines)
                }
            }
        }
    }
}

/// As [`refused`], where a forgotten test makes the code panic: that is a finding like any other,
/// with its input.
pub fn refused_calmly<T: Debug>(input: &str, call: impl FnOnce() -> Result<T>) -> Outcome {
    let caught = std::panic::catch_unwind(std::panic::AssertUnwindSafe(call));
    match caught {
        Ok(got) => refused(input, got, &[]),
        Err(panic) if candecode::kit::panics::unwritten(&*panic).is_some() => {
            std::panic::resume_unwind(panic)
        }
        Err(panic) => {
            let text = super::describe_panic(&*panic);
            let lines = vec![format!("got    a panic: {text}"), "want   an error (`bail!`)".into()];
            wrong(input, text, lines)
        }
    }
}

fn letters(text: &str) -> String {
    text.chars().filter(|c| c.is_alphanumeric()).flat_map(char::to_lowercase).collect()
}

/// Something holds.
pub fn ensure(input: &str, holds: bool, otherwise: &str) -> Outcome {
    if holds {
        return Ok(());
    }
    wrong(input, otherwise.to_string(), vec![otherwise.to_string()])
}
