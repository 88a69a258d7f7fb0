"""A relay between clients and `loom serve` that keeps one request of each form, with the form of its answer."""

import http.client
import http.server
import json
import threading
import urllib.parse

# Those that the transport sets itself, and the secret.
LEFT_OUT = {"host", "authorization", "content-length", "connection", "accept-encoding", "transfer-encoding"}


def form(value, path="", found=None):
    """The paths of a JSON value with their types, such as `choices[].index: number`."""
    found = set() if found is None else found
    if isinstance(value, dict):
        if path.split(".")[-1].startswith("top_logprobs") and all(isinstance(one, float) for one in value.values()):
            found.add(f"{path}: by token")
            return found
        for key, one in value.items():
            form(one, f"{path}.{key}" if path else key, found)
    elif isinstance(value, list):
        for one in value:
            form(one, f"{path}[]", found)
    else:
        kinds = {bool: "boolean", int: "number", float: "number", str: "string", type(None): "null"}
        found.add(f"{path}: {kinds[type(value)]}")
    return found


def form_of_answer(kind, text):
    """The form of a body: of all events of a stream together, and whether it ended."""
    if not kind.startswith("text/event-stream"):
        return sorted(form(json.loads(text)))
    found = set()
    for event in text.split("\n\n"):
        data = event.removeprefix("data: ").strip()
        if data == "[DONE]":
            found.add("[DONE]")
        elif data and not data.startswith(":"):
            form(json.loads(data), "data", found)
    return sorted(found)


class Recorder:
    """Relays to the server at `url` and keeps what passes; `url` becomes its own address."""

    def __init__(self, url):
        upstream = urllib.parse.urlsplit(url)
        self.records, self.client, recorder = {}, "", self

        class Relay(http.server.BaseHTTPRequestHandler):
            def relay(self):
                body = self.rfile.read(int(self.headers.get("content-length", 0)))
                connection = http.client.HTTPConnection(upstream.netloc, timeout=120)
                headers = {name: value for name, value in self.headers.items() if name.lower() not in {"host", "accept-encoding"}}
                connection.request(self.command, self.path, body or None, headers)
                answer = connection.getresponse()
                self.send_response(answer.status)
                for name, value in answer.getheaders():
                    if name.lower() not in {"transfer-encoding", "connection", "content-length"}:
                        self.send_header(name, value)
                self.send_header("Connection", "close")
                self.end_headers()
                read = b""
                while piece := answer.read1(1 << 16):
                    read += piece
                    self.wfile.write(piece)
                recorder.keep(self, body, answer, read.decode())

            do_GET = do_POST = relay

            def log_message(self, *_):
                pass

            def handle_one_request(self):
                try:
                    super().handle_one_request()
                except ConnectionError:
                    self.close_connection = True

        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Relay)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        self.url = f"http://127.0.0.1:{server.server_port}{upstream.path}"

    def keep(self, request, body, answer, read):
        body = json.loads(body) if body else None
        shape = form_of_answer(answer.getheader("content-type", ""), read)
        record = {
            "client": self.client,
            "method": request.command,
            "path": request.path,
            "headers": {name.lower(): value for name, value in request.headers.items() if name.lower() not in LEFT_OUT},
            "body": body,
            "status": answer.status,
            "form": shape,
        }
        # Of requests of one form with one answer's form, the shortest is kept.
        key = json.dumps([self.client, request.command, request.path, sorted(form(body)), answer.status, shape])
        if key not in self.records or len(json.dumps(record)) < len(json.dumps(self.records[key])):
            self.records[key] = record

    def write(self, path):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("".join(json.dumps(record) + "\n" for record in self.records.values()))
