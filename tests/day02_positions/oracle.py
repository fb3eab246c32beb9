"""Day 2: HF's rotary embedding at given positions, its Llama 3 scaling, its conversion of weights, GPT-2's positions."""
import common
import torch
from transformers import LlamaConfig
from transformers.models.qwen2 import modeling_qwen2
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding, apply_rotary_pos_emb

LLAMA3 = {"rope_type": "llama3", "rope_theta": 500000.0, "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
          "original_max_position_embeddings": 64}

STORY = """Once upon a time, there was a little girl named Lily. She had a red ball. One day, Lily went to the park with her mom.
She saw a boy named Tom. Tom was sad because he lost his dog. "Do not cry," said Lily. "I will help you find him." They looked
under the trees and behind the big rock. Then they heard a sound. The dog was in the bushes! He had found a big bone. Tom was
so happy. He hugged his dog and said thank you to Lily. They all played with the red ball until the sun went down.""".replace("\n", " ")


def neighbors(q, k, cos, sin, **_):
    """RoPE in the layout that these weights are not made for: numbers 2i and 2i + 1 turn together."""
    half = cos.shape[-1] // 2
    cos, sin = cos[:, None, :, :half], sin[:, None, :, :half]

    def turn(x):
        a, b = x[..., 0::2], x[..., 1::2]
        return torch.stack((a * cos - b * sin, b * cos + a * sin), dim=-1).flatten(-2)

    return turn(q), turn(k)


def losses():
    """Mean -ln p of a story's tokens under right and wrong positions, for the chapter's figure."""
    rope, model, gpt2 = modeling_qwen2.apply_rotary_pos_emb, common.model("story-3m"), common.model("story-gpt2-1m")
    ids = common.tokenizer()(STORY, return_tensors="pt").input_ids
    count = torch.arange(ids.shape[1])[None]
    found = {"tokens": ids.shape[1]}

    def loss(name, model, positions):
        with torch.no_grad():
            logprobs = model(ids, position_ids=positions).logits[0, :-1].log_softmax(-1)
        found[name] = -logprobs.gather(1, ids[0, 1:, None]).mean().item()

    try:
        for name, other in {"right": rope, "neighbors": neighbors, "none": lambda q, k, cos, sin, **_: (q, k),
                            "backwards": lambda q, k, cos, sin, **_: rope(q, k, cos, -sin),
                            "swapped": lambda q, k, cos, sin, **_: rope(q, k, sin, cos)}.items():
            modeling_qwen2.apply_rotary_pos_emb = other
            loss(name, model, count)
    finally:
        modeling_qwen2.apply_rotary_pos_emb = rope
    loss("all 300 later", model, count + 300)
    loss("gpt2: right", gpt2, count)
    loss("gpt2: all 100 later", gpt2, count + 100)
    loss("gpt2: all 0", gpt2, count * 0)
    return found


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

    oracle.data["losses"] = losses()
