"""Day 14: which ids HF's `bad_words_ids` forbid after a text, when it is told the EOS ids and when it is not."""
import torch
from transformers.generation.logits_process import NoBadWordsLogitsProcessor

VOCAB = 8
SEQUENCES = [[1, 2, 3], [2, 5], [6], [0], [4, 0], [7], [7, 7]]
TEXTS = [[1, 1, 1], [7, 7, 1, 2], [2, 1, 7], [1, 2, 3], [5, 5, 4], [7, 0, 7], [2, 2, 2, 2]]


def generate(oracle):
    # A text is as long as the longest sequence: HF passes over a sequence that is longer than the whole text, even
    # where all but its last id stand there.
    oracle.data["sequences"], oracle.data["cases"] = SEQUENCES, []
    for eos in [[], [0], [0, 7]]:
        processor = NoBadWordsLogitsProcessor(SEQUENCES, eos_token_id=eos or None)
        for text in TEXTS:
            scores = processor(torch.tensor([text]), torch.ones(1, VOCAB))[0]
            forbidden = [i for i, score in enumerate(scores.tolist()) if score == -torch.inf]
            oracle.data["cases"].append({"eos": eos, "tokens": text, "forbidden": forbidden})
