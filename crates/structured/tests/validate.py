"""Checks the texts that `schemas.rs` wrote with an implementation of JSON Schema that isn't ours.

Usage: python3 crates/structured/tests/validate.py target/tmp/schemas.json   (pip install jsonschema)
"""

import json
import sys

from jsonschema.validators import validator_for, Draft202012Validator

cases = json.load(open(sys.argv[1], encoding="utf-8"))
wrong = 0
for case in cases:
    schema = case["schema"]
    errors = list(validator_for(schema, default=Draft202012Validator)(schema).iter_errors(json.loads(case["text"])))
    if errors:
        wrong += 1
        print("WRONG:", case["source"], json.dumps(schema)[:300], case["text"][:300], errors[0].message, sep="\n  ")
print(f"{len(cases) - wrong} passed, {wrong} failed")
sys.exit(wrong > 0 or len(cases) != 200)
