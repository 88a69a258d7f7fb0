"""How much later a token comes through `loom proxy`: 200 streams at once, from an upstream that writes the time into every chunk.

    python3 scripts/proxy_latency.py LOOM

Each stream is read directly and through the proxy in turn, so that both see the same machine. Prints the quantiles of the delay
from the upstream's write to the client's read, and what the proxy adds. Run by scripts/check-proxy.sh.
"""

import asyncio
import json
import multiprocessing
import subprocess
import sys
import time

STREAMS, CHUNKS, PAUSE, ROUNDS = 200, 40, 0.1, 3
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n"


async def answer(reader, writer):
    head = await reader.readuntil(b"\r\n\r\n")
    length = next(int(line.split(b":")[1]) for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:"))
    await reader.readexactly(length)
    writer.write(HEAD)
    begun = time.monotonic()
    # The streams are spread over the pause.
    begun += PAUSE * (id(writer) // 64 % 97) / 97
    for number in range(CHUNKS):
        await asyncio.sleep(max(0.0, begun + number * PAUSE - time.monotonic()))
        chunk = {"id": "c", "object": "chat.completion.chunk", "created": 0, "model": "m", "choices": [
            {"index": 0, "delta": {"content": f" {time.monotonic_ns()} "}, "finish_reason": None}]}
        writer.write(f"data: {json.dumps(chunk)}\n\n".encode())
    writer.write(b"data: [DONE]\n\n")
    await writer.drain()
    writer.close()


def upstream(port):
    async def serve():
        server = await asyncio.start_server(answer, "127.0.0.1", 0, backlog=1024)
        port.send(server.sockets[0].getsockname()[1])
        await server.serve_forever()

    asyncio.run(serve())


async def read(port, session, delays):
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1 << 20)
    body = json.dumps({"model": "m", "stream": True, "messages": [{"role": "user", "content": "Hello?"}]})
    writer.write((f"POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nx-loom-session: {session}\r\nContent-Type: application/json\r\n"
                  f"Content-Length: {len(body)}\r\n\r\n{body}").encode())
    seen = 0
    while seen < CHUNKS:
        line = await reader.readline()
        now = time.monotonic_ns()
        assert line, f"the stream ended after {seen} chunks"
        if line.startswith(b"data: {"):
            choices = json.loads(line[6:]).get("choices")
            if choices:
                delays.append(now - int(choices[0]["delta"]["content"]))
                seen += 1
    writer.close()


def quantile(values, share):
    return sorted(values)[min(len(values) - 1, int(len(values) * share))] / 1e6


def main():
    parent, child = multiprocessing.Pipe()
    server = multiprocessing.Process(target=upstream, args=(child,), daemon=True)
    server.start()
    port = parent.recv()
    proxy = subprocess.Popen([sys.argv[1], "proxy", f"http://127.0.0.1:{port}/v1", "--port", "0"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    try:
        through = int(proxy.stdout.readline().split(" at http://127.0.0.1:")[1].split("/")[0])

        async def measure():
            found = {port: [], through: []}
            for number in range(ROUNDS):
                for at in (port, through) if number % 2 == 0 else (through, port):
                    await asyncio.gather(*(read(at, f"s{stream}", found[at]) for stream in range(STREAMS)))
            return found[port], found[through]

        direct, proxied = asyncio.run(measure())
    finally:
        proxy.kill()
        server.kill()
    for name, values in (("direct", direct), ("through the proxy", proxied)):
        print(f"{name:18} {len(values)} tokens: median {quantile(values, 0.5):.2f} ms, p99 {quantile(values, 0.99):.2f} ms")
    print(f"the proxy adds {quantile(proxied, 0.5) - quantile(direct, 0.5):.2f} ms to the median and "
          f"{quantile(proxied, 0.99) - quantile(direct, 0.99):.2f} ms to p99, {STREAMS} streams at once")


if __name__ == "__main__":
    main()
