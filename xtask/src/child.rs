//! Runs child processes with limits on their time and their output, and drains the output so that
//! they can't block on it.
//!
//! The child stays in the runner's process group, so that Ctrl-C reaches both.

use anyhow::{Context, Result};
use std::io::Read;
use std::process::{Command, ExitStatus, Stdio};
use std::sync::mpsc::{sync_channel, RecvTimeoutError, SyncSender};
use std::time::{Duration, Instant};

/// How a child ended.
#[derive(Debug, PartialEq, Eq)]
pub enum End {
    /// It exited with this code.
    Exit(i32),
    /// A signal or a fault ended it. The text names the cause.
    Died(String),
    /// The runner killed it at the time limit.
    TimedOut,
}

impl End {
    /// Describes how the child ended.
    pub fn words(&self) -> String {
        match self {
            End::Exit(code) => format!("exit code {code}"),
            End::Died(why) => why.clone(),
            End::TimedOut => "it was still running at the time limit".to_string(),
        }
    }
}

/// A child's output and how it ended.
#[derive(Debug)]
pub struct Outcome {
    /// Standard output.
    pub stdout: String,
    /// Standard error.
    pub stderr: String,
    /// How it ended.
    pub end: End,
}

/// The number of bytes that only an infinite loop prints.
const MOST: usize = 16 << 20;

/// How long to wait for the end of a child's output after the child has ended.
const REST: Duration = Duration::from_secs(10);

/// Runs a command until it ends, reaches `limit`, or has printed too much.
///
/// # Errors
/// If the command can't be started.
pub fn run(command: &mut Command, limit: Duration) -> Result<Outcome> {
    let program = command.get_program().to_string_lossy().into_owned();
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().with_context(|| format!("cannot start {program}"))?;
    let (sender, chunks) = sync_channel(16);
    if let Some(pipe) = child.stdout.take() {
        forward(pipe, false, sender.clone());
    }
    if let Some(pipe) = child.stderr.take() {
        forward(pipe, true, sender);
    }
    let mut streams = [Vec::new(), Vec::new()];
    let mut take = |(is_error, chunk): (bool, Vec<u8>)| {
        streams[usize::from(is_error)].extend(chunk);
        streams.iter().map(Vec::len).sum::<usize>() > MOST
    };
    let start = Instant::now();
    let end = loop {
        let printed_too_much = match chunks.recv_timeout(Duration::from_millis(10)) {
            Ok(chunk) => take(chunk),
            Err(RecvTimeoutError::Disconnected) => {
                std::thread::sleep(Duration::from_millis(5));
                false
            }
            Err(RecvTimeoutError::Timeout) => false,
        };
        if let Some(status) = child.try_wait()? {
            break end_of(status);
        }
        if printed_too_much || start.elapsed() > limit {
            let _ = child.kill();
            child.wait()?;
            break match printed_too_much {
                true => End::Died(format!("it printed more than {} MiB", MOST >> 20)),
                false => End::TimedOut,
            };
        }
    };
    // Drain the pipes, but don't wait forever: a grandchild may hold them open.
    let ended = Instant::now();
    while let Ok(chunk) = chunks.recv_timeout(REST.saturating_sub(ended.elapsed())) {
        if take(chunk) {
            break;
        }
    }
    let [stdout, stderr] = streams.map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
    Ok(Outcome { stdout, stderr, end })
}

/// Forwards what a pipe says, on its own thread.
fn forward(mut pipe: impl Read + Send + 'static, is_error: bool, to: SyncSender<(bool, Vec<u8>)>) {
    std::thread::spawn(move || {
        let mut buffer = vec![0; 1 << 16];
        while let Ok(count @ 1..) = pipe.read(&mut buffer) {
            if to.send((is_error, buffer[..count].to_vec())).is_err() {
                return;
            }
        }
    });
}

/// Converts an exit status.
pub fn end_of(status: ExitStatus) -> End {
    #[cfg(unix)]
    if let Some(signal) = std::os::unix::process::ExitStatusExt::signal(&status) {
        let words = match signal {
            4 => "illegal instruction",
            6 => "aborted, often by endless recursion or lack of memory",
            9 => "killed, often for lack of memory",
            10 | 11 => "invalid memory access",
            _ => "ended by a signal",
        };
        return End::Died(format!("signal {signal}, {words}"));
    }
    match status.code() {
        Some(code) if cfg!(windows) && code < 0 => End::Died(format!("status {code:#010x}")),
        Some(code) => End::Exit(code),
        None => End::Died(status.to_string()),
    }
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;

    fn sh(script: &str, limit: Duration) -> Outcome {
        run(Command::new("sh").args(["-c", script]), limit).unwrap()
    }

    #[test]
    fn a_hung_child_is_killed_and_a_fatal_signal_is_named() {
        assert_eq!(sh("exec sleep 1000", Duration::from_millis(300)).end, End::TimedOut);
        let died = sh("kill -ABRT $$", Duration::from_secs(60)).end;
        assert!(matches!(died, End::Died(text) if text.starts_with("signal 6, aborted")));
    }

    #[test]
    fn a_child_that_prints_without_end_is_killed_long_before_its_time_limit() {
        for script in ["exec yes", "yes | tr -d '\\n' >&2"] {
            let Outcome { stdout, stderr, end } = sh(script, Duration::from_secs(600));
            assert!(matches!(end, End::Died(text) if text == "it printed more than 16 MiB"));
            assert!(stdout.len() + stderr.len() < 2 * MOST);
        }
    }

    /// A busy machine may pass it on late. Here, a grandchild is late.
    #[test]
    fn what_a_child_prints_last_is_not_lost() {
        let ran = sh("(sleep 0.6; echo late) & echo soon", Duration::from_secs(60));
        assert_eq!((ran.stdout.as_str(), ran.end), ("soon\nlate\n", End::Exit(0)));
    }
}
