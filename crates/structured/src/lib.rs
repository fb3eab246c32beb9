//! Structured output: rules for the next token that come from a JSON schema or a grammar. The
//! library llguidance compiles them and computes the masks. It keeps a stack, so it can follow a
//! format of any depth, where day 14's automaton needs a state for each.
//!
//! Compiled for the server, and when a run first needs it.

#![warn(missing_docs)]

mod compiler;
mod format_rail;
mod schema_checks;

pub use compiler::{Compiler, Constraint};
pub use format_rail::TOO_COMPLEX;
