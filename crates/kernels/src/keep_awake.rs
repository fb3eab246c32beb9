//! Threads that do not fall asleep between two products. rayon's sleep after some 20 µs without
//! work, which is as long as a norm takes. A step has 150 products, and to be woken for each of
//! them costs a twentieth of it.

use rayon::Yield;
use std::sync::atomic::{AtomicUsize, Ordering};

/// How often a thread looks for work in vain before it sleeps. It lets others have its core each
/// time, and all of this takes less than a millisecond.
const ROUNDS: usize = 1000;

/// How many threads are kept awake now: the pool is the process's, and so is its sleep.
static AWAKE: AtomicUsize = AtomicUsize::new(0);

/// Keeps the other threads of the pool awake for a moment, unless some already are. They take
/// whatever work there is meanwhile.
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
