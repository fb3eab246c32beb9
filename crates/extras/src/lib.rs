//! The part of the extras that other crates use: the engine with a known mistake.

#![warn(missing_docs)]

pub mod mistaken_engine;
