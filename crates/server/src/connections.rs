//! Accepts connections: how many at once, how long each one may keep others waiting, and which one
//! makes room when all places are taken.

use crate::http_routes::{lock, router, say, Front};
use anyhow::{Context as _, Result};
use axum::body::Bytes;
use axum::http::{Request, Version};
use candecode::kit::panics;
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use hyper::rt::{Read, ReadBufCursor, Write};
use hyper::server::conn::http1;
use hyper::service::Service as _;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use hyper_util::service::TowerToHyperService;
use std::future::{poll_fn, Future as _};
use std::io::{Error, ErrorKind};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::task::{ready, Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{watch, Notify, Semaphore};
use tokio::time::{sleep, timeout, Instant, Sleep};

/// The longest headers, in bytes.
const LONGEST_HEADERS: usize = 64 << 10;
/// How long connections may take to end, after the last row has.
const END_TIME: Duration = Duration::from_secs(5);
/// With all places taken, a connection that has been idle for this long is closed for a new one.
const IDLE: Duration = Duration::from_millis(250);
/// The same for a connection that is still sending its request.
const SLOW: Duration = Duration::from_secs(3);
/// How often a client that has closed its side is checked for having gone altogether.
const CHECK: Duration = Duration::from_millis(50);
/// The answer to a connection that comes when there are too many.
const TOO_MANY: &str = "HTTP/1.1 503 Service Unavailable\r\ncontent-type: application/json\r\n\
    retry-after: 1\r\nconnection: close\r\n\r\n{\"error\": {\"message\": \"there are too many \
    connections; try again in a second\", \"type\": \"server_error\", \"param\": null, \
    \"code\": null}}";

/// Answers connections until `ended` says that the loop has ended. The first Ctrl-C closes the
/// front, the second ends the program.
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
    let open = Arc::new(Mutex::new(Vec::new()));
    let graceful = GracefulShutdown::new();
    let service = router(front.clone());
    tokio::spawn(close_on_signal(front.clone()));
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            _ = ended.wait_for(|ended| *ended) => break,
        };
        let Ok((stream, _)) = accepted else {
            sleep(Duration::from_millis(50)).await; // out of file descriptors; some will be free soon
            continue;
        };
        let place = match places.clone().try_acquire_owned() {
            Ok(place) => place,
            Err(_) if evict(&open) => match places.clone().acquire_owned().await {
                Ok(place) => place,
                Err(_) => break, // never closed
            },
            Err(_) => {
                front.metrics.refused(503);
                tokio::spawn(turn_away(stream));
                continue;
            }
        };
        let _ = stream.set_nodelay(true); // a token is small, and should not wait for the next
        let activity = Arc::new(Activity::new());
        lock(&open).push(activity.clone());
        let stream = Arc::new(Mutex::new(stream));
        let service = TowerToHyperService::new(service.clone());
        let tracked = activity.clone();
        let service = hyper::service::service_fn(move |mut request: Request<Incoming>| {
            tracked.begin(request.version());
            request.extensions_mut().insert(tracked.clone());
            let guard = Answering(tracked.clone());
            let response = service.call(request);
            async move {
                response.await.map(|response| response.map(|body| Tracked { body, _guard: guard }))
            }
        });
        let connection = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(front.patience)
            .max_buf_size(LONGEST_HEADERS)
            .half_close(true)
            .serve_connection(
                Patient::new(stream.clone(), activity.clone(), front.patience),
                service,
            );
        let connection = graceful.watch(connection);
        let (metrics, open, own) = (front.metrics.clone(), open.clone(), activity.clone());
        let served = async move {
            tokio::select! {
                _ = connection => {} // one that breaks is the client's affair
                () = gone(&stream, &activity) => {}
                () = activity.evicted.notified() => {}
            }
        };
        tokio::spawn(async move {
            metrics.connections.fetch_add(1, Relaxed);
            if let Err(error) = tokio::spawn(served).await {
                if error.is_panic() {
                    say(&panics::describe_panic(&*error.into_panic()));
                }
            }
            metrics.connections.fetch_sub(1, Relaxed);
            lock(&open).retain(|one| !Arc::ptr_eq(one, &own));
            drop(place);
        });
    }
    let _ = timeout(END_TIME, graceful.shutdown()).await;
    Ok(())
}

/// What a connection is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// No complete request has arrived.
    Idle,
    /// A request's body is on its way.
    Reading,
    /// A request is being answered.
    Answering,
}

/// What a connection is doing, and since when. Handlers find it among a request's extensions.
pub struct Activity {
    phase: Mutex<(Phase, Instant)>,
    /// Bytes of the current response have been sent.
    answered: AtomicBool,
    /// The client speaks HTTP/1.1, and so understands interim responses.
    interim: AtomicBool,
    /// Woken when a request begins.
    begun: Notify,
    /// Woken when this connection must make room for another.
    evicted: Notify,
}

impl Activity {
    fn new() -> Self {
        Self {
            phase: Mutex::new((Phase::Idle, Instant::now())),
            answered: AtomicBool::new(false),
            interim: AtomicBool::new(false),
            begun: Notify::new(),
            evicted: Notify::new(),
        }
    }

    fn set(&self, phase: Phase) {
        *lock(&self.phase) = (phase, Instant::now());
    }

    fn begin(&self, version: Version) {
        self.answered.store(false, Relaxed);
        self.interim.store(version == Version::HTTP_11, Relaxed);
        self.set(Phase::Answering);
        self.begun.notify_one();
    }

    /// Notes that the body of the request is being read, or that it is complete.
    pub fn reads(&self, reading: bool) {
        self.set(if reading { Phase::Reading } else { Phase::Answering });
    }

    /// Since when this connection could be closed for another one; None if it can't be.
    fn evictable(&self) -> Option<Instant> {
        let (phase, since) = *lock(&self.phase);
        let enough = match phase {
            Phase::Idle => IDLE,
            Phase::Reading => SLOW,
            Phase::Answering => return None,
        };
        (since.elapsed() >= enough).then_some(since)
    }
}

/// Closes the connection that has been idle for longest, if there is one.
fn evict(open: &Mutex<Vec<Arc<Activity>>>) -> bool {
    let open = lock(open);
    let idle = open.iter().filter_map(|one| Some((one.evictable()?, one)));
    let Some((_, oldest)) = idle.min_by_key(|(since, _)| *since) else { return false };
    oldest.set(Phase::Answering); // so that it is not chosen again
    oldest.evicted.notify_one();
    true
}

/// Makes a connection idle again when its response is complete, or has been dropped.
struct Answering(Arc<Activity>);

impl Drop for Answering {
    fn drop(&mut self) {
        self.0.set(Phase::Idle);
    }
}

/// A response's body that keeps its connection busy until it has been sent.
struct Tracked {
    body: axum::body::Body,
    _guard: Answering,
}

impl Body for Tracked {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.get_mut().body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// Returns when the client has gone while its request was being answered.
///
/// A client may close its writing half once the request is out, and still wait for the answer. On
/// the wire that looks as if it had gone. The difference shows when something is sent: a machine
/// resets a connection that nobody holds any more. Before the response has begun, this is an
/// interim response (100), which every client of HTTP/1.1 skips.
async fn gone(stream: &Mutex<TcpStream>, activity: &Activity) {
    loop {
        activity.begun.notified().await;
        let mut asked = false;
        loop {
            let closed = tokio::select! {
                closed = peeked(stream) => closed,
                // It has a next request already; then only a reset shows that it has gone.
                () = activity.begun.notified() => { asked = false; continue; }
            };
            if lock(&activity.phase).0 == Phase::Idle {
                break;
            }
            let mut pause = CHECK;
            match closed {
                Err(_) => return,
                Ok(false) => pause *= 10, // it still sends; nobody waits for its answer in vain
                Ok(true) if !asked && activity.interim.load(Relaxed) => {
                    if !activity.answered.load(Relaxed) {
                        let _ = lock(stream).try_write(b"HTTP/1.1 100 Continue\r\n\r\n");
                    }
                    asked = true;
                }
                Ok(true) => {}
            }
            if !matches!(lock(stream).take_error(), Ok(None)) {
                return;
            }
            sleep(pause).await;
        }
    }
}

/// Waits until something can be read: true if it is the end.
async fn peeked(stream: &Mutex<TcpStream>) -> Result<bool, Error> {
    poll_fn(|context| {
        let mut byte = [0];
        let mut buffer = ReadBuf::new(&mut byte);
        lock(stream).poll_peek(context, &mut buffer)
    })
    .await
    .map(|bytes| bytes == 0)
}

/// Tells one connection too many to come again.
async fn turn_away(mut stream: TcpStream) {
    let told = async {
        stream.write_all(TOO_MANY.as_bytes()).await?;
        stream.shutdown().await?;
        // Read what it sends and drop it: closing a connection with unread data resets it, and the answer is lost.
        let mut dropped = [0; 4096];
        while stream.read(&mut dropped).await? > 0 {}
        Ok::<(), Error>(())
    };
    let _ = timeout(Duration::from_secs(1), told).await;
}

/// Waits for Ctrl-C, or for SIGTERM.
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
    stream: Arc<Mutex<TcpStream>>,
    activity: Arc<Activity>,
    patience: Duration,
    /// When it is enough; None while the client takes what it is sent.
    enough: Option<Pin<Box<Sleep>>>,
}

impl Patient {
    fn new(stream: Arc<Mutex<TcpStream>>, activity: Arc<Activity>, patience: Duration) -> Self {
        Self { stream, activity, patience, enough: None }
    }

    /// Runs an operation of the stream, in hyper's terms.
    fn with<T>(&self, run: impl FnOnce(Pin<&mut TokioIo<&mut TcpStream>>) -> T) -> T {
        let mut stream = lock(&self.stream);
        run(Pin::new(&mut TokioIo::new(&mut *stream)))
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
        self.with(|stream| stream.poll_read(context, buffer))
    }
}

impl Write for Patient {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<Result<usize, Error>> {
        let patient = self.get_mut();
        patient.activity.answered.store(true, Relaxed);
        let written = patient.with(|stream| stream.poll_write(context, bytes));
        patient.judged(written, context)
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<(), Error>> {
        let patient = self.get_mut();
        let flushed = patient.with(|stream| stream.poll_flush(context));
        patient.judged(flushed, context)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<(), Error>> {
        self.with(|stream| stream.poll_shutdown(context))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[std::io::IoSlice<'_>],
    ) -> Poll<Result<usize, Error>> {
        let patient = self.get_mut();
        patient.activity.answered.store(true, Relaxed);
        let written = patient.with(|stream| stream.poll_write_vectored(context, parts));
        patient.judged(written, context)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }
}
