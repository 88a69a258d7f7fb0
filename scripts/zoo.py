#!/usr/bin/env python3
"""The Python half of check-zoo.sh, `zoo.py LOOM FOLDER [NAMES…]`, and of check-real.sh, `zoo.py LOOM --real DIR…`.

Makes models of every family in FOLDER with `transformers` (the sizes of make-model-fixtures.py, random weights), gives them
a byte-level tokenizer trained on this repository's documentation, with BOS, added tokens and a chat template, serves each
with `loom serve`, and compares from text. With `--real`, the models are folders that exist, with their own tokenizers and
chat templates. Prints a table.

| Column | Compared with `transformers` |
|---|---|
| ids | ids of texts and of a rendered conversation, equal |
| logprobs | largest difference of a log-probability of a prompt's tokens |
| reply | largest difference of a log-probability of the reply's tokens; the reply is greedy, token for token |
| batch | prompts in one request, bit for bit as one by one |
| fork | a prompt that continues one already read, bit for bit as from the beginning |

A folder without a chat template is compared without a conversation; a template that refuses instructions, without them.
"""

import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
import urllib.request
from pathlib import Path

import torch
import transformers
from jinja2.exceptions import TemplateError
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedTokenizerFast

ROOT = Path(__file__).resolve().parent.parent
VOCABULARY, REPLY, TOLERANCE = 512, 12, 1e-4
# Published models have more layers than those of the zoo.
REAL_TOLERANCE = 1e-3
TEXTS = [
    "The persona answered slowly, as if it had been asked before.",
    "  two spaces, 1234 digits,\n\na blank line, naïve café — “quotes” 🙂",
    "<|user|>an added token inside a text<|end|>",
    "It rained.",
]
TALK = [
    {"role": "system", "content": "You keep bees."},
    {"role": "user", "content": "How was the harvest?"},
    {"role": "assistant", "content": " Good, for once."},
    {"role": "user", "content": "Why?"},
]
TEMPLATE = (
    "{{ bos_token }}{% for m in messages %}<|{{ m.role }}|>{{ m.content }}<|end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)


def fixtures():
    """make-model-fixtures.py as a module, without running it."""
    source = (ROOT / "scripts/make-model-fixtures.py").read_text().replace("\nmain()\n", "\n")
    spec = importlib.util.spec_from_loader("fixtures", loader=None, origin=str(ROOT / "scripts/make-model-fixtures.py"))
    module = importlib.util.module_from_spec(spec)
    module.__file__ = spec.origin
    exec(compile(source, spec.origin, "exec"), module.__dict__)
    return module


def tokenizer(folder: Path) -> PreTrainedTokenizerFast:
    special = ["<s>", "<|end|>", "<|system|>", "<|user|>", "<|assistant|>"]
    inner = Tokenizer(models.BPE())
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    inner.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY, special_tokens=[AddedToken(token, special=True) for token in special],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False,
    )
    inner.train([str(path) for path in sorted((ROOT / "docs").glob("*.md"))], trainer)
    inner.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", inner.token_to_id("<s>"))])
    fast = PreTrainedTokenizerFast(tokenizer_object=inner, bos_token="<s>", eos_token="<|end|>", chat_template=TEMPLATE)
    fast.save_pretrained(folder)
    return fast


def make(maker, folder: Path, kind, dims: dict, seed: int) -> None:
    torch.manual_seed(seed)
    config, model = kind
    ids = dict(bos_token_id=0, eos_token_id=1, pad_token_id=None)
    wanted = ids | dims | dict(vocab_size=VOCABULARY, attn_implementation="eager")
    # A real tokenizer makes longer prompts than the fixtures have.
    wanted["max_position_embeddings"] = max(dims.get("max_position_embeddings", 0), 512)
    if "num_heads" in dims or "state_size" in dims or config.model_type.endswith("mamba"):
        wanted.pop("max_position_embeddings")
    model = model(config(**wanted)).eval()
    maker.randomise(model)
    shutil.rmtree(folder, ignore_errors=True)
    model.save_pretrained(folder)
    tokenizer(folder)


class Server:
    """`loom serve` on a free port."""

    def __init__(self, loom: str, folder: Path):
        command = [loom, "serve", "--model", f"local:{folder}", "--name", "zoo", "--port", "0", "--dtype", "f32"]
        environment = os.environ | {"LOOM_API_KEY": "zoo"}
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment)
        said = []
        for line in self.process.stdout:
            said.append(line)
            if "http://" in line:
                self.url = re.match(r"http://[^/\s,]+", line[line.index("http://") :])[0]
                return
        raise SystemExit(f"loom serve ended: {''.join(said)}")

    def post(self, path: str, body: dict) -> dict:
        headers = {"Content-Type": "application/json", "Authorization": "Bearer zoo"}
        request = urllib.request.Request(self.url + path, json.dumps(body).encode(), headers)
        try:
            return json.load(urllib.request.urlopen(request))
        except urllib.error.HTTPError as error:
            raise SystemExit(f"{path}: {error.read().decode()}") from error

    def stop(self) -> None:
        self.process.terminate()
        self.process.wait()


def rows_of(model, ids: list[int]) -> torch.Tensor:
    with torch.no_grad():
        return torch.log_softmax(model(torch.tensor([ids])).logits[0].float(), dim=-1)


def read(server: Server, prompts: list[list[int]], tokens: int = REPLY) -> list[dict]:
    body = dict(model="zoo", prompt=prompts, max_tokens=tokens, temperature=0, logprobs=1, echo=True, seed=1)
    choices = server.post("/v1/completions", body | {"loom": {"readings": True}})["choices"]
    return [choice["loom"]["tokens"] for choice in sorted(choices, key=lambda choice: choice["index"])]


def conversation(known) -> list[dict]:
    """TALK as far as the chat template takes it; nothing without a template."""
    for talk in (TALK, TALK[1:]):
        try:
            known.apply_chat_template(talk, add_generation_prompt=True)
            return talk
        except (TemplateError, ValueError):
            continue
    return []


def check(loom: str, folder: Path, tokenizers=PreTrainedTokenizerFast) -> dict:
    reference = AutoModelForCausalLM.from_pretrained(folder, attn_implementation="eager", dtype=torch.float32).eval()
    known = tokenizers.from_pretrained(folder)
    ends = reference.generation_config.eos_token_id
    ends = ends if isinstance(ends, list) else [ends]
    talk = conversation(known)
    server = Server(loom, folder)
    try:
        found = {}
        texts = [known(text)["input_ids"] for text in TEXTS]
        ours = [server.post("/tokenize", {"prompt": text})["tokens"] for text in TEXTS]
        found["ids"] = ours == texts
        prompts = [ids for ids in texts if ids]
        if talk:
            chat = known.apply_chat_template(talk, add_generation_prompt=True, return_dict=True)["input_ids"]
            found["ids"] &= server.post("/tokenize", {"messages": talk})["tokens"] == chat
            prompts.insert(0, chat)
        alone = [read(server, [ids])[0] for ids in prompts]
        worst, worst_reply, equal = 0.0, 0.0, True
        for ids, got in zip(prompts, alone):
            rows, written = rows_of(reference, ids), list(ids)
            for at, token in enumerate(got[1 : len(ids)]):
                worst = max(worst, abs(token["logprob"] - float(rows[at][ids[at + 1]])))
            for token in got[len(ids) :]:
                row = rows_of(reference, written)[-1]
                likeliest = int(row.argmax())
                equal &= token["id"] == likeliest
                worst_reply = max(worst_reply, abs(token["logprob"] - float(row[likeliest])))
                written.append(likeliest)
            if len(got) == len(ids):
                equal &= int(rows[-1].argmax()) in ends
        found["logprobs"], found["reply"], found["greedy"] = worst, worst_reply, equal
        found["batch"] = read(server, prompts) == alone
        # Continues what is already read, then what no request has read.
        longer = [ids + texts[0][1:] for ids in prompts]
        forked = [read(server, [ids])[0] for ids in longer]
        fresh = Server(loom, folder)
        try:
            found["fork"] = forked == [read(fresh, [ids])[0] for ids in longer]
        finally:
            fresh.stop()
        return found
    finally:
        server.stop()


def head(what: str) -> None:
    print(f"transformers {transformers.__version__}, torch {torch.__version__}, f32{what}\n")
    print("| Model | ids | logprobs | reply | batch | fork |\n|---|---|---:|---:|---|---|")


def row(name: str, found: dict, tolerance: float) -> bool:
    """Prints the model's row. Whether it is as transformers."""
    say = lambda equal: "equal" if equal else "**differ**"
    reply = f"{found['reply']:.1e}" + ("" if found["greedy"] else " **other tokens**")
    print(f"| {name} | {say(found['ids'])} | {found['logprobs']:.1e} | {reply} | {say(found['batch'])} | {say(found['fork'])} |", flush=True)
    good = all(found[key] for key in ("ids", "greedy", "batch", "fork"))
    return good and found["logprobs"] < tolerance and found["reply"] < tolerance


def end(bad: list[str]) -> None:
    if bad:
        raise SystemExit(f"\nnot as transformers: {', '.join(bad)}")


def real(loom: str, folders: list[Path]) -> None:
    head("")
    end([str(path) for path in folders if not row(path.name, check(loom, path, AutoTokenizer), REAL_TOLERANCE)])


def main() -> None:
    loom = sys.argv[1]
    if sys.argv[2] == "--real":
        return real(loom, [Path(path).resolve() for path in sys.argv[3:]])
    folder, wanted = Path(sys.argv[2]), sys.argv[3:]
    maker = fixtures()
    head(f", a vocabulary of {VOCABULARY}")
    bad = []
    every = [(name, *of) for name, of in maker.SMALL.items()] + [(f"{name} (width)", *of) for name, of in maker.WIDE.items()]
    for number, (name, kind, _, dims) in enumerate(every):
        if wanted and name.split()[0] not in wanted:
            continue
        path = folder / name.split()[0]
        make(maker, path, kind, dims, number)
        good = row(name, check(loom, path), TOLERANCE)
        shutil.rmtree(path)
        if not good:
            bad.append(name)
    end(bad)


main()
