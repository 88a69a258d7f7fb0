"""The table of scripts/gpu-bench.sh: makes models of published shapes, runs Loom and transformers on them, prints Markdown."""

import argparse
import json
import subprocess
import tempfile
import time
from pathlib import Path

BATCHES = [1, 8, 32, 128, 512]
PREFILL, DECODED, REPEATS = 2048, 32, 3
# The model that plays both sides of whole runs; rollouts and turns on the GPU, and turns of the one on the CPU.
PLAYED, ROLLOUTS, TURNS, TURNS_CPU = "mamba-1.4b", 128, 50, 4


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


def arithmetic() -> float:
    """Floating-point operations a second of a large bf16 product with f32 sums: what a long prompt is bound by."""
    import torch

    side = 8192
    left, right = (torch.randn(side, side, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    left @ right
    return 2 * side**3 / best(lambda: left @ right)


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


def played(benches: Path, folder: Path, device: str, rollouts: int, turns: int) -> float:
    """Tokens a second that whole runs write, persona and target together, from when the models are open."""
    with tempfile.TemporaryDirectory() as scratch:
        run = Path(scratch) / "run"
        model = f"local:{folder}"
        subprocess.run([benches / "loom", "run", benches / "persona.yaml", "--persona-model", model, "--target", model,
                        "--device", device, "--rollouts", str(rollouts), "--parallel", str(rollouts), "--turns", str(turns),
                        "--no-score", "--output", run], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True)
        seconds = time.time() - (run / "run.json").stat().st_mtime
        written = lambda said: len(said.get("ids") or []) if said else 0
        turns_of = [turn for file in run.glob("rollout_*.json") for turn in json.loads(file.read_text())["turns"]]
        return sum(written(turn["persona"]) + written(turn["interlocutor"]) for turn in turns_of) / seconds


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
    bandwidth, operations = float(copy.split()[3]) * 1e9, arithmetic()
    print(f"\nA copy moves {bandwidth / 1e9:,.0f} GB/s, a bf16 product of 8192 x 8192 does {operations / 1e12:,.0f} TFLOP/s. The bound of")
    print("decoding is the first, over weights and states; of a prompt the second, over two operations a weight and token.")
    print("\n| model | | N | loom, tokens/s | of the bound | transformers, tokens/s | ratio |")
    print("|---|---|---:|---:|---:|---:|---:|")
    for name in arguments.names or MODELS:
        config, folder = MODELS[name], arguments.models / name
        if not (folder / "tokenizer.json").exists():
            make(folder, config)
        loom, torch = ours(arguments.benches / "peers", folder), reference(folder)
        for what, batch in [("prefill", 1)] + [("decode", batch) for batch in BATCHES]:
            mine, theirs = loom.get((what, batch)), torch.get((what, batch))
            share = mine and (moved(config, folder, batch) * mine / batch / bandwidth if what == "decode"
                              else (folder / "model.safetensors").stat().st_size * mine / operations)
            number = lambda x: f"{x:,.0f}" if x else "–"
            ratio = f"{mine / theirs:.1f}" if mine and theirs else "–"
            print(f"| {name} | {what} | {batch} | {number(mine)} | {f'{share:.0%}' if share else '–'} | {number(theirs)} | {ratio} |",
                  flush=True)
    if PLAYED in (arguments.names or MODELS):
        folder = arguments.models / PLAYED
        many = played(arguments.benches, folder, "cuda:0", ROLLOUTS, TURNS)
        one = played(arguments.benches, folder, "cpu", 1, TURNS_CPU)
        print(f"\n`loom run`, {PLAYED} on both sides, tokens/s: {many:,.0f} for {ROLLOUTS} rollouts of {TURNS} turns at once, {one:,.0f} for one of")
        print(f"{TURNS_CPU} turns on the CPU: {many / one:,.0f} times as many.")


if __name__ == "__main__":
    main()
