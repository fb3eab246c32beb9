"""Make the goldens: what torch and transformers compute, as files that the checks and the crates' tests read.

usage:  python3 -m venv .venv && .venv/bin/pip install -r tests/frame/requirements.txt
        .venv/bin/python tests/frame/generate.py [day01 ... families rng] [--check]

A day's tests/dayNN_NAME/oracle.py, and each script in crates/*/tests/oracle/ that has `generate(oracle)`, fills the .safetensors and .json of its
name next to it.
With --check nothing is written: it says whether what would be written equals what is there (floats to 1e-5: another CPU sums in another order).
"""
import importlib.util, pathlib, sys

import common

here = pathlib.Path(__file__).resolve().parent
root = here.parents[1]
scripts = {p.parent.name[:5]: p for p in sorted(root.glob("tests/day*/oracle.py"))}
scripts |= {p.stem: p for p in sorted(root.glob("crates/*/tests/oracle/*.py")) if "\ndef generate(" in p.read_text()}
names = [a for a in sys.argv[1:] if not a.startswith("-")] or list(scripts)
common.pinned(here / "requirements.txt")
failed = 0
for name in names:
    script = scripts[name]
    sys.path.append(str(script.parent))  # for what it imports from its folder
    spec = importlib.util.spec_from_file_location(name, script)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    oracle = common.Oracle(script, name)
    module.generate(oracle)
    failed += oracle.finish(check="--check" in sys.argv)
sys.exit(1 if failed else 0)
