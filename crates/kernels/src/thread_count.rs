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

/// The most threads that a variable of the environment can ask for: four for each core, and 16 on
/// any machine. More of them do nothing but wait for each other, thousands for minutes.
fn most_threads() -> usize {
    4 * std::thread::available_parallelism().map_or(4, usize::from).max(4)
}

/// The number of threads that a variable of the environment asks for, if not too many; `None` if it
/// is unset, 0, or not a number.
pub fn threads_asked_for(variable: &str) -> Option<usize> {
    let digits = std::env::var(variable).ok()?.trim().trim_start_matches('+').to_string();
    let a_number = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    let most = most_threads();
    // What a usize cannot hold is too many, too.
    let count = digits.parse().unwrap_or(most).min(most);
    (a_number && count > 0).then_some(count)
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
