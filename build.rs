//! With the feature `mistakes`: makes the known mistakes, see `tests/wrong/known_mistakes.rs`. Without it
//! there is nothing to do, and nothing to wait for.

#[cfg(feature = "mistakes")]
#[path = "tests/wrong/known_mistakes.rs"]
mod known_mistakes;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    #[cfg(feature = "mistakes")]
    known_mistakes::make();
}
