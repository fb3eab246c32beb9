//! A compiled constraint, and the logits processor that follows a text through it.

use candecode::kit::error::shown;
use candecode::kit::{LogitsProcessor, ProcessorInput, TextFormat};
use candle_core::{bail, Result};
use llguidance::toktrie::SimpleVob;
use llguidance::Matcher;
use std::cell::RefCell;
use std::rc::Rc;

/// Maximum number of texts that a processor remembers its place in.
const MOST_TEXTS: usize = 16;
/// Maximum number of tokens to go back, such as a draft's. Otherwise it is another text.
const MOST_LOST: usize = 16;

/// A part of the message about a text whose next token would take too much time or memory to find.
pub const TOO_COMPLEX: &str = "is too complex; make it simpler";

/// A compiled constraint. Its processors share what they find out about it.
#[derive(Clone)]
pub struct CompiledFormat {
    /// The constraint in a message.
    pub name: String,
    /// Before the first token.
    pub start: Matcher,
    /// The token of the masks that stands for the end of the text.
    pub end: u32,
}

impl std::fmt::Debug for CompiledFormat {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.name)
    }
}

impl TextFormat for CompiledFormat {
    fn name(&self) -> &str {
        &self.name
    }

    fn processor(&self) -> Rc<dyn LogitsProcessor> {
        Rc::new(FormatRail { format: self.clone(), texts: RefCell::default() })
    }
}

/// Allows the tokens with which a text can still become one of the format. Like every processor it
/// gets the whole text each time. It keeps the place that it has reached in recent texts, and goes
/// back if a text has lost tokens, such as a draft's.
struct FormatRail {
    format: CompiledFormat,
    texts: RefCell<Vec<Text>>,
}

/// The generated tokens of a text, and the place in the format that they lead to.
struct Text {
    tokens: Vec<u32>,
    matcher: Matcher,
}

impl Text {
    /// Goes to the end of `tokens`. Returns false if one of them isn't allowed there.
    fn go_to(&mut self, tokens: &[u32]) -> anyhow::Result<bool> {
        let common = self.common(tokens);
        self.matcher.rollback(self.tokens.len() - common)?;
        self.tokens.truncate(common);
        let taken = self.matcher.try_consume_tokens(&tokens[common..])?;
        self.tokens.extend(&tokens[common..common + taken]);
        Ok(self.tokens.len() == tokens.len())
    }

    /// The number of tokens that both begin with.
    fn common(&self, tokens: &[u32]) -> usize {
        self.tokens.iter().zip(tokens).take_while(|(a, b)| a == b).count()
    }
}

impl FormatRail {
    /// Returns a mask of the tokens that may follow these, or None if one of these isn't allowed.
    fn mask(&self, tokens: &[u32]) -> anyhow::Result<Option<SimpleVob>> {
        let mut texts = self.texts.borrow_mut();
        let lost = |text: &Text| text.tokens.len() - text.common(tokens);
        let best = (0..texts.len()).max_by_key(|i| texts[*i].common(tokens));
        let mut text = match best {
            Some(i) if lost(&texts[i]) <= MOST_LOST || texts.len() == MOST_TEXTS => texts.remove(i),
            _ => Text { tokens: Vec::new(), matcher: self.format.start.clone() },
        };
        let mask = match text.go_to(tokens)? {
            true => Some(text.matcher.compute_mask_or_eos()?),
            false => None,
        };
        texts.push(text);
        Ok(mask)
    }
}

impl LogitsProcessor for FormatRail {
    fn name(&self) -> String {
        self.format.name.clone()
    }

    /// Sets the logits of all other tokens to `-inf`. Ids that end the text are allowed where it is
    /// complete; their bytes don't matter.
    fn process(&self, input: &ProcessorInput, logits: &mut [f32]) -> Result<()> {
        let mask = match self.mask(&input.tokens[input.prompt_len..]) {
            Ok(mask) => mask,
            Err(error) => bail!("{} {TOO_COMPLEX}: {}", self.format.name, reason(&error)),
        };
        let end = self.format.end;
        for (id, logit) in (0..).zip(logits) {
            let bit = if input.eos.contains(&id) { Some(end) } else { (id < end).then_some(id) };
            let mask = mask.as_ref().zip(bit);
            if !mask.is_some_and(|(mask, bit)| mask.is_allowed(bit)) {
                *logit = f32::NEG_INFINITY;
            }
        }
        Ok(())
    }
}

/// Returns an error's reason on one line, without the trace that llguidance adds to a panic.
pub fn reason(error: &anyhow::Error) -> String {
    let text = error.to_string();
    let text = text.split("\n<").next().unwrap_or_default();
    match text {
        "NoExtensionBias" => "it allows nothing".to_string(),
        _ => shown(text.split_whitespace().collect::<Vec<_>>().join(" ")),
    }
}
