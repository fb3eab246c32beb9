//! What each connection is doing, which decides whether it can be closed to admit a new one.

use crate::util::lock;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tokio::sync::Notify;

/// A connection that has waited this long for its client can be closed to admit a new one. Clients
/// send their request right after connecting, so this is long enough even when many connect at
/// once.
const IDLE: Duration = Duration::from_millis(50);

/// All open connections.
pub type Open = Mutex<Vec<Arc<Activity>>>;

/// The state of a connection that decides whether it can be evicted. Handlers find it in the
/// request's extensions.
pub struct Activity {
    /// When the connection started waiting for its client. None while a request is being answered.
    waits: Mutex<Option<Instant>>,
    /// Notified when this connection has to close to make room for another.
    pub evicted: Notify,
}

impl Activity {
    /// Creates the state of a connection that waits for its first request.
    pub fn new() -> Self {
        Self { waits: Mutex::new(Some(Instant::now())), evicted: Notify::new() }
    }

    /// Records whether the request body is being read. The time counts from the start of the body,
    /// so that a client can't hold on to its place by sending a byte now and then.
    pub fn reads(&self, reading: bool) {
        *lock(&self.waits) = reading.then(Instant::now);
    }

    /// Returns the start of this connection's wait if it can be evicted, and None if it can't.
    fn evictable(&self) -> Option<Instant> {
        (*lock(&self.waits)).filter(|since| since.elapsed() >= IDLE)
    }
}

/// Evicts the connection that has been idle the longest. Returns false if none is idle.
pub fn evict(open: &Open) -> bool {
    let open = lock(open);
    let idle = open.iter().filter_map(|one| Some((one.evictable()?, one)));
    let Some((_, oldest)) = idle.min_by_key(|(since, _)| *since) else { return false };
    oldest.reads(false); // so that it isn't picked again
    oldest.evicted.notify_one();
    true
}

/// Protects a connection from eviction while one of its requests is being answered.
pub struct Answering(Arc<Activity>);

impl Answering {
    /// Marks the connection as busy until the returned value is dropped.
    pub fn new(activity: Arc<Activity>) -> Self {
        *lock(&activity.waits) = None;
        Self(activity)
    }
}

impl Drop for Answering {
    fn drop(&mut self) {
        *lock(&self.0.waits) = Some(Instant::now());
    }
}
