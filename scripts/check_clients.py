"""The client half of check-clients.sh: `check_clients.py URL FOLDER [RECORD]`, with the server's key in FOLDER/key.

With RECORD, the requests of the clients and the forms of their answers are written to that file."""

import importlib.metadata
import json
import os
import pathlib
import subprocess
import sys
import time
import urllib.request

import openai

from record_clients import Recorder

URL, WORK = sys.argv[1], pathlib.Path(sys.argv[2])
RECORDER = Recorder(URL) if len(sys.argv) > 3 else None
# Where the clients send their requests.
CLIENT_URL = RECORDER.url if RECORDER else URL
KEY = (WORK / "key").read_text().strip()
HELLO = [
    {"role": "system", "content": "I have two dogs. I love hiking."},
    {"role": "user", "content": "Hi! Do you have any pets?"},
]


def loom(*arguments, given=""):
    """What the program prints, as JSON."""
    call = [os.environ["LOOM"], *arguments, "--threads", "1", "--format", "json"]
    return json.loads(subprocess.run(call, input=given, text=True, check=True, stdout=subprocess.PIPE).stdout)


def post(path, body):
    headers = {"Content-Type": "application/json", "Authorization": f"Bearer {KEY}"}
    request = urllib.request.Request(URL.removesuffix("/v1") + path, json.dumps(body).encode(), headers)
    return json.load(urllib.request.urlopen(request))


def metric(name):
    headers = {"Authorization": f"Bearer {KEY}"}
    page = urllib.request.urlopen(urllib.request.Request(URL.removesuffix("/v1") + "/metrics", headers=headers))
    return next(float(line.split()[-1]) for line in page.read().decode().splitlines() if line.startswith(f"{name} "))


def begin(package):
    client = f"{package} {importlib.metadata.version(package)}"
    if RECORDER:
        RECORDER.client = client
    print(client)


def told(what, detail=""):
    print(f"  {what:<52}{detail}".rstrip())


def refused(kind, why, call):
    try:
        call()
    except kind as error:
        assert why in str(error), error
        told(f"{kind.__name__}, status {error.status_code}", error.body["message"] if error.body else "")
    else:
        raise AssertionError(f"{kind.__name__} expected")


def with_openai():
    begin("openai")
    client = openai.OpenAI(base_url=CLIENT_URL, api_key=KEY, max_retries=0)
    assert [model.id for model in client.models.list()] == ["bundled"]
    assert client.models.retrieve("bundled").owned_by == "loom"

    chat = client.chat.completions.create(
        model="bundled", messages=HELLO, seed=5, max_tokens=30, logprobs=True, top_logprobs=2,
        extra_body={"loom": {"readings": True}},
    )
    choice = chat.choices[0]
    told("chat", repr(choice.message.content))
    assert "".join(token.token for token in choice.logprobs.content) == choice.message.content
    readings = choice.model_extra["loom"]["tokens"]
    assert [token.logprob for token in choice.logprobs.content] == [reading["logprob"] for reading in readings]
    told("its first token", f"entropy {readings[0]['entropy']:.3f}, rank {readings[0]['rank']}")

    stream = client.chat.completions.create(
        model="bundled", messages=HELLO, seed=5, max_tokens=30, stream=True, stream_options={"include_usage": True},
        logprobs=True,
    )
    pieces, logprobs, usage = [], [], None
    for chunk in stream:
        usage = chunk.usage or usage
        for part in chunk.choices:
            pieces.append(part.delta.content or "")
            logprobs += [token.logprob for token in (part.logprobs.content if part.logprobs else [])]
    assert "".join(pieces) == choice.message.content
    assert logprobs == [token.logprob for token in choice.logprobs.content]
    assert usage.completion_tokens == chat.usage.completion_tokens
    cached = usage.prompt_tokens_details.cached_tokens
    assert cached == usage.prompt_tokens - 1
    told("chat, streamed: the same", f"{usage.prompt_tokens} tokens in, {cached} of them read before")

    (WORK / "hello.json").write_text(json.dumps(HELLO))
    greedy = client.chat.completions.create(model="bundled", messages=HELLO, temperature=0, logprobs=True)
    beside = loom("generate", "--chat", str(WORK / "hello.json"), "--temperature", "0")
    assert greedy.choices[0].message.content == beside["text"]
    assert [t.logprob for t in greedy.choices[0].logprobs.content] == [t["logprob"] for t in beside["tokens"]]
    told("greedy: as `loom generate` says, bit for bit", repr(beside["text"]))

    drawn = client.chat.completions.create(model="bundled", messages=HELLO, n=3, seed=1, temperature=1, max_tokens=12)
    assert len({choice.message.content for choice in drawn.choices}) > 1
    told("n = 3", repr([choice.message.content for choice in drawn.choices]))

    plain = client.completions.create(model="bundled", prompt=["Once", "I am"], max_tokens=6, echo=True, logprobs=2, seed=2)
    assert plain.choices[0].text.startswith("Once") and plain.choices[0].logprobs.token_logprobs[0] is None
    streamed = client.completions.create(
        model="bundled", prompt=["Once", "I am"], max_tokens=6, echo=True, logprobs=2, seed=2, stream=True
    )
    texts = ["", ""]
    for chunk in streamed:
        texts[chunk.choices[0].index] += chunk.choices[0].text
    assert texts == [choice.text for choice in plain.choices]
    told("completions, a batch with echo", repr(texts))
    weak = client.completions.create(
        model="bundled", prompt="I have two dogs", max_tokens=0, echo=True, logprobs=0,
        extra_body={"loom": {"delta": {"g_delta": 0.6, "layers": [0, 1]}}},
    )
    told("log-likelihood of a text under gains on Δ", f"{sum(weak.choices[0].logprobs.token_logprobs[1:]):.4f}")

    refused(openai.APIStatusError, "no embedder", lambda: client.embeddings.create(model="e", input="x"))
    refused(openai.NotFoundError, "no model", lambda: client.completions.create(model="gpt-4", prompt="x"))
    tools = [{"type": "function", "function": {"name": "f"}}]
    chat_with = lambda **more: client.chat.completions.create(model="bundled", messages=HELLO, **more)
    refused(openai.BadRequestError, "`tools`", lambda: chat_with(tools=tools))
    picture = [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:,"}}]}]
    refused(openai.BadRequestError, "image_url", lambda: client.chat.completions.create(model="bundled", messages=picture))
    refused(openai.BadRequestError, "temperature", lambda: chat_with(temperature=-1))
    stranger = openai.OpenAI(base_url=CLIENT_URL, api_key="wrong", max_retries=0)
    refused(openai.AuthenticationError, "API key", lambda: stranger.models.list())

    with client.completions.create(
        model="bundled", prompt="x", max_tokens=500_000, temperature=2, stream=True, extra_body={"top_p": 1}
    ) as endless:
        next(iter(endless))
        assert metric("loom_sequences_active") == 1
    for _ in range(200):
        if metric("loom_sequences_active") == 0:
            break
        time.sleep(0.05)
    assert metric("loom_sequences_active") == 0
    told("a stream left in the middle: its sequence is gone")


CASES = [
    ("My dog is", " very good."),
    ("I have two dogs and", " a cat."),
    ("I have two dogs and", " electrons."),
    ("Do you have any pets? Yes, I have", " a dog"),
    ("What do you do for a living? I am a", " teacher."),
    ("Hi! How are you", "?"),
    ("I like to go hiking in the", " mountains with my family on the weekends"),
]


def with_lm_eval():
    import datasets
    import lm_eval
    from lm_eval.tasks import TaskManager

    begin("lm_eval")
    os.environ["OPENAI_API_KEY"] = KEY
    datasets.disable_progress_bars()
    tasks = WORK / "tasks"
    tasks.mkdir()
    rows = [{"context": context, "rest": rest} for context, rest in CASES]
    (WORK / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    common = (
        f"dataset_path: json\ndataset_kwargs: {{data_files: {{test: {WORK}/rows.jsonl}}}}\ntest_split: test\n"
        "doc_to_text: '{{context}}'\ntarget_delimiter: ''\ndoc_to_target: '{{rest}}'\n"
    )
    (tasks / "score.yaml").write_text(
        f"task: score\noutput_type: loglikelihood\n{common}"
        "metric_list: [{metric: perplexity, aggregation: perplexity, higher_is_better: false}, {metric: acc, aggregation: mean, higher_is_better: true}]\n"
    )
    (tasks / "write.yaml").write_text(
        f"task: write\noutput_type: generate_until\n{common}"
        "generation_kwargs: {until: ['.'], max_gen_toks: 12}\nmetric_list: [{metric: exact_match, aggregation: mean, higher_is_better: true}]\n"
    )
    results = lm_eval.simple_evaluate(
        model="local-completions",
        model_args=f"model=bundled,base_url={CLIENT_URL}/completions,tokenizer_backend=remote,"
        f"auth_token={KEY},num_concurrent=3,max_length=512",
        tasks=["score", "write"],
        task_manager=TaskManager(include_path=str(tasks), include_defaults=False),
        batch_size=3,
        log_samples=True,
        bootstrap_iters=0,
    )
    encode = lambda text: post("/tokenize", {"prompt": text})["tokens"]
    for sample in results["samples"]["score"]:
        context, rest = sample["doc"]["context"], sample["doc"]["rest"]
        likelihood, greedy = sample["filtered_resps"][0]
        before, whole = encode(context), encode(context + rest)
        ids = {"prompt": {"ids": before}, "tokens": [{"id": id} for id in whole[len(before):]]}
        totals = loom("logprobs", "--ids", given=json.dumps(ids))["totals"]
        # Exactly: not a bit may differ.
        assert likelihood == totals["logprob"], (context, likelihood, totals)
        assert greedy == (totals["greedy"] == totals["scored"]), (context, greedy, totals)
        told(f"{context!r} {rest!r}"[:51], f"{likelihood:.12f}{' greedy' if greedy else ''} = loom logprobs")
    for sample in results["samples"]["write"]:
        context, text = sample["doc"]["context"], sample["filtered_resps"][0]
        beside = loom("generate", context, "--temperature", "0", "--max-tokens", "12", "--stop", ".", "--stop", "<|end|>")
        assert text == beside["text"], (context, text, beside["text"])
    told("greedy continuations = loom generate", repr(text))
    score = results["results"]["score"]
    told("perplexity, accuracy", f"{score['perplexity,none']:.6f}, {score['acc,none']:.4f}")


with_openai()
with_lm_eval()
if RECORDER:
    RECORDER.write(pathlib.Path(sys.argv[3]))
