"""What the scripts of the days share: pinned versions, models, decision margins, and the files that they fill."""
import importlib.metadata, importlib.util, json, os, pathlib, platform, sys

os.environ.setdefault("HF_HUB_OFFLINE", "1")
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaConfig, LlamaForCausalLM, Qwen3Config, Qwen3ForCausalLM

torch.set_num_threads(1)  # one order of sums
ROOT = pathlib.Path(__file__).resolve().parents[2]
MODELS = ROOT / "models"
TINY = ROOT / "crates/testing/models"
STORY = ["story-3m", "story-230k", "story-gpt2-1m"]


class Days:
    """Lets `import day08` find tests/day08_NAME/oracle.py."""

    @staticmethod
    def find_spec(name, path=None, target=None):
        found = sorted(ROOT.glob(f"tests/{name}_*/oracle.py")) if name.startswith("day") else []
        return importlib.util.spec_from_file_location(name, found[0]) if found else None


sys.meta_path.append(Days)


def pinned(requirements):
    """Refuse to make goldens with other versions than the ones they are said to come from."""
    for line in requirements.read_text().split():
        name, version = line.split("==")
        found = importlib.metadata.version(name).split("+")[0]
        if found != version:
            raise SystemExit(f"{name} is {found}, the goldens are made with {version}: pip install -r {requirements}")


def model(name):
    """An embedded model in f32: transformers 5 would load bf16 files as bf16."""
    return AutoModelForCausalLM.from_pretrained(MODELS / name, dtype=torch.float32).eval()


def tokenizer(name="story-3m"):
    return AutoTokenizer.from_pretrained(MODELS / name)


def margins(scores):
    """Decision margins of greedy choices: for each row of logits (n, V), best minus second best."""
    top = torch.topk(torch.as_tensor(scores), 2, dim=-1).values
    return (top[..., 0] - top[..., 1]).tolist()


def tiny(kind, config, seed):
    """Random weights large enough that every part of the model leaves its mark on the logits."""
    g = torch.Generator().manual_seed(seed)
    m = kind(config).eval()
    for name, p in m.named_parameters():
        random = torch.randn(p.shape, generator=g)
        if "norm" in name or (".ln_" in name and name.endswith("weight")):
            p.copy_(1 + 0.4 * random)
        elif any(table in name for table in ("embed", "wte", "wpe")):
            p.copy_(random)
        else:
            p.copy_(0.2 * random)
    return m


def tinies():
    """Day 5's small models: a Llama with all options, one without, and a Qwen3."""
    shape = dict(vocab_size=96, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4,
                 max_position_embeddings=64, bos_token_id=0, eos_token_id=0)
    # Wavelengths of 8-wide heads are 6, 63, 628 and 6,283 tokens: with a context of 16 one is smoothed, three are stretched.
    llama3 = dict(rope_type="llama3", rope_theta=10000.0, factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
                  original_max_position_embeddings=16)
    yield "tiny-llama", tiny(LlamaForCausalLM, LlamaConfig(
        **shape, num_key_value_heads=2, tie_word_embeddings=False, attention_bias=True, mlp_bias=True,
        rms_norm_eps=1e-5, rope_parameters=llama3), 51)
    yield "tiny-llama-tied", tiny(LlamaForCausalLM, LlamaConfig(
        **shape, num_key_value_heads=4, tie_word_embeddings=True, rms_norm_eps=1e-5), 52)
    yield "tiny-qwen3", tiny(Qwen3ForCausalLM, Qwen3Config(
        **shape, num_key_value_heads=1, head_dim=16, tie_word_embeddings=True), 53)  # 4 heads of 16 are 64, not 32, wide


class Oracle:
    """The goldens of one script: `tensor(name, t)`, `data[name] = …`, and the smallest decision margin."""

    def __init__(self, script, day):
        self.script, self.day, self.tensors, self.data, self.smallest = script, day, {}, {}, None
        self.folders, self.files = {}, {}

    def tensor(self, name, t):
        self.tensors[name] = t.detach().contiguous().clone()

    def folder(self, name, model):
        """A small model with random weights, to be loaded from crates/testing/models/NAME as any other."""
        self.folders[name] = model

    def file(self, name, data):
        """A file for crates/testing/models/NAME, as it is."""
        self.files[name] = data

    def decided(self, what, margins, least=1e-3):
        """Note decision margins; reject a golden that another valid order of f32 sums could flip."""
        worst = min(margins)
        if worst < least:
            raise SystemExit(f"{self.day}: {what} has a decision margin of {worst:.2g}, below {least}: choose another input")
        self.smallest = worst if self.smallest is None else min(worst, self.smallest)

    def provenance(self):
        return {
            "made by": f"generate.py {self.day}",
            "torch": torch.__version__.split("+")[0],
            "transformers": importlib.metadata.version("transformers"),
            "machine": f"{platform.machine()} CPU, 1 thread, f32",
            "smallest decision margin": "no decisions" if self.smallest is None else f"{self.smallest:.6f}",
        }

    def finish(self, check):
        tensors, data = self.script.with_suffix(".safetensors"), self.script.with_suffix(".json")
        if check:
            old = load_file(tensors) if tensors.exists() else {}
            same = old.keys() == self.tensors.keys() and all(
                old[k].dtype == t.dtype and old[k].shape == t.shape and torch.allclose(old[k].float(), t.float(), atol=1e-5, rtol=1e-5)
                for k, t in self.tensors.items())
            known = json.loads(data.read_text()) if data.exists() else {}
            known.pop("provenance", None)
            same = same and close(known, json.loads(json.dumps(self.data)))
            same = same and all(equal_folder(TINY / name, model) for name, model in self.folders.items())
            same = same and all((TINY / name).exists() and (TINY / name).read_bytes() == b for name, b in self.files.items())
            print(f"{self.day}: {'same' if same else 'DIFFERENT'}")
            return not same
        if self.tensors:
            save_file(self.tensors, tensors, metadata=self.provenance())
        for name, model in self.folders.items():
            model.save_pretrained(TINY / name)
            (TINY / name / "generation_config.json").unlink(missing_ok=True)
        for name, data_of_file in self.files.items():
            (TINY / name).write_bytes(data_of_file)
        lines = {"provenance": self.provenance(), **self.data}
        data.write_text("{\n" + ",\n".join(f" {json.dumps(k)}: {json.dumps(v)}" for k, v in lines.items()) + "\n}\n")
        print(f"{self.day}: {len(self.tensors)} tensors, margin {self.provenance()['smallest decision margin']}")
        return 0


def equal_folder(folder, model):
    """Whether a folder holds this model: configuration, names and numbers."""
    if not (folder / "model.safetensors").exists():
        return False
    config, weights = json.loads((folder / "config.json").read_text()), load_file(folder / "model.safetensors")
    state = model.state_dict()  # a tied head is in it twice, in the file once
    same = all(k in state and torch.allclose(t, state[k], atol=1e-5, rtol=1e-5) for k, t in weights.items())
    wanted = json.loads(model.config.to_json_string()).items()  # saving adds the architecture and the type
    return same and all(config.get(k) == v for k, v in wanted)


def close(a, b):
    if isinstance(a, float) or isinstance(b, float):
        return abs(a - b) <= 1e-5 * max(1.0, abs(a))
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(close(a[k], b[k]) for k in a)
    if isinstance(a, list):
        return len(a) == len(b) and all(map(close, a, b))
    return a == b
