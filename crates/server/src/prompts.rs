//! Encodes a request's prompts as token ids.

use crate::openai::{
    AnswerForm, ApiError, ApiRequest, CallForm, Endpoint, PromptInput, Thoughts, ToolChoice,
};
use candecode::kit::error::{describe, plain};
use candecode::kit::ModelConfig;
use candecode_engine::chat::Message;
use candecode_engine::Engine;
use candecode_templates::{RenderOptions, Template};
use serde_json::json;
use std::sync::Arc;

/// Maximum number of bytes that `echo` repeats in one answer, across all choices.
const MOST_ECHOED: usize = 4 << 20;

/// Encodes prompts for the handlers.
pub struct PromptReader {
    /// The engine. Only its tokenizer is used on this side.
    pub engine: Arc<Engine>,
    /// The chat template, or the reason the model has none.
    pub template: Result<Template, String>,
    /// The model's configuration, with the context length that is served.
    pub config: ModelConfig,
    /// Length of the longest token, in bytes.
    pub longest_token: usize,
    /// Maximum number of positions in one pass. None: a whole prompt.
    pub pass_tokens: Option<usize>,
}

impl PromptReader {
    /// Encodes each prompt. For plain text, the tokenizer adds BOS and similar tokens; for a chat,
    /// the template has already written them.
    ///
    /// # Errors
    /// 400, naming `messages`, an option of the template, `prompt` or `max_tokens`: if the template
    /// or the tokenizer rejects a text, an id isn't in the vocabulary, or a prompt is empty, longer
    /// than the context, or leaves no room for as many tokens as the request asks for.
    pub fn read(&self, request: &ApiRequest) -> Result<Vec<Vec<u32>>, ApiError> {
        let tokenizer = self.engine.tokenizer();
        let param = match request.endpoint {
            Endpoint::Completions => "prompt",
            Endpoint::Chat => "messages",
        };
        let refused = |e: candle_core::Error| ApiError::invalid(param, plain(&e));
        let (vocab, context) = (self.config.vocab_size, self.config.max_position_embeddings);
        let mut all = Vec::new();
        for prompt in &request.prompts {
            let ids = match prompt {
                PromptInput::Ids(ids) => ids.clone(),
                PromptInput::Text(text) => {
                    self.check_length(param, text)?;
                    tokenizer.encode(text).map_err(refused)?
                }
                PromptInput::Messages(messages) => {
                    let text = self.render(request, messages)?;
                    self.check_length(param, &text)?;
                    tokenizer.encode_rendered(&text).map_err(refused)?
                }
            };
            if let Some(id) = ids.iter().find(|id| **id as usize >= vocab) {
                let message = format!("token id {id} is not in the vocabulary of {vocab} tokens");
                return Err(ApiError::invalid(param, message));
            }
            if ids.is_empty() {
                let message = "the prompt is empty; give it at least one token";
                return Err(ApiError::invalid(param, message));
            }
            if ids.len() > context {
                return Err(ApiError::context_exceeded(param, ids.len(), context));
            }
            // The last token of a text needs no place in the context.
            if let Some(asked) =
                request.fields.most_tokens().filter(|asked| *asked > context + 1 - ids.len())
            {
                let param = request.fields.most_tokens_field();
                return Err(ApiError::max_tokens_exceeded(param, asked, ids.len(), context));
            }
            all.push(ids);
        }
        Ok(all)
    }

    /// Renders a chat to text.
    fn render(&self, request: &ApiRequest, messages: &[Message]) -> Result<String, ApiError> {
        let fields = &request.fields;
        let open = fields.continue_final_message;
        let options = RenderOptions {
            add_generation_prompt: fields.add_generation_prompt.unwrap_or(!open),
            continue_final_message: open,
            tools: fields.tools.iter().map(|tool| json!(tool)).collect(),
            kwargs: fields.chat_template_kwargs.clone(),
        };
        let template = self.template.as_ref().map_err(|why| ApiError::invalid("messages", why))?;
        template.apply(messages, &options).map_err(|error| {
            let words = describe(&error);
            let option = ["chat_template_kwargs", "continue_final_message"]
                .into_iter()
                .find(|name| words.starts_with(name));
            ApiError::invalid(option.unwrap_or("messages"), words)
        })
    }

    /// Returns the form of the answers to a request with these prompts: whether there are thoughts,
    /// and how calls are written.
    ///
    /// # Errors
    /// 400 if the model would never see the tools that it can choose from.
    pub fn form(&self, request: &ApiRequest, prompts: &[Vec<u32>]) -> Result<AnswerForm, ApiError> {
        let mut form = AnswerForm::default();
        let (Endpoint::Chat, Ok(template)) = (request.endpoint, &self.template) else {
            return Ok(form);
        };
        let (fields, text) = (&request.fields, template.text());
        form.calls = match &fields.tool_choice {
            Some(ToolChoice::Named { function, .. }) => CallForm::Named(function.name.clone()),
            Some(ToolChoice::Mode(_)) => CallForm::List,
            None if fields.tools.is_empty() => CallForm::None,
            None if !template.shows_tools() => {
                let message = "the chat template doesn't show tools to the model, so it can't \
                               choose; tool_choice required, or by name, is possible";
                return Err(ApiError::unsupported("tools", message));
            }
            None if text.contains("<tool_call>") => CallForm::Tagged,
            None => CallForm::Json,
        };
        form.one_call = form.calls != CallForm::None && fields.parallel_tool_calls == Some(false);
        // A text that has to match a pattern can't have thoughts as well.
        if request.pattern_field.is_none() && text.contains("</think>") {
            let end = prompts.last().map(|ids| &ids[ids.len().saturating_sub(8)..]);
            let end = end.and_then(|ids| self.engine.tokenizer().decode(ids).ok());
            let open = end.is_some_and(|end| end.trim_end().ends_with("<think>"));
            form.thoughts = if open { Thoughts::Open } else { Thoughts::Possible };
        }
        Ok(form)
    }

    /// Rejects a text that, by its length alone, must have more tokens than the context.
    fn check_length(&self, param: &str, text: &str) -> Result<(), ApiError> {
        let context = self.config.max_position_embeddings;
        if text.len() / 16 <= context {
            return Ok(());
        }
        let least = text.len() / self.longest_token.max(1);
        match least <= context {
            true => Ok(()),
            false => Err(ApiError::context_exceeded(param, format!("at least {least}"), context)),
        }
    }

    /// Returns the texts of the prompts for `echo`, or an empty list without it.
    ///
    /// # Errors
    /// 400 if some ids don't decode to text, or there is too much to repeat.
    pub fn echoes(&self, request: &ApiRequest) -> Result<Vec<String>, ApiError> {
        let mut texts = Vec::new();
        for prompt in request.prompts.iter().filter(|_| request.fields.echo) {
            texts.push(match prompt {
                PromptInput::Text(text) => text.clone(),
                PromptInput::Ids(ids) => {
                    let text = self.engine.tokenizer().decode(ids);
                    text.map_err(|error| ApiError::invalid("prompt", plain(&error)))?
                }
                PromptInput::Messages(_) => String::new(),
            });
        }
        let bytes = texts.iter().map(String::len).sum::<usize>() * request.n;
        if bytes > MOST_ECHOED {
            let message = format!(
                "echo would repeat {bytes} bytes, more than {MOST_ECHOED}; lower n, or leave it out"
            );
            return Err(ApiError::invalid("echo", message));
        }
        Ok(texts)
    }
}
