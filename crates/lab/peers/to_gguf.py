"""Converts a Llama folder to a GGUF file in f32 or bf16, with the names and metadata that llama.cpp expects.

usage: python to_gguf.py MODEL_DIR OUT.gguf f32|bf16
Leaves out the tokenizer, because the benchmark uses ids. Norms stay f32, as in llama.cpp's own converter.
"""

import json
import pathlib
import sys

import gguf
import numpy as np
import torch
from safetensors.torch import load_file


def interleaved(t, heads):
    """Reorders the rows of each head for llama.cpp's RoPE, which rotates adjacent pairs where ours rotates halves."""
    return t.reshape(heads, 2, t.shape[0] // heads // 2, t.shape[1]).transpose(1, 2).reshape(t.shape)


def write(folder, out, dtype):
    folder = pathlib.Path(folder)
    config = json.loads((folder / "config.json").read_text())
    if config["model_type"] != "llama":
        sys.exit(f"{folder} is a {config['model_type']} model; this script writes llama models only")
    heads, kv_heads = config["num_attention_heads"], config["num_key_value_heads"]
    theta = config.get("rope_theta") or config.get("rope_parameters", {}).get("rope_theta", 10000.0)
    w = gguf.GGUFWriter(out, "llama")
    w.add_name(folder.name)
    w.add_block_count(config["num_hidden_layers"])
    w.add_context_length(config["max_position_embeddings"])
    w.add_embedding_length(config["hidden_size"])
    w.add_feed_forward_length(config["intermediate_size"])
    w.add_head_count(heads)
    w.add_head_count_kv(kv_heads)
    w.add_layer_norm_rms_eps(config["rms_norm_eps"])
    w.add_rope_freq_base(theta)
    w.add_rope_dimension_count(config["hidden_size"] // heads)
    w.add_vocab_size(config["vocab_size"])
    w.add_tokenizer_model("no_vocab")
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.LLAMA, config["num_hidden_layers"])
    for key, t in load_file(folder / "model.safetensors").items():
        if key == "lm_head.weight" and config.get("tie_word_embeddings"):
            continue
        t = t.float()
        if "q_proj" in key or "k_proj" in key:
            t = interleaved(t, heads if "q_proj" in key else kv_heads)
        name = names.get_name(key, try_suffixes=(".weight", ".bias"))
        if dtype == "bf16" and t.dim() == 2:
            bits = t.contiguous().to(torch.bfloat16).view(torch.uint8).numpy()
            w.add_tensor(name, bits, raw_dtype=gguf.GGMLQuantizationType.BF16)
        else:
            w.add_tensor(name, np.ascontiguousarray(t.numpy()))
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()


if __name__ == "__main__":
    write(*sys.argv[1:4])
