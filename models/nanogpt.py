#!/usr/bin/env python3
"""Convert a nanoGPT checkpoint to a folder that candecode and transformers can read.

usage: python3 models/nanogpt.py out/ckpt.pt tokenizer.json OUT_DIR       (needs torch and safetensors)

If the model was trained on GPT-2's tokens, tokenizer.json is GPT-2's, from its repository on the hub. A character-level
model keeps its vocabulary in meta.pkl, and there is no tokenizer.json for it.
nanoGPT computes GELU exactly, but GPT-2 uses the tanh approximation, and so does the converted model. Logits therefore
differ in about the third decimal.
"""
import json, pathlib, shutil, sys
import torch
from safetensors.torch import save_file

# ANCHOR: convert
checkpoint = torch.load(sys.argv[1], map_location="cpu", weights_only=True)
args, weights = checkpoint["model_args"], {}
for name, w in checkpoint["model"].items():
    name = name.removeprefix("_orig_mod.")  # the prefix that torch.compile adds
    if name == "lm_head.weight" or name.endswith(".attn.bias"):
        continue  # a copy of the embedding, or the causal mask
    linear = name.endswith(("c_attn.weight", "c_proj.weight", "c_fc.weight"))
    matrix = w.t() if linear else w  # GPT-2 stores (in, out)
    weights[name] = matrix.float().contiguous()
    if not args["bias"] and "wte" not in name and "wpe" not in name:
        weights[name.replace(".weight", ".bias")] = torch.zeros(w.shape[0])
# ANCHOR_END: convert
out = pathlib.Path(sys.argv[3])
config = {"model_type": "gpt2", "architectures": ["GPT2LMHeadModel"], "n_positions": args["block_size"],
          **{key: args[key] for key in ("n_layer", "n_head", "n_embd", "vocab_size")},
          "activation_function": "gelu_new", "layer_norm_epsilon": 1e-5}
if args["vocab_size"] > 50256:
    config["eos_token_id"] = 50256
out.mkdir(parents=True, exist_ok=True)
save_file(weights, out / "model.safetensors", {"format": "pt"})
(out / "config.json").write_text(json.dumps(config, indent=1))
shutil.copy(sys.argv[2], out / "tokenizer.json")
