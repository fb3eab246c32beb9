//! The bytes that a token adds to a text, derived from the tokenizer's decoder.

use serde_json::Value;

/// The decoder's effect on a single token, independent of its position. The start of the text,
/// which some decoders treat differently, is not covered.
pub struct TokenBytes(Vec<Step>);

enum Step {
    /// Every `from` becomes `to`.
    Replace { from: String, to: String },
    /// `<0x0A>` is the byte 10.
    ByteFallback,
    /// Every character is a byte (GPT-2's `bytes_to_unicode`). A token that contains any other
    /// character is plain text.
    ByteLevel,
    /// Up to `start` of these characters are removed from the start of the token, and up to `stop`
    /// from its end.
    Strip { of: char, start: usize, stop: usize },
    /// A token starts with a space, unless it starts with `prefix`, which is removed.
    WordPiece { prefix: String, cleanup: bool },
}

/// A token partway through the steps.
enum Part {
    Text(String),
    Bytes(Vec<u8>),
}

impl TokenBytes {
    /// Parses the decoder from a `tokenizer.json`. None means that the tokenizer has no decoder.
    ///
    /// # Errors
    /// Returns a description if a token's text depends on its neighbors, or if the decoder is of
    /// an unknown kind.
    pub fn of(decoder: Option<&Value>) -> Result<Self, String> {
        let Some(decoder) = decoder else {
            return Err("it has no decoder, and joins tokens with spaces".into());
        };
        let mut flat = Vec::new();
        flatten(decoder, &mut flat);
        let mut steps = Vec::new();
        // After `Fuse` and `ByteLevel`, all tokens form one text. After `ByteFallback`, runs of
        // consecutive byte tokens do.
        let (mut fused, mut bytes_joined) = (false, false);
        for part in flat {
            let text = |key: &str| part[key].as_str().unwrap_or_default();
            let number = |key: &str| part[key].as_u64().unwrap_or(0) as usize;
            let kind = text("type");
            let depends =
                || Err(format!("its {kind} decoder changes a token depending on its neighbors"));
            match kind {
                "Fuse" => fused = true,
                "Replace" => {
                    let Some(from) = part["pattern"]["String"].as_str() else { return depends() };
                    // A longer string could span several tokens, but a single character can't.
                    // Once bytes are joined, several tokens can spell even one character, unless it
                    // is ASCII.
                    let single = from.chars().count() == 1;
                    let alone = match (fused, bytes_joined) {
                        (_, true) => single && from.is_ascii(),
                        (true, false) => single,
                        (false, false) => !from.is_empty(),
                    };
                    if !alone {
                        return depends();
                    }
                    steps.push(Step::Replace { from: from.into(), to: text("content").into() });
                }
                // Such a `Strip` affects only the start of the text, which is part of the prompt.
                "Strip" if fused && number("stop") == 0 => {}
                "Strip" if !fused && !bytes_joined => {
                    let Some(of) = text("content").chars().next() else { return depends() };
                    steps.push(Step::Strip { of, start: number("start"), stop: number("stop") });
                }
                "Metaspace" if !fused && !bytes_joined => {
                    let from = text("replacement").to_string();
                    steps.push(Step::Replace { from, to: " ".into() });
                }
                "ByteFallback" if !fused => {
                    steps.push(Step::ByteFallback);
                    bytes_joined = true;
                }
                "ByteLevel" if !fused && !bytes_joined => {
                    steps.push(Step::ByteLevel);
                    (fused, bytes_joined) = (true, true);
                }
                "WordPiece" if !fused && !bytes_joined => {
                    let cleanup = part["cleanup"].as_bool().unwrap_or(true);
                    steps.push(Step::WordPiece { prefix: text("prefix").into(), cleanup });
                }
                "Strip" | "Metaspace" | "ByteFallback" | "ByteLevel" | "WordPiece"
                | "BPEDecoder" | "CTC" => return depends(),
                _ => return Err("its decoder is of an unknown kind".into()),
            }
        }
        Ok(Self(steps))
    }

    /// Returns the bytes that a token, spelled as in the vocabulary, adds after the text's start.
    pub fn bytes(&self, token: &str) -> Vec<u8> {
        let mut part = Part::Text(token.into());
        for step in &self.0 {
            part = match (step, part) {
                (Step::Replace { from, to }, Part::Text(text)) => {
                    Part::Text(text.replace(from, to))
                }
                (Step::Replace { from, to }, Part::Bytes(bytes)) => {
                    let replaced = |byte: u8| match from.as_bytes() {
                        [one] if *one == byte => to.clone().into_bytes(),
                        _ => vec![byte],
                    };
                    Part::Bytes(bytes.into_iter().flat_map(replaced).collect())
                }
                (Step::ByteFallback, Part::Text(text)) => match fallback_byte(&text) {
                    Some(byte) => Part::Bytes(vec![byte]),
                    None => Part::Text(text),
                },
                (Step::ByteLevel, Part::Text(text)) => {
                    let bytes: Option<Vec<u8>> = text.chars().map(byte_level).collect();
                    Part::Bytes(bytes.unwrap_or_else(|| text.into_bytes()))
                }
                (Step::Strip { of, start, stop }, Part::Text(text)) => {
                    Part::Text(strip(&text, *of, *start, *stop))
                }
                (Step::WordPiece { prefix, cleanup: clean }, Part::Text(text)) => {
                    let text = match text.strip_prefix(prefix) {
                        Some(rest) => rest.to_string(),
                        None => format!(" {text}"),
                    };
                    Part::Text(if *clean { cleanup(&text) } else { text })
                }
                (_, bytes) => bytes,
            };
        }
        match part {
            Part::Text(text) => text.into_bytes(),
            Part::Bytes(bytes) => bytes,
        }
    }
}

/// Collects the decoders of a sequence, including those of nested sequences.
fn flatten<'a>(decoder: &'a Value, flat: &mut Vec<&'a Value>) {
    match decoder["decoders"].as_array() {
        Some(parts) if decoder["type"] == "Sequence" => {
            parts.iter().for_each(|part| flatten(part, flat));
        }
        _ => flat.push(decoder),
    }
}

/// Parses a byte token such as `<0x0A>`.
fn fallback_byte(token: &str) -> Option<u8> {
    let hex = token.strip_prefix("<0x")?.strip_suffix('>')?;
    (hex.len() == 2).then(|| u8::from_str_radix(hex, 16).ok())?
}

/// Returns the byte that a character of byte-level BPE represents. Printable bytes are their own
/// characters; the other 68 are mapped, in order, to U+0100 and up.
fn byte_level(c: char) -> Option<u8> {
    let printable = |byte: u8| matches!(byte, b'!'..=b'~' | 0xa1..=0xac | 0xae..=0xff);
    match u8::try_from(c as u32) {
        Ok(byte) => printable(byte).then_some(byte),
        Err(_) => (0..=255).filter(|byte| !printable(*byte)).nth(c as usize - 0x100),
    }
}

fn strip(text: &str, of: char, start: usize, stop: usize) -> String {
    let at_start = text.chars().take(start).take_while(|c| *c == of).count();
    let rest: Vec<char> = text.chars().skip(at_start).collect();
    let at_end = rest.iter().rev().take(stop).take_while(|c| **c == of).count();
    rest[..rest.len() - at_end].iter().collect()
}

/// Applies the WordPiece decoder's clean-up to one token.
fn cleanup(text: &str) -> String {
    [
        (" .", "."),
        (" ?", "?"),
        (" !", "!"),
        (" ,", ","),
        (" ' ", "'"),
        (" n't", "n't"),
        (" 'm", "'m"),
        (" do not", " don't"),
        (" 's", "'s"),
        (" 've", "'ve"),
        (" 're", "'re"),
    ]
    .iter()
    .fold(text.to_string(), |text, (from, to)| text.replace(from, to))
}
