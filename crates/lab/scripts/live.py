#!/usr/bin/env python3
"""Drives the live figures of a built book in headless Chromium.

Starts every figure, types into it, drags its parts and moves them with the arrow keys. Fails on a console error,
on a request that leaves the book, if a figure doesn't answer, if text leaves its frame, and if the page generates
different tokens than the command. Prints sizes and times.

There are four views: light and dark, wide and narrow, from file:// and from a server. Each page is checked in one of
them, in turn, or with --all-views in all four.

    crates/lab/scripts/live.py book/book                          # all checks, in one view per page
    crates/lab/scripts/live.py book/book --all-views              # before a release, and after changes to live.js
    crates/lab/scripts/live.py book/book --all-views --out DIR    # and save screenshots
    crates/lab/scripts/live.py book/book --stills                 # write the still pictures that figures start from
    crates/lab/scripts/live.py book/book --film book/src/images/live.webp   # write the README's animation

Needs Playwright and Chromium, as crates/lab/scripts/look.py does. Without them, prints that it was skipped and
succeeds. The same goes for a book without live figures (no WebAssembly target).
"""
import argparse
import base64
import functools
import gzip
import http.server
import json
import os
import pathlib
import re
import shutil
import sys
import threading
import time

sys.dont_write_bytecode = True  # no __pycache__ folder

from look import BROWSERS, MEASURE, Quiet

ROOT = pathlib.Path(__file__).resolve().parents[3]
GOLDENS = ROOT / "crates/live/tests/oracle/live.json"
# Bytes, gzipped. The lessons include the `tokenizers` crate with every kind of tokenizer.
BUDGETS = {"lessons": 1_100_000, "model": 500_000}
STILLS = {
    "sampler": "day08_bench", "scheduler": "day15_bench", "prefixes": "day22_texts",
    "budget": "day23_budget", "trees": "day24_bench",
}

# Unexpected text, typed into every text input of a figure.
BAD = ["", " ", "🐈‍⬛👩‍👩‍👧", "שלום עולם, مرحبا", "a\u0301\u0000b", "<b>&amp;</b>", "word " * 2000, "xylophonqq"]


class Watch:
    """A page, and the problems on it."""

    def __init__(self, browser, base, **context):
        self.context = browser.new_context(**context)
        self.page = self.context.new_page()
        self.said = []
        self.page.on("pageerror", lambda error: self.said.append(f"throws {error}"))
        self.page.on("console", lambda line: line.type in ("error", "warning") and
                     self.said.append(f"console {line.type}: {line.text}"))
        self.page.on("request", lambda request: request.url.startswith((base, "data:", "blob:")) or
                     self.said.append(f"requests {request.url} from the network"))

    def close(self):
        self.context.close()
        return sorted(set(self.said))


def found(check):
    """Returns the problems that a check finds. If it raises, for example a timeout, that's a problem, too."""
    try:
        return check()
    except Exception as error:
        return [str(error).splitlines()[0]]


def until(page, ask, seconds=10):
    """Calls `ask` repeatedly until it returns something true, or time is up. Returns the last answer."""
    end = time.time() + seconds
    while not (answer := ask()) and time.time() < end:
        page.wait_for_timeout(100)
    return answer


def alive(page, name, timeout=30_000):
    """Waits until a figure shows its answer and isn't about to ask again."""
    page.wait_for_function(
        """(name) => { const place = document.querySelector(`.live[data-live="${name}"]`);
           return place.dataset.state && place.querySelector('.live-picture svg, .live-error:not([hidden])'); }""",
        arg=name, timeout=timeout)
    page.wait_for_timeout(60)


def begin(page, name, touch):
    start = page.locator(f'.live[data-live="{name}"] .live-start')
    start.scroll_into_view_if_needed()
    began = time.time()
    start.tap() if touch else start.click()
    alive(page, name)
    return time.time() - began


def words(page, name):
    return page.locator(f'.live[data-live="{name}"] .live-said').inner_text()


def drive(page, name, touch, say):
    """Uses every control of a figure: text fields, sliders, menus, checkboxes, buttons, and parts to drag."""
    figure = page.locator(f'.live[data-live="{name}"]')
    seen = {words(page, name)}
    for i in range(figure.locator("input[type=text]").count()):
        if figure.locator("input[type=text]").nth(i).is_disabled():
            continue
        figure.locator("input[type=text]").nth(i).press_sequentially("s é", delay=15)
        alive(page, name)
        page.wait_for_timeout(120)
        seen.add(words(page, name))
    for i in range(figure.locator("input[type=range]").count()):
        slider = figure.locator("input[type=range]").nth(i)
        if slider.is_disabled():
            continue
        for key in ("End", "Home", "ArrowRight"):
            slider.focus()
            page.keyboard.press(key)
            alive(page, name)
        seen.add(words(page, name))
    for i in range(figure.locator("select").count()):
        select = figure.locator("select").nth(i)
        options = select.locator("option").evaluate_all("all => all.map(o => o.value)")
        for option in options[1:] + options[:1]:
            select.select_option(option)
            alive(page, name)
            seen.add(words(page, name))
    for i in range(figure.locator("input[type=checkbox]").count()):
        for _ in range(2):
            box = figure.locator("input[type=checkbox]").nth(i)
            if box.is_disabled():
                continue
            box.tap() if touch else box.click()
            alive(page, name)
            seen.add(words(page, name))
    for i in range(figure.locator(".live-controls button").count()):
        button = figure.locator(".live-controls button").nth(i)
        if button.is_disabled():
            say(f"{name}: the button “{button.inner_text()}” is disabled")
            continue
        button.tap() if touch else button.click()
        alive(page, name)
        seen.add(words(page, name))
    acts = figure.locator("svg .live-act")
    if acts.count():
        acts.nth(acts.count() // 2).focus()
        page.keyboard.press("Enter")
        alive(page, name)
        seen.add(words(page, name))
    drags = figure.locator("svg .live-drag")
    if drags.count():
        drags.first.scroll_into_view_if_needed()
        # While a picture is redrawn, its parts have no bounding box.
        box = until(page, drags.first.bounding_box)
        x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
        labels = lambda: drags.evaluate_all(
            "all => all.map(part => [part.getAttribute('aria-label'), Number(part.getAttribute('aria-valuenow'))])")
        page.mouse.move(x, y)
        page.mouse.down()
        alive(page, name)
        page.wait_for_timeout(200)
        before = labels()
        for by in (20, 40, 60, 80, 40, 0):
            page.mouse.move(x + by, y)
            page.wait_for_timeout(100)
        if not until(page, lambda: labels() == before):
            say(f"{name}: a part doesn't follow a slow pointer back to its start: {before}, {labels()}")
        page.mouse.move(x + 40, y - 25, steps=4)
        page.mouse.up()
        alive(page, name)
        seen.add(words(page, name))
        # The picture is redrawn while a part is dragged or moved by keys. The part must keep the focus.
        drags.first.focus()
        held = page.evaluate("document.activeElement.dataset.act")
        for key in ("ArrowRight", "ArrowRight", "ArrowLeft"):
            page.keyboard.press(key)
            alive(page, name)
            page.wait_for_timeout(100)
            if not until(page, lambda: page.evaluate("document.activeElement.dataset.act") == held):
                say(f"{name}: a part loses the focus on an arrow key")
                break
        seen.add(words(page, name))
    if len(seen) < 2:
        say(f"{name}: its answer never changes")
    if figure.locator(".live-error:not([hidden])").count():
        say(f"{name}: ends in an error: {figure.locator('.live-error').first.inner_text()}")


HURRY = """async (name) => {
  const place = document.querySelector(`.live[data-live="${name}"]`);
  const parts = (kind) => [...place.querySelectorAll(`.live-picture .live-${kind}`)];
  const wait = (ms) => new Promise((done) => setTimeout(done, ms));
  let turn = 0;
  // The picture is redrawn all the time, so each part is looked up just before it's used.
  const touch = (dragging) => {
    for (const where of [0, 0.35, 0.6, 0.999]) {
      const pick = (all) => all[Math.floor(((where + turn * 0.13) % 1) * all.length)];
      const act = pick(parts('act'));
      if (act) act.dispatchEvent(new PointerEvent('pointerenter', { pointerType: 'mouse' }));
      const pressed = pick(parts('act'));
      if (pressed) pressed.dispatchEvent(new MouseEvent('click', { bubbles: true }));
      const drag = dragging && pick(parts('drag')); // dragging asks again
      if (drag) {
        const key = turn % 2 ? 'ArrowRight' : 'ArrowLeft';
        drag.dispatchEvent(new KeyboardEvent('keydown', { key, bubbles: true }));
        const { left, top } = drag.getBoundingClientRect();
        for (const [kind, by] of [['pointerdown', 9], ['pointermove', 30 * (turn % 5)], ['pointerup', 30]])
          (kind === 'pointerdown' ? drag : window).dispatchEvent(
            new PointerEvent(kind, { bubbles: true, cancelable: true, isPrimary: true, buttons: 1, clientX: left + by, clientY: top + by }));
      }
      turn += 1;
    }
  };
  const change = async (input, value) => {
    if (input.type === 'checkbox') input.checked = value;
    else input.value = value;
    input.dispatchEvent(new Event(input.matches('select, [type=checkbox]') ? 'change' : 'input', { bubbles: true }));
    touch(true); // before the answer; below, while waiting for it
    for (let i = 0; i < 100 && (i < 3 || !place.dataset.state); i++) {
      await wait(i % 5);
      touch(i < 2);
    }
  };
  for (const select of place.querySelectorAll('select')) {
    const all = [...select.options].map((option) => option.value);
    for (const value of [...all, ...all.reverse()]) await change(select, value);
  }
  for (const input of place.querySelectorAll('.live-controls input')) {
    if (input.disabled) continue;
    const good = input.type === 'checkbox' ? input.checked : input.value;
    if (input.type === 'checkbox') await change(input, !good);
    else for (const value of input.type === 'range' ? [input.max, input.min] : ['A', 'Tom had a red ball and a cat.']) await change(input, value);
    await change(input, good);
  }
  for (const button of place.querySelectorAll('.live-controls button')) {
    for (let i = 0; i < 5; i++) {
      button.click();
      touch(true);
      await wait(i);
    }
  }
}"""


def hurry(page, name):
    """Hovers over, presses and drags parts of the old picture while questions are in progress.

    `Watch` records any exception."""
    page.evaluate(HURRY, name)
    alive(page, name)


def bad_input(page, name, say):
    """Checks that a figure answers bad texts, if only with an error, and recovers from each of them."""
    figure = page.locator(f'.live[data-live="{name}"]')
    for i in range(figure.locator("input[type=text]").count()):
        field = figure.locator("input[type=text]").nth(i)
        if field.is_disabled():
            continue
        good = field.input_value()
        for text in BAD:
            field.fill(text)
            page.wait_for_timeout(40)
            page.wait_for_function(
                "(name) => { const p = document.querySelector(`.live[data-live=\"${name}\"]`); return p.dataset.state; }", arg=name)
            page.wait_for_timeout(150)
            shown = figure.locator(".live-said").inner_text() + "".join(
                figure.locator(".live-error:not([hidden])").all_inner_texts())
            if not shown.strip():
                say(f"{name}: no answer and no error for {text[:20]!r}")
            if "panicked" in shown or "RuntimeError" in shown:
                say(f"{name}: {text[:20]!r}: {shown}")
        field.fill(good)
        page.wait_for_timeout(200)
        alive(page, name)
        if figure.locator(".live-error:not([hidden])").count():
            say(f"{name}: doesn't recover from bad input: {figure.locator('.live-error').first.inner_text()}")


def fits(page, name, say):
    """Applies the checks of crates/lab/scripts/look.py to a figure in its current state, and to its controls."""
    for line in page.evaluate(MEASURE):
        if line.startswith("in the figure"):
            say(f"{name}: {line}")
    wide = page.evaluate("""(name) => {
      const all = document.querySelectorAll(`.live[data-live="${name}"] :not(svg *)`);
      const past = [...all].filter((element) => element.getBoundingClientRect().right > innerWidth + 1);
      return past.map((element) => element.tagName);
    }""", name)
    if wide:
        say(f"{name}: wider than the window: {', '.join(wide)}")


def equality(browser, base, page_name):
    """Checks that the page generates the same tokens as the command, whose output is in crates/live/tests/oracle/live.json."""
    watch = Watch(browser, base)
    watch.page.goto(base + page_name, wait_until="load")
    cases = json.loads(GOLDENS.read_text())["cases"]
    for case in cases:
        got = watch.page.evaluate(
            "(q) => candecode.ask(q)",
            {"ask": "generate", "text": case["prompt"], "params": case["params"]})
        ids = [token["id"] for token in got["new"]]
        if ids != case["ids"]:
            watch.said.append(f"{case['prompt']!r} {case['params']}: {ids} in the page, {case['ids']} from the command")
    print(f"{len(cases)} texts, greedy and sampled, equal the command's" if not watch.said else "the page and the command differ")
    return watch.close()


def seen(browser, page_name, names, view, first, args):
    """Drives and measures the figures of a page in one view, and takes screenshots. Returns the problems."""
    theme, width, base = view
    touch = width < 600
    watch = Watch(browser, base, viewport={"width": width, "height": 900}, has_touch=touch,
                  is_mobile=touch, reduced_motion="reduce" if theme == "navy" else "no-preference")
    page, say = watch.page, watch.said.append
    page.add_init_script(f"try {{ localStorage.setItem('mdbook-theme', '{theme}') }} catch (e) {{}}")
    page.goto(base + page_name, wait_until="load")
    page.evaluate("() => document.querySelectorAll('details').forEach((part) => part.open = true)")
    for name in names:
        called = f"{name}-{page_name[:5]}-{theme}-{width}"
        try:
            took = begin(page, name, touch)
            if first:
                print(f"{page_name[:-5]:<24} {name:<12} first answer after {took * 1000:.0f} ms", flush=True)
            time.sleep(0.2)
            fits(page, name, say)
            picture(page, name, args.out, called)
            drive(page, name, touch, say)
            fits(page, name, say)
            picture(page, name, args.out, f"{called}-driven")
            back = page.locator(f'.live[data-live="{name}"] .live-back')
            if back.count():
                back.click()
                box = page.locator(f'figure:has(.live[data-live="{name}"]) > svg').bounding_box()
                if not box or box["x"] + box["width"] > width + 1:
                    say(f"{name}: the still picture next to the figure is missing or wider than the window: {box}")
                back.click()
            if first:
                hurry(page, name)
                bad_input(page, name, say)
        except Exception as error:  # for example, the figure hangs
            say(f"{name}: {str(error).splitlines()[0]}")
    return watch.close()


def main():
    args = argparse.ArgumentParser(description="Drives the live figures.")
    args.add_argument("book", help="the folder of the built book")
    args.add_argument("--out", help="write screenshots to this folder")
    args.add_argument("--only", help="only these figures, such as sampler,rope")
    args.add_argument("--all-views", action="store_true", help="check each figure in all four views")
    args.add_argument("--stills", action="store_true", help="write the still pictures and exit")
    args.add_argument("--film", help="write an animation of the sampler figure to this file and exit")
    args = args.parse_args()
    book = pathlib.Path(args.book).resolve()
    named = [os.environ["CHROMIUM"]] if os.environ.get("CHROMIUM") else BROWSERS
    program = next((found for found in map(shutil.which, named) if found), None)
    skipped = None
    if not (book / "live/parts/engine.js").is_file():
        skipped = "this book has none; build it with cargo xtask book --live"
    elif not program:
        skipped = "can't find Chromium or Chrome (set CHROMIUM=/path/to/it)"
    else:
        try:
            from playwright.sync_api import sync_playwright
        except ImportError:
            skipped = "this Python has no Playwright (pip install playwright)"
    if skipped:
        print(f"SKIPPED live figures: {skipped}")
        return 0

    pages = {}
    for path in sorted(book.glob("*.html")):
        for name in re.findall(r'data-live="([\w-]+)"', path.read_text()):
            if not args.only or name in args.only.split(","):
                pages.setdefault(path.name, []).append(name)
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=book))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    served = f"http://127.0.0.1:{server.server_port}/"
    local = f"file://{book}/"
    wrong = []

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program)
        if args.stills:
            return stills(browser, served, pages)
        if args.film:
            return film(browser, served, args.film)
        for part, kind in (("engine", "lessons"), ("model", "model")):
            size = sum(len(text) * 3 // 4 for text in re.findall(r'"([A-Za-z0-9+/=]{100,})"', (book / f"live/parts/{part}.js").read_text()))
            print(f"{kind}: {size / 1000:.0f} kB gzipped, of {BUDGETS[kind] / 1000:.0f}")
            if size > BUDGETS[kind]:
                wrong.append(kind)
                print(f"{kind}: {size} bytes, over the budget of {BUDGETS[kind]}")

        views = [("light", 1280, served), ("navy", 360, served), ("navy", 1280, local), ("light", 360, local)]
        for turn, (page_name, names) in enumerate(pages.items()):
            now = views if args.all_views else [views[turn % len(views)]]
            for view in now:
                theme, width, base = view
                for words in found(lambda: seen(browser, page_name, names, view, view == now[0], args)):
                    wrong.append(f"{page_name} ({theme}, {width} px, {base[:5]}): {words}")
                    print(wrong[-1], flush=True)
        # Day 17's figure needs no lessons.
        first = next((page for page, names in pages.items() if names != ["sums"]), None)
        for check in (lambda: equality(browser, served, first), lambda: without(browser, served, first, book),
                      lambda: together(browser, served, pages)):
            for words in found(check):
                wrong.append(words)
                print(words, flush=True)
        browser.close()
    print(f"live.py: {sum(map(len, pages.values()))} figures, {len(wrong)} problems")
    return 1 if wrong else 0


def picture(page, name, out, called):
    if not out:
        return
    os.makedirs(out, exist_ok=True)
    frame = page.locator(f'figure:has(.live[data-live="{name}"])')
    try:
        # The page's menu bar would cover part of a figure that's taller than the window.
        frame.screenshot(path=f"{out}/{called}.png", timeout=60_000, style="#mdbook-menu-bar, #menu-bar { display: none }")
    except Exception:  # the machine is busy; the figure itself has already been measured
        print(f"{called}: no screenshot, because the browser took too long", flush=True)


def without(browser, base, page_name, book):
    """Checks that the page shows an explanation and the still picture without JavaScript or without WebAssembly, the reason
    where the model can't be opened, and that a question that takes too long is stopped."""
    wrong = []
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(base + page_name)
    off = page.locator(".live .live-off").first
    if "JavaScript" not in off.inner_text():
        wrong.append("without JavaScript, a live figure doesn't say that it needs it")
    if not page.locator("figure:has(.live) > svg").first.is_visible():
        wrong.append("without JavaScript, the still picture is gone")
    context.close()

    watch = Watch(browser, base)
    watch.page.add_init_script("delete window.WebAssembly")
    watch.page.goto(base + page_name)
    watch.page.locator(".live-start").first.click()
    watch.page.wait_for_selector(".live-error:not([hidden])")
    if "WebAssembly" not in watch.page.locator(".live-error:not([hidden])").first.inner_text():
        wrong.append("without WebAssembly, a live figure doesn't say that it needs it")
    if not watch.page.locator("figure:has(.live) > svg").first.is_visible():
        wrong.append("without WebAssembly, the still picture is gone")
    wrong += watch.close()

    # A model that can't be opened, as with a reader's day 2 that returns an error: the figure says why.
    watch = Watch(browser, base)
    config = base64.b64encode(gzip.compress(b"[]")).decode()
    model = re.sub(r'config:"[^"]*"', f'config:"{config}"', (book / "live/parts/model.js").read_text())
    watch.page.route("**/live/parts/model.js", lambda route: route.fulfill(content_type="text/javascript", body=model))
    watch.page.goto(base + page_name)
    watch.page.locator(".live-start").first.click()
    watch.page.wait_for_selector(".live-error:not([hidden])")
    shown = watch.page.locator(".live-error:not([hidden])").first.inner_text()
    if "not a model configuration" not in shown:
        wrong.append(f"with a model that can't be opened, a live figure says {shown!r}")
    wrong += watch.close()

    # A question that would take minutes: the lessons are stopped after ten seconds, and the next question is answered.
    watch = Watch(browser, base)
    watch.page.goto(base + page_name)
    endless = {"ask": "beams", "text": "Once", "beams": 500, "steps": 500}
    silent, answer = watch.page.evaluate("""async (endless) => {
      const asked = [endless, { ask: 'pieces', text: 'Tom' }].map((question) => candecode.ask(question));
      return [await asked[0].catch((error) => error.message), await asked[1]];
    }""", endless)
    if "ten seconds" not in str(silent):
        wrong.append(f"an endless question is answered with {silent!r:.80}")
    if not answer.get("pieces"):
        wrong.append("after an endless question, the next one isn't answered")
    wrong += watch.close()
    return wrong


def together(browser, base, pages):
    """Starts all figures of a page at once, in a tab in the background. Uses the page with the most figures."""
    page_name, names = max(pages.items(), key=lambda page: len(page[1]))
    watch = Watch(browser, base)
    watch.page.add_init_script("Object.defineProperty(document, 'hidden', { get: () => true })")
    watch.page.goto(base + page_name)
    watch.page.evaluate("() => document.querySelectorAll('.live-start').forEach((start) => start.click())")
    for name in names:
        try:
            alive(watch.page, name)
            if not words(watch.page, name):
                watch.said.append(f"{name}: no answer when {len(names)} figures start at once")
        except Exception as error:
            watch.said.append(f"{name}: {str(error).splitlines()[0]}")
    return [f"{page_name}, all figures at once: {words}" for words in watch.close()]


def stills(browser, base, pages):
    """Writes the still pictures, which the figures draw themselves."""
    for name, file in STILLS.items():
        page_name = next(page for page, names in pages.items() if name in names)
        page = browser.new_page()
        page.goto(base + page_name)
        svg = page.evaluate("(name) => candecode.still(name, 720)", name)
        label = re.search(r' aria-label="([^"]*)"', svg).group(0)
        svg = re.sub(r' (role|tabindex|aria-\w+|data-act)="[^"]*"', "", svg)
        svg = re.sub(r'( ?live-(drag|act))+', "", svg).replace(' class=""', "")
        svg = svg.replace(' xmlns="http://www.w3.org/2000/svg"', "")
        svg = svg.replace("<svg", f'<svg role="img"{label}', 1).replace("><", ">\n<")
        (ROOT / f"book/src/figures/{file}.svg").write_text(svg + "\n")
        print(f"book/src/figures/{file}.svg")
    return 0


def film(browser, base, to):
    """Writes an animation of the sampler figure: a prompt is typed, sliders move, tokens are drawn."""
    import io
    from PIL import Image

    page = browser.new_page(viewport={"width": 860, "height": 1400}, reduced_motion="reduce")
    page.goto(base + "day08_sampling.html")
    begin(page, "sampler", False)
    place = page.locator('.live[data-live="sampler"]')
    frames = []

    def shot(hold):
        alive(page, "sampler")
        image = Image.open(io.BytesIO(place.screenshot(type="png"))).convert("RGB")
        frames.append((image, hold))

    def slide(name, values):
        for value in values:
            place.locator(f"#live-sampler-{name}").evaluate(
                "(input, value) => { input.value = value; input.dispatchEvent(new Event('input')); }", value)
            shot(90)

    shot(1200)
    field = place.locator("#live-sampler-text")
    field.fill("")
    for i in range(4, len("The cat sat on the") + 1, 2):
        field.fill("The cat sat on the"[:i])
        shot(70)
    shot(900)
    slide("top_p", [0.85, 0.8, 0.7, 0.6, 0.5])
    shot(700)
    slide("top_p", [0.6, 0.7, 0.8, 0.9])
    slide("temperature", [1.1, 1.2, 1.35, 1.5, 1.7, 2.0])
    shot(900)
    slide("temperature", [1.6, 1.2, 1.0, 0.8])
    for name in ("draw", "take", "ten"):
        place.locator(f"#live-sampler-{name}").click()
        page.wait_for_timeout(80)
        shot(1300)
    width = max(image.width for image, _ in frames)
    height = max(image.height for image, _ in frames)
    canvas = []
    for image, _ in frames:
        whole = Image.new("RGB", (width, height), "white")
        whole.paste(image, (0, 0))
        canvas.append(whole)
    canvas[0].save(to, save_all=True, append_images=canvas[1:], duration=[hold for _, hold in frames],
                   loop=0, quality=60, method=2)
    print(f"{to}: {len(frames)} frames, {os.path.getsize(to) / 1000:.0f} kB")
    return 0


if __name__ == "__main__":
    sys.exit(main())
