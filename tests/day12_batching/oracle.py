"""Day 12: transformers' batched `generate`, prompts of different lengths padded on the left."""
import torch
from common import STORY, margins, model, tokenizer

PROMPTS = [
    "Once upon a time, there was a little girl",
    "Lily and her dog",
    "The",
    "One day, Tom found a big red ball in the park. He wanted to play with it, but it was stuck in a tree.",
    "The little cat was very",
]
MOST = 60


@torch.no_grad()
def generate(oracle):
    tok = tokenizer()
    tok.padding_side, tok.pad_token_id = "left", 0
    oracle.data["batches"] = []
    for name in STORY:
        net = model(name)
        rows = [tok.encode(prompt) for prompt in PROMPTS]
        batch = tok.pad({"input_ids": rows}, return_tensors="pt")
        out = net.generate(**batch, max_new_tokens=MOST, do_sample=False, pad_token_id=0, return_dict_in_generate=True,
                           output_logits=True)
        logits, new_ids, gaps = torch.stack(out.logits, 1), [], []
        for row, ids in enumerate(rows):
            new = out.sequences[row, batch.input_ids.shape[1]:].tolist()
            new = new[:new.index(0) + 1] if 0 in new else new  # behind its EOS a row is padding
            gap = margins(logits[row, :len(new)])
            oracle.decided(f"{name}, {PROMPTS[row]!r}", gap)
            alone = net.generate(torch.tensor([ids]), max_new_tokens=MOST, do_sample=False, pad_token_id=0)[0, len(ids):]
            assert alone.tolist() == new, f"{name}, {PROMPTS[row]!r}: transformers alone says otherwise"
            new_ids.append(new), gaps.append([round(g, 4) for g in gap])
        print(name, [len(new) for new in new_ids])
        oracle.data["batches"].append({"model": name, "prompts": PROMPTS, "prompt_ids": rows, "max_new_tokens": MOST,
                                       "new_ids": new_ids, "margins": gaps})
