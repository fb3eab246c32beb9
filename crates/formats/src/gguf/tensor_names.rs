//! Maps Hugging Face tensor names to GGUF's, and reorders llama.cpp's rows to match Hugging Face.

use candle_core::{bail, Result, Tensor};

/// Returns the GGUF name of the tensor that a folder calls `name`.
pub fn stored(name: &str) -> Option<String> {
    let (place, kind) = name.rsplit_once('.')?;
    let bare = place.strip_prefix("model.").or(place.strip_prefix("transformer."));
    let place = bare.unwrap_or(place);
    let stored = match place {
        "embed_tokens" | "wte" => "token_embd".to_string(),
        "wpe" => "position_embd".to_string(),
        "norm" | "ln_f" => "output_norm".to_string(),
        "lm_head" => "output".to_string(),
        _ => {
            let (_, rest) = place.split_once('.')?; // layers, or h
            let (layer, part) = rest.split_once('.')?;
            let part = match part {
                "input_layernorm" | "ln_1" => "attn_norm",
                "post_attention_layernorm" | "ln_2" => "ffn_norm",
                "self_attn.q_proj" => "attn_q",
                "self_attn.k_proj" => "attn_k",
                "self_attn.v_proj" => "attn_v",
                "self_attn.q_norm" => "attn_q_norm",
                "self_attn.k_norm" => "attn_k_norm",
                "self_attn.o_proj" | "attn.c_proj" => "attn_output",
                "attn.c_attn" => "attn_qkv",
                "mlp.gate_proj" => "ffn_gate",
                "mlp.up_proj" | "mlp.c_fc" => "ffn_up",
                "mlp.down_proj" | "mlp.c_proj" => "ffn_down",
                _ => return None,
            };
            format!("blk.{layer}.{part}")
        }
    };
    Some(format!("{stored}.{kind}"))
}

/// Returns the part of a layer that a GGUF tensor belongs to: `attn_q` for `blk.3.attn_q.weight`.
pub fn part(stored: &str) -> &str {
    stored.split('.').nth(2).unwrap_or_default()
}

/// Reorders the rows of a Llama's q or k, `(H * D, …)`, to Hugging Face's order.
///
/// RoPE rotates pairs of rows. llama.cpp stores them interleaved, with the two rows of a pair next
/// to each other, as in the paper. Hugging Face stores the first of every pair in the first half of
/// a head and the second in the second half (NeoX style).
///
/// # Errors
/// If the rows don't divide into `heads` heads of even width.
pub fn unpermuted(tensor: &Tensor, heads: Option<u64>) -> Result<Tensor> {
    let (shape, heads) = (tensor.dims(), heads.unwrap_or(0) as usize);
    let rows = shape.first().copied().unwrap_or(0);
    if heads == 0 || !rows.is_multiple_of(2 * heads) {
        bail!("{rows} rows don't divide into {heads} heads of even width")
    }
    let pairs = tensor.reshape((heads, rows / heads / 2, 2, ()))?; // (H, D / 2, 2, …)
    pairs.transpose(1, 2)?.reshape(shape)
}
