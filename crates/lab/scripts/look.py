#!/usr/bin/env python3
"""Opens every page of a built book in headless Chromium, in light and dark, wide and narrow.

Fails on a console error, on a request that leaves the book, on an element wider than the window, and on figures whose
text overlaps or leaves its box or frame. Can also write screenshots.

    crates/lab/scripts/look.py book/book --out target/look            # every page
    crates/lab/scripts/look.py book/book --out target/look day06_generate.html --themes coal
    crates/lab/scripts/look.py book/book                              # only the checks

Needs Playwright (`pip install playwright`) and the system's Chromium or Chrome, or CHROMIUM=/path/to/it. Without them,
prints that it was skipped and succeeds.
"""
import argparse
import functools
import http.server
import os
import shutil
import sys
import threading

BROWSERS = ["chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome",
            "/Applications/Chromium.app/Contents/MacOS/Chromium",
            "/Applications/Google Chrome.app/Contents/MacOS/Google Chrome"]

# Runs the checks that need a browser, and returns a list of problems.
MEASURE = r"""
async () => {
  await document.fonts.ready;
  const said = [];
  const shown = (text) => JSON.stringify(text.trim().replace(/\s+/g, ' ').slice(0, 60));
  const main = document.querySelector('main');
  if (!main) return ['the page has no <main>'];
  const scrolls = (el) => {
    for (; el && el !== main; el = el.parentElement)
      if (['auto', 'scroll', 'hidden'].includes(getComputedStyle(el).overflowX)) return true;
    return false;
  };
  for (const el of main.querySelectorAll('*')) {
    if (el.closest('svg') && el.tagName !== 'svg') continue;
    const box = el.getBoundingClientRect();
    if (box.width > 0 && box.right > innerWidth + 1 && !scrolls(el))
      said.push(`<${el.tagName}> is wider than the window: ${shown(el.textContent)}`);
  }
  const font = await document.fonts.load('16px "STIX Two Math"');
  if (main.querySelector('math') && font.length === 0) said.push('the math font is missing');
  for (const svg of main.querySelectorAll('figure.fig svg')) {
    const frame = svg.getBoundingClientRect();
    const name = shown(svg.getAttribute('aria-label') || '');
    const texts = [...svg.querySelectorAll('text')].map((el) => [el, el.getBoundingClientRect()]);
    const slack = frame.width / 360;
    for (const [el, box] of texts) {
      if (box.left < frame.left - slack || box.right > frame.right + slack ||
          box.top < frame.top - slack || box.bottom > frame.bottom + slack)
        said.push(`in the figure ${name}, ${shown(el.textContent)} leaves the frame`);
      const room = el.parentElement.querySelector(':scope > rect.box');
      if (room && el.parentElement.querySelectorAll('text').length === 1) {
        const r = room.getBoundingClientRect();
        if (box.left < r.left - slack / 2 || box.right > r.right + slack / 2)
          said.push(`in the figure ${name}, ${shown(el.textContent)} is wider than its box`);
      }
    }
    const seen = (el) => getComputedStyle(el).opacity !== '0';
    for (let i = 0; i < texts.length; i++)
      for (let j = i + 1; j < texts.length; j++) {
        const [a, b] = [texts[i][1], texts[j][1]];
        const x = Math.min(a.right, b.right) - Math.max(a.left, b.left);
        const y = Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top);
        if (x > 2 && y > a.height / 3 && seen(texts[i][0]) && seen(texts[j][0]))
          said.push(`in the figure ${name}, ${shown(texts[i][0].textContent)} overlaps ` +
                    shown(texts[j][0].textContent));
      }
  }
  for (const details of document.querySelectorAll('details')) details.open = true;
  return said;
}
"""


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *args):
        pass


def look(browser, base, page_name, theme, width, out):
    """Loads a page in one view and returns the problems on it. Writes a screenshot if `out` is set."""
    page = browser.new_page(viewport={"width": width, "height": 900}, is_mobile=width < 600)
    page.add_init_script(f"try {{ localStorage.setItem('mdbook-theme', '{theme}') }} catch (e) {{}}")
    said = []
    page.on("pageerror", lambda error: said.append(f"throws {error}"))
    page.on("console", lambda line: line.type in ("error", "warning") and
            said.append(f"console {line.type}: {line.text}"))
    page.on("request", lambda request: request.url.startswith((base, "data:", "blob:")) or
            said.append(f"requests {request.url} from the network"))
    page.on("response", lambda response: response.status >= 400 and
            said.append(f"{response.status} for {response.url}"))
    page.goto(base + page_name, wait_until="load")
    said += page.evaluate(MEASURE)
    if out:
        page.screenshot(path=f"{out}/{page_name[:-5]}-{theme}-{width}.png", full_page=True)
    page.emulate_media(media="print")
    said += [f"{part} is printed" for part in ("#mdbook-menu-bar", "#mdbook-sidebar", ".nav-wrapper", ".live-start")
             if page.locator(part).first.is_visible()]
    page.close()
    return sorted(set(said))


def main():
    args = argparse.ArgumentParser(description="Checks every page of a built book in a browser.")
    args.add_argument("book", help="the folder of the built book")
    args.add_argument("pages", nargs="*", help="pages to check, such as setup.html (default: all)")
    args.add_argument("--out", help="write screenshots to this folder")
    args.add_argument("--themes", default="light,navy", help="default: light,navy")
    args.add_argument("--widths", default="1280,400", help="default: 1280,400")
    args = args.parse_intermixed_args()
    named = [os.environ["CHROMIUM"]] if os.environ.get("CHROMIUM") else BROWSERS
    program = next((found for found in map(shutil.which, named) if found), None)
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        program = None
    if not program:
        print("look.py: SKIPPED, no page was checked: this needs Chromium (or CHROMIUM=/path/to/it) "
              "and `pip install playwright`", file=sys.stderr)
        return 0
    known = sorted(os.path.relpath(os.path.join(folder, name), args.book)
                   for folder, _, names in os.walk(args.book) for name in names
                   if name.endswith(".html") and name not in ("toc.html", "print.html"))
    if gone := [page for page in args.pages or known or ["index.html"] if page not in known]:
        sys.exit(f"{args.book} has no page {', '.join(gone)}; it has: {', '.join(known) or 'none'}")
    server = http.server.ThreadingHTTPServer(
        ("127.0.0.1", 0), functools.partial(Quiet, directory=args.book))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    base = f"http://127.0.0.1:{server.server_port}/"
    views = [(page, theme, int(width)) for page in args.pages or known
             for theme in args.themes.split(",") for width in args.widths.split(",")]
    wrong = 0
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program)
        for page, theme, width in views:
            for said in look(browser, base, page, theme, width, args.out):
                wrong += 1
                print(f"{page} ({theme}, {width} px): {said}")
        browser.close()
    print(f"look.py: {len(views)} views, {wrong} problems")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
