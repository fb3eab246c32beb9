//! `cargo xtask serve`: day 20 over HTTP. The serving loop and the model run on the main thread and
//! never wait for a client; HTTP runs on its own thread, where all the waiting happens.

#![warn(missing_docs)]

mod activity;
mod answer;
mod app_state;
mod automata_cache;
mod body;
mod connections;
mod engine_side;
mod guards;
mod helper_threads;
mod http_routes;
mod http_thread;
mod metrics;
mod openai;
mod prompt_report;
mod prompts;
mod rail_cache;
mod request_maker;
mod response_sink;
mod serve_flags;
mod unwritten_tasks;
mod util;

use candecode::kit::{error, panics};
use candecode_engine::kernels;
use clap::Parser as _;
use serve_flags::ServeFlags;
use std::process::ExitCode;

fn main() -> ExitCode {
    candecode_allocator::keep_freed_memory();
    kernels::set_threads();
    kernels::in_pool(command)
}

/// Runs the server inside the thread pool and returns the exit code.
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
