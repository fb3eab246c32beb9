//! The tokens that a folder declares outside `tokenizer.json`: in `tokenizer_config.json` and, in
//! older folders, in `special_tokens_map.json` and `added_tokens.json`. They are read as in
//! transformers (`PreTrainedTokenizerBase._from_pretrained` and `TokenizersBackend.__init__`).

use crate::regular_file::read_json;
use anyhow::{bail, ensure, Context as _, Result};
use candecode_kit::error::shown;
use candecode_kit::Tokenizer;
use serde_json::{Map, Value};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::Path;
use tokenizers::AddedToken;

const CONFIG: &str = "tokenizer_config.json";

/// The special tokens declared in a folder's files.
pub struct TokenizerFiles {
    /// The path of `tokenizer_config.json`, for messages.
    file: String,
    class: Class,
    /// `tokenizer_config.json`, merged with `special_tokens_map.json` in folders where that file
    /// applies.
    pub config: Map<String, Value>,
    /// The declared tokens, by id.
    declared: BTreeMap<u64, AddedToken>,
    /// True if the ids come from `added_tokens.json`. Tokens in `tokenizer.json` then override
    /// those with the same id.
    older: bool,
}

/// The tokenizer's class in transformers. All but `Other` build a tokenizer of their own from the
/// vocabulary and the merges, with these settings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Class {
    Gpt2,
    Llama,
    Qwen2,
    /// `PreTrainedTokenizerFast` and all others: `tokenizer.json` as it is.
    Other,
}

impl Class {
    /// Chooses as `AutoTokenizer.from_pretrained` does.
    fn of(dir: &Path, config: &Map<String, Value>) -> Result<Self> {
        let model = read_json(&dir.join("config.json"))?.unwrap_or_default();
        let named = config.get("tokenizer_class").and_then(Value::as_str);
        let named = named.or(model["tokenizer_class"].as_str());
        Ok(match (model["model_type"].as_str(), named.map(|name| name.trim_end_matches("Fast"))) {
            (Some("qwen2"), _) | (_, Some("Qwen2Tokenizer")) | (Some("qwen3"), None) => Self::Qwen2,
            (_, Some("GPT2Tokenizer")) | (Some("gpt2"), None) => Self::Gpt2,
            (_, Some("LlamaTokenizer")) => Self::Llama,
            _ => Self::Other,
        })
    }

    /// Adds the names that mean `<|endoftext|>` in this class unless a file says otherwise.
    fn add_defaults(self, config: &mut Map<String, Value>) {
        let names = match self {
            Self::Gpt2 => ["bos_token", "eos_token", "unk_token"],
            Self::Qwen2 => ["eos_token", "unk_token", "pad_token"],
            Self::Llama | Self::Other => return,
        };
        for name in names {
            config.entry(name).or_insert("<|endoftext|>".into());
        }
    }
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
        let (file, class) = (dir.join(CONFIG).display().to_string(), Class::of(dir, &config)?);
        if let Some(declared) = config.get("added_tokens_decoder").filter(|d| !d.is_null()) {
            let declared = declared_by_id(declared);
            let declared = declared.with_context(|| file.clone())?;
            class.add_defaults(&mut config);
            return Ok(Self { file, class, config, declared, older: false });
        }
        // In folders from older versions, these files apply only if `tokenizer_config.json` has no
        // such list.
        for (key, value) in table(dir, "special_tokens_map.json")? {
            match (config.get_mut(&key), value) {
                // Both files can list tokens; the lists are joined.
                (Some(Value::Array(list)), Value::Array(more)) if key == "extra_special_tokens" => {
                    list.extend(more);
                }
                (_, value) => drop(config.insert(key, value)),
            }
        }
        class.add_defaults(&mut config);
        let mut files = Self { file, class, config, declared: BTreeMap::new(), older: true };
        let special = files.named_tokens()?.into_iter().chain(files.listed()?);
        let special: HashSet<String> = special.map(|token| token.content).collect();
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
        self.by_name().filter_map(|(key, value)| Some((key, content(value)?)))
    }

    /// Returns the entries that name a token, in transformers' order.
    fn by_name(&self) -> impl Iterator<Item = (&String, &Value)> {
        let first = NAMES.iter().filter_map(|name| self.config.get_key_value(*name));
        let is_other = |key: &str| key.ends_with("_token") && !NAMES.contains(&key);
        let others = self.config.iter().filter(move |(key, _)| is_other(key));
        let tables = ["extra_special_tokens", "model_specific_special_tokens"];
        let tables = tables.into_iter().filter_map(|key| self.config.get(key)?.as_object());
        // Flags such as add_bos_token have the same suffix.
        let is_token = |value: &Value| value.is_string() || value.is_object();
        first.chain(others).chain(tables.flatten()).filter(move |(_, value)| is_token(value))
    }

    /// Returns every token that must be added to a folder's tokenizer, in the order in which
    /// transformers adds them: those declared by id, the named ones, then the additional ones.
    /// Tokens that the tokenizer has with the same properties are left out.
    ///
    /// Declared ids are ignored, as in transformers: a token missing from the vocabulary gets the
    /// next free id.
    ///
    /// # Errors
    /// If a declared token is invalid.
    pub fn tokens(&self, tokenizer: &Tokenizer) -> Result<Vec<AddedToken>> {
        let known = tokenizer.added();
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
        let declared = self.declared.iter().filter(|(id, _)| !replaced(id));
        let mut tokens: Vec<AddedToken> = declared.map(|(_, token)| token.clone()).collect();
        let mut there: HashSet<String> = tokens.iter().map(|token| token.content.clone()).collect();
        let (named, listed) = (self.named_tokens()?, self.listed()?);
        let class = self.class(tokenizer);
        let text = |token: &AddedToken| token.content.clone();
        let mut special: HashSet<String> = named.iter().map(text).collect();
        if class == Class::Qwen2 {
            special.extend(listed.iter().map(text));
        }
        for token in named.into_iter().chain(listed) {
            if there.insert(token.content.clone()) {
                match by_text.get(token.content.as_str()) {
                    None => tokens.push(token),
                    // Naming a token makes it special. The exception: the class uses
                    // tokenizer.json as it is, and tokenizer_config.json declares tokens by id.
                    Some(known) if self.older || class != Class::Other => {
                        tokens.push((*known).clone());
                    }
                    Some(_) => {}
                }
            }
        }
        for token in &mut tokens {
            token.special |= special.contains(&token.content);
        }
        tokens.retain(|token| !token.content.is_empty() && !is_known(token));
        Ok(tokens)
    }

    /// Returns the named special tokens.
    fn named_tokens(&self) -> Result<Vec<AddedToken>> {
        let token = |(key, value): (&String, &Value)| {
            added(value, true).with_context(|| format!("{CONFIG}: {}", shown(key)))
        };
        self.by_name().map(token).collect()
    }

    /// Returns the additional special tokens, which have no names.
    fn listed(&self) -> Result<Vec<AddedToken>> {
        let list = |key: &str| self.config.get(key).filter(|list| !is_empty(list));
        match list("extra_special_tokens").or(list("additional_special_tokens")) {
            None | Some(Value::Object(_)) => Ok(vec![]),
            Some(Value::Array(list)) => list
                .iter()
                .map(|value| {
                    added(value, true).with_context(|| format!("{CONFIG}: a special token"))
                })
                .collect(),
            Some(other) => bail!("{CONFIG}: the additional special tokens are {}", shown(other)),
        }
    }

    /// Returns the class that transformers uses for this tokenizer. It takes `LlamaTokenizer` for a
    /// mistake if the tokens are bytes.
    fn class(&self, tokenizer: &Tokenizer) -> Class {
        let mistaken = self.class == Class::Llama && tokenizer.is_byte_level();
        if mistaken {
            Class::Other
        } else {
            self.class
        }
    }

    /// Rejects settings under which transformers encodes or decodes text differently.
    ///
    /// # Errors
    /// If such a setting is present. The message names it.
    pub fn check(&self, tokenizer: &Tokenizer) -> Result<()> {
        let flag = |key: &str| self.config.get(key).and_then(Value::as_bool);
        let file = &self.file;
        ensure!(
            flag("split_special_tokens") != Some(true),
            "{file}: split_special_tokens is true; candecode never splits special tokens that \
                appear in a text"
        );
        if let Some(asked) = flag("add_prefix_space") {
            ensure!(
                asked == tokenizer.adds_prefix_space() || self.class(tokenizer) == Class::Other,
                "{file}: add_prefix_space is {asked}, tokenizer.json does the opposite, and \
                    transformers goes by the former; make the two agree"
            );
        }
        // transformers ignores the first flag for BPE tokenizers unless the second one is also set.
        const CLEAN: &str = "clean_up_tokenization_spaces";
        const FORCED: &str =
            "clean_up_tokenization_spaces_for_bpe_even_though_it_will_corrupt_output";
        ensure!(
            flag(CLEAN) != Some(true) || (flag(FORCED) != Some(true) && tokenizer.is_bpe()),
            "{file}: {CLEAN} is true; candecode shows decoded text unchanged"
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
