"""The names of a request's fields, from the sources of OpenAI's client, vLLM and llama.cpp: request_fields.json.

usage:  request_fields.py --vllm DIR --llama-cpp-python DIR [--check]

The folders are the unpacked source distributions of the versions below; `openai` is the installed package. With --check nothing is written: it
fails if what would be written differs from what is there.
"""
import argparse, ast, json, pathlib, re, sys

import openai
from openai.types import completion_create_params as completions
from openai.types.chat import ChatCompletionStreamOptionsParam
from openai.types.chat import completion_create_params as chat
from openai.types.shared_params import ResponseFormatJSONObject, ResponseFormatJSONSchema, ResponseFormatText

OPENAI, VLLM, LLAMA = "3.54.0", "0.33.0", "0.3.36"
GOLDEN = pathlib.Path(__file__).with_suffix(".json")


def version(folder):
    """The version of an unpacked source distribution."""
    return re.search(r"^Version: (\S+)", (folder / "PKG-INFO").read_text(), re.M)[1]


def names(*types):
    return sorted({name for kind in types for name in kind.__annotations__})


def of_openai():
    return {
        "completions": names(completions.CompletionCreateParamsBase, completions.CompletionCreateParamsStreaming),
        "chat": names(chat.CompletionCreateParamsBase, chat.CompletionCreateParamsStreaming),
        "stream_options": names(ChatCompletionStreamOptionsParam),
        "response_format": names(ResponseFormatText, ResponseFormatJSONObject, ResponseFormatJSONSchema),
    }


def fields(source, name):
    """The annotated fields of a class, without private ones."""
    for node in ast.parse(source.read_text()).body:
        if isinstance(node, ast.ClassDef) and node.name == name:
            found = [n.target.id for n in node.body if isinstance(n, ast.AnnAssign)]
            return sorted(n for n in found if not n.startswith("_"))
    raise SystemExit(f"{source}: no class {name}")


def of_vllm(folder):
    openai_api = folder / "vllm/entrypoints/openai"
    base = folder / "vllm/entrypoints/generate/base/protocol.py"
    return {
        "completions": fields(openai_api / "completion/protocol.py", "CompletionRequest"),
        "chat": fields(openai_api / "chat_completion/protocol.py", "ChatCompletionRequest"),
        "stream_options": fields(base, "StreamOptions"),
        "response_format": fields(base, "ResponseFormat"),
        "structured_outputs": fields(folder / "vllm/sampling_params.py", "StructuredOutputsParams"),
    }


def between(text, start, end):
    begin = text.index(start)
    return text[begin:text.index(end, begin + len(start))]


def of_llama(folder):
    server = folder / "vendor/llama.cpp/tools/server"
    schema = (server / "server-schema.cpp").read_text()
    common = (server / "server-common.cpp").read_text()
    context = (server / "server-context.cpp").read_text()
    readme = (server / "README.md").read_text()
    schema = between(schema, "make_llama_cmpl_schema", "task_params eval_llama_cmpl_schema")
    schema = re.sub(r"#if 0.*?#endif|^\s*//.*?$", "", schema, flags=re.S | re.M)
    nested = set(re.findall(r'add_subfield\(\(new field_\w+\("([^"]+)"', schema))
    found = set(re.findall(r'new field_\w+\("([^"]+)"', schema)) - nested
    found |= set(re.findall(r'add_alias\("([^"]+)"', schema))
    read = r'(?:json_value\(body, |body\.(?:at|contains)\()"([^"]+)"'
    completion = set(re.findall(read, between(common, "json oaicompat_completion_params_parse(", "\n}\n")))
    chat = set(re.findall(read, between(common, "json oaicompat_chat_params_parse(", "\n}\n")))
    # What a completion's task reads beside its schema.
    task = between(context, "// message delimiters for checkpointing", "// OAI-compat")
    found |= set(re.findall(r'json_value\(data, "([^"]+)"', task))
    documented = lambda part: set(re.findall(r"^`([a-z_]+)` ?:", part, re.M))
    found |= documented(between(readme, "### POST `/completion`", "### POST `/tokenize`"))
    chat |= documented(between(readme, "### POST `/v1/chat/completions`", "\n### "))
    return {"completions": sorted(found | completion), "chat": sorted(found | chat), "stream_options": sorted(nested)}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--vllm", type=pathlib.Path, required=True)
    parser.add_argument("--llama-cpp-python", type=pathlib.Path, required=True)
    parser.add_argument("--check", action="store_true")
    args = parser.parse_args()
    for name, found, wanted in [("openai", openai.__version__, OPENAI), ("vllm", version(args.vllm), VLLM),
                                ("llama-cpp-python", version(args.llama_cpp_python), LLAMA)]:
        if found != wanted:
            raise SystemExit(f"{name} is {found}, the list is made with {wanted}")
    lists = {f"openai {OPENAI}": of_openai(), f"vllm {VLLM}": of_vllm(args.vllm),
             f"llama.cpp in llama-cpp-python {LLAMA}": of_llama(args.llama_cpp_python)}
    text = json.dumps(lists, indent=1) + "\n"
    if args.check:
        sys.exit(0 if GOLDEN.read_text() == text else f"{GOLDEN.name} differs from the sources")
    GOLDEN.write_text(text)


if __name__ == "__main__":
    main()
