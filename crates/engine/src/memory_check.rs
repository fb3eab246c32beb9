//! Checks whether a run fits in memory. This happens before the weights are read, because a machine
//! that starts swapping can be unresponsive for minutes.

use crate::CacheConfig;
use anyhow::{ensure, Result};
use candecode::kit::error::usage;
use candecode::kit::units::bytes;
use candecode::kit::ModelConfig;
use candle_core::Device;

/// The memory that a run holds at once. Only the large parts count: all weights, all keys and
/// values, the mask of a padded batch, the candidates of a beam search and, without the kernels,
/// one layer's attention scores, which are stored twice, as scores and as probabilities.
#[derive(Debug, Clone)]
pub struct Need<'a> {
    /// The model, and the draft model if there is one.
    pub models: Vec<&'a ModelConfig>,
    /// Bytes per weight of each model, on average if quantized.
    pub weight_bytes: Vec<f64>,
    /// Bytes per value in activations and cache.
    pub value_bytes: usize,
    /// Sequences, or beams, in the batch.
    pub rows: usize,
    /// Number of tokens in the longest prompt.
    pub prompt: usize,
    /// Maximum number of tokens to generate.
    pub new: usize,
    /// The kind of KV cache. None: no cache.
    pub cache: Option<CacheConfig>,
    /// The positions in all blocks of a paged cache, if the flags give their number.
    pub pool: Option<usize>,
    /// Whether attention holds the scores of all new positions. The kernels hold only a few at a
    /// time.
    pub holds_scores: bool,
    /// Whether prompts of different lengths are padded, which takes a mask.
    pub padded: bool,
    /// Whether the rows are beams.
    pub beams: bool,
}

impl Need<'_> {
    /// Returns the most positions a row reaches in this model, capped at its context.
    pub fn positions(&self, model: &ModelConfig) -> usize {
        let context = model.max_position_embeddings;
        match self.cache {
            Some(CacheConfig::Static(_)) => context,
            _ => self.prompt.saturating_add(self.new).min(context),
        }
    }

    /// Returns the length of the longest conversation that fits in `room` bytes, assuming the worst
    /// case of a single pass over all of it.
    pub fn longest(&self, room: f64) -> usize {
        let contexts = self.models.iter().map(|model| model.max_position_embeddings);
        let mut need = Need { new: 0, ..self.clone() };
        let (mut fits, mut too_long) = (0, contexts.min().unwrap_or(0) + 1);
        while too_long - fits > 1 {
            need.prompt = fits + (too_long - fits) / 2;
            if need.total() <= room {
                fits = need.prompt;
            } else {
                too_long = need.prompt;
            }
        }
        fits
    }

    /// Returns the bytes of all weights.
    pub fn weights(&self) -> f64 {
        let models = self.models.iter().zip(&self.weight_bytes);
        models.map(|(model, bytes)| model.size() as f64 * bytes).sum()
    }

    /// Returns the bytes of all keys and values.
    pub fn keys_and_values(&self) -> f64 {
        let numbers = |model: &&ModelConfig| {
            let layers = 2 * model.num_hidden_layers * model.num_key_value_heads * model.head_dim;
            let rows = self.rows as f64 * self.positions(model) as f64;
            layers as f64 * self.pool.map_or(rows, |positions| positions as f64)
        };
        match self.cache {
            None => 0.0,
            Some(_) => self.models.iter().map(numbers).sum::<f64>() * self.value_bytes as f64,
        }
    }

    /// Returns the number of tokens in the longest pass: the prompt or, without a cache,
    /// everything.
    fn pass(&self, model: &ModelConfig) -> usize {
        let all = self.prompt.saturating_add(self.new);
        let pass = if self.cache.is_some() { self.prompt } else { all };
        pass.min(model.max_position_embeddings)
    }

    /// Returns the bytes of one layer's scores in the longest pass.
    pub fn scores(&self) -> f64 {
        if !self.holds_scores {
            return 0.0;
        }
        let of = |model: &&ModelConfig| {
            let pass = self.pass(model) as f64;
            2.0 * self.rows as f64 * model.num_attention_heads as f64 * pass * pass
        };
        self.models.iter().map(of).fold(0.0, f64::max) * self.value_bytes as f64
    }

    /// Returns the bytes of a padded batch's mask in the longest pass.
    pub fn mask(&self) -> f64 {
        let pass = self.models.first().map_or(0, |model| self.pass(model)) as f64;
        if self.padded {
            self.rows as f64 * pass * pass
        } else {
            0.0
        }
    }

    /// Returns the bytes of a beam search's candidates: 16 for each beam and token, besides the
    /// logits and their logarithms.
    pub fn candidates(&self) -> f64 {
        let vocab_size = self.models.first().map_or(0, |model| model.vocab_size);
        if self.beams {
            (self.rows * vocab_size) as f64 * 24.0
        } else {
            0.0
        }
    }

    /// Returns the total, in bytes.
    pub fn total(&self) -> f64 {
        self.weights() + self.keys_and_values() + self.scores() + self.mask() + self.candidates()
    }

    /// Explains how much memory is needed and why.
    pub fn arithmetic(&self) -> String {
        let v = self.value_bytes;
        let mut parts = Vec::new();
        for (i, model) in self.models.iter().enumerate() {
            let whose = if i == 0 { "" } else { " of the draft model" };
            let weight_bytes = vec![self.weight_bytes[i]];
            let w = format!("{:.3}", weight_bytes[0]);
            let w = w.trim_end_matches('0').trim_end_matches('.');
            let alone = Need { models: vec![*model], weight_bytes, ..self.clone() };
            let (weights, kept) = (bytes(alone.weights()), bytes(alone.keys_and_values()));
            parts.push(format!("weights{whose} {weights} ({} numbers × {w} bytes)", model.size()));
            if self.cache.is_some() {
                let positions = match self.pool {
                    Some(positions) => format!("blocks of {positions} positions in all"),
                    None => {
                        let noun = if self.rows == 1 { "row" } else { "rows" };
                        format!("{} {noun} × {} tokens", self.rows, self.positions(model))
                    }
                };
                let noun = if model.num_key_value_heads == 1 { "head" } else { "heads" };
                let heads = format!("{} {noun}", model.num_key_value_heads);
                parts.push(format!(
                    "cache{whose} {kept} ({positions} × 2 × {} layers × {heads} × {} × {v} bytes)",
                    model.num_hidden_layers, model.head_dim,
                ));
            }
        }
        if self.holds_scores {
            parts.push(format!("attention's scores {}", bytes(self.scores())));
        }
        if self.padded {
            parts.push(format!("the padded batch's mask {}", bytes(self.mask())));
        }
        if self.beams {
            parts.push(format!("the beams' candidates {}", bytes(self.candidates())));
        }
        parts.join(", ")
    }

    /// Rejects a run that doesn't fit in `room` bytes. The error shows the arithmetic and how to
    /// make the largest part smaller.
    ///
    /// # Errors
    /// If it doesn't fit.
    pub fn check(&self, room: f64) -> Result<()> {
        let [weights, kept, scores] = [self.weights(), self.keys_and_values(), self.scores()];
        let largest = weights.max(kept).max(scores);
        let less = if self.candidates() > largest {
            "fewer beams need less"
        } else if self.mask() > largest {
            "prompts of similar length, or one at a time, need less"
        } else if weights >= kept.max(scores) {
            "--dtype bf16, --quantize q8_0 or a smaller --model needs less"
        } else if kept >= scores && self.pool.is_some() {
            "fewer blocks need less"
        } else if kept >= scores {
            "fewer texts at once or a smaller --max-new-tokens need less"
        } else {
            "a shorter prompt, or on the CPU --kernels fast, needs less"
        };
        ensure!(
            self.total() <= room,
            "this needs {} of memory, and {} are available: {}; {less}",
            bytes(self.total()),
            bytes(room),
            self.arithmetic()
        );
        Ok(())
    }
}

/// Returns the bytes that a run may use. None: unknown, so no run is rejected.
///
/// `CANDECODE_MEMORY` takes precedence (such as 8G or 500M). Otherwise it's the system's answer: on
/// Linux the available memory or a container's limit, on macOS all memory, which the GPU shares. A
/// CUDA device's own memory isn't checked.
///
/// # Errors
/// If `CANDECODE_MEMORY` isn't a valid amount.
pub fn available(device: &Device) -> Result<Option<f64>> {
    if let Ok(text) = std::env::var("CANDECODE_MEMORY") {
        return amount(&text).map(Some);
    }
    if device.is_cuda() {
        return Ok(None);
    }
    Ok(if cfg!(target_os = "macos") { macos() } else { linux() })
}

/// Parses an amount such as 8G, 500M or 1000000.
///
/// # Errors
/// If it isn't a valid amount.
pub fn amount(text: &str) -> Result<f64> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let factor = match text[digits.len()..].to_ascii_uppercase().trim_end_matches('B') {
        "" => Some(1.0),
        "K" => Some(1e3),
        "M" => Some(1e6),
        "G" => Some(1e9),
        "T" => Some(1e12),
        _ => None,
    };
    let number = digits.parse::<f64>().ok().filter(|n| n.is_finite() && *n > 0.0);
    factor.zip(number).map(|(factor, number)| factor * number).ok_or_else(|| {
        usage(format!(
            "CANDECODE_MEMORY is \"{text}\"; expected an amount of memory such as 8G or 500M"
        ))
    })
}

/// Returns `MemAvailable`, or the remainder of a container's limit if that is less. None of these
/// files exist on other systems.
fn linux() -> Option<f64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let free = line.trim().strip_suffix(" kB")?.trim().parse::<f64>().ok()? * 1024.0;
    let read = |file: &str| std::fs::read_to_string(format!("/sys/fs/cgroup/{file}")).ok();
    let groups = [
        ["memory.max", "memory.current", "memory.stat"],
        ["memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes", "memory/memory.stat"],
    ];
    let lefts = groups.iter().filter_map(|[limit, used, stat]| {
        left(&read(limit)?, &read(used).unwrap_or_default(), &read(stat).unwrap_or_default())
    });
    Some(lefts.fold(free, f64::min))
}

/// Returns the memory a container may still use: its limit minus its current use, not counting
/// cached files that can be dropped.
pub fn left(limit: &str, used: &str, stat: &str) -> Option<f64> {
    let number = |text: &str| text.trim().parse::<f64>().ok();
    let file = |line: &str| match line.split_once(' ') {
        Some(("inactive_file" | "active_file", bytes)) => number(bytes),
        _ => None,
    };
    let files: f64 = stat.lines().filter_map(file).sum();
    let held = (number(used).unwrap_or(0.0) - files).max(0.0);
    Some((number(limit)? - held).max(0.0))
}

/// Returns this process's peak memory, in bytes. None if the system doesn't report it (Linux does).
pub fn peak() -> Option<f64> {
    let text = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    Some(line.trim().strip_suffix(" kB")?.trim().parse::<f64>().ok()? * 1024.0)
}

fn macos() -> Option<f64> {
    let output = std::process::Command::new("sysctl").args(["-n", "hw.memsize"]).output().ok()?;
    String::from_utf8(output.stdout).ok()?.trim().parse().ok()
}
