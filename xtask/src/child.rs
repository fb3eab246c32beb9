//! A child process that cannot hang the runner: its output is read as it comes, and it ends by a bound.
//!
//! The child stays in the runner's process group, so that Ctrl-C reaches both.

use anyhow::{Context, Result};
use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{channel, Receiver, RecvTimeoutError, Sender};
use std::time::{Duration, Instant};

/// How a child ended.
#[derive(Debug, PartialEq, Eq)]
pub enum End {
    /// By itself, with this code.
    Exit(i32),
    /// By a signal or a fault; the text says which.
    Died(String),
    /// Killed by the runner, with all its descendants, at the bound.
    TimedOut,
}

/// What a child wrote, and how it ended.
#[derive(Debug)]
pub struct Outcome {
    /// Standard output.
    pub stdout: String,
    /// Standard error.
    pub stderr: String,
    /// How it ended.
    pub end: End,
}

/// A line from one of the two pipes.
enum Line {
    Out(String),
    Err(String),
}

/// Runs a command to its end or to `limit`, handing each line of its output to `on_line` as it comes.
///
/// # Errors
/// If it cannot be started.
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
        forward(pipe, Line::Out, sender.clone());
    }
    if let Some(pipe) = child.stderr.take() {
        forward(pipe, Line::Err, sender);
    }
    let (mut stdout, mut stderr) = (String::new(), String::new());
    let mut take = |line: Line| match line {
        Line::Out(text) => {
            on_line(text.trim_end());
            stdout.push_str(&text);
        }
        Line::Err(text) => stderr.push_str(&text),
    };
    let end = wait(&mut child, &lines, limit, &mut take)?;
    drain(&lines, &mut take);
    Ok(Outcome { stdout, stderr, end })
}

/// Sends each line of a pipe on, from a thread of its own.
fn forward(pipe: impl Read + Send + 'static, kind: fn(String) -> Line, sender: Sender<Line>) {
    std::thread::spawn(move || {
        let mut reader = BufReader::new(pipe);
        let mut bytes = Vec::new();
        while matches!(reader.read_until(b'\n', &mut bytes), Ok(n) if n > 0) {
            let text = String::from_utf8_lossy(&bytes).into_owned();
            if sender.send(kind(text)).is_err() {
                return;
            }
            bytes.clear();
        }
    });
}

/// Waits for the child's end, taking lines meanwhile.
fn wait(
    child: &mut Child,
    lines: &Receiver<Line>,
    limit: Duration,
    take: &mut impl FnMut(Line),
) -> Result<End> {
    let start = Instant::now();
    loop {
        match lines.recv_timeout(Duration::from_millis(10)) {
            Ok(line) => take(line),
            Err(RecvTimeoutError::Disconnected) => std::thread::sleep(Duration::from_millis(5)),
            Err(RecvTimeoutError::Timeout) => {}
        }
        if let Some(status) = child.try_wait()? {
            return Ok(end_of(status));
        }
        if start.elapsed() > limit {
            kill_tree(child);
            child.wait()?;
            return Ok(End::TimedOut);
        }
    }
}

/// Takes what is still in the pipes. A grandchild may hold them open: it is not waited for.
fn drain(lines: &Receiver<Line>, take: &mut impl FnMut(Line)) {
    while let Ok(line) = lines.recv_timeout(Duration::from_millis(500)) {
        take(line);
    }
}

/// The end that an exit status tells.
fn end_of(status: ExitStatus) -> End {
    #[cfg(unix)]
    if let Some(signal) = std::os::unix::process::ExitStatusExt::signal(&status) {
        let words = match signal {
            4 => "illegal instruction",
            6 => "aborted: often endless recursion, or no memory left",
            9 => "killed: often no memory left",
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

/// Kills a child and all that it started. Best effort: what has ended by itself meanwhile is no error.
fn kill_tree(child: &mut Child) {
    let root = child.id();
    if cfg!(windows) {
        crate::machine::output("taskkill", &["/T", "/F", "/PID", &root.to_string()]);
    } else {
        for pid in descendants(root, &processes()) {
            crate::machine::output("kill", &["-KILL", &pid.to_string()]);
        }
    }
    let _ = child.kill();
}

/// Pairs of (process, parent), from `/proc` where there is one, else from `ps`.
fn processes() -> Vec<(u32, u32)> {
    let Ok(entries) = std::fs::read_dir("/proc") else {
        let listing = crate::machine::output("ps", &["-A", "-o", "pid=,ppid="]).unwrap_or_default();
        return listing.lines().filter_map(pair).collect();
    };
    let stats =
        entries.flatten().filter_map(|e| std::fs::read_to_string(e.path().join("stat")).ok());
    stats
        .filter_map(|stat| {
            // pid (command) state ppid …: the command may hold spaces and brackets
            let (head, tail) = (stat.split(' ').next()?, stat.rsplit_once(") ")?.1);
            pair(&format!("{head} {}", tail.split(' ').nth(1)?))
        })
        .collect()
}

/// Two numbers from a line.
fn pair(line: &str) -> Option<(u32, u32)> {
    let mut numbers = line.split_whitespace().map(str::parse);
    Some((numbers.next()?.ok()?, numbers.next()?.ok()?))
}

/// All processes below `root`, nearest first.
fn descendants(root: u32, pairs: &[(u32, u32)]) -> Vec<u32> {
    let mut found = vec![root];
    let mut at = 0;
    while at < found.len() {
        let parent = found[at];
        found.extend(pairs.iter().filter(|p| p.1 == parent && p.0 != parent).map(|p| p.0));
        at += 1;
    }
    found.remove(0);
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sh(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        command
    }

    #[test]
    fn descendants_are_all_below() {
        assert_eq!(descendants(1, &[(2, 1), (3, 2), (4, 9), (5, 2), (1, 1)]), [2, 3, 5]);
    }

    #[test]
    #[cfg(unix)]
    fn output_and_exit_code_come_through() {
        let out =
            run(&mut sh("echo a; echo b >&2; exit 3"), Duration::from_secs(60), |_| ()).unwrap();
        assert_eq!(
            (out.stdout.as_str(), out.stderr.as_str(), out.end),
            ("a\n", "b\n", End::Exit(3))
        );
    }

    #[test]
    #[cfg(unix)]
    fn a_hanging_child_is_killed_with_its_own_children() {
        let start = Instant::now();
        let script = "sleep 1000 & echo $!; sleep 1000";
        let out = run(&mut sh(script), Duration::from_millis(300), |_| ()).unwrap();
        assert_eq!(out.end, End::TimedOut);
        assert!(start.elapsed() < Duration::from_secs(20));
        let pid: u32 = out.stdout.trim().parse().unwrap();
        // killed, though its body may wait for a reaper (state Z)
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        assert!(stat.is_empty() || stat.contains(") Z "), "{stat}");
    }

    #[test]
    #[cfg(unix)]
    fn a_signal_is_told_in_words() {
        let out = run(&mut sh("kill -ABRT $$"), Duration::from_secs(60), |_| ()).unwrap();
        assert!(matches!(out.end, End::Died(text) if text.starts_with("signal 6, aborted")));
    }
}
