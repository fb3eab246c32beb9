"""Writes the book's table of parity: the command beside transformers' `generate`, token for token.

usage: cargo build --package candecode-cli --features ref
       .venv/bin/python crates/cli/tests/oracle/parity.py [--program target/debug/candecode]

Both read the same folders, in f32. A cell counts texts: equal means every token is, and for beams every score to 1e-4 (they
are sums of up to 40 log-probabilities in f32). Sampled texts are drawn after `torch.manual_seed(seed)` there, and with
`--rng torch --seed seed` here. It exits with 1 if a cell is not equal.
"""
import argparse, importlib.metadata, json, pathlib, subprocess, sys

ROOT = pathlib.Path(__file__).resolve().parents[4]
sys.path.append(str(ROOT / "tests/frame"))  # for common.py

import common  # pins nothing by itself, but sets one thread and offline
import torch
from common import MODELS, STORY, model, tokenizer

PROMPTS = ["Lily and her dog", "Once upon a time", "Tom had a red ball."]
SEEDS = range(10)

flags = argparse.ArgumentParser()
flags.add_argument("--program", default=ROOT / "target/debug/candecode", type=pathlib.Path)
flags = flags.parse_args()


def to_flags(settings):
    """{"top_k": 40} as --top-k 40."""
    names = {"no_repeat_ngram_size": "no-repeat-ngram"}
    said = lambda v: str(v).lower()
    return [x for k, v in settings.items() for x in ("--" + names.get(k, k.replace("_", "-")), said(v))]


def ours(name, prompts, *args):
    command = [flags.program, "--format", "json", "--model", MODELS / name, *args]
    for prompt in prompts:
        command += ["-p", prompt]
    out = subprocess.run([str(x) for x in command], capture_output=True, text=True)
    if out.returncode:
        raise SystemExit(out.stderr)
    return [json.loads(line) for line in out.stdout.splitlines()]


def until_eos(ids, eos):
    """transformers pads finished rows behind EOS."""
    return ids[: ids.index(eos) + 1] if eos in ids else ids


def theirs(hf, ids, **settings):
    eos = hf.generation_config.eos_token_id
    out = hf.generate(ids, attention_mask=torch.ones_like(ids), pad_token_id=eos, return_dict_in_generate=True,
                      output_scores=True, **settings)
    texts = [until_eos(row[ids.shape[1]:].tolist(), eos) for row in out.sequences]
    scores = getattr(out, "sequences_scores", None)
    return texts, None if scores is None else scores.tolist()


def sampled(hf, ids, seed, settings, **more):
    torch.manual_seed(seed)
    return theirs(hf, ids, do_sample=True, max_new_tokens=60, **{"top_k": 0, **settings}, **more)[0]


def equal_beams(hf, name, prompt, ids, settings):
    texts, scores = theirs(hf, ids, do_sample=False, max_new_tokens=40, num_return_sequences=settings["num_beams"], **settings)
    got = ours(name, [prompt], "--max-new-tokens", 40, "--num-return-sequences", settings["num_beams"], *to_flags(settings))
    near = all(abs(a - b["score"]) < 1e-4 for a, b in zip(scores, got))
    return near and texts == [text["new_ids"] for text in got]


def greedy(settings=None, args=()):
    def run(hf, name, tok):
        for prompt in PROMPTS:
            ids = tok(prompt, return_tensors="pt").input_ids
            want, _ = theirs(hf, ids, do_sample=False, max_new_tokens=64, **(settings or {}))
            got = ours(name, [prompt], "--max-new-tokens", 64, *to_flags(settings or {}), *args)
            yield [text["new_ids"] for text in got] == want
    return run


def together(*args):
    """All prompts at once here; each alone there."""
    def run(hf, name, tok):
        got = ours(name, PROMPTS, "--max-new-tokens", 64, *args)
        for prompt, text in zip(PROMPTS, got):
            want, _ = theirs(hf, tok(prompt, return_tensors="pt").input_ids, do_sample=False, max_new_tokens=64)
            yield [text["new_ids"]] == want
    return run


def sampling(settings):
    def run(hf, name, tok):
        for seed in SEEDS:
            prompt = PROMPTS[seed % len(PROMPTS)]
            want = sampled(hf, tok(prompt, return_tensors="pt").input_ids, seed, settings)
            got = ours(name, [prompt], "--max-new-tokens", 60, "--rng", "torch", "--seed", seed, *to_flags(settings))
            yield [text["new_ids"] for text in got] == want
    return run


def several(hf, name, tok):
    for seed in SEEDS:
        prompt = PROMPTS[seed % len(PROMPTS)]
        ids = tok(prompt, return_tensors="pt").input_ids
        want = sampled(hf, ids, seed, {"temperature": 0.9}, num_return_sequences=3)
        got = ours(name, [prompt], "--max-new-tokens", 60, "--rng", "torch", "--seed", seed, "--temperature", 0.9,
                   "--num-return-sequences", 3)
        yield [text["new_ids"] for text in got] == want


def beams(**settings):
    def run(hf, name, tok):
        for prompt in PROMPTS:
            yield equal_beams(hf, name, prompt, tok(prompt, return_tensors="pt").input_ids, settings)
    return run


def only(model, run):
    """Of this model alone, such as one that has Medusa heads."""
    return lambda hf, name, tok: run(hf, name, tok) if name == model else ()


ROWS = [
    ("greedy, no cache", greedy(args=["--no-cache"])),
    ("greedy, growing cache", greedy()),
    ("greedy, static cache", greedy(args=["--cache", "static"])),
    ("greedy, one batch of three prompts", together()),
    ("greedy, scheduled", together("--loop", "day15")),
    ("greedy, drafts by n-grams", greedy(args=["--draft-ngram", "2"])),
    ("greedy, drafts by story-230k", greedy(args=["--draft-model", MODELS / "story-230k"])),
    ("greedy, draft trees by n-grams", greedy(args=["--draft-ngram", "1", "--draft-tree", "3x2x1"])),
    ("greedy, draft trees by story-230k", greedy(args=["--draft-model", MODELS / "story-230k", "--draft-tree", "3x2x1"])),
    ("greedy, Medusa", only("story-3m", greedy(args=["--medusa"]))),
    ("repetition_penalty=1.3", greedy({"repetition_penalty": 1.3})),
    ("no_repeat_ngram_size=3", greedy({"no_repeat_ngram_size": 3})),
    ("repetition_penalty=1.2, no_repeat_ngram_size=2", greedy({"repetition_penalty": 1.2, "no_repeat_ngram_size": 2})),
    ("temperature=0.8", sampling({"temperature": 0.8})),
    ("top_k=40", sampling({"top_k": 40})),
    ("top_p=0.9", sampling({"top_p": 0.9})),
    ("temperature=1.5, min_p=0.1", sampling({"temperature": 1.5, "min_p": 0.1})),
    ("temperature=1.2, top_k=50, top_p=0.8", sampling({"temperature": 1.2, "top_k": 50, "top_p": 0.8})),
    ("temperature=0.9, three samples at once", several),
    ("num_beams=2", beams(num_beams=2)),
    ("num_beams=4", beams(num_beams=4)),
    ("num_beams=4, early_stopping=True", beams(num_beams=4, early_stopping=True)),
    ("num_beams=4, early_stopping=never, length_penalty=2.0", beams(num_beams=4, early_stopping="never", length_penalty=2.0)),
    ("num_beams=3, length_penalty=0.0", beams(num_beams=3, length_penalty=0.0)),
    ("num_beams=3, repetition_penalty=1.3", beams(num_beams=3, repetition_penalty=1.3)),
]

models = {name: (model(name), tokenizer(name)) for name in STORY}
lines, all_equal, count = [], True, 0
for what, run in ROWS:
    cells = []
    for name, (hf, tok) in models.items():
        found = list(run(hf, name, tok))
        all_equal &= all(found)
        count += len(found)
        cells.append("–" if not found else f"{sum(found)} of {len(found)}" + ("" if all(found) else " **differs**"))
    lines.append(f"| `{what}` | " + " | ".join(cells) + " |")
    print(lines[-1], flush=True)

versions = ", ".join(f"{package} {importlib.metadata.version(package).split('+')[0]}" for package in ("torch", "transformers"))
verdict = "and all are equal" if all_equal else "**and not all are equal**"
text = f"""# Parity

*Generated by `python3 crates/cli/tests/oracle/parity.py`, with torch and transformers.*

Does this engine really write what transformers would have written? This page is the evidence, for anyone who doubts it and for
anyone who changes the engine and wants to be sure it's still true. You don't need any of it to follow the course.

We ran the same prompts through `cargo xtask run` and transformers' `generate`, in 32-bit floats, with the settings in the first
column. Each cell counts the texts in which *every* token is identical; for beams, the scores are equal, too, to within 0.0001.
There are {count} comparisons, {verdict}.

Greedy decoding and beams ran on three prompts, sampling with ten seeds. Two programs can draw the same random tokens because day 8
implements PyTorch's generator: transformers' seed was set with `torch.manual_seed(seed)`, ours with `--rng torch --seed seed`. One
trap in such a comparison: if you sample with transformers and don't mention `top_k`, it silently uses 50. We passed `top_k=0`.

Two differences aren't in the table. If a stop string begins inside the prompt and ends in the completion, transformers stops there.
We look only at the completion, as vLLM and the OpenAI protocol do. The other concerns tokenizers in the style of Llama 2, whose
`tokenizer.json` puts a space before a text and after every special token (the normalizer `Prepend`). We follow that file. transformers
5 does so, too, unless `tokenizer_config.json` names `LlamaTokenizer` without setting `legacy` to true. Then only the start of a text
gets the space, and the ids after a special token differ from ours, for example in a chat.

`crates/cli/tests/oracle/parity.py` generates the table, with {versions}. The results that the days' checks compare with
are stored in `tests/dayNN_*/oracle.json`, each with the smallest margin by which any of its tokens was chosen.

| settings | {" | ".join(f"`{name}`" for name in STORY)} |
|---|{"---|" * len(STORY)}
""" + "\n".join(lines) + "\n"
(ROOT / "book/src/parity.md").write_text(text)
raise SystemExit(0 if all_equal else 1)
