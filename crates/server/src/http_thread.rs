//! The thread that all HTTP runs on.

use crate::app_state::AppState;
use crate::connections;
use crate::helper_threads::THREADS;
use anyhow::{anyhow, Context as _, Result};
use candecode::kit::panics;
use std::net::TcpListener;
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::sync::Arc;
use std::thread::JoinHandle;
use tokio::sync::watch;

/// The running HTTP thread.
pub struct HttpThread {
    thread: JoinHandle<Result<()>>,
    /// Tells the thread that the serving loop has ended.
    ended: watch::Sender<bool>,
}

impl HttpThread {
    /// Starts the thread, with at most `most` connections at once.
    ///
    /// # Errors
    /// If the thread can't start.
    pub fn start(listener: TcpListener, state: Arc<AppState>, most: usize) -> Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .max_blocking_threads(THREADS)
            .build()
            .context("the HTTP thread cannot start")?;
        let (ended, has_ended) = watch::channel(false);
        let serving = connections::serve(listener, state.clone(), most, has_ended);
        let thread = std::thread::Builder::new()
            .name("http".into())
            .spawn(move || {
                let served = catch_unwind(AssertUnwindSafe(|| runtime.block_on(serving)));
                // After a panic on this thread, no client can be reached anymore, so the loop has
                // to end, too.
                state.close();
                runtime.shutdown_background(); // does not wait for helper threads that are busy
                served.unwrap_or_else(|panic| Err(anyhow!("{}", panics::describe_panic(&*panic))))
            })
            .context("the HTTP thread cannot start")?;
        Ok(Self { thread, ended })
    }

    /// Gives open connections a moment to finish, after the serving loop has ended, and waits for
    /// the thread.
    ///
    /// # Errors
    /// If the thread failed.
    pub fn finish(self) -> Result<()> {
        let _ = self.ended.send(true);
        self.thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }
}
