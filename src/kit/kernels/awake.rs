//! Threads that wait for the next product, and do not sleep between two of them. rayon's sleep after some 20 µs without work, which
//! is how long a norm takes; a step has 150 products, and to be woken for each costs a twentieth of it.

use rayon::Yield;
use std::sync::atomic::{AtomicUsize, Ordering};

/// How often a thread looks for work in vain, and lets others have its core each time, before it sleeps: less than a millisecond.
const ROUNDS: usize = 200;

/// Threads that are kept awake.
static AWAKE: AtomicUsize = AtomicUsize::new(0);

/// Keeps the other threads of the pool awake for a moment, unless some are. They take whatever work there is meanwhile.
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
        let mut idle = 0;
        while idle < ROUNDS {
            match rayon::yield_now() {
                Some(Yield::Executed) => idle = 0,
                _ => {
                    idle += 1;
                    std::thread::yield_now();
                }
            }
        }
        AWAKE.fetch_sub(1, Ordering::Relaxed);
    });
}
