//! `chat --endpoint`: the conversation is kept here, and sent whole with every line.

use crate::cli::chat_terminal::{command, next_line, Commanded, Next};
use crate::cli::endpoint::remote_client::Client;
use crate::cli::endpoint::remote_request::{chat, Server};
use crate::cli::endpoint::remote_text::{receive, stats, Bounds};
use crate::cli::flags::Args;
use crate::cli::interrupt;
use crate::cli::output::{show, show_text};
use crate::engine::chat_template::setting;
use crate::kit::error::{describe, OutputClosed};
use crate::kit::note::note;
use crate::kit::SamplingParams;
use anyhow::Result;
use serde_json::{json, Map, Value};
use std::io::IsTerminal as _;
use std::time::Instant;

/// What was said.
struct Conversation {
    system: Option<String>,
    turns: Vec<Value>,
}

impl Conversation {
    /// All messages, and one more line.
    fn with(&self, line: &str) -> Vec<Value> {
        let system = self.system.iter().map(|text| json!({"role": "system", "content": text}));
        let mut messages: Vec<Value> = system.chain(self.turns.iter().cloned()).collect();
        messages.push(json!({"role": "user", "content": line}));
        messages
    }
}

impl Commanded for Conversation {
    fn reset(&mut self) {
        self.turns.clear();
    }

    fn set_system(&mut self, text: Option<&str>) -> Result<()> {
        self.system = text.map(str::to_string);
        Ok(())
    }
}

/// Talks until the input ends; gives the exit code. A line that the server refuses is told, and the
/// chat is as before it.
///
/// # Errors
/// If the terminal fails, or a setting of the template is none.
pub fn talk(client: &Client, server: &Server, args: &Args, params: &SamplingParams) -> Result<u8> {
    let settings = settings(args)?;
    let typed = std::io::stdin().is_terminal();
    if typed {
        note!("[/help shows the commands; Ctrl-C stops an answer, Ctrl-D ends the chat]");
    }
    interrupt::watch();
    let mut conversation = Conversation { system: args.system.clone(), turns: Vec::new() };
    let mut well = true;
    while let Some(line) = interrupt::waiting(|| next_line(typed))? {
        let said = match command(&mut conversation, &line) {
            Next::Quit => break,
            Next::GoOn => continue,
            Next::Say(text) if text.is_empty() => continue,
            Next::Say(text) => text,
        };
        let body = chat(params, server, &conversation.with(&said), &settings);
        let began = Instant::now();
        let bounds = Bounds::new(params.max_new_tokens, 1);
        let answer = client
            .stream("chat/completions", &body, bounds.stream)
            .and_then(|stream| receive(stream, 1, bounds, began, show_text));
        let received = match answer {
            Ok(received) => received,
            Err(error) if error.is::<OutputClosed>() => return Err(error),
            Err(error) => {
                note!("error: {}", describe(&error));
                well = false;
                continue;
            }
        };
        show("\n")?;
        let Some(text) = received.texts.first() else { continue };
        if received.stopped {
            note!("[stopped; what was said stays]");
        } else if text.finish_reason.as_deref() == Some("length") {
            note!("[cut: --max-new-tokens N allows more, as far as the server's context goes]");
        }
        if args.stats {
            note!("{}", stats(&received));
        }
        conversation.turns.push(json!({"role": "user", "content": said}));
        conversation.turns.push(json!({"role": "assistant", "content": text.text}));
    }
    Ok(u8::from(!well && !typed))
}

/// The flags `--template-set`, as [`setting`] reads them.
fn settings(args: &Args) -> Result<Map<String, Value>> {
    let read = |text: &String| setting(text).map(|(name, value)| (name, json!(value)));
    args.template_set.iter().map(read).collect()
}
