//! A loop that is written out before the compiler sees it.

/// A loop up to a constant, at most 8. What is indexed by its variable stays in registers. The
/// compiler unrolls larger loops itself, but so late that their sums are in memory by then.
///
/// Each condition is a constant of its own, so that rustc drops the steps behind the end before it
/// makes code of them: a micro-kernel of 3 by 8 sums would be compiled from 64 steps otherwise.
macro_rules! unrolled {
    ($i:ident in $n:expr => $body:block) => {
        unrolled!(@ $i $n, $body, 0 1 2 3 4 5 6 7)
    };
    (@ $i:ident $n:expr, $body:block, $($at:literal)*) => {
        $(if const { $at < $n } {
            let $i = $at;
            $body
        })*
    };
}
pub(crate) use unrolled;
