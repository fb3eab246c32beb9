"""Day 19: blocks as llama.cpp's own functions write and read them (through ctypes, from the library in the wheel of
llama-cpp-python), and perplexity and KL divergence as torch computes them."""
import ctypes, importlib.metadata, importlib.util, pathlib

import numpy as np
import torch

# ggml's numbers of the types (enum ggml_type), and the bytes of a block of 32 numbers.
KINDS = {"q4_0": (2, 18), "q4_1": (3, 20), "q8_0": (8, 34)}


def library():
    """llama.cpp's own code: libggml-base, which quantizes."""
    package = pathlib.Path(importlib.util.find_spec("llama_cpp").origin).parent
    found = [path for path in sorted(package.glob("lib/*ggml-base*")) if path.suffix in (".so", ".dylib", ".dll")]
    ggml = ctypes.CDLL(str(found[0]))
    ggml.ggml_quantize_chunk.restype = ctypes.c_size_t
    ggml.ggml_quantize_chunk.argtypes = [
        ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p]
    return ggml


def blocks():
    """Rows of 32 numbers: what a rule can get wrong, then numbers at random, of many sizes."""
    def row(*first):
        return np.array(first + (0.0,) * (32 - len(first)), dtype=np.float32)

    ramp = np.arange(32, dtype=np.float32)
    made = [
        row(),
        row(1.0),
        row(-1.0),
        row(127.0, 0.5, -0.5, 1.5, 2.5, -2.5, 63.5, -63.5),  # halves, in steps of 1
        row(8.0, -8.0, 7.5, 0.5, -0.5, 1.5),  # two extremes, the positive one first
        row(-8.0, 8.0, 7.5, 0.5, -0.5, 1.5),  # and the negative one
        row(1e-7, -3e-8),  # the scale is a subnormal number of f16, or 0
        row(1e-30, 2e-31),
        row(50000.0, -12345.0, 3.0),
        ramp - 16, 16 - ramp, ramp / 31, -ramp,
    ]
    random = np.random.default_rng(19)
    for size in (1e-3, 0.02, 1.0, 300.0):
        made += [(size * random.standard_normal(32)).astype(np.float32) for _ in range(12)]
    return np.stack(made)


@torch.no_grad()
def generate(oracle):
    ggml = library()
    oracle.data["llama-cpp-python"] = importlib.metadata.version("llama-cpp-python")
    x = np.ascontiguousarray(blocks())
    oracle.tensor("x", torch.from_numpy(x))
    for name, (kind, size) in KINDS.items():
        out = np.zeros((len(x), size), dtype=np.uint8)
        written = ggml.ggml_quantize_chunk(kind, x.ctypes.data, out.ctypes.data, 0, len(x), 32, None)
        assert written == out.size, (name, written)
        back = np.zeros_like(x)
        dequantize = getattr(ggml, f"dequantize_row_{name}")
        dequantize.restype = None
        dequantize.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64]
        dequantize(out.ctypes.data, back.ctypes.data, x.size)
        oracle.tensor(name, torch.from_numpy(out))
        oracle.tensor(f"{name}.back", torch.from_numpy(back))

    g = torch.Generator().manual_seed(19)
    logits = 3 * torch.randn(24, 40, generator=g)
    p = torch.log_softmax(logits, -1)
    q = torch.log_softmax(logits + 0.3 * torch.randn(24, 40, generator=g), -1)
    tokens = torch.randint(0, 40, (24,), generator=g)
    oracle.tensor("p", p)
    oracle.tensor("q", q)
    oracle.tensor("tokens", tokens.to(torch.uint32))
    p, q = p.double(), q.double()
    oracle.data["perplexity"] = torch.nn.functional.nll_loss(p[:-1], tokens[1:]).exp().item()
    oracle.data["kl"] = torch.nn.functional.kl_div(q, p, log_target=True, reduction="batchmean").item()
