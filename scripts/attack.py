"""The attacks of scripts/attack.sh. Each returns a line of measurements, or raises AssertionError."""

import argparse
import concurrent.futures
import json
import os
import pathlib
import random
import resource
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import time
import urllib.error
import urllib.request

MEMORY_MAX = 4 << 30  # address space of a reader, bytes
SECONDS_MAX = 60  # CPU time of a reader
STATE_MIB = 256  # what the server may take for states, with the prefixes' part below
PREFIX_MIB = 64
REQUESTS_MIB_MAX = 512  # what it may take beyond its memory at rest and the states
HEALTH_P99_MAX = 0.1  # seconds, for /health on a connection of its own each time
SHARE_MIN = 0.5  # of an honest client's tokens per second among as many clients
STOP_SECONDS_MAX = 10
GOOD_EXITS = range(0, 6)  # docs: 0 ok to 5 a model failed


class Server:
    """`loom serve` on a free port; its largest resident memory is sampled."""

    def __init__(self, loom, *arguments):
        sizes = ["--state-mib", str(STATE_MIB), "--prefix-mib", str(PREFIX_MIB)]
        self.process = subprocess.Popen(
            [loom, "serve", "--port", "0", *sizes, *arguments], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        line = self.process.stdout.readline()
        self.port = int(line.split("http://127.0.0.1:")[1].split("/")[0])
        self.peak, self.curve, self.begun = 0, [], time.monotonic()
        self.at_rest = self.resident()
        self.most = self.at_rest + (STATE_MIB + PREFIX_MIB + REQUESTS_MIB_MAX << 20)
        self.sampling, self.stopping = True, False
        threading.Thread(target=self.sample, daemon=True).start()

    def resident(self):
        """Bytes of resident memory; 0 when it has ended."""
        try:
            status = pathlib.Path(f"/proc/{self.process.pid}/status").read_text()
        except OSError:
            return 0
        return sum(int(line.split()[1]) << 10 for line in status.splitlines() if line.startswith("VmRSS"))

    def sample(self):
        while self.sampling and (resident := self.resident()):
            self.peak = max(self.peak, resident)
            self.curve.append((time.monotonic() - self.begun, resident))
            time.sleep(0.02)

    def connect(self):
        return socket.create_connection(("127.0.0.1", self.port), timeout=120)

    def ask(self, path, body, timeout=300):
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}{path}", data, {"Content-Type": "application/json"})
        try:
            with urllib.request.urlopen(request, timeout=timeout) as answer:
                return answer.status, answer.read()
        except urllib.error.HTTPError as error:
            return error.code, error.read()

    def check(self):
        status, _ = self.ask("/tokenize", {"prompt": "still here"})
        assert status == 200, f"the server answers {status}"
        assert self.peak < self.most, f"the server took {self.peak >> 20} MiB, more than {self.most >> 20}"

    def stop(self):
        begun, self.stopping = time.monotonic(), True
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(timeout=60)
        self.sampling = False
        took = time.monotonic() - begun
        assert took <= STOP_SECONDS_MAX, f"it stopped after {took:.1f} s"
        return took


def post(path, body):
    head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    return head.encode() + body


def idle_connections(server):
    held = [server.connect() for _ in range(600)]
    begun = time.monotonic()
    server.check()
    took = time.monotonic() - begun
    for one in held:
        one.close()
    return f"600 idle connections; a request beside them took {took:.2f} s"


def half_requests(server):
    parts = [b"GET /health HTT", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", post("/tokenize", b"x" * 100)[:-50]]
    held = [server.connect() for _ in range(30)]
    for index, one in enumerate(held):
        one.sendall(parts[index % len(parts)])
    server.check()
    begun = time.monotonic()
    for one in held:
        one.settimeout(60)
        try:
            while one.recv(1 << 16):
                pass
        except ConnectionError:
            pass
    return f"30 half requests; all closed after {time.monotonic() - begun:.1f} s"


def unread_streams(server):
    body = json.dumps({"model": "bundled", "prompt": "Once", "max_tokens": 4000, "stream": True, "temperature": 50, "top_p": 1,
                       "logprobs": 20, "n": 4}).encode()
    held = [server.connect() for _ in range(20)]
    for one in held:
        one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        one.sendall(post("/v1/completions", body))
    time.sleep(5)
    server.check()
    for one in held:
        one.close()
    return f"20 streams unread for 5 s; peak {server.peak >> 20} MiB"


def large_bodies(server):
    def ask(index):
        try:
            return server.ask("/tokenize", {"prompt": ("xy z"[index % 4] * 7 + " ") * ((size << 20) // 8)})[0]
        except urllib.error.URLError:
            return 0  # refused while it was sent

    lines = []
    for size in (15, 4):
        begun = time.monotonic()
        with concurrent.futures.ThreadPoolExecutor(6) as pool:
            answers = list(pool.map(ask, range(6)))
        assert all(status in (0, 200, 400, 413, 501, 503) for status in answers), answers
        server.check()
        lines.append(f"six bodies of {size} MiB at once: {answers} in {time.monotonic() - begun:.1f} s; peak {server.peak >> 20} MiB")
    return "; ".join(lines)


def deep_and_wide(server):
    bodies = [b"[" * 1_000_000, b'{"a":' * 500_000, b'{"model": "bundled", "prompt": [' + b"1," * 4_000_000 + b"1]}",
              b'{"messages": [' + b'{"role": "user", "content": "a"},' * 400_000 + b'{"role": "user", "content": "a"}]}',
              b"{" + b",".join(b'"f%d": 1' % index for index in range(800_000)) + b"}"]
    answers = [server.ask("/v1/chat/completions", body)[0] for body in bodies]
    assert all(400 <= status < 500 for status in answers), answers
    server.check()
    return f"deep and wide JSON: {answers}; peak {server.peak >> 20} MiB"


def many_messages(server):
    messages = [{"role": ["user", "assistant"][index % 2], "content": "hi"} for index in range(20_001)]
    begun = time.monotonic()
    status, _ = server.ask("/tokenize", {"messages": messages})
    took = time.monotonic() - begun
    assert status == 200 and took < 120, (status, took)
    return f"20,001 messages tokenised in {took:.1f} s"


def large_responses(server):
    """As many log-probabilities as one response may report, asked for by 16 clients at once, half of which do not read."""
    body = {"model": "bundled", "prompt": "Once", "max_tokens": 162, "n": 32, "temperature": 50, "top_p": 1, "logprobs": 100}
    held = [server.connect() for _ in range(8)]
    for one in held:
        one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        one.sendall(post("/v1/completions", json.dumps(body).encode()))
    begun = time.monotonic()
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda _: server.ask("/v1/completions", body), range(8)))
    sizes = [len(answer) >> 20 for status, answer in answers if status == 200]
    assert len(sizes) == 8, [status for status, _ in answers]
    server.check()
    for one in held:
        one.close()
    return f"16 responses of 523,584 log-probabilities, 8 of them unread: {max(sizes)} MiB each in {time.monotonic() - begun:.1f} s; peak {server.peak >> 20} MiB"


def greedy_choices(server):
    body = {"model": "bundled", "prompt": "Once", "max_tokens": 2000, "n": 128, "temperature": 50, "top_p": 1}
    greedy = server.connect()
    greedy.sendall(post("/v1/completions", json.dumps(body).encode()))
    time.sleep(1)
    begun = time.monotonic()
    assert server.ask("/v1/completions", {"model": "bundled", "prompt": "Hi", "max_tokens": 4})[0] == 200
    took = time.monotonic() - begun
    greedy.close()
    return f"a short request beside n=128 took {took:.1f} s"


def stop_with_clients(server):
    held = [server.connect() for _ in range(10)]
    for index, one in enumerate(held):
        one.sendall([b"", b"GET /hea", post("/v1/completions", json.dumps(
            {"model": "bundled", "prompt": "Once", "max_tokens": 4000, "stream": True, "temperature": 50, "top_p": 1}).encode())][index % 3])
    time.sleep(0.5)
    took = server.stop()
    return f"SIGTERM with 10 clients: stopped after {took:.1f} s, status {server.process.returncode}"


HONEST = {"model": "bundled", "prompt": "My dog is", "max_tokens": 200, "temperature": 50, "top_p": 1}


def rate(server, seconds):
    """Tokens per second of one client that asks again and again."""
    begun, tokens = time.monotonic(), 0
    while time.monotonic() - begun < seconds:
        status, answer = server.ask("/v1/completions", HONEST)
        assert status == 200, (status, answer)
        tokens += json.loads(answer)["usage"]["completion_tokens"]
    return tokens / (time.monotonic() - begun)


def health(server, ended, took):
    while not ended.is_set():
        begun = time.monotonic()
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{server.port}/health", timeout=60) as answer:
                assert answer.status == 200
            took.append(time.monotonic() - begun)
        except (urllib.error.URLError, ConnectionError):
            if server.process.poll() is None and server.sampling and not server.stopping:
                took.append(float("inf"))
        time.sleep(0.02)


def everything_at_once(loom, picture):
    """64 readers that stall, 3,000 idle sockets, six bodies of 16 MB and six of 4, deep JSON and a chat of 20,001 messages
    over and over, beside an honest client."""
    server = Server(loom)
    stream = json.dumps({**HONEST, "max_tokens": 4000, "stream": True, "logprobs": 5}).encode()
    # The share is what one of many clients gets that ask for the same at the same time.
    with concurrent.futures.ThreadPoolExecutor(CROWD) as pool:
        alone = list(pool.map(lambda _: rate(server, 6), range(CROWD)))
    share = sum(alone) / len(alone)
    ended, took, stalled, refused = threading.Event(), [], [], {}
    attack_begun = time.monotonic() - server.begun

    def stall():
        while len(stalled) < 64:
            one = server.connect()
            one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            one.sendall(post("/v1/completions", stream))
            stalled.append(one)

    def idle():
        held = []
        while not ended.is_set():
            if len(held) < 3000:
                one = socket.socket()
                one.setblocking(False)
                one.connect_ex(("127.0.0.1", server.port))
                held.append(one)
            else:
                time.sleep(0.1)
        for one in held:
            one.close()

    def again(path, body):
        while not ended.is_set():
            try:
                status = server.ask(path, body)[0]
            except (urllib.error.URLError, ConnectionError, TimeoutError):
                status = "closed"
            refused[status] = refused.get(status, 0) + 1
            # The attacker leaves the machine's time to the server.
            time.sleep(0 if status == 200 else 0.1)

    large = json.dumps({"prompt": "x y " * 4_000_000}).encode()
    middle = json.dumps({"prompt": "x y " * 1_000_000}).encode()
    deep = b'{"messages": ' + b"[" * 8_000_000
    chat = json.dumps({"messages": [{"role": ["user", "assistant"][index % 2], "content": "hi"} for index in range(20_001)]}).encode()
    workers = [threading.Thread(target=stall), threading.Thread(target=idle)]
    workers += [threading.Thread(target=again, args=("/tokenize", body)) for body in [large] * 6 + [middle] * 6 + [deep, chat]]
    watch = threading.Thread(target=health, args=(server, ended, took))
    for worker in workers:
        worker.daemon = True
        worker.start()
    time.sleep(2)
    watch.start()
    attacked = rate(server, 30)
    stopped_at = time.monotonic() - server.begun
    stop = server.stop()
    ended.set()
    took.sort()
    p99 = took[int(len(took) * 0.99)] if took else float("inf")
    plot(server.curve, server.most, (attack_begun, stopped_at), picture)
    line = (f"RSS {server.at_rest >> 20} MiB at rest, {server.peak >> 20} at most (limit {server.most >> 20}); /health p99 "
            f"{p99 * 1000:.0f} ms of {len(took)}; an honest client {attacked:.0f} tokens/s, its share among {CROWD} {share:.0f}; answers "
            f"{refused}; SIGTERM {stop:.1f} s")
    assert server.peak < server.most and p99 <= HEALTH_P99_MAX and attacked >= SHARE_MIN * share, line
    return line


CROWD = 64 + 6 + 6 + 2 + 1


def plot(curve, limit, attack, path):
    """The memory over time as an SVG figure."""
    width, height, left, top = 720, 240, 60, 20
    end = max(at for at, _ in curve)
    across = lambda at: left + (width - left - 20) * at / end
    down = lambda resident: top + (height - top - 40) * (1 - resident / (limit * 1.05))
    # At most four samples per pixel are drawn: the largest of each.
    columns = {}
    for at, resident in curve:
        column = int(across(at) * 2)
        columns[column] = max(columns.get(column, 0), resident)
    line = " ".join(f"{column / 2:.1f},{down(resident):.1f}" for column, resident in sorted(columns.items()))
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="sans-serif" font-size="12">',
        f'<rect width="{width}" height="{height}" fill="#fff"/>',
        f'<rect x="{across(attack[0]):.1f}" y="{top}" width="{across(attack[1]) - across(attack[0]):.1f}" height="{height - top - 40}" fill="#fbe9e7"/>',
        f'<text x="{across(attack[0]) + 4:.1f}" y="{top + 32}" fill="#a33">under attack</text>',
        f'<line x1="{left}" x2="{width - 20}" y1="{down(limit):.1f}" y2="{down(limit):.1f}" stroke="#a33" stroke-dasharray="4 3"/>',
        f'<text x="{left + 4}" y="{down(limit) + 14:.1f}" fill="#a33">limit: {limit >> 20} MiB</text>',
        f'<polyline points="{line}" fill="none" stroke="#14507a" stroke-width="1.5"/>',
        f'<line x1="{left}" x2="{width - 20}" y1="{height - 40}" y2="{height - 40}" stroke="#333"/>',
    ]
    for mib in range(0, int(limit * 1.05) >> 20, 200):
        parts.append(f'<text x="{left - 6}" y="{down(mib << 20) + 4:.1f}" text-anchor="end">{mib}</text>')
    for second in range(0, int(end) + 1, 10):
        parts.append(f'<text x="{across(second):.1f}" y="{height - 24}" text-anchor="middle">{second}</text>')
    parts += [f'<text x="{(left + width) / 2}" y="{height - 8}" text-anchor="middle">seconds</text>',
              f'<text x="14" y="{height / 2}" text-anchor="middle" transform="rotate(-90 14 {height / 2})">resident memory, MiB</text>', "</svg>"]
    pathlib.Path(path).write_text("\n".join(parts) + "\n")


def heads(loom, rounds, seed):
    """Mutated request heads: the server answers or closes, and goes on."""
    server, rng, answers = Server(loom), random.Random(seed), {}
    seeds = [post("/tokenize", b'{"prompt": "a"}'), b"GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n",
             b"POST /tokenize HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\nf\r\n"
             b'{"prompt": "a"}\r\n0\r\n\r\n']
    for _ in range(rounds):
        one = server.connect()
        one.settimeout(0.05)
        try:
            one.sendall(mutated(rng.choice(seeds), rng))
            answer = one.recv(64)
        except (TimeoutError, ConnectionError):
            answer = b""
        one.close()
        status = answer[9:12].decode("latin-1") or "none"
        answers[status] = answers.get(status, 0) + 1
    server.check()
    server.process.kill()
    assert set(answers) <= {"none"} | {str(status) for status in range(200, 506)} and "500" not in answers, answers
    return f"{rounds} mutated heads of requests: {dict(sorted(answers.items()))}"


def limited():
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_MAX, MEMORY_MAX))
    resource.setrlimit(resource.RLIMIT_CPU, (SECONDS_MAX, SECONDS_MAX))
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 30, 1 << 30))


def mutated(source, rng):
    data = bytearray(source)
    for _ in range(rng.choice([1, 1, 2, 5, 20])):
        at = rng.randrange(len(data) + 1)
        kind = rng.randrange(7)
        if kind == 0:
            del data[at:]
        elif kind == 1 and data:
            data[min(at, len(data) - 1)] ^= 1 << rng.randrange(8)
        elif kind == 2:
            data[at:at] = rng.choice([b"9" * 30, b"-1", b"1e999", b"null", b"[" * 300, b'{"a":' * 200, b"\x00\xff", "\u202e\x1b]0;x\x07".encode()])
        elif kind == 3:
            del data[at : at + rng.randrange(1, 200)]
        elif kind == 4:
            part = data[at : at + rng.randrange(1, 2000)]
            data[at:at] = part * rng.choice([1, 3, 50])
        elif kind == 5:
            other = rng.randrange(len(data) + 1)
            data[at : at + 8] = data[other : other + 8]
        else:
            data[at : at + 8] = rng.getrandbits(64).to_bytes(8, "little")
    return bytes(data)


def readers(loom, root, folder):
    """Each reader: the file that is mutated, and the command that reads it."""
    model = folder / "model"
    shutil.copytree(root / "tests/data/mamba/plain", model)
    anna = folder / "anna.yaml"
    shutil.copy(root / "tests/data/rollout/anna.yaml", anna)
    subprocess.run([loom, "run", anna, "--persona-model", "bundled", "--target", "echo", "--turns", "2", "--output", folder / "run"],
                   check=True, capture_output=True, cwd=folder)
    generate = [loom, "generate", "Hello there", "-m", f"local:{model}", "--max-tokens", "2"]
    yield anna, [loom, "dry-run", anna, "--turns", "50"]
    yield anna, [loom, "validate", anna]
    for name in ["config.json", "tokenizer.json", "model.safetensors"]:
        yield model / name, generate
    gguf = sorted((root / "tests/data").rglob("*.gguf"))
    if gguf:
        copy = folder / "model.gguf"
        shutil.copy(gguf[0], copy)
        yield copy, [loom, "generate", "Hello", "-m", f"local:{copy}", "--max-tokens", "2"]
    run = folder / "run"
    for name in ["rollout_000.json", "rollout_000.tokens.jsonl", "run.json"]:
        yield run / name, [loom, "report", run, "--output", "-"]
    yield run / "run.json", [loom, "run", "--resume", run, "--no-score"]
    yield run / "receipts.jsonl", [loom, "receipts", "verify", run]
    template = folder / "template.jinja"
    template.write_text("{% for m in messages %}<|{{ m.role }}|>{{ m.content | trim }}{% endfor %}{{ 'x' * 3 }}")
    yield template, [loom, "generate", "Hi", "--chat-template", template, "--max-tokens", "1"]


def mutations(loom, root, rounds, seed):
    with tempfile.TemporaryDirectory() as scratch:
        folder = pathlib.Path(scratch)
        os.environ["HOME"] = scratch
        for file, command in readers(loom, root, folder):
            source, rng, exits, slowest = file.read_bytes(), random.Random(f"{seed} {file.name}"), {}, 0.0
            for number in range(rounds):
                file.write_bytes(mutated(source, rng))
                begun = time.monotonic()
                done = subprocess.run(command, capture_output=True, cwd=folder, preexec_fn=limited, timeout=300)
                slowest = max(slowest, time.monotonic() - begun)
                exits[done.returncode] = exits.get(done.returncode, 0) + 1
                shown = (done.stdout + done.stderr).decode(errors="replace")
                good = done.returncode in GOOD_EXITS and "loom has a bug" not in shown and "\x1b" not in shown and "\u202e" not in shown
                if not good:
                    kept = pathlib.Path(tempfile.mkdtemp(prefix="loom-attack-")) / file.name
                    shutil.copy(file, kept)
                    raise AssertionError(f"{command[1]} on {kept}: status {done.returncode}: {shown[-400:]}")
            file.write_bytes(source)
            yield f"{command[1]:9} {file.name:25} {rounds} mutations, status {dict(sorted(exits.items()))}, slowest {slowest:.2f} s"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("loom")
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--picture", default="docs/images/attack-memory.svg")
    given = parser.parse_args()
    files = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(files, 16_384), files))
    root = pathlib.Path(__file__).resolve().parent.parent
    failed = 0
    server = Server(given.loom)
    attacks = [idle_connections, half_requests, deep_and_wide, large_bodies, many_messages, unread_streams, large_responses,
               greedy_choices, stop_with_clients]
    for attack in attacks:
        try:
            print(f"{attack.__name__:18} {attack(server)}", flush=True)
        except (AssertionError, OSError, subprocess.TimeoutExpired) as error:
            failed += 1
            print(f"{attack.__name__:18} FAILED: {error!r}", flush=True)
    if server.process.poll() is None:
        server.process.kill()
    once = lambda: everything_at_once(given.loom, given.picture)
    request_heads = lambda: heads(given.loom, given.rounds * 10, given.seed)
    for name, attack in [("at once", once), ("request heads", request_heads)]:
        try:
            print(f"{name:18} {attack()}", flush=True)
        except (AssertionError, OSError, subprocess.TimeoutExpired) as error:
            failed += 1
            print(f"{name:18} FAILED: {error!r}", flush=True)
    try:
        for line in mutations(given.loom, root, given.rounds, given.seed):
            print(line, flush=True)
    except (AssertionError, subprocess.TimeoutExpired) as error:
        failed += 1
        print(f"mutations FAILED: {error}", flush=True)
    raise SystemExit(1 if failed else 0)


if __name__ == "__main__":
    main()
