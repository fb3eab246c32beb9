//! N-grams counted from a corpus: the token that most often follows 1 to 3 others. A drafter for
//! models without a smaller version to draft with.

use anyhow::{ensure, Context as _, Result};
use candecode::day13_speculative::one_hot;
use candecode::kit::draft::{Draft, Drafter};
use candecode::kit::{ProcessorInput, Tokenizer};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, HashMap};

/// Number of tokens in the longest context.
const LONGEST_CONTEXT: usize = 3;

/// Minimum count. Rarer contexts (most of them) are dropped, because they predict little.
const LEAST_COUNT: u32 = 3;

/// Maximum number of rows in a table.
const MOST_ROWS: usize = 1 << 20;

/// Maximum size of a corpus, in bytes, chosen so that its counts fit in memory.
const LARGEST_CORPUS: usize = 16 << 20;

/// The format marker at the start of the file.
const FORMAT: &str = "candecode n-grams, version 1";

/// Maps contexts of one to three tokens to the token that followed them most often.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NgramTable {
    next: HashMap<Vec<u32>, u32>,
}

/// The file format, as JSON.
#[derive(Serialize, Deserialize)]
struct File {
    format: String,
    /// [`Tokenizer::fingerprint`], in hexadecimal.
    tokenizer: String,
    /// The tokens of a context, followed by the next token.
    rows: Vec<Vec<u32>>,
}

/// Returns the texts of a corpus: the `text` field of each line if it is JSON Lines, otherwise the
/// pieces between `<|endoftext|>` markers.
///
/// # Errors
/// If the corpus is too large or has no text, or a line isn't valid JSON with that field.
pub fn texts(corpus: &str, json_lines: bool) -> Result<Vec<String>> {
    #[derive(Deserialize)]
    struct Line {
        text: String,
    }
    ensure!(
        corpus.len() <= LARGEST_CORPUS,
        "the corpus is larger than {} MiB; use only part of it",
        LARGEST_CORPUS >> 20
    );
    let all: Vec<String> = if json_lines {
        let lines = corpus.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
        let text = |(i, line)| -> Result<String> {
            let line: Line = serde_json::from_str(line)
                .ok()
                .with_context(|| format!("line {} is not JSON with a \"text\" field", i + 1))?;
            Ok(line.text)
        };
        lines.map(text).collect::<Result<_>>()?
    } else {
        corpus.split("<|endoftext|>").map(str::to_string).collect()
    };
    let texts: Vec<_> = all.into_iter().filter(|text| !text.trim().is_empty()).collect();
    ensure!(!texts.is_empty(), "the corpus has no text to count");
    Ok(texts)
}

impl NgramTable {
    /// Counts the tokens that follow each context of one to three tokens, and keeps the most
    /// frequent. Ties go to the smallest id. N-grams don't cross from one text into the next.
    ///
    /// # Errors
    /// If a text can't be encoded, no context occurs three times, or there are too many n-grams.
    pub fn count(texts: &[String], tokenizer: &Tokenizer) -> Result<Self> {
        let mut counts: HashMap<Vec<u32>, BTreeMap<u32, u32>> = HashMap::new();
        for text in texts {
            let tokens = tokenizer.encode(text.trim())?;
            for len in 1..=LONGEST_CONTEXT {
                for gram in tokens.windows(len + 1) {
                    let after = counts.entry(gram[..len].to_vec()).or_default();
                    *after.entry(gram[len]).or_default() += 1;
                }
            }
        }
        counts.retain(|_, after| after.values().sum::<u32>() >= LEAST_COUNT);
        let likeliest = |(context, after): (Vec<u32>, BTreeMap<u32, u32>)| {
            // Descending ids, because `max_by_key` returns the last maximum.
            let (id, _) = after.into_iter().rev().max_by_key(|(_, count)| *count)?;
            Some((context, id))
        };
        let next: HashMap<_, _> = counts.into_iter().filter_map(likeliest).collect();
        ensure!(
            !next.is_empty(),
            "no token occurs {LEAST_COUNT} times in the corpus; use a longer one"
        );
        ensure!(
            next.len() <= MOST_ROWS,
            "more than {MOST_ROWS} n-grams; use only part of the corpus"
        );
        Ok(Self { next })
    }

    /// Returns the number of contexts.
    pub fn len(&self) -> usize {
        self.next.len()
    }

    /// Returns true if there are no contexts.
    pub fn is_empty(&self) -> bool {
        self.next.is_empty()
    }

    /// Returns the token that usually follows these, looking up the last three tokens and falling
    /// back to the last two or one.
    pub fn next(&self, tokens: &[u32]) -> Option<u32> {
        let longest = LONGEST_CONTEXT.min(tokens.len());
        let mut contexts = (1..=longest).rev().map(|len| &tokens[tokens.len() - len..]);
        contexts.find_map(|context| self.next.get(context)).copied()
    }

    /// Returns the table in the file's format, sorted.
    ///
    /// # Errors
    /// If it can't be written as JSON.
    pub fn to_json(&self, tokenizer: &Tokenizer) -> Result<String> {
        let row = |(context, next): (&Vec<u32>, &u32)| [&context[..], &[*next]].concat();
        let mut rows: Vec<_> = self.next.iter().map(row).collect();
        rows.sort();
        let tokenizer = format!("{:016x}", tokenizer.fingerprint());
        Ok(serde_json::to_string(&File { format: FORMAT.into(), tokenizer, rows })? + "\n")
    }

    /// Parses the output of [`NgramTable::to_json`].
    ///
    /// # Errors
    /// If its format or tokenizer is a different one, or it is damaged or too large.
    pub fn from_json(json: &str, tokenizer: &Tokenizer) -> Result<Self> {
        let file: File = serde_json::from_str(json).ok().context(
            "not a table of n-grams, or damaged; use --count-ngrams to make one from a corpus",
        )?;
        ensure!(
            file.format == FORMAT,
            "the format is not \"{FORMAT}\"; make the table again with --count-ngrams"
        );
        ensure!(
            file.tokenizer == format!("{:016x}", tokenizer.fingerprint()),
            "this table was made with a different tokenizer; make one for this model with \
                --count-ngrams"
        );
        ensure!(
            file.rows.len() <= MOST_ROWS,
            "{} n-grams, but the maximum is {MOST_ROWS}; count a smaller corpus",
            file.rows.len()
        );
        let vocab_size = tokenizer.vocab_size();
        let mut next = HashMap::new();
        for (i, mut row) in file.rows.into_iter().enumerate() {
            let fits = (2..=LONGEST_CONTEXT + 1).contains(&row.len())
                && row.iter().all(|id| (*id as usize) < vocab_size);
            let last = row.pop().filter(|_| fits);
            let last = last.with_context(|| {
                format!(
                    "row {} is damaged: it must have 2 to {} token ids below {vocab_size}; make \
                     the table again with --count-ngrams",
                    i + 1,
                    LONGEST_CONTEXT + 1
                )
            })?;
            next.insert(row, last);
        }
        Ok(Self { next })
    }
}

/// Drafts the usual continuation, token by token. The draft ends at a context that isn't in the
/// table.
pub struct TableDrafter<'a> {
    /// The n-gram table.
    pub table: &'a NgramTable,
    /// Size of the target's vocabulary.
    pub vocab_size: usize,
}

impl Drafter for TableDrafter<'_> {
    fn draft(
        &mut self,
        input: &ProcessorInput,
        n: usize,
        _uniforms: &[f32],
    ) -> candle_core::Result<Draft> {
        let from = input.tokens.len().saturating_sub(LONGEST_CONTEXT);
        let mut tokens = input.tokens[from..].to_vec();
        let mut draft = Draft::default();
        while draft.tokens.len() < n {
            let Some(id) = self.table.next(&tokens) else { break };
            tokens.push(id);
            draft.tokens.push(id);
            draft.probs.push(one_hot(id, self.vocab_size));
        }
        Ok(draft)
    }
}
