//! A chat: a prompt that grows by one turn at a time, with a KV cache that is reused between turns.
//!
//! On every turn, the template renders the whole conversation again and the tokenizer encodes it
//! again. The new tokens don't necessarily start with the ones in the cache: a template may strip a
//! space or drop a thought, a tokenizer may merge across the boundary, and an answer may have been
//! interrupted. The two are therefore compared, the cache is truncated to their common prefix (day
//! 10), and only the rest is computed (prefix caching in vLLM).

use anyhow::{ensure, Result};
use candecode::day07_greedy::Sequence;
use candecode::day10_kv_cache::{next_token, Cached};
use candecode::kit::{FinishReason, Request, Token, Tokenizer};
use serde_json::{Map, Value};

/// One message of a conversation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message {
    /// `system`, `user`, `assistant` or `tool`.
    pub role: &'static str,
    /// The message text.
    pub content: String,
    /// Why an answer ended. None if it was interrupted. Only a story in turns uses it.
    pub finish: Option<FinishReason>,
    /// What else a template reads, such as `tool_calls`.
    pub more: Map<String, Value>,
}

impl Message {
    /// Creates a message that isn't an answer.
    pub fn new(role: &'static str, content: &str) -> Self {
        Self { role, content: content.to_string(), finish: None, more: Map::new() }
    }
}

/// Turns a conversation into text. The crate `candecode-templates` does so with a model's own
/// template.
pub trait Renderer {
    /// Renders a conversation up to where the next answer begins.
    ///
    /// # Errors
    /// If the template rejects the conversation or fails.
    fn render(&self, messages: &[Message]) -> Result<String>;

    /// Returns the token that is written after an answer, if any. It ends a turn, whatever the
    /// model's configuration says.
    fn end_of_turn(&self, tokenizer: &Tokenizer) -> Option<u32>;

    /// Returns the strings that end an answer, in addition to the stop tokens.
    fn stops(&self) -> &[String];
}

/// A conversation with a model.
pub struct Chat<'a> {
    cached: Cached<'a>,
    tokenizer: &'a Tokenizer,
    template: Box<dyn Renderer>,
    context: usize,
    system: Option<Message>,
    messages: Vec<Message>, // user, assistant, user, assistant, …, without the system prompt
}

/// A user message that fits the context, rendered and tokenized, ready to be answered.
pub struct ChatPrompt {
    /// The tokens of the whole conversation.
    pub ids: Vec<u32>,
    /// Number of turns, of two messages each, dropped to make room.
    pub forgotten_turns: usize,
    messages: Vec<Message>,
}

/// Statistics and result of one turn.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Turn {
    /// Number of tokens in the conversation before the answer.
    pub prompt_tokens: usize,
    /// Number of those tokens that were still in the cache.
    pub reused: usize,
    /// Number of positions the model computed, for prompt and answer.
    pub computed: usize,
    /// Tokens of the answer, including the one that ends it.
    pub answer: Vec<u32>,
    /// Why the answer ended. None if it was interrupted.
    pub finish: Option<FinishReason>,
    /// True if the context filled up before the answer was complete.
    pub full: bool,
}

impl<'a> Chat<'a> {
    /// Starts a chat of at most `context` tokens, which must not exceed the model's context.
    pub fn new(
        cached: Cached<'a>,
        tokenizer: &'a Tokenizer,
        template: Box<dyn Renderer>,
        context: usize,
    ) -> Self {
        Self { cached, tokenizer, template, context, system: None, messages: Vec::new() }
    }

    /// Returns the chat template.
    pub fn template(&self) -> &dyn Renderer {
        &*self.template
    }

    /// Returns the messages so far, without the system prompt.
    pub fn messages(&self) -> &[Message] {
        &self.messages
    }

    /// Forgets all turns but keeps the system prompt.
    pub fn reset(&mut self) {
        self.messages.clear();
    }

    /// Replaces the system prompt and keeps the turns. None removes it.
    ///
    /// # Errors
    /// If the template rejects system prompts.
    pub fn set_system(&mut self, text: Option<&str>) -> Result<()> {
        let system = text.map(|text| Message::new("system", text));
        let mut begun: Vec<Message> = system.iter().cloned().collect();
        begun.push(Message::new("user", "A question."));
        self.template.render(&begun)?;
        self.system = system;
        Ok(())
    }

    /// Returns the conversation with one more user message, leaving room for `answer` tokens or a
    /// quarter of the context, whichever is smaller. If there isn't enough room, drops the oldest
    /// turns until half of the context is free. Dropping many turns at once makes this rare, which
    /// matters because everything after them changes position and has to be recomputed. The chat
    /// itself doesn't change.
    ///
    /// # Errors
    /// If the template rejects the conversation, or the message alone is too long or empty.
    pub fn prompt(&self, line: &str, answer: usize) -> Result<ChatPrompt> {
        let least = line.len() / self.tokenizer.longest_token().max(1);
        ensure!(
            least < self.context,
            "this line is {} bytes long, so at least {least} tokens, and there is room for {}; \
             shorten it",
            line.len(),
            self.context
        );
        let mut messages = self.messages.clone();
        messages.push(Message::new("user", line));
        let mut ids = self.read(&messages)?;
        let room = answer.min(self.context / 4).max(1);
        let mut forgotten_turns = 0;
        if ids.len() + room > self.context {
            while messages.len() > 2 && ids.len() > self.context / 2 {
                messages.drain(..2);
                forgotten_turns += 1;
                ids = self.read(&messages)?;
            }
        }
        ensure!(!ids.is_empty(), "there is nothing to continue from yet; say something");
        ensure!(
            ids.len() < self.context,
            "this line makes a conversation of {} tokens, and there is room for {}; shorten it",
            ids.len(),
            self.context
        );
        Ok(ChatPrompt { ids, forgotten_turns, messages })
    }

    /// Renders and tokenizes a conversation. The template writes the special tokens itself.
    fn read(&self, messages: &[Message]) -> Result<Vec<u32>> {
        let all: Vec<Message> = self.system.iter().chain(messages).cloned().collect();
        Ok(self.tokenizer.encode_rendered(&self.template.render(&all)?)?)
    }

    /// Answers a prompt returned by [`Chat::prompt`], with the stop rules, processors and sampler
    /// of `request`. `on_token` receives every token and returns whether to continue. If it stops
    /// the answer, the text generated so far is kept.
    ///
    /// # Errors
    /// If the model, the sampling or `on_token` fails. The chat is then unchanged.
    pub fn answer(
        &mut self,
        prompt: ChatPrompt,
        request: &mut Request,
        on_token: impl FnMut(&Token) -> Result<bool>,
    ) -> Result<Turn> {
        let ChatPrompt { ids, mut messages, .. } = prompt;
        let (turn, text) = self.generate(ids, request, on_token)?;
        messages.push(Message { finish: turn.finish, ..Message::new("assistant", &text) });
        self.messages = messages;
        Ok(turn)
    }

    fn generate(
        &mut self,
        ids: Vec<u32>,
        request: &mut Request,
        mut on_token: impl FnMut(&Token) -> Result<bool>,
    ) -> Result<(Turn, String)> {
        let prompt_tokens = ids.len();
        let room = self.context - prompt_tokens;
        let full = request.max_new_tokens > room;
        // The sampler's state carries over between answers, so one seed determines the whole chat.
        let sampler = &mut request.sampler;
        let request = Request {
            id: 0,
            prompt: ids,
            max_new_tokens: request.max_new_tokens.min(room),
            eos_token_ids: request.eos_token_ids.clone(),
            stop_strings: request.stop_strings.clone(),
            past_context: request.past_context,
            processors: request.processors.clone(),
            sampler: Box::new(|logits| sampler(logits)),
            log_softmax: request.log_softmax,
            top_logprobs: request.top_logprobs,
            cache_salt: request.cache_salt.clone(),
            report: Default::default(),
        };
        let before = self.cached.computed;
        let mut sequence = Sequence::new(request, self.tokenizer);
        let mut text = String::new();
        let mut reused = 0;
        while sequence.finish.is_none() && sequence.remaining() > 0 {
            let token = next_token(&mut self.cached, &mut sequence)?;
            if sequence.tokens.len() == prompt_tokens + 1 {
                reused = prompt_tokens - (self.cached.computed - before);
            }
            text.push_str(&token.text);
            if !on_token(&token)? {
                break;
            }
        }
        let turn = Turn {
            prompt_tokens,
            reused,
            computed: self.cached.computed - before,
            answer: sequence.tokens[prompt_tokens..].to_vec(),
            finish: sequence.finish,
            full: full && sequence.finish == Some(FinishReason::Length),
        };
        Ok((turn, text))
    }
}
