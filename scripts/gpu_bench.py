"""The table of scripts/gpu-bench.sh: makes models of published shapes, runs Loom and transformers on them, prints Markdown."""

import argparse
import json
import subprocess
import time
from pathlib import Path

BATCHES = [1, 8, 32, 128, 512]
PREFILL, DECODED, REPEATS = 2048, 32, 3


def mamba(width: int, layers: int) -> dict:
    return dict(model_type="mamba", vocab_size=50280, hidden_size=width, num_hidden_layers=layers, state_size=16,
                conv_kernel=4, expand=2, tie_word_embeddings=True, use_bias=False, use_conv_bias=True)


def qwen(width: int, layers: int, feed: int, heads: int, keys: int, vocabulary: int, tied: bool) -> dict:
    return dict(model_type="qwen2", vocab_size=vocabulary, hidden_size=width, num_hidden_layers=layers, intermediate_size=feed,
                num_attention_heads=heads, num_key_value_heads=keys, max_position_embeddings=32768, rope_theta=1e6,
                rms_norm_eps=1e-6, tie_word_embeddings=tied, hidden_act="silu")


MODELS = {
    "mamba-130m": mamba(768, 24),
    "mamba-1.4b": mamba(2048, 48),
    "mamba-2.8b": mamba(2560, 64),
    "qwen2.5-0.5b": qwen(896, 24, 4864, 14, 2, 151936, True),
    "qwen2.5-7b": qwen(3584, 28, 18944, 28, 4, 152064, False),
}


def make(folder: Path, config: dict) -> None:
    """A model of this shape with transformers' own random weights, in bf16."""
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    torch.manual_seed(1)
    with torch.device("cuda"):
        model = AutoModelForCausalLM.from_config(AutoConfig.for_model(**config)).to(torch.bfloat16)
    model.save_pretrained(folder, max_shard_size="64GB")
    vocabulary = {f"w{i}": i for i in range(config["vocab_size"])}
    words = {"type": "WordLevel", "vocab": vocabulary, "unk_token": "w0"}
    tokenizer = {"version": "1.0", "truncation": None, "padding": None, "added_tokens": [], "normalizer": None,
                 "pre_tokenizer": {"type": "WhitespaceSplit"}, "post_processor": None, "decoder": None, "model": words}
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
    del model
    torch.cuda.empty_cache()


def best(work) -> float:
    import torch

    times = []
    for _ in range(REPEATS):
        torch.cuda.synchronize()
        begun = time.perf_counter()
        work()
        torch.cuda.synchronize()
        times.append(time.perf_counter() - begun)
    return min(times)


def reference(folder: Path) -> dict:
    """transformers on the same weights: (what, batch) → tokens a second; what does not fit is left out."""
    import torch
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.bfloat16, device_map="cuda").eval()
    ids = lambda *dims: torch.randint(0, model.config.vocab_size, dims, device="cuda")
    found = {}
    with torch.no_grad():
        prompt = ids(1, PREFILL)
        found["prefill", 1] = PREFILL / best(lambda: model.generate(prompt, max_new_tokens=1, do_sample=False, pad_token_id=0))
        for batch in BATCHES:
            few = ids(batch, 4)

            def write(tokens: int) -> float:
                options = dict(max_new_tokens=tokens, min_new_tokens=tokens, do_sample=False, pad_token_id=0)
                return best(lambda: model.generate(few, **options))

            try:
                found["decode", batch] = batch * DECODED / (write(1 + DECODED) - write(1))
            except torch.OutOfMemoryError:
                break
    del model
    torch.cuda.empty_cache()
    return found


def ours(peers: Path, folder: Path) -> dict:
    run = subprocess.run([peers, "--device", "cuda:0", folder], stdout=subprocess.PIPE, text=True, check=True)
    lines = [json.loads(line) for line in run.stdout.splitlines() if line.startswith("{")]
    return {(line["what"], line["batch"]): line["tokens_per_s"] for line in lines if "batch" in line}


def moved(config: dict, folder: Path, batch: int) -> int:
    """Bytes that a decode step cannot but move: the weights once, the states read and written."""
    weights = (folder / "model.safetensors").stat().st_size
    if config["model_type"] != "mamba":
        return weights
    inner = config["expand"] * config["hidden_size"]
    state = 4 * config["num_hidden_layers"] * inner * (config["state_size"] + config["conv_kernel"] - 1)
    return weights + 2 * batch * state


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--benches", type=Path, required=True)
    parser.add_argument("--models", type=Path, required=True)
    parser.add_argument("names", nargs="*", metavar="MODEL")
    arguments = parser.parse_args()
    unknown = set(arguments.names) - set(MODELS)
    if unknown:
        parser.error(f"no such model: {', '.join(sorted(unknown))}; there are {', '.join(MODELS)}")
    copy = subprocess.run([arguments.benches / "bench", "--copy"], stdout=subprocess.PIPE, text=True, check=True).stdout
    bandwidth = float(copy.split()[3]) * 1e9
    print("\n| model | | N | loom, tokens/s | of the bandwidth | transformers, tokens/s | ratio |")
    print("|---|---|---:|---:|---:|---:|---:|")
    for name in arguments.names or MODELS:
        config, folder = MODELS[name], arguments.models / name
        if not (folder / "tokenizer.json").exists():
            make(folder, config)
        loom, torch = ours(arguments.benches / "peers", folder), reference(folder)
        for what, batch in [("prefill", 1)] + [("decode", batch) for batch in BATCHES]:
            mine, theirs = loom.get((what, batch)), torch.get((what, batch))
            share = mine and what == "decode" and moved(config, folder, batch) * mine / batch / bandwidth
            number = lambda x: f"{x:,.0f}" if x else "–"
            ratio = f"{mine / theirs:.1f}" if mine and theirs else "–"
            print(f"| {name} | {what} | {batch} | {number(mine)} | {f'{share:.0%}' if share else '–'} | {number(theirs)} | {ratio} |",
                  flush=True)


main()
