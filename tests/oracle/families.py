"""Every family in every format: small models with random weights, what transformers computes with them, and the book's table.

As a day's script it makes goldens: `generate.py families`. By itself it writes book/src/families.md from what
tests/families.rs measures, and, with --real, adds a real model (tools/smollm2.py makes its folder):

usage: .venv/bin/python tests/oracle/families.py [--real DIR]

It exits with 1 if a cell that must be equal is not.
"""
import argparse, importlib.metadata, json, os, pathlib, subprocess, sys, tempfile

import gguf
import numpy as np
import torch
from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM, Qwen2Config, Qwen2ForCausalLM

import common
from common import margins
from day05 import tinies, tiny

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
PROMPT, NEW, LAST = 8, 24, 8  # tokens given, tokens made, positions of which all logits are kept


def models():
    """Day 5's three, and what they leave out: GPT-2, a plain Llama with a head of its own, Qwen2 with its biases."""
    yield from tinies()
    shape = dict(vocab_size=64, hidden_size=24, intermediate_size=40, num_hidden_layers=2, num_attention_heads=4,
                 max_position_embeddings=64, bos_token_id=0, eos_token_id=0)
    yield "tiny-gpt2", tiny(GPT2LMHeadModel, GPT2Config(
        vocab_size=64, n_embd=24, n_layer=2, n_head=4, n_positions=64, bos_token_id=0, eos_token_id=0), 54)
    yield "tiny-llama-plain", tiny(LlamaForCausalLM, LlamaConfig(
        **shape, num_key_value_heads=4, tie_word_embeddings=False, rms_norm_eps=1e-5), 55)
    yield "tiny-qwen2", tiny(Qwen2ForCausalLM, Qwen2Config(
        **shape, num_key_value_heads=2, tie_word_embeddings=False, rope_parameters=dict(rope_type="default", rope_theta=1e6)), 56)


def rounded(model, dtype, which=lambda name, p: True):
    """Its weights as a file of that type has them."""
    state = {k: v.clone() for k, v in model.state_dict().items()}
    for name, p in model.named_parameters():
        if which(name, p):
            p.copy_(p.to(dtype).float())
    return state


def matrices(name, p):
    """What llama.cpp's converter stores in 16 bits; the rest stays f32."""
    return p.dim() == 2 and "wpe" not in name


def greedy(model, prompt):
    """transformers' own choice for NEW tokens, never ending; and the logits of the last positions of all of it."""
    ids = model.generate(torch.tensor([prompt]), do_sample=False, min_new_tokens=NEW, max_new_tokens=NEW, eos_token_id=None,
                         pad_token_id=0)[0]
    logits = model(ids[None]).logits[0]
    return ids.tolist(), logits


def write_gguf(path, name, model):
    """As llama.cpp's convert_hf_to_gguf.py, by the same package."""
    c = model.config
    arch = {"gpt2": gguf.MODEL_ARCH.GPT2, "llama": gguf.MODEL_ARCH.LLAMA, "qwen2": gguf.MODEL_ARCH.QWEN2,
            "qwen3": gguf.MODEL_ARCH.QWEN3}[c.model_type]
    names = gguf.get_tensor_name_map(arch, c.num_hidden_layers)
    w = gguf.GGUFWriter(path, gguf.MODEL_ARCH_NAMES[arch])
    w.add_name(name)
    w.add_block_count(c.num_hidden_layers)
    w.add_context_length(c.max_position_embeddings)
    w.add_embedding_length(c.hidden_size)
    w.add_head_count(c.num_attention_heads)
    if c.model_type == "gpt2":
        w.add_feed_forward_length(4 * c.hidden_size)
        w.add_layer_norm_eps(c.layer_norm_epsilon)
    else:
        w.add_feed_forward_length(c.intermediate_size)
        w.add_head_count_kv(c.num_key_value_heads)
        w.add_layer_norm_rms_eps(c.rms_norm_eps)
        w.add_rope_freq_base(c.rope_parameters["rope_theta"])
        if c.model_type == "qwen3":
            w.add_key_length(c.head_dim)
            w.add_value_length(c.head_dim)
        else:
            w.add_rope_dimension_count(c.hidden_size // c.num_attention_heads)
        if c.rope_parameters["rope_type"] == "llama3":
            w.add_tensor("rope_freqs.weight", llama3_factors(c))
    conv1d = ("c_attn.weight", "c_proj.weight", "c_fc.weight")
    for key, p in model.named_parameters():
        t = p.detach().numpy()
        if c.model_type == "gpt2" and key.endswith(conv1d):
            t = t.T
        if c.model_type == "llama" and "q_proj" in key:
            t = interleaved(t, c.num_attention_heads)
        if c.model_type == "llama" and "k_proj" in key:
            t = interleaved(t, c.num_key_value_heads)
        t = np.ascontiguousarray(t, dtype=np.float16 if matrices(key, p) else np.float32)
        w.add_tensor(names.get_name(key, try_suffixes=(".weight", ".bias")), t)
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()


def interleaved(t, heads):
    """llama.cpp's RoPE turns neighbours: the halves of each head are dealt out."""
    return t.reshape(heads, 2, t.shape[0] // heads // 2, *t.shape[1:]).swapaxes(1, 2).reshape(t.shape)


def llama3_factors(c):
    """What llama.cpp divides each frequency by."""
    r, dim = c.rope_parameters, c.hidden_size // c.num_attention_heads
    freqs = 1.0 / r["rope_theta"] ** (torch.arange(0, dim, 2, dtype=torch.float32) / dim)
    low, high, context = r["low_freq_factor"], r["high_freq_factor"], r["original_max_position_embeddings"]
    factors = []
    for wavelength in (2 * np.pi / freqs).tolist():
        if wavelength < context / high:
            factors.append(1)
        elif wavelength > context / low:
            factors.append(r["factor"])
        else:
            smooth = (context / wavelength - low) / (high - low)
            factors.append(1 / ((1 - smooth) / r["factor"] + smooth))
    return np.array(factors, dtype=np.float32)


@torch.no_grad()
def generate(oracle):
    for name, m in models():
        if name not in ("tiny-llama", "tiny-llama-tied", "tiny-qwen3"):  # those are day 5's
            oracle.folder(name, m)
        with tempfile.TemporaryDirectory() as d:
            path = pathlib.Path(d) / "m.gguf"
            write_gguf(path, name, m)
            oracle.file(f"{name}.gguf", path.read_bytes())
        prompt = torch.randint(0, m.config.vocab_size, (PROMPT,), generator=torch.Generator().manual_seed(8)).tolist()
        for disk, dtype, which in [("f32", torch.float32, None), ("bf16", torch.bfloat16, None), ("f16", torch.float16, None),
                                   ("gguf", torch.float16, matrices)]:
            before = rounded(m, dtype, which or (lambda name, p: True))
            ids, logits = greedy(m, prompt)
            oracle.decided(f"{name}, {disk}", margins(logits[PROMPT - 1:-1]))
            oracle.data[f"{name}.{disk}"] = ids
            oracle.tensor(f"{name}.{disk}", logits[-LAST:])
            m.load_state_dict(before)


# The book's table.

TITLES = {
    "tiny-gpt2": "GPT-2", "tiny-llama-plain": "Llama", "tiny-llama-tied": "Llama, tied head",
    "tiny-llama": "Llama 3's RoPE, biases", "tiny-qwen2": "Qwen2, biases", "tiny-qwen3": "Qwen3, QK-norm, wide heads",
}
DTYPES = ("f32", "bf16", "f16")
FORMATS = {"single": "one file, f32", "shards": "three shards, f32", "bf16": "bf16", "f16": "f16", "gguf": "GGUF, F16"}


def measured(program):
    """What tests/families.rs finds: a line for each family, format and type in memory."""
    with tempfile.TemporaryDirectory() as d:
        lines = pathlib.Path(d) / "lines"
        done = subprocess.run(program, cwd=ROOT, env={**os.environ, "CANDECODE_FAMILIES": str(lines)})
        if done.returncode:
            raise SystemExit("tests/families.rs fails: see above")
        return [json.loads(line) for line in lines.read_text().splitlines()]


def cell(found):
    tokens = "tokens equal" if found["first"] is None else f"token {found['first'] + 1} differs"
    return "equal" if equal(found) else f"{found['error']:.2g}; {tokens}"


def equal(found):
    return found["first"] is None and found["error"] < 1e-4


def table(found):
    for name, title in TITLES.items():
        for disk, words in FORMATS.items():
            cells = [next(f for f in found if (f["model"], f["disk"], f["dtype"]) == (name, disk, d)) for d in DTYPES]
            yield f"| {title} | {words} | " + " | ".join(map(cell, cells)) + f" | ±{cells[0]['largest']:.0f} |"


REAL_PROMPTS, REAL_NEW = ["The capital of France is", "Once upon a time", "def fibonacci(n):"], 128


@torch.no_grad()
def texts(folder):
    """What transformers writes with a folder's weights in f32: ids of prompt and text, and the log-probability of each token."""
    from transformers import AutoModelForCausalLM, AutoTokenizer
    hf = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    tok = AutoTokenizer.from_pretrained(folder)
    for prompt in REAL_PROMPTS:
        ids = tok(prompt, return_tensors="pt").input_ids
        n = ids.shape[1]
        out = hf.generate(ids, do_sample=False, max_new_tokens=REAL_NEW, pad_token_id=hf.generation_config.eos_token_id)
        logprobs = hf(out).logits[0, n - 1:-1].log_softmax(-1).gather(1, out[0, n:, None])[:, 0].tolist()
        yield prompt, ids[0].tolist(), out[0, n:].tolist(), logprobs


def real(folder, program):
    """A real model: its folder, and the GGUF file that it was made of, beside transformers with the folder's weights."""
    golden, found = list(texts(folder)), []
    for path in [folder, *sorted(folder.glob("*.gguf"))]:
        for dtype in DTYPES:
            firsts, errors = [], []
            for prompt, ids, want, logprobs in golden:
                command = [program, "--model", path, "--dtype", dtype, "-p", prompt, "--max-new-tokens", str(REAL_NEW)]
                got = subprocess.run([*command, "--format", "json"], capture_output=True, text=True)
                if got.returncode:
                    raise SystemExit(got.stderr)
                got = json.loads(got.stdout)
                if got["prompt_ids"] != ids:
                    raise SystemExit(f"{path}: other ids for {prompt!r}")
                first = next((i for i, (a, b) in enumerate(zip(want, got["new_ids"])) if a != b), None)
                # Until the texts part, both give the log-probability of the same token after the same tokens.
                errors += [abs(a - b) for a, b in list(zip(logprobs, got["logprobs"]))[:first]]
                firsts.append(first)
            first = min((f for f in firsts if f is not None), default=None)
            found.append(dict(path=path, dtype=dtype, first=first, error=max(errors)))
            print(path.name, found[-1], flush=True)
    return found


def real_table(folder, found):
    for path in dict.fromkeys(f["path"] for f in found):
        words = "folder, f32" if path == folder else "GGUF, " + path.stem.rsplit(".", 1)[-1]
        yield f"| {words} | " + " | ".join(cell(f) for f in found if f["path"] == path) + " |"


def main():
    flags = argparse.ArgumentParser()
    flags.add_argument("--real", type=pathlib.Path, help="the folder that tools/smollm2.py made, with f32")
    flags = flags.parse_args()
    found = measured(["cargo", "test", "--quiet", "--features", "ref", "--test", "families"])
    versions = ", ".join(f"{p} {importlib.metadata.version(p).split('+')[0]}" for p in ("torch", "transformers", "gguf"))
    text = f"""# Families and formats

Every family that the engine runs, in every format that it reads, with its weights in memory in every type that it has, beside
transformers in f32 with the numbers that are in the file. The models are small ones with random weights, large enough that
every part leaves its mark on the logits: a trained model may write the same story with a norm left out, these do not.

**equal**: the {NEW} tokens that follow a prompt of {PROMPT} are transformers', every one, and the logits are, to 0.0001. Else the
number is the largest error of a logit over the last {LAST} positions of transformers' own text, and the first of the {NEW} tokens
that differs is named. The last column says how large logits are.

In bf16 and f16 only the matrices are narrow; activations stay f32. So a file loses nothing in its own type, and another's
numbers are rounded once, as they are read.

Made by `tests/oracle/families.py`: {versions}, on the CPU. The models are in
`tests/oracle/`; continuous integration computes every cell again (`tests/families.rs`).

| family | on disk | `--dtype f32` | `--dtype bf16` | `--dtype f16` | logits |
|---|---|---|---|---|---|
""" + "\n".join(table(found)) + "\n"
    if flags.real:
        subprocess.run(["cargo", "build", "--quiet", "--features", "ref", "--bin", "candecode"], cwd=ROOT, check=True)
        folder = flags.real.resolve()
        more = real(folder, ROOT / "target/debug/candecode")
        found += more
        text += f"""
## A real one

SmolLM2-135M-Instruct: a GGUF file, and the folder of the same numbers that `tools/smollm2.py` makes of it. {len(REAL_PROMPTS)} prompts,
{REAL_NEW} tokens each. The error is the largest of a token's log-probability until the texts part, and the token is the first of any
text that differs.

| on disk | `--dtype f32` | `--dtype bf16` | `--dtype f16` |
|---|---|---|---|
""" + "\n".join(real_table(folder, more)) + "\n"
    (ROOT / "book/src/families.md").write_text(text)
    print(text)
    sys.exit(0 if all(equal(f) for f in found if f["dtype"] == "f32") else 1)


if __name__ == "__main__":
    main()
