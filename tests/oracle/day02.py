"""Day 2: HF's rotary embedding at given positions, its Llama 3 scaling, its conversion of weights, GPT-2's positions."""
import common
import torch
from transformers import LlamaConfig
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding, apply_rotary_pos_emb

LLAMA3 = {"rope_type": "llama3", "rope_theta": 500000.0, "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
          "original_max_position_embeddings": 64}


def rotary(head_dim, theta, scaling=None):
    parameters = scaling or {"rope_type": "default", "rope_theta": theta}
    return LlamaRotaryEmbedding(LlamaConfig(hidden_size=4 * head_dim, num_attention_heads=4, head_dim=head_dim,
                                            max_position_embeddings=8192, rope_parameters=parameters))


def generate(oracle):
    g = torch.Generator().manual_seed(2)
    # Learned positions: the table of the GPT-2 story model, at positions that are neither sorted nor the same in each row.
    wpe = common.model("story-gpt2-1m").transformer.wpe
    at = torch.tensor([[0, 1, 255], [7, 7, 3]])
    oracle.tensor("wpe.positions", at.to(torch.uint32)), oracle.tensor("wpe.rows", wpe(at))

    for head_dim, theta in [(32, 10000.0), (64, 100000.0), (128, 1000000.0)]:
        oracle.tensor(f"inv_freq.{head_dim}", rotary(head_dim, theta).inv_freq)

    # Two rows of a batch: a chunk far into a text, and the beginning of one.
    positions = torch.tensor([[507, 508, 509, 510, 511], [0, 1, 2, 3, 4]])
    rope = rotary(32, 10000.0)
    q, k = torch.randn(2, 5, 5, 32, generator=g), torch.randn(2, 2, 5, 32, generator=g)
    cos, sin = rope(q, positions)
    oracle.tensor("positions", positions.to(torch.uint32)), oracle.tensor("q", q), oracle.tensor("k", k)
    oracle.tensor("cos", cos[..., :16]), oracle.tensor("sin", sin[..., :16])
    turned_q, turned_k = apply_rotary_pos_emb(q, k, cos, sin)
    oracle.tensor("q.turned", turned_q), oracle.tensor("k.turned", turned_k)
    k16 = k.to(torch.bfloat16)
    oracle.tensor("k.turned.bf16", apply_rotary_pos_emb(k16, k16, cos.to(torch.bfloat16), sin.to(torch.bfloat16))[1])

    scaled = rotary(32, None, LLAMA3)
    cos, sin = scaled(q, positions)
    oracle.tensor("llama3.cos", cos[..., :16]), oracle.tensor("llama3.sin", sin[..., :16])

    # The conversion of the original Llama weights: `permute` of HF's convert_llama_weights_to_hf.py.
    w = torch.randn(2 * 8, 3, generator=g)
    oracle.tensor("w", w), oracle.tensor("w.halves", w.view(2, 4, 2, 3).transpose(1, 2).reshape(16, 3))
