//! Accepts connections, limits how many are open and how long each may stall, and closes an idle
//! one when the limit is reached.

use crate::activity::{evict, Activity, Answering};
use crate::app_state::AppState;
use crate::http_routes::router;
use crate::util::{lock, say};
use axum::body::Body;
use axum::http::Request;
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::Service as _;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use hyper_util::service::TowerToHyperService;
use std::io::Error;
use std::io::ErrorKind::{ConnectionAborted, ConnectionReset};
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{watch, OwnedSemaphorePermit, Semaphore};
use tokio::time::{sleep, timeout};
use tokio_io_timeout::TimeoutStream;

/// Maximum size of the request headers, in bytes.
const LONGEST_HEADERS: usize = 64 << 10;
/// How long open connections get to finish after the last row has ended.
const END_TIME: Duration = Duration::from_secs(5);
/// Maximum number of connections over the limit that get a response at once. Any others are closed
/// without one.
const TURNED_AWAY: usize = 64;
/// Error codes of a process or a system that has no file descriptors left, which can happen before
/// the limit of connections is reached: EMFILE and ENFILE on Unix, WSAEMFILE on Windows.
const TOO_MANY_FILES: &[i32] = if cfg!(unix) { &[24, 23] } else { &[10024] };
/// Response to a connection over the limit.
const TOO_MANY: &str = "HTTP/1.1 503 Service Unavailable\r\ncontent-type: application/json\r\n\
    retry-after: 1\r\nconnection: close\r\n\r\n{\"error\": {\"message\": \"there are too many \
    connections; try again in a second\", \"type\": \"server_error\", \"param\": null, \
    \"code\": null}}";

/// Serves connections until `ended` reports that the serving loop has ended. The first signal stops
/// new requests; the second exits immediately.
pub async fn serve(
    listener: TcpListener,
    signals: Signals,
    state: Arc<AppState>,
    most: usize,
    mut ended: watch::Receiver<bool>,
) {
    let places = Arc::new(Semaphore::new(most));
    let turned_away = Arc::new(Semaphore::new(TURNED_AWAY));
    let graceful = GracefulShutdown::new();
    let service = router(state.clone());
    tokio::spawn(close_on_signal(signals, state.clone()));
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            _ = ended.wait_for(|ended| *ended) => break,
        };
        let stream = match accepted {
            Ok((stream, _)) => stream,
            // The client left before it was accepted.
            Err(error) if matches!(error.kind(), ConnectionAborted | ConnectionReset) => continue,
            Err(error) => {
                if error.raw_os_error().is_some_and(|code| TOO_MANY_FILES.contains(&code)) {
                    evict(&state.open).await;
                }
                sleep(Duration::from_millis(5)).await;
                continue;
            }
        };
        let place = match places.clone().try_acquire_owned() {
            Ok(place) => Some(place),
            Err(_) => tokio::select! {
                place = places.clone().acquire_owned() => place.ok(),
                evicted = evict(&state.open) => match evicted {
                    true => places.clone().acquire_owned().await.ok(),
                    false => None,
                },
            },
        };
        let Some(place) = place else {
            state.metrics.refused(503);
            if let Ok(place) = turned_away.clone().try_acquire_owned() {
                tokio::spawn(turn_away(stream, place));
            }
            continue;
        };
        let _ = stream.set_nodelay(true); // tokens are tiny: send each one right away
        let activity = Arc::new(Activity::new());
        let held = Held::new(activity.clone(), state.clone(), place);
        let service = TowerToHyperService::new(service.clone());
        let tracked = activity.clone();
        let service = hyper::service::service_fn(move |mut request: Request<Incoming>| {
            let answering = Answering::new(tracked.clone());
            request.extensions_mut().insert(tracked.clone());
            let response = service.call(request);
            async move {
                // The connection counts as busy until the response body has been sent or dropped.
                let whole = |body: Body| {
                    body.map_frame(move |frame| {
                        let _ = &answering;
                        frame
                    })
                };
                response.await.map(|response| response.map(whole))
            }
        });
        // A client that stops reading for too long fails its write timeout, which closes the
        // connection.
        let mut stream = TimeoutStream::new(stream);
        stream.set_write_timeout(Some(state.patience));
        let connection = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(state.patience)
            .max_buf_size(LONGEST_HEADERS)
            .serve_connection(TokioIo::new(Box::pin(stream)), service);
        let connection = graceful.watch(connection);
        tokio::spawn(async move {
            let _held = held;
            tokio::select! {
                _ = connection => {} // a broken connection is not the server's problem
                () = activity.evicted.notified() => {}
            }
        });
    }
    let _ = timeout(END_TIME, graceful.shutdown()).await;
}

/// Registers a connection as open and holds its place until dropped.
struct Held {
    activity: Arc<Activity>,
    state: Arc<AppState>,
    _place: OwnedSemaphorePermit,
}

impl Held {
    fn new(activity: Arc<Activity>, state: Arc<AppState>, _place: OwnedSemaphorePermit) -> Self {
        lock(&state.open).push(activity.clone());
        Self { activity, state, _place }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        lock(&self.state.open).retain(|one| !Arc::ptr_eq(one, &self.activity));
    }
}

/// Responds to a connection over the limit with 503.
async fn turn_away(mut stream: TcpStream, _place: OwnedSemaphorePermit) {
    let told = async {
        stream.write_all(TOO_MANY.as_bytes()).await?;
        stream.shutdown().await?;
        // Read and discard the request: closing a socket with unread data resets the connection,
        // and the client never sees the response.
        let mut dropped = [0; 4096];
        while stream.read(&mut dropped).await? > 0 {}
        Ok::<(), Error>(())
    };
    let _ = timeout(Duration::from_secs(1), told).await;
}

/// The signals that stop the server: Ctrl-C and SIGTERM.
pub struct Signals(#[cfg(unix)] [tokio::signal::unix::Signal; 2]);

impl Signals {
    /// Handles the signals from now on. Call this inside a runtime.
    ///
    /// # Errors
    /// If the system refuses.
    pub fn new() -> std::io::Result<Self> {
        #[cfg(unix)]
        use tokio::signal::unix::{signal, SignalKind};
        Ok(Self(
            #[cfg(unix)]
            [signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?],
        ))
    }

    async fn next(&mut self) {
        #[cfg(unix)]
        let [interrupt, terminate] = &mut self.0;
        #[cfg(unix)]
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
        #[cfg(not(unix))]
        let _ = tokio::signal::ctrl_c().await;
    }
}

/// On the first signal, stops accepting requests; on the second, exits.
async fn close_on_signal(mut signals: Signals, state: Arc<AppState>) {
    signals.next().await;
    match state.metrics.busy() {
        0 => say("[the server stops]"),
        rows => {
            say(&format!(
                "[the server stops when all {rows} texts have ended; Ctrl-C stops it now]"
            ));
        }
    }
    state.close();
    signals.next().await;
    std::process::exit(130);
}
