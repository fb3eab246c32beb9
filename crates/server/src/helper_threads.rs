//! Runs slow work off the HTTP thread and the model's thread, with a limit on how much runs at
//! once.

use crate::openai::{ApiError, Endpoint};
use crate::util::say;
use candecode::kit::panics::{self, Unwritten};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Semaphore;
use tokio::time::timeout;

/// Maximum time a request waits for its turn, and then the maximum time its work may take.
const LONGEST: Duration = Duration::from_secs(30);
/// Bodies longer than this, in bytes, wait in their own lane, so that they don't delay short ones.
const LONG_BODY: usize = 16 << 10;
/// Number of threads that all lanes need together.
pub const THREADS: usize = 9;

/// A kind of work with a limit on how many pieces run at once. The rest wait in order of arrival.
/// Work that never ends blocks only its own lane.
#[derive(Clone)]
pub struct Lane {
    places: Arc<Semaphore>,
    /// The kind of work, for error messages: "reading the request".
    work: &'static str,
}

impl Lane {
    fn new(places: usize, work: &'static str) -> Self {
        Self { places: Arc::new(Semaphore::new(places)), work }
    }

    /// Runs `work` on a helper thread. If the caller is dropped while it is still waiting for its
    /// turn, because the client has disconnected, the work never starts.
    ///
    /// # Errors
    /// The work's own error; 503 if its turn doesn't come in time; 504 if the work takes too long;
    /// 501 if it reaches a task that isn't written; 500 if it panics otherwise (which is reported
    /// on standard error).
    pub async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> Result<T, ApiError> + Send + 'static,
    ) -> Result<T, ApiError> {
        let what = self.work;
        let place = match timeout(LONGEST, self.places.clone().acquire_owned()).await {
            Ok(Ok(place)) => place,
            Ok(Err(_)) => return Err(ApiError::closing()),
            Err(_) => {
                return Err(ApiError::overloaded(format!(
                    "{what} has to wait for too many others; try again in a few seconds"
                )))
            }
        };
        let task = tokio::task::spawn_blocking(move || {
            let _place = place; // held until the work is done, even if the client has disconnected
            work()
        });
        match timeout(LONGEST, task).await {
            Ok(Ok(done)) => done,
            Ok(Err(error)) => {
                if error.is_panic() {
                    let panic = error.into_panic();
                    if let Some(task) = Unwritten::of(&*panic) {
                        return Err(ApiError::unwritten(task.to_string()));
                    }
                    say(&panics::describe_panic(&*panic));
                }
                Err(ApiError::failed(format!("{what} failed; the server's output has the reason")))
            }
            Err(_) => {
                let seconds = LONGEST.as_secs();
                let message = format!("{what} took more than {seconds} seconds; make it simpler");
                Err(ApiError { status: 504, ..ApiError::failed(message) })
            }
        }
    }
}

/// The server's lanes.
pub struct HelperThreads {
    completions: Lane,
    chats: Lane,
    long: Lane,
    /// Compiles regular expressions whose automata are small.
    pub small_patterns: Lane,
    /// Compiles all other regular expressions.
    pub patterns: Lane,
    /// Compiles JSON schemas and grammars.
    pub formats: Lane,
    /// Writes large answers as JSON.
    pub answers: Lane,
}

impl HelperThreads {
    /// Creates all lanes, idle.
    pub fn new() -> Self {
        let reading = "reading the request";
        Self {
            completions: Lane::new(2, reading),
            chats: Lane::new(2, reading),
            long: Lane::new(1, reading),
            small_patterns: Lane::new(1, "compiling the regular expression"),
            patterns: Lane::new(1, "compiling the regular expression"),
            formats: Lane::new(1, "compiling the format"),
            answers: Lane::new(1, "writing the answer"),
        }
    }

    /// Returns the lane for parsing a request with a body of this many bytes.
    pub fn reading(&self, endpoint: Endpoint, bytes: usize) -> &Lane {
        match endpoint {
            _ if bytes > LONG_BODY => &self.long,
            Endpoint::Completions => &self.completions,
            Endpoint::Chat => &self.chats,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
    use std::sync::mpsc::channel;

    fn runtime() -> tokio::runtime::Runtime {
        tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
    }

    #[test]
    fn a_panic_becomes_a_server_error() {
        let lane = Lane::new(1, "the work");
        let refused = runtime().block_on(lane.run::<()>(|| panic!("on purpose"))).unwrap_err();
        assert_eq!(refused.status, 500);
        assert!(refused.message.contains("the server's output has the reason"), "{refused}");
        assert_eq!(runtime().block_on(lane.run(|| Ok(1))), Ok(1)); // its place is free again
    }

    #[test]
    fn work_that_nobody_waits_for_never_starts() {
        let lane = Lane::new(1, "the work");
        let started = Arc::new(AtomicUsize::new(0));
        let (end, ended) = channel::<()>();
        runtime().block_on(async {
            let first = lane.run(move || Ok(ended.recv().is_ok()));
            let counted = started.clone();
            let second = async {
                let work = move || Ok(counted.fetch_add(1, SeqCst));
                let gone = timeout(Duration::from_millis(50), lane.run(work)).await;
                assert!(gone.is_err(), "the lane has one place");
                end.send(()).unwrap();
            };
            assert_eq!(tokio::join!(first, second).0, Ok(true));
            assert_eq!(lane.run(|| Ok(2)).await, Ok(2));
        });
        assert_eq!(started.load(SeqCst), 0);
    }
}
