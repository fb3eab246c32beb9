"""Make the goldens: what torch and transformers compute, as files that the checkers read.

usage:  python3 -m venv .venv && .venv/bin/pip install -r tests/frame/requirements.txt
        .venv/bin/python tests/frame/generate.py [day01 ... families kit] [--check]

A day's oracle.py, in tests/dayNN_NAME, has `generate(oracle)`, which fills oracle.safetensors and oracle.json beside it. In tests/oracle,
chat.py, families.py, jinja.py, kit.py, metadata.py and vocabularies.py do the same with files of their own names, for the tests that belong
to no day. With --check nothing is written: it says whether what would be written equals what is there (floats to 1e-5: another CPU sums in
another order).
"""
import importlib, sys

import common

names = [a for a in sys.argv[1:] if not a.startswith("-")] or [*common.days(), "chat", "families", "jinja", "kit", "metadata", "vocabularies"]
common.pinned()
failed = 0
for name in names:
    oracle = common.Oracle(name)
    importlib.import_module(name).generate(oracle)
    failed += oracle.finish(check="--check" in sys.argv)
sys.exit(1 if failed else 0)
