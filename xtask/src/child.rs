//! How a child process ended.

use std::process::ExitStatus;

/// Describes how a child ended: with an exit code, or by a signal or a fault, whose cause it names.
pub fn words_of(status: ExitStatus) -> String {
    #[cfg(unix)]
    if let Some(signal) = std::os::unix::process::ExitStatusExt::signal(&status) {
        let words = match signal {
            4 => "illegal instruction",
            6 => "aborted, often by endless recursion or lack of memory",
            9 => "killed, often for lack of memory",
            10 | 11 => "invalid memory access",
            _ => "ended by a signal",
        };
        return format!("signal {signal}, {words}");
    }
    match status.code() {
        Some(code) if cfg!(windows) && code < 0 => format!("status {code:#010x}"),
        Some(code) => format!("exit code {code}"),
        None => status.to_string(),
    }
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;

    #[test]
    fn a_fatal_signal_is_named() {
        let status = std::process::Command::new("sh").args(["-c", "kill -ABRT $$"]).status();
        assert!(words_of(status.unwrap()).starts_with("signal 6, aborted"));
    }
}
