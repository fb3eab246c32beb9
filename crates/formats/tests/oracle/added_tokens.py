"""The tokens that transformers adds for the files next to a tokenizer.json, and the names of tokens that end a text in llama.cpp."""
import copy, json, pathlib, re, subprocess, sys, tarfile, tempfile

from transformers import AutoTokenizer
from transformers.tokenization_utils_tokenizers import TokenizersBackend

import common

TEXTS = ["Once<|a|>upon <|b|> a<|c|>time", "<|endoftext|>hi<s>there</s> <unk>", "x<|img|>y <|a|> <|b|>", "A<|d|>B"]


def llama_cpp():
    """llama.cpp's source on vocabularies, as the package of its Python binding has it."""
    version = next(l.strip() for l in pathlib.Path(common.__file__).with_name("requirements.txt").open() if l.startswith("llama-cpp-python"))
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--no-binary", ":all:", "-d", folder, version], check=True)
        with tarfile.open(next(pathlib.Path(folder).glob("*.tar.gz"))) as tar:
            member = next(m for m in tar.getmembers() if m.name.endswith("/llama.cpp/src/llama-vocab.cpp"))
            return tar.extractfile(member).read().decode()


def end_names(vocab):
    """The names of tokens that end a text, by what they are compared for."""
    def compared(start, end):
        part = vocab[vocab.index(start):]
        return re.findall(r't\.first == "([^"]+)"', part[: part.index(end)])
    return {
        "end": compared("special_eog_ids.clear();", "special_eog_ids.insert(t.second);"),
        "fim_pad": compared("if (special_fim_pad_id == LLAMA_TOKEN_NULL)", "special_fim_pad_id = t.second"),
        "fim_rep": compared("if (special_fim_rep_id == LLAMA_TOKEN_NULL)", "special_fim_rep_id = t.second"),
        "fim_sep": compared("if (special_fim_sep_id == LLAMA_TOKEN_NULL)", "special_fim_sep_id = t.second"),
    }


def token(content, **properties):
    return {"content": content, "lstrip": False, "rstrip": False, "single_word": False, "normalized": False, **properties}


def special(content, **properties):
    return token(content, special=True, **properties)


def ordinary(content, **properties):
    return token(content, special=False, **properties)


def in_class(family, name, files):
    """The same files, read as a tokenizer of this class for a model of this family."""
    named = {"tokenizer_class": name} if name else {}
    return {**files, "config.json": {"model_type": family}, "tokenizer_config.json": {**files["tokenizer_config.json"], **named}}


# <|a|> is ordinary in tokenizer.json, and other files name it.
A = [ordinary("<|a|>", id=2048)]
NAMED = {
    "pad": {"pad_token": "<|a|>"},
    "image": {"image_token": "<|a|>"},
    "table": {"extra_special_tokens": {"image_token": "<|a|>"}},
    "saved table": {"model_specific_special_tokens": {"image_token": "<|a|>"}},
    "list": {"additional_special_tokens": ["<|a|>"]},
    "pad, declared as ordinary": {"pad_token": "<|a|>", "added_tokens_decoder": {"2048": ordinary("<|a|>")}},
    "list, declared as ordinary": {"additional_special_tokens": ["<|a|>"], "added_tokens_decoder": {"2048": ordinary("<|a|>")}},
    "pad, another declared": {"pad_token": "<|a|>", "added_tokens_decoder": {"0": special("<|endoftext|>")}},
}
CLASSES = {"llama": [None], "gpt2": [None], "qwen2": ["PreTrainedTokenizerFast"], "qwen3": [None, "PreTrainedTokenizerFast"]}


# Files beside a tokenizer.json whose own added token is <|endoftext|>, id 0; "added" are more of its added tokens.
FOLDERS = {
    "nothing": {},
    "declared by id": {"tokenizer_config.json": {"added_tokens_decoder": {"2048": special("<|a|>"), "2049": token("<|b|>", special=False)}}},
    "declared out of order": {"tokenizer_config.json": {"added_tokens_decoder": {"2050": special("<|a|>"), "2048": special("<|b|>"), "2049": special("<|c|>")}}},
    "an id with a gap": {"tokenizer_config.json": {"added_tokens_decoder": {"2100": special("<|a|>")}}},
    "an id of another token": {"tokenizer_config.json": {"added_tokens_decoder": {"5": special("<|a|>"), "0": special("<|b|>")}}},
    "a token of the vocabulary": {"tokenizer_config.json": {"added_tokens_decoder": {"300": special("hi"), "2048": token("there", special=False, lstrip=True)}}},
    "known with other properties": {"added": [special("<|a|>", id=2048)], "tokenizer_config.json": {"added_tokens_decoder": {"2048": token("<|a|>", special=False, lstrip=True)}}},
    "known as it is": {"added": [special("<|a|>", id=2048)], "tokenizer_config.json": {"added_tokens_decoder": {"0": special("<|endoftext|>"), "2048": special("<|a|>"), "2049": special("<|b|>")}}},
    "named ones only": {"tokenizer_config.json": {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>", "pad_token": "<|endoftext|>"}},
    "named and declared": {"tokenizer_config.json": {"eos_token": "<|a|>", "added_tokens_decoder": {"2049": token("<|a|>", special=False)}}},
    "a name of its own": {"tokenizer_config.json": {"image_token": "<|img|>", "add_bos_token": True}},
    "stripped and single": {"tokenizer_config.json": {"added_tokens_decoder": {"2048": special("<|a|>", rstrip=True), "2049": special("<|b|>", lstrip=True), "2050": special("<|c|>", single_word=True)}}},
    "additional": {"tokenizer_config.json": {"additional_special_tokens": ["<|a|>", "<|b|>"]}},
    "extra": {"tokenizer_config.json": {"extra_special_tokens": ["<|b|>", "<|a|>"], "added_tokens_decoder": {"2048": special("<|a|>")}}},
    "extra with names": {"tokenizer_config.json": {"extra_special_tokens": {"image_token": "<|img|>"}}},
    "special_tokens_map": {"tokenizer_config.json": {}, "special_tokens_map.json": {"bos_token": "<s>", "eos_token": token("</s>"), "unk_token": "<unk>"}},
    "special_tokens_map goes first": {"tokenizer_config.json": {"bos_token": "<|a|>"}, "special_tokens_map.json": {"bos_token": "<|b|>"}},
    "special_tokens_map without effect": {"tokenizer_config.json": {"bos_token": "<|a|>", "added_tokens_decoder": {}}, "special_tokens_map.json": {"bos_token": "<|b|>", "eos_token": "</s>"}},
    "special_tokens_map alone": {"special_tokens_map.json": {"bos_token": "<s>", "additional_special_tokens": ["<|a|>"]}},
    "added_tokens": {"tokenizer_config.json": {"eos_token": "<|b|>"}, "added_tokens.json": {"<|c|>": 2050, "<|a|>": 2048, "<|b|>": 2049}},
    "added_tokens that clash": {"added": [special("<|c|>", id=2048)], "tokenizer_config.json": {}, "added_tokens.json": {"<|a|>": 2048, "<|b|>": 2049}},
    "added_tokens without effect": {"tokenizer_config.json": {"added_tokens_decoder": {"2048": special("<|d|>")}}, "added_tokens.json": {"<|a|>": 2048}},
}
FOLDERS |= {f"named: {how}": {"added": A, "tokenizer_config.json": config} for how, config in NAMED.items()}
FOLDERS |= {f"named: {how}, {family} {of or 'without a class'}": in_class(family, of, {"added": A, "tokenizer_config.json": config})
            for family, classes in CLASSES.items() for of in classes for how, config in NAMED.items()}


def folder(files, path):
    tokenizer = json.loads((common.MODELS / "story-230k" / "tokenizer.json").read_text())
    tokenizer["added_tokens"] += files.get("added", [])
    (path / "tokenizer.json").write_text(json.dumps(tokenizer))
    for name, data in files.items():
        if name != "added":
            (path / name).write_text(json.dumps(data))
    return (AutoTokenizer if "config.json" in files else TokenizersBackend).from_pretrained(path)


def generate(oracle):
    oracle.data["end names"] = end_names(llama_cpp())
    found = {}
    for name, files in FOLDERS.items():
        with tempfile.TemporaryDirectory() as path:
            tokenizer = folder(copy.deepcopy(files), pathlib.Path(path))
            texts = [[text, tokenizer.encode(text)] for text in (TEXTS[:1] if name.startswith("named: ") else TEXTS)]
            texts = [[text, ids, tokenizer.decode(ids, skip_special_tokens=True)] for text, ids in texts]
            found[name] = {"files": files, "texts": texts, "names": dict(sorted(tokenizer.special_tokens_map.items()))}
    oracle.data["added tokens"] = found
