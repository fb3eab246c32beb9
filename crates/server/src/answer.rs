//! From the loop's events to the body of a response. The loop sends and never waits; a client that
//! reads slowly has its events here, and they are at most the tokens that it asked for.

use crate::http_routes::lock;
use crate::metrics::Metrics;
use crate::openai::{ApiError, ChoiceDelta, Reply};
use axum::body::Body;
use candecode::day20_serve::{Connection, Event, Piece};
use candecode::engine::requests::Automata;
use candecode::engine::Engine;
use futures_util::stream::unfold;
use std::convert::Infallible;
use std::sync::{Arc, Mutex};
use std::time::Instant;
use tokio::sync::mpsc::{unbounded_channel, UnboundedReceiver, UnboundedSender};

/// The loop's end of the way to a client.
pub struct Wire {
    events: UnboundedSender<Event>,
    metrics: Arc<Metrics>,
    came: Instant,
    /// When each choice got its newest token.
    newest: Mutex<Vec<Option<Instant>>>,
    /// The loop owns the wire for as long as it needs them.
    _automata: Option<Arc<Automata>>,
}

impl Wire {
    /// A way for the events of this many choices, and the client's end of it. The automata of the
    /// job stay in use until the wire is dropped.
    pub fn new(
        choices: usize,
        metrics: Arc<Metrics>,
        automata: Option<Arc<Automata>>,
    ) -> (Self, Inbox) {
        let (events, receiver) = unbounded_channel();
        let newest = Mutex::new(vec![None; choices]);
        let inbox = Inbox { events: receiver, metrics: metrics.clone(), ended: false };
        (Self { events, metrics, came: Instant::now(), newest, _automata: automata }, inbox)
    }

    fn measure(&self, piece: &Piece) {
        let now = Instant::now();
        let mut newest = lock(&self.newest);
        match newest.get_mut(piece.index).and_then(|newest| newest.replace(now)) {
            None => self.metrics.first_token(now - self.came),
            Some(before) => self.metrics.next_token(now - before),
        }
    }
}

impl Connection for Wire {
    fn send(&self, event: Event) {
        if let Event::Token(piece) = &event {
            self.measure(piece);
        }
        let _ = self.events.send(event); // if the client has gone, `is_closed` says so
    }

    fn is_closed(&self) -> bool {
        self.events.is_closed()
    }
}

/// The client's end. Dropped before the answer has ended, it counts the request as cancelled: the
/// client has gone, and hyper with it.
pub struct Inbox {
    events: UnboundedReceiver<Event>,
    metrics: Arc<Metrics>,
    ended: bool,
}

impl Inbox {
    /// The next piece of the answer.
    ///
    /// # Errors
    /// What the loop says; it is the last event.
    pub async fn next(&mut self) -> Result<Piece, ApiError> {
        let error = match self.events.recv().await {
            Some(Event::Token(piece)) => return Ok(piece),
            Some(Event::Failed(error)) => error.into(),
            // The loop has ended without a word: a day of the reader's has panicked.
            None => ApiError::failed("the engine has ended; the server's own output says why"),
        };
        self.ended = true;
        Err(error)
    }
}

impl Drop for Inbox {
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
    mut inbox: Inbox,
    mut reply: Reply,
    engine: &Engine,
) -> Result<Reply, ApiError> {
    while !reply.is_done() {
        let piece = inbox.next().await?;
        reply.take(ChoiceDelta::new(piece, engine.tokenizer(), reply.logprobs));
    }
    inbox.ended = true;
    Ok(reply)
}

/// A body of server-sent events, made as it is read: of this first piece, and then of what comes.
pub fn streamed(first: Piece, inbox: Inbox, reply: Reply, engine: Arc<Engine>) -> Body {
    let state = (Some(first), inbox, reply, engine);
    Body::from_stream(unfold(state, |(mut first, mut inbox, mut reply, engine)| async move {
        let mut text = String::new();
        while text.is_empty() && !inbox.ended {
            let piece = match first.take() {
                Some(first) => Ok(first),
                None => inbox.next().await,
            };
            match piece {
                Ok(piece) => {
                    let delta = ChoiceDelta::new(piece, engine.tokenizer(), reply.logprobs);
                    text = reply.events(delta);
                    inbox.ended = reply.is_done();
                }
                Err(error) => {
                    inbox.metrics.refused(error.status);
                    text = Reply::failed(&error);
                }
            }
        }
        (!text.is_empty()).then_some((Ok::<_, Infallible>(text), (first, inbox, reply, engine)))
    }))
}
