//! The channel from the serving loop to one client. The loop sends without ever blocking, so a slow
//! client's events queue up here, bounded by the number of tokens it asked for.

use crate::metrics::{Metrics, TokenMeter};
use crate::openai::ApiError;
use candecode::day20_serve::{ChoiceToken, Connection, Event};
use std::sync::Arc;
use tokio::sync::mpsc::{unbounded_channel, UnboundedReceiver, UnboundedSender};

/// The serving loop's end of a client's channel.
pub struct ResponseSink {
    sender: UnboundedSender<Event>,
    meter: TokenMeter,
}

impl ResponseSink {
    /// Opens a channel, whose tokens are measured, and returns it with the client's end.
    pub fn open(meter: TokenMeter) -> (Self, Inbox) {
        let (sender, events) = unbounded_channel();
        let inbox = Inbox { events, metrics: meter.metrics.clone(), ended: false };
        (Self { sender, meter }, inbox)
    }
}

impl Connection for ResponseSink {
    fn send(&self, event: Event) {
        if let Event::Token(piece) = &event {
            self.meter.count(piece.index);
        }
        let _ = self.sender.send(event); // if the client has gone, `is_closed` reports it
    }

    fn is_closed(&self) -> bool {
        self.sender.is_closed()
    }
}

/// The client's end of the channel. If it is dropped before the answer is complete, the client has
/// disconnected (hyper drops the response), and the request counts as canceled.
pub struct Inbox {
    events: UnboundedReceiver<Event>,
    metrics: Arc<Metrics>,
    /// Whether the answer is complete or has failed.
    pub ended: bool,
}

impl Inbox {
    /// Waits for the next piece of the answer.
    ///
    /// # Errors
    /// The error that the loop reported, or 500 if the loop has ended. No events follow it.
    pub async fn next(&mut self) -> Result<ChoiceToken, ApiError> {
        let error = match self.events.recv().await {
            Some(Event::Token(piece)) => return Ok(piece),
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
