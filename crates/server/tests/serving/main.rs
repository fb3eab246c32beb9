//! The server as a whole, on the loopback: what clients send, what they get, and what they do to
//! it.

#![cfg(feature = "ref")]

mod access;
mod faults;
mod protocol;
mod running_server;
mod same_text_at_any_load;
