#!/usr/bin/env python3
"""Checks the book's links to other projects' code, without a network.

Every link to code is pinned to one release (or one commit) of its project, has a line, and names in code font what stands
there: [`Scheduler.schedule`](https://github.com/vllm-project/vllm/blob/v0.33.0/vllm/v1/core/sched/scheduler.py#L699).
book/cited.json keeps those lines, so a link whose file, line or name is wrong fails.

usage: links.py                  check every link
       links.py --update FOLDER  read the lines again from FOLDER, which has the unpacked projects: their sources from the
                                 package registry (vllm-0.33.0, transformers-5.23.0, sglang-0.5.23, llama_cpp_python-0.3.36,
                                 whose vendor/llama.cpp is llama.cpp at the commit below), or clones by their names
       links.py --repin FOLDER   first re-points links to other commits, and gives links without a line the one where
                                 their name is defined
"""

import json
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
CITED = ROOT / "book/cited.json"
# Each project's one revision, and its folder below FOLDER.
PINS = {
    "vllm-project/vllm": ("v0.33.0", "vllm-0.33.0"),
    "huggingface/transformers": ("v5.23.0", "transformers-5.23.0"),
    "ggml-org/llama.cpp": ("0c1e57098", "llama_cpp_python-0.3.36/vendor/llama.cpp"),
    "ggml-org/ggml": ("0c1e57098", "llama_cpp_python-0.3.36/vendor/llama.cpp/ggml"),
    "huggingface/candle": ("0.11.1", "candle"),
    "sgl-project/sglang": ("v0.5.23", "sglang"),
    "EricLBuehler/mistral.rs": ("v0.9.2", "mistral.rs"),
    "GeeeekExplorer/nano-vllm": ("bb823b3e06983d71485a8e1f23715ebd87d98ef8", "nano-vllm"),
    "sgl-project/mini-sglang": ("20fcd7f3c6a1898a61139fae1c97cc7a40bd8d66", "mini-sglang"),
    "karpathy/nanoGPT": ("3adf61e154c3fe3fca428ad6bc3818b27a3b8291", "nanoGPT"),
    "FasterDecoding/Medusa": ("e2a5d20c048a9b0a4092e6933c34313687422518", "Medusa"),
}
LINK = re.compile(
    r"\[((?:[^\[\]]|\[[^\]]*\])*)\]"
    r"\((https://github\.com/([\w.-]+/[\w.-]+)/blob/([^/)]+)/([^)#\s]+)(?:#L(\d+)(?:-L(\d+))?)?)\)"
)


def links():
    """(page, line, match) of every link to code."""
    pages = subprocess.run(["git", "ls-files", "*.md"], cwd=ROOT, capture_output=True, text=True, check=True)
    for page in pages.stdout.split():
        text = (ROOT / page).read_text()
        for match in LINK.finditer(text):
            yield page, text.count("\n", 0, match.start()) + 1, match


def paths(match):
    """The names of code in a link's text, such as `Scheduler.schedule`; or, after a file's name and a colon, the next one."""
    next_name = re.match(r":\s+`([^`]+)`", match.string[match.end():])
    spans = [re.split(r"\(", code)[0].strip() for code in re.findall(r"`([^`]+)`", match.group(1))]
    spans = [code for code in spans if "/" not in code and not re.search(r"\.(py|rs|h|hpp|c|cpp|cu|md|json)$", code)]
    return spans or ([next_name.group(1)] if next_name else [])


def names(match):
    """The last part of each of them: schedule."""
    return [re.split(r"\.|::", path)[-1] for path in paths(match)]


def has(name, line):
    return re.search(rf"(?<!\w){re.escape(name)}(?!\w)", line) is not None


def read(folder, project, path):
    file = Path(folder) / PINS[project][1] / path
    return file.read_text().splitlines() if file.is_file() else None


def defined(lines, path):
    """The line that defines a name, as a number from 1; `A.b` is the first b after A's definition."""
    start = 0
    *owners, name = re.split(r"\.|::", path)
    if owners:
        start = (defined(lines, owners[-1]) or 1) - 1
    word = re.escape(name)
    for pattern in (rf"^\s*(?:pub(?:\([a-z]+\))? )?(?:async )?(?:def|class|fn|struct|enum|trait)\s+{word}\b",
                    rf"^[\w:<>*&, ]*\b{word}\s*\(.*(?:\{{|,|\))\s*$", rf"^#define {word}\b", rf"(?<!\w){word}(?!\w)"):
        for number, line in enumerate(lines[start:], start + 1):
            if re.search(pattern, line):
                return number
    return None


def repin(folder):
    """Points links to the pinned revision and to the line of their first name."""
    for page in sorted({page for page, _, _ in links()}):
        def pinned(match):
            text, _, project, revision, path, first, _ = match.groups()
            found = next(iter(paths(match)), None)
            lines = read(folder, project, path) if project in PINS else None
            if lines is None or not found or (revision == PINS[project][0] and first):
                return match.group(0)
            number = defined(lines, found)
            url = f"https://github.com/{project}/blob/{PINS[project][0]}/{path}"
            return f"[{text}]({url}#L{number})" if number else match.group(0)

        file = ROOT / page
        file.write_text(LINK.sub(pinned, file.read_text()))


def update(folder):
    """Writes down the cited lines: those that have a name of the link's text, or else the first."""
    cited = {}
    for _, _, match in links():
        _, _, project, _, path, first, last = match.groups()
        lines = read(folder, project, path) if project in PINS and first else None
        if lines is None or int(first) > len(lines):
            continue
        numbers = range(int(first), int(last or first) + 1)
        wanted = [n for n in numbers if n <= len(lines) and any(has(name, lines[n - 1]) for name in names(match))]
        kept = cited.setdefault(f"{project}@{PINS[project][0]}", {}).setdefault(path, {})
        kept.update({str(n): lines[n - 1].strip() for n in wanted[:3] or [int(first)]})
    for paths in cited.values():
        for path in paths:
            paths[path] = dict(sorted(paths[path].items(), key=lambda item: int(item[0])))
    CITED.write_text(json.dumps(cited, indent=1, sort_keys=False, ensure_ascii=False) + "\n")


def check():
    """One sentence for each link that is wrong."""
    cited = json.loads(CITED.read_text())
    for page, at, match in links():
        _, url, project, revision, path, first, last = match.groups()
        say = f"{page}:{at}: {url}: "
        if project not in PINS:
            yield say + "this project has no revision in links.py"
        elif revision != PINS[project][0]:
            yield say + f"the book cites {project} at {PINS[project][0]}"
        elif not first:
            yield say + "a link to code needs its line, such as #L12"
        else:
            stored = cited.get(f"{project}@{revision}", {}).get(path, {})
            lines = [line for n, line in stored.items() if int(first) <= int(n) <= int(last or first)]
            missing = [name for name in names(match) if not any(has(name, line) for line in lines)]
            if not lines:
                yield say + "no such line is stored in book/cited.json (links.py --update FOLDER)"
            elif missing:
                yield say + f"{', '.join(missing)} isn't on these lines"


if __name__ == "__main__":
    match sys.argv[1:]:
        case []:
            pass
        case ["--update" | "--repin" as what, folder] if Path(folder).is_dir():
            if what == "--repin":
                repin(folder)
            update(folder)
        case _:
            sys.exit(__doc__)
    wrong = list(check())
    print("\n".join(wrong) or f"{sum(1 for _ in links())} links to code are right")
    sys.exit(bool(wrong))
