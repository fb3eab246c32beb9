//! `tokenizer_config.json`: the names of special tokens, a chat template, and the tokens that
//! `tokenizer.json` must have.

use crate::regular_file::read_json;
use anyhow::{bail, ensure, Result};
use candecode_kit::error::quoted;
use candecode_kit::Tokenizer;
use serde_json::{Map, Value};
use std::collections::HashSet;
use std::path::{Path, PathBuf};

/// The name of the file.
pub const NAME: &str = "tokenizer_config.json";

/// A folder's `tokenizer_config.json`. Without one, it's empty.
pub struct TokenizerConfig {
    path: PathBuf,
    fields: Map<String, Value>,
}

impl TokenizerConfig {
    /// Reads a folder's file, which may be missing.
    ///
    /// # Errors
    /// If the file can't be read, or isn't a JSON object.
    pub fn read(dir: &Path) -> Result<Self> {
        let path = dir.join(NAME);
        let fields = match read_json(&path)? {
            None => Map::new(),
            Some(Value::Object(fields)) => fields,
            Some(_) => bail!("{}: expected a JSON object", path.display()),
        };
        Ok(Self { path, fields })
    }

    /// Returns the chat template, or null.
    pub fn chat_template(&self) -> &Value {
        self.fields.get("chat_template").unwrap_or(&Value::Null)
    }

    /// Returns the special tokens by name (`bos_token`), for use in a chat template.
    pub fn special_tokens(&self) -> Map<String, Value> {
        let named = self.fields.iter().filter(|(name, _)| name.ends_with("_token"));
        // Flags such as add_bos_token have the same suffix.
        named.filter_map(|(name, token)| Some((name.clone(), content(token)?.into()))).collect()
    }

    /// Checks that the tokenizer has every token that is declared here. transformers would add the
    /// others.
    ///
    /// # Errors
    /// If one is missing. The message names it.
    pub fn check(&self, tokenizer: &Tokenizer) -> Result<()> {
        let added = tokenizer.added().values().map(|token| token.content.as_str());
        let added: HashSet<&str> = added.collect();
        let declared = self.fields.get("added_tokens_decoder").and_then(Value::as_object);
        for token in declared.into_iter().flat_map(Map::values).filter_map(content) {
            ensure!(
                added.contains(token),
                "{}: the token {} isn't in tokenizer.json; save the tokenizer again with \
                 transformers, whose save_pretrained writes it there",
                self.path.display(),
                quoted(token)
            );
        }
        Ok(())
    }
}

/// Returns a token's text: the string itself, or a table's `content`.
fn content(token: &Value) -> Option<&str> {
    token.as_str().or_else(|| token.get("content")?.as_str())
}
