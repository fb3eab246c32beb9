//! `config.json` of the four families, checked before anything is loaded.

use anyhow::{bail, ensure, Context as _, Result};
use serde::Deserialize;
use serde_json::Value;

/// The families that day 5's stack runs.
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

/// How Llama 3.1 and later stretch the low RoPE frequencies (HF `_compute_llama3_parameters`).
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Llama3Scaling {
    /// Low frequencies are divided by this.
    pub factor: f64,
    /// Wavelengths above `original / low_freq_factor` are fully scaled.
    pub low_freq_factor: f64,
    /// Wavelengths below `original / high_freq_factor` are left alone.
    pub high_freq_factor: f64,
    /// The context that the model was first trained for, in tokens.
    pub original_max_position_embeddings: f64,
}

impl Llama3Scaling {
    /// Scales one inverse frequency, in radians a token.
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

/// What a model needs to know of itself. Names are those of `config.json` (GPT-2's are translated).
#[derive(Debug, Clone, PartialEq)]
pub struct ModelConfig {
    /// Which family: it decides norm, positions, MLP and QKV in day 5's stack.
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
    /// The context: positions that the model can tell apart.
    pub max_position_embeddings: usize,
    /// Added to the variance inside a norm.
    pub norm_eps: f64,
    /// RoPE's base; unused by GPT-2.
    pub rope_theta: f64,
    /// Llama 3's stretching of RoPE, if the model asks for it.
    pub rope_scaling: Option<Llama3Scaling>,
    /// The output head is the embedding table.
    pub tie_word_embeddings: bool,
    /// Q, K and V have biases (Qwen2; some Llamas).
    pub qkv_bias: bool,
    /// The attention's output projection has a bias (some Llamas).
    pub output_bias: bool,
    /// The MLP's projections have biases (some Llamas).
    pub mlp_bias: bool,
    /// Ids that end a text.
    pub eos_token_ids: Vec<u32>,
}

/// The keys that are read, all optional here: `resolve` says which one is missing.
#[derive(Deserialize)]
struct Raw {
    model_type: Option<String>,
    vocab_size: Option<usize>,
    #[serde(alias = "n_embd")]
    hidden_size: Option<usize>,
    #[serde(alias = "n_inner")]
    intermediate_size: Option<usize>,
    #[serde(alias = "n_layer")]
    num_hidden_layers: Option<usize>,
    #[serde(alias = "n_head")]
    num_attention_heads: Option<usize>,
    num_key_value_heads: Option<usize>,
    head_dim: Option<usize>,
    #[serde(alias = "n_positions")]
    max_position_embeddings: Option<usize>,
    #[serde(alias = "layer_norm_epsilon")]
    rms_norm_eps: Option<f64>,
    rope_theta: Option<f64>,
    rope_parameters: Option<Value>,
    rope_scaling: Option<Value>,
    tie_word_embeddings: Option<bool>,
    attention_bias: Option<bool>,
    mlp_bias: Option<bool>,
    use_sliding_window: Option<bool>,
    layer_types: Option<Vec<String>>,
    partial_rotary_factor: Option<f64>,
    scale_attn_weights: Option<bool>,
    scale_attn_by_inverse_layer_idx: Option<bool>,
    quantization_config: Option<Value>,
    #[serde(alias = "activation_function")]
    hidden_act: Option<String>,
    eos_token_id: Option<Value>,
}

impl ModelConfig {
    /// Reads the text of a `config.json`.
    ///
    /// # Errors
    /// If it is not JSON, makes no sense, or asks for what day 5's stack does not do: the key and value are named.
    pub fn from_json(text: &str) -> Result<Self> {
        let raw: Raw = serde_json::from_str(text).context("not a model configuration")?;
        let config = raw.resolve()?;
        config.check()?;
        Ok(config)
    }

    /// Takes the ids that end a text from a `generation_config.json`, which goes before `config.json`, as in transformers.
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

    /// Weights of the matrices, roughly: enough to tell a small model from a large one.
    pub fn size(&self) -> usize {
        let (c, q) = (self.hidden_size, self.num_attention_heads * self.head_dim);
        let attention = 2 * c * q + 2 * c * self.num_key_value_heads * self.head_dim;
        let mlp = if self.family == Family::Gpt2 { 2 } else { 3 } * c * self.intermediate_size;
        let tables = if self.tie_word_embeddings { 1 } else { 2 };
        self.num_hidden_layers * (attention + mlp) + tables * self.vocab_size * c
    }

    /// Refuses what no model can be. The bounds are far above every published model.
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
            ensure!(value <= limit, "{key} is {value}, which no model has; is the file damaged?");
        }
        let (heads, kv) = (self.num_attention_heads, self.num_key_value_heads);
        ensure!(
            heads % kv == 0,
            "num_attention_heads is {heads}, which num_key_value_heads {kv} does not divide"
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

impl Raw {
    fn resolve(self) -> Result<ModelConfig> {
        let family = self.family()?;
        let gpt2 = family == Family::Gpt2;
        self.refuse_other_mathematics()?;
        // GPT-2 has none of these, so whatever its file says of them means nothing.
        let (rope_theta, rope_scaling) = if gpt2 { (10_000.0, None) } else { self.rope()? };
        let [kv_heads, head_dim] = match gpt2 {
            true => [None; 2],
            false => [self.num_key_value_heads, self.head_dim],
        };
        let hidden_size = need("hidden_size (n_embd)", self.hidden_size)?;
        let heads = need("num_attention_heads (n_head)", self.num_attention_heads)?;
        ensure!(heads > 0, "num_attention_heads is 0; it must be at least 1");
        let head_dim = match head_dim {
            Some(head_dim) => head_dim,
            None if family == Family::Qwen3 => 128, // Qwen3Config's default, not hidden_size / heads
            None => {
                ensure!(
                    hidden_size % heads == 0,
                    "hidden_size is {hidden_size}, which num_attention_heads {heads} does not divide"
                );
                hidden_size / heads
            }
        };
        let intermediate_size = match self.intermediate_size {
            None if gpt2 => hidden_size.saturating_mul(4),
            size => need("intermediate_size", size)?,
        };
        let attention_bias = self.attention_bias.unwrap_or(false);
        Ok(ModelConfig {
            family,
            vocab_size: need("vocab_size", self.vocab_size)?,
            hidden_size,
            intermediate_size,
            num_hidden_layers: need("num_hidden_layers (n_layer)", self.num_hidden_layers)?,
            num_attention_heads: heads,
            num_key_value_heads: kv_heads.unwrap_or(heads),
            head_dim,
            max_position_embeddings: need(
                "max_position_embeddings (n_positions)",
                self.max_position_embeddings,
            )?,
            norm_eps: self.rms_norm_eps.unwrap_or(if gpt2 { 1e-5 } else { 1e-6 }),
            rope_theta,
            rope_scaling,
            tie_word_embeddings: self.tie_word_embeddings.unwrap_or(gpt2),
            qkv_bias: attention_bias || gpt2 || family == Family::Qwen2,
            output_bias: (attention_bias && family != Family::Qwen2) || gpt2,
            mlp_bias: self.mlp_bias.unwrap_or(false) || gpt2,
            eos_token_ids: self.eos_token_id.as_ref().map_or(Ok(Vec::new()), token_ids)?,
        })
    }

    fn family(&self) -> Result<Family> {
        let family = match self.model_type.as_deref() {
            Some("gpt2") => Family::Gpt2,
            Some("llama") => Family::Llama,
            Some("qwen2") => Family::Qwen2,
            Some("qwen3") => Family::Qwen3,
            Some(other) => {
                bail!("model_type is \"{other}\"; candecode runs gpt2, llama, qwen2 and qwen3")
            }
            None => bail!("no model_type; candecode runs gpt2, llama, qwen2 and qwen3"),
        };
        let wanted = if family == Family::Gpt2 { "gelu_new" } else { "silu" };
        let found = self.hidden_act.as_deref().unwrap_or(wanted);
        ensure!(
            found == wanted,
            "the activation is \"{found}\"; for this model_type candecode has \"{wanted}\""
        );
        Ok(family)
    }

    /// Options that transformers computes with and day 5's stack does not: refused, for other text would come of them.
    ///
    /// GPT-2's `reorder_and_upcast_attn` is none of them: it asks for the products of attention in f32, which they are.
    fn refuse_other_mathematics(&self) -> Result<()> {
        ensure!(
            self.use_sliding_window != Some(true),
            "use_sliding_window is true; candecode has full attention only"
        );
        let kinds = self.layer_types.iter().flatten();
        if let Some(kind) = kinds.into_iter().find(|kind| *kind != "full_attention") {
            bail!("layer_types has \"{kind}\"; candecode has \"full_attention\" only")
        }
        ensure!(
            self.scale_attn_weights != Some(false),
            "scale_attn_weights is false; candecode divides the scores by √head_dim in every layer"
        );
        ensure!(
            self.scale_attn_by_inverse_layer_idx != Some(true),
            "scale_attn_by_inverse_layer_idx is true; candecode scales the scores alike in every layer"
        );
        ensure!(
            self.partial_rotary_factor.unwrap_or(1.0) == 1.0,
            "partial_rotary_factor is {}; candecode turns the whole head",
            self.partial_rotary_factor.unwrap_or(1.0)
        );
        ensure!(
            self.quantization_config.as_ref().is_none_or(Value::is_null),
            "quantization_config: the weights are quantised; candecode reads f32, bf16 and f16, take the model they were made from"
        );
        Ok(())
    }

    /// transformers 5 writes `rope_parameters`, 4 wrote `rope_theta` and `rope_scaling`: both are read, the older first, as
    /// in transformers (`convert_rope_params_to_dict`).
    fn rope(&self) -> Result<(f64, Option<Llama3Scaling>)> {
        let there = |table: &&Value| table.as_object().is_none_or(|table| !table.is_empty());
        let [old, new] = [&self.rope_scaling, &self.rope_parameters]
            .map(|table| table.as_ref().filter(|table| !table.is_null()).filter(there));
        let table = old.or(new);
        if let Some(table) = table {
            let fields = table.as_object().context("rope_parameters is not a table")?;
            if let Some((key, _)) = fields.iter().find(|(_, value)| value.is_object()) {
                bail!("rope_parameters has a table for \"{key}\" alone; candecode has one for all layers")
            }
            if let Some(factor) =
                table.get("partial_rotary_factor").filter(|f| f.as_f64() != Some(1.0))
            {
                bail!("partial_rotary_factor is {factor}; candecode turns the whole head")
            }
        }
        let theta = match table.and_then(|table| table.get("rope_theta")) {
            Some(theta) => theta.as_f64().context("rope_parameters.rope_theta is not a number")?,
            None => self.rope_theta.unwrap_or(10_000.0),
        };
        let kind = table.and_then(|table| table.get("rope_type").or(table.get("type")));
        let scaling = match (kind.map(|kind| kind.as_str()), table) {
            (None, _) | (Some(Some("default")), _) => None,
            (Some(Some("llama3")), Some(table)) => {
                let [low, high] =
                    [number(table, "low_freq_factor")?, number(table, "high_freq_factor")?];
                ensure!(
                    low < high,
                    "rope_parameters.high_freq_factor is {high}; it must be above low_freq_factor {low}"
                );
                Some(Llama3Scaling {
                    factor: number(table, "factor")?,
                    low_freq_factor: low,
                    high_freq_factor: high,
                    original_max_position_embeddings: number(
                        table,
                        "original_max_position_embeddings",
                    )?,
                })
            }
            (Some(_), _) => {
                let kind = kind.map_or(String::new(), ToString::to_string);
                bail!("rope_type is {kind}; candecode has \"default\" and \"llama3\"")
            }
        };
        Ok((theta, scaling))
    }
}

fn number(table: &Value, key: &str) -> Result<f64> {
    let found = table.get(key).and_then(Value::as_f64);
    found
        .filter(|value| *value > 0.0)
        .with_context(|| format!("rope_parameters.{key} must be a number above 0"))
}

fn need(key: &str, value: Option<usize>) -> Result<usize> {
    value.with_context(|| format!("no {key}"))
}

/// `eos_token_id` is a number, a list, or null.
fn token_ids(value: &Value) -> Result<Vec<u32>> {
    let id = |value: &Value| {
        let id = value.as_u64().and_then(|id| u32::try_from(id).ok());
        id.with_context(|| {
            format!("eos_token_id is {value}; expected a token id or a list of them")
        })
    };
    match value {
        Value::Null => Ok(Vec::new()),
        Value::Array(list) => list.iter().map(id).collect(),
        one => Ok(vec![id(one)?]),
    }
}
