"""Day 4: transformers' attention modules of Llama, Qwen2 and Qwen3, small and with random weights, and its masks."""
import torch
from transformers import DynamicCache, LlamaConfig, Qwen2Config, Qwen3Config
from transformers.masking_utils import create_causal_mask, create_sliding_window_causal_mask
from transformers.models.llama import modeling_llama as llama
from transformers.models.qwen2 import modeling_qwen2 as qwen2
from transformers.models.qwen3 import modeling_qwen3 as qwen3

HEAD_DIM = 8
ROWS, NEW = 2, 5
PADDING = [0, 2]  # row 1 begins with two columns of padding


def config(kind, heads, kv_heads, width, **more):
    shape = dict(hidden_size=width, intermediate_size=8, num_hidden_layers=1, num_attention_heads=heads,
                 num_key_value_heads=kv_heads, max_position_embeddings=64, vocab_size=8, rms_norm_eps=1e-6)
    c = kind(**shape, **more)
    c._attn_implementation = "eager"
    return c


def cases():
    yield "llama", llama, config(LlamaConfig, 4, 2, 32, head_dim=HEAD_DIM)
    yield "llama_bias", llama, config(LlamaConfig, 4, 2, 32, head_dim=HEAD_DIM, attention_bias=True)
    yield "mha", llama, config(LlamaConfig, 3, 3, 24, head_dim=HEAD_DIM)
    yield "mqa", qwen2, config(Qwen2Config, 4, 1, 32)
    yield "qwen2", qwen2, config(Qwen2Config, 6, 2, 48)
    yield "qwen3", qwen3, config(Qwen3Config, 6, 2, 20, head_dim=HEAD_DIM)  # 6 heads of 8 are not 20 wide


def ragged():
    """Who may attend, (B, 1, T, T): causal, without padding; a padding token sees itself, or softmax has nothing to sum."""
    column = torch.arange(NEW)
    causal = column[None, :] <= column[:, None]
    real = torch.stack([column >= padding for padding in PADDING])
    return ((causal & real[:, None, :]) | torch.eye(NEW, dtype=torch.bool))[:, None]


def module(oracle, name, code, config, g):
    kind = {llama: "Llama", qwen2: "Qwen2", qwen3: "Qwen3"}[code]
    attention = getattr(code, f"{kind}Attention")(config, 0).eval()
    rotary = getattr(code, f"{kind}RotaryEmbedding")(config)
    for parameter, p in attention.named_parameters():
        random = torch.randn(p.shape, generator=g)
        p.copy_(1 + 0.5 * random if "norm" in parameter else 0.3 * random)
        oracle.tensor(f"{name}.{parameter}", p)
    x = torch.randn(ROWS, NEW, config.hidden_size, generator=g)
    mask = ragged()
    # Positions of left-padded rows, as transformers counts them; a padding token gets some position in range.
    positions = torch.stack([(torch.arange(NEW) - padding).clamp(min=0) for padding in PADDING])
    never = torch.zeros(mask.shape).masked_fill(~mask, float("-inf"))
    seen = {}
    real = code.eager_attention_forward

    def spy(module, q, k, v, *more, **named):
        mixed, weights = real(module, q, k, v, *more, **named)  # mixed is (B, T, H, D)
        seen.update(q=q, k=k, v=v, mixed=mixed.transpose(1, 2))
        return mixed, weights

    code.eager_attention_forward = spy
    out, _ = attention(x, position_embeddings=rotary(x, positions), attention_mask=never)
    code.eager_attention_forward = real
    oracle.tensor(f"{name}.x", x), oracle.tensor(f"{name}.out", out)
    for part, t in seen.items():
        oracle.tensor(f"{name}.{part}", t)
    biases = [parameter for parameter, _ in attention.named_parameters() if parameter.endswith("bias")]
    oracle.data[name] = {"heads": config.num_attention_heads, "kv_heads": config.num_key_value_heads, "biases": biases}


def masks(oracle):
    """transformers' own masks; of a padding token's row nothing is kept, because there ours differs (see `ragged`)."""
    c = config(LlamaConfig, 4, 2, 32, head_dim=HEAD_DIM)
    for past, new in ((0, 5), (3, 2)):
        cache = DynamicCache()
        if past:
            cache.update(torch.zeros(2, 2, past, HEAD_DIM), torch.zeros(2, 2, past, HEAD_DIM), 0)
        attended = torch.ones(2, past + new, dtype=torch.long)
        attended[1, : PADDING[1]] = 0
        mask = create_causal_mask(c, torch.zeros(2, new, 32), attended, cache)
        oracle.tensor(f"ragged.{past}.{new}", (mask == 0).to(torch.uint8))
        c.sliding_window = 3
        mask = create_sliding_window_causal_mask(c, torch.zeros(1, new, 32), None, cache)
        oracle.tensor(f"sliding.{past}.{new}", (mask == 0).to(torch.uint8))


@torch.no_grad()
def generate(oracle):
    g = torch.Generator().manual_seed(4)
    oracle.tensor("mask", ragged().to(torch.uint8))
    for name, code, c in cases():
        module(oracle, name, code, c, g)
    masks(oracle)
