"""Day 9: HF's penalties on random logits, vLLM's by its formula, the whole pipeline, and greedy tokens under penalties."""
import torch
from transformers import GenerationConfig
from transformers.generation import logits_process as hf

from common import margins, model, tokenizer
from day08 import nearest

PIPELINE = {"repetition_penalty": 1.3, "no_repeat_ngram_size": 2, "temperature": 0.7, "top_k": 12, "top_p": 0.9, "min_p": 0.05}
GREEDY = [
    {"repetition_penalty": 1.2},
    {"repetition_penalty": 0.9},
    {"no_repeat_ngram_size": 3},
    {"no_repeat_ngram_size": 1},
    {"repetition_penalty": 1.1, "no_repeat_ngram_size": 2},
]
PROMPTS = ["Once upon a time", "Lily and her dog went to the park. Lily"]


def vllm(logits, prompt, generated, repetition, presence, frequency):
    """vLLM's numbers, worked by its formula, for vLLM itself is not installed here. As in `apply_penalties`
    (vllm/model_executor/layers/utils.py, commit 0035860) and `apply_repetition_penalties_torch` (vllm/_custom_ops.py,
    commit 0002bde): repetition for what is in prompt or output, then frequency by counts in the output, then presence."""
    vocab = logits.shape[-1]
    counts = torch.bincount(torch.tensor(generated), minlength=vocab)
    seen = (torch.bincount(torch.tensor(prompt), minlength=vocab) + counts) > 0
    scale = torch.where(seen, torch.full((vocab,), repetition), torch.ones(vocab))
    logits = logits * torch.where(logits > 0, 1 / scale, scale)
    logits = logits - frequency * counts
    return logits - presence * (counts > 0)


def processors(oracle):
    g = torch.Generator().manual_seed(9)
    logits = torch.randn(6, 40, generator=g) * 3
    logits[:, 7] = 0.0
    logits[:, 8] = -torch.inf
    ids = torch.randint(0, 12, (6, 24), generator=g)  # few different ones, so that much repeats
    oracle.tensor("logits", logits), oracle.tensor("ids", ids.to(torch.uint32))
    oracle.data["repetition"], oracle.data["ngrams"] = [0.8, 1.0, 1.3, 2.0], [1, 2, 3, 4, 24, 25]
    for penalty in oracle.data["repetition"]:
        oracle.tensor(f"repetition.{penalty}", hf.RepetitionPenaltyLogitsProcessor(penalty)(ids, logits))
    for n in oracle.data["ngrams"]:
        oracle.tensor(f"ngram.{n}", hf.NoRepeatNGramLogitsProcessor(n)(ids, logits))

    oracle.data["prompt_len"], oracle.data["vllm"] = 16, []
    for repetition, presence, frequency in [(1.0, 0.5, 0.0), (1.0, 0.0, 0.25), (1.0, 0.7, 0.3), (1.0, -1.0, -0.5), (1.4, 0.6, 0.2)]:
        rows = [vllm(l, i[:16], i[16:], repetition, presence, frequency) for l, i in zip(logits, ids.tolist())]
        oracle.tensor(f"vllm.{len(oracle.data['vllm'])}", torch.stack(rows))
        oracle.data["vllm"].append({"repetition": repetition, "presence": presence, "frequency": frequency})


def pipeline(oracle, m):
    """What `_get_logits_processor` makes of a configuration with everything in it, in its order."""
    config = GenerationConfig(do_sample=True, **PIPELINE)
    made = m._get_logits_processor(config, input_ids_seq_length=1)
    oracle.data["order"], oracle.data["pipeline"] = [type(p).__name__ for p in made], PIPELINE
    ids, scores = oracle.tensors["ids"].long(), oracle.tensors["logits"]
    for processor in made:
        scores, before = processor(ids, scores), scores
        name = {"TopPLogitsWarper": "top_p", "MinPLogitsWarper": "min_p"}.get(type(processor).__name__, "")
        oracle.decided(name or "exact", nearest(name, PIPELINE.get(name, 0), before))
    oracle.tensor("pipelined", scores)


def generate(oracle):
    m, t = model("story-3m"), tokenizer()
    processors(oracle)
    pipeline(oracle, m)
    runs = []
    for text in PROMPTS:
        prompt = t(text, return_tensors="pt")
        for setting in GREEDY:
            out = m.generate(**prompt, do_sample=False, max_new_tokens=40, pad_token_id=0, return_dict_in_generate=True,
                             output_scores=True, **setting)
            ids = prompt.input_ids[0].tolist()
            oracle.decided(f"{text!r}, {setting}", margins(torch.cat(out.scores)))
            runs.append({"setting": setting, "prompt": ids, "new_ids": out.sequences[0, len(ids):].tolist()})
    oracle.data["greedy"] = runs
