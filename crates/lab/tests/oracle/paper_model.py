"""Writes models/paper: a Llama of 5 words, width 4 and two layers, small enough to compute by hand.

Its weights were found by a search for small whole numbers that make it write "the cat and the dog ." (the second
"the" is followed by another word than the first, so attention has something to do). They are literals here, and this
script also computes the model's numbers once more with NumPy alone, as an oracle for paper_model.rs:

    pip install numpy==2.4.6 safetensors==0.8.0 tokenizers==0.23.3
    python crates/lab/tests/oracle/paper_model.py
"""
import json
from pathlib import Path

import numpy as np
from safetensors.numpy import save_file
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

ROOT = Path(__file__).resolve().parents[4]
WORDS = ["the", "cat", "and", "dog", "."]
TEXT = [0, 1, 2, 0, 3, 4]  # the cat and the dog .
EMBEDDING = [[0, 1, 2, 1], [0, -2, 0, 2], [0, 0, 0, -1], [-2, 1, 0, 0], [0, 2, 0, 0]]
LAYERS = [
    {
        "q": [[0, -1, 0, 1], [0, 0, 0, 0], [0, 0, 1, 0], [-1, 0, 0, 0]],
        "k": [[0, 1, 0, 0], [0, 0, 0, 2]],
        "v": [[0, 0, 0, 2], [0, 0, 1, 0]],
        "o": [[0, 0, -1, 0], [-1, 0, 0, -1], [0, 0, 0, 2], [-1, 0, 0, 0]],
        "gate": [[0, -1, -1, 0]],
        "up": [[0, 1, -1, 0]],
        "down": [[-2], [-2], [0], [1]],
    },
    {
        "q": [[0, -1, 0, 0], [0, 0, 0, 0], [0, 0, 0, 0], [0, 0, 0, 0]],
        "k": [[0, 0, 0, 0], [0, 0, 1, 0]],
        "v": [[0, 0, 0, 0], [-2, -1, 0, 0]],
        "o": [[0, 0, 0, 0], [0, 0, 0, 0], [0, -2, 0, 0], [0, 0, 0, 0]],
        "gate": [[0, 0, 0, 0]],
        "up": [[0, 0, 0, 0]],
        "down": [[0], [0], [0], [0]],
    },
]
HEADS, HEAD_DIM, EPS = 2, 2, 1e-5
NAMES = {
    "q": "self_attn.q_proj", "k": "self_attn.k_proj", "v": "self_attn.v_proj", "o": "self_attn.o_proj",
    "gate": "mlp.gate_proj", "up": "mlp.up_proj", "down": "mlp.down_proj",
}


def rms_norm(x):
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + EPS)


def rotate(x, angle):
    a, b = x[..., 0], x[..., 1]
    return np.stack([a * np.cos(angle) - b * np.sin(angle), b * np.cos(angle) + a * np.sin(angle)], -1)


def logits(ids, layers=2):
    """The scores after each of these ids, after so many layers."""
    x, positions = np.array(EMBEDDING, float)[ids], np.arange(len(ids))
    for weights in LAYERS[:layers]:
        w = {name: np.array(matrix, float) for name, matrix in weights.items()}
        h = rms_norm(x)
        q = rotate((h @ w["q"].T).reshape(-1, HEADS, HEAD_DIM), positions[:, None])
        k, v = rotate(h @ w["k"].T, positions), h @ w["v"].T
        heads = []
        for head in range(HEADS):
            scores = q[:, head] @ k.T / np.sqrt(HEAD_DIM)
            scores = np.where(np.tril(np.ones_like(scores)) > 0, scores, -np.inf)
            shares = np.exp(scores - scores.max(-1, keepdims=True))
            heads.append(shares / shares.sum(-1, keepdims=True) @ v)
        x = x + np.concatenate(heads, -1) @ w["o"].T
        h = rms_norm(x)
        gate = h @ w["gate"].T
        x = x + (gate / (1 + np.exp(-gate)) * (h @ w["up"].T)) @ w["down"].T
    return rms_norm(x) @ np.array(EMBEDDING, float).T


def write(folder):
    folder.mkdir(exist_ok=True)
    one = lambda matrix: np.array(matrix, np.float32)
    tensors = {"model.embed_tokens.weight": one(EMBEDDING), "model.norm.weight": np.ones(4, np.float32)}
    for i, weights in enumerate(LAYERS):
        for name, matrix in weights.items():
            tensors[f"model.layers.{i}.{NAMES[name]}.weight"] = one(matrix)
        for norm in ("input_layernorm", "post_attention_layernorm"):
            tensors[f"model.layers.{i}.{norm}.weight"] = np.ones(4, np.float32)
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    config = {
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": 5, "hidden_size": 4,
        "intermediate_size": 1, "num_hidden_layers": 2, "num_attention_heads": HEADS, "num_key_value_heads": 1,
        "head_dim": HEAD_DIM, "hidden_act": "silu", "max_position_embeddings": 32, "rms_norm_eps": EPS,
        "rope_theta": 10000.0, "tie_word_embeddings": True, "eos_token_id": 4, "torch_dtype": "float32",
    }
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n")
    tokenizer = Tokenizer(models.WordLevel({word: i for i, word in enumerate(WORDS)}, unk_token="."))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.decoder = decoders.WordPiece(prefix="##", cleanup=False)
    tokenizer.save(str(folder / "tokenizer.json"))


if __name__ == "__main__":
    write(ROOT / "models/paper")
    golden = {
        "text": TEXT,
        "logits": logits(TEXT[:-1]).tolist(),
        "after_one_layer": logits(TEXT[:-1], 1).tolist(),
    }
    Path(__file__).with_suffix(".json").write_text(json.dumps(golden) + "\n")
    greedy = [0]
    while greedy[-1] != 4 and len(greedy) < 10:
        greedy.append(int(logits(greedy)[-1].argmax()))
    print(" ".join(WORDS[i] for i in greedy))
