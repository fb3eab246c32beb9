"""Writes the book's page of families and formats: book/src/families.md.

usage: .venv/bin/python crates/engine/tests/oracle/families_page.py [--real DIR]

It shows what families.rs measures of the small models of families.py, and what families_real.json says of a real one;
with --real that is measured anew (models/smollm2.py makes the folder, with f32). It exits with 1 if a cell that must be equal is
not. families.rs sees that the page stays true.
"""
import argparse, importlib.metadata, json, os, pathlib, platform, shutil, subprocess, sys, tempfile

ROOT = pathlib.Path(__file__).resolve().parents[4]
sys.path.append(str(ROOT / "tests/frame"))  # for common.py

import common
import numpy as np
import torch
from common import margins
from families import LAST, NEW, PROMPT, matrices, rounded, write_gguf
from gguf import GGUFReader
from transformers import AutoModelForCausalLM, AutoTokenizer

HERE = pathlib.Path(__file__).resolve().parent

TITLES = {
    "tiny-gpt2": "GPT-2", "tiny-llama-plain": "Llama", "tiny-llama-tied": "Llama, tied head",
    "tiny-llama": "Llama 3's RoPE, biases", "tiny-qwen2": "Qwen2, biases", "tiny-qwen3": "Qwen3, QK-norm, wide heads",
}
DTYPES = ("f32", "bf16", "f16")
FORMATS = {"single": "one file, f32", "shards": "three shards, f32", "bf16": "bf16", "f16": "f16", "gguf": "GGUF, F16"}


def measured(program):
    """What families.rs finds of each family, format and type in memory."""
    with tempfile.TemporaryDirectory() as d:
        found = pathlib.Path(d) / "found"
        done = subprocess.run(program, cwd=ROOT, env={**os.environ, "CANDECODE_FAMILIES": str(found)})
        if done.returncode:
            raise SystemExit("families.rs fails: see above")
        return json.loads(found.read_text())


def cell(found):
    token = "" if found["first"] is None else f", token {found['first'] + 1}"
    return "equal" if equal(found) else f"{found['error']:.2g}{token}"


def equal(found):
    return found["first"] is None and found["error"] < 1e-4


def table(found):
    for name, title in TITLES.items():
        for disk, words in FORMATS.items():
            cells = [next(f for f in found if (f["model"], f["disk"], f["dtype"]) == (name, disk, d)) for d in DTYPES]
            yield f"| {title} | {words} | " + " | ".join(map(cell, cells)) + f" | ±{cells[0]['largest']:.0f} |"


# A real model.

REAL = HERE / "families_real.json"
REAL_NAME = "SmolLM2-135M-Instruct"
REAL_PROMPTS, REAL_NEW = ["The capital of France is", "Once upon a time", "def fibonacci(n):"], 128


@torch.no_grad()
def texts(hf, tok):
    """What transformers writes in f32: ids of prompt and text, the log-probability and the margin of each token."""
    for prompt in REAL_PROMPTS:
        ids = tok(prompt, return_tensors="pt").input_ids
        n = ids.shape[1]
        out = hf.generate(ids, do_sample=False, max_new_tokens=REAL_NEW, pad_token_id=hf.generation_config.eos_token_id)
        logits = hf(out).logits[0, n - 1:-1]
        logprobs = logits.log_softmax(-1).gather(1, out[0, n:, None])[:, 0].tolist()
        yield prompt, ids[0].tolist(), out[0, n:].tolist(), logprobs, min(margins(logits))


def beside(program, golden, disk, path):
    """The command on one file or folder, in each type in memory: a measurement each."""
    for dtype in DTYPES:
        firsts, errors = [], []
        for prompt, ids, want, logprobs, _ in golden:
            command = [program, "--model", path, "--dtype", dtype, "--kernels", "plain", "-p", prompt, "--max-new-tokens", str(REAL_NEW)]
            got = subprocess.run([*command, "--raw", "--format", "json"], capture_output=True, text=True)
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
        largest = -min(min(g[3]) for g in golden)
        yield dict(model=REAL_NAME, disk=disk, dtype=dtype, first=first, error=max(errors), largest=largest)
        print(disk, dtype, firsts, max(errors), flush=True)


@torch.no_grad()
def places(folder, d):
    """What is loaded: in words, the folder or file, and transformers' model of the numbers that are in it."""
    load = lambda path, dtype=torch.float32: AutoModelForCausalLM.from_pretrained(path, dtype=dtype).eval()
    hf, quantized = load(folder), next(folder.glob("*.gguf"))
    tokenizer = lambda w: tokenizer_of(quantized, w)
    yield "folder, f32", folder, hf
    write_gguf(d / "f32.gguf", REAL_NAME, hf, np.float32, tokenizer)
    yield "GGUF, F32", d / "f32.gguf", hf
    yield "GGUF, Q4_1", quantized, hf
    for short, dtype in [("bf16", torch.bfloat16), ("f16", torch.float16)]:
        load(folder, dtype).save_pretrained(d / short, max_shard_size="100MB")
        for file in ("tokenizer.json", "tokenizer_config.json"):
            shutil.copy(folder / file, d / short)
        yield f"folder, {short}, {len(list((d / short).glob('*.safetensors')))} shards", d / short, load(d / short)
    rounded(hf, torch.float16, matrices)
    write_gguf(d / "f16.gguf", REAL_NAME, hf, np.float16, tokenizer)
    yield "GGUF, F16", d / "f16.gguf", hf


def real(folder, program):
    """Measures all of it, into families_real.json."""
    tok, found, smallest = AutoTokenizer.from_pretrained(folder), [], float("inf")
    with tempfile.TemporaryDirectory() as d:
        golden, of = None, None
        for disk, path, hf in places(folder, pathlib.Path(d)):
            if of is not hf or disk == "GGUF, F16":
                golden, of = list(texts(hf, tok)), hf
                smallest = min([smallest, *(g[4] for g in golden)])
            found += beside(program, golden, disk, path)
    provenance = {"made by": "families_page.py --real", "model": f"{REAL_NAME}, by models/smollm2.py",
                  "versions": versions(), "machine": f"{platform.machine()} CPU, f32", "prompts": REAL_PROMPTS,
                  "new tokens": REAL_NEW, "smallest decision margin": f"{smallest:.6f}"}
    lines = ",\n".join("  " + json.dumps(f) for f in found)
    REAL.write_text(f'{{\n "provenance": {json.dumps(provenance)},\n "found": [\n{lines}\n ]\n}}\n')


def tokenizer_of(path, w):
    """The tokenizer in a GGUF file, for another."""
    for key, field in GGUFReader(path).fields.items():
        if key.startswith("tokenizer."):
            w.add_key_value(key, field.contents(), field.types[0], field.types[-1] if len(field.types) > 1 else None)


def real_table(found):
    for disk in dict.fromkeys(f["disk"] for f in found):
        yield f"| {disk} | " + " | ".join(cell(f) for f in found if f["disk"] == disk) + " |"


def versions():
    return ", ".join(f"{p} {importlib.metadata.version(p).split('+')[0]}" for p in ("torch", "transformers", "gguf"))


def page(small, more):
    """The book's page."""
    return f"""# Families and formats

*Generated by `python3 crates/engine/tests/oracle/families_page.py`; a test compares the tables with the engine.*

This page compares every model family that the engine supports, in every file format it reads and every type in which it can hold
weights, with transformers in f32. Use it if you load a model of your own and wonder how exact it will be, or if you add a family or
a format. You don't need this page for the course.

The models here are tiny, and their weights are random and large. That's on purpose. A trained model is so forgiving that it may
write the same story with a norm left out, but in these models every part affects the logits.

Each model was loaded with `--dtype` f32, bf16 and f16, and each cell says one of three things:

- **equal**: all of the {NEW} tokens that follow a prompt of {PROMPT} are the same as those of transformers, and so are the logits, to within
  0.0001;
- **a number**: the tokens are equal, and the number is the largest error of a logit over the last {LAST} positions of transformers'
  own text. Compare it with the last column, which says how large the logits are;
- **a number and a token**: the first of the {NEW} tokens that differs.

| family | on disk | as f32 | as bf16 | as f16 | logits |
|---|---|---|---|---|---|
""" + "\n".join(table(small)) + f"""

What does the table tell you?

- **A file loses nothing in its own type.** On the CPU, `--dtype` is the type of the weight matrices in memory. Weights of another
  type are rounded once, while they are read; activations, cache and logits stay f32. `--kernels plain` and `fast` agree to within
  0.0001 in f32 and f16.
- **bf16 products take bf16 inputs.** The fast kernels multiply bf16 weights with activations that are rounded to bf16 for the
  product, and add up in f32, because processors have an instruction for that. So the cells of bf16 aren't *equal* even where the
  weights are exact; with `--kernels plain`, which widens the weights instead, they are. A test compares the fast kernels with
  torch (`oracle/bf16.py`): they're closer to f32 than torch is in bf16, where every operation rounds its result.
- **On Metal and CUDA**, activations and cache have the type of the weights, too, as in transformers. Expect larger differences there.
- **Which type to choose.** bf16 keeps 8 bits of a number, and the range of f32. f16 keeps 11 and ends at 65504, so it rounds eight
  times finer as long as the numbers fit. Most weights are published in bf16. On the CPU, bf16 is the fastest of the three where the
  processor multiplies bf16 numbers. Elsewhere our kernels widen a bf16 number with one shift or mask, and an f16 number with one
  instruction of AVX-512, or several operations without it.
- **GGUF.** In an F16 file the matrices are f16, but norms and biases are f32. llama.cpp's converter stores them that way, and so
  does our script, which uses the same package. Quantized weights are converted to `--dtype` as they are read.
- **Medusa and draft trees** (day 24) work with every family here. A tree needs a mask and positions, and heads need the states after
  the last norm; all of these models have both. Heads belong to one model: `story-3m` comes with four, and
  `models/train/medusa.py` trains them for another story model.

`crates/engine/tests/oracle/families_page.py` generates the table, with {versions()}, on the CPU. The models are
in `crates/testing/models/`. Continuous integration computes every cell again and compares it with this page (`families.rs` in
`crates/engine/tests`).

## A real model

Do the results hold for a trained model? Here is {REAL_NAME}, with {len(REAL_PROMPTS)} prompts and up to {REAL_NEW} tokens each. Everything comes
from one GGUF file of type Q4_1. `models/smollm2.py` turns it into a folder with the same numbers, and the other rows are that
folder, rounded to their types. Each row is compared with transformers in f32 on the numbers that are in its file. The number is the
largest error of a token's log-probability up to the place where the texts diverge, and the token is the first one that differs in
any of the texts. The command ran with `--kernels plain`, which computes in f32 whatever the type of the weights.

| on disk | as f32 | as bf16 | as f16 |
|---|---|---|---|
""" + "\n".join(real_table(more)) + "\n"


def main():
    flags = argparse.ArgumentParser()
    flags.add_argument("--real", type=pathlib.Path, help="the folder that models/smollm2.py made, with f32")
    flags = flags.parse_args()
    common.pinned(pathlib.Path(common.__file__).with_name("requirements.txt"))
    small = measured(["cargo", "test", "--quiet", "--package", "candecode-engine", "--features", "ref", "--test", "families", "every_family"])
    if flags.real:
        subprocess.run(["cargo", "build", "--quiet", "--package", "candecode-cli", "--features", "ref"], cwd=ROOT, check=True)
        real(flags.real.resolve(), ROOT / "target/debug/candecode")
    more = json.loads(REAL.read_text())["found"]
    text = page(small, more)
    (ROOT / "book/src/families.md").write_text(text)
    print(text)
    sys.exit(0 if all(equal(f) for f in small + more if f["dtype"] == "f32") else 1)


if __name__ == "__main__":
    main()
