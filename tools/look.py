#!/usr/bin/env python3
"""Opens every page of a built book in headless Chromium, in light and dark, wide and narrow.

Fails on a console error, on a request that leaves the book, on a page wider than its window, and
on figures whose words leave their box, their frame or run into each other. Writes PNGs to look at.

    tools/look.py book/book --out target/look            # every page
    tools/look.py book/book --out target/look day06_generate.html --themes coal
    tools/look.py book/book                              # only the checks

Needs Python 3.10 and Chromium or Chrome (or CHROMIUM=/path/to/it), nothing else. Without a browser
it says so and succeeds, unless --require is given.
"""
import argparse
import base64
import functools
import http.server
import json
import os
import re
import secrets
import shutil
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time

BROWSERS = ["chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome",
            "/Applications/Chromium.app/Contents/MacOS/Chromium",
            "/Applications/Google Chrome.app/Contents/MacOS/Google Chrome"]

# What only a browser can measure. Returns a list of complaints.
MEASURE = r"""
(async () => {
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
  if (main.querySelector('math') && font.length === 0) said.push('the math font is not there');
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
          said.push(`in the figure ${name}, ${shown(texts[i][0].textContent)} runs into ` +
                    shown(texts[j][0].textContent));
      }
  }
  for (const details of document.querySelectorAll('details')) details.open = true;
  return said;
})()
"""


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *args):
        pass


def serve(folder):
    """Serves a folder on the loopback interface; gives its address."""
    handler = functools.partial(Quiet, directory=folder)
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return f"http://127.0.0.1:{server.server_port}/"


class Browser:
    """One tab of a headless Chromium, spoken to by its DevTools protocol."""

    def __init__(self, program, profile):
        flags = ["--headless", "--disable-gpu", "--hide-scrollbars", "--remote-debugging-port=0",
                 "--disable-background-networking", "--disable-component-update",
                 "--disable-sync", "--no-first-run", "--force-color-profile=srgb",
                 f"--user-data-dir={profile}", "about:blank"]
        if hasattr(os, "geteuid") and os.geteuid() == 0:
            flags.insert(0, "--no-sandbox")
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        self.process = subprocess.Popen([program] + flags, **quiet)
        port, path = self.wait_for_port(profile)
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=60)
        self.buffer = b""
        self.shake_hands(port, path)
        self.number, self.session, self.events = 0, None, []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        attached = self.call("Target.attachToTarget", targetId=target, flatten=True)
        self.session = attached["sessionId"]
        for domain in ["Page", "Network", "Runtime", "Log"]:
            self.call(f"{domain}.enable")

    def wait_for_port(self, profile):
        file = os.path.join(profile, "DevToolsActivePort")
        for _ in range(300):
            if os.path.exists(file):
                lines = open(file).read().split("\n")
                if len(lines) > 1 and lines[1]:
                    return int(lines[0]), lines[1]
            if self.process.poll() is not None:
                break
            time.sleep(0.1)
        raise RuntimeError("Chromium did not start")

    def shake_hands(self, port, path):
        key = base64.b64encode(secrets.token_bytes(16)).decode()
        self.socket.sendall((
            f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nUpgrade: websocket\r\n"
            f"Connection: Upgrade\r\nSec-WebSocket-Key: {key}\r\nSec-WebSocket-Version: 13\r\n\r\n"
        ).encode())
        while b"\r\n\r\n" not in self.buffer:
            self.buffer += self.socket.recv(4096)
        head, self.buffer = self.buffer.split(b"\r\n\r\n", 1)
        if b" 101 " not in head.split(b"\r\n")[0]:
            raise RuntimeError("Chromium refused the DevTools connection")

    def read(self, n):
        while len(self.buffer) < n:
            more = self.socket.recv(1 << 20)
            if not more:
                raise RuntimeError("Chromium closed the connection")
            self.buffer += more
        data, self.buffer = self.buffer[:n], self.buffer[n:]
        return data

    def receive(self):
        message = b""
        while True:
            first, second = self.read(2)
            length = second & 127
            if length == 126:
                length = struct.unpack(">H", self.read(2))[0]
            elif length == 127:
                length = struct.unpack(">Q", self.read(8))[0]
            data = self.read(length)
            if first & 15 in (0, 1, 2):
                message += data
                if first & 128:
                    return json.loads(message)

    def call(self, method, **params):
        self.number += 1
        message = {"id": self.number, "method": method, "params": params}
        if self.session:
            message["sessionId"] = self.session
        data = json.dumps(message).encode()
        mask = secrets.token_bytes(4)
        size = len(data)
        head = bytes([129, 128 | size]) if size < 126 else (
            bytes([129, 254]) + struct.pack(">H", size) if size < 65536 else
            bytes([129, 255]) + struct.pack(">Q", size))
        self.socket.sendall(head + mask + bytes(b ^ mask[i % 4] for i, b in enumerate(data)))
        while True:
            answer = self.receive()
            if answer.get("id") == self.number:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error'].get('message')}")
                return answer["result"]
            self.events.append(answer)

    def wait_for(self, method):
        while not any(event.get("method") == method for event in self.events):
            self.events.append(self.receive())

    def evaluate(self, script):
        got = self.call("Runtime.evaluate", expression=script, awaitPromise=True,
                        returnByValue=True)
        if "exceptionDetails" in got:
            raise RuntimeError(got["exceptionDetails"].get("text", "the script failed"))
        return got["result"].get("value")

    def close(self):
        self.session = None
        try:
            self.call("Browser.close")
            self.process.wait(timeout=10)
        except (OSError, RuntimeError, subprocess.TimeoutExpired):
            self.process.kill()
            self.process.wait()


def complaints(events, base):
    """What the browser reported while a page loaded."""
    said, asked = [], {}
    for event in events:
        method, params = event.get("method"), event.get("params", {})
        if method == "Network.requestWillBeSent":
            url = params["request"]["url"]
            asked[params["requestId"]] = url
            if not url.startswith((base, "data:", "about:", "blob:")):
                said.append(f"asks the network for {url}")
        elif method == "Network.responseReceived" and params["response"]["status"] >= 400:
            said.append(f"{params['response']['status']} for {params['response']['url']}")
        elif method == "Network.loadingFailed" and not params.get("canceled"):
            said.append(f"{params['errorText']} for {asked.get(params['requestId'])}")
        elif method == "Runtime.exceptionThrown":
            details = params["exceptionDetails"]
            thrown = details.get("exception", {}).get("description", details.get("text"))
            said.append(f"throws {thrown}")
        elif method == "Runtime.consoleAPICalled" and params["type"] in ("error", "warning"):
            words = [str(a.get("value", a.get("description"))) for a in params["args"]]
            said.append(f"console {params['type']}: {' '.join(words)}")
        elif method == "Log.entryAdded" and params["entry"]["level"] in ("error", "warning"):
            said.append(f"console {params['entry']['level']}: {params['entry']['text']}")
    return said


def look(browser, base, page, theme, width, out, slice_height):
    """Loads one page once; gives what is wrong, writes what it looks like."""
    height, mobile = (900, False) if width >= 600 else (800, True)
    browser.call("Emulation.setDeviceMetricsOverride", width=width, height=height,
                 deviceScaleFactor=1 if width >= 600 else 2, mobile=mobile)
    script = f"try {{ localStorage.setItem('mdbook-theme', '{theme}') }} catch (e) {{}}"
    added = browser.call("Page.addScriptToEvaluateOnNewDocument", source=script)
    browser.events.clear()
    browser.call("Page.navigate", url=base + page)
    browser.wait_for("Page.loadEventFired")
    said = browser.evaluate(MEASURE)
    if out:
        shoot(browser, width, f"{out}/{page[:-5]}-{theme}-{width}", slice_height)
    time.sleep(0.05)
    browser.evaluate("1")
    browser.call("Page.removeScriptToEvaluateOnNewDocument", identifier=added["identifier"])
    return sorted(set(complaints(browser.events, base) + said))


def shoot(browser, width, stem, slice_height):
    """The whole page as PNGs, cut into pieces that can be looked at."""
    os.makedirs(os.path.dirname(stem), exist_ok=True)
    total = browser.evaluate("Math.ceil(document.documentElement.scrollHeight)")
    for i, top in enumerate(range(0, total, slice_height)):
        clip = {"x": 0, "y": top, "width": width, "height": min(slice_height, total - top),
                "scale": 1}
        png = browser.call("Page.captureScreenshot", format="png", clip=clip,
                           captureBeyondViewport=True)
        name = f"{stem}.png" if total <= slice_height else f"{stem}-{i + 1}.png"
        with open(name, "wb") as file:
            file.write(base64.b64decode(png["data"]))


def main():
    args = argparse.ArgumentParser(description="Looks at every page of a built book.")
    args.add_argument("book", help="the folder of the built book")
    args.add_argument("pages", nargs="*", help="pages, such as setup.html; all if none is named")
    args.add_argument("--out", help="write PNGs into this folder")
    args.add_argument("--themes", default="light,navy", help="light,navy by default")
    args.add_argument("--widths", default="1280,400", help="1280,400 by default")
    args.add_argument("--slice", type=int, default=1800, help="cut pages taller than this")
    args.add_argument("--require", action="store_true", help="fail where there is no browser")
    args = args.parse_intermixed_args()
    named = [os.environ["CHROMIUM"]] if os.environ.get("CHROMIUM") else BROWSERS
    program = next((found for found in map(shutil.which, named) if found), None)
    if not program:
        print("look.py: SKIPPED, nothing was looked at: there is no Chromium here "
              "(install it, or set CHROMIUM to its path)", file=sys.stderr)
        return 1 if args.require else 0
    if not os.path.isfile(os.path.join(args.book, "index.html")):
        sys.exit(f"{args.book}: no index.html; build the book first")
    known = sorted(os.path.relpath(os.path.join(folder, name), args.book)
                   for folder, _, names in os.walk(args.book) for name in names
                   if name.endswith(".html") and name not in ("toc.html", "print.html"))
    pages = args.pages or known
    gone = [page for page in pages if page not in known]
    if gone:
        sys.exit(f"{args.book}: no page {', '.join(gone)}; there are {', '.join(known)}")
    themes = args.themes.split(",")
    if not all(re.fullmatch(r"[a-z]+", theme) for theme in themes):
        sys.exit(f"--themes {args.themes}: expected names such as light,navy,coal")
    widths = [int(width) for width in args.widths.split(",")]
    base = serve(args.book)
    wrong = 0
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        browser = Browser(program, profile)
        try:
            for page in pages:
                for theme in themes:
                    for width in widths:
                        for said in look(browser, base, page, theme, width, args.out, args.slice):
                            wrong += 1
                            print(f"{page} ({theme}, {width} px): {said}")
        finally:
            browser.close()
    views = len(pages) * len(themes) * len(widths)
    print(f"look.py: {len(pages)} pages, {views} views, {wrong} things wrong")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
