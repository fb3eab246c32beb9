//! Tests of the frame that the checks of all days share.

#[path = "mod.rs"]
mod checks;

use checks::{equal, refused_calmly, Failure, Likely as _};

#[test]
fn likely_if_not_finite_requires_a_non_finite_value() {
    let guess = |got: f32| {
        let wrong = equal("x", Ok(got), &0.5).likely_if_not_finite("exp(1000) is infinite");
        wrong.unwrap_err().likely
    };
    assert_eq!(guess(1.0), None);
    assert!(guess(f32::NAN).is_some() && guess(f32::NEG_INFINITY).is_some());
}

#[test]
fn panics_are_compared_without_their_place() {
    candecode::kit::panics::quiet_panics();
    let refused = |call: fn() -> usize| refused_calmly("no rows", || Ok(call())).unwrap_err();
    let first = refused(|| panic!("it's empty"));
    let second = refused(|| panic!("it's empty"));
    let other = refused(|| panic!("it's full"));
    let place = |failure: &Failure| failure.lines[1].contains("tests/frame/likely.rs:");
    assert!(place(&first) && place(&second) && first.lines != second.lines, "{first:?}");
    assert_eq!(first.words(), second.words());
    assert_ne!(first.words(), other.words());
}
