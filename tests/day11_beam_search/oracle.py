"""Day 11: transformers' beam search, its sequences and scores; and how near each of its decisions was."""
import torch
from common import model, tokenizer

DOG, MAN, TOM = "Lily and her dog", "The old man", "One day, Tom found a big"


def gaps(values, at):
    """How far the values on both sides of a cut are apart: the last of the best `at`, and the first after them."""
    return [] if at <= 0 or at >= len(values) else [values[at - 1] - values[at]]


class Watched:
    """Looks on while transformers searches, and notes by how much each decision was made.

    Decided are: who goes on (the last beam kept, the first dropped); who is among the num_beams best of all candidates, if
    an ending stands beside that cut; whether to stop; and which finished texts are kept, and in which order.
    """

    def __init__(self, net):
        self.margins, net_best, net_split = [], net._get_top_k_continuations, net._get_running_beams_for_next_iteration
        net_stop, net_keep = net._check_early_stop_heuristic, net._update_finished_beams

        def best(**how):
            self.all = torch.sort(how["accumulated_log_probs"][0], descending=True).values.tolist()
            return net_best(**how)

        def split(**how):
            ends, beams = how["next_token_hits_stopping_criteria"][0].tolist(), how["num_beams"]
            scores = how["topk_log_probs"][0].tolist()
            running = [s for s, end in zip(scores, ends) if not end] + self.all[len(scores):]
            step = gaps(running, beams) if not all(ends) else []
            if ends[beams - 1] or (beams < len(ends) and ends[beams]):
                step += gaps(self.all, beams)
            self.margins.append(step)
            return net_split(**how)

        def keep(**how):
            sequences, scores, indices, finished = net_keep(**how)
            found = sorted((s for s in scores[0].tolist() if s > -1e8), reverse=True)
            self.margins[-1] += [a - b for a, b in zip(found, found[1:])]
            merged = (how["topk_log_probs"] / ((how["cur_len"] + 1 - how["decoder_prompt_len"]) ** how["length_penalty"]))[0]
            ends = how["next_token_hits_stopping_criteria"][0] & how["top_num_beam_mask"]
            merged = merged[ends].tolist() + [s for s in how["beam_scores"][0].tolist() if s > -1e8]
            self.margins[-1] += gaps(sorted(merged, reverse=True), how["num_beams"])
            return sequences, scores, indices, finished

        def stop(**how):
            if how["is_sent_finished"].all() and how["early_stopping"] is not True:
                longest = how["early_stopping"] == "never" and how["length_penalty"] > 0
                length = (how["max_length"] if longest else how["cur_len"]) - how["decoder_prompt_len"]
                best = how["running_beam_scores"][0, 0] / length ** how["length_penalty"]
                if best > -1e8:  # else nothing goes on
                    self.margins[-1].append(abs(float(best - how["beam_scores"].min())))
            return net_stop(**how)

        net._get_top_k_continuations, net._get_running_beams_for_next_iteration = best, split
        net._update_finished_beams, net._check_early_stop_heuristic = keep, stop


def search(name, prompt, most, beams, eos=None, **how):
    """One search: the case, and the margin of its nearest decision."""
    tok, net = tokenizer(), model(name)
    watched = Watched(net)
    ids = tok.encode(prompt)
    how = {"num_return_sequences": beams, "length_penalty": 1.0, "early_stopping": False, **how}
    eos_ids = net.generation_config.eos_token_id if eos is None else [tok.encode(word)[0] for word in eos]
    eos_ids = [eos_ids] if isinstance(eos_ids, int) else eos_ids
    more = {"tokenizer": tok} if "stop_strings" in how else {}
    out = net.generate(torch.tensor([ids]), max_new_tokens=most, num_beams=beams, do_sample=False, output_scores=True,
                       return_dict_in_generate=True, eos_token_id=eos_ids or None, pad_token_id=0, **how, **more)
    lengths = (out.beam_indices >= 0).sum(1).tolist()
    texts = []
    for row, length, score in zip(out.sequences.tolist(), lengths, out.sequences_scores.tolist()):
        new = row[len(ids):len(ids) + length]
        end = "eos" if new[-1] in eos_ids else "length" if length == most else "stop"
        texts.append({"new_ids": new, "score": round(score, 6), "finish": end, "text": tok.decode(new)})
    how["early_stopping"] = str(how["early_stopping"]).lower()
    case = {"model": name, "prompt": prompt, "prompt_ids": ids, "max_new_tokens": most, "num_beams": beams, "eos": eos_ids,
            "steps": len(watched.margins), **how, "texts": texts}
    return case, [gap for step in watched.margins for gap in step]


# What to search: transformers' defaults; then with ends near, so that many texts finish and it matters when to stop.
DEFAULTS = [
    (("story-230k", DOG, 20, 3), {}),
    (("story-230k", TOM, 14, 2), {"num_return_sequences": 1}),
    (("story-gpt2-1m", DOG, 12, 2), {}),
    (("story-3m", DOG, 12, 4), {"num_return_sequences": 2}),
    (("story-3m", "They all lived happily ever", 12, 3), {}),  # ends by itself
]
ENDINGS = [
    (("story-230k", prompt, 14, 3, [".", ","]), {"length_penalty": penalty, "early_stopping": when})
    for prompt, penalty, when in [
        ("Once upon a time", 1.0, True), ("Once upon a time", 1.0, False), ("Once upon a time", 1.0, "never"),
        ("Mia saw a", 1.0, True), ("Mia saw a", 1.0, False), ("Mia saw a", 1.0, "never"),
        ("The sun was", 1.0, "never"), ("The cat", 2.0, False), ("Mom said", 2.0, False),
        ("A little bird", 0.0, False), ("A little bird", 0.0, "never"), ("Once upon a time", -1.0, True), ("Mom said", -1.0, "never"),
    ]
]
PROCESSED = [
    (("story-230k", DOG, 12, 3), {"repetition_penalty": 1.3}),
    (("story-230k", MAN, 16, 2), {"no_repeat_ngram_size": 2}),
    (("story-230k", TOM, 16, 2), {"stop_strings": ["the ", "play"]}),
]


@torch.no_grad()
def generate(oracle):
    for group, cases in [("defaults", DEFAULTS), ("endings", ENDINGS), ("processed", PROCESSED)]:
        oracle.data[group] = []
        for positional, named in cases:
            case, margins = search(*positional, **named)
            oracle.decided(f"{positional}, {named}", margins)
            oracle.data[group].append({**case, "margin": round(min(margins), 5)})
