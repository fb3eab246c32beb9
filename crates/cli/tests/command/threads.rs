//! Runs the command on one core.

/// Simulates a one-core container on a larger machine: `taskset` allows a single core.
#[cfg(target_os = "linux")]
#[test]
fn threads_do_not_exceed_the_allowed_cores() {
    let mut command = std::process::Command::new("taskset");
    command.args(["--cpu-list", "0", env!("CARGO_BIN_EXE_candecode")]);
    command.args(["-p", "Once", "--max-new-tokens", "1", "--kernels", "fast", "--stats"]);
    let output = command.env_remove("RAYON_NUM_THREADS").output().unwrap();
    let stats = String::from_utf8_lossy(&output.stderr);
    assert!(stats.contains(" 1 threads"), "{stats}");
}
