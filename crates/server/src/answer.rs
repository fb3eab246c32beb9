//! Turns the serving loop's events into response bodies. The loop sends without ever blocking, so a
//! slow client's events queue up here, bounded by the number of tokens it asked for.

use crate::http_routes::lock;
use crate::metrics::Metrics;
use crate::openai::{ApiError, ChoiceDelta, Reply};
use axum::body::Body;
use candecode::day20_serve::{Connection, Event, Piece};
use candecode_engine::requests::Automata;
use candecode_engine::Engine;
use futures_util::stream::unfold;
use std::convert::Infallible;
use std::sync::{Arc, Mutex};
use std::time::Instant;
use tokio::sync::mpsc::{unbounded_channel, UnboundedReceiver, UnboundedSender};

/// The serving loop's end of a client's channel.
pub struct Wire {
    events: UnboundedSender<Event>,
    metrics: Arc<Metrics>,
    came: Instant,
    /// Arrival time of each choice's latest token.
    newest: Mutex<Vec<Option<Instant>>>,
    /// Keeps the automata in use for as long as the loop holds this connection.
    _automata: Option<Arc<Automata>>,
}

impl Wire {
    /// Opens a channel for the events of this many choices, and returns it with the client's end.
    /// The prompts have `prompt_tokens` tokens in total. The job's automata stay in use until the
    /// `Wire` is dropped.
    pub fn new(
        choices: usize,
        prompt_tokens: usize,
        metrics: Arc<Metrics>,
        automata: Option<Arc<Automata>>,
    ) -> (Self, Inbox) {
        let (events, receiver) = unbounded_channel();
        let newest = Mutex::new(vec![None; choices]);
        let inbox =
            Inbox { events: receiver, metrics: metrics.clone(), prompt_tokens, ended: false };
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
        let _ = self.events.send(event); // if the client has gone, `is_closed` reports it
    }

    fn is_closed(&self) -> bool {
        self.events.is_closed()
    }
}

/// The client's end of the channel. If it is dropped before the answer is complete, the client has
/// disconnected (hyper drops the response), and the request counts as canceled.
pub struct Inbox {
    events: UnboundedReceiver<Event>,
    metrics: Arc<Metrics>,
    /// The prompt tokens to count with the first piece.
    prompt_tokens: usize,
    ended: bool,
}

impl Inbox {
    /// Waits for the next piece of the answer.
    ///
    /// # Errors
    /// The error that the loop reported, or 500 if the loop has ended. No events follow it.
    pub async fn next(&mut self) -> Result<Piece, ApiError> {
        let error = match self.events.recv().await {
            Some(Event::Token(piece)) => {
                self.metrics.started(std::mem::take(&mut self.prompt_tokens));
                return Ok(piece);
            }
            Some(Event::Failed(error)) => error.into(),
            // The loop ended without sending an error: code from one of the reader's days panicked.
            None => ApiError::failed("the engine has stopped; the server's output has the reason"),
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

/// Collects the complete reply, waiting until every choice has finished.
///
/// # Errors
/// Same as [`Inbox::next`], with the HTTP status to respond with.
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

/// Returns a body of server-sent events, built lazily as it is read: `first`, then everything that
/// arrives in `inbox`.
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
