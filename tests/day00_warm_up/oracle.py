"""Day 0: story-3m without its layers. The embedding table scores its own rows, so most tokens come back."""
import common
import torch

TEXTS = ["Once upon a time", "Lily and her dog", "Lily has 7 cats."]


def generate(oracle):
    tokenizer, model = common.tokenizer(), common.model("story-3m")
    table = model.get_input_embeddings().weight.detach()  # (V, C)
    texts = []
    for text in TEXTS:
        ids = tokenizer(text, return_tensors="pt").input_ids
        logits = table[ids] @ table.T
        best, second = torch.topk(logits[0], 2, dim=-1).values.unbind(-1)
        oracle.decided(f"the echo of {text!r}", (best - second).tolist())
        texts.append({"text": text, "ids": ids[0].tolist(), "own": [logits[0, t, i].item() for t, i in enumerate(ids[0])],
                      "echo_ids": logits[0].argmax(-1).tolist(),
                      "echo": tokenizer.decode(logits[0].argmax(-1))})
    oracle.data["texts"] = texts

    scores = table @ table.T
    own = scores.diagonal()
    others = scores.masked_fill(torch.eye(len(table), dtype=torch.bool), float("-inf")).max(dim=1).values
    # One sum of 192 products, at most 5.3: two orders of f32 sums differ by 192 * 5.3 * 6e-8 = 6e-5 at worst.
    oracle.decided("which tokens come back", (own - others).abs().tolist(), least=5e-4)
    oracle.data["come_back"] = int((own > others).sum())
    # What would be said after 0, 1, … of the six layers, for the chapter's figure (the last hidden state is normed already).
    ids = tokenizer(TEXTS[0], return_tensors="pt").input_ids
    with torch.no_grad():
        *states, last = model(ids, output_hidden_states=True).hidden_states
        states = [states[0]] + [model.model.norm(state) for state in states[1:]] + [last]
    oracle.data["after_layers"] = [tokenizer.batch_decode((state[0] @ table.T).argmax(-1)[:, None]) for state in states]
    oracle.data["mean_own"] = own.mean().item()
    oracle.data["mean_other"] = ((scores.sum() - own.sum()) / (len(table) * (len(table) - 1))).item()
