"""Scores models on `examples/evaluation` with lm-evaluation-harness.

`clients.py` scores the server this way, without torch, and compares with `evaluation.json`, which has transformers' scores:
`pip install 'lm-eval[hf]==0.4.13' torch==2.15.0 transformers==5.23.0`, then `python evaluation.py` writes it.
"""

import importlib.metadata
import json
import os
from pathlib import Path

os.environ.setdefault("HF_HUB_OFFLINE", "1")  # the task and its data are in this repository
ROOT = Path(__file__).resolve().parents[4]
RECORDED = Path(__file__).with_suffix(".json")


def score(kind, **args):
    """Returns the scores, and the log-probability of each ending."""
    import lm_eval
    from lm_eval.tasks import TaskManager

    os.chdir(ROOT / "examples/evaluation")  # the task's data file is relative
    tasks = TaskManager(include_path=".", include_defaults=False)
    found = lm_eval.simple_evaluate(kind, args, tasks=["story_endings"], task_manager=tasks, batch_size=8, device="cpu")
    scores = {name.removesuffix(",none"): value for name, value in found["results"]["story_endings"].items()
              if name in ["acc,none", "acc_norm,none"]}
    stories = sorted(found["samples"]["story_endings"], key=lambda sample: sample["doc_id"])
    scores["logprobs"] = [[round(float(ending[0]), 5) for ending in story["filtered_resps"]] for story in stories]
    return scores


if __name__ == "__main__":
    models = {name: score("hf", pretrained=str(ROOT / "models" / name), dtype="float32") for name in ["story-3m", "story-230k"]}
    versions = {name: importlib.metadata.version(name) for name in ["lm_eval", "torch", "transformers"]}
    RECORDED.write_text(json.dumps({"versions": versions, **models}) + "\n")
