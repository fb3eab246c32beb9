"""Runs one round of llama.cpp, greedy prefill and decode of a batch of equal prompts, and prints a line of JSON.

usage: python llamacpp_peer.py MODEL_DIR BATCH NEW_TOKENS IDS DTYPE       (IDS such as 5,9,77; DTYPE f32, bf16, q8_0 or q4_0)
Needs the packages in requirements.txt. The folder's weights are converted to GGUF once (gguf_file.py). The loop around
llama_decode is our own, and every row is a separate sequence.
"""

import ctypes
import json
import os
import sys
import time

import llama_cpp as ll
import numpy as np
from gguf_file import path_of

folder, batch, new, ids, dtype = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4], sys.argv[5]
prompt = [int(id) for id in ids.split(",")]


path = path_of(folder, dtype)


@ll.llama_log_callback
def silent(level, text, user_data):
    pass


ll.llama_log_set(silent, ctypes.c_void_p(0))
ll.llama_backend_init()
model = ll.llama_model_load_from_file(str(path).encode(), ll.llama_model_default_params())
if not model:
    sys.exit(f"llama.cpp can't load {path}")
threads = int(os.environ.get("RAYON_NUM_THREADS", "0")) or os.cpu_count()
params = ll.llama_context_default_params()
params.n_ctx = (len(prompt) + new) * batch + 64 * batch
params.n_batch = params.n_ubatch = max(512, len(prompt) * batch)
params.n_threads = params.n_threads_batch = threads
params.n_seq_max = batch
context = ll.llama_init_from_model(model, params)
vocab = ll.llama_vocab_n_tokens(ll.llama_model_get_vocab(model))
tokens = ll.llama_batch_init(params.n_batch, 0, 1)


def decode(rows):
    """Runs one pass over rows of (token, position, sequence, whether its logits are wanted). Returns the most likely next
    token after each row whose logits are wanted."""
    tokens.n_tokens = len(rows)
    for i, (token, position, sequence, wanted) in enumerate(rows):
        tokens.token[i], tokens.pos[i], tokens.logits[i] = token, position, wanted
        tokens.n_seq_id[i], tokens.seq_id[i][0] = 1, sequence
    if ll.llama_decode(context, tokens) != 0:
        sys.exit("llama_decode failed")
    wanted = [i for i, row in enumerate(rows) if row[3]]
    return [int(np.ctypeslib.as_array(ll.llama_get_logits_ith(context, i), shape=(vocab,)).argmax()) for i in wanted]


def round_of(new):
    ll.llama_memory_clear(ll.llama_get_memory(context), True)
    begun = time.perf_counter()
    last = decode([(id, i, row, i + 1 == len(prompt)) for row in range(batch) for i, id in enumerate(prompt)])
    prefill, made = time.perf_counter() - begun, [last[0]]
    begun = time.perf_counter()
    for step in range(new - 1):
        last = decode([(id, len(prompt) + step, row, True) for row, id in enumerate(last)])
        made.append(last[0])
    return prefill, time.perf_counter() - begun, made


round_of(2)  # warm up
prefill, seconds, made = round_of(new)
print(json.dumps({"prefill_s": prefill, "decode_s": seconds, "tokens": made}))
