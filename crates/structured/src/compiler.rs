//! Compiles constraints for one vocabulary.

use crate::format_rail::{reason, CompiledFormat};
use crate::schema_checks::{has_end, has_large_multiples, pattern_bytes};
use anyhow::{anyhow, bail, Result};
use candecode::kit::error::shown;
use candecode::kit::{TextFormat, Tokenizer};
use llguidance::api::TopLevelGrammar;
use llguidance::toktrie::{ApproximateTokEnv, TokEnv, TokRxInfo, TokTrie};
use llguidance::{Matcher, ParserFactory};
use serde_json::{json, Map, Value};
use std::sync::Arc;
use std::thread;

/// Maximum length of a schema or a grammar, in bytes.
const MOST_BYTES: usize = 128 << 10;

/// Maximum length of a schema's patterns, and of a grammar without its schemas. The time to compile
/// them grows with the square of it.
const MOST_PATTERN_BYTES: usize = 8 << 10;

/// Maximum number of states of a compiled format. Each takes 1 to 2 KB.
const MOST_STATES: usize = 50_000;

/// Stack of the thread that compiles, in bytes. Most of it is never touched.
const STACK: usize = 256 << 20;

/// The white space that a JSON text may have between two of its parts: a space, or a line break and
/// its indentation. Without a limit, a model that has nothing to say writes line breaks until its
/// tokens run out.
const WHITE_SPACE: &str = r" |\n {0,16}";

/// What a completion must be.
#[derive(Debug, Clone, PartialEq)]
pub enum Constraint {
    /// JSON that this schema describes.
    JsonSchema(Value),
    /// JSON that this schema describes, on one line, as models write calls of tools.
    CompactJson(Value),
    /// A text of this grammar, in llguidance's variant of Lark.
    Grammar(String),
}

impl Constraint {
    /// Any JSON object.
    pub fn json_object() -> Self {
        Self::JsonSchema(json!({"type": "object"}))
    }

    /// The constraint in a message.
    fn name(&self) -> String {
        match self {
            Self::JsonSchema(schema) | Self::CompactJson(schema) => {
                format!("the JSON schema {}", shown(schema))
            }
            Self::Grammar(grammar) => format!("the grammar {}", shown(grammar)),
        }
    }

    /// Rejects what would take too much time or memory to compile.
    fn check_size(&self) -> Result<()> {
        let (bytes, schemas, rules) = match self {
            Self::JsonSchema(schema) | Self::CompactJson(schema) => {
                (schema.to_string().len(), vec![schema.clone()], 0)
            }
            Self::Grammar(grammar) => {
                let (mut schemas, mut rules) = (Vec::new(), grammar.len());
                for (at, name) in grammar.match_indices("%json") {
                    let text = &grammar[at + name.len()..];
                    let mut values = serde_json::Deserializer::from_str(text).into_iter();
                    if let Some(Ok(schema)) = values.next() {
                        schemas.push(schema);
                        rules = rules.saturating_sub(values.byte_offset());
                    }
                }
                (grammar.len(), schemas, rules)
            }
        };
        let patterns = rules + schemas.iter().map(pattern_bytes).sum::<usize>();
        for (what, bytes, most) in
            [("", bytes, MOST_BYTES), ("patterns and rules of ", patterns, MOST_PATTERN_BYTES)]
        {
            if bytes > most {
                bail!("it has {what}{bytes} bytes, and at most {most} are allowed; make it smaller")
            }
        }
        if schemas.iter().any(has_large_multiples) {
            bail!("multipleOf has too large a number, or too many digits")
        }
        Ok(())
    }

    /// Returns the constraint for llguidance.
    fn grammar(&self) -> Result<TopLevelGrammar> {
        self.check_size()?;
        let (schema, space) = match self {
            Self::JsonSchema(schema) => (schema, json!({"whitespace_pattern": WHITE_SPACE})),
            Self::CompactJson(schema) => (
                schema,
                json!({
                    "whitespace_flexible": false, "item_separator": ", ", "key_separator": ": ",
                }),
            ),
            Self::Grammar(grammar) => return Ok(TopLevelGrammar::from_lark(grammar.clone())),
        };
        let mut fields = match schema {
            Value::Object(fields) => fields.clone(),
            Value::Bool(true) => Map::new(),
            Value::Bool(false) => bail!("it allows nothing"),
            _ => bail!("a schema is an object"),
        };
        if !has_end(schema) {
            bail!("it refers to itself without end, so no text can be complete")
        }
        fields.insert("x-guidance".into(), space);
        Ok(TopLevelGrammar::from_json_schema(Value::Object(fields)))
    }
}

/// Compiles constraints for the texts of one tokenizer.
pub struct Compiler(ParserFactory);

impl Compiler {
    /// Creates a compiler for this tokenizer. `vocab_size` is the model's, which can be larger than
    /// the tokenizer's.
    ///
    /// # Errors
    /// If the tokenizer's tokens have no bytes of their own.
    pub fn new(tokenizer: &Tokenizer, vocab_size: usize) -> Result<Self> {
        tokenizer.check_token_bytes()?;
        let mut words = tokenizer.pieces(vocab_size).to_vec();
        // One more token stands for the end of the text, whatever ids the model ends a text with.
        words.push([&[TokTrie::SPECIAL_TOKEN_MARKER][..], b"<end>"].concat());
        let info = TokRxInfo::new(words.len() as u32, vocab_size as u32);
        // Tokens are never forced: a model may spell a forced text as it likes.
        let env: TokEnv = Arc::new(ApproximateTokEnv::new(TokTrie::from(&info, &words)));
        let mut factory = ParserFactory::new_simple(&env)?;
        factory.quiet();
        let limits = factory.limits_mut();
        limits.verbose_errors = false;
        limits.max_lexer_states = MOST_STATES;
        Ok(Self(factory))
    }

    /// Compiles a constraint.
    ///
    /// # Errors
    /// If it is too large, uses something that isn't supported, or allows no text.
    pub fn compile(&self, constraint: &Constraint) -> Result<Arc<dyn TextFormat>> {
        let name = constraint.name();
        let start = constraint.grammar().and_then(|grammar| self.matcher(grammar));
        let start = start.map_err(|error| anyhow!("{name}: {}", reason(&error)))?;
        let end = self.0.tok_env().tok_trie().eos_token();
        Ok(Arc::new(CompiledFormat { name, start, end }))
    }

    /// Compiles a grammar. llguidance follows rules and references by recursion, so this takes a
    /// thread of its own.
    fn matcher(&self, grammar: TopLevelGrammar) -> Result<Matcher> {
        let compile = || {
            let mut matcher = Matcher::new(self.0.create_parser(grammar));
            matcher.compute_mask().map(|_| matcher)
        };
        thread::scope(|scope| {
            let thread = thread::Builder::new().stack_size(STACK).spawn_scoped(scope, compile)?;
            thread.join().map_err(|_| anyhow!("llguidance failed; make it simpler"))?
        })
    }
}
