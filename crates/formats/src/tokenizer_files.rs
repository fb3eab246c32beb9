//! The tokens that a folder declares outside `tokenizer.json`: in `tokenizer_config.json` and, in
//! older folders, in `special_tokens_map.json` and `added_tokens.json`. They are read as in
//! transformers (`PreTrainedTokenizerBase._from_pretrained` and `TokenizersBackend.__init__`).

use crate::regular_file::read_json;
use anyhow::{bail, ensure, Context as _, Result};
use candecode_kit::error::shown;
use serde_json::{Map, Value};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::Path;
use tokenizers::AddedToken;

const CONFIG: &str = "tokenizer_config.json";

/// The special tokens declared in a folder's files.
pub struct TokenizerFiles {
    /// `tokenizer_config.json`, merged with `special_tokens_map.json` in folders where that file
    /// applies.
    pub config: Map<String, Value>,
    /// The declared tokens, by id.
    declared: BTreeMap<u64, AddedToken>,
    /// True if the ids come from `added_tokens.json`. Tokens in `tokenizer.json` then override
    /// those with the same id.
    older: bool,
}

/// The named tokens that come first, in transformers' order (`SPECIAL_TOKENS_ATTRIBUTES`).
const NAMES: [&str; 7] =
    ["bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token"];

impl TokenizerFiles {
    /// Reads a folder's files. Any of them may be missing.
    ///
    /// # Errors
    /// If a file can't be read or is invalid. The message names the file and the key.
    pub fn read(dir: &Path) -> Result<Self> {
        let mut config = table(dir, CONFIG)?;
        if let Some(declared) = config.get("added_tokens_decoder").filter(|d| !d.is_null()) {
            let declared = declared_by_id(declared);
            let declared = declared.with_context(|| dir.join(CONFIG).display().to_string())?;
            return Ok(Self { config, declared, older: false });
        }
        // In folders from older versions, these files apply only if `tokenizer_config.json` has no
        // such list.
        config.extend(table(dir, "special_tokens_map.json")?);
        let mut files = Self { config, declared: BTreeMap::new(), older: true };
        let special: HashSet<String> =
            files.special()?.into_iter().map(|token| token.content).collect();
        for (content, id) in table(dir, "added_tokens.json")? {
            let id = id.as_u64().with_context(|| {
                format!("{}: not a table of ids", dir.join("added_tokens.json").display())
            })?;
            let is_special = special.contains(&content);
            files.declared.insert(id, AddedToken::from(content, is_special));
        }
        Ok(files)
    }

    /// Returns the tokens by name (`bos_token`), for use in a chat template.
    pub fn named(&self) -> impl Iterator<Item = (&String, &str)> {
        let tokens = self.config.iter().filter(|(key, _)| key.ends_with("_token"));
        tokens.filter_map(|(key, value)| Some((key, content(value)?)))
    }

    /// Returns every token that the tokenizer must contain, in the order in which transformers adds
    /// them: those declared by id, the named ones, then the additional ones. `known` are the tokens
    /// that `tokenizer.json` adds; tokens with the same text and properties as one of these are
    /// left out.
    ///
    /// Declared ids are ignored, as in transformers: a token missing from the vocabulary gets the
    /// next free id.
    ///
    /// # Errors
    /// If a declared token is invalid.
    pub fn tokens(&self, known: &HashMap<u32, AddedToken>) -> Result<Vec<AddedToken>> {
        let properties =
            |t: &AddedToken| (t.single_word, t.lstrip, t.rstrip, t.normalized, t.special);
        let by_text: HashMap<&str, &AddedToken> =
            known.values().map(|token| (token.content.as_str(), token)).collect();
        let is_known = |token: &AddedToken| {
            let same = by_text.get(token.content.as_str());
            same.is_some_and(|same| properties(same) == properties(token))
        };
        let replaced =
            |id: &u64| self.older && u32::try_from(*id).is_ok_and(|id| known.contains_key(&id));
        let declared = self.declared.iter().filter(|(id, token)| !replaced(id) && !is_known(token));
        let mut tokens: Vec<AddedToken> = declared.map(|(_, token)| token.clone()).collect();
        let mut there: HashSet<String> = tokens.iter().map(|token| token.content.clone()).collect();
        there.extend(by_text.keys().map(|text| text.to_string()));
        for token in self.special()? {
            if there.insert(token.content.clone()) {
                tokens.push(token);
            }
        }
        let names: HashSet<&str> = self.named().map(|(_, text)| text).collect();
        for token in &mut tokens {
            token.special |= names.contains(token.content.as_str());
        }
        tokens.retain(|token| !token.content.is_empty());
        Ok(tokens)
    }

    /// Returns the named special tokens, then the additional ones.
    fn special(&self) -> Result<Vec<AddedToken>> {
        let first = NAMES.iter().filter_map(|name| self.config.get_key_value(*name));
        let others = self
            .config
            .iter()
            .filter(|(key, _)| key.ends_with("_token") && !NAMES.contains(&key.as_str()));
        let mut found = Vec::new();
        for (key, value) in first.chain(others) {
            // Flags such as add_bos_token have the same suffix.
            if value.is_string() || value.is_object() {
                let token = added(value, true).with_context(|| format!("{CONFIG}: {}", shown(key)));
                found.push(token?);
            }
        }
        let list = |key: &str| self.config.get(key).filter(|list| !is_empty(list));
        let list = list("extra_special_tokens").or(list("additional_special_tokens"));
        let more: Vec<&Value> = match list {
            None => vec![],
            Some(Value::Array(list)) => list.iter().collect(),
            Some(Value::Object(names)) => names.values().collect(),
            Some(other) => bail!("{CONFIG}: the additional special tokens are {}", shown(other)),
        };
        for value in more {
            let token = added(value, true).with_context(|| format!("{CONFIG}: a special token"));
            found.push(token?);
        }
        Ok(found)
    }

    /// Rejects settings under which transformers encodes or decodes text differently.
    ///
    /// # Errors
    /// If such a setting is present. The message names it.
    pub fn check(&self, dir: &Path) -> Result<()> {
        let is = |key: &str| self.config.get(key).and_then(Value::as_bool) == Some(true);
        let file = dir.join(CONFIG);
        ensure!(
            !is("split_special_tokens"),
            "{}: split_special_tokens is true; candecode never splits special tokens that appear \
                in a text",
            file.display()
        );
        // transformers ignores the first flag for BPE tokenizers unless the second one is also set.
        const CLEAN: &str = "clean_up_tokenization_spaces";
        const FORCED: &str =
            "clean_up_tokenization_spaces_for_bpe_even_though_it_will_corrupt_output";
        if !is(CLEAN) {
            return Ok(());
        }
        let tokenizer = read_json(&dir.join("tokenizer.json"))?.unwrap_or_default();
        ensure!(
            !is(FORCED) && tokenizer["model"]["type"] == "BPE",
            "{}: {CLEAN} is true; candecode shows decoded text unchanged",
            file.display()
        );
        Ok(())
    }
}

/// Reads a JSON file that holds a table. Returns an empty table if the file doesn't exist.
fn table(dir: &Path, file: &str) -> Result<Map<String, Value>> {
    let path = dir.join(file);
    match read_json(&path)? {
        None | Some(Value::Null) => Ok(Map::new()),
        Some(Value::Object(table)) => Ok(table),
        Some(_) => bail!("{}: expected a JSON object", path.display()),
    }
}

fn declared_by_id(declared: &Value) -> Result<BTreeMap<u64, AddedToken>> {
    let table = declared.as_object().context("added_tokens_decoder is not a table")?;
    let mut by_id = BTreeMap::new();
    for (id, token) in table {
        let what = || format!("added_tokens_decoder, token {}", shown(id));
        let number: u64 = id.trim().parse().with_context(what)?;
        by_id.insert(number, added(token, false).with_context(what)?);
    }
    Ok(by_id)
}

/// Parses a token: either plain text, which makes it special, or a table with its properties.
/// `special` is the default for that property.
fn added(value: &Value, special: bool) -> Result<AddedToken> {
    let content = content(value).with_context(|| {
        format!("expected a token's text or a table with its content, found {}", shown(value))
    })?;
    if value.is_string() {
        return Ok(AddedToken::from(content, true));
    }
    let flag = |key: &str, default: bool| value[key].as_bool().unwrap_or(default);
    let special = flag("special", special);
    Ok(AddedToken::from(content, special)
        .single_word(flag("single_word", false))
        .lstrip(flag("lstrip", false))
        .rstrip(flag("rstrip", false))
        .normalized(flag("normalized", !special)))
}

/// Returns a token's text: the string itself, or a table's `content`.
fn content(value: &Value) -> Option<&str> {
    value.as_str().or_else(|| value.get("content")?.as_str())
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Array(list) => list.is_empty(),
        Value::Object(table) => table.is_empty(),
        _ => false,
    }
}
