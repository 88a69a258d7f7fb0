"""A session with the official client through `loom proxy`; run by scripts/check-proxy.sh."""

import json
import sys
import urllib.request
from pathlib import Path

import openai
from openai import OpenAI

direct_url, proxy_url, key_file = sys.argv[1:]
key = Path(key_file).read_text()
direct = OpenAI(base_url=direct_url, api_key=key)
proxy = OpenAI(base_url=proxy_url, api_key=key)
ask = dict(model="bundled", messages=[{"role": "user", "content": "Hi! Do you have any pets?"}], max_tokens=12, seed=5)
ann = {"x-loom-session": "ann"}


def same(a, b):
    """Replies are equal but for their ids and times."""
    strip = lambda reply: {name: value for name, value in reply.to_dict().items() if name not in ("id", "created")}
    assert strip(a) == strip(b), (a, b)


# A whole reply, with the headers of the proxy.
raw = proxy.chat.completions.with_raw_response.create(**ask, logprobs=True, extra_headers=ann)
same(raw.parse(), direct.chat.completions.create(**ask, logprobs=True))
assert raw.headers["x-loom-decision"], raw.headers
assert (raw.headers["x-loom-session"], raw.headers["x-loom-turn"], raw.headers["x-loom-stop"]) == ("ann", "1", "false")
print(f"a reply passed unchanged; x-loom-decision: {raw.headers['x-loom-decision']}")

# A stream: the client reads as if the proxy were not there.
stream = lambda client, **more: list(client.chat.completions.create(**ask, stream=True, **more))
through, without = stream(proxy, extra_headers=ann), stream(direct)
assert len(through) == len(without)
for a, b in zip(through, without):
    same(a, b)
print(f"a stream of {len(through)} chunks passed unchanged")

# Models and errors.
assert [model.id for model in proxy.models.list()] == [model.id for model in direct.models.list()]
for client in (direct, proxy):
    try:
        client.chat.completions.create(**{**ask, "model": "other"})
        raise AssertionError("a model that does not exist was answered")
    except openai.NotFoundError as error:
        assert error.code == "model_not_found", error
try:
    OpenAI(base_url=proxy_url, api_key="wrong").models.list()
    raise AssertionError("a wrong key was accepted")
except openai.AuthenticationError:
    print("models and errors passed")

# The cap of 150 tokens: a long reply is cut, and the next request refused.
long = {**ask, "max_tokens": 400, "seed": 6}
chunks, cut = [], None
for _ in range(12):
    for chunk in proxy.chat.completions.create(**long, stream=True, logprobs=True, extra_headers={"x-loom-session": "bob"}):
        chunks.append(chunk)
        cut = cut or getattr(chunk, "loom_stop", None)
    if cut:
        break
    long["messages"] = long["messages"] + [{"role": "user", "content": "Tell me more about it, please."}]
    sessions = json.load(urllib.request.urlopen(proxy_url.removesuffix("/v1") + "/loom/sessions"))
    if next(session for session in sessions if session["session"] == "bob")["stop"]:
        break
try:
    proxy.chat.completions.create(**ask, extra_headers={"x-loom-session": "bob"})
    raise AssertionError("a session beyond its cap was answered")
except openai.PermissionDeniedError as error:
    assert error.code == "loom_stop", error
    print(f"{error.body['message']}")
print("cut in mid-stream" if cut else "the cap was reached between replies")

sessions = json.load(urllib.request.urlopen(proxy_url.removesuffix("/v1") + "/loom/sessions"))
spent = {session["session"]: session["spent"] for session in sessions}
assert spent["bob"]["tokens_in"] + spent["bob"]["tokens_out"] >= 150 and spent["ann"]["tokens_out"] > 0, spent
page = urllib.request.urlopen(proxy_url.removesuffix("/v1") + "/").read().decode()
assert "ann" in page and "bob" in page and key not in page
print(f"the page lists {len(sessions)} sessions")
