//! What a terminal shows while something takes long, as loading a large model does.

use crate::kit::note::note;
use std::sync::mpsc::{channel, Receiver, RecvTimeoutError};
use std::time::Duration;

/// A wait that needs no word.
const PATIENCE: Duration = Duration::from_secs(2);

/// Does the work. If it takes longer than two seconds, standard error says what it is: a terminal
/// with a spinner that goes when the work is done, anything else with one line.
pub fn named<T>(what: &str, work: impl FnOnce() -> T) -> T {
    let what = what.to_string();
    after(PATIENCE, move |done| show(&what, done), work)
}

/// Does the work, and calls `show` on a thread if it takes longer than `patience`. The channel ends
/// with the work.
fn after<T>(
    patience: Duration,
    show: impl FnOnce(&Receiver<()>) + Send + 'static,
    work: impl FnOnce() -> T,
) -> T {
    let (working, done) = channel::<()>();
    let watch = std::thread::spawn(move || {
        if done.recv_timeout(patience) == Err(RecvTimeoutError::Timeout) {
            show(&done);
        }
    });
    let result = work();
    drop(working);
    let _ = watch.join();
    result
}

#[cfg(feature = "hub")]
fn show(what: &str, done: &Receiver<()>) {
    let spinner = indicatif::ProgressBar::new_spinner().with_message(what.to_string());
    if spinner.is_hidden() {
        note!("{what}");
        return;
    }
    while done.recv_timeout(Duration::from_millis(100)) == Err(RecvTimeoutError::Timeout) {
        spinner.tick();
    }
    spinner.finish_and_clear();
}

/// Without the crate that draws: one line.
#[cfg(not(feature = "hub"))]
fn show(what: &str, _done: &Receiver<()>) {
    note!("{what}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_long_wait_is_named() {
        let (sender, shown) = channel();
        let show = |sender: std::sync::mpsc::Sender<()>| {
            move |done: &Receiver<()>| {
                let _ = sender.send(());
                let _ = done.recv(); // ends with the work
            }
        };
        assert_eq!(after(Duration::from_secs(60), show(sender.clone()), || 1), 1);
        assert!(shown.try_recv().is_err());
        let long = || shown.recv_timeout(Duration::from_secs(60)).is_ok();
        assert!(after(Duration::from_millis(1), show(sender), long), "a long one is");
    }
}
