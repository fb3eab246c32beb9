//! What other crates use of the extras: the engine with a known mistake in it.

#![warn(missing_docs)]

pub mod mistaken_engine;
