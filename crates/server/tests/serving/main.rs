//! Tests of the whole server over loopback: the protocol, access control, load, and misbehaving
//! clients.

#![cfg(feature = "ref")]

mod access;
mod faults;
mod prompt_logprobs;
mod protocol;
mod running_server;
mod same_text_at_any_load;
mod structured;
mod tools;
