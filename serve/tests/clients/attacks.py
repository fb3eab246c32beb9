"""What attackers can do to a server, measured: `python attacks.py target/release/candecode-serve [MODEL] [ATTACK…]`.

Starts a server for each attack, and beside the attack lets a bystander stream one text again and again. Reports how long the
bystander waited for a token at most, its median time per token (and without the attack), whether its text stayed the
same, the server's peak memory, and what the attackers were answered. Needs Linux and Python's standard library.
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
        """Status and seconds; the status is a word if there was none."""
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

    def health(self):
        began = time.monotonic()
        try:
            connection = http.client.HTTPConnection(*self.address, timeout=60)
            connection.request("GET", "/health")
            status = connection.getresponse().status
            connection.close()
        except OSError as error:
            status = type(error).__name__
        return status, time.monotonic() - began

    def peak(self):
        with open(f"/proc/{self.child.pid}/status") as status:
            line = next(line for line in status if line.startswith("VmHWM"))
        return int(line.split()[1]) // 1024

    def end(self):
        """Seconds from SIGTERM to the end, and the exit code."""
        began = time.monotonic()
        self.child.send_signal(signal.SIGTERM)
        try:
            code = self.child.wait(60)
        except subprocess.TimeoutExpired:
            self.child.kill()
            return "more than 60 s", None
        return f"{time.monotonic() - began:.1f} s", code


class Bystander(threading.Thread):
    """Streams the same text until it is told to stop, and asks for the health beside it."""

    def __init__(self, server):
        super().__init__(daemon=True)
        self.server, self.over = server, threading.Event()
        self.texts, self.gaps, self.failures, self.health = set(), [], [], [0.0]

    def stream(self):
        connection = http.client.HTTPConnection(*self.server.address, timeout=120)
        connection.request("POST", "/v1/completions", json.dumps(TEXT), {"content-type": "application/json"})
        response = connection.getresponse()
        if response.status != 200:
            self.failures.append(response.status)
            time.sleep(0.1)
            return
        text, last = "", time.monotonic()
        for line in response:
            if line.startswith(b"data: {"):
                now = time.monotonic()
                text += json.loads(line[6:])["choices"][0]["text"]
                self.gaps.append(now - last)
                last = now
        self.texts.add(text)
        connection.close()

    def ask_health(self):
        while not self.over.wait(0.1):
            status, seconds = self.server.health()
            self.health.append(seconds if status == 200 else 99.0)

    def run(self):
        threading.Thread(target=self.ask_health, daemon=True).start()
        while not self.over.is_set():
            try:
                self.stream()
            except OSError as error:
                self.failures.append(type(error).__name__)
                time.sleep(0.1)

    def end(self):
        self.over.set()
        self.join(120)


def at_once(jobs):
    """Runs the jobs in threads; what they return, counted by status, and the longest time."""
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
    """A hard pattern that no other number has."""
    return {
        "prompt": "Once", "max_tokens": 2,
        "structured_outputs": {"regex": f"(?:{HARD[i % len(HARD)]})|x{i}"},
    }


def hard_patterns_one_by_one(server):
    for pattern in HARD:
        body = {"prompt": "Once", "max_tokens": 2, "structured_outputs": {"regex": pattern}}
        status, seconds = server.post(body)
        print(f"    {pattern:45} {status} {seconds:.2f} s")
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


def hard_patterns_hung_up(server):
    """Asks and goes away at once."""
    stop, count = time.monotonic() + 15, 0
    while time.monotonic() < stop:
        body = json.dumps(hard(count)).encode()
        client = socket.create_connection(server.address)
        head = f"POST /v1/completions HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
        client.sendall(head.encode() + body)
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
        head = "POST /v1/completions HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: 1000000\r\n\r\n"
        client.sendall(head.encode())
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
    return f"another client's single token: {status} after {seconds:.2f} s, {time.monotonic() - began:.1f} s before the end"


def endless_template(server):
    chat = {"messages": [{"role": "user", "content": "boom"}], "max_tokens": 4}
    return at_once([lambda: server.post(chat, "/v1/chat/completions")] * 8)


ATTACKS = [
    hard_patterns_one_by_one, hard_patterns_200_at_once, hard_patterns_without_pause, hard_patterns_hung_up, stop_strings,
    logprobs, long_prompts, bodies_of_100_megabytes, slow_bodies, connections_1000, many_choices, endless_template,
]


def measured(attack):
    flags = []
    if attack is endless_template:
        file = tempfile.NamedTemporaryFile("w", suffix=".jinja", delete=False)
        endless = "{% for a in range(99999) %}" * 3 + "{% endfor %}" * 3
        file.write("{% if messages[0].content == 'boom' %}" + endless + "{% endif %}x{{ messages[0].content }}")
        file.close()
        flags = ["--template", file.name]
    server = Server(*flags)
    calm = Bystander(server)
    calm.start()
    time.sleep(3)
    calm.end()
    before = server.peak()
    bystander = Bystander(server)
    bystander.start()
    time.sleep(0.2)
    outcome = attack(server)
    bystander.end()
    alive = server.child.poll() is None
    print(f"{attack.__name__}: {outcome}")
    if alive:
        median = [1000 * statistics.median(client.gaps) for client in (calm, bystander)]
        gaps = [1000 * max(client.gaps) for client in (calm, bystander)]
        same = bystander.texts <= calm.texts and len(calm.texts) == 1 and bystander.texts
        print(
            f"    bystander: {'same text' if same else 'ANOTHER TEXT'}, {len(bystander.failures)} failures; "
            f"ms per token {median[0]:.2f} -> {median[1]:.2f}, longest gap {gaps[0]:.0f} -> {gaps[1]:.0f} ms; "
            f"health within {1000 * max(bystander.health):.0f} ms"
        )
        print(f"    memory at most {before} -> {server.peak()} MiB; SIGTERM: {server.end()}")
    else:
        print(f"    THE SERVER HAS ENDED: {server.child.returncode}")
    if flags:
        os.unlink(flags[1])


for attack in ATTACKS:
    if not CHOSEN or attack.__name__ in CHOSEN:
        measured(attack)
