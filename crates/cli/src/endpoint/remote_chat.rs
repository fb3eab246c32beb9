//! `chat --endpoint`: this side stores the conversation and sends all of it with every line.

use crate::chat_terminal::{Answered, Partner};
use crate::endpoint::remote_text::{ending, receive, LENGTH};
use crate::flags::Args;
use anyhow::Result;
use candecode::kit::SamplingParams;
use candecode_remote::endpoint::{Client, Request, Server, What};
use candecode_templates::setting;
use serde_json::{json, Map, Value};

/// A conversation with a server.
pub struct RemoteChat<'a> {
    client: &'a Client,
    server: &'a Server,
    params: &'a SamplingParams,
    /// The `--template-set` flags.
    settings: Map<String, Value>,
    system: Option<String>,
    turns: Vec<Value>,
}

impl<'a> RemoteChat<'a> {
    /// Starts a chat.
    ///
    /// # Errors
    /// If a template setting is malformed.
    pub fn new(
        client: &'a Client,
        server: &'a Server,
        args: &Args,
        params: &'a SamplingParams,
    ) -> Result<Self> {
        let read = |text: &String| setting(text).map(|(name, value)| (name, json!(value)));
        let settings = args.template_set.iter().map(read).collect::<Result<_>>()?;
        let system = args.system.clone();
        Ok(Self { client, server, params, settings, system, turns: Vec::new() })
    }
}

impl Partner for RemoteChat<'_> {
    fn reset(&mut self) {
        self.turns.clear();
    }

    fn set_system(&mut self, text: Option<&str>) -> Result<()> {
        self.system = text.map(str::to_string);
        Ok(())
    }

    fn answer(
        &mut self,
        line: &str,
        on_text: &mut dyn FnMut(&str) -> Result<()>,
    ) -> Result<Answered> {
        let asked = json!({"role": "user", "content": line});
        let system = self.system.iter().map(|text| json!({"role": "system", "content": text}));
        let mut messages: Vec<Value> = system.chain(self.turns.iter().cloned()).collect();
        messages.push(asked.clone());
        let what = What::Chat { messages: &messages, settings: &self.settings };
        let request = Request { server: self.server, params: self.params, what };
        let mut received = receive(self.client, &request, on_text)?;
        if let Some(error) = received.failed {
            return Err(error);
        }
        let text = received.texts.pop().unwrap_or_default();
        if received.stopped && text.text.is_empty() {
            // There is no answer to keep, so the conversation stays as it was.
            return Ok(Answered { note: Some("stopped".into()), stats: received.stats });
        }
        let reason = text.finish_reason.as_deref();
        let note = match reason {
            _ if received.stopped => Some("stopped; the conversation is kept".into()),
            Some(reason) if LENGTH.contains(&reason) => {
                Some("cut: --max-new-tokens N allows more, up to the server's context".into())
            }
            reason => ending(reason),
        };
        self.turns.extend([asked, json!({"role": "assistant", "content": text.text})]);
        Ok(Answered { note, stats: received.stats })
    }
}
