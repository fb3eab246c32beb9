"""Day 8: HF's warpers on random logits and on edge cases, torch's stream, and the tokens of `generate(do_sample=True)`."""
import math

import torch
from transformers.generation import logits_process as hf

from common import model, tokenizer

LEAST = 1e-3  # of a gap between logarithms of probabilities
LEAST_SUM = 1e-5  # of the distance of a sum of probabilities from 1 - top_p
NEW = 20
PROMPTS = ["Once upon a time", "One day, Tom found a big"]
SETTINGS = [
    {},
    {"temperature": 0.7},
    {"top_k": 20},
    {"temperature": 0.8, "top_p": 0.9},
    {"temperature": 1.2, "top_k": 40, "top_p": 0.95, "min_p": 0.05},
]


def hf_warpers(setting):
    """In the order of `_get_logits_processor`."""
    make = [("temperature", hf.TemperatureLogitsWarper), ("top_k", hf.TopKLogitsWarper),
            ("top_p", hf.TopPLogitsWarper), ("min_p", hf.MinPLogitsWarper)]
    return [(name, setting[name], warper(setting[name])) for name, warper in make if name in setting]


def cut_margin(name, value, before, after, q, winner, score):
    """How far a filter is from another winner: the distance to the cut of the winner itself, and of each token that the
    filter drops and that would beat the winner. As a fraction of what is allowed for that kind of cut."""
    kept = after > -math.inf
    beats = ~kept & (before > -math.inf) & (before - q.log() > score - LEAST)
    dropped = before[~kept & (before > -math.inf)]
    if len(dropped) == 0:
        return math.inf
    if name == "min_p":
        ln = before.log_softmax(-1)
        cut = ln.max() + math.log(value)
        gaps = torch.cat([(ln[winner] - cut).view(1), cut - ln[beats]])
        return gaps.min().item() / LEAST
    # Top-k, and top-p where two neighbors in its order may change places: the largest dropped, the smallest kept.
    gaps = torch.cat([(before[winner] - dropped.max()).view(1), before[kept].min() - before[beats]])
    worst = gaps.min().item() / LEAST
    if name == "top_p":
        order = before.argsort(stable=True)
        sums = torch.empty_like(before)
        sums[order] = before[order].softmax(-1).cumsum(-1)
        cut = 1 - value
        own = [] if winner == order[-1] else [(sums[winner] - cut).view(1)]
        worst = min(worst, torch.cat([*own, cut - sums[beats], torch.full((1,), math.inf)]).min().item() / LEAST_SUM)
    return worst


def decision_margin(logits, q, setting):
    """The winner of one row, and its margin: 1e-3 or more is decided, whatever the order of f32 sums."""
    steps, scores = [], logits
    for name, value, warper in hf_warpers(setting):
        before, scores = scores, warper(None, scores[None])[0]
        steps.append((name, value, before, scores))
    race = scores - q.log()
    best = race.topk(2).values
    winner = int(race.argmax())
    worst = (best[0] - best[1]).item() / LEAST
    for name, value, before, after in steps:
        if name != "temperature":
            worst = min(worst, cut_margin(name, value, before, after, q, winner, before[winner] - q[winner].log()))
    return winner, worst * LEAST


def sampled(m, inputs, seed, setting, new, **more):
    """HF's tokens of every row, up to EOS, and the smallest margin; None if a choice does not replay."""
    torch.manual_seed(seed)
    # top_k=0: HF's hidden default is 50
    out = m.generate(**inputs, do_sample=True, max_new_tokens=new, pad_token_id=0, return_dict_in_generate=True,
                     output_logits=True, **{"top_k": 0, "temperature": 1.0, **setting}, **more)
    start = inputs["input_ids"].shape[1]
    rows = out.sequences[:, start:].tolist()
    replay = torch.Generator().manual_seed(seed)
    ended, worst, texts = [False] * len(rows), math.inf, [[] for _ in rows]
    for step, logits in enumerate(out.logits):
        q = torch.empty(logits.shape).exponential_(1, generator=replay)  # finished rows draw as well
        for row, ids in enumerate(rows):
            if ended[row]:
                continue
            winner, margin = decision_margin(logits[row].float(), q[row], setting)
            assert winner == ids[step], "torch's multinomial is not the race that day 8 describes"
            worst = min(worst, margin)
            texts[row].append(winner)
            ended[row] = winner == 0
    return texts, worst


def generated(oracle):
    m, t = model("story-3m"), tokenizer()
    prompts = [t(p, return_tensors="pt") for p in PROMPTS]
    oracle.data["settings"] = SETTINGS
    oracle.data["prompts"] = [p.input_ids[0].tolist() for p in prompts]
    runs, smallest, seed = [], [], 0
    while len(runs) < 10:
        texts = []
        for i, setting in enumerate(SETTINGS):
            [ids], margin = sampled(m, prompts[i % 2], seed, setting, NEW)
            texts.append((ids, margin))
        if min(margin for _, margin in texts) >= LEAST:
            runs.append({"seed": seed, "new_ids": [ids for ids, _ in texts]})
            smallest += [margin for _, margin in texts]
        seed += 1
    oracle.data["runs"] = runs
    oracle.decided("ten seeds, five settings", smallest)

    # Several samples of one prompt: one stream serves all rows, and goes on serving those that have ended.
    prompt = t("They were happy. The", return_tensors="pt")
    setting = {"temperature": 0.8, "top_p": 0.9}
    batches = []
    for seed in range(200):
        rows, margin = sampled(m, prompt, seed, setting, 30, num_return_sequences=3)
        lengths = [len(row) for row in rows]
        if margin >= LEAST and lengths[1] < min(lengths[0], lengths[2]) < 30:
            batches.append({"seed": seed, "setting": setting, "prompts": prompt.input_ids.tolist() * 3, "new_ids": rows})
            oracle.decided("three samples of one prompt", [margin])
            break
    # Two prompts of different lengths in one static batch, padded on the left.
    t.padding_side, t.pad_token = "left", t.eos_token
    both = t(PROMPTS[::-1], return_tensors="pt", padding=True)
    setting = {"top_k": 20}
    for seed in range(200):
        rows, margin = sampled(m, both, seed, setting, NEW)
        if margin >= LEAST:
            ids = [p.input_ids[0].tolist() for p in prompts[::-1]]
            batches.append({"seed": seed, "setting": setting, "prompts": ids, "new_ids": rows})
            oracle.decided("two prompts", [margin])
            break
    assert len(batches) == 2
    oracle.data["batches"] = batches


def nearest(name, value, before):
    """How near to the cut of a filter any token is, in the units of `decided`: 1e-5 of a sum counts as 1e-3. Top-k and
    whatever is exactly on the cut have no margin: these are exact in every order of sums."""
    if name == "top_p":
        sums = before.sort(-1).values.softmax(-1).cumsum(-1)[:, :-1]
        return [((sums - (1 - value)).abs().min() * (LEAST / LEAST_SUM)).item()] if value < 1 else [1.0]
    if name == "min_p" and value > 0:
        ln = before.log_softmax(-1)
        gaps = (ln - ln.amax(-1, keepdim=True) - math.log(value)).abs()
        return [gaps[gaps > 0].min().item()]
    return [1.0]


def filters(oracle):
    g = torch.Generator().manual_seed(8)
    random = torch.randn(6, 40, generator=g) * 3
    # Many equals. torch.sort is stable up to 16 numbers, above any of equals may come first: top-p then keeps any of them.
    ties = (torch.randn(6, 16, generator=g) * 2).round() / 2
    oracle.tensor("logits.random", random), oracle.tensor("logits.ties", ties)
    cases = []

    def case(name, rows, setting):
        scores = rows
        for what, value, warper in hf_warpers(setting):
            scores, before = warper(None, scores), scores
            oracle.decided(f"{what} {value}", nearest(what, value, before))
        cases.append({"logits": name, **setting})
        oracle.tensor(f"filtered.{len(cases) - 1}", scores)

    for t in [0.1, 0.7, 1.0, 3.0]:
        case("random", random, {"temperature": t})
    for name, rows in [("random", random), ("ties", ties)]:
        for k in [1, 2, 5, 23, 1000]:
            case(name, rows, {"top_k": k})
        for p in [0.02, 0.3, 0.5, 0.9, 0.99]:
            case(name, rows, {"top_p": p})
        case(name, rows, {"top_p": 1.0})
        for p in [0.0, 0.03, 0.25, 1.0]:
            case(name, rows, {"min_p": p})
    for setting in [{"top_k": 12, "top_p": 0.6}, {"temperature": 1.5, "top_k": 10, "top_p": 0.8},
                    {"temperature": 0.5, "top_p": 0.7, "min_p": 0.1}, {"top_k": 7, "min_p": 0.3}, {"temperature": 2.0, "top_k": 12, "top_p": 0.9, "min_p": 0.2}]:
        case("random", random, setting)
    oracle.data["cases"] = cases

    worked = torch.tensor([6, 2, 7, 0.1, -8, 9])
    oracle.tensor("worked", torch.stack([(worked / t).softmax(-1) for t in (1, 0.1, 100)]))
    oracle.tensor("softmax", random.softmax(-1))


def stream(oracle):
    """torch's generator: words, exponentials, and its multinomial on given probabilities."""
    oracle.data["words"] = []
    for seed in [0, 42, 2**32 + 7]:
        words = torch.empty(1300, dtype=torch.int64)
        words.random_(0, 2**27, generator=torch.Generator().manual_seed(seed))  # the low 27 bits of each word
        pairs = torch.empty(650, dtype=torch.int64)
        pairs.random_(0, 2**32, generator=torch.Generator().manual_seed(seed))  # of each two words the second, whole
        at = [0, 1, 2, 226, 227, 228, 622, 623, 624, 625, 1247, 1248, 1249, 1299]
        second = [1, 227, 453, 623, 625, 1247, 1249]
        oracle.data["words"].append({"seed": seed, "at": at, "low 27 bits": words[at].tolist(), "second at": second,
                                     "second": [pairs[i // 2].item() for i in second]})
    for seed in [0, 42]:
        q = torch.empty(700).exponential_(1, generator=torch.Generator().manual_seed(seed))
        oracle.tensor(f"exponentials.{seed}", q)
    q = torch.empty(3, 500).exponential_(1, generator=torch.Generator().manual_seed(1))
    oracle.tensor("exponentials.rows", q.flatten()[-20:])  # row-major: the last ones of a (3, 500)

    g = torch.Generator().manual_seed(88)
    probs = (torch.randn(12, 30, generator=g) * 2).softmax(-1)
    probs[:, ::4] = 0
    probs = probs / probs.sum(-1, keepdim=True)
    q = torch.empty(12, 30).exponential_(1, generator=torch.Generator().manual_seed(5))
    winners = torch.multinomial(probs, 1, generator=torch.Generator().manual_seed(5)).view(-1)
    best = (probs / q).log().topk(2).values
    oracle.decided("multinomial", (best[:, 0] - best[:, 1]).tolist())
    oracle.tensor("race.probs", probs), oracle.tensor("race.q", q)
    oracle.data["race.winners"] = winners.tolist()


def contexts(oracle):
    """What the same filters keep after two beginnings: a certain one and an open one. The chapter's figure shows them."""
    m, t = model("story-3m"), tokenizer()
    oracle.data["contexts"] = []
    for text in ["Once upon a", "One day, Tom found a big"]:
        ids = t(text, return_tensors="pt").input_ids
        logits = m(ids).logits[0, -1].detach()
        probs, order = logits.softmax(-1).sort(descending=True)
        kept = []
        for setting in [{"top_k": 50}, {"top_p": 0.9}, {"min_p": 0.05}, {"temperature": 2.0, "top_p": 0.9}]:
            scores = logits[None]
            for name, value, warper in hf_warpers(setting):
                scores, before = warper(None, scores), scores
                oracle.decided(f"{text!r}, {name} {value}", nearest(name, value, before))
            left = scores[0] > -math.inf
            kept.append({**setting, "kept": left.sum().item(), "mass": logits.softmax(-1)[left].sum().item()})
        best = [[t.decode([i]), p] for i, p in zip(order[:8].tolist(), probs[:8].tolist())]
        oracle.data["contexts"].append({"text": text, "ids": ids[0].tolist(), "best": best, "filters": kept})


def generate(oracle):
    contexts(oracle)
    filters(oracle)
    stream(oracle)
    generated(oracle)
