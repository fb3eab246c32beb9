//! A model's chat template: the Jinja program, shipped with its tokenizer, that makes one text of a conversation.
//!
//! It is rendered as transformers does (`apply_chat_template`): the same settings, variables and functions. One is left out:
//! `strftime_now`, so that a prompt does not depend on the day; templates that ask whether it is there do without. And the
//! entries of a map are in the order of their keys, which only a template that lists one would show.

use crate::formats::{self, hub, ChatTemplate};
use crate::kit::error::usage;
use crate::kit::Tokenizer;
use anyhow::{anyhow, bail, ensure, Context as _, Result};
use minijinja::syntax::SyntaxConfig;
use minijinja::{Environment, ErrorKind};
use minijinja_contrib::pycompat::unknown_method_callback;
use serde::Serialize;
use serde_json::{json, Map, Value};
use std::path::Path;

/// The name of the template that is built in.
pub const STORY: &str = "story";

/// One text that the reader and the model write in turns: a line begins a paragraph, the model ends it.
const STORY_TEMPLATE: &str = r"
{%- for message in messages -%}
    {%- if message.role == 'system' -%}
        {{- raise_exception('a story has no system prompt: begin it with a line of your own') -}}
    {%- endif -%}
    {{- message.content -}}
    {%- if message.role == 'assistant' -%}
        {%- if message.finish == 'eos' -%}
            {{- eos_token -}}
        {%- elif message.finish == 'stop' or (loop.nextitem is defined and loop.nextitem.content) -%}
            {{- '\n' -}}
        {%- endif -%}
    {%- endif -%}
{%- endfor -%}";

/// What a template may name without being given it by a flag: the rest is told as what it asks for.
const GIVEN: [&str; 9] = [
    "messages",
    "add_generation_prompt",
    "tools",
    "documents",
    "raise_exception",
    "strftime_now",
    "namespace",
    "range",
    "dict",
];

/// One message of a conversation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Message {
    /// `system`, `user` or `assistant`.
    pub role: &'static str,
    /// What was said.
    pub content: String,
    /// Why an answer ended, as [`crate::kit::FinishReason`]'s words; none if it was interrupted. Only [`STORY`] asks for it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub finish: Option<crate::kit::FinishReason>,
}

impl Message {
    /// A message that is no answer.
    pub fn new(role: &'static str, content: &str) -> Self {
        Self { role, content: content.to_string(), finish: None }
    }
}

/// How to render a conversation: the arguments of transformers' `apply_chat_template` besides the messages.
#[derive(Debug, Clone)]
pub struct RenderOptions {
    /// Begin the next answer. True by default.
    pub add_generation_prompt: bool,
    /// Leave the last message open, so that the model continues it. Excludes `add_generation_prompt`.
    pub continue_final_message: bool,
    /// Variables for this rendering only, as vLLM's `chat_template_kwargs`. They go before those of [`Template::set`].
    pub kwargs: Map<String, Value>,
}

impl Default for RenderOptions {
    fn default() -> Self {
        Self { add_generation_prompt: true, continue_final_message: false, kwargs: Map::new() }
    }
}

/// A compiled template, and the variables it gets besides the messages.
#[derive(Debug)]
pub struct Template {
    environment: Environment<'static>,
    variables: Map<String, Value>,
    source: String,
    /// Strings that end an answer, beside the tokens that do.
    pub stops: Vec<String>,
}

impl Template {
    /// Compiles a template. `source` says in errors where it comes from; `special` are the tokens that it may name, as
    /// `eos_token`.
    ///
    /// # Errors
    /// If it is no Jinja template: the line is named.
    pub fn new(source: &str, text: &str, special: Map<String, Value>) -> Result<Self> {
        let mut environment = Environment::new();
        let syntax = SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build();
        environment.set_syntax(syntax.map_err(|e| anyhow!("{e}"))?);
        environment.set_unknown_method_callback(unknown_method_callback);
        environment.add_function("raise_exception", |words: String| -> Result<(), _> {
            Err(minijinja::Error::new(ErrorKind::InvalidOperation, words))
        });
        environment.add_filter("tojson", tojson);
        let compiled = environment.add_template_owned("chat", text.to_string());
        compiled.map_err(|e| explained(source, &e))?;
        let mut variables = special;
        variables.insert("tools".into(), Value::Null);
        variables.insert("documents".into(), Value::Null);
        Ok(Self { environment, variables, source: source.to_string(), stops: Vec::new() })
    }

    /// The template that `asked` says (a file, or [`STORY`]), else the model's own: `chat_template.jinja`, what
    /// `tokenizer_config.json` has, or a GGUF file's metadata. The embedded story models have [`STORY`].
    ///
    /// # Errors
    /// If there is none, or it cannot be read or compiled.
    pub fn of(model: &str, dir: &Path, asked: Option<&str>) -> Result<Self> {
        Self::choose(model, formats::chat_template(dir)?, asked)
    }

    /// As [`Template::of`], of a model whose own template has been read.
    ///
    /// # Errors
    /// As [`Template::of`].
    pub fn choose(model: &str, own: ChatTemplate, asked: Option<&str>) -> Result<Self> {
        let story = asked.is_none() && hub::EMBEDDED_MODELS.contains(&model);
        let special = own.special_tokens;
        if story || asked == Some(STORY) {
            let mut template = Self::new("story", STORY_TEMPLATE, special)?;
            template.stops.push("\n".into());
            return Ok(template);
        }
        if let Some(file) = asked {
            let text = std::fs::read_to_string(file).with_context(|| {
                format!("--template {file}: could not be read as UTF-8 text; give a file with a Jinja template, or \"story\"")
            })?;
            return Self::new(&format!("--template {file}"), &text, special);
        }
        let Some((source, text)) = own.source else {
            bail!(
                "{model} has no chat template: it continues texts, and knows no turns; `cargo xtask run --model {model} -p TEXT` continues one, --template {STORY} writes one in turns with you, --template FILE gives it a template"
            )
        };
        Self::new(&source, &text, special)
    }

    /// Sets a variable, as `enable_thinking=false`, read by [`setting`].
    ///
    /// # Errors
    /// If the template uses no such variable: those that it uses are named.
    pub fn set(&mut self, text: &str) -> Result<()> {
        let (name, value) = setting(text)?;
        let known = self.check(&name);
        known.map_err(|e| usage(format!("--template-set {text}: {e}")))?;
        self.variables.insert(name, value);
        Ok(())
    }

    /// Whether a variable of this name can be set: the template uses it, and it isn't one that every template gets.
    fn check(&self, name: &str) -> Result<()> {
        let template = self.environment.get_template("chat").map_err(|e| anyhow!("{e}"))?;
        let mut used: Vec<String> = template.undeclared_variables(false).into_iter().collect();
        used.retain(|name| !GIVEN.contains(&name.as_str()) && !name.ends_with("_token"));
        used.sort();
        let known = match used.is_empty() {
            true => "it asks for none".to_string(),
            false => format!("it asks for {}", used.join(", ")),
        };
        ensure!(
            used.iter().any(|used| used == name),
            "the chat template asks for no {name}; {known}"
        );
        Ok(())
    }

    /// Renders a conversation, up to where the next answer begins.
    ///
    /// # Errors
    /// If the template refuses it (`raise_exception`) or fails: the line is named.
    pub fn render(&self, messages: &[Message]) -> Result<String> {
        self.apply(messages, &RenderOptions::default())
    }

    /// Renders a conversation as transformers' `apply_chat_template(…, tokenize=False)`.
    ///
    /// # Errors
    /// As [`Template::render`]; also if the options exclude each other, if the template uses no variable of a name in `kwargs`,
    /// or if the message to continue isn't in what the template writes.
    pub fn apply(&self, messages: &[Message], options: &RenderOptions) -> Result<String> {
        if !options.continue_final_message {
            return self.rendered(messages, options);
        }
        ensure!(
            !options.add_generation_prompt,
            "continue_final_message and add_generation_prompt exclude each other: the last message is continued, or a new one is begun"
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
            bail!("continue_final_message: the chat template ({}) changes or leaves out the last message, so it cannot be continued", self.source)
        };
        let kept = &text[..end];
        // A template that trims the message has trimmed the tag's space, too.
        Ok(if text[end..].starts_with(TAG) { kept } else { kept.trim_end() }.to_string())
    }

    fn rendered(&self, messages: &[Message], options: &RenderOptions) -> Result<String> {
        let mut variables = self.variables.clone();
        for (name, value) in &options.kwargs {
            self.check(name).map_err(|e| anyhow!("chat_template_kwargs: {e}"))?;
            variables.insert(name.clone(), value.clone());
        }
        variables.insert("messages".into(), serde_json::to_value(messages)?);
        variables.insert("add_generation_prompt".into(), options.add_generation_prompt.into());
        let template = self.environment.get_template("chat").map_err(|e| anyhow!("{e}"))?;
        let rendered = template.render(minijinja::value::Serde(&variables));
        rendered.map_err(|e| explained(&self.source, &e))
    }

    /// The token that the template writes behind an answer, if it writes one: it ends a turn, whatever the model's
    /// configuration says.
    pub fn end_of_turn(&self, tokenizer: &Tokenizer) -> Option<u32> {
        const ANSWER: &str = "An answer.";
        let turn = [Message::new("user", "A question."), Message::new("assistant", ANSWER)];
        let closed = RenderOptions { add_generation_prompt: false, ..RenderOptions::default() };
        let text = self.apply(&turn, &closed).ok()?;
        let (_, behind) = text.rsplit_once(ANSWER)?;
        let first = *tokenizer.encode_rendered(behind.trim_start()).ok()?.first()?;
        tokenizer.is_added(first).then_some(first)
    }
}

/// Reads `NAME=VALUE`. The value is JSON, or Python's `True`, `False` or `None`; anything else is text.
///
/// # Errors
/// If there is no `=`.
pub fn setting(text: &str) -> Result<(String, Value)> {
    let (name, value) = text.split_once('=').with_context(|| {
        usage(format!("--template-set {text}: expected NAME=VALUE, as enable_thinking=false"))
    })?;
    let value = match value {
        "True" => json!(true),
        "False" => json!(false),
        "None" => Value::Null,
        _ => serde_json::from_str(value).unwrap_or_else(|_| json!(value)),
    };
    Ok((name.to_string(), value))
}

/// An error of minijinja in one line, without its debug report.
fn explained(source: &str, error: &minijinja::Error) -> anyhow::Error {
    let line = error.line().map(|line| format!(", line {line}")).unwrap_or_default();
    let words = error.detail().map_or_else(|| error.kind().to_string(), str::to_string);
    anyhow!("the chat template ({source}{line}): {words}")
}

/// As transformers' filter, which is Python's `json.dumps`: a space after `:` and `,`, and no escapes for HTML.
fn tojson(value: minijinja::Value) -> Result<String, minijinja::Error> {
    struct Python;
    impl serde_json::ser::Formatter for Python {
        fn begin_array_value<W: ?Sized + std::io::Write>(
            &mut self,
            out: &mut W,
            first: bool,
        ) -> std::io::Result<()> {
            out.write_all(if first { b"" } else { b", " })
        }

        fn begin_object_key<W: ?Sized + std::io::Write>(
            &mut self,
            out: &mut W,
            first: bool,
        ) -> std::io::Result<()> {
            out.write_all(if first { b"" } else { b", " })
        }

        fn begin_object_value<W: ?Sized + std::io::Write>(
            &mut self,
            out: &mut W,
        ) -> std::io::Result<()> {
            out.write_all(b": ")
        }
    }
    let mut bytes = Vec::new();
    let mut serializer = serde_json::Serializer::with_formatter(&mut bytes, Python);
    let failed = |e: String| minijinja::Error::new(ErrorKind::BadSerialization, e);
    value.serialize(&mut serializer).map_err(|e| failed(e.to_string()))?;
    String::from_utf8(bytes).map_err(|e| failed(e.to_string()))
}
