//! Who may come in, how many at once, and for how long one may keep another waiting.

use crate::http_routes::{router, say, Front};
use anyhow::{Context as _, Result};
use hyper::rt::{Read, ReadBufCursor, Write};
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use hyper_util::service::TowerToHyperService;
use std::future::Future as _;
use std::io::{Error, ErrorKind};
use std::pin::Pin;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::Arc;
use std::task::{ready, Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{watch, Semaphore};
use tokio::time::{sleep, timeout, Sleep};

/// The longest headers, in bytes.
const LONGEST_HEADERS: usize = 64 << 10;
/// How long connections may take to end, after the last row has.
const END_TIME: Duration = Duration::from_secs(5);
/// What a connection is told that comes when there are too many.
const TOO_MANY: &str = "HTTP/1.1 503 Service Unavailable\r\ncontent-type: application/json\r\n\
    retry-after: 1\r\nconnection: close\r\n\r\n{\"error\": {\"message\": \"there are too many \
    connections; try again in a second\", \"type\": \"server_error\", \"param\": null, \
    \"code\": null}}";

/// Answers connections until `ended` says that the loop has ended. The first Ctrl-C closes the front, the second ends the
/// program.
///
/// # Errors
/// If the listener cannot be used.
pub async fn serve(
    listener: std::net::TcpListener,
    front: Arc<Front>,
    most: usize,
    mut ended: watch::Receiver<bool>,
) -> Result<()> {
    listener.set_nonblocking(true).context("the listener cannot be used")?;
    let listener = TcpListener::from_std(listener).context("the listener cannot be used")?;
    let places = Arc::new(Semaphore::new(most));
    let graceful = GracefulShutdown::new();
    let service = router(front.clone());
    tokio::spawn(close_on_signal(front.clone()));
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            _ = ended.wait_for(|ended| *ended) => break,
        };
        let Ok((stream, _)) = accepted else {
            sleep(Duration::from_millis(50)).await; // no more file descriptors: some will be free
            continue;
        };
        let Ok(place) = places.clone().try_acquire_owned() else {
            front.metrics.refused(503);
            tokio::spawn(turn_away(stream));
            continue;
        };
        let _ = stream.set_nodelay(true); // a token is small, and shall not wait for the next
        let service = TowerToHyperService::new(service.clone());
        let connection = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(front.patience)
            .max_buf_size(LONGEST_HEADERS)
            .serve_connection(Patient::new(stream, front.patience), service);
        let connection = graceful.watch(connection);
        let metrics = front.metrics.clone();
        tokio::spawn(async move {
            metrics.connections.fetch_add(1, Relaxed);
            let _ = connection.await; // one that breaks is the client's affair
            metrics.connections.fetch_sub(1, Relaxed);
            drop(place);
        });
    }
    let _ = timeout(END_TIME, graceful.shutdown()).await;
    Ok(())
}

/// Tells one connection too many to come again.
async fn turn_away(mut stream: TcpStream) {
    let told = async {
        stream.write_all(TOO_MANY.as_bytes()).await?;
        stream.shutdown().await?;
        // What it sends is read and forgotten: a connection that closes over it would take the answer along.
        let mut forgotten = [0; 4096];
        while stream.read(&mut forgotten).await? > 0 {}
        Ok::<(), Error>(())
    };
    let _ = timeout(Duration::from_secs(1), told).await;
}

/// Waits for Ctrl-C, or for the word of whoever manages services.
async fn close_on_signal(front: Arc<Front>) {
    signalled().await;
    match front.metrics.busy() {
        0 => say("[the server ends]"),
        1 => say("[the server ends when its row has; Ctrl-C ends it at once]"),
        rows => {
            say(&format!("[the server ends when its {rows} rows have; Ctrl-C ends it at once]"));
        }
    }
    front.close();
    signalled().await;
    std::process::exit(130);
}

#[cfg(unix)]
async fn signalled() {
    use tokio::signal::unix::{signal, SignalKind};
    let Ok(mut terminate) = signal(SignalKind::terminate()) else {
        let _ = tokio::signal::ctrl_c().await;
        return;
    };
    tokio::select! {
        _ = tokio::signal::ctrl_c() => {}
        _ = terminate.recv() => {}
    }
}

#[cfg(not(unix))]
async fn signalled() {
    let _ = tokio::signal::ctrl_c().await;
}

/// A connection that breaks if the client takes nothing for a while.
struct Patient {
    stream: TokioIo<TcpStream>,
    patience: Duration,
    /// When it is enough; None while the client takes what it is sent.
    enough: Option<Pin<Box<Sleep>>>,
}

impl Patient {
    fn new(stream: TcpStream, patience: Duration) -> Self {
        Self { stream: TokioIo::new(stream), patience, enough: None }
    }

    /// The result of a write, or an error if none has succeeded for too long.
    fn judged<T>(
        &mut self,
        written: Poll<Result<T, Error>>,
        context: &mut Context<'_>,
    ) -> Poll<Result<T, Error>> {
        if written.is_ready() {
            self.enough = None;
            return written;
        }
        let enough = self.enough.get_or_insert_with(|| Box::pin(sleep(self.patience)));
        ready!(enough.as_mut().poll(context));
        Poll::Ready(Err(ErrorKind::TimedOut.into()))
    }
}

impl Read for Patient {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: ReadBufCursor<'_>,
    ) -> Poll<Result<(), Error>> {
        Pin::new(&mut self.get_mut().stream).poll_read(context, buffer)
    }
}

impl Write for Patient {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<Result<usize, Error>> {
        let patient = self.get_mut();
        let written = Pin::new(&mut patient.stream).poll_write(context, bytes);
        patient.judged(written, context)
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<(), Error>> {
        let patient = self.get_mut();
        let flushed = Pin::new(&mut patient.stream).poll_flush(context);
        patient.judged(flushed, context)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<(), Error>> {
        Pin::new(&mut self.get_mut().stream).poll_shutdown(context)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[std::io::IoSlice<'_>],
    ) -> Poll<Result<usize, Error>> {
        let patient = self.get_mut();
        let written = Pin::new(&mut patient.stream).poll_write_vectored(context, parts);
        patient.judged(written, context)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}
