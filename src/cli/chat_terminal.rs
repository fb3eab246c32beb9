//! A chat at a terminal, or through a pipe: a line is a turn, a line that begins with `/` is a command.

use crate::cli::flags::Args;
use crate::cli::interrupt;
use crate::cli::output::{show, show_text};
use crate::cli::text_input;
use crate::engine::chat::{Chat, Turn};
use crate::engine::chat_template::STORY;
use crate::kit::error::describe;
use crate::kit::note::note;
use crate::kit::{FinishReason, Request};
use anyhow::Result;
use std::io::{IsTerminal as _, Write as _};
use std::time::Instant;

const HELP: &str = "Every line is a turn, except these commands:
  /reset         start over; the system prompt stays
  /system TEXT   another system prompt; the turns stay. Without TEXT: none
  /help          this
  /quit          end the chat; so do Ctrl-D, and Ctrl-C at the prompt
  //TEXT         say a line that begins with a /
  Ctrl-C stops an answer; what was said of it stays.";

/// What to do after a line.
pub enum Next {
    /// It was a command, and is done.
    GoOn,
    /// Say this.
    Say(String),
    /// End the chat.
    Quit,
}

/// What the commands of a chat change.
pub trait Commanded {
    /// Forgets all turns; the system prompt stays.
    fn reset(&mut self);

    /// Replaces the system prompt; the turns stay. None: there is none.
    ///
    /// # Errors
    /// If there can be none.
    fn set_system(&mut self, text: Option<&str>) -> Result<()>;
}

impl Commanded for Chat<'_> {
    fn reset(&mut self) {
        Chat::reset(self);
    }

    fn set_system(&mut self, text: Option<&str>) -> Result<()> {
        Chat::set_system(self, text)
    }
}

/// Talks until the input ends; answers go to standard output, all else to standard error. False: a line was refused.
///
/// # Errors
/// If the model or the terminal fails.
pub fn talk(chat: &mut Chat, args: &Args, request: &mut Request) -> Result<bool> {
    let typed = std::io::stdin().is_terminal();
    let story = chat.template().stops.iter().any(|stop| stop == "\n");
    if story && args.template.is_none() {
        note!(
            "[{} was not trained to chat: it writes a story with you (--template {STORY})]",
            args.model
        );
    }
    if story {
        note!("[you begin a paragraph, it ends it; an empty line lets it go on]");
    }
    if typed {
        note!("[/help shows the commands; Ctrl-C stops an answer, Ctrl-D ends the chat]");
    }
    let (mut number, mut well) = (0, true);
    while let Some(line) = interrupt::waiting(|| next_line(typed))? {
        let said = match command(chat, &line) {
            Next::Quit => break,
            Next::GoOn => continue,
            Next::Say(text) if text.is_empty() && !story => continue,
            Next::Say(text) => text,
        };
        let prompt = match chat.prompt(&said, request.max_new_tokens) {
            Ok(prompt) => prompt,
            Err(error) => {
                note!("error: {}", describe(&error));
                well = false;
                continue;
            }
        };
        if prompt.forgotten_turns > 0 {
            let noun = if prompt.forgotten_turns == 1 { "turn is" } else { "turns are" };
            note!("[the context is full: the oldest {} {noun} forgotten]", prompt.forgotten_turns);
        }
        number += 1;
        let (began, mut first) = (Instant::now(), None);
        let turn = chat.answer(prompt, request, |token| {
            first.get_or_insert_with(|| began.elapsed().as_secs_f64());
            show_text(&token.text)?;
            Ok(!interrupt::asked())
        })?;
        show("\n")?;
        if let Some(note) = ending(&turn, args, story) {
            note!("[{note}]");
        }
        if args.stats {
            let first = first.unwrap_or_default();
            note!("{}", stats(number, &turn, first, began.elapsed().as_secs_f64() - first));
        }
    }
    Ok(well || typed)
}

/// The next line, without its end; None: there is none.
///
/// # Errors
/// If the terminal fails.
pub fn next_line(typed: bool) -> Result<Option<String>> {
    loop {
        if typed {
            let mut terminal = std::io::stderr();
            let _ = write!(terminal, "> ").and_then(|()| terminal.flush());
        }
        let Some(bytes) = text_input::line(std::io::stdin().lock())? else {
            if typed {
                note!("");
            }
            return Ok(None);
        };
        match String::from_utf8(bytes) {
            Ok(text) => return Ok(Some(text)),
            Err(_) => note!("[a line that is not UTF-8 text was left out]"),
        }
    }
}

/// Does what a command says; or gives what is to be said.
pub fn command(chat: &mut dyn Commanded, line: &str) -> Next {
    let Some(rest) = line.strip_prefix('/') else { return Next::Say(line.to_string()) };
    if rest.starts_with('/') {
        return Next::Say(rest.to_string());
    }
    let (name, text) = rest.split_once(' ').unwrap_or((rest, ""));
    match (name.trim(), text.trim()) {
        ("quit" | "exit" | "bye", "") => return Next::Quit,
        ("help" | "?", "") => note!("{HELP}"),
        ("reset", "") => {
            chat.reset();
            note!("[a new chat]");
        }
        ("system", text) => match chat.set_system(Some(text).filter(|text| !text.is_empty())) {
            Ok(()) if text.is_empty() => note!("[no system prompt any more]"),
            Ok(()) => note!("[another system prompt; what was said stays]"),
            Err(error) => note!("error: {}", describe(&error)),
        },
        _ => note!(
            "[no command \"{line}\"; /help shows them, and //… says a line that begins with a /]"
        ),
    }
    Next::GoOn
}

/// What is to be said of how an answer ended, if it is not plain.
fn ending(turn: &Turn, args: &Args, story: bool) -> Option<String> {
    match turn.finish {
        None => Some("stopped; what was said stays".into()),
        Some(FinishReason::Length) if turn.full => {
            Some("the context is full, so the answer ends here; /reset starts over".into())
        }
        Some(FinishReason::Length) => Some(format!(
            "cut after {} tokens; --max-new-tokens N allows more",
            args.max_new_tokens
        )),
        Some(FinishReason::Eos) if story => Some("the end; your next line begins another".into()),
        Some(_) => None,
    }
}

/// The line of `--stats`.
fn stats(number: usize, turn: &Turn, first: f64, rest: f64) -> String {
    let Turn { prompt_tokens, reused, computed, .. } = *turn;
    let answer = turn.answer.len();
    let rate = if rest > 0.0 { answer.saturating_sub(1) as f64 / rest } else { 0.0 };
    format!("turn {number}: {prompt_tokens} tokens, {reused} of them reused; answer {answer}; {computed} computed; first after {:.0} ms, then {rate:.0} tokens/s", first * 1e3)
}
