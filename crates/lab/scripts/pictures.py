#!/usr/bin/env python3
"""Makes the screenshot of a failing check in the README and the preface: book/src/images/check.png.

    crates/lab/scripts/pictures.py            # needs Chromium and util-linux's `script`; src/ must match git

Writes day 1's reference with one mistake to src/, runs the check in its own terminal, and restores src/.
(live.webp comes from crates/lab/scripts/live.py --film.)
"""

import html
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import textwrap

ROOT = pathlib.Path(__file__).resolve().parents[3]
DAY = ROOT / "src/day01_attention.rs"
COMMAND = "cargo xtask check day1 --task 1.3"
STYLE = {"1": "font-weight:bold", "2": "opacity:.65", "31": "color:#f07178", "32": "color:#9ccc65", "33": "color:#ffcb6b", "36": "color:#80cbc4"}
PAGE = """<!doctype html><meta charset="utf-8"><style>body{margin:0;background:#1b2130;color:#d7dce5}
pre{margin:0;padding:20px 24px;font:15px/1.45 "DejaVu Sans Mono",monospace;white-space:pre-wrap}</style><pre>%s</pre>"""


def as_html(text):
    """Converts text with terminal colors to HTML."""
    parts, opened = [], 0
    for part in re.split(r"(\x1b\[[0-9;]*[A-Za-z])", text):
        if not part.startswith("\x1b"):
            parts.append(html.escape(part))
        elif part.endswith("m"):
            codes = [code for code in part[2:-1].split(";") if code not in ("", "0")]
            if codes:
                parts.append('<span style="%s">' % ";".join(STYLE.get(code, "") for code in codes))
                opened += 1
            else:
                parts.append("</span>" * opened)
                opened = 0
    return "".join(parts) + "</span>" * opened


def main():
    if subprocess.run(["git", "diff", "--quiet", "--", "src"], cwd=ROOT).returncode:
        sys.exit("src/ has uncommitted changes; commit them first")
    reference = (ROOT / "solutions/day01_attention.rs").read_text()
    right = "let scale = 1.0 / (q.dim(3)? as f64).sqrt();"
    if reference.count(right) != 1:
        sys.exit(f"solutions/day01_attention.rs no longer has {right!r}")
    before = DAY.read_bytes()
    try:
        DAY.write_text(reference.replace(right, "let scale = 1.0;"))
        run = ["script", "-qec", f"stty cols 100; {COMMAND}", "/dev/null"]
        subprocess.run(run, cwd=ROOT, stdin=subprocess.DEVNULL, capture_output=True)  # builds
        said = subprocess.run(run, cwd=ROOT, stdin=subprocess.DEVNULL, capture_output=True).stdout.decode()
    finally:
        DAY.write_bytes(before)
    said = re.sub(r"[^\n]*\r(?!\n)", "", said.replace("\r\n", "\n")).strip()
    kept = [line for line in said.split("\n") if "Finished" not in line and "Blocking" not in line and not line.startswith("Building")]
    said = "\n".join(textwrap.fill(line, 100, subsequent_indent=" " * 9) if len(line) > 100 and "\x1b" not in line else line for line in kept)
    chromium = next(filter(None, map(shutil.which, ["chromium", "chromium-browser", "google-chrome"])), None)
    if not chromium:
        sys.exit("can't find Chromium")
    shown = f"\x1b[2m$\x1b[0m {COMMAND}\n{said}"
    height = 60 + 22 * shown.count("\n")
    with tempfile.TemporaryDirectory() as folder:
        page = pathlib.Path(folder) / "page.html"
        page.write_text(PAGE % as_html(shown))
        to = ROOT / "book/src/images/check.png"
        subprocess.run([chromium, "--headless", "--no-sandbox", "--disable-gpu", f"--screenshot={to}", "--hide-scrollbars",
                        f"--window-size=970,{height}", "--force-device-scale-factor=1.5", page.as_uri()], check=True, capture_output=True)
    print(said)


if __name__ == "__main__":
    main()
