//! `config.json` for the four families, checked before anything is loaded.

use crate::error::{quoted, shown};
use crate::python_json;
use anyhow::{bail, ensure, Context as _, Result};
use serde_json::{Map, Value};

/// The model families that day 5's model supports.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Family {
    /// LayerNorm, learned positions, GELU, fused QKV.
    Gpt2,
    /// RMSNorm, RoPE, GQA, SwiGLU.
    Llama,
    /// Llama with biases on Q, K and V.
    Qwen2,
    /// Llama with RMSNorm on each head's query and key.
    Qwen3,
}

/// The way Llama 3.1 and later stretch RoPE's low frequencies (HF `_compute_llama3_parameters`).
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Llama3Scaling {
    /// Divisor for the low frequencies.
    pub factor: f64,
    /// Wavelengths above `original / low_freq_factor` are fully scaled.
    pub low_freq_factor: f64,
    /// Wavelengths below `original / high_freq_factor` are left alone.
    pub high_freq_factor: f64,
    /// The context length that the model was first trained with, in tokens.
    pub original_max_position_embeddings: f64,
}

impl Llama3Scaling {
    /// Returns one inverse frequency after scaling, in radians per token.
    pub fn apply(&self, inv_freq: f32) -> f32 {
        let frequency = f64::from(inv_freq);
        let wavelength = 2.0 * std::f64::consts::PI / frequency;
        let context = self.original_max_position_embeddings;
        if wavelength > context / self.low_freq_factor {
            return (frequency / self.factor) as f32;
        }
        if wavelength < context / self.high_freq_factor {
            return inv_freq;
        }
        let smooth = (context / wavelength - self.low_freq_factor)
            / (self.high_freq_factor - self.low_freq_factor);
        ((1.0 - smooth) * frequency / self.factor + smooth * frequency) as f32
    }
}

/// A model's sizes and options. Fields are named as in `config.json` (GPT-2's names are
/// translated).
#[derive(Debug, Clone, PartialEq)]
pub struct ModelConfig {
    /// The family, which determines the norm, positions, MLP and QKV in day 5's model.
    pub family: Family,
    /// Number of token ids: V in shapes.
    pub vocab_size: usize,
    /// Width of the residual stream: C in shapes.
    pub hidden_size: usize,
    /// Width inside the MLP.
    pub intermediate_size: usize,
    /// Number of blocks.
    pub num_hidden_layers: usize,
    /// Query heads: H in shapes.
    pub num_attention_heads: usize,
    /// Key/value heads: Hkv in shapes.
    pub num_key_value_heads: usize,
    /// Width of one head: D in shapes.
    pub head_dim: usize,
    /// The context length: the number of distinct positions.
    pub max_position_embeddings: usize,
    /// Epsilon added to the variance inside a norm.
    pub norm_eps: f64,
    /// RoPE's base; unused by GPT-2.
    pub rope_theta: f64,
    /// Llama 3's RoPE scaling, if the model uses it.
    pub rope_scaling: Option<Llama3Scaling>,
    /// True if the output head is the embedding table.
    pub tie_word_embeddings: bool,
    /// True if Q, K and V have biases (Qwen2; some Llamas).
    pub qkv_bias: bool,
    /// True if attention's output projection has a bias (some Llamas).
    pub output_bias: bool,
    /// True if the MLP's projections have biases (some Llamas).
    pub mlp_bias: bool,
    /// Ids that end the sequence.
    pub eos_token_ids: Vec<u32>,
}

impl ModelConfig {
    /// Parses the text of a `config.json`.
    ///
    /// # Errors
    /// If the text is not JSON, is inconsistent, or requires something that day 5's model doesn't
    /// implement. The message names the key and the value.
    pub fn from_json(text: &str) -> Result<Self> {
        let json: Value = python_json::parse(text).context("not a model configuration")?;
        let keys = json.as_object().context("not a model configuration: expected a JSON object")?;
        let config = Keys(keys).resolve()?;
        config.check()?;
        Ok(config)
    }

    /// Takes the EOS ids from a `generation_config.json`, which overrides `config.json`, as in
    /// transformers. If it has none, the ids from `config.json` stay in effect, as in vLLM; in
    /// transformers, the text would never end.
    ///
    /// # Errors
    /// If its `eos_token_id` is neither an id, nor a list of ids, nor null.
    pub fn take_eos_ids(&mut self, generation_config: &Value) -> Result<()> {
        let eos = generation_config.get("eos_token_id").filter(|eos| !eos.is_null());
        if let Some(eos) = eos {
            self.eos_token_ids = token_ids(eos)?;
        }
        Ok(())
    }

    /// Returns the approximate number of weights in the matrices, enough to distinguish a small
    /// model from a large one.
    pub fn size(&self) -> usize {
        let (c, q) = (self.hidden_size, self.num_attention_heads * self.head_dim);
        let attention = 2 * c * q + 2 * c * self.num_key_value_heads * self.head_dim;
        let mlp = if self.family == Family::Gpt2 { 2 } else { 3 } * c * self.intermediate_size;
        let tables = if self.tie_word_embeddings { 1 } else { 2 };
        self.num_hidden_layers * (attention + mlp) + tables * self.vocab_size * c
    }

    /// Rejects impossible sizes. The bounds are far above any published model.
    fn check(&self) -> Result<()> {
        for (key, value, limit) in [
            ("vocab_size", self.vocab_size, 1 << 22),
            ("hidden_size", self.hidden_size, 1 << 17),
            ("intermediate_size", self.intermediate_size, 1 << 19),
            ("num_hidden_layers", self.num_hidden_layers, 1 << 10),
            ("num_attention_heads", self.num_attention_heads, 1 << 10),
            ("num_key_value_heads", self.num_key_value_heads, 1 << 10),
            ("head_dim", self.head_dim, 1 << 12),
            ("max_position_embeddings", self.max_position_embeddings, 1 << 26),
        ] {
            ensure!(value > 0, "{key} is 0; it must be at least 1");
            ensure!(
                value <= limit,
                "{key} is {value}, a value that no model has; is the file damaged?"
            );
        }
        let (heads, kv) = (self.num_attention_heads, self.num_key_value_heads);
        ensure!(
            heads % kv == 0,
            "num_attention_heads is {heads}, not a multiple of num_key_value_heads, {kv}"
        );
        ensure!(
            self.head_dim.is_multiple_of(2) || self.family == Family::Gpt2,
            "head_dim is {}; RoPE needs an even one",
            self.head_dim
        );
        ensure!(
            self.norm_eps.is_finite() && self.norm_eps > 0.0,
            "the norm's epsilon is {}; it must be above 0",
            self.norm_eps
        );
        ensure!(
            self.rope_theta.is_finite() && self.rope_theta > 0.0,
            "rope_theta is {}; it must be above 0",
            self.rope_theta
        );
        Ok(())
    }
}

/// The keys of a `config.json`. A null key counts as absent, and one key can have several names:
/// GPT-2's own and the common one (`attribute_map` in HF's `GPT2Config`).
struct Keys<'a>(&'a Map<String, Value>);

const HIDDEN_SIZE: &[&str] = &["hidden_size", "n_embd"];
const INTERMEDIATE_SIZE: &[&str] = &["intermediate_size", "n_inner"];
const LAYERS: &[&str] = &["num_hidden_layers", "n_layer"];
const HEADS: &[&str] = &["num_attention_heads", "n_head"];
const CONTEXT: &[&str] = &["max_position_embeddings", "n_positions"];
const EPSILON: &[&str] = &["rms_norm_eps", "layer_norm_epsilon"];
const ACTIVATION: &[&str] = &["hidden_act", "activation_function"];

/// The names of SiLU and of GELU's tanh approximation (HF `ACT2FN`).
const SILU: &[&str] = &["silu", "swish"];
const GELU_TANH: &[&str] =
    &["gelu_new", "gelu_pytorch_tanh", "gelu_python_tanh", "gelu_fast", "gelu_accurate"];

impl Keys<'_> {
    fn resolve(&self) -> Result<ModelConfig> {
        let family = self.family()?;
        let gpt2 = family == Family::Gpt2;
        let context = self.count(CONTEXT)?.unwrap_or(default_context(family));
        self.refuse_other_mathematics(family, context)?;
        // GPT-2 has none of these keys, and transformers doesn't read them for it.
        let (rope_theta, rope_scaling) = if gpt2 { (10_000.0, None) } else { self.rope(context)? };
        let [kv_heads, head_dim] = if gpt2 {
            [None; 2]
        } else {
            [self.count(&["num_key_value_heads"])?, self.count(&["head_dim"])?]
        };
        let hidden_size = need(HIDDEN_SIZE, self.count(HIDDEN_SIZE)?)?;
        let heads = need(HEADS, self.count(HEADS)?)?;
        ensure!(heads > 0, "num_attention_heads is 0; it must be at least 1");
        let head_dim = match head_dim {
            Some(head_dim) => head_dim,
            // Qwen3Config's default, not hidden_size / heads.
            None if family == Family::Qwen3 => 128,
            None => {
                ensure!(
                    hidden_size % heads == 0,
                    "hidden_size is {hidden_size}, not a multiple of num_attention_heads, {heads}"
                );
                hidden_size / heads
            }
        };
        let intermediate_size = match self.count(INTERMEDIATE_SIZE)? {
            None if gpt2 => hidden_size.saturating_mul(4),
            size => need(&["intermediate_size"], size)?,
        };
        let attention_bias = self.flag("attention_bias")?.unwrap_or(false);
        let eos = self.get(&["eos_token_id"])?.map(|(_, value)| value);
        Ok(ModelConfig {
            family,
            vocab_size: need(&["vocab_size"], self.count(&["vocab_size"])?)?,
            hidden_size,
            intermediate_size,
            num_hidden_layers: need(LAYERS, self.count(LAYERS)?)?,
            num_attention_heads: heads,
            num_key_value_heads: kv_heads.unwrap_or(heads),
            head_dim,
            max_position_embeddings: context,
            norm_eps: self.number(EPSILON)?.unwrap_or(if gpt2 { 1e-5 } else { 1e-6 }),
            rope_theta,
            rope_scaling,
            tie_word_embeddings: self.flag("tie_word_embeddings")?.unwrap_or(gpt2),
            qkv_bias: attention_bias || gpt2 || family == Family::Qwen2,
            output_bias: (attention_bias && family != Family::Qwen2) || gpt2,
            mlp_bias: self.flag("mlp_bias")?.unwrap_or(false) || gpt2,
            eos_token_ids: eos.map_or(Ok(Vec::new()), token_ids)?,
        })
    }

    fn family(&self) -> Result<Family> {
        let family = match self.text(&["model_type"])? {
            Some("gpt2") => Family::Gpt2,
            Some("llama") => Family::Llama,
            Some("qwen2") => Family::Qwen2,
            Some("qwen3") => Family::Qwen3,
            Some(other) => {
                let other = quoted(other);
                bail!("model_type is {other}; candecode runs gpt2, llama, qwen2 and qwen3")
            }
            None => bail!("no model_type; candecode runs gpt2, llama, qwen2 and qwen3"),
        };
        let names = if family == Family::Gpt2 { GELU_TANH } else { SILU };
        let found = self.text(ACTIVATION)?.unwrap_or(names[0]);
        ensure!(
            names.contains(&found),
            "the activation is {}; for this model_type candecode supports \"{}\"",
            quoted(found),
            names[0]
        );
        Ok(family)
    }

    /// Rejects options that change the output in transformers but that day 5's model doesn't
    /// implement. Ignoring them would produce different text.
    ///
    /// GPT-2's `reorder_and_upcast_attn` is accepted: it only makes attention use f32, which ours
    /// always does.
    fn refuse_other_mathematics(&self, family: Family, context: usize) -> Result<()> {
        self.refuse_windows(family, context)?;
        for (key, done, instead) in [
            (
                "scale_attn_weights",
                true,
                "candecode divides the scores by √head_dim in every layer",
            ),
            (
                "scale_attn_by_inverse_layer_idx",
                false,
                "candecode scales the scores the same way in every layer",
            ),
            ("is_causal", true, "candecode supports only causal attention"),
            ("is_encoder_decoder", false, "candecode runs only decoders"),
        ] {
            let found = self.flag(key)?.unwrap_or(done);
            ensure!(found == done, "{key} is {found}; {instead}");
        }
        let partial = self.number(&["partial_rotary_factor"])?.unwrap_or(1.0);
        ensure!(
            partial == 1.0,
            "partial_rotary_factor is {partial}; candecode rotates the whole head"
        );
        ensure!(
            !self.has("quantization_config"),
            "quantization_config: the weights are quantized; candecode reads f32, bf16 and f16; \
                use the model they were made from"
        );
        let layers = self.0.get("per_layer_config").filter(|layers| !is_empty(layers));
        ensure!(
            layers.is_none(),
            "per_layer_config: candecode uses one configuration for all layers"
        );
        Ok(())
    }

    /// Rejects attention windows, unless every layer still sees the whole context.
    fn refuse_windows(&self, family: Family, context: usize) -> Result<()> {
        // Qwen's window has no effect without this switch (HF `Qwen2Config.__post_init__`).
        let qwen = matches!(family, Family::Qwen2 | Family::Qwen3);
        let switch = qwen && self.flag("use_sliding_window")?.unwrap_or(false);
        let window = match (qwen, switch) {
            (true, false) => None,
            (true, true) if !self.0.contains_key("sliding_window") => Some(4096),
            _ => self.count(&["sliding_window"])?,
        };
        let chunk = self.count(&["attention_chunk_size"])?.filter(|chunk| *chunk < context);
        ensure!(
            chunk.is_none(),
            "attention_chunk_size is {}; candecode supports only full attention",
            chunk.unwrap_or(0)
        );
        let kinds = self.list("layer_types")?;
        let shorter = window.is_some_and(|window| window < context);
        let full = |kind: &Value| match kind.as_str() {
            Some("full_attention" | "attention") => true,
            Some("sliding_attention") => window.is_some() && !shorter,
            _ => false,
        };
        if let Some(kind) = kinds.into_iter().flatten().find(|kind| !full(kind)) {
            bail!("layer_types has {}; candecode supports only \"full_attention\"", shown(kind))
        }
        if kinds.is_some() || !shorter {
            return Ok(());
        }
        let window = window.unwrap_or(0);
        if !qwen {
            bail!("sliding_window is {window}; candecode supports only full attention")
        }
        let first = self.count(&["max_window_layers"])?.unwrap_or(28);
        let layers = self.count(LAYERS)?.unwrap_or(0);
        ensure!(
            first >= layers,
            "use_sliding_window is true, with sliding_window {window} from layer {first} on; \
                candecode supports only full attention"
        );
        Ok(())
    }

    /// Reads RoPE's base and scaling. transformers 5 writes `rope_parameters`; version 4 wrote
    /// `rope_theta` and `rope_scaling`. Both are supported, and `rope_scaling` takes precedence
    /// over `rope_parameters`, as in transformers (`convert_rope_params_to_dict`).
    fn rope(&self, context: usize) -> Result<(f64, Option<Llama3Scaling>)> {
        let [old, new] = ["rope_scaling", "rope_parameters"]
            .map(|key| self.0.get(key).filter(|table| !is_empty(table)));
        let table = match old.or(new) {
            None => &Map::new(),
            Some(table) => table.as_object().context("rope_parameters is not a table")?,
        };
        if let Some((key, _)) = table.iter().find(|(_, value)| value.is_object()) {
            let key = quoted(key);
            bail!("rope_parameters has a table for {key} alone; candecode uses one for all layers")
        }
        if let Some(factor) = table.get("partial_rotary_factor").filter(|f| f.as_f64() != Some(1.0))
        {
            bail!("partial_rotary_factor is {}; candecode rotates the whole head", shown(factor))
        }
        let theta = match table.get("rope_theta") {
            Some(theta) => theta.as_f64().context("rope_parameters.rope_theta is not a number")?,
            None => self.number(&["rope_theta"])?.unwrap_or(10_000.0),
        };
        let kind = table.get("rope_type").or(table.get("type"));
        let scaling = match kind.map(|kind| kind.as_str()) {
            None | Some(Some("default")) => None,
            // Linear scaling divides every position by the factor, so a factor of 1 changes
            // nothing.
            Some(Some("linear")) if table.get("factor").and_then(Value::as_f64) == Some(1.0) => {
                None
            }
            Some(Some("llama3")) => {
                let [low, high] = [
                    positive(table, "low_freq_factor", None)?,
                    positive(table, "high_freq_factor", None)?,
                ];
                ensure!(
                    low < high,
                    "rope_parameters.high_freq_factor is {high}; it must be above low_freq_factor \
                        {low}"
                );
                // As in `standardize_rope_params`, the outer key takes precedence, and the context
                // is the default.
                const TRAINED: &str = "original_max_position_embeddings";
                let trained = match self.number(&[TRAINED])? {
                    Some(trained) => trained,
                    None => positive(table, TRAINED, Some(context as f64))?,
                };
                ensure!(trained > 0.0, "{TRAINED} must be a number above 0");
                Some(Llama3Scaling {
                    factor: positive(table, "factor", None)?,
                    low_freq_factor: low,
                    high_freq_factor: high,
                    original_max_position_embeddings: trained,
                })
            }
            Some(_) => {
                let kind = kind.map_or(String::new(), shown);
                bail!("rope_type is {kind}; candecode supports \"default\" and \"llama3\"")
            }
        };
        Ok((theta, scaling))
    }

    fn has(&self, key: &str) -> bool {
        self.0.get(key).is_some_and(|value| !value.is_null())
    }

    /// Returns a key's value and the name it was found under.
    fn get<'k>(&self, names: &[&'k str]) -> Result<Option<(&'k str, &Value)>> {
        let mut found = names.iter().filter_map(|name| {
            self.0.get(*name).filter(|value| !value.is_null()).map(|value| (*name, value))
        });
        let Some((name, value)) = found.next() else { return Ok(None) };
        for (other, another) in found {
            let same = match (value.as_f64(), another.as_f64()) {
                (Some(a), Some(b)) => a == b, // 64 and 64.0
                _ => value == another,
            };
            ensure!(
                same,
                "{name} is {} and {other} is {}; they are two names of one key, so leave out the \
                    wrong one",
                shown(value),
                shown(another)
            );
        }
        Ok(Some((name, value)))
    }

    fn read<'v, T>(
        &'v self,
        names: &[&str],
        kind: &str,
        as_kind: impl Fn(&'v Value) -> Option<T>,
    ) -> Result<Option<T>> {
        let Some((name, value)) = self.get(names)? else { return Ok(None) };
        let read = as_kind(value);
        read.map(Some).with_context(|| format!("{name} is {}; expected {kind}", shown(value)))
    }

    /// Reads a whole number, which may be written as 64.0.
    fn count(&self, names: &[&str]) -> Result<Option<usize>> {
        self.read(names, "a whole number", |value| {
            let whole = |n: f64| (0.0..=9e15).contains(&n) && n.fract() == 0.0;
            let whole = value.as_f64().filter(|n| whole(*n)).map(|n| n as u64);
            usize::try_from(value.as_u64().or(whole)?).ok()
        })
    }

    fn number(&self, names: &[&str]) -> Result<Option<f64>> {
        self.read(names, "a number", Value::as_f64)
    }

    fn flag(&self, name: &str) -> Result<Option<bool>> {
        self.read(&[name], "true or false", Value::as_bool)
    }

    fn text(&self, names: &[&str]) -> Result<Option<&str>> {
        self.read(names, "a string", Value::as_str)
    }

    fn list(&self, name: &str) -> Result<Option<&Vec<Value>>> {
        self.read(&[name], "a list", Value::as_array)
    }
}

/// Returns the context length that transformers assumes if the configuration has none. It has
/// defaults for other sizes, too, but the weights' shapes show those, so they're required here.
fn default_context(family: Family) -> usize {
    match family {
        Family::Gpt2 => 1024,
        Family::Llama => 2048,
        Family::Qwen2 | Family::Qwen3 => 32_768,
    }
}

/// Returns true for null and for an empty table.
fn is_empty(value: &Value) -> bool {
    value.is_null() || value.as_object().is_some_and(Map::is_empty)
}

fn positive(table: &Map<String, Value>, key: &str, default: Option<f64>) -> Result<f64> {
    let found = match table.get(key) {
        None => default,
        Some(value) => value.as_f64(),
    };
    found
        .filter(|value| *value > 0.0)
        .with_context(|| format!("rope_parameters.{key} must be a number above 0"))
}

fn need(names: &[&str], value: Option<usize>) -> Result<usize> {
    value.with_context(|| match names {
        [name, own] => format!("no {name} ({own})"),
        _ => format!("no {}", names.join(", ")),
    })
}

/// Parses `eos_token_id`: a number, a list, or null.
fn token_ids(value: &Value) -> Result<Vec<u32>> {
    let id = |value: &Value| {
        let id = value.as_u64().and_then(|id| u32::try_from(id).ok());
        id.with_context(|| {
            format!("eos_token_id is {}; expected a token id or a list of them", shown(value))
        })
    };
    match value {
        Value::Null => Ok(Vec::new()),
        Value::Array(list) => list.iter().map(id).collect(),
        one => Ok(vec![id(one)?]),
    }
}
