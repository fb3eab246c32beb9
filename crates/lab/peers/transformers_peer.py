"""Runs one round of transformers, greedy prefill and decode of a batch of equal prompts, and prints a line of JSON.

usage: python transformers_peer.py MODEL_DIR BATCH NEW_TOKENS IDS DTYPE       (IDS such as 5,9,77; DTYPE f32 or bf16)
Needs torch and transformers (pinned in requirements.txt). Calls `forward` in a loop, as our engine does, so the
overhead of `generate` isn't measured.
"""

import json
import os
import sys
import time

os.environ["HF_HUB_OFFLINE"] = "1"
import torch
from transformers import AutoModelForCausalLM

folder, batch, new, ids = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
prompt = [int(id) for id in ids.split(",")]
torch.set_num_threads(int(os.environ.get("RAYON_NUM_THREADS", "0")) or os.cpu_count())
dtype = torch.bfloat16 if sys.argv[5] == "bf16" else torch.float32
model = AutoModelForCausalLM.from_pretrained(folder, dtype=dtype).eval()


@torch.inference_mode()
def round_of(new):
    begun = time.perf_counter()
    out = model(torch.tensor([prompt] * batch), use_cache=True, logits_to_keep=1)
    tokens = [out.logits[:, -1].argmax(-1, keepdim=True)]
    prefill = time.perf_counter() - begun
    begun = time.perf_counter()
    for _ in range(new - 1):
        out = model(tokens[-1], past_key_values=out.past_key_values, use_cache=True, logits_to_keep=1)
        tokens.append(out.logits[:, -1].argmax(-1, keepdim=True))
    decode = time.perf_counter() - begun
    return prefill, decode, torch.cat(tokens, 1)[0].tolist()


round_of(2)  # warm up
prefill, decode, tokens = round_of(new)
print(json.dumps({"prefill_s": prefill, "decode_s": decode, "tokens": tokens}))
