"""Day 1: torch's softmax, scaled_dot_product_attention and MultiheadAttention; and one head of a trained model at work."""
import torch
import torch.nn.functional as F
from transformers import AttentionInterface
from transformers.integrations.sdpa_attention import sdpa_attention_forward

import common

TEXT, LAYER, HEAD = "Tom had a red ball. One day, Tom lost the", 1, 4


def trained_head(oracle):
    """Queries, keys and values of one head of story-3m while it reads TEXT, and what transformers makes of them."""
    seen = []

    def tapped(module, q, k, v, mask, **options):
        out, _ = sdpa_attention_forward(module, q, k, v, mask, **options)  # (B, T, H, D)
        group = module.num_key_value_groups
        seen.append((q[:, HEAD], k[:, HEAD // group], v[:, HEAD // group], out[:, :, HEAD]))
        return out, None

    AttentionInterface.register("tapped", tapped)
    tokenizer, model = common.tokenizer(), common.model("story-3m")
    model.set_attn_implementation("tapped")
    ids = tokenizer(TEXT, return_tensors="pt").input_ids
    with torch.no_grad():
        model(ids)
    for name, t in zip(("q", "k", "v", "out"), seen[LAYER]):
        oracle.tensor(f"head.{name}", t[:, None])  # (1, 1, T, D)
    q, k = (t[0] for t in seen[LAYER][:2])
    scores = (q @ k.t() / q.shape[-1] ** 0.5).masked_fill(torch.ones(len(q), len(q)).triu(1).bool(), float("-inf"))
    oracle.data["head"] = {
        "text": TEXT, "model": "story-3m", "layer": LAYER, "head": HEAD,
        "tokens": [tokenizer.decode([i]) for i in ids[0].tolist()],
        "weights": [[round(w, 4) for w in row] for row in scores.softmax(-1).tolist()],
    }


def generate(oracle):
    g = torch.Generator().manual_seed(1)
    q, k, v = (torch.randn(2, 3, t, 8, generator=g) for t in (4, 6, 6))
    causal = torch.ones(4, 6, dtype=torch.bool).tril(diagonal=2)  # 4 new tokens after 2
    oracle.tensor("q", q), oracle.tensor("k", k), oracle.tensor("v", v)
    oracle.tensor("sdpa", F.scaled_dot_product_attention(q, k, v))
    oracle.tensor("sdpa.causal", F.scaled_dot_product_attention(q, k, v, attn_mask=causal))

    x = torch.randn(2, 5, 12, generator=g)
    mha = torch.nn.MultiheadAttention(12, 3, bias=False, batch_first=True).eval()
    with torch.no_grad():
        mha.in_proj_weight.copy_(torch.randn(36, 12, generator=g) * 0.4)
        mha.out_proj.weight.copy_(torch.randn(12, 12, generator=g) * 0.4)
    never = torch.ones(5, 5, dtype=torch.bool).triu(diagonal=1)  # torch's polarity: True may not attend
    oracle.tensor("x", x), oracle.tensor("in_proj", mha.in_proj_weight), oracle.tensor("out_proj", mha.out_proj.weight)
    oracle.tensor("mha", mha(x, x, x, need_weights=False)[0])
    oracle.tensor("mha.causal", mha(x, x, x, attn_mask=never, need_weights=False)[0])

    s = torch.randn(2, 3, 5, generator=g) * 4
    oracle.tensor("s", s), oracle.tensor("softmax.1", s.softmax(1)), oracle.tensor("softmax.2", s.softmax(2))
    trained_head(oracle)
