#!/usr/bin/env python3
"""Prints day 24's table: tokens per pass for chains, trees and Medusa heads, on stories that the heads weren't trained on.

    cargo build --features ref
    python3 models/draft_trees.py                                                    # the whole table: about ten minutes
    python3 models/draft_trees.py --stories 4 --flags="--medusa --draft-tree 2x1"    # your own rows

Needs Python 3.9 or later, and no packages. The engine is target/debug/candecode, or the program in $CANDECODE.
"""

import argparse
import json
import os
import pathlib
import subprocess

ROOT = pathlib.Path(__file__).resolve().parents[1]
ENGINE = os.environ.get("CANDECODE", ROOT / "target/debug/candecode")
OPENING, NEW = 12, 64
ROWS = [
    "--draft-ngram 1 --num-draft-tokens 4",
    "--draft-ngram 1 --draft-tree 4x1x1x1",
    "--medusa --draft-tree 1x1x1x1",
    "--medusa --draft-tree 2x1",
    "--medusa --draft-tree 2x1x1x1",
    "--medusa --draft-tree 3x2x1x1",
    "--medusa --draft-tree 4x3x2x1",
    "--draft-model story-230k --num-draft-tokens 4",
    "--draft-model story-230k --draft-tree 2x1",
    "--draft-model story-230k --num-draft-tokens 8",
    "--draft-model story-230k --draft-tree 2x1x1x1",
    "--draft-model story-230k --num-draft-tokens 45",
    "--draft-model story-230k --draft-tree 3x2x1x1",
    "--draft-model story-230k --draft-tree 3x2x1x1x1",
    "--draft-model story-230k --draft-tree 3x2x2x1x1",
]


def run(ids, flags):
    """Returns the engine's JSON for the story that begins with these ids."""
    prompt = ",".join(map(str, ids[:OPENING]))
    line = [ENGINE, "--format", "json", "--prompt-ids", prompt, "--max-new-tokens", str(NEW)]
    done = subprocess.run(line + flags.split(), capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(done.stderr)
    return json.loads(done.stdout)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--stories", type=int, help="number of held-out stories to use [default: all]")
    parser.add_argument("--flags", action="append", help="flags for a row to print instead of the table; can be repeated")
    args = parser.parse_args()
    if not pathlib.Path(ENGINE).exists():
        raise SystemExit(f"{ENGINE}: no such file; cargo build --features ref builds it")
    lines = (ROOT / "models/story-3m/held_out.jsonl").read_text().splitlines()
    stories = [json.loads(line)["ids"] for line in lines][: args.stories]
    plain = [run(ids, "") for ids in stories]
    print(f"{'flags':58} drafted  tokens per pass  equal texts")
    for flags in args.flags or ROWS:
        all = [run(ids, flags) for ids in stories]
        total = {key: sum(one["drafts"][key] for one in all) for key in ["passes", "drafted", "written"]}
        equal = sum(a["new_ids"] == b["new_ids"] for a, b in zip(plain, all))
        per_pass = total["written"] / total["passes"]
        print(f"{flags:58} {total['drafted'] / total['passes']:7.1f} {per_pass:16.3f}  {equal} of {len(all)}", flush=True)


if __name__ == "__main__":
    main()
