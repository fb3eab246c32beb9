//! What talks to other machines: [`hub`] downloads models, and [`endpoint`] sends prompts to a
//! server of OpenAI's protocol.
//!
//! Nothing that generates text depends on this crate. The command and the server include it where
//! it's needed, so a first download compiles neither the days nor the engine again.

#![warn(missing_docs)]

mod connection;
pub mod endpoint;
pub mod hub;
mod origin;
mod retry_after;
#[cfg(feature = "test-servers")]
pub mod test_servers;
