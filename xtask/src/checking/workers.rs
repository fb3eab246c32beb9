//! Runs checks in several processes of a check program, one check at a time in each.
//!
//! A process reads the id of a check from its standard input, runs it, and writes a record on its
//! standard output: JSON after the character that starts a record of a JSON text sequence (RFC
//! 7464). All else that comes from it, until then, was printed by the code under test. A check that
//! takes too long, prints without end, or takes its process down, is the one that was being waited
//! for. The others run in a new process.

use crate::child;
use crate::term;
use anyhow::{Context, Result};
use candecode_course::in_src;
use serde_json::Value;
use std::io::{Read, Write};
use std::mem;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{channel, Receiver, RecvTimeoutError, Sender};
use std::sync::Mutex;
use std::time::Duration;

/// How one check ended.
pub enum Ended {
    /// It was reported, with these fields.
    Reported(Value),
    /// It was still running after this time.
    TimedOut(Duration),
    /// It printed more than this many MiB.
    PrintedTooMuch(usize),
    /// Its process ended first, for this reason.
    Died(String),
}

/// One check that has been run.
pub struct Ran {
    /// How it ended.
    pub end: Ended,
    /// What the code under test printed.
    pub printed: String,
}

/// The time limits of a run.
#[derive(Clone, Copy)]
pub struct Patience {
    /// The time limit for each check, until one exceeds it.
    pub first: Duration,
    /// The limit from then on: the checks that follow will most likely hit the same loop.
    pub then: Duration,
}

/// Runs the named checks, on as many processes as there are cores, and returns how each ended.
/// `command` starts a process. Calls `on_done` with the number of checks done.
///
/// # Errors
/// If the program can't be started.
pub fn run(
    command: &(dyn Fn() -> Command + Sync),
    checks: &[String],
    patience: Patience,
    on_done: &(dyn Fn(usize) + Sync),
) -> Result<Vec<Ran>> {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let (next, done) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let limit = Mutex::new(patience.first);
    let work = || -> Result<Vec<(usize, Ran)>> {
        let (mut worker, mut all) = (None, Vec::new());
        while let Some((at, check)) = nth(checks, next.fetch_add(1, Ordering::Relaxed)) {
            let mut busy = match worker.take() {
                Some(idle) => idle,
                None => Worker::start(command())?,
            };
            let now = limit.lock().map_or(patience.then, |limit| *limit);
            let ran = busy.check(check, now);
            match &ran.end {
                Ended::Reported(_) => worker = Some(busy),
                Ended::TimedOut(_) => {
                    let _ = limit.lock().map(|mut limit| *limit = patience.then);
                }
                Ended::Died(_) | Ended::PrintedTooMuch(_) => {}
            }
            all.push((at, ran));
            on_done(done.fetch_add(1, Ordering::Relaxed) + 1);
        }
        Ok(all)
    };
    let mut all = Vec::new();
    std::thread::scope(|scope| -> Result<()> {
        let count = cores.min(checks.len());
        let threads: Vec<_> = (0..count).map(|_| scope.spawn(work)).collect();
        for thread in threads {
            let ran = thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            all.extend(ran?);
        }
        Ok(())
    })?;
    all.sort_by_key(|(at, _)| *at);
    Ok(all.into_iter().map(|(_, ran)| ran).collect())
}

fn nth(checks: &[String], at: usize) -> Option<(usize, &String)> {
    Some((at, checks.get(at)?))
}

/// A process that runs checks. Killed on drop.
struct Worker {
    child: Child,
    ids: Option<ChildStdin>,
    said: Receiver<Said>,
}

/// What a process says: the record of a check, or `None` at the end or when it has printed too
/// much, and what was printed before.
struct Said {
    record: Option<Value>,
    printed: Vec<u8>,
}

impl Worker {
    fn start(mut command: Command) -> Result<Worker> {
        let name = command.get_program().to_string_lossy().into_owned();
        // One pipe for both streams keeps their order.
        let (output, pipe) = std::io::pipe()?;
        command.arg("serve").stdin(Stdio::piped()).stdout(pipe.try_clone()?).stderr(pipe);
        let mut child = command.spawn().with_context(|| format!("cannot start {name}"))?;
        drop(command); // closes this process's copies of the pipe, so that the pipe can end
        let ids = child.stdin.take();
        let (send, said) = channel();
        std::thread::spawn(move || listen(output, &send));
        Ok(Worker { child, ids, said })
    }

    /// Runs one check.
    fn check(&mut self, id: &str, limit: Duration) -> Ran {
        // If the process has ended, so has the pipe that is read next.
        let _ = self.ids.as_mut().map(|ids| writeln!(ids, "{id}").and_then(|()| ids.flush()));
        let said = match self.said.recv_timeout(limit) {
            Err(RecvTimeoutError::Timeout) => None,
            said => Some(said.unwrap_or_else(|_| Said { record: None, printed: Vec::new() })),
        };
        match said {
            Some(Said { record: Some(record), printed }) => {
                Ran { end: Ended::Reported(record), printed: text_of(&printed) }
            }
            Some(Said { record: None, printed }) if printed.len() > MOST => {
                let end = Ended::PrintedTooMuch(MOST >> 20);
                Ran { end, printed: text_of(&printed) } // the process is killed on drop
            }
            Some(Said { record: None, printed }) => {
                let why = match self.child.wait() {
                    Ok(status) => child::words_of(status),
                    Err(error) => error.to_string(),
                };
                let printed = text_of(&printed);
                let lines: Vec<&str> = printed.lines().collect();
                let last = &lines[lines.len().saturating_sub(LAST_LINES)..];
                let why = format!(
                    "the test program ended before this check did ({why})\n{}",
                    term::readable(&last.join("\n"))
                );
                // If it was short, the reason has all of it.
                let is_long = lines.len() > LAST_LINES;
                let printed = if is_long { printed } else { String::new() };
                Ran { end: Ended::Died(why), printed }
            }
            None => {
                let _ = self.child.kill();
                let rest = self.said.recv_timeout(Duration::from_secs(5));
                let printed = rest.map(|said| text_of(&said.printed)).unwrap_or_default();
                Ran { end: Ended::TimedOut(limit), printed }
            }
        }
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        drop(self.ids.take()); // its process ends by itself, unless it is in an infinite loop
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Starts a record, in a JSON text sequence.
const RECORD: u8 = 0x1e;
/// The longest record that is believed to be one, in bytes.
const LONGEST: usize = 1 << 24;

/// Reads all that a process says, and sends it record by record.
fn listen(mut output: impl Read, to: &Sender<Said>) {
    let (mut printed, mut record) = (Vec::new(), None::<Vec<u8>>);
    let mut buffer = vec![0; 1 << 16];
    while let Ok(count @ 1..) = output.read(&mut buffer) {
        let mut rest = &buffer[..count];
        if printed.len() > MOST {
            break;
        }
        while !rest.is_empty() {
            let Some(line) = &mut record else {
                let start = rest.iter().position(|byte| *byte == RECORD);
                let (text, more) = rest.split_at(start.unwrap_or(rest.len()));
                printed.extend_from_slice(text);
                if start.is_some() {
                    record = Some(Vec::new());
                }
                rest = more.get(1..).unwrap_or_default();
                continue;
            };
            let end = rest.iter().position(|byte| *byte == b'\n');
            let (text, more) = rest.split_at(end.map_or(rest.len(), |end| end + 1));
            line.extend_from_slice(text);
            rest = more;
            if end.is_none() && line.len() < LONGEST {
                continue;
            }
            // The code under test may print anything, such as the start of a record.
            let line = record.take().unwrap_or_default();
            let start = line.iter().rposition(|byte| *byte == RECORD).map_or(0, |at| at + 1);
            printed.extend_from_slice(&line[..start.saturating_sub(1)]);
            let Ok(value) = serde_json::from_slice::<Value>(&line[start..]) else {
                printed.extend_from_slice(&line[start..]);
                continue;
            };
            let said = Said { record: Some(value), printed: mem::take(&mut printed) };
            if to.send(said).is_err() {
                return;
            }
        }
    }
    let _ = to.send(Said { record: None, printed });
}

/// How many of the last lines of output explain that a process has ended.
const LAST_LINES: usize = 8;

/// The number of bytes that only an infinite loop prints. Even a slow one gets there in seconds.
const MOST: usize = 4 << 20;

fn text_of(printed: &[u8]) -> String {
    in_src(String::from_utf8_lossy(printed).trim_end())
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;

    /// A program whose checks are lines of shell.
    fn shell(checks: &[&str], limit: Duration) -> Vec<Ran> {
        let script = "while read -r line; do eval \"$line\"; printf '\\036{\"ok\":true}\\n'; done";
        let command = || {
            let mut command = Command::new("sh");
            command.args(["-c", script]);
            command
        };
        let checks: Vec<String> = checks.iter().map(|check| check.to_string()).collect();
        run(&command, &checks, Patience { first: limit, then: limit }, &|_| ()).unwrap()
    }

    fn said(ran: &Ran) -> (bool, &str) {
        (matches!(ran.end, Ended::Reported(_)), &ran.printed)
    }

    #[test]
    fn what_is_printed_belongs_to_its_check() {
        let ran = shell(&["echo a; echo b >&2", ":", "printf '\\036no'"], Duration::from_secs(60));
        assert_eq!(
            ran.iter().map(said).collect::<Vec<_>>(),
            [(true, "a\nb"), (true, ""), (true, "no")]
        );
    }
}
