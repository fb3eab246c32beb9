//! `cargo xtask serve`: day 20 behind HTTP. The loop and the model have the main thread, for they
//! never wait; HTTP has a thread of its own, where everybody does.

#![warn(missing_docs)]

mod answer;
mod connections;
mod engine_side;
mod guards;
mod helper_threads;
mod http_routes;
mod metrics;
mod openai;
mod prompts;
mod rails;
mod serve_flags;

use candecode::kernels;
use candecode::kit::{error, panics};
use clap::Parser as _;
use serve_flags::ServeFlags;
use std::process::ExitCode;

/// As in the course's command: it keeps freed memory, and a step asks for the same blocks again and
/// again.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    kernels::set_threads();
    kernels::in_pool(command)
}

/// All of the program but its number of threads.
fn command() -> ExitCode {
    let flags = ServeFlags::parse();
    panics::quiet_panics();
    match std::panic::catch_unwind(|| engine_side::run(&flags)) {
        Ok(Ok(())) => ExitCode::SUCCESS,
        Ok(Err(error)) => {
            eprintln!("error: {}", error::describe(&error));
            ExitCode::from(if error.is::<error::Usage>() { 2 } else { 1 })
        }
        Err(panic) => {
            eprintln!("{}", panics::describe_panic(&*panic));
            ExitCode::FAILURE
        }
    }
}
