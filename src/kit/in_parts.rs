//! Work on some indexes at a time: for the threads, and for the caches.

use candle_core::{Result, Tensor};
use rayon::prelude::*;

/// Numbers of a part: few enough that the second cache holds them and what is made of them.
const PART: usize = 1 << 14;

/// `f(x)` for an `f` that computes every index of dimension `dim` from that index alone, such as a
/// norm or an activation. On the CPU it gets some indexes at a time: threads share the work, and
/// what one operation leaves is still in a cache for the next. The numbers are the same, bit for
/// bit.
///
/// The tensors of `x` have one length at `dim`, and `f` keeps it: the result has the shape that
/// `f` gives the whole.
///
/// # Errors
/// If `f` returns one.
pub fn in_parts<const N: usize>(
    x: [&Tensor; N],
    dim: usize,
    f: impl Fn([&Tensor; N]) -> Result<Tensor> + Sync,
) -> Result<Tensor> {
    let all = x[0].dims().get(dim).copied().unwrap_or(0);
    let parts = all.min(x[0].elem_count() / PART);
    if parts < 2 || !x[0].device().is_cpu() || cfg!(target_arch = "wasm32") {
        return f(x);
    }
    let part = |i: usize| {
        let (start, end) = (all * i / parts, all * (i + 1) / parts);
        let x = x.iter().map(|x| x.narrow(dim, start, end - start));
        let x = x.collect::<Result<Vec<_>>>()?;
        f(std::array::from_fn(|i| &x[i]))
    };
    let done = (0..parts).into_par_iter().map(part).collect::<Result<Vec<_>>>()?;
    Tensor::cat(&done, dim)
}
