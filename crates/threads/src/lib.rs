//! The number of threads that share a product. This is a crate of its own because the kernels and
//! the programs that the runner starts must use the same number, and the runner, which a reader
//! compiles first, shouldn't wait for the kernels.

#![warn(missing_docs)]

/// Returns the number of threads for products: the physical cores (on Apple's chips, the fast
/// ones), but never more than this process may use.
///
/// Two threads on one core slow each other down. A container or `taskset` may allow fewer cores
/// than the machine has, and any threads beyond those would have to take turns at every product.
pub fn default_threads() -> usize {
    let physical = fast_cores().unwrap_or_else(num_cpus::get_physical);
    let allowed = std::thread::available_parallelism().map_or(physical, usize::from);
    physical.min(allowed).max(1)
}

/// Returns the maximum that an environment variable can ask for: four threads per core, and at
/// least 16. More threads would only wait for each other, and thousands of them would do so for
/// minutes.
fn most_threads() -> usize {
    4 * std::thread::available_parallelism().map_or(4, usize::from).max(4)
}

/// Returns the number of threads that an environment variable asks for, capped at a maximum. `None`
/// if it is unset, 0, or not a number.
pub fn threads_asked_for(variable: &str) -> Option<usize> {
    let digits = std::env::var(variable).ok()?.trim().trim_start_matches('+').to_string();
    let a_number = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    let most = most_threads();
    // A number that overflows usize is also capped.
    let count = digits.parse().unwrap_or(most).min(most);
    (a_number && count > 0).then_some(count)
}

/// Returns the number of fast cores on a chip with two kinds.
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
