//! What a `tokenizer.json` must not do: the parts of it that could exhaust the machine are looked
//! at before the tokenizers' crate reads them.

use base64::{engine::general_purpose::STANDARD, Engine as _};
use serde::Deserialize;
use serde_json::Value;

/// How much longer than itself a text may become. Real tokenizers reach some hundred: a ligature of
/// Arabic is 18 letters, and a space three bytes.
const MOST_GROWTH: f64 = 1024.0;

/// Steps of a normalizer, a pre-tokenizer, a post-processor or a decoder.
const MOST_STEPS: usize = 256;

/// Bytes that a prompt may become, if that is more than 16 times its own.
const MOST_BYTES: f64 = (16 << 20) as f64;

/// Of a `tokenizer.json` the parts that change text. The vocabulary, nearly all of the file, is
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

/// How long a text can become before it is cut into tokens.
pub struct Growth {
    /// Bytes, for each byte of the text.
    factor: f64,
    /// Bytes that are added to it.
    added: f64,
}

impl Default for Growth {
    fn default() -> Self {
        Self { factor: 1.0, added: 0.0 }
    }
}

impl Growth {
    /// Refuses a text that would become too long.
    ///
    /// # Errors
    /// In words.
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

/// Reads the parts of a `tokenizer.json` that change text.
///
/// # Errors
/// In words, if it is not JSON, or what a part does makes no sense, or has no bound.
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

/// The steps of a part: its own, or those of a sequence and of the sequences in it.
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

/// How many times as long as itself a step can make a text, at most.
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

/// The length in bytes of the shortest text that an expression matches; 0 if it isn't known.
fn shortest_match(regex: &str) -> usize {
    let hir = regex_syntax::parse(regex);
    hir.ok().and_then(|hir| hir.properties().minimum_len()).unwrap_or(0)
}

/// Looks at SentencePiece's table of normal forms: a length, a trie of that many bytes, and the
/// texts that its leaves point to, each with a 0 at its end. A character becomes one of them.
fn charsmap(base64: &str) -> Result<f64, String> {
    let damaged = || "has a damaged precompiled_charsmap".to_string();
    let bytes = STANDARD.decode(base64).map_err(|_| damaged())?;
    let (size, rest) = bytes.split_first_chunk::<4>().ok_or_else(damaged)?;
    let texts = rest.get(u32::from_le_bytes(*size) as usize..).ok_or_else(damaged)?;
    let longest = texts.split(|byte| *byte == 0).map(<[u8]>::len).max();
    Ok(longest.unwrap_or(0).max(1) as f64)
}
