//! A model's chat template: the Jinja program, shipped with its tokenizer, that turns a
//! conversation into text.
//!
//! Rendering follows transformers' `apply_chat_template`, with the same settings, variables and
//! functions. [`jinja`] does the work.

use super::jinja::{self, Jinja};
use anyhow::{anyhow, bail, ensure, Context as _, Result};
use candecode::kit::error::{shown, usage};
use candecode::kit::Tokenizer;
use candecode_engine::chat::{Message, Renderer};
use candecode_formats::{hub, ChatTemplate, WIDENED};
use jiff::civil::{Date, DateTime};
use minijinja::value::Serde;
use minijinja::Value as Data;
use serde_json::{json, Map, Value};
use std::collections::BTreeMap;

/// The name of the built-in template.
const STORY: &str = "story";

/// A story that the user and the model write in turns: the user's line begins a paragraph, and the
/// model finishes it. What a tool returns continues the paragraph.
const STORY_TEMPLATE: &str = r"
{%- for message in messages -%}
    {%- if message.role == 'system' -%}
        {{- raise_exception('a story has no system prompt: begin it with a line of your own') -}}
    {%- endif -%}
    {{- ' ' if message.role == 'tool' -}}
    {{- message.content -}}
    {%- if message.role == 'assistant' and not message.tool_calls -%}
        {%- if message.finish == 'eos' -%}
            {{- eos_token -}}
        {%- elif message.finish == 'stop'
            or (loop.nextitem is defined and loop.nextitem.content) -%}
            {{- '\n' -}}
        {%- endif -%}
    {%- endif -%}
{%- endfor -%}";

/// The variables that every template receives, so flags can't set them.
const GIVEN: [&str; 4] = ["messages", "add_generation_prompt", "tools", "documents"];

/// Returns true if every template receives a variable of this name.
fn is_given(name: &str) -> bool {
    GIVEN.contains(&name) || name.ends_with("_token")
}

/// How to render a conversation: the arguments of transformers' `apply_chat_template`, apart from
/// the messages.
#[derive(Debug, Clone)]
pub struct RenderOptions {
    /// Whether to begin the next answer. True by default.
    pub add_generation_prompt: bool,
    /// Whether to leave the last message open so that the model continues it. Can't be combined
    /// with `add_generation_prompt`.
    pub continue_final_message: bool,
    /// The tools that the model can call, as JSON. Empty: none.
    pub tools: Vec<Value>,
    /// Variables for this rendering only, like vLLM's `chat_template_kwargs`. They override those
    /// of [`Template::set`]. One that the template doesn't use changes nothing.
    pub kwargs: Map<String, Value>,
}

impl Default for RenderOptions {
    fn default() -> Self {
        let (tools, kwargs) = (Vec::new(), Map::new());
        Self { add_generation_prompt: true, continue_final_message: false, tools, kwargs }
    }
}

/// A compiled template and its variables, apart from the messages.
#[derive(Debug)]
pub struct Template {
    jinja: Jinja,
    variables: BTreeMap<String, Data>,
    source: String,
    text: String,
    /// The date that `strftime_now` shows. None: the current date, in UTC.
    pub date: Option<DateTime>,
    stops: Vec<String>,
}

impl Template {
    /// Compiles a template. `source` names its origin in errors; `special` holds the special tokens
    /// it can refer to, such as `eos_token`.
    ///
    /// # Errors
    /// If it isn't a valid Jinja template. The error names the line.
    pub fn new(source: &str, text: &str, special: Map<String, Value>) -> Result<Self> {
        let jinja = Jinja::new(text).map_err(|e| explained(source, &e))?;
        let special = special.into_iter().map(|(name, token)| (name, data(&token)));
        let mut variables: BTreeMap<String, Data> = special.collect();
        variables.insert("tools".into(), ().into());
        variables.insert("documents".into(), ().into());
        let (source, text) = (source.to_string(), text.to_string());
        Ok(Self { jinja, variables, source, text, date: None, stops: Vec::new() })
    }

    /// Returns the template named by `asked` (a file, or `story`), or by default the model's own:
    /// `chat_template.jinja`, the one in `tokenizer_config.json`, or a GGUF file's metadata. The
    /// embedded story models use `story`.
    ///
    /// # Errors
    /// If there is none, or it can't be read or compiled.
    pub fn choose(model: &str, own: ChatTemplate, asked: Option<&str>) -> Result<Self> {
        let story = asked.is_none() && (hub::EMBEDDED_MODELS.contains(&model) || model == WIDENED);
        let special = own.special_tokens;
        if story || asked == Some(STORY) {
            let mut template = Self::new("story", STORY_TEMPLATE, special)?;
            template.stops.push("\n".into());
            return Ok(template);
        }
        if let Some(file) = asked {
            let text = std::fs::read_to_string(file).with_context(|| {
                format!(
                    "--template {file}: could not be read; give a UTF-8 file with a Jinja \
                    template, or \"story\""
                )
            })?;
            return Self::new(&format!("--template {file}"), &text, special);
        }
        let Some((source, text)) = own.source? else {
            bail!(
                "{model} has no chat template: it continues texts, but can't take turns; `cargo \
                    xtask run --model {model} -p TEXT` continues a text, --template {STORY} \
                    writes a story in turns with you, and --template FILE uses your own template"
            )
        };
        Self::new(&source, &text, special)
    }

    /// The template's own text, which shows in which form it expects thoughts and calls of tools.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Whether the template shows tools to the model.
    pub fn shows_tools(&self) -> bool {
        self.jinja.variables().iter().any(|name| name == "tools")
    }

    /// Sets a variable, such as `enable_thinking=false`, parsed by [`setting`].
    ///
    /// # Errors
    /// If the template doesn't use the variable. The error lists those it does use.
    pub fn set(&mut self, text: &str) -> Result<()> {
        let (name, value) = setting(text)?;
        let known = self.check(&name);
        known.map_err(|e| usage(format!("--template-set {text}: {e}")))?;
        self.variables.insert(name, value);
        Ok(())
    }

    /// Checks that a variable can be set: the template uses it, and it isn't one that every
    /// template receives.
    fn check(&self, name: &str) -> Result<()> {
        let used = self.jinja.variables().iter().map(String::as_str);
        let used: Vec<&str> = used.filter(|name| !is_given(name)).collect();
        let known = if used.is_empty() {
            "it uses no variables".to_string()
        } else {
            format!("it uses {}", shown(used.join(", ")))
        };
        ensure!(used.contains(&name), "the chat template doesn't use {}; {known}", shown(name));
        Ok(())
    }

    /// Renders a conversation like transformers' `apply_chat_template(…, tokenize=False)`.
    ///
    /// # Errors
    /// Same as [`Renderer::render`]; also if the options exclude each other, if `kwargs` has a
    /// variable that every template receives, or if the message to continue doesn't appear in the
    /// template's output.
    pub fn apply(&self, messages: &[Message], options: &RenderOptions) -> Result<String> {
        if !options.continue_final_message {
            return self.rendered(messages, options);
        }
        ensure!(
            !options.add_generation_prompt,
            "continue_final_message and add_generation_prompt exclude each other: either continue \
                the last message or begin a new one"
        );
        let Some((last, before)) = messages.split_last() else {
            bail!("continue_final_message: there is no message to continue")
        };
        // As in transformers: a tag marks the message's end, and the text is cut there.
        const TAG: &str = "CONTINUE_FINAL_MESSAGE_TAG ";
        let mut marked = before.to_vec();
        marked.push(Message { content: format!("{}{TAG}", last.content), ..last.clone() });
        let text = self.rendered(&marked, options)?;
        let end = text.rfind(TAG.trim()).filter(|_| text.contains(last.content.trim()));
        let Some(end) = end else {
            bail!(
                "continue_final_message: the chat template ({}) changes or leaves out the last \
                message, so it cannot be continued",
                self.source
            )
        };
        let kept = &text[..end];
        // If the template trims the message, it has also trimmed the tag's space.
        Ok(if text[end..].starts_with(TAG) { kept } else { kept.trim_end() }.to_string())
    }

    fn rendered(&self, messages: &[Message], options: &RenderOptions) -> Result<String> {
        let mut variables = self.variables.clone();
        for (name, value) in &options.kwargs {
            ensure!(!is_given(name), "chat_template_kwargs can't set {}", shown(name));
            variables.insert(name.clone(), data(value));
        }
        if !options.tools.is_empty() {
            variables.insert("tools".into(), options.tools.iter().map(data).collect());
        }
        variables.insert("messages".into(), messages.iter().map(message_data).collect());
        variables.insert("add_generation_prompt".into(), options.add_generation_prompt.into());
        let rendered = self.jinja.render(variables, self.date.unwrap_or_else(now));
        rendered.map_err(|e| explained(&self.source, &e))
    }
}

impl Renderer for Template {
    fn render(&self, messages: &[Message]) -> Result<String> {
        self.apply(messages, &RenderOptions::default())
    }

    fn end_of_turn(&self, tokenizer: &Tokenizer) -> Option<u32> {
        const ANSWER: &str = "An answer.";
        let turn = [Message::new("user", "A question."), Message::new("assistant", ANSWER)];
        let closed = RenderOptions { add_generation_prompt: false, ..RenderOptions::default() };
        let text = self.apply(&turn, &closed).ok()?;
        let (_, behind) = text.rsplit_once(ANSWER)?;
        let first = *tokenizer.encode_rendered(behind.trim_start()).ok()?.first()?;
        tokenizer.is_added(first).then_some(first)
    }

    fn stops(&self) -> &[String] {
        &self.stops
    }
}

/// Converts a message to a template value.
fn message_data(message: &Message) -> Data {
    let mut entries =
        vec![("role", Data::from(message.role)), ("content", Data::from(message.content.as_str()))];
    entries.extend(message.finish.map(|finish| ("finish", data(&json!(finish)))));
    entries.extend(message.more.iter().map(|(name, value)| (name.as_str(), data(value))));
    Data::from_pairs(entries)
}

/// Converts a JSON value to a template value.
fn data(value: &Value) -> Data {
    Data::from(Serde(value))
}

/// Parses `NAME=VALUE`. The value is JSON, or Python's `True`, `False` or `None`. Anything else is
/// taken as text.
///
/// # Errors
/// If there is no `=`.
pub fn setting(text: &str) -> Result<(String, Data)> {
    let (name, value) = text.split_once('=').ok_or_else(|| {
        usage(format!(
            "--template-set {}: expected NAME=VALUE, such as enable_thinking=false",
            shown(text)
        ))
    })?;
    let value = match value {
        "True" => true.into(),
        "False" => false.into(),
        "None" => ().into(),
        _ => serde_json::from_str(value).unwrap_or_else(|_| value.into()),
    };
    Ok((name.to_string(), value))
}

/// Parses a date such as `2026-01-31`.
///
/// # Errors
/// If the text isn't a valid date.
pub fn date(text: &str) -> Result<DateTime> {
    let date: Option<Date> = text.parse().ok();
    date.map(|date| date.at(0, 0, 0, 0)).ok_or_else(|| {
        usage(format!("--template-date {}: expected a day, as 2026-01-31", shown(text)))
    })
}

/// Returns the current time in UTC.
fn now() -> DateTime {
    jiff::tz::Offset::UTC.to_datetime(jiff::Timestamp::now())
}

/// Describes a template error in one line. Control characters are escaped, because the message may
/// quote the template or a client.
fn explained(source: &str, error: &minijinja::Error) -> anyhow::Error {
    let line = error.line().map(|line| format!(", line {line}")).unwrap_or_default();
    anyhow!("the chat template ({source}{line}): {}", shown(jinja::message(error)))
}
