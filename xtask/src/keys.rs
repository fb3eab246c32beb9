//! Single keys from a terminal, or lines where there is none.
//!
//! The terminal is raw only while nothing runs: so whatever Ctrl-C interrupts, the terminal is as it was.

use anyhow::Result;
use crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use crossterm::terminal::{disable_raw_mode, enable_raw_mode};
use std::io::{BufRead, IsTerminal};
use std::sync::mpsc::{channel, Receiver, RecvTimeoutError};
use std::time::Duration;

/// What the reader asks for, or what else ends the wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Input {
    /// A letter.
    Key(char),
    /// Ctrl-C, or a request of the system to end.
    Interrupt,
    /// What was waited for beside keys.
    Event,
}

/// Where keys come from.
pub enum Keys {
    /// Single keys, without Enter.
    Terminal(signals::Ending),
    /// The first letter of each line.
    Lines(Receiver<String>),
}

/// How often the wait looks at what else may end it.
const TICK: Duration = Duration::from_millis(100);

impl Keys {
    /// Keys from the terminal if standard input is one that can give them, else lines.
    pub fn open() -> Keys {
        let dumb = std::env::var("TERM").is_ok_and(|term| term == "dumb");
        if std::io::stdin().is_terminal() && !dumb {
            if let Ok(raw) = Raw::enter() {
                drop(raw);
                return Keys::Terminal(signals::Ending::watch());
            }
        }
        let (sender, lines) = channel();
        std::thread::spawn(move || {
            for line in std::io::stdin().lock().lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    return;
                }
            }
        });
        Keys::Lines(lines)
    }

    /// Whether Enter is needed after a key.
    pub fn need_enter(&self) -> bool {
        matches!(self, Keys::Lines(_))
    }

    /// Waits for a key, or until `happened` says so.
    ///
    /// # Errors
    /// If the terminal is gone.
    pub fn wait(&self, mut happened: impl FnMut() -> bool) -> Result<Input> {
        match self {
            Keys::Terminal(ending) => from_terminal(ending, happened),
            Keys::Lines(lines) => loop {
                match lines.recv_timeout(TICK) {
                    Ok(line) => {
                        let key = line.trim().chars().next().unwrap_or('\n');
                        return Ok(Input::Key(key.to_ascii_lowercase()));
                    }
                    Err(RecvTimeoutError::Timeout) => {}
                    // no more lines: what is watched may still change
                    Err(RecvTimeoutError::Disconnected) => std::thread::sleep(TICK),
                }
                if happened() {
                    return Ok(Input::Event);
                }
            },
        }
    }
}

/// Waits with the terminal in raw mode.
fn from_terminal(ending: &signals::Ending, mut happened: impl FnMut() -> bool) -> Result<Input> {
    let mut raw = Raw::enter()?;
    let _patience = ending.wait();
    loop {
        if event::poll(TICK)? {
            let Event::Key(key) = event::read()? else { continue };
            match meaning(key) {
                Some(Input::Key('\u{1a}')) => {
                    drop(raw);
                    signals::stop();
                    raw = Raw::enter()?;
                }
                Some(input) => return Ok(input),
                None => {}
            }
        }
        if ending.asked() {
            return Ok(Input::Interrupt);
        }
        if happened() {
            return Ok(Input::Event);
        }
    }
}

/// A key as a letter; Ctrl-Z as the character that it is.
fn meaning(key: KeyEvent) -> Option<Input> {
    if key.kind == KeyEventKind::Release {
        return None;
    }
    match (key.code, key.modifiers.contains(KeyModifiers::CONTROL)) {
        (KeyCode::Char('c'), true) => Some(Input::Interrupt),
        (KeyCode::Char('d'), true) => Some(Input::Key('q')),
        (KeyCode::Char('z'), true) => Some(Input::Key('\u{1a}')),
        (KeyCode::Char(letter), false) => Some(Input::Key(letter.to_ascii_lowercase())),
        (KeyCode::Enter, _) => Some(Input::Key('\n')),
        _ => None,
    }
}

/// The terminal in raw mode, until dropped.
struct Raw;

impl Raw {
    fn enter() -> Result<Raw> {
        enable_raw_mode()?;
        Ok(Raw)
    }
}

impl Drop for Raw {
    fn drop(&mut self) {
        let _ = disable_raw_mode();
    }
}

/// Requests of the system to end: they must not leave the terminal raw.
#[cfg(unix)]
pub mod signals {
    use signal_hook::consts::{SIGHUP, SIGTERM, SIGTSTP};
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::sync::Arc;

    /// Whether the process was asked to end.
    pub struct Ending {
        asked: Arc<AtomicBool>,
        at_once: Arc<AtomicBool>,
    }

    /// While this lives, a request waits for the terminal to be put back; else it ends the process at once.
    pub struct Patience(Arc<AtomicBool>);

    impl Drop for Patience {
        fn drop(&mut self) {
            self.0.store(true, Ordering::SeqCst);
        }
    }

    impl Ending {
        /// Listens from now on.
        pub fn watch() -> Ending {
            let asked = Arc::new(AtomicBool::new(false));
            let at_once = Arc::new(AtomicBool::new(true));
            for signal in [SIGTERM, SIGHUP] {
                let status = 128 + signal;
                let _ = signal_hook::flag::register_conditional_shutdown(
                    signal,
                    status,
                    at_once.clone(),
                );
                let _ = signal_hook::flag::register(signal, asked.clone());
            }
            Ending { asked, at_once }
        }

        /// For the time that the terminal is raw.
        pub fn wait(&self) -> Patience {
            self.at_once.store(false, Ordering::SeqCst);
            Patience(self.at_once.clone())
        }

        /// Whether it was asked.
        pub fn asked(&self) -> bool {
            self.asked.load(Ordering::SeqCst)
        }
    }

    /// Ctrl-Z: sleeps until the shell brings the process back.
    pub fn stop() {
        let _ = signal_hook::low_level::emulate_default_handler(SIGTSTP);
    }
}

/// Windows ends a process without asking, and has no Ctrl-Z.
#[cfg(not(unix))]
pub mod signals {
    /// Nothing is ever asked.
    pub struct Ending;

    impl Ending {
        /// Nothing to listen to.
        pub fn watch() -> Ending {
            Ending
        }

        /// Nothing to wait for.
        pub fn wait(&self) {}

        /// Never.
        pub fn asked(&self) -> bool {
            false
        }
    }

    /// Does nothing.
    pub fn stop() {}
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_have_their_meanings() {
        let press = |code, modifiers| meaning(KeyEvent::new(code, modifiers));
        assert_eq!(press(KeyCode::Char('H'), KeyModifiers::SHIFT), Some(Input::Key('h')));
        assert_eq!(press(KeyCode::Char('c'), KeyModifiers::CONTROL), Some(Input::Interrupt));
        assert_eq!(press(KeyCode::Char('d'), KeyModifiers::CONTROL), Some(Input::Key('q')));
        assert_eq!(press(KeyCode::Char('x'), KeyModifiers::CONTROL), None);
        assert_eq!(press(KeyCode::Up, KeyModifiers::NONE), None);
    }
}
