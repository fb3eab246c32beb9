"""Day 1: torch's softmax, scaled_dot_product_attention and MultiheadAttention."""
import torch
import torch.nn.functional as F


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
