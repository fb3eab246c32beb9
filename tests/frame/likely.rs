//! Tests of the frame that the checks of all days share.

#[path = "mod.rs"]
mod checks;

use checks::{equal, Likely as _};

#[test]
fn likely_if_not_finite_requires_a_non_finite_value() {
    let guess = |got: f32| {
        let wrong = equal("x", Ok(got), &0.5).likely_if_not_finite("exp(1000) is infinite");
        wrong.unwrap_err().likely
    };
    assert_eq!(guess(1.0), None);
    assert!(guess(f32::NAN).is_some() && guess(f32::NEG_INFINITY).is_some());
}
