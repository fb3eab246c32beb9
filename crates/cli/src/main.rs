//! The `candecode` command.

use candecode::kit::panics::{self, Unwritten};
use candecode::kit::{error, note};
use candecode_cli::{flags::Args, run};
use candecode_engine::kernels;
use std::io::{ErrorKind, Write as _};
use std::process::ExitCode;

fn main() -> ExitCode {
    candecode_allocator::keep_freed_memory();
    kernels::set_threads();
    kernels::in_pool(command)
}

/// Runs the program. `main` sets the number of threads first.
fn command() -> ExitCode {
    let args = match Args::read(std::env::args_os()) {
        Ok(args) => args,
        Err(refused) => return shown(&refused),
    };
    panics::quiet_panics();
    match std::panic::catch_unwind(|| run::run(&args)) {
        Ok(Ok(code)) => ExitCode::from(code),
        Ok(Err(error)) if error.chain().any(|e| e.is::<error::OutputClosed>()) => ExitCode::SUCCESS,
        Ok(Err(error)) => {
            note::write(format_args!("error: {}", error::describe(&error)));
            ExitCode::from(if error.is::<error::Usage>() { 2 } else { 1 })
        }
        Err(panic) => {
            match Unwritten::of(&*panic) {
                Some(task) => note::write(format_args!("error: {task}")),
                None => note::write(format_args!("{}", panics::describe_panic(&*panic))),
            }
            ExitCode::FAILURE
        }
    }
}

/// Prints clap's message: help or the version on standard output, an error on standard error.
fn shown(said: &clap::Error) -> ExitCode {
    let printed = said.print().and_then(|()| std::io::stdout().flush());
    match printed {
        _ if said.use_stderr() => ExitCode::from(2),
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            note::write(format_args!("error: could not write to standard output: {error}"));
            ExitCode::FAILURE
        }
        _ => ExitCode::SUCCESS,
    }
}
