//! A loop that a macro unrolls, before LLVM's optimizer runs.

/// A loop from 0 to a constant, with at most 8 iterations. Arrays indexed by its variable stay in
/// registers. The compiler would unroll the loop, too, but if it is large, only after it has put
/// the arrays in memory.
///
/// Each condition is a separate constant, so rustc drops the steps past the end before generating
/// code. Without that, it would compile all 8 by 8 steps for a micro-kernel of 3 by 8 sums.
macro_rules! unrolled {
    ($i:ident in $n:expr => $body:block) => {
        unrolled!(@ $i $n, $body, 0 1 2 3 4 5 6 7)
    };
    // The same for up to 16 iterations.
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
