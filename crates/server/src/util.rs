//! Small functions that every part of the server uses.

use std::io::Write as _;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

/// Locks a mutex, ignoring poisoning: another thread's panic doesn't matter here.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Prints a line to standard error and ignores failures: the server may outlive its terminal, and
/// the disk may be full.
pub fn say(line: &str) {
    let _ = writeln!(std::io::stderr(), "{line}");
}

/// Returns the current time in seconds since 1970.
pub fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

/// Returns an unpredictable number, or the time if the system has no randomness to offer.
pub fn random() -> u64 {
    getrandom::u64().unwrap_or_else(|_| now())
}
