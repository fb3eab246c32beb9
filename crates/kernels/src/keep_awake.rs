//! Keeps threads from falling asleep between two products. rayon's threads go to sleep after about
//! 20 µs without work, which is as long as a norm takes. A step has 150 products, and waking the
//! threads for each of them would cost a twentieth of the step.

use rayon::Yield;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Number of failed attempts to find work before a thread sleeps. It yields its core after each
/// attempt, and all of them together take less than a millisecond.
const ROUNDS: usize = 1000;

/// Number of threads being kept awake. It is global because the pool is, too.
static AWAKE: AtomicUsize = AtomicUsize::new(0);

/// Keeps the other threads of the pool awake for a moment, unless some already are. Meanwhile, they
/// pick up any work that appears.
pub fn keep_awake() {
    let caller = rayon::current_thread_index();
    let others = rayon::current_num_threads() - usize::from(caller.is_some());
    if AWAKE.compare_exchange(0, others, Ordering::Relaxed, Ordering::Relaxed).is_err() {
        return;
    }
    rayon::spawn_broadcast(move |thread| {
        if Some(thread.index()) == caller {
            return;
        }
        let mut in_vain = 0;
        while in_vain < ROUNDS {
            if rayon::yield_now() == Some(Yield::Executed) {
                in_vain = 0;
            } else {
                in_vain += 1;
                std::thread::yield_now();
            }
        }
        AWAKE.fetch_sub(1, Ordering::Relaxed);
    });
}
