//! Runs child processes with a time limit, and drains their output so that they can't block on it.
//!
//! The child stays in the runner's process group, so that Ctrl-C reaches both.

use anyhow::{Context, Result};
use std::io::{BufRead, BufReader, Read};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::mpsc::{channel, RecvTimeoutError, Sender};
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

/// Runs a command until it ends or reaches `limit`. Calls `on_line` with each line of standard
/// output as it arrives.
///
/// # Errors
/// If the command can't be started.
pub fn run(
    command: &mut Command,
    limit: Duration,
    mut on_line: impl FnMut(&str),
) -> Result<Outcome> {
    let program = command.get_program().to_string_lossy().into_owned();
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().with_context(|| format!("cannot start {program}"))?;
    let (sender, lines) = channel();
    if let Some(pipe) = child.stdout.take() {
        forward(pipe, false, sender.clone());
    }
    if let Some(pipe) = child.stderr.take() {
        forward(pipe, true, sender);
    }
    let (mut stdout, mut stderr) = (String::new(), String::new());
    let mut take = |(is_error, text): (bool, String)| {
        if is_error {
            stderr.push_str(&text);
        } else {
            on_line(text.trim_end());
            stdout.push_str(&text);
        }
    };
    let start = Instant::now();
    let end = loop {
        match lines.recv_timeout(Duration::from_millis(10)) {
            Ok(line) => take(line),
            Err(RecvTimeoutError::Disconnected) => std::thread::sleep(Duration::from_millis(5)),
            Err(RecvTimeoutError::Timeout) => {}
        }
        if let Some(status) = child.try_wait()? {
            break end_of(status);
        }
        if start.elapsed() > limit {
            let _ = child.kill();
            child.wait()?;
            break End::TimedOut;
        }
    };
    // Drain the pipes, but don't wait long: a grandchild may hold them open.
    let ended = Instant::now();
    while ended.elapsed() < Duration::from_secs(5) {
        let Ok(line) = lines.recv_timeout(Duration::from_millis(500)) else { break };
        take(line);
    }
    Ok(Outcome { stdout, stderr, end })
}

/// Forwards each line of a pipe, on its own thread.
fn forward(pipe: impl Read + Send + 'static, is_error: bool, to: Sender<(bool, String)>) {
    std::thread::spawn(move || {
        for line in BufReader::new(pipe).split(b'\n').map_while(Result::ok) {
            let text = String::from_utf8_lossy(&line).into_owned() + "\n";
            if to.send((is_error, text)).is_err() {
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
        run(Command::new("sh").args(["-c", script]), limit, |_| ()).unwrap()
    }

    #[test]
    fn a_hung_child_is_killed_and_a_fatal_signal_is_named() {
        let start = Instant::now();
        assert_eq!(sh("exec sleep 1000", Duration::from_millis(300)).end, End::TimedOut);
        assert!(start.elapsed() < Duration::from_secs(20));
        let died = sh("kill -ABRT $$", Duration::from_secs(60)).end;
        assert!(matches!(died, End::Died(text) if text.starts_with("signal 6, aborted")));
    }
}
