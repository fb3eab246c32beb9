"""Day 15: every request alone, in transformers: what continuous batching must give, whatever stands beside it."""
import torch
from common import margins, model, tokenizer

PROMPTS = ["Once upon a time", "Lily and her dog", "Mia saw a", "One day, Tom found a big red ball in the park and he wanted to",
           "The old man", "Ben wanted to"]

# The trace of `cargo xtask list --score`, as `trace` in crates/engine/src/score.rs: a prompt, and the number of new tokens.
TRACE = [(list(range(300, 304 + i % 6)), 4 + 5 * i % 13 if i % 4 else 48 + 7 * i % 17) for i in range(24)]


def trace_text(oracle, ids, new):
    """Transformers' greedy text of one request of the trace, which no token ends early."""
    net = model("story-3m")
    out = net.generate(torch.tensor([ids]), max_new_tokens=new, min_new_tokens=new, do_sample=False, return_dict_in_generate=True,
                       output_logits=True, eos_token_id=None, pad_token_id=0)
    oracle.decided(f"trace, {ids}", margins(torch.cat(out.logits)))
    return out.sequences[0, len(ids):].tolist()


def alone(oracle, name, prompt, most, eos):
    """Transformers' greedy text of one prompt. `eos`: words whose token ends a text, or none for the model's own EOS."""
    tok, net = tokenizer(), model(name)
    ids = tok.encode(prompt)
    eos_ids = [tok.encode(word)[0] for word in eos] or [net.generation_config.eos_token_id]
    out = net.generate(torch.tensor([ids]), max_new_tokens=most, do_sample=False, return_dict_in_generate=True, output_logits=True,
                       eos_token_id=eos_ids, pad_token_id=0)
    oracle.decided(f"{name}, {prompt!r}", margins(torch.cat(out.logits)))
    return {"prompt": prompt, "prompt_ids": ids, "new_ids": out.sequences[0, len(ids):].tolist()}


@torch.no_grad()
def generate(oracle):
    for group, name, most, eos in [
        ("commas", "story-230k", 16, [","]),  # they end at different times, some at once
        ("stories", "story-gpt2-1m", 8, []),
    ]:
        texts = [alone(oracle, name, prompt, most, eos) for prompt in PROMPTS]
        eos_ids = [tokenizer().encode(word)[0] for word in eos] or [model(name).generation_config.eos_token_id]
        oracle.data[group] = {"model": name, "max_new_tokens": most, "eos": eos_ids, "texts": texts}
    oracle.data["trace"] = {"model": "story-3m", "texts": [trace_text(oracle, *request) for request in TRACE]}
