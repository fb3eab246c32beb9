//! A chat at a terminal or through a pipe. Each line is a turn, or a command if it begins with `/`.

use crate::flags::Args;
use crate::interrupt;
use crate::output::{show, show_text};
use crate::text_input;
use anyhow::Result;
use candecode::kit::error::describe;
use candecode::kit::note::note;
use candecode::kit::panics::Unwritten;
use candecode::kit::{FinishReason, Request};
use candecode_engine::chat::{Chat, Turn};
use std::io::{IsTerminal as _, Write as _};
use std::panic::{catch_unwind, resume_unwind, AssertUnwindSafe};
use std::time::Instant;

const HELP: &str = "Every line is a turn, except these commands:
  /reset         start over, with the same system prompt
  /system TEXT   replace the system prompt and keep the turns; without TEXT, remove it
  /help          show this help
  /quit          end the chat; so do Ctrl-D, and Ctrl-C at the prompt
  //TEXT         send a line that begins with a /
  Ctrl-C stops an answer; the part that was said stays.";

/// The next action after reading a line.
enum Next {
    /// Read the next line: a command was handled.
    GoOn,
    /// Send this message.
    Say(String),
    /// End the chat.
    Quit,
}

/// The other side of a chat: a local model or a server.
pub trait Partner {
    /// Forgets all turns but keeps the system prompt.
    fn reset(&mut self);

    /// Replaces the system prompt and keeps the turns. None removes it.
    ///
    /// # Errors
    /// If system prompts aren't supported.
    fn set_system(&mut self, text: Option<&str>) -> Result<()>;

    /// Answers a line. `on_text` receives each piece of text as it is generated.
    ///
    /// # Errors
    /// If the line is rejected or the answer fails. The chat is then unchanged.
    fn answer(
        &mut self,
        line: &str,
        on_text: &mut dyn FnMut(&str) -> Result<()>,
    ) -> Result<Answered>;

    /// Returns true if an empty line should be answered.
    fn answers_nothing(&self) -> bool {
        false
    }
}

/// Information to show after an answer.
pub struct Answered {
    /// How the answer ended, unless it ended normally.
    pub note: Option<String>,
    /// The line of `--stats`.
    pub stats: String,
}

/// Chats until the input ends, and returns the exit code. Answers go to standard output, everything
/// else to standard error.
///
/// # Errors
/// If the terminal fails, or an answer reaches a task that isn't written yet.
pub fn talk(partner: &mut dyn Partner, stats: bool) -> Result<u8> {
    let typed = std::io::stdin().is_terminal();
    if typed {
        note!("[/help shows the commands; Ctrl-C stops an answer, Ctrl-D ends the chat]");
    }
    let mut failed = false;
    while let Some(line) = interrupt::waiting(|| next_line(typed))? {
        let said = match command(partner, &line) {
            Next::Quit => break,
            Next::GoOn => continue,
            Next::Say(text) if text.is_empty() && !partner.answers_nothing() => continue,
            Next::Say(text) => text,
        };
        let mut begun = false;
        let answered = partner.answer(&said, &mut |text| {
            begun = true;
            show_text(text)
        });
        if begun || answered.is_ok() {
            show("\n")?; // report standard output being closed or full as its own error
        }
        match answered {
            Ok(answered) => {
                if let Some(note) = answered.note {
                    note!("[{note}]");
                }
                if stats {
                    note!("{}", answered.stats);
                }
            }
            Err(_) if interrupt::asked() => note!("[stopped]"),
            Err(error) if error.is::<Unwritten>() => return Err(error),
            Err(error) => {
                note!("error: {}", describe(&error));
                failed = true;
            }
        }
    }
    Ok(u8::from(failed && !typed))
}

/// A chat with a local model.
pub struct LocalChat<'a> {
    chat: Chat<'a>,
    request: Request<'a>,
    /// Whether the template writes one story in turns.
    story: bool,
    turn: usize,
}

impl<'a> LocalChat<'a> {
    /// Starts a chat. Every answer uses the processors and the sampler of `request`.
    ///
    /// # Errors
    /// If there is a system prompt and the template rejects it.
    pub fn new(mut chat: Chat<'a>, request: Request<'a>, args: &Args) -> Result<Self> {
        chat.set_system(args.system.as_deref())?;
        let story = chat.template().stops().iter().any(|stop| stop == "\n");
        if story && args.template.is_none() {
            note!(
                "[{} was not trained to chat: it writes a story with you (--template story)]",
                args.model
            );
        }
        if story {
            note!(
                "[you begin a paragraph, and the model finishes it; an empty line lets it continue]"
            );
        }
        Ok(Self { chat, request, story, turn: 0 })
    }

    /// Describes how an answer ended, unless it ended normally.
    fn ending(&self, turn: &Turn) -> Option<String> {
        Some(match turn.finish {
            None => "stopped; the conversation is kept".to_string(),
            Some(FinishReason::Length) if turn.full => {
                "the context is full, so the answer ends here; /reset starts over".to_string()
            }
            Some(FinishReason::Length) => format!(
                "cut after {} tokens; --max-new-tokens N allows more",
                self.request.max_new_tokens
            ),
            Some(FinishReason::Eos) if self.story => {
                "the end; your next line begins a new story".to_string()
            }
            Some(_) => return None,
        })
    }
}

impl Partner for LocalChat<'_> {
    fn reset(&mut self) {
        self.chat.reset();
    }

    fn set_system(&mut self, text: Option<&str>) -> Result<()> {
        self.chat.set_system(text)
    }

    fn answers_nothing(&self) -> bool {
        self.story
    }

    fn answer(
        &mut self,
        line: &str,
        on_text: &mut dyn FnMut(&str) -> Result<()>,
    ) -> Result<Answered> {
        let prompt = self.chat.prompt(line, self.request.max_new_tokens)?;
        let forgotten = prompt.forgotten_turns;
        if forgotten > 0 {
            let noun = if forgotten == 1 { "turn is" } else { "turns are" };
            note!("[the context is full: the oldest {forgotten} {noun} dropped]");
        }
        self.turn += 1;
        let (began, mut first) = (Instant::now(), None);
        let answered = catch_unwind(AssertUnwindSafe(|| {
            self.chat.answer(prompt, &mut self.request, |token| {
                first.get_or_insert_with(|| began.elapsed().as_secs_f64());
                on_text(&token.text)?;
                Ok(!interrupt::asked())
            })
        }));
        let turn = answered.unwrap_or_else(|panic| match Unwritten::of(&*panic) {
            Some(task) => Err(task.into()),
            None => resume_unwind(panic),
        })?;
        let first = first.unwrap_or_default();
        let rest = began.elapsed().as_secs_f64() - first;
        let Turn { prompt_tokens, reused, computed, .. } = turn;
        let answer = turn.answer.len();
        let rate = if rest > 0.0 { answer.saturating_sub(1) as f64 / rest } else { 0.0 };
        let stats = format!(
            "turn {}: {prompt_tokens} tokens, {reused} of them reused; answer {answer}; {computed} \
             computed; first after {:.0} ms, then {rate:.0} tokens/s",
            self.turn,
            first * 1e3
        );
        Ok(Answered { note: self.ending(&turn), stats })
    }
}

/// Reads the next line, without its line ending. None at the end of the input.
fn next_line(typed: bool) -> Result<Option<String>> {
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
            Ok(text) => return Ok(Some(text_input::without_mark(text))),
            Err(_) => note!("[a line that is not UTF-8 text was left out]"),
        }
    }
}

/// Runs a command, or returns the message to send.
fn command(chat: &mut dyn Partner, line: &str) -> Next {
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
            Ok(()) if text.is_empty() => note!("[system prompt removed]"),
            Ok(()) => note!("[new system prompt; the conversation is kept]"),
            Err(error) => note!("error: {}", describe(&error)),
        },
        _ => note!(
            "[no command \"{line}\"; /help shows them, and //… says a line that begins with a /]"
        ),
    }
    Next::GoOn
}
