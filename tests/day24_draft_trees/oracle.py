"""Day 24: Medusa heads, as torch computes them: a residual block of SiLU for each head, in front of one shared head."""
import torch
import torch.nn.functional as F

HEADS, WIDTH, VOCAB = 3, 16, 40


@torch.no_grad()
def generate(oracle):
    g = torch.Generator().manual_seed(24)
    hidden = torch.randn(1, WIDTH, generator=g)
    lm_head = torch.randn(VOCAB, WIDTH, generator=g)
    logits = []
    for k in range(HEADS):
        weight, bias = torch.randn(WIDTH, WIDTH, generator=g) / 2, torch.randn(WIDTH, generator=g)
        oracle.tensor(f"heads.{k}.weight", weight)
        oracle.tensor(f"heads.{k}.bias", bias)
        logits.append(F.linear(F.silu(F.linear(hidden, weight, bias)) + hidden, lm_head)[0])
    oracle.tensor("hidden", hidden)
    oracle.tensor("lm_head", lm_head)
    oracle.tensor("logits", torch.stack(logits))
