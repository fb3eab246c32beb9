"""Make the goldens: what torch and transformers compute, as files that the checkers read.

usage:  python3 -m venv .venv && .venv/bin/pip install -r tests/oracle/requirements.txt
        .venv/bin/python tests/oracle/generate.py [day01 ... families kit] [--check]

Each dayNN.py has `generate(oracle)`, which fills tests/oracle/dayNN.safetensors and dayNN.json; so do chat.py, kit.py, families.py, metadata.py
and vocabularies.py, for tests/kit.rs and tests/families.rs, and jinja.py for tests/templates.rs. With --check nothing is written: it says
whether what would be written equals what is there (floats to 1e-5: another CPU sums in another order).
"""
import importlib, pathlib, sys

import common

here = pathlib.Path(__file__).parent
days = [a for a in sys.argv[1:] if not a.startswith("-")] or [*sorted(p.stem for p in here.glob("day*.py")), "chat", "families", "jinja", "kit", "metadata", "vocabularies"]
common.pinned(here / "requirements.txt")
failed = 0
for day in days:
    oracle = common.Oracle(here, day)
    importlib.import_module(day).generate(oracle)
    failed += oracle.finish(check="--check" in sys.argv)
sys.exit(1 if failed else 0)
