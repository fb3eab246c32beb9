#!/usr/bin/env python3
"""Draw the figure of the page "Which method, when?": one of story-3m's distributions, and what each method makes of it.

transformers computes the model's logits after PROMPT, and its own processors then change them.

usage: python3 models/which_method.py > book/src/figures/which_method.svg
needs: tests/frame/requirements.txt
"""
import pathlib
import torch
from html import escape
from transformers import AutoModelForCausalLM, AutoTokenizer
from transformers.generation import logits_process as warp

PROMPT, BLOCKED, ROWS = "One day, Tom found a big", " ball", 12
LEFT, PANEL, BAR, TOP, LINE = 76, 92, 78, 58, 21

folder = str(pathlib.Path(__file__).parent.parent / "models/story-3m")
tokenizer = AutoTokenizer.from_pretrained(folder)
model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
ids = tokenizer(PROMPT, return_tensors="pt").input_ids
with torch.no_grad():
    logits = model(ids).logits[:, -1, :]

blocked = logits.clone()
blocked[0, tokenizer.encode(BLOCKED, add_special_tokens=False)] = -torch.inf
panels = [
    ("greedy", "", None),
    ("temperature", "0.8", warp.TemperatureLogitsWarper(0.8)(ids, logits)),
    ("top-k", "20", warp.TopKLogitsWarper(20)(ids, logits)),
    ("top-p", "0.9", warp.TopPLogitsWarper(0.9)(ids, logits)),
    ("min-p", "0.1", warp.MinPLogitsWarper(0.1)(ids, logits)),
    ("repetition", "1.3", warp.RepetitionPenaltyLogitsProcessor(1.3)(ids, logits.clone())),
    ("guarded", "no ball", blocked),
]
own = torch.softmax(logits, -1)[0]
shown = own.topk(ROWS).indices.tolist()
probabilities = [torch.softmax(p, -1)[0] if p is not None else torch.eye(len(own))[own.argmax()] for _, _, p in panels]
widest = max(float(p[shown].max()) for p in probabilities[1:])

height = TOP + LINE * (ROWS + 3) + 4
left = [int((p > 0).sum()) for p in probabilities]
words = "; ".join(f"{f'{name} {value}'.strip()}: {n} token{'s' * (n != 1)} left" for (name, value, _), n in zip(panels, left))
print(f'<svg viewBox="0 0 720 {height}" role="img" aria-label="What may follow {escape(PROMPT)}, by each method: {words}.">')
for column, ((name, value, _), p) in enumerate(zip(panels, probabilities)):
    x = LEFT + column * PANEL
    squeeze = ' textLength="80" lengthAdjust="spacingAndGlyphs"' if name == "temperature" else ""
    print(f'<text class="left strong" x="{x}" y="14"{squeeze}>{name}</text>')
    if value:
        print(f'<text class="note left" x="{x}" y="34">{value}</text>')
    for row, token in enumerate(shown):
        y, share, before = TOP + row * LINE, float(p[token]), float(own[token])
        if column == 0:
            print(f'<text class="mono right" x="{LEFT - 8}" y="{y}">{escape(tokenizer.decode([token]).strip())}</text>')
        # The outline shows the model's own probability and is drawn over the bar.
        outline = f'<rect class="wire" x="{x}" y="{y - 7}" width="{max(1.0, before / widest * BAR):.1f}" height="14"/>'
        if share == 0:
            print(f'<path class="strike" d="M{x} {y} h{max(6.0, before / widest * BAR):.1f}"/>')
        else:
            role = "new" if token == int(p.argmax()) else "dropped" if share < before / 2 else "kept"
            width = min(BAR, share / widest * BAR)
            print(f'<g class="{role}"><rect class="bar" x="{x}" y="{y - 7}" width="{max(1.0, width):.1f}" height="14"/></g>')
        print(outline)
    rest, y = 1 - float(p[shown].sum()), TOP + ROWS * LINE + 4
    if column == 0:
        print(f'<text class="note right" x="{LEFT - 8}" y="{y + 2 * LINE}">best token</text>')
        print(f'<text class="note right" x="{LEFT - 8}" y="{y}">all others</text>')
        print(f'<text class="note right" x="{LEFT - 8}" y="{y + LINE}">tokens left</text>')
    print(f'<text class="note left" x="{x}" y="{y}">{max(0.0, rest):.2f}</text>')
    print(f'<text class="note left" x="{x}" y="{y + LINE}">{int((p > 0).sum()):,}</text>')
    print(f'<text class="note left" x="{x}" y="{y + 2 * LINE}">{float(p.max()):.2f}</text>')
print("</svg>")
