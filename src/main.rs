//! The `candecode` command.

use candecode::kit::{args::Args, command, days, doors};
use clap::Parser as _;
use std::process::ExitCode;

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
