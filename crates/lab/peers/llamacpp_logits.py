"""Writes llama.cpp's logits at every position of some texts, for `cargo xtask bench quality`.

usage: python llamacpp_logits.py MODEL.gguf IDS.txt OUT       (a line of ids for each text, such as 5,9,77)
OUT receives the f32 logits of all positions of all texts, one after another.
"""

import ctypes
import os
import sys

import llama_cpp as ll
import numpy as np

path, ids_file, out = sys.argv[1:4]
texts = [[int(id) for id in line.split(",")] for line in open(ids_file).read().split()]


@ll.llama_log_callback
def silent(level, text, user_data):
    pass


ll.llama_log_set(silent, ctypes.c_void_p(0))
ll.llama_backend_init()
model = ll.llama_model_load_from_file(path.encode(), ll.llama_model_default_params())
if not model:
    sys.exit(f"llama.cpp can't load {path}")
params = ll.llama_context_default_params()
params.n_ctx = params.n_batch = params.n_ubatch = max(512, max(map(len, texts)))
params.n_threads = params.n_threads_batch = int(os.environ.get("RAYON_NUM_THREADS", "0")) or os.cpu_count()
# Keys and values in f32 (type 0), as in our engine, so that only the weights cause differences.
params.type_k = params.type_v = 0
context = ll.llama_init_from_model(model, params)
vocab = ll.llama_vocab_n_tokens(ll.llama_model_get_vocab(model))
batch = ll.llama_batch_init(params.n_batch, 0, 1)
with open(out, "wb") as file:
    for text in texts:
        ll.llama_memory_clear(ll.llama_get_memory(context), True)
        batch.n_tokens = len(text)
        for i, token in enumerate(text):
            batch.token[i], batch.pos[i], batch.logits[i] = token, i, True
            batch.n_seq_id[i], batch.seq_id[i][0] = 1, 0
        if ll.llama_decode(context, batch) != 0:
            sys.exit("llama_decode failed")
        for i in range(len(text)):
            logits = np.ctypeslib.as_array(ll.llama_get_logits_ith(context, i), shape=(vocab,))
            file.write(logits.astype(np.float32).tobytes())
