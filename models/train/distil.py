#!/usr/bin/env python3
"""Distills story-3m into a model of story-230k's size, and measures whether that makes it a better draft model.

Two students start with the same weights and see the same stories, which story-3m itself wrote:
one learns each next token (cross-entropy), the other learns story-3m's whole distribution (KL divergence,
Hinton, Vinyals and Dean 2015). Then both draft for story-3m on stories that neither has seen.

    cargo xtask run --solution ref --prompt-ids 0 --temperature 1 --seed 1 --num-return-sequences 1024 \\
        --max-new-tokens 400 --loop day15 --max-batch-tokens 16000 --format json > stories.jsonl
    python models/train/distil.py stories.jsonl --out DIR      # torch 2.15, transformers 5.23; minutes on two cores

DIR receives report.json and the two students, for use as in `candecode --draft-model DIR/distilled`.
"""

import argparse
import json
import pathlib
import shutil
import time

import torch
import torch.nn.functional as F
from transformers import AutoConfig, AutoModelForCausalLM

MODELS = pathlib.Path(__file__).resolve().parents[1]
EOS = 0
K = 4


def stories(file, length):
    """Returns a file's stories, concatenated and cut into rows of `length` tokens. The first 20 stories are held out and
    returned separately, as a list."""
    texts = [json.loads(line)["new_ids"] for line in file.read_text().splitlines()]
    texts = [ids if ids[-1] == EOS else ids + [EOS] for ids in texts]
    stream = [id for ids in texts[20:] for id in ids]
    return torch.tensor(stream[: len(stream) // length * length]).view(-1, length), texts[:20]


def train(teacher, data, steps, batch, distil, seed):
    """Returns a new student, trained for `steps` steps of AdamW on `data`."""
    torch.manual_seed(seed)
    student = AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(MODELS / "story-230k", dtype="float32"))
    student.train()
    optimizer = torch.optim.AdamW(student.parameters(), lr=3e-3, betas=(0.9, 0.95), weight_decay=0.1)
    rate = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=3e-3, total_steps=steps, pct_start=0.05)
    order = torch.Generator().manual_seed(seed)
    for step in range(steps):
        ids = data[torch.randint(len(data), (batch,), generator=order)]
        logits = student(ids).logits[:, :-1]
        if distil:
            with torch.no_grad():
                target = F.log_softmax(teacher(ids).logits[:, :-1], dim=-1)
            loss = F.kl_div(F.log_softmax(logits, dim=-1), target, log_target=True, reduction="none").sum(-1).mean()
        else:
            loss = F.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(student.parameters(), 1.0)
        optimizer.step()
        rate.step()
        if step % 50 == 0 or step == steps - 1:
            print(f"  step {step:4}  loss {loss.item():.3f}", flush=True)
    return student.eval()


@torch.no_grad()
def agreement(teacher, draft, data):
    """Returns how often the best tokens agree on held-out texts, and the overlap sum(min(p, q)), which is the fraction of
    sampled drafts that are accepted."""
    same = overlap = count = 0
    for ids in data:
        ids = torch.tensor([[EOS] + ids[:-1]])
        p, q = (F.softmax(model(ids).logits, dim=-1) for model in (teacher, draft))
        same += (p.argmax(-1) == q.argmax(-1)).sum().item()
        overlap += torch.minimum(p, q).sum().item()
        count += ids.numel()
    return same / count, overlap / count


@torch.no_grad()
def tokens_per_pass(teacher, draft, data, prompt=8, new=100):
    """Returns the tokens per teacher pass in greedy speculative decoding with K drafts, averaged over the texts."""
    rates = []
    for ids in data:
        ids, passes = ids[:prompt], 0
        while len(ids) < prompt + new:
            drafted = list(ids)
            for _ in range(K):
                drafted.append(draft(torch.tensor([drafted])).logits[0, -1].argmax().item())
            best = teacher(torch.tensor([drafted])).logits[0].argmax(-1).tolist()
            passes += 1
            accepted = 0
            while accepted < K and drafted[len(ids) + accepted] == best[len(ids) - 1 + accepted]:
                accepted += 1
            ids += drafted[len(ids) : len(ids) + accepted] + [best[len(ids) - 1 + accepted]]
        rates.append((len(ids) - prompt) / passes)
    return sum(rates) / len(rates)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("stories", type=pathlib.Path)
    parser.add_argument("--out", type=pathlib.Path, required=True)
    parser.add_argument("--steps", type=int, default=600)
    parser.add_argument("--batch", type=int, default=16)
    args = parser.parse_args()
    torch.set_num_threads(2)
    teacher = AutoModelForCausalLM.from_pretrained(MODELS / "story-3m", dtype=torch.float32).eval()
    data, held_out = stories(args.stories, 256)
    print(f"{data.numel()} tokens to learn from, {sum(map(len, held_out))} held out")
    students = {"shipped": AutoModelForCausalLM.from_pretrained(MODELS / "story-230k", dtype=torch.float32).eval()}
    for name, distil in [("cross-entropy", False), ("distilled", True)]:
        began = time.time()
        print(name)
        students[name] = train(teacher, data, args.steps, args.batch, distil, seed=1)
        print(f"  {time.time() - began:.0f} s")
        students[name].save_pretrained(args.out / name)
        for file in ["tokenizer.json", "tokenizer_config.json", "generation_config.json"]:
            shutil.copy(MODELS / "story-230k" / file, args.out / name / file)
    report = {}
    for name, draft in students.items():
        same, overlap = agreement(teacher, draft, held_out)
        rate = tokens_per_pass(teacher, draft, held_out)
        report[name] = {"same_best_token": same, "overlap": overlap, "tokens_per_pass": rate}
        print(f"{name:14} same best token {same:.3f}  overlap {overlap:.3f}  tokens per pass, greedy, K = {K}: {rate:.2f}")
    settings = {"tokens": data.numel(), "steps": args.steps, "batch": args.batch, "torch": torch.__version__}
    (args.out / "report.json").write_text(json.dumps({**settings, "drafts": report}, indent=2) + "\n")


if __name__ == "__main__":
    main()
