//! Tests of the number of threads.

/// Simulates a one-core container on a larger machine: `taskset` allows a single core.
#[cfg(target_os = "linux")]
#[test]
fn threads_do_not_exceed_the_allowed_cores() {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let allowed = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:")).unwrap();
    let core = allowed.trim().split([',', '-']).next().unwrap();
    let mut command = std::process::Command::new("taskset");
    command.args(["--cpu-list", core, env!("CARGO_BIN_EXE_candecode")]);
    command.args(["-p", "Once", "--max-new-tokens", "1", "--kernels", "fast", "--stats"]);
    let output = command.env_remove("RAYON_NUM_THREADS").output().unwrap();
    let stats = String::from_utf8_lossy(&output.stderr);
    assert!(stats.contains(" 1 threads"), "{stats}");
}

#[cfg(unix)]
#[test]
fn threads_are_bounded() {
    let text = ["-p", "Once", "--model", "story-230k", "--max-new-tokens", "1", "--stats"];
    for variable in ["RAYON_NUM_THREADS", "CANDLE_NUM_THREADS"] {
        for count in ["100000", "99999999999999999999", "-5", "many", ""] {
            let mut run = crate::command(&text);
            run.env(variable, count);
            let ran = crate::streams::within_a_minute(run);
            assert_eq!(ran.code, 0, "{variable}={count}: {}", ran.err);
            let threads =
                ran.err.split(" threads)").next().and_then(|said| said.rsplit(' ').next());
            let threads: usize = threads.unwrap().parse().unwrap();
            let cores = std::thread::available_parallelism().unwrap().get();
            assert!(threads <= 4 * cores.max(4), "{variable}={count}: {}", ran.err);
        }
    }
}
