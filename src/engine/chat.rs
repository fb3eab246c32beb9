//! A chat: a prompt that grows by a turn at a time, and a cache that is kept from one turn to the
//! next.
//!
//! At every turn the template renders the whole conversation anew, and the tokenizer reads it anew.
//! Nothing says that the new tokens begin with those that the cache holds: a template may strip a
//! space or leave a thought out, a tokenizer may merge across the border, an answer may have been
//! stopped. So the two are compared; what they have in common at the front is kept, the cache is
//! truncated behind it (day 10), and the rest is computed (vLLM: prefix caching).

use crate::day07_greedy::Sequence;
use crate::day10_kv_cache::{next_token, Cached};
use crate::engine::chat_template::{Message, Template};
use crate::kit::{FinishReason, Request, Token, Tokenizer};
use anyhow::{ensure, Result};

/// A conversation with a model.
pub struct Chat<'a> {
    cached: Cached<'a>,
    tokenizer: &'a Tokenizer,
    template: Template,
    context: usize,
    system: Option<Message>,
    messages: Vec<Message>, // user, assistant, user, assistant, …: without the system prompt
}

/// A line that fits, rendered and read, before its answer.
pub struct ChatPrompt {
    /// The tokens of the whole conversation.
    pub ids: Vec<u32>,
    /// Turns, of two messages each, that had to be forgotten for it.
    pub forgotten_turns: usize,
    messages: Vec<Message>,
}

/// What a turn came to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Turn {
    /// Tokens of the conversation before the answer.
    pub prompt_tokens: usize,
    /// How many of them the cache still held.
    pub reused: usize,
    /// Positions that the model computed, for prompt and answer.
    pub computed: usize,
    /// The tokens of the answer, the one that ends it included.
    pub answer: Vec<u32>,
    /// Why it ended; none if it was stopped.
    pub finish: Option<FinishReason>,
    /// The context ended before the answer did.
    pub full: bool,
}

impl<'a> Chat<'a> {
    /// A chat that begins; `context` is how many tokens it may come to hold, at most the model's
    /// context.
    pub fn new(
        cached: Cached<'a>,
        tokenizer: &'a Tokenizer,
        template: Template,
        context: usize,
    ) -> Self {
        Self { cached, tokenizer, template, context, system: None, messages: Vec::new() }
    }

    /// The template.
    pub fn template(&self) -> &Template {
        &self.template
    }

    /// What was said so far, system prompt left out.
    pub fn messages(&self) -> &[Message] {
        &self.messages
    }

    /// Forgets all turns; the system prompt stays.
    pub fn reset(&mut self) {
        self.messages.clear();
    }

    /// Replaces the system prompt; the turns stay. None: there is none.
    ///
    /// # Errors
    /// If the template refuses one.
    pub fn set_system(&mut self, text: Option<&str>) -> Result<()> {
        let system = text.map(|text| Message::new("system", text));
        let mut begun: Vec<Message> = system.iter().cloned().collect();
        begun.push(Message::new("user", "A question."));
        self.template.render(&begun)?;
        self.system = system;
        Ok(())
    }

    /// The conversation with one more line: it leaves room for an answer of `answer` tokens, or for
    /// a quarter of the context. Where there is none the oldest turns are forgotten, until half of
    /// the context is free: seldom and many, for the rest moves, and is computed anew. The chat
    /// itself stays as it was.
    ///
    /// # Errors
    /// If the template refuses it, or the line alone is too long, or empty.
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
        ensure!(!ids.is_empty(), "there is nothing to go on from yet; say something");
        ensure!(
            ids.len() < self.context,
            "this line makes a conversation of {} tokens, and there is room for {}; shorten it",
            ids.len(),
            self.context
        );
        Ok(ChatPrompt { ids, forgotten_turns, messages })
    }

    /// The tokens of a conversation; the template writes the special ones itself.
    fn read(&self, messages: &[Message]) -> Result<Vec<u32>> {
        let all: Vec<Message> = self.system.iter().chain(messages).cloned().collect();
        Ok(self.tokenizer.encode_rendered(&self.template.render(&all)?)?)
    }

    /// Answers a prompt of [`Chat::prompt`], with the stop rules, processors and sampler of
    /// `request`. `on_token` sees every token, and says whether to go on; the text so far stays.
    ///
    /// # Errors
    /// If the model, the sampling or `on_token` fails; the chat is then as before the line.
    pub fn answer(
        &mut self,
        prompt: ChatPrompt,
        request: &mut Request,
        on_token: impl FnMut(&Token) -> Result<bool>,
    ) -> Result<Turn> {
        let ChatPrompt { ids, mut messages, .. } = prompt;
        let (turn, text) = self.generate(ids, request, on_token)?;
        messages.push(Message { role: "assistant", content: text, finish: turn.finish });
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
        // Goes on from answer to answer: one seed gives one chat.
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
