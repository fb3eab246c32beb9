//! Compares the actual result with the expected one and describes the first difference.

use super::{Failure, Kind, Outcome};
use candle_core::{DType, Result, Tensor};
use std::fmt::Debug;

fn wrong(input: &str, got: String, mut lines: Vec<String>) -> Outcome {
    if !input.is_empty() {
        lines.insert(0, format!("input  {input}"));
    }
    Err(Failure::new(Kind::Wrong { got }, lines))
}

/// Returns the value that the reader's code returned. An error gets a line with the input.
fn value<T>(input: &str, got: Result<T>) -> std::result::Result<T, Failure> {
    got.map_err(|error| {
        let mut failure = Failure::from(error);
        if !input.is_empty() {
            failure.lines.insert(0, format!("input  {input}"));
        }
        failure
    })
}

/// Returns the index of element `at` in a tensor of this shape, such as `[0, 1, 3]`.
fn place(mut at: usize, shape: &[usize]) -> Vec<usize> {
    let mut index = vec![0; shape.len()];
    for (i, size) in index.iter_mut().zip(shape).rev() {
        *i = at % size;
        at /= size;
    }
    index
}

/// Formats a number for the reader with seven significant digits, so that different mistakes rarely
/// print the same number.
fn digits(x: f32) -> String {
    format!("{x:.6e}").parse::<f64>().map_or(format!("{x}"), |x| format!("{x}"))
}

/// Describes how far apart two lists of numbers are. NaN has no distance, so NaNs are counted.
fn how_far(got: &[f32], want: &[f32]) -> String {
    let pairs = || got.iter().zip(want);
    let most = pairs().map(|(g, w)| if g == w { 0.0 } else { (g - w).abs() }).fold(0.0, f32::max);
    match pairs().filter(|(g, _)| g.is_nan()).count() {
        0 => format!("the largest difference is {}", digits(most)),
        nan if nan == got.len() => "all of the numbers are NaN".to_string(),
        nan => format!("{nan} of the {} numbers are NaN", got.len()),
    }
}

/// Checks that two tensors have the same shape, and that all numbers agree to within an absolute
/// `tolerance` (each call explains its choice in a comment). Metal and CUDA get ten times the
/// tolerance, because their fast math rounds differently.
///
/// `got` can be an error from the reader's code.
pub fn close(input: &str, got: Result<Tensor>, want: &Tensor, tolerance: f32) -> Outcome {
    let got = value(input, got)?;
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
    // Written so that NaN counts as a difference and equal infinities don't.
    let same = |(g, w): (&f32, &f32)| g == w || (g - w).abs() <= tolerance;
    let Some(at) = g.iter().zip(&w).position(|pair| !same(pair)) else { return Ok(()) };
    let exact = tolerance == 0.0;
    let to = if exact { "exactly".to_string() } else { format!("to within {tolerance:e}") };
    let wanted = if w[at].is_nan() {
        "a number, but the value to compare with is NaN".to_string()
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

/// Checks that two tensors agree bit for bit.
pub fn bits_equal(input: &str, got: Result<Tensor>, want: &Tensor) -> Outcome {
    close(input, got, want, 0.0)
}

/// Checks that two numbers agree, to within `tolerance` relative to `want` (each call explains its
/// choice in a comment).
pub fn near(input: &str, got: Result<f64>, want: f64, tolerance: f64) -> Outcome {
    let got = value(input, got)?;
    // Written so that NaN counts as a difference and equal infinities don't.
    if got == want || (got - want).abs() <= tolerance * want.abs() {
        return Ok(());
    }
    let shown =
        |x: f64| format!("{x:.6e}").parse::<f64>().map_or(format!("{x}"), |x| format!("{x}"));
    let lines = vec![format!("got    {}", shown(got)), format!("want   {}", shown(want))];
    wrong(input, shown(got), lines)
}

/// Checks that two values are equal.
pub fn equal<T: Debug + PartialEq>(input: &str, got: Result<T>, want: &T) -> Outcome {
    let got = value(input, got)?;
    if got == *want {
        return Ok(());
    }
    let lines = vec![format!("got    {got:?}"), format!("want   {want:?}")];
    wrong(input, format!("{got:?}"), lines)
}

/// Checks that two lists of tokens are equal. `margins`, if not empty, holds the oracle's decision
/// margin for each token. A difference where the top two tokens are closer than 1e-3 is a near-tie,
/// which a different summation order can flip.
pub fn equal_tokens(input: &str, got: Result<Vec<u32>>, want: &[u32], margins: &[f32]) -> Outcome {
    let got = value(input, got)?;
    if got == want {
        return Ok(());
    }
    let at = got.iter().zip(want).position(|(g, w)| g != w).unwrap_or(got.len().min(want.len()));
    let show = |ids: &[u32]| match ids.get(at) {
        Some(id) => format!(
            "token {at} is {id}, in {:?}",
            &ids[at.saturating_sub(2)..(at + 3).min(ids.len())]
        ),
        None => format!("nothing, it has only {} tokens", ids.len()),
    };
    let mut lines = vec![
        format!("first difference at token {at}"),
        format!("got    {}", show(&got)),
        format!("want   {}", show(want)),
    ];
    if margins.get(at).is_some_and(|margin| *margin < 1e-3) {
        lines.push(
            "a near-tie: the top two tokens are within 0.001 of each other, so maybe not a bug"
                .into(),
        );
    }
    wrong(input, format!("{got:?}"), lines)
}

/// Checks that the call failed, with a message that contains every word of `says`. Only letters and
/// digits are compared, so `top_k`, `top-k` and `Top k` are the same.
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

/// Like [`refused`], but for calls that panic if the reader's code doesn't validate its input. The
/// panic is reported like any other failure, with the input that caused it.
pub fn refused_calmly<T: Debug>(input: &str, call: impl FnOnce() -> Result<T>) -> Outcome {
    let caught = std::panic::catch_unwind(std::panic::AssertUnwindSafe(call));
    match caught {
        Ok(got) => refused(input, got, &[]),
        Err(panic) if candecode::kit::panics::unwritten(&*panic).is_some() => {
            std::panic::resume_unwind(panic)
        }
        Err(panic) => {
            let text = candecode::kit::panics::describe_panic(&*panic);
            let lines = vec![format!("got    a panic: {text}"), "want   an error (`bail!`)".into()];
            wrong(input, text, lines)
        }
    }
}

fn letters(text: &str) -> String {
    text.chars().filter(|c| c.is_alphanumeric()).flat_map(char::to_lowercase).collect()
}

/// Checks that `holds` is true; if not, the failure reads `otherwise`.
pub fn ensure(input: &str, holds: bool, otherwise: &str) -> Outcome {
    if holds {
        return Ok(());
    }
    wrong(input, otherwise.to_string(), vec![otherwise.to_string()])
}
