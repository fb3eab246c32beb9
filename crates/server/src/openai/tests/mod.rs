//! Tests of the OpenAI protocol.

mod answers;
mod requests;
mod tools;
