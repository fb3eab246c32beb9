//! The `candecode` command.

use candecode::cli::{flags::Args, run};
use candecode::kernels;
use candecode::kit::{days, error};
use clap::Parser as _;
use std::process::ExitCode;

/// The system's allocator gives a large block back to the kernel when it is freed, and pays a page fault for every 4 KiB of the
/// next one: a quarter of the time of a long prompt. This one keeps it.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    kernels::set_threads();
    let args = Args::parse();
    days::quiet_panics();
    match std::panic::catch_unwind(|| run::run(&args)) {
        Ok(Ok(code)) => ExitCode::from(code),
        Ok(Err(error)) => {
            eprintln!("error: {}", error::describe(&error));
            ExitCode::from(if error.is::<error::Usage>() { 2 } else { 1 })
        }
        Err(panic) => {
            eprintln!("{}", days::describe_panic(&*panic));
            ExitCode::FAILURE
        }
    }
}
