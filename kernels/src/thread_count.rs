//! How many threads a product is shared among. The course's runner compiles this file, too: the
//! engine and the programs that the runner starts must not disagree.

/// The number of threads for products: the physical cores (on Apple's chips the fast ones), and
/// never more than this process may use.
///
/// Two threads on one core slow each other down. A container or `taskset` may allow fewer cores
/// than the machine has: threads beyond them would wait for each other's turn at every product.
pub fn default_threads() -> usize {
    let physical = fast_cores().unwrap_or_else(num_cpus::get_physical);
    let allowed = std::thread::available_parallelism().map_or(physical, usize::from);
    physical.min(allowed).max(1)
}

/// The fast cores of a chip that has two kinds.
#[cfg(target_os = "macos")]
fn fast_cores() -> Option<usize> {
    let mut sysctl = std::process::Command::new("sysctl");
    let output = sysctl.args(["-n", "hw.perflevel0.physicalcpu"]).output().ok()?;
    String::from_utf8_lossy(&output.stdout).trim().parse().ok()
}

#[cfg(not(target_os = "macos"))]
fn fast_cores() -> Option<usize> {
    None
}
