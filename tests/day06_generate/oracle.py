"""Day 6: transformers' greedy `generate` on the story models, and its logits after a prompt."""
import torch
from common import STORY, margins, model, tokenizer

# Ten tokens, and openings of stories that end soon: (model, prompt, new tokens at most).
CASES = [(name, "Once upon a time, there was a little girl", 20) for name in STORY] + [
    ("story-230k", "Lily and her dog", 40),
    ("story-3m", "Sara and Mia", 40),
    ("story-gpt2-1m", "The little cat was very", 40),
]


@torch.no_grad()
def generate(oracle):
    tok = tokenizer()
    cases = []
    for name, prompt, most in CASES:
        ids = tok.encode(prompt)
        out = model(name).generate(
            torch.tensor([ids]), max_new_tokens=most, do_sample=False, return_dict_in_generate=True, output_logits=True)
        gaps = margins(torch.cat(out.logits))
        oracle.decided(f"{name}, {prompt!r}", gaps)
        new = out.sequences[0, len(ids):].tolist()
        cases.append({"model": name, "prompt": prompt, "prompt_ids": ids, "max_new_tokens": most, "new_ids": new,
                      "margins": [round(gap, 4) for gap in gaps]})
    oracle.data["cases"] = cases
    for name in STORY:
        ids = torch.tensor([cases[0]["prompt_ids"]])
        oracle.tensor(f"logits.{name}", model(name)(ids).logits[0, -1])
