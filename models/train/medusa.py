#!/usr/bin/env python3
"""Trains Medusa heads for a story model, on text that the model writes itself, and measures them on held-out stories.

Head k reads the state from which the model's own head predicts the next token, and predicts the token k places after that one
(Cai et al. 2024, arXiv 2401.10774). It is one residual block, `SiLU(W h + b) + h`, before the model's own head, which all
heads share and which isn't trained (vLLM's Medusa with `original_lm_head`). So a head is a (C, C) matrix and a bias, and four
heads for story-3m take 0.3 MB in f16. `W` and `b` start at zero, so each head starts as a copy of the model's own.

    python3 -m venv venv && venv/bin/pip install torch==2.15.0 transformers==5.23.0 safetensors==0.8.0
    venv/bin/python models/train/medusa.py story-3m                                     # seed 0; about ten minutes on two cores
    venv/bin/python models/train/medusa.py story-3m --stories 384 --steps 50 --out DIR  # a short run, a minute or two

It writes three files into the model's folder, or into --out: medusa.safetensors, held_out.jsonl (the stories for evaluation,
never trained on), and train_openings.txt (a hash of the opening of every training story). crates/engine/tests/medusa_heads.rs checks that no
held-out story has the same opening as a training story.
"""

import argparse
import json
import pathlib
import time

import torch
import torch.nn.functional as F
from safetensors.torch import save_file
from transformers import AutoModelForCausalLM

MODELS = pathlib.Path(__file__).resolve().parents[1]
EOS, OPENING, LENGTH, HELD_OUT = 0, 12, 192, 40


@torch.no_grad()
def write(model, rows, temperature, generator, greedy_after=None):
    """Returns `rows` stories of up to LENGTH tokens, sampled at a temperature, or chosen greedily from token `greedy_after` on."""
    ids = torch.zeros(rows, 1, dtype=torch.long)
    past, done = None, torch.zeros(rows, dtype=torch.bool)
    for at in range(LENGTH):
        out = model(ids[:, -1:], past_key_values=past, use_cache=True)
        past, logits = out.past_key_values, out.logits[:, -1]
        if greedy_after is not None and at >= greedy_after:
            new = logits.argmax(-1)
        else:
            new = torch.multinomial(F.softmax(logits / temperature, -1), 1, generator=generator)[:, 0]
        new[done] = EOS
        ids = torch.cat([ids, new[:, None]], 1)
        done |= new == EOS
        if done.all():
            break
    return [[EOS] + row[: (row + [EOS]).index(EOS) + 1] for row in ids[:, 1:].tolist()]


def fnv(ids):
    """Returns the 64-bit FNV-1a hash of the opening's token ids, two bytes each, low byte first."""
    hashed = 0xCBF29CE484222325
    for byte in b"".join(id.to_bytes(2, "little") for id in ids[1 : OPENING + 1]):
        hashed = (hashed ^ byte) * 0x100000001B3 % 2**64
    return f"{hashed:016x}"


@torch.no_grad()
def states(model, stories):
    """Returns, for every story, the states after the last norm and the token that follows each of them."""
    base = model.base_model
    hidden, follow, place = [], [], []
    for ids in stories:
        hidden.append(base(torch.tensor([ids[:-1]])).last_hidden_state[0].half())
        follow.append(torch.tensor(ids[1:]))
        place.append(len(ids) - 1)
    return hidden, follow


class Heads(torch.nn.Module):
    def __init__(self, heads, width, lm_head):
        super().__init__()
        self.w = torch.nn.Parameter(torch.zeros(heads, width, width))
        self.b = torch.nn.Parameter(torch.zeros(heads, width))
        self.lm_head = lm_head  # (V, C), frozen

    def forward(self, h, k):
        """Returns the logits of head k, (N, V), from states (N, C)."""
        return (F.silu(F.linear(h, self.w[k], self.b[k])) + h) @ self.lm_head.T


def examples(hidden, follow, heads):
    """Returns the states, and for each the tokens 2, 3, … places later. -100 marks places past the end of the story."""
    h = torch.cat(hidden)
    labels = torch.full((len(h), heads), -100)
    start = 0
    for tokens in follow:
        for k in range(heads):
            n = len(tokens) - k - 1
            if n > 0:
                labels[start : start + n, k] = tokens[k + 1 :]
        start += len(tokens)
    return h, labels


@torch.no_grad()
def accuracy(heads, h, labels):
    """Returns, for each head, how often the right token is its best one, and how often it is among its best three."""
    found = []
    for k in range(labels.shape[1]):
        known = labels[:, k] >= 0
        top = heads(h[known].float(), k).topk(3).indices == labels[known, k, None]
        found.append((top[:, 0].float().mean().item(), top.any(-1).float().mean().item()))
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", help="a folder in models/, such as story-3m")
    parser.add_argument("--heads", type=int, default=4, help="number of heads, one per depth of the tree")
    parser.add_argument("--stories", type=int, default=2048, help="number of training stories for the model to write")
    parser.add_argument("--steps", type=int, default=800, help="optimizer steps, at least 50")
    parser.add_argument("--batch", type=int, default=2048, help="states per step")
    parser.add_argument("--threads", type=int, default=2, help="number of threads, which affects the last bits of the files")
    parser.add_argument("--out", type=pathlib.Path, help="output folder [default: the model's own]")
    args = parser.parse_args()
    if args.steps < 50:
        parser.error("--steps must be 50 or more: the first twentieth warms up")
    torch.set_num_threads(args.threads)
    torch.manual_seed(0)
    generator = torch.Generator().manual_seed(0)
    folder = MODELS / args.model
    out = args.out or folder
    out.mkdir(parents=True, exist_ok=True)
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()

    held_out_file = out / "held_out.jsonl"
    held_out = write(model, HELD_OUT, 1.0, generator)
    held_out = [ids for ids in held_out if len(ids) > 3 * OPENING]
    openings = {fnv(ids) for ids in held_out}
    stories, began = [], time.time()
    while len(stories) < args.stories:  # a third each: sampled, sampled at a low temperature, greedy after a sampled opening
        for temperature, greedy_after in [(1.0, None), (0.5, None), (1.0, OPENING)]:
            stories += write(model, 128, temperature, generator, greedy_after)
        print(f"{len(stories)} stories, {time.time() - began:.0f} s", flush=True)
    stories = [ids for ids in stories[: args.stories] if len(ids) > OPENING and fnv(ids) not in openings]
    hidden, follow = states(model, stories)
    h, labels = examples(hidden, follow, args.heads)
    test_h, test_labels = examples(*states(model, held_out), args.heads)
    print(f"{len(h)} training states, {len(test_h)} held out; {time.time() - began:.0f} s", flush=True)

    heads = Heads(args.heads, h.shape[1], model.get_output_embeddings().weight.detach())
    optimizer = torch.optim.AdamW([heads.w, heads.b], lr=2e-3, betas=(0.9, 0.95), weight_decay=0.0)
    rate = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=2e-3, total_steps=args.steps, pct_start=0.05)
    for step in range(args.steps):
        rows = torch.randint(len(h), (args.batch,), generator=generator)
        x, y = h[rows].float(), labels[rows]
        losses = [F.cross_entropy(heads(x, k), y[:, k]) for k in range(args.heads)]
        loss = sum(0.8**k * one for k, one in enumerate(losses))  # the paper's weights
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        rate.step()
        if step % 50 == 0 or step == args.steps - 1:
            shown = "  ".join(f"{one.item():.3f}" for one in losses)
            print(f"step {step:4}  loss by head {shown}  {time.time() - began:.0f} s", flush=True)
    for k, (best, three) in enumerate(accuracy(heads, test_h, test_labels)):
        print(f"head {k + 1}: held-out token is the best {best:.3f}, among three {three:.3f}")

    norm = getattr(model.base_model, "norm", None) or model.base_model.ln_f
    tensors = {"norm.weight": norm.weight.detach().float().clone()}  # identifies the model that the heads belong to
    for k in range(args.heads):
        tensors[f"heads.{k}.weight"] = heads.w[k].detach().half().contiguous()
        tensors[f"heads.{k}.bias"] = heads.b[k].detach().half().contiguous()
    tensors["vocab_size"] = torch.tensor([model.config.vocab_size])
    save_file(tensors, out / "medusa.safetensors")
    held_out_file.write_text("".join(json.dumps({"ids": ids}) + "\n" for ids in held_out))
    (out / "train_openings.txt").write_text("".join(line + "\n" for line in sorted({fnv(ids) for ids in stories})))


if __name__ == "__main__":
    main()
