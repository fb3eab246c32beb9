//! Checks that the runner and the engine agree on the embedded models. The runner doesn't depend on
//! the engine's crates, so it has a list of its own.

#[test]
fn saved_checks_depend_on_all_embedded_models() {
    assert_eq!(xtask::checking::saved::MODELS, candecode_formats::hub::EMBEDDED_MODELS);
}
