"""Day 5: every stage of the story models, and of small random Llamas and a Qwen3, as transformers computes them."""
import torch

from common import STORY, margins, model, tinies, tokenizer

SHORT = 6  # tokens of the stage-by-stage goldens
LONG = 128  # tokens of the long text
COLUMNS = 41  # of the long text's logits every 41st is kept, with the best and the log of the sum of exponentials


def stages(oracle, name, m, ids):
    """What goes in and out of every stage: x.0 = embed, then for each layer attend.i and x.(i + 1), then the logits."""
    gpt2 = hasattr(m, "transformer")
    layers = m.transformer.h if gpt2 else m.model.layers
    first = m.transformer.drop if gpt2 else layers[0]
    hooks, seen = [], {}

    def inputs(key):
        return lambda module, args: seen.__setitem__(key, args[0])

    hooks.append(first.register_forward_pre_hook(inputs("x.0")))
    for i, layer in enumerate(layers):
        between = layer.ln_2 if gpt2 else layer.post_attention_layernorm
        hooks.append(between.register_forward_pre_hook(inputs(f"attend.{i}")))
        after = layers[i + 1] if i + 1 < len(layers) else (m.transformer.ln_f if gpt2 else m.model.norm)
        hooks.append(after.register_forward_pre_hook(inputs(f"x.{i + 1}")))
    seen["logits"] = m(torch.tensor([ids])).logits
    for hook in hooks:
        hook.remove()
    for key, t in seen.items():
        oracle.tensor(f"{name}.{key}", t)
    oracle.tensor(f"{name}.ids", torch.tensor([ids]).to(torch.uint32))
    oracle.decided(f"{name}, {len(ids)} tokens", margins(seen["logits"][0]))


@torch.no_grad()
def generate(oracle):
    prompt = tokenizer()("Once upon a time, there was a little girl named Lily.", return_tensors="pt").input_ids
    text = model("story-3m").generate(prompt, max_new_tokens=LONG - prompt.shape[1], do_sample=False)
    assert text.shape == (1, LONG)
    oracle.data["text"] = text[0].tolist()
    for name in STORY:
        m = model(name)
        stages(oracle, name, m, text[0, :SHORT].tolist())
        logits = m(text).logits[0]
        oracle.decided(f"{name}, {LONG} tokens", margins(logits))
        oracle.data[f"{name}.argmax"] = logits.argmax(-1).tolist()
        oracle.tensor(f"{name}.long", logits[:, ::COLUMNS])
        oracle.tensor(f"{name}.best", logits.amax(-1))
        oracle.tensor(f"{name}.sum", logits.logsumexp(-1))
    for name, m in tinies():
        oracle.folder(name, m)
        ids = torch.randint(0, 96, (20,), generator=torch.Generator().manual_seed(5)).tolist()
        stages(oracle, name, m, ids)
