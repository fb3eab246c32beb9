"""Runs transformers' own `generate` and prints a line of JSON per prompt, for `cargo xtask compare --peer transformers`.

Runs the prompts one after another in f32, and sets the seed before each, as the command does. By default, `generate`
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
config = GenerationConfig(eos_token_id=eos, pad_token_id=eos if isinstance(eos, int) else eos[0], max_new_tokens=flags.max_new_tokens)
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
for prompt in flags.prompt:
    ids = tokenizer(prompt, return_tensors="pt").input_ids
    torch.manual_seed(flags.seed)
    first, begun = First(), time.perf_counter()
    out = model.generate(ids, attention_mask=torch.ones_like(ids), streamer=first)
    end = time.perf_counter()
    new = out[0, ids.shape[1] :].tolist()
    print(json.dumps({
        "prompt_ids": ids[0].tolist(),
        "new_ids": new,
        "text": tokenizer.decode(new, skip_special_tokens=True),
        "prefill_s": first.at - begun,
        "decode_s": end - first.at,
    }))
