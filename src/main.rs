//! The `candecode` command.

use candecode::kit::{args::Args, command, days, doors};
use clap::Parser as _;
use std::process::ExitCode;

/// The system's allocator gives a large block back to the kernel when it is freed, and pays a page fault for every 4 KiB of the
/// next one: a quarter of the time of a long prompt. This one keeps it.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    doors::set_threads();
    let args = Args::parse();
    days::quiet_panics();
    match std::panic::catch_unwind(|| command::run(&args)) {
        Ok(Ok(code)) => ExitCode::from(code),
        Ok(Err(error)) => {
            eprintln!("error: {}", command::describe(&error));
            ExitCode::from(if error.is::<command::Usage>() { 2 } else { 1 })
        }
        Err(panic) => {
            eprintln!("{}", days::describe_panic(&*panic));
            ExitCode::FAILURE
        }
    }
}
