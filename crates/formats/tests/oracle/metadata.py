"""What transformers and llama.cpp read in a model's files: the keys that they know, and the tokens that they add."""
import copy, dataclasses, inspect, json, pathlib, re, subprocess, sys, tarfile, tempfile

import gguf
from transformers import AutoTokenizer, GenerationConfig, GPT2Config, LlamaConfig, Qwen2Config, Qwen3Config
from transformers.modeling_rope_utils import RopeParameters
from transformers.tokenization_utils_base import PreTrainedTokenizerBase
from transformers.tokenization_utils_tokenizers import TokenizersBackend

import common

CONFIGS = {"gpt2": GPT2Config, "llama": LlamaConfig, "qwen2": Qwen2Config, "qwen3": Qwen3Config}
TEXTS = ["Once<|a|>upon <|b|> a<|c|>time", "<|endoftext|>hi<s>there</s> <unk>", "x<|img|>y <|a|> <|b|>", "A<|d|>B"]


def constants(of):
    """All texts in a class of constants and the classes in it."""
    for name, value in vars(of).items():
        if name.startswith("__"):
            continue
        if isinstance(value, str) and "." in value:
            yield value
        elif inspect.isclass(value):
            yield from constants(value)


def llama_cpp():
    """Two of llama.cpp's sources, as the package of its Python binding has them."""
    version = next(l.strip() for l in pathlib.Path(common.__file__).with_name("requirements.txt").open() if l.startswith("llama-cpp-python"))
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--no-binary", ":all:", "-d", folder, version], check=True)
        with tarfile.open(next(pathlib.Path(folder).glob("*.tar.gz"))) as tar:
            for name in ("llama-arch.cpp", "llama-vocab.cpp"):
                member = next(m for m in tar.getmembers() if m.name.endswith(f"/llama.cpp/src/{name}"))
                yield tar.extractfile(member).read().decode()


def gguf_keys(arch):
    """Every key of metadata, without the architecture: of llama.cpp and of its Python package."""
    keys = {key.replace("{arch}.", "", 1) if key.startswith("{arch}.") else key for key in constants(gguf.constants.Keys)}
    table = arch[arch.index("LLM_KV_NAMES"):]
    table = table[: table.index("};")]
    return keys, {key for key in re.findall(r'"([^"]+)"', table)}


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


def folder(files, path):
    tokenizer = json.loads((common.MODELS / "story-230k" / "tokenizer.json").read_text())
    tokenizer["added_tokens"] += files.get("added", [])
    (path / "tokenizer.json").write_text(json.dumps(tokenizer))
    for name, data in files.items():
        if name != "added":
            data = {"tokenizer_class": "PreTrainedTokenizerFast", **data} if name == "tokenizer_config.json" else data
            (path / name).write_text(json.dumps(data))
    return TokenizersBackend.from_pretrained(path)


def generate(oracle):
    arch, vocab = llama_cpp()
    python, cpp = gguf_keys(arch)
    oracle.data["gguf keys"] = sorted(python | {key.removeprefix("%s.") for key in cpp})
    oracle.data["end names"] = end_names(vocab)
    base = {"rope_theta", "rope_scaling", "torch_dtype", "_name_or_path", "attn_implementation", "is_causal", "per_layer_config", "layer_types",
            "use_sliding_window", "sliding_window", "attention_chunk_size", "partial_rotary_factor", "original_max_position_embeddings",
            "quantization_config", "model_type"}
    keys = {family: {f.name for f in dataclasses.fields(of)} | set(of.attribute_map) | base for family, of in CONFIGS.items()}
    oracle.data["config keys"] = {family: sorted(found) for family, found in keys.items()}
    oracle.data["rope keys"] = sorted(RopeParameters.__annotations__)
    oracle.data["generation keys"] = sorted(GenerationConfig().__dict__)
    source = inspect.getsource(PreTrainedTokenizerBase.__init__) + inspect.getsource(TokenizersBackend.__init__)
    read = set(re.findall(r'kwargs\.(?:pop|get|setdefault)\(\s*"(\w+)"', source)) | set(re.findall(r'"(\w+)" (?:not )?in kwargs', source))
    oracle.data["tokenizer keys"] = sorted(read | set(PreTrainedTokenizerBase.SPECIAL_TOKENS_ATTRIBUTES) | {"extra_special_tokens", "added_tokens_decoder"})

    found = {}
    for name, files in FOLDERS.items():
        with tempfile.TemporaryDirectory() as path:
            tokenizer = folder(copy.deepcopy(files), pathlib.Path(path))
            texts = [[text, tokenizer.encode(text)] for text in TEXTS]
            texts = [[text, ids, tokenizer.decode(ids, skip_special_tokens=True)] for text, ids in texts]
            found[name] = {"files": files, "texts": texts, "names": dict(sorted(tokenizer.special_tokens_map.items()))}
    oracle.data["added tokens"] = found
