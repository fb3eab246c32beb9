"""Day 7: transformers' greedy `generate` with its log-probabilities and stop strings; past the context, where it has no
rule of its own, its forward on the cropped ids."""
import torch
from common import STORY, margins, model, tokenizer

LOG_SOFTMAX_ROWS = 6


def window(length, context, stride):
    """The first token kept: a multiple of the stride, so that no more than the context is left."""
    return 0 if length <= context else -(-(length - context) // stride) * stride


def worth(logits, ids):
    """ln of the probability of each id under its row of logits."""
    return torch.log_softmax(logits, -1).gather(1, torch.tensor(ids)[:, None])[:, 0]


def case(oracle, name, prompt, ids, new, logits, more):
    """One golden; `logits` are those that chose, (n, V)."""
    gaps = margins(logits)
    oracle.decided(f"{name}, {prompt!r}", gaps)
    raw = more.pop("raw", logits)
    return {"model": name, "prompt": prompt, "prompt_ids": ids, "new_ids": new,
            "logprobs": [round(x, 6) for x in worth(raw, new).tolist()], "margins": [round(gap, 4) for gap in gaps], **more}


def greedy(oracle, name, prompt, most, **how):
    """Transformers' own loop. `output_logits` are the model's, `output_scores` what the processors made of them."""
    tok = tokenizer()
    ids = tok.encode(prompt)
    if "stop_strings" in how:
        how["tokenizer"] = tok
    out = model(name).generate(torch.tensor([ids]), max_new_tokens=most, do_sample=False, return_dict_in_generate=True,
                               output_logits=True, output_scores=True, **how)
    how.pop("tokenizer", None)
    new = out.sequences[0, len(ids):].tolist()
    text = tok.decode(new, skip_special_tokens=True)
    for stop in how.get("stop_strings", []):
        text = text.split(stop)[0]
    more = {"max_new_tokens": most, "text": text, "raw": torch.cat(out.logits), **how}
    return case(oracle, name, prompt, ids, new, torch.cat(out.scores), more)


def windowed(oracle, name, prompt, ids, most, stride):
    """Past the context: forward on the cropped ids, positions from 0. It writes on after the end of a story."""
    net, all_ids, logits = model(name), list(ids), []
    for _ in range(most):
        first = window(len(all_ids), net.config.max_position_embeddings, stride)
        logits.append(net(torch.tensor([all_ids[first:]])).logits[0, -1])
        all_ids.append(int(logits[-1].argmax()))
    return case(oracle, name, prompt, ids, all_ids[len(ids):], torch.stack(logits), {"max_new_tokens": most, "stride": stride})


def long_prompt(prompts, length):
    """Stories one after another, as the models were trained on them."""
    tok, net, ids = tokenizer(), model("story-3m"), []
    for prompt in prompts:
        ids += net.generate(torch.tensor([tok.encode(prompt)]), max_new_tokens=120, do_sample=False)[0].tolist()
    return ids[:length]


@torch.no_grad()
def generate(oracle):
    g = torch.Generator().manual_seed(7)
    x = torch.randn(LOG_SOFTMAX_ROWS, 40, generator=g) * torch.tensor([0.1, 1, 4, 8, 16, 32])[:, None]
    oracle.tensor("log_softmax.in", x), oracle.tensor("log_softmax.out", torch.log_softmax(x, -1))

    dog = "Lily and her dog"
    oracle.data["greedy"] = [
        greedy(oracle, "story-3m", dog, 64),  # ends by itself, at the bound too
        greedy(oracle, "story-230k", dog, 64),
        greedy(oracle, "story-gpt2-1m", dog, 30),
        greedy(oracle, "story-3m", "The old man", 24),
    ]
    # " happy" may not be chosen: what is chosen has a log-probability still, and it is the model's.
    oracle.data["suppressed"] = [greedy(oracle, "story-230k", "The little cat was very", 12, suppress_tokens=[379])]
    oracle.data["stopped"] = [
        greedy(oracle, "story-3m", dog, 40, stop_strings=["in the park"]),  # several tokens
        greedy(oracle, "story-3m", dog, 40, stop_strings=["ark. Th"]),  # begins and ends inside tokens
        greedy(oracle, "story-3m", dog, 40, stop_strings=["fun", "play"]),  # the second comes first
        greedy(oracle, "story-230k", "The old man", 12, stop_strings=["dragon"]),  # never comes
    ]
    tok = tokenizer()
    long = long_prompt(["Once upon a time", "One day, Tom found a big", "The old man", "Ben wanted to", "The sun was"], 500)
    oracle.data["windowed"] = [
        windowed(oracle, "story-gpt2-1m", dog, tok.encode(dog), 600, 64),
        windowed(oracle, "story-gpt2-1m", "250 tokens of stories", long[:250], 20, 1),
        windowed(oracle, "story-230k", "500 tokens of stories", long, 30, 128),
    ]
