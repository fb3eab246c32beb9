//! A chat: a prompt that grows by a turn at a time, and a cache that is kept from one turn to the next.
//!
//! At every turn the template renders the whole conversation anew, and the tokenizer reads it anew. Nothing says that the new
//! tokens begin with those that the cache holds: a template may strip a space or leave a thought out, a tokenizer may merge
//! across the border, an answer may have been stopped. So the two are compared; what they have in common at the front is
//! kept, the cache is truncated behind it (day 10), and the rest is computed (vLLM: prefix caching).

use crate::day10_kv_cache::generate_cached;
use crate::engine::chat_template::{Message, Template};
use crate::kit::{named, Cache, FinishReason, GenerationOptions, LogitsProcessor};
use crate::kit::{Model, ModelConfig, Step, Token, Tokenizer};
use anyhow::{ensure, Result};
use candle_core::{Device, Tensor};
use std::cell::Cell;

/// A conversation with a model.
pub struct Chat<'a> {
    model: Counted<'a>,
    tokenizer: &'a Tokenizer,
    template: Template,
    cache: Box<dyn Cache + 'a>,
    held: Vec<u32>, // the tokens whose keys and values the cache holds
    context: usize,
    system: Option<Message>,
    turns: Vec<Message>, // user, assistant, user, assistant, …
}

/// A line that fits, rendered and read, before its answer.
pub struct Prompt {
    /// The tokens of the whole conversation.
    pub ids: Vec<u32>,
    /// Turns that had to be forgotten for it.
    pub forgotten: usize,
    turns: Vec<Message>,
}

/// What a turn came to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Turn {
    /// TokenIter of the conversation before the answer.
    pub prompt: usize,
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
    /// A chat that begins; `context` is how many tokens it may come to hold, at most the model's context.
    pub fn new(
        model: &'a dyn Model,
        tokenizer: &'a Tokenizer,
        template: Template,
        cache: Box<dyn Cache + 'a>,
        context: usize,
    ) -> Self {
        let model = Counted { model, positions: Cell::new(0) };
        let (held, turns) = (Vec::new(), Vec::new());
        Self { model, tokenizer, template, cache, held, context, system: None, turns }
    }

    /// The template.
    pub fn template(&self) -> &Template {
        &self.template
    }

    /// What was said so far, system prompt left out.
    pub fn turns(&self) -> &[Message] {
        &self.turns
    }

    /// Forgets all turns; the system prompt stays.
    pub fn reset(&mut self) {
        self.turns.clear();
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

    /// The conversation with one more line: it leaves room for an answer of `answer` tokens, or for a quarter of the context.
    /// Where there is none the oldest turns are forgotten, until half of the context is free: seldom and many, for the rest
    /// moves, and is computed anew. The chat itself stays as it was.
    ///
    /// # Errors
    /// If the template refuses it, or the line alone is too long, or empty.
    pub fn prompt(&self, line: &str, answer: usize) -> Result<Prompt> {
        let mut turns = self.turns.clone();
        turns.push(Message::new("user", line));
        let mut ids = self.read(&turns)?;
        let room = answer.min(self.context / 4).max(1);
        let mut forgotten = 0;
        if ids.len() + room > self.context {
            while turns.len() > 2 && ids.len() > self.context / 2 {
                turns.drain(..2);
                forgotten += 1;
                ids = self.read(&turns)?;
            }
        }
        ensure!(!ids.is_empty(), "there is nothing to go on from yet; say something");
        ensure!(
            ids.len() < self.context,
            "this line makes a conversation of {} tokens, and there is room for {}; shorten it",
            ids.len(),
            self.context
        );
        Ok(Prompt { ids, forgotten, turns })
    }

    /// The tokens of a conversation; the template writes the special ones itself.
    fn read(&self, turns: &[Message]) -> Result<Vec<u32>> {
        let all: Vec<Message> = self.system.iter().chain(turns).cloned().collect();
        Ok(self.tokenizer.encode_rendered(&self.template.render(&all)?)?)
    }

    /// Answers a prompt of [`Chat::prompt`]. `on_token` sees every token, and says whether to go on; what was said stays.
    ///
    /// # Errors
    /// If the model, the sampling or `on_token` fails; the chat is then as before the line.
    pub fn answer(
        &mut self,
        prompt: Prompt,
        options: &mut GenerationOptions,
        on_token: impl FnMut(&Token) -> Result<bool>,
    ) -> Result<Turn> {
        let Prompt { ids, mut turns, .. } = prompt;
        match self.generate(&ids, options, on_token) {
            Ok((turn, text)) => {
                turns.push(Message { role: "assistant", content: text, finish: turn.finish });
                self.turns = turns;
                Ok(turn)
            }
            Err(error) => {
                self.held.clear();
                self.cache.truncate(0)?;
                Err(error)
            }
        }
    }

    fn generate(
        &mut self,
        ids: &[u32],
        options: &mut GenerationOptions,
        mut on_token: impl FnMut(&Token) -> Result<bool>,
    ) -> Result<(Turn, String)> {
        // The last token is always computed: its logits choose the first new one.
        let same = self.held.iter().zip(ids).take_while(|(held, id)| held == id).count();
        let reused = same.min(ids.len() - 1);
        self.cache.truncate(reused)?;
        let before = self.model.positions.get();
        let room = self.context - ids.len();
        let full = options.max_new_tokens > room;
        let (mut tokens, mut text, mut finish) = (ids.to_vec(), String::new(), None);
        let options = borrowed(options, room);
        for token in generate_cached(&self.model, self.tokenizer, ids, options, &mut self.cache)? {
            let token = token?;
            tokens.push(token.id);
            text.push_str(&token.text);
            finish = token.finish;
            if !on_token(&token)? {
                break;
            }
        }
        let answer = tokens[ids.len()..].to_vec();
        tokens.truncate(self.cache.len());
        self.held = tokens;
        let turn = Turn {
            prompt: ids.len(),
            reused,
            computed: self.model.positions.get() - before,
            answer,
            finish,
            full: full && finish == Some(FinishReason::Length),
        };
        Ok((turn, text))
    }
}

/// The same options for one answer: what they choose with goes on from answer to answer, so one seed gives one chat.
fn borrowed<'o>(options: &'o mut GenerationOptions, room: usize) -> GenerationOptions<'o> {
    let GenerationOptions { processors, choose, .. } = options;
    GenerationOptions {
        max_new_tokens: options.max_new_tokens.min(room),
        eos_token_ids: options.eos_token_ids.clone(),
        stop_strings: options.stop_strings.clone(),
        stride: options.stride,
        processors: processors.iter().map(|processor| lent(&**processor)).collect(),
        choose: Box::new(move |row, logits| choose(row, logits)),
    }
}

fn lent<'o>(processor: &'o (dyn LogitsProcessor + 'o)) -> Box<dyn LogitsProcessor + 'o> {
    Box::new(named(processor.name(), move |cx, logits| processor.process(cx, logits)))
}

/// A model that counts the positions it computes.
struct Counted<'a> {
    model: &'a dyn Model,
    positions: Cell<usize>,
}

impl Model for Counted<'_> {
    fn config(&self) -> &ModelConfig {
        self.model.config()
    }

    fn device(&self) -> &Device {
        self.model.device()
    }

    fn forward(&self, step: &Step, cache: &mut dyn Cache) -> candle_core::Result<Tensor> {
        self.positions.set(self.positions.get() + step.ids.elem_count());
        self.model.forward(step, cache)
    }
}
