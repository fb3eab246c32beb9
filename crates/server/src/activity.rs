//! What each connection is doing, which decides whether it can be closed to admit a new one.

use crate::util::lock;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tokio::sync::Notify;
use tokio::time::sleep;

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

    /// Evicts this connection, which then doesn't wait anymore.
    fn evict(&self) {
        self.reads(false);
        self.evicted.notify_one();
    }
}

/// Evicts the connection that has waited for its client the longest, as soon as that is long
/// enough. Returns false if none waits.
///
/// After a moment without the processor, the server finds many new connections at once, none of
/// which has waited for long. They mustn't keep a client out.
pub async fn evict(open: &Open) -> bool {
    loop {
        let rest = {
            let open = lock(open);
            let waiting = open.iter().filter_map(|one| Some(((*lock(&one.waits))?, one)));
            let Some((since, oldest)) = waiting.min_by_key(|(since, _)| *since) else {
                return false;
            };
            let rest = IDLE.saturating_sub(since.elapsed());
            if rest.is_zero() {
                oldest.evict();
                return true;
            }
            rest
        };
        sleep(rest).await;
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_that_has_just_come_is_evicted_once_it_has_waited() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let (works, waits) = (Arc::new(Activity::new()), Arc::new(Activity::new()));
        let answering = Answering::new(works.clone());
        let open = Open::new(vec![works, waits.clone()]);
        assert!(runtime.block_on(evict(&open)));
        runtime.block_on(waits.evicted.notified());
        assert!(!runtime.block_on(evict(&open)), "the other one is at work");
        drop(answering);
        assert!(runtime.block_on(evict(&open)), "now it waits for the next request");
    }
}
