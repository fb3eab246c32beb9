"""Measures what attackers can do to a server: `python attacks.py target/release/candecode-serve [MODEL] [ATTACK…]`.

Starts a server for each attack. During the attack, a bystander streams the same text over and over. Reports the longest time
that the bystander waited for a token, its median time per token with and without the attack, whether its text stayed the
same, the server's peak memory, and the answers to the attackers. Needs Linux and Python's standard library.
"""

import collections
import http.client
import json
import os
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time

PROGRAM = sys.argv[1]
MODEL = sys.argv[2] if len(sys.argv) > 2 else "story-3m"
CHOSEN = sys.argv[3:]
TEXT = {"prompt": "Once upon a time", "max_tokens": 400, "temperature": 0, "ignore_eos": True, "stream": True}


class Server:
    def __init__(self, *flags):
        command = [PROGRAM, "--model", MODEL, "--port", "0", "--offline", *flags]
        self.child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        host, port = self.child.stdout.readline().strip().rsplit("//", 1)[1].split(":")
        self.address = (host, int(port))

    def post(self, body, path="/v1/completions", timeout=300):
        """Returns status and seconds. If there was no response, the status is the error's name."""
        began = time.monotonic()
        try:
            connection = http.client.HTTPConnection(*self.address, timeout=timeout)
            data = body if isinstance(body, (bytes, str)) else json.dumps(body)
            connection.request("POST", path, data, {"content-type": "application/json"})
            response = connection.getresponse()
            response.read()
            status = response.status
            connection.close()
        except OSError as error:
            status = type(error).__name__
        return status, time.monotonic() - began

    def peak(self):
        with open(f"/proc/{self.child.pid}/status") as status:
            line = next(line for line in status if line.startswith("VmHWM"))
        return int(line.split()[1]) // 1024

    def end(self):
        """Sends SIGTERM and returns the seconds until the server exits, and the exit code."""
        began = time.monotonic()
        self.child.send_signal(signal.SIGTERM)
        try:
            code = self.child.wait(60)
        except subprocess.TimeoutExpired:
            self.child.kill()
            return "more than 60 s", None
        return f"{time.monotonic() - began:.1f} s", code


def bystander(host, port):
    """Streams the same text until standard input ends, and polls /health. Runs in its own process, so that the attackers
    don't affect its timing. Prints its observations as JSON."""
    over = threading.Event()
    seen = {"texts": [], "gaps": [], "per_token": [], "failures": [], "health": [0.0]}

    def stream():
        began = last = time.monotonic()
        connection = http.client.HTTPConnection(host, port, timeout=120)
        connection.request("POST", "/v1/completions", json.dumps(TEXT), {"content-type": "application/json"})
        response = connection.getresponse()
        if response.status != 200:
            seen["failures"].append(response.status)
            return time.sleep(0.1)
        pieces, longest = [], 0.0
        for line in response:
            now = time.monotonic()
            longest, last = max(longest, now - last), now
            if line.startswith(b"data: {"):
                pieces.append(json.loads(line[6:])["choices"][0]["text"])
        seen["gaps"].append(longest)
        seen["per_token"].append((last - began) / TEXT["max_tokens"])
        if "".join(pieces) not in seen["texts"]:
            seen["texts"].append("".join(pieces))
        connection.close()

    def ask_health():
        while not over.wait(0.1):
            began = time.monotonic()
            try:
                connection = http.client.HTTPConnection(host, port, timeout=60)
                connection.request("GET", "/health")
                good = connection.getresponse().status == 200
                connection.close()
            except OSError:
                good = False
            if good:
                seen["health"].append(time.monotonic() - began)
            else:
                seen["failures"].append("health")

    def wait_for_the_end():
        sys.stdin.read()
        over.set()

    for work in (ask_health, wait_for_the_end):
        threading.Thread(target=work, daemon=True).start()
    while not over.is_set():
        try:
            stream()
        except OSError as error:
            seen["failures"].append(type(error).__name__)
            time.sleep(0.1)
    print(json.dumps(seen))


class Bystander:
    """A bystander process."""

    def __init__(self, server):
        host, port = server.address
        command = [sys.executable, __file__, "--bystander", host, str(port)]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def end(self):
        """Stops the bystander and returns its observations."""
        out, _ = self.process.communicate(timeout=200)
        return json.loads(out)


def at_once(jobs):
    """Runs the jobs in threads. Returns the number of jobs per status, and the longest time."""
    results = []

    def run(job):
        results.append(job())

    threads = [threading.Thread(target=run, args=(job,), daemon=True) for job in jobs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(300)
    counted = collections.Counter(str(status) for status, _ in results)
    longest = max((seconds for _, seconds in results), default=0)
    return f"{dict(counted)}, {longest:.1f} s at most"


HARD = [
    r"((a{1000}){1000}){1000}", r"(a{1000}){1000}", r"(a|b)*a(a|b){30}", r"(?:(?:(?:a?){100}){100}){100}",
    r"(?i)(\p{L}{200}){20}", r"\w{1000}", r"\w{99999}", r"[\p{L}\p{N} ]{20000}", r"(?:\w{500}){500}",
    r"[\p{L}\p{N} ]{20000}|[\p{L}\p{N}]{20000}", r"(((a{0,1000}){0,1000}){0,1000})", r"a{1000}{1000}",
]


def hard(i):
    """Returns a request with a hard pattern, different for every i."""
    return {
        "prompt": "Once", "max_tokens": 2,
        "structured_outputs": {"regex": f"(?:{HARD[i % len(HARD)]})|x{i}"},
    }


def hard_patterns_one_by_one(server):
    for pattern in HARD:
        body = {"prompt": "Once", "max_tokens": 2, "structured_outputs": {"regex": pattern}}
        status, seconds = server.post(body)
        print(f"    {pattern:45} {status} {seconds:.2f} s", flush=True)
    return "as above"


def hard_patterns_200_at_once(server):
    return at_once([lambda i=i: server.post(hard(i)) for i in range(200)])


def hard_patterns_without_pause(server):
    stop, numbers = time.monotonic() + 20, iter(range(10**9))

    def loop():
        status, longest = None, 0
        while time.monotonic() < stop:
            status, seconds = server.post(hard(next(numbers)))
            longest = max(longest, seconds)
        return status, longest

    return at_once([loop] * 8)


def new_patterns_without_pause(server):
    """Cheap patterns, each of them new, for which text is generated."""
    stop, numbers = time.monotonic() + 15, iter(range(10**9))

    def loop():
        status, longest = None, 0
        while time.monotonic() < stop:
            regex = f"x{next(numbers)}|[A-Z][a-z ,]{{1,60}}[.!]"
            status, seconds = server.post({"prompt": "Once", "max_tokens": 8, "structured_outputs": {"regex": regex}})
            longest = max(longest, seconds)
        return status, longest

    return at_once([loop] * 8)


def head(length):
    """Returns the head of a request with a body of this many bytes."""
    lines = ["POST /v1/completions HTTP/1.1", "host: localhost", "content-type: application/json"]
    return "\r\n".join([*lines, f"content-length: {length}", "", ""]).encode()


def hard_patterns_hung_up(server):
    """Sends requests and disconnects immediately."""
    stop, count = time.monotonic() + 15, 0
    while time.monotonic() < stop:
        body = json.dumps(hard(count)).encode()
        client = socket.create_connection(server.address)
        client.sendall(head(len(body)) + body)
        client.close()
        count += 1
        time.sleep(0.02)
    return f"{count} sent"


def stop_strings(server):
    many = {"prompt": "Once", "max_tokens": 400, "n": 32, "stop": [f"q{i}"[:4] for i in range(140_000)]}
    long = {"prompt": "Once", "max_tokens": 400, "n": 32, "stop": "q" * 1_000_000}
    most = {"prompt": "Once", "max_tokens": 400, "n": 8, "stop": ["q" * 63 + chr(i + 200) for i in range(60)]}
    return at_once([lambda b=body: server.post(b) for body in [many, long, most] * 4])


def logprobs(server):
    body = {"messages": [{"role": "user", "content": "Once"}], "max_tokens": 500, "temperature": 2, "ignore_eos": True}
    body |= {"logprobs": True, "top_logprobs": 20}
    chats = [lambda n=n: server.post(body | {"n": n}, "/v1/chat/completions") for n in (128, 24, 24)]
    return at_once(chats)


def long_prompts(server):
    stop, body = time.monotonic() + 15, json.dumps({"prompt": "a b" * 330_000})

    def loop():
        while time.monotonic() < stop:
            status, seconds = server.post(body)
        return status, seconds

    return at_once([loop] * 40)


def bodies_of_100_megabytes(server):
    ids = json.dumps({"prompt": [5] * 340_000})
    deep = json.dumps({"prompt": "x", "nonsense": [[0]] * 200_000})
    return at_once([lambda b=body: server.post(b) for body in [ids, deep] * 50])


def slow_bodies(server):
    clients = []
    for _ in range(500):
        client = socket.create_connection(server.address)
        client.sendall(head(1_000_000))
        client.setblocking(False)
        clients.append(client)
    part, sent = b" " * 65536, 0
    stop = time.monotonic() + 10
    while time.monotonic() < stop:
        for client in clients:
            try:
                sent += client.send(part)
            except OSError:
                pass
        time.sleep(0.01)
    for client in clients:
        client.close()
    return f"{sent >> 20} MiB taken"


def connections_1000(server):
    held = []
    for _ in range(1000):
        try:
            held.append(socket.create_connection(server.address, 5))
        except OSError:
            break
    time.sleep(5)
    for client in held:
        client.close()
    return f"{len(held)} held"


def many_choices(server):
    body = {"prompt": "Once", "max_tokens": 400, "n": 128, "temperature": 1, "ignore_eos": True}
    attack = threading.Thread(target=server.post, args=(body,), daemon=True)
    attack.start()
    time.sleep(0.3)
    status, seconds = server.post({"prompt": "Once", "max_tokens": 1})
    began = time.monotonic()
    attack.join(300)
    rest = time.monotonic() - began
    return f"another client's single token: {status} after {seconds:.2f} s, {rest:.1f} s before the end"


def endless_template(server):
    chat = {"messages": [{"role": "user", "content": "boom"}], "max_tokens": 4}
    return at_once([lambda: server.post(chat, "/v1/chat/completions")] * 8)


ATTACKS = [
    hard_patterns_one_by_one, hard_patterns_200_at_once, hard_patterns_without_pause, new_patterns_without_pause,
    hard_patterns_hung_up, stop_strings, logprobs, long_prompts, bodies_of_100_megabytes, slow_bodies, connections_1000,
    many_choices, endless_template,
]


def apart(attack, server):
    """Runs an attack in a low-priority process, since real attackers have their own machines."""
    reads, writes = os.pipe()
    child = os.fork()
    if child == 0:
        os.nice(10)
        os.write(writes, attack(server).encode()[:60_000])
        os._exit(0)
    os.close(writes)
    with os.fdopen(reads) as outcome:
        told = outcome.read()
    os.waitpid(child, 0)
    return told


def measured(attack):
    flags = []
    if attack is endless_template:
        file = tempfile.NamedTemporaryFile("w", suffix=".jinja", delete=False)
        endless = "{% for a in range(99999) %}" * 3 + "{% endfor %}" * 3
        file.write("{% if messages[0].content == 'boom' %}" + endless + "{% endif %}x{{ messages[0].content }}")
        file.close()
        flags = ["--template", file.name]
    server = Server(*flags)
    beside = Bystander(server)
    time.sleep(4)
    calm, before = beside.end(), server.peak()
    beside = Bystander(server)
    time.sleep(0.5)
    outcome = apart(attack, server)
    attacked = beside.end()
    print(f"{attack.__name__}: {outcome}")
    if server.child.poll() is None:
        pace = [1000 * statistics.median(seen["per_token"]) for seen in (calm, attacked)]
        gaps = [1000 * max(seen["gaps"]) for seen in (calm, attacked)]
        same = len(calm["texts"]) == 1 and attacked["texts"] == calm["texts"]
        print(
            f"    bystander: {'same text' if same else 'ANOTHER TEXT'}, {len(attacked['failures'])} failures; "
            f"ms per token {pace[0]:.2f} -> {pace[1]:.2f}, longest gap {gaps[0]:.0f} -> {gaps[1]:.0f} ms; "
            f"health within {1000 * max(attacked['health']):.0f} ms"
        )
        print(f"    memory at most {before} -> {server.peak()} MiB; SIGTERM: {server.end()}")
    else:
        print(f"    THE SERVER HAS ENDED: {server.child.returncode}")
    if flags:
        os.unlink(flags[1])


if PROGRAM == "--bystander":
    bystander(sys.argv[2], int(sys.argv[3]))
    sys.exit()
for attack in ATTACKS:
    if not CHOSEN or attack.__name__ in CHOSEN:
        measured(attack)
