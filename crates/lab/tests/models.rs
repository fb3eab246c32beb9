//! Checks that the runner and the engine agree on the names of models and on the default device.
//! The runner doesn't depend on the engine's crates, so it has these names of its own.

#[test]
fn saved_checks_depend_on_all_embedded_models() {
    assert_eq!(xtask::checking::saved::MODELS, candecode_formats::hub::EMBEDDED_MODELS);
}

#[test]
fn the_widened_model_and_the_default_device_have_one_name() {
    assert_eq!(xtask::commands::run_engine::WIDENED, candecode_formats::WIDENED);
    assert_eq!(xtask::host::DEFAULT_DEVICE, candecode::kit::device::DEFAULT);
}
