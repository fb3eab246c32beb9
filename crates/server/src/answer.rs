//! From the loop's events to the body of a response. The loop sends and never waits; a client that reads slowly has its
//! events here, and they are at most the tokens that it asked for.

use crate::answer_shape::AnswerShape;
use crate::http_routes::lock;
use crate::metrics::Metrics;
use crate::openai::{ApiError, Reply};
use crate::rails::InUseByJob;
use axum::body::Bytes;
use candecode::day20_serve::{Connection, Event, Piece};
use http_body::Frame;
use std::convert::Infallible;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Instant;
use tokio::sync::mpsc::{unbounded_channel, UnboundedReceiver, UnboundedSender};

/// Events that one piece of a body holds, at most.
const TOGETHER: usize = 64;

/// The loop's end of the way to a client.
pub struct Wire {
    events: UnboundedSender<Event>,
    metrics: Arc<Metrics>,
    came: Instant,
    /// When each choice got its newest token.
    newest: Mutex<Vec<Option<Instant>>>,
    /// The loop owns the wire for as long as it needs them.
    _automata: Option<InUseByJob>,
}

impl Wire {
    /// A way for the events of as many choices, and the client's end of it. The automata of the job
    /// stay in use until the wire is dropped.
    pub fn new(
        choices: usize,
        metrics: Arc<Metrics>,
        automata: Option<InUseByJob>,
    ) -> (Self, UnboundedReceiver<Event>) {
        let (events, inbox) = unbounded_channel();
        let newest = Mutex::new(vec![None; choices]);
        (Self { events, metrics, came: Instant::now(), newest, _automata: automata }, inbox)
    }

    fn measure(&self, piece: &Piece) {
        let now = Instant::now();
        let mut newest = lock(&self.newest);
        match newest.get_mut(piece.index).and_then(|newest| newest.replace(now)) {
            None => self.metrics.first_token(now - self.came),
            Some(before) => self.metrics.next_token(now - before),
        }
        if let Some(why) = piece.token.finish {
            self.metrics.finished(why);
        }
    }
}

impl Connection for Wire {
    fn send(&self, event: Event) {
        if let Event::Token(piece) = &event {
            self.measure(piece);
        }
        let _ = self.events.send(event); // nobody is there any more: `is_closed` says so
    }

    fn is_closed(&self) -> bool {
        self.events.is_closed()
    }
}

/// What the client is told if the loop has ended without a word: a day of the reader's has panicked.
fn engine_gone() -> ApiError {
    ApiError::failed("the engine has ended; the server's own output says why")
}

/// Counts a request as cancelled, if it is dropped before its end: the client has gone, and hyper with it.
struct Unfinished<'a> {
    metrics: &'a Metrics,
    ended: bool,
}

impl Drop for Unfinished<'_> {
    fn drop(&mut self) {
        if !self.ended {
            self.metrics.cancelled();
        }
    }
}

/// The reply, once every choice has ended.
///
/// # Errors
/// What the loop says, and the status of the response.
pub async fn gathered(
    inbox: &mut UnboundedReceiver<Event>,
    mut reply: Reply,
    shape: &mut AnswerShape,
    metrics: &Metrics,
) -> Result<Reply, ApiError> {
    let mut unfinished = Unfinished { metrics, ended: false };
    loop {
        let event = inbox.recv().await;
        if !matches!(event, Some(Event::Token(_))) {
            unfinished.ended = true;
        }
        match event {
            Some(Event::Token(piece)) => reply.take(&shape.spell(piece)),
            Some(Event::Failed(error)) => return Err(error.into()),
            None => return Err(engine_gone()),
        }
        if reply.is_done() {
            unfinished.ended = true;
            return Ok(reply);
        }
    }
}

/// Whether writing this reply as JSON would keep the HTTP thread from other clients.
pub fn is_large(reply: &Reply) -> bool {
    let logprobs = reply.choices.iter().flat_map(|choice| &choice.logprobs);
    let spelled: usize = logprobs.map(|token| token.top.len() + 1).sum();
    let bytes: usize = reply.choices.iter().map(|choice| choice.text.len()).sum();
    spelled > 1000 || bytes > 1 << 20
}

/// The first event of a stream, which decides the status of the response.
///
/// # Errors
/// If it is a failure.
pub async fn first(
    inbox: &mut UnboundedReceiver<Event>,
    metrics: &Metrics,
) -> Result<Event, ApiError> {
    let mut unfinished = Unfinished { metrics, ended: false };
    let event = inbox.recv().await;
    unfinished.ended = true;
    match event {
        Some(Event::Failed(error)) => Err(error.into()),
        Some(event) => Ok(event),
        None => Err(engine_gone()),
    }
}

/// A body of server-sent events, made as it is read.
pub struct EventBody {
    first: Option<Event>,
    inbox: UnboundedReceiver<Event>,
    reply: Reply,
    shape: AnswerShape,
    ended: bool,
    metrics: Arc<Metrics>,
}

impl EventBody {
    /// The events of this reply, `first` and then what comes.
    pub fn new(
        first: Event,
        inbox: UnboundedReceiver<Event>,
        reply: Reply,
        shape: AnswerShape,
        metrics: Arc<Metrics>,
    ) -> Self {
        Self { first: Some(first), inbox, reply, shape, ended: false, metrics }
    }

    /// The text of an event, if it has one; None ends the stream early.
    fn told(&mut self, event: Option<Event>) -> String {
        let failed = match event {
            Some(Event::Token(piece)) => {
                let delta = self.shape.spell(piece);
                let mut text = self.shape.events(&mut self.reply, &delta);
                if self.reply.is_done() {
                    text += &self.reply.end();
                    self.ended = true;
                }
                return text;
            }
            Some(Event::Failed(error)) => error.into(),
            None => engine_gone(),
        };
        self.ended = true;
        self.metrics.refused(failed.status);
        Reply::failed(&failed)
    }
}

impl http_body::Body for EventBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let body = self.get_mut();
        let mut text = String::new();
        let mut waits = false;
        for _ in 0..TOGETHER {
            if body.ended {
                break;
            }
            let event = match body.first.take() {
                Some(first) => Some(first),
                None => match body.inbox.poll_recv(context) {
                    Poll::Ready(event) => event,
                    Poll::Pending => {
                        waits = true; // the inbox wakes us
                        break;
                    }
                },
            };
            text += &body.told(event);
        }
        match (text.is_empty(), body.ended) {
            (false, _) => Poll::Ready(Some(Ok(Frame::data(text.into())))),
            (true, true) => Poll::Ready(None),
            (true, false) => {
                if !waits {
                    context.waker().wake_by_ref(); // so many events, and none of them had text
                }
                Poll::Pending
            }
        }
    }
}

impl Drop for EventBody {
    fn drop(&mut self) {
        if !self.ended {
            self.metrics.cancelled();
        }
    }
}
