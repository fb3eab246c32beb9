"""Day 18: torch's scaled_dot_product_attention, in groups and with masks, over more columns than a tile has, and than a split."""
import torch
from torch.nn.functional import scaled_dot_product_attention as sdpa


def padded(padding, new, all):
    """Who may attend, (B, 1, T, S): causal, without each row's padding on the left; a token of padding sees itself."""
    column = torch.arange(all)
    token = torch.arange(all - new, all)
    causal = column[None, :] <= token[:, None]
    real = torch.stack([column >= p for p in padding])
    return ((causal & real[:, None, :]) | (column[None, :] == token[:, None]))[:, None]


def cases():
    # name, rows, query heads, key/value heads, new tokens, columns, numbers of a head, padding of each row
    yield "prompt", 1, 4, 2, 80, 80, 16, [0]
    yield "ragged", 3, 2, 1, 70, 70, 8, [0, 5, 69]
    yield "later", 2, 3, 3, 9, 100, 12, [0, 40]
    yield "decode", 1, 6, 2, 1, 600, 8, [0]
    yield "batch", 2, 4, 1, 1, 130, 16, [0, 63]


@torch.no_grad()
def generate(oracle):
    g = torch.Generator().manual_seed(18)
    for name, rows, heads, kv_heads, new, all, width, padding in cases():
        q = torch.randn(rows, heads, new, width, generator=g)
        k = torch.randn(rows, kv_heads, all, width, generator=g)
        v = torch.randn(rows, kv_heads, all, width, generator=g)
        mask = padded(padding, new, all)
        for part, t in (("q", q), ("k", k), ("v", v), ("mask", mask.to(torch.uint8))):
            oracle.tensor(f"{name}.{part}", t)
        oracle.tensor(f"{name}.out", sdpa(q, k, v, attn_mask=mask, enable_gqa=True))
