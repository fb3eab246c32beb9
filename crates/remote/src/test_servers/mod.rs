//! Servers on the loopback for tests, with the faults that a test asks for.

#![allow(missing_docs)]

pub mod hub;
pub mod loopback;
pub mod openai;
