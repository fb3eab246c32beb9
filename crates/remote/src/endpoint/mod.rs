//! A client for servers that speak OpenAI's protocol. The model runs there, so it can be one that
//! doesn't fit on this machine.
//!
//! A [`Request`] goes out, and [`Events`] come back: text, tokens, finish reasons, usage.

mod client;
mod events;
mod json;
mod request;
mod server;
mod stream;

pub use client::Client;
pub use events::{Event, Events};
pub use request::{check, Prompt, Request, What};
pub use server::Server;
