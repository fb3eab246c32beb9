"""Runs transformers' own `generate` and prints a line of JSON per prompt, for `cargo xtask compare --peer transformers`.

Runs the prompts in one batch in f32, padded on the left, as day 12 does, and sets the seed before it. By default, `generate`
would apply `generation_config.json` and top_k=50. Both are turned off, because the command doesn't apply them either.
"""

import argparse
import json
import os
import time

os.environ["HF_HUB_OFFLINE"] = "1"
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, GenerationConfig

flags = argparse.ArgumentParser()
flags.add_argument("folder")
flags.add_argument("-p", "--prompt", action="append", required=True)
flags.add_argument("--max-new-tokens", type=int, required=True)
flags.add_argument("--temperature", type=float)
flags.add_argument("--top-k", type=int)
flags.add_argument("--top-p", type=float)
flags.add_argument("--seed", type=int, default=0)
flags = flags.parse_args()

torch.set_num_threads(int(os.environ.get("RAYON_NUM_THREADS", "0")) or os.cpu_count())
tokenizer = AutoTokenizer.from_pretrained(flags.folder)
model = AutoModelForCausalLM.from_pretrained(flags.folder, dtype=torch.float32).eval()
eos = model.generation_config.eos_token_id
eos = [eos] if isinstance(eos, int) else eos
config = GenerationConfig(eos_token_id=eos, pad_token_id=eos[0], max_new_tokens=flags.max_new_tokens)
if flags.temperature:
    config.update(do_sample=True, temperature=flags.temperature, top_k=flags.top_k or 0, top_p=flags.top_p or 1.0)
model.generation_config = config


class First:
    """A streamer that records the time of the first token."""

    def __init__(self):
        self.calls, self.at = 0, None

    def put(self, _):
        self.calls += 1  # the prompt comes first
        if self.calls == 2:
            self.at = time.perf_counter()

    def end(self):
        pass


model.generate(torch.tensor([tokenizer(flags.prompt[0]).input_ids]), max_new_tokens=2)  # warm up
prompts = [tokenizer(prompt).input_ids for prompt in flags.prompt]
longest = max(map(len, prompts))
ids = torch.tensor([[eos[0]] * (longest - len(prompt)) + prompt for prompt in prompts])
mask = torch.tensor([[0] * (longest - len(prompt)) + [1] * len(prompt) for prompt in prompts])
torch.manual_seed(flags.seed)
first, begun = First(), time.perf_counter()
out = model.generate(ids, attention_mask=mask, streamer=first)
end = time.perf_counter()
for prompt, row in zip(prompts, out[:, longest:].tolist()):
    ends = [at for at, token in enumerate(row) if token in eos]
    new = row[: ends[0] + 1] if ends else row  # padding follows
    print(json.dumps({
        "prompt_ids": prompt,
        "new_ids": new,
        "text": tokenizer.decode(new, skip_special_tokens=True),
        "prefill_s": first.at - begun,
        "decode_s": end - first.at,
    }))
