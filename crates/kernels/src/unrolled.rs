//! A loop that is unrolled before the compiler sees it.

/// A loop up to a constant, at most 8. Arrays indexed by its variable stay in registers. The
/// compiler also unrolls larger loops by itself, but so late that their sums are already in memory.
///
/// Each condition is a separate constant, so rustc drops the steps past the end before generating
/// code. Otherwise a micro-kernel of 3 by 8 sums would be compiled from 64 steps.
macro_rules! unrolled {
    ($i:ident in $n:expr => $body:block) => {
        unrolled!(@ $i $n, $body, 0 1 2 3 4 5 6 7)
    };
    // Up to 16 iterations, for bounds that are generic parameters.
    ($i:ident in $n:expr, at most 16 => $body:block) => {
        unrolled!(@ $i $n, $body, 0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15)
    };
    (@ $i:ident $n:expr, $body:block, $($at:literal)*) => {
        $(if const { $at < $n } {
            let $i = $at;
            $body
        })*
    };
}
pub(crate) use unrolled;
