//! The thread that all HTTP runs on.

use crate::app_state::AppState;
use crate::connections::{self, Signals};
use crate::helper_threads::THREADS;
use anyhow::{anyhow, Context as _, Result};
use candecode::kit::panics;
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::sync::Arc;
use std::thread::JoinHandle;
use tokio::net::TcpSocket;
use tokio::sync::watch;

/// Maximum number of connections that wait to be accepted.
const BACKLOG: u32 = 1024;

/// The running HTTP thread.
pub struct HttpThread {
    thread: JoinHandle<Result<()>>,
    /// Tells the thread that the serving loop has ended.
    ended: watch::Sender<bool>,
}

impl HttpThread {
    /// Starts the thread, which listens at the address that `socket` is bound to, with at most
    /// `most` connections at once.
    ///
    /// # Errors
    /// If the thread can't start, or listen.
    pub fn start(socket: TcpSocket, state: Arc<AppState>, most: usize) -> Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .max_blocking_threads(THREADS)
            .build()
            .context("the HTTP thread cannot start")?;
        let (ended, has_ended) = watch::channel(false);
        let (listener, signals) = {
            let _inside = runtime.enter();
            let address = socket.local_addr().context("the server has no address")?;
            let listener = socket.listen(BACKLOG);
            let listener = listener.with_context(|| format!("cannot listen at {address}"))?;
            (listener, Signals::new().context("the server cannot handle signals")?)
        };
        let serving = connections::serve(listener, signals, state.clone(), most, has_ended);
        let thread = std::thread::Builder::new()
            .name("http".into())
            .spawn(move || {
                let served = catch_unwind(AssertUnwindSafe(|| runtime.block_on(serving)));
                // After a panic on this thread, no client can be reached anymore, so the loop has
                // to end, too.
                state.close();
                runtime.shutdown_background(); // does not wait for helper threads that are busy
                served.map_err(|panic| anyhow!("{}", panics::describe_panic(&*panic)))
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
