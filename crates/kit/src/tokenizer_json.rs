//! Safety checks for `tokenizer.json`: parts that could exhaust the machine are examined before the
//! tokenizers crate reads them.

use base64::{engine::general_purpose::STANDARD, Engine as _};
use serde::Deserialize;
use serde_json::Value;

/// Maximum growth factor of a text. Real tokenizers reach a few hundred: one Arabic ligature
/// expands to 18 letters, and a space to three bytes.
const MOST_GROWTH: f64 = 1024.0;

/// Maximum number of steps in a normalizer, pre-tokenizer, post-processor or decoder.
const MOST_STEPS: usize = 256;

/// Maximum size of a prompt after growth, in bytes, if it grows more than 16-fold.
const MOST_BYTES: f64 = (16 << 20) as f64;

/// The parts of a `tokenizer.json` that change text. The vocabulary, nearly all of the file, is
/// skipped.
#[derive(Deserialize)]
struct Parts {
    #[serde(default)]
    normalizer: Value,
    #[serde(default)]
    pre_tokenizer: Value,
    #[serde(default)]
    post_processor: Value,
    #[serde(default)]
    decoder: Value,
}

/// A bound on the length of a text before it is split into tokens.
pub struct Growth {
    /// Bytes per byte of the text.
    factor: f64,
    /// Bytes added to that.
    added: f64,
}

impl Default for Growth {
    fn default() -> Self {
        Self { factor: 1.0, added: 0.0 }
    }
}

impl Growth {
    /// Rejects a text that would grow too long.
    ///
    /// # Errors
    /// Returns the reason as text.
    pub fn check(&self, text: &str) -> Result<(), String> {
        let own = text.len() as f64;
        let becomes = own * self.factor + self.added;
        if becomes > MOST_BYTES.max(16.0 * own) {
            return Err(format!(
                "its normalizer may make {becomes:.0} bytes out of this text's {own}; use a \
                    shorter text"
            ));
        }
        Ok(())
    }
}

/// Checks the parts of a `tokenizer.json` that change text, and returns a bound on its growth.
///
/// # Errors
/// Returns the reason as text if it is not JSON, or if a part's effect is invalid or unbounded.
pub fn check(json: &str) -> Result<Growth, String> {
    let parts: Parts = serde_json::from_str(json).map_err(|e| e.to_string())?;
    let mut growth = Growth::default();
    for (part, name, list) in [
        (&parts.normalizer, "normalizer", "normalizers"),
        (&parts.pre_tokenizer, "pre-tokenizer", "pretokenizers"),
    ] {
        for step in steps(part, list, name)? {
            let factor = factor(step).map_err(|reason| format!("its {name} {reason}"))?;
            let prepended = step["prepend"].as_str().map_or(0.0, |text| text.len() as f64);
            growth.factor *= factor;
            growth.added = (growth.added + prepended) * factor;
        }
        bounded(growth.factor, name)?;
    }
    let mut copies = 1.0;
    for step in steps(&parts.post_processor, "processors", "post-processor")? {
        let pieces = step["single"].as_array().into_iter().flatten();
        let texts = pieces.filter(|piece| piece.get("Sequence").is_some()).count();
        copies *= texts.max(1) as f64;
    }
    bounded(copies, "post-processor")?;
    let mut decoded = 1.0;
    for step in steps(&parts.decoder, "decoders", "decoder")? {
        decoded *= factor(step).map_err(|reason| format!("its decoder {reason}"))?;
    }
    bounded(decoded, "decoder")?;
    Ok(growth)
}

fn bounded(factor: f64, name: &str) -> Result<(), String> {
    if factor > MOST_GROWTH {
        return Err(format!("its {name} makes a text {factor:.0} times as long"));
    }
    Ok(())
}

/// Collects the steps of a part, including those of nested sequences.
fn steps<'a>(part: &'a Value, list: &str, name: &str) -> Result<Vec<&'a Value>, String> {
    let (mut open, mut found) = (vec![part], Vec::new());
    while let Some(part) = open.pop() {
        match part[list].as_array() {
            Some(parts) => open.extend(parts.iter().rev()),
            None => found.push(part),
        }
        if open.len() + found.len() > MOST_STEPS {
            return Err(format!("its {name} has more than {MOST_STEPS} steps"));
        }
    }
    Ok(found)
}

/// Returns the maximum factor by which a step can lengthen a text.
fn factor(step: &Value) -> Result<f64, String> {
    Ok(match step["type"].as_str().unwrap_or_default() {
        "Replace" => {
            let content = step["content"].as_str().unwrap_or_default().len() as f64;
            let pattern = &step["pattern"];
            let least = match (pattern["String"].as_str(), pattern["Regex"].as_str()) {
                (Some(""), _) => return Err("replaces the empty text".into()),
                (Some(text), _) => text.len(),
                (_, Some(regex)) => shortest_match(regex),
                _ => 0,
            };
            match least {
                0 => 1.0 + content,
                least => (content / least as f64).max(1.0),
            }
        }
        "Precompiled" => charsmap(step["precompiled_charsmap"].as_str().unwrap_or_default())?,
        "FixedLength" if step["length"].as_u64() == Some(0) => {
            return Err("cuts pieces of length 0".into());
        }
        "NFKD" | "NFKC" => 11.0,
        "NFD" | "NFC" | "Metaspace" => 3.0,
        "BertNormalizer" => 5.0,
        "ByteLevel" | "Lowercase" | "BPEDecoder" => 2.0,
        _ => 1.0,
    })
}

/// Returns the length in bytes of the shortest match of a regular expression, or 0 if unknown.
fn shortest_match(regex: &str) -> usize {
    let hir = regex_syntax::parse(regex);
    hir.ok().and_then(|hir| hir.properties().minimum_len()).unwrap_or(0)
}

/// Checks SentencePiece's table of normal forms: a length, a trie of that many bytes, and the
/// null-terminated texts that its leaves point to. A character is replaced by one of these texts.
fn charsmap(base64: &str) -> Result<f64, String> {
    let damaged = || "has a damaged precompiled_charsmap".to_string();
    let bytes = STANDARD.decode(base64).map_err(|_| damaged())?;
    let (size, rest) = bytes.split_first_chunk::<4>().ok_or_else(damaged)?;
    let texts = rest.get(u32::from_le_bytes(*size) as usize..).ok_or_else(damaged)?;
    let longest = texts.split(|byte| *byte == 0).map(<[u8]>::len).max();
    Ok(longest.unwrap_or(0).max(1) as f64)
}
