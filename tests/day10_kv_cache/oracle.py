"""Day 10: transformers' cached `generate`, and its sliding window: generated with its own configuration, and as one pass
with a banded mask."""
import torch
from common import MODELS, STORY, margins, model, tokenizer
from transformers import AutoConfig, AutoModelForCausalLM

STEPS = [0, 1, 20, 47]  # whose logits are kept
WINDOW = 64
AT = [0, 62, 63, 64, 65, 100, 162]  # of the sliding text: WINDOW - 1 is the last position that sees everything


def cached(oracle, name, prompt, most):
    """Transformers' loop, with its DynamicCache."""
    ids = tokenizer().encode(prompt)
    out = model(name).generate(torch.tensor([ids]), max_new_tokens=most, do_sample=False, use_cache=True, eos_token_id=None,
                               pad_token_id=0, return_dict_in_generate=True, output_logits=True)
    logits = torch.cat(out.logits)
    gaps = margins(logits)
    oracle.decided(f"{name}, {prompt!r}", gaps)
    oracle.tensor(f"cached.{name}", logits[STEPS])
    return {"model": name, "prompt": prompt, "prompt_ids": ids, "new_ids": out.sequences[0, len(ids):].tolist(),
            "margins": [round(gap, 4) for gap in gaps], "logits_of_steps": STEPS}


def sliding(oracle, name, prompt, most):
    """A token sees the last WINDOW, itself included. Both of transformers' ways must agree before it is a golden."""
    config = AutoConfig.from_pretrained(MODELS / name)
    config.use_sliding_window, config.sliding_window, config.max_window_layers = True, WINDOW, 0
    config.layer_types = ["sliding_attention"] * config.num_hidden_layers
    net = AutoModelForCausalLM.from_pretrained(MODELS / name, config=config, dtype=torch.float32).eval()
    ids = tokenizer().encode(prompt)
    out = net.generate(torch.tensor([ids]), max_new_tokens=most, do_sample=False, eos_token_id=None, pad_token_id=0,
                       return_dict_in_generate=True, output_logits=True)
    gaps = margins(torch.cat(out.logits))
    oracle.decided(f"{name}, sliding", gaps)

    text = out.sequences
    n = text.shape[1]
    band = torch.ones(n, n, dtype=torch.bool).tril().triu(1 - WINDOW)
    mask = torch.zeros(n, n).masked_fill(~band, float("-inf"))[None, None]
    once = model(name)(text, attention_mask=mask).logits[0]
    apart = (once[len(ids) - 1:-1] - torch.cat(out.logits)).abs().max().item()
    assert apart < 1e-4, f"transformers' sliding window and the banded mask are {apart} apart"
    oracle.tensor("sliding", once[AT])
    return {"model": name, "window": WINDOW, "prompt_ids": ids, "new_ids": text[0, len(ids):].tolist(),
            "margins": [round(gap, 4) for gap in gaps], "logits_of_positions": AT}


@torch.no_grad()
def generate(oracle):
    oracle.data["cached"] = [cached(oracle, name, "Once upon a time, there was a little girl", 48) for name in STORY]
    oracle.data["sliding"] = sliding(oracle, "story-230k", "Lily and her dog", 160)


@torch.no_grad()
def halves():
    """For the chapter: transformers with all of it in half precision, against its own f32, over 190 new tokens."""
    first = lambda a, b: next((i for i, (x, y) in enumerate(zip(a, b)) if x != y), None)
    for name in STORY:
        ids = tokenizer().encode("Once upon a time, there was a little girl")
        how = dict(max_new_tokens=190, do_sample=False, eos_token_id=None, pad_token_id=0)
        net = model(name)
        text = net.generate(torch.tensor([ids]), **how)
        want = net(text).logits[0, len(ids) - 1:-1]
        for dtype in (torch.bfloat16, torch.float16):
            half = AutoModelForCausalLM.from_pretrained(MODELS / name, dtype=dtype).eval()
            got = half(text).logits[0, len(ids) - 1:-1].float()
            texts = [half.generate(torch.tensor([ids]), use_cache=cache, **how)[0].tolist() for cache in (True, False)]
            print(f"{name}, {dtype}: at most {(got - want).abs().max():.4f} apart; first differing token, forced: "
                  f"{first(got.argmax(-1).tolist(), want.argmax(-1).tolist())}; its cached and uncached texts part at "
                  f"{first(*(new[len(ids):] for new in texts))}")


if __name__ == "__main__":
    halves()
