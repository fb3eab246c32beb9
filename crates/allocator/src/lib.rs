//! The allocator of the programs that compute. A program gets it by calling [`keep_freed_memory`].

#![warn(missing_docs)]

use std::ffi::{c_int, c_long};

/// The system's allocator returns a freed large block to the kernel, and the next one costs a page
/// fault for every 4 KiB: a quarter of the time of a long prompt. This allocator keeps freed blocks
/// for a while.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

// Declared here, because mimalloc's crate has these functions only with a feature that takes one
// more crate, and has no name for this option.
extern "C" {
    fn mi_option_set_default(option: c_int, value: c_long);
    #[cfg(test)]
    fn mi_option_get(option: c_int) -> c_long;
}

/// `mi_option_purge_delay`: after how many milliseconds freed memory goes back to the kernel.
const PURGE_DELAY: c_int = 15;

/// Keeps freed memory until the program ends: every layer of a pass and every step of a server
/// allocates blocks of the same sizes again. To be called at the start of `main`. If the
/// environment has `MIMALLOC_PURGE_DELAY`, that holds.
pub fn keep_freed_memory() {
    let never = -1;
    // SAFETY: mimalloc has this function, with these types, for calls at any time.
    unsafe { mi_option_set_default(PURGE_DELAY, never) }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    fn delay() -> super::c_long {
        // SAFETY: the same as above.
        unsafe { super::mi_option_get(super::PURGE_DELAY) }
    }

    /// Runs this program again for the test `show`, with this environment and nothing else.
    fn shown(environment: &[(&str, &str)]) -> String {
        let mut again = Command::new(std::env::current_exe().unwrap());
        again.args(["--exact", "--include-ignored", "--nocapture", "tests::show"]);
        let output = again.env_clear().envs(environment.iter().copied()).output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        let line = text.lines().find_map(|line| line.split_once("delay: "));
        line.unwrap_or_else(|| panic!("{text}")).1.to_string()
    }

    #[test]
    #[ignore = "run by the others, in a process of its own"]
    fn show() {
        let before = delay();
        super::keep_freed_memory();
        println!("\ndelay: {before}, then {}", delay());
    }

    /// The default also shows that the option with this number is the delay: mimalloc could number
    /// its options anew.
    #[test]
    fn freed_memory_is_kept_in_a_program_that_cargo_did_not_start() {
        assert_eq!(shown(&[]), "1000, then -1");
    }

    #[test]
    fn the_environment_decides_first() {
        assert_eq!(shown(&[("MIMALLOC_PURGE_DELAY", "70")]), "70, then 70");
    }
}
