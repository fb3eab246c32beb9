"""Day 3: torch's LayerNorm, gelu and silu, and transformers' LlamaRMSNorm, NewGELUActivation, LlamaMLP and GPT2MLP.

In bf16 the checks ask for torch's very bits. So every bf16 input here is chosen such that no rounding is a near-tie: the
exact value, computed in f64, stays on its side of the rounding border even if f32 sums in another order, or another exp
or erf, move it by NOISE of the largest term in it. What is closer is thrown away and drawn again.
"""
import math

import torch
import torch.nn.functional as F
from transformers import GPT2Config, LlamaConfig
from transformers.activations import NewGELUActivation
from transformers.models.gpt2.modeling_gpt2 import GPT2MLP
from transformers.models.llama.modeling_llama import LlamaMLP, LlamaRMSNorm

NOISE = 1e-6  # 16 times the rounding of one f32 operation
BF16 = torch.bfloat16


def near_tie(exact, largest):
    """Where f32 noise could round the f64 values the other way."""
    noise = NOISE * torch.as_tensor(largest, dtype=torch.float64)
    return (exact - noise).to(BF16) != (exact + noise).to(BF16)


def rows(draw, normed, n):
    """n random rows whose normed values round without a near-tie."""
    kept = []
    while len(kept) < n:
        row = draw()
        if not near_tie(*normed(row.double())).any():
            kept.append(row)
    return torch.stack(kept)


def same(what, torchs, exact):
    if not torch.equal(torchs, exact.to(BF16)):
        raise SystemExit(f"day03: {what}: torch's bits are not the rounded exact values")


def norms(oracle, g):
    c, eps = 32, 1e-5
    weight, bias = torch.randn(c, generator=g) * 0.5 + 1, torch.randn(c, generator=g)
    x = torch.randn(2, 3, c, generator=g) * 2 + 0.7  # a mean that is not 0
    rms = LlamaRMSNorm(c, eps)
    rms.weight.data = weight
    oracle.tensor("weight", weight), oracle.tensor("bias", bias), oracle.tensor("x", x)
    oracle.tensor("layer_norm", F.layer_norm(x, (c,), weight, bias, eps)), oracle.tensor("rms_norm", rms(x))

    w16, b16 = weight.to(BF16), bias.to(BF16)

    def layer_norm(x):
        d = x - x.mean(-1, keepdim=True)
        n = d / (d.pow(2).mean(-1, keepdim=True) + eps).sqrt()
        return n * w16.double() + b16.double(), (n * w16.double()).abs() + b16.double().abs() + 1

    def root_mean_square(x):
        n = x / (x.pow(2).mean(-1, keepdim=True) + eps).sqrt()
        return n, n.abs()

    draw = lambda: (torch.randn(c, generator=g) * 2 + 0.7).to(BF16)
    x = rows(draw, layer_norm, 6)
    y = F.layer_norm(x, (c,), w16, b16, eps)
    same("layer_norm", y, layer_norm(x.double())[0])
    oracle.tensor("bf16.layer_norm.x", x), oracle.tensor("bf16.layer_norm", y)
    x = rows(draw, root_mean_square, 6)
    rms.weight.data = w16
    y, n = rms(x), root_mean_square(x.double())[0]
    same("rms_norm", y, n.to(BF16).double() * w16.double())
    oracle.tensor("bf16.rms_norm.x", x), oracle.tensor("bf16.rms_norm", y)
    oracle.data["rms_norm: numbers that differ if scaled before rounding"] = int((y != (n * w16.double()).to(BF16)).sum())


def activations(oracle, g):
    x = torch.linspace(-6, 6, 97)
    oracle.tensor("a", x)
    oracle.tensor("gelu_new", NewGELUActivation()(x)), oracle.tensor("gelu", F.gelu(x)), oracle.tensor("silu", F.silu(x))

    cdf = lambda t: 0.5 * (1 + torch.erf(t / math.sqrt(2)))
    tanh = lambda t: 0.5 * (1 + torch.tanh(math.sqrt(2 / math.pi) * (t + 0.044715 * t**3)))
    x = (torch.randn(400, generator=g) * 2).to(BF16)
    x = x[(x.abs() < 3.5) & (x != 0)]  # beyond it 1 + tanh cancels in f32: torch's own tail is noise
    d = x.double()
    shapes = {"gelu_tanh": tanh(d), "gelu": cdf(d), "silu": torch.sigmoid(d)}
    bad = torch.zeros_like(x, dtype=torch.bool)
    for s in shapes.values():
        bad |= near_tie(d * s, d.abs())  # s is 1 minus something: its error is relative to 1
    x, shapes = x[~bad][:96], {name: s[~bad][:96] for name, s in shapes.items()}
    assert len(x) == 96
    torchs = {"gelu_tanh": F.gelu(x, approximate="tanh"), "gelu": F.gelu(x), "silu": F.silu(x)}
    oracle.tensor("bf16.a", x)
    for name, y in torchs.items():
        same(name, y, x.double() * shapes[name])
        oracle.tensor(f"bf16.{name}", y)
    # transformers' own GELU of GPT-2 is written out in torch operations: in bf16 each of them rounds.
    stepwise = NewGELUActivation()(x)
    oracle.tensor("bf16.gelu_new", stepwise)
    apart = (stepwise.double() - torchs["gelu_tanh"].double()).abs() / (x.double().abs() * 2**-8)
    oracle.data["gelu_new in bf16: rounding at every step moves it by at most, in units of x / 256"] = float(apart.max())


def filled(module, g, scale):
    with torch.no_grad():
        for p in module.parameters():
            p.copy_((torch.randn(p.shape, generator=g) * scale).to(BF16))  # so that f32 and bf16 have the same weights
    return module.eval()


def mlps(oracle, g):
    llama, bare = (LlamaConfig(hidden_size=8, intermediate_size=12, num_attention_heads=1, mlp_bias=bias) for bias in (True, False))
    gpt2 = GPT2Config(n_embd=8, n_head=1, activation_function="gelu_new")
    llama, gpt2 = filled(LlamaMLP(llama), g, 0.6), filled(GPT2MLP(12, gpt2), g, 0.6)
    x = torch.randn(2, 3, 8, generator=g).to(BF16).float()
    for name in ("gate", "up", "down"):
        p = getattr(llama, f"{name}_proj")
        oracle.tensor(name, p.weight), oracle.tensor(f"{name}.bias", p.bias)
    for name, p in (("fc", gpt2.c_fc), ("projection", gpt2.c_proj)):  # Conv1D stores (in, out); the door wants (out, in)
        oracle.tensor(name, p.weight.t()), oracle.tensor(f"{name}.bias", p.bias)
    bare = LlamaMLP(bare).eval()
    bare.load_state_dict({k: v for k, v in llama.state_dict().items() if k.endswith("weight")})
    oracle.tensor("m", x), oracle.tensor("llama_mlp", llama(x)), oracle.tensor("llama_mlp.no_bias", bare(x))
    oracle.tensor("gpt2_mlp", gpt2(x))

    # bf16: every product, silu, and the multiplication between them rounds; none of these may be a near-tie.
    w = {k: v.double() for k, v in bare.state_dict().items()}
    r = lambda t: t.to(BF16).double()

    def stages(x):
        out, bad = x, False
        gate, up = x @ w["gate_proj.weight"].t(), x @ w["up_proj.weight"].t()
        size = x.abs() @ w["gate_proj.weight"].abs().t()
        bad |= near_tie(gate, size).any() | near_tie(up, x.abs() @ w["up_proj.weight"].abs().t()).any()
        gate, up = r(gate), r(up)
        gated = gate * torch.sigmoid(gate)
        bad |= near_tie(gated, gate.abs()).any()
        both = r(r(gated) * up)  # exact in f32, so its rounding is no near-tie
        down = both @ w["down_proj.weight"].t()
        bad |= near_tie(down, both.abs() @ w["down_proj.weight"].abs().t()).any()
        return r(down), bool(bad)

    kept = []
    while len(kept) < 6:
        row = torch.randn(8, generator=g).to(BF16)
        if not stages(row.double())[1]:
            kept.append(row)
    x = torch.stack(kept).reshape(2, 3, 8)
    y = bare.to(BF16)(x)
    same("llama_mlp", y, stages(x.double())[0])
    oracle.tensor("bf16.m", x), oracle.tensor("bf16.llama_mlp", y)


def generate(oracle):
    g = torch.Generator().manual_seed(3)
    norms(oracle, g)
    activations(oracle, g)
    mlps(oracle, g)
