"""Day 5: every stage of the story models, and of small random Llamas and a Qwen3, as transformers computes them."""
import torch
from transformers import LlamaConfig, LlamaForCausalLM, Qwen3Config, Qwen3ForCausalLM

from common import STORY, margins, model, tokenizer

SHORT = 6  # tokens of the stage-by-stage goldens
LONG = 128  # tokens of the long text
COLUMNS = 41  # of the long text's logits every 41st is kept, with the best and the log of the sum of exponentials


def tiny(kind, config, seed):
    """Random weights large enough that every part of the model leaves its mark on the logits."""
    g = torch.Generator().manual_seed(seed)
    m = kind(config).eval()
    for name, p in m.named_parameters():
        random = torch.randn(p.shape, generator=g)
        if "norm" in name or (".ln_" in name and name.endswith("weight")):
            p.copy_(1 + 0.4 * random)
        elif any(table in name for table in ("embed", "wte", "wpe")):
            p.copy_(random)
        else:
            p.copy_(0.2 * random)
    return m


def tinies():
    shape = dict(vocab_size=96, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4,
                 max_position_embeddings=64, bos_token_id=0, eos_token_id=0)
    # Wavelengths of 8-wide heads are 6, 63, 628 and 6,283 tokens: with a context of 16 one is smoothed, three are stretched.
    llama3 = dict(rope_type="llama3", rope_theta=10000.0, factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
                  original_max_position_embeddings=16)
    yield "tiny-llama", tiny(LlamaForCausalLM, LlamaConfig(
        **shape, num_key_value_heads=2, tie_word_embeddings=False, attention_bias=True, mlp_bias=True,
        rms_norm_eps=1e-5, rope_parameters=llama3), 51)
    yield "tiny-llama-tied", tiny(LlamaForCausalLM, LlamaConfig(
        **shape, num_key_value_heads=4, tie_word_embeddings=True, rms_norm_eps=1e-5), 52)
    yield "tiny-qwen3", tiny(Qwen3ForCausalLM, Qwen3Config(
        **shape, num_key_value_heads=1, head_dim=16, tie_word_embeddings=True), 53)  # 4 heads of 16 are 64, not 32, wide


def stages(oracle, name, m, ids):
    """What goes in and out of every stage: x.0 = embed, then for each layer attend.i and x.(i + 1), then the logits."""
    gpt2 = hasattr(m, "transformer")
    layers = m.transformer.h if gpt2 else m.model.layers
    first = m.transformer.drop if gpt2 else layers[0]
    hooks, seen = [], {}

    def inputs(key):
        return lambda module, args: seen.__setitem__(key, args[0])

    hooks.append(first.register_forward_pre_hook(inputs("x.0")))
    for i, layer in enumerate(layers):
        between = layer.ln_2 if gpt2 else layer.post_attention_layernorm
        hooks.append(between.register_forward_pre_hook(inputs(f"attend.{i}")))
        after = layers[i + 1] if i + 1 < len(layers) else (m.transformer.ln_f if gpt2 else m.model.norm)
        hooks.append(after.register_forward_pre_hook(inputs(f"x.{i + 1}")))
    seen["logits"] = m(torch.tensor([ids])).logits
    for hook in hooks:
        hook.remove()
    for key, t in seen.items():
        oracle.tensor(f"{name}.{key}", t)
    oracle.tensor(f"{name}.ids", torch.tensor([ids]).to(torch.uint32))
    oracle.decided(f"{name}, {len(ids)} tokens", margins(seen["logits"][0]))


@torch.no_grad()
def generate(oracle):
    prompt = tokenizer()("Once upon a time, there was a little girl named Lily.", return_tensors="pt").input_ids
    text = model("story-3m").generate(prompt, max_new_tokens=LONG - prompt.shape[1], do_sample=False)
    assert text.shape == (1, LONG)
    oracle.data["text"] = text[0].tolist()
    for name in STORY:
        m = model(name)
        stages(oracle, name, m, text[0, :SHORT].tolist())
        logits = m(text).logits[0]
        oracle.decided(f"{name}, {LONG} tokens", margins(logits))
        oracle.data[f"{name}.argmax"] = logits.argmax(-1).tolist()
        oracle.tensor(f"{name}.long", logits[:, ::COLUMNS])
        oracle.tensor(f"{name}.best", logits.amax(-1))
        oracle.tensor(f"{name}.sum", logits.logsumexp(-1))
    for name, m in tinies():
        oracle.folder(name, m)
        ids = torch.randint(0, 96, (20,), generator=torch.Generator().manual_seed(5)).tolist()
        stages(oracle, name, m, ids)
