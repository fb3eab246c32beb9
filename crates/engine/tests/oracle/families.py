"""Every family in every format: small models with random weights, and what transformers computes with the numbers that are in
their files. families_page.py makes the book's page of how the engine fares with them.
"""
import pathlib, tempfile

import gguf
import numpy as np
import torch
from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM, Qwen2Config, Qwen2ForCausalLM

from common import margins, tinies, tiny

PROMPT, NEW, LAST = 8, 24, 8  # tokens given, tokens made, positions of which all logits are kept


def models():
    """Day 5's three, and what they leave out: GPT-2, a plain Llama with a head of its own, Qwen2 with its biases."""
    yield from tinies()
    shape = dict(vocab_size=64, hidden_size=24, intermediate_size=40, num_hidden_layers=2, num_attention_heads=4,
                 max_position_embeddings=64, bos_token_id=0, eos_token_id=0)
    yield "tiny-gpt2", tiny(GPT2LMHeadModel, GPT2Config(
        vocab_size=64, n_embd=24, n_layer=2, n_head=4, n_positions=64, bos_token_id=0, eos_token_id=0), 54)
    yield "tiny-llama-plain", tiny(LlamaForCausalLM, LlamaConfig(
        **shape, num_key_value_heads=4, tie_word_embeddings=False, rms_norm_eps=1e-5), 55)
    yield "tiny-qwen2", tiny(Qwen2ForCausalLM, Qwen2Config(
        **shape, num_key_value_heads=2, tie_word_embeddings=False, rope_parameters=dict(rope_type="default", rope_theta=1e6)), 56)


def rounded(model, dtype, which=lambda name, p: True):
    """Its weights as a file of that type has them."""
    state = {k: v.clone() for k, v in model.state_dict().items()}
    for name, p in model.named_parameters():
        if which(name, p):
            p.copy_(p.to(dtype).float())
    return state


def matrices(name, p):
    """What llama.cpp's converter stores in 16 bits; the rest stays f32."""
    return p.dim() == 2 and "wpe" not in name


def greedy(model, prompt):
    """transformers' own choice for NEW tokens, never ending; and the logits of the last positions of all of it."""
    ids = model.generate(torch.tensor([prompt]), do_sample=False, min_new_tokens=NEW, max_new_tokens=NEW, eos_token_id=None,
                         pad_token_id=0)[0]
    logits = model(ids[None]).logits[0]
    return ids.tolist(), logits


def write_gguf(path, name, model, narrow=np.float16, more=lambda w: None):
    """As llama.cpp's convert_hf_to_gguf.py, by the same package: matrices become `narrow`. `more` adds metadata."""
    c = model.config
    arch = {"gpt2": gguf.MODEL_ARCH.GPT2, "llama": gguf.MODEL_ARCH.LLAMA, "qwen2": gguf.MODEL_ARCH.QWEN2,
            "qwen3": gguf.MODEL_ARCH.QWEN3}[c.model_type]
    names = gguf.get_tensor_name_map(arch, c.num_hidden_layers)
    w = gguf.GGUFWriter(path, gguf.MODEL_ARCH_NAMES[arch])
    w.add_name(name)
    more(w)
    w.add_block_count(c.num_hidden_layers)
    w.add_context_length(c.max_position_embeddings)
    w.add_embedding_length(c.hidden_size)
    w.add_head_count(c.num_attention_heads)
    if c.model_type == "gpt2":
        w.add_feed_forward_length(4 * c.hidden_size)
        w.add_layer_norm_eps(c.layer_norm_epsilon)
    else:
        w.add_feed_forward_length(c.intermediate_size)
        w.add_head_count_kv(c.num_key_value_heads)
        w.add_layer_norm_rms_eps(c.rms_norm_eps)
        w.add_rope_freq_base(c.rope_parameters["rope_theta"])
        if c.model_type == "qwen3":
            w.add_key_length(c.head_dim)
            w.add_value_length(c.head_dim)
        else:
            w.add_rope_dimension_count(c.hidden_size // c.num_attention_heads)
        if c.rope_parameters["rope_type"] == "llama3":
            w.add_tensor("rope_freqs.weight", llama3_factors(c))
    conv1d = ("c_attn.weight", "c_proj.weight", "c_fc.weight")
    for key, p in model.named_parameters():
        t = p.detach().numpy()
        if c.model_type == "gpt2" and key.endswith(conv1d):
            t = t.T
        if c.model_type == "llama" and "q_proj" in key:
            t = interleaved(t, c.num_attention_heads)
        if c.model_type == "llama" and "k_proj" in key:
            t = interleaved(t, c.num_key_value_heads)
        t = np.ascontiguousarray(t, dtype=narrow if matrices(key, p) else np.float32)
        w.add_tensor(names.get_name(key, try_suffixes=(".weight", ".bias")), t)
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()


def interleaved(t, heads):
    """llama.cpp's RoPE turns neighbors: the halves of each head are dealt out."""
    return t.reshape(heads, 2, t.shape[0] // heads // 2, *t.shape[1:]).swapaxes(1, 2).reshape(t.shape)


def llama3_factors(c):
    """What llama.cpp divides each frequency by."""
    r, dim = c.rope_parameters, c.hidden_size // c.num_attention_heads
    freqs = 1.0 / r["rope_theta"] ** (torch.arange(0, dim, 2, dtype=torch.float32) / dim)
    low, high, context = r["low_freq_factor"], r["high_freq_factor"], r["original_max_position_embeddings"]
    factors = []
    for wavelength in (2 * np.pi / freqs).tolist():
        if wavelength < context / high:
            factors.append(1)
        elif wavelength > context / low:
            factors.append(r["factor"])
        else:
            smooth = (context / wavelength - low) / (high - low)
            factors.append(1 / ((1 - smooth) / r["factor"] + smooth))
    return np.array(factors, dtype=np.float32)


@torch.no_grad()
def generate(oracle):
    for name, m in models():
        if name not in ("tiny-llama", "tiny-llama-tied", "tiny-qwen3"):  # those are day 5's
            oracle.folder(name, m)
        with tempfile.TemporaryDirectory() as d:
            path = pathlib.Path(d) / "m.gguf"
            write_gguf(path, name, m)
            oracle.file(f"{name}.gguf", path.read_bytes())
        prompt = torch.randint(0, m.config.vocab_size, (PROMPT,), generator=torch.Generator().manual_seed(8)).tolist()
        for disk, dtype, which in [("f32", torch.float32, None), ("bf16", torch.bfloat16, None), ("f16", torch.float16, None),
                                   ("gguf", torch.float16, matrices)]:
            before = rounded(m, dtype, which or (lambda name, p: True))
            ids, logits = greedy(m, prompt)
            oracle.decided(f"{name}, {disk}", margins(logits[PROMPT - 1:-1]))
            oracle.data[f"{name}.{disk}"] = ids
            oracle.tensor(f"{name}.{disk}", logits[-LAST:])
            m.load_state_dict(before)
