//! The hunt: an engine with one known mistake in it, and what a reader needs to find it.

pub mod bank;
pub mod engine;
pub mod game;
