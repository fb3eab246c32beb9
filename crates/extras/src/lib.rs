//! The part of the extras that other crates use: building an engine with a known mistake.

#![warn(missing_docs)]

pub mod mistaken_engine;
