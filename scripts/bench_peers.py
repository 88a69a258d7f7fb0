"""The table of scripts/bench-peers.sh: makes the models, runs each engine in a process of its own, prints Markdown."""

import argparse
import json
import struct
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parent.parent
MODELS = ROOT / "target/bench-models"
DTYPES = ["f32", "bf16", "q8_0", "q4_k"]
THREADS = [1, 2]
BATCHES = [1, 4, 16]
PREFILL, DECODED, REPEATS = 1024, 16, 3

MAMBA = dict(model_type="mamba", vocab_size=50280, hidden_size=768, num_hidden_layers=24, state_size=16, conv_kernel=4,
             expand=2, time_step_rank=48, tie_word_embeddings=True, use_bias=False, use_conv_bias=True)
QWEN = dict(model_type="qwen2", vocab_size=151936, hidden_size=896, num_hidden_layers=24, intermediate_size=4864,
            num_attention_heads=14, num_key_value_heads=2, max_position_embeddings=32768, rope_theta=1e6,
            rms_norm_eps=1e-6, tie_word_embeddings=True, hidden_act="silu")
TINY = {"mamba": dict(vocab_size=512, hidden_size=256, num_hidden_layers=2, time_step_rank=16),
        "qwen": dict(vocab_size=512, hidden_size=256, num_hidden_layers=2, intermediate_size=512, num_attention_heads=4)}


def tensors(kind: str, c: dict) -> dict[str, tuple]:
    """Name → (dims, GGUF name), Hugging Face's names first."""
    d, v = c["hidden_size"], c["vocab_size"]
    if kind == "mamba":
        inner, state, rank = c["expand"] * d, c["state_size"], c["time_step_rank"]
        table = {"backbone.embeddings.weight": ((v, d), "token_embd.weight"), "backbone.norm_f.weight": ((d,), "output_norm.weight")}
        layer = {
            "norm.weight": ((d,), "attn_norm.weight"), "mixer.in_proj.weight": ((2 * inner, d), "ssm_in.weight"),
            "mixer.conv1d.weight": ((inner, 1, c["conv_kernel"]), "ssm_conv1d.weight"), "mixer.conv1d.bias": ((inner,), "ssm_conv1d.bias"),
            "mixer.x_proj.weight": ((rank + 2 * state, inner), "ssm_x.weight"), "mixer.dt_proj.weight": ((inner, rank), "ssm_dt.weight"),
            "mixer.dt_proj.bias": ((inner,), "ssm_dt.bias"), "mixer.A_log": ((inner, state), "ssm_a"), "mixer.D": ((inner,), "ssm_d"),
            "mixer.out_proj.weight": ((d, inner), "ssm_out.weight"),
        }
        prefix = "backbone.layers"
    else:
        key = d // c["num_attention_heads"] * c["num_key_value_heads"]
        ff = c["intermediate_size"]
        table = {"model.embed_tokens.weight": ((v, d), "token_embd.weight"), "model.norm.weight": ((d,), "output_norm.weight")}
        layer = {"input_layernorm.weight": ((d,), "attn_norm.weight"), "post_attention_layernorm.weight": ((d,), "ffn_norm.weight"),
                 "self_attn.o_proj.weight": ((d, d), "attn_output.weight"), "mlp.gate_proj.weight": ((ff, d), "ffn_gate.weight"),
                 "mlp.up_proj.weight": ((ff, d), "ffn_up.weight"), "mlp.down_proj.weight": ((d, ff), "ffn_down.weight")}
        for one, width in [("q", d), ("k", key), ("v", key)]:
            layer[f"self_attn.{one}_proj.weight"] = ((width, d), f"attn_{one}.weight")
            layer[f"self_attn.{one}_proj.bias"] = ((width,), f"attn_{one}.bias")
        prefix = "model.layers"
    for at in range(c["num_hidden_layers"]):
        table |= {f"{prefix}.{at}.{name}": (dims, f"blk.{at}.{theirs}") for name, (dims, theirs) in layer.items()}
    return table


def weights(kind: str, c: dict):
    """Random weights of an ordinary size, in f32."""
    random = np.random.default_rng(1)
    for name, (dims, theirs) in tensors(kind, c).items():
        if name.endswith("A_log"):
            x = np.tile(np.log(np.arange(1, dims[1] + 1, dtype=np.float32)), (dims[0], 1))
        elif "norm" in name or name.endswith(".D"):
            x = np.ones(dims, np.float32)
        elif name.endswith("dt_proj.bias"):
            x = np.full(dims, -4.0, np.float32)
        else:
            x = random.standard_normal(dims, np.float32) * np.float32(0.02 if len(dims) > 1 else 0.01)
        yield name, theirs, x


def write_folder(folder: Path, kind: str, c: dict) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    header, offset = {}, 0
    for name, (dims, _) in tensors(kind, c).items():
        size = 4 * int(np.prod(dims))
        header[name] = {"dtype": "F32", "shape": list(dims), "data_offsets": [offset, offset + size]}
        offset += size
    text = json.dumps(header).encode()
    with (folder / "model.safetensors").open("wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for _, _, x in weights(kind, c):
            file.write(x.tobytes())
    architecture = "MambaForCausalLM" if kind == "mamba" else "Qwen2ForCausalLM"
    (folder / "config.json").write_text(json.dumps({"architectures": [architecture], "eos_token_id": 0} | c))
    vocabulary = {f"w{i}": i for i in range(c["vocab_size"])}
    model = {"type": "WordLevel", "vocab": vocabulary, "unk_token": "w0"}
    tokenizer = {"version": "1.0", "truncation": None, "padding": None, "added_tokens": [], "normalizer": None,
                 "pre_tokenizer": {"type": "WhitespaceSplit"}, "post_processor": None, "decoder": None, "model": model}
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))


def write_gguf(path: Path, kind: str, c: dict, dtype: str) -> None:
    from gguf import GGMLQuantizationType as Type
    from gguf import GGUFWriter, TokenType
    from gguf.quants import quantize

    writer = GGUFWriter(path, c["model_type"])
    writer.add_block_count(c["num_hidden_layers"])
    writer.add_embedding_length(c["hidden_size"])
    writer.add_context_length(c.get("max_position_embeddings", 1 << 20))
    writer.add_layer_norm_rms_eps(c.get("rms_norm_eps", 1e-5))
    if kind == "mamba":
        writer.add_feed_forward_length(0)
        writer.add_head_count(0)
        writer.add_ssm_conv_kernel(c["conv_kernel"])
        writer.add_ssm_inner_size(c["expand"] * c["hidden_size"])
        writer.add_ssm_state_size(c["state_size"])
        writer.add_ssm_time_step_rank(c["time_step_rank"])
    else:
        writer.add_feed_forward_length(c["intermediate_size"])
        writer.add_head_count(c["num_attention_heads"])
        writer.add_head_count_kv(c["num_key_value_heads"])
        writer.add_rope_freq_base(c["rope_theta"])
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list(["<end>", "w", "3", "w3"] + [f"w{i}" for i in range(4, c["vocab_size"])])
    writer.add_token_types([TokenType.CONTROL] + [TokenType.NORMAL] * (c["vocab_size"] - 1))
    writer.add_token_merges(["w 3"])
    writer.add_bos_token_id(0)
    writer.add_eos_token_id(0)
    kept = ("norm.weight", ".bias", "ssm_conv1d.weight", "ssm_x.weight", "ssm_dt.weight", "ssm_a", "ssm_d")
    kind_of = {"f32": Type.F32, "bf16": Type.BF16, "q8_0": Type.Q8_0}[dtype]
    for _, name, x in weights(kind, c):
        x = -np.exp(x) if name.endswith("ssm_a") else x.squeeze(1) if "conv1d.weight" in name else x
        if dtype == "f32" or name.endswith(kept):
            writer.add_tensor(name, np.ascontiguousarray(x))
        else:
            writer.add_tensor(name, quantize(x, kind_of), raw_dtype=kind_of)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def make(kind: str, tiny: bool) -> tuple[Path, dict[str, Path]]:
    c = dict(MAMBA if kind == "mamba" else QWEN) | (TINY[kind] if tiny else {})
    folder = MODELS / f"{kind}{'-tiny' if tiny else ''}"
    files = {dtype: folder / f"{dtype}.gguf" for dtype in DTYPES}
    if not (folder / "tokenizer.json").exists():
        write_folder(folder, kind, c)
    for dtype, path in files.items():
        if path.exists():
            continue
        if dtype == "q4_k":
            import llama_cpp

            quiet = llama_cpp.llama_log_callback(lambda *_: None)
            llama_cpp.llama_log_set(quiet, None)
            settings = llama_cpp.llama_model_quantize_default_params()
            settings.ftype = llama_cpp.LLAMA_FTYPE_MOSTLY_Q4_K_M
            failed = llama_cpp.llama_model_quantize(str(files["f32"]).encode(), str(path).encode(), settings)
            assert not failed, "llama.cpp could not quantise"
        else:
            write_gguf(path, kind, c, dtype)
    return folder, files


def best(work) -> float:
    times = []
    for _ in range(REPEATS):
        begun = time.perf_counter()
        work()
        times.append(time.perf_counter() - begun)
    return min(times)


def llama(path: str, threads: int) -> None:
    """llama.cpp through its C interface: one sequence of PREFILL tokens, then steps of N sequences."""
    import llama_cpp as L

    quiet = L.llama_log_callback(lambda *_: None)
    L.llama_log_set(quiet, None)
    settings = L.llama_model_default_params()
    settings.n_gpu_layers = 0
    model = L.llama_model_load_from_file(path.encode(), settings)
    assert model, f"llama.cpp cannot read {path}"
    context = L.llama_context_default_params()
    context.n_ctx, context.n_batch, context.n_ubatch, context.n_seq_max = 16 * 256, PREFILL, 256, max(BATCHES)
    context.n_threads = context.n_threads_batch = threads
    context.kv_unified = True  # one cache for all sequences: the long prompt fits as well as the sixteen short ones
    handle = L.llama_init_from_model(model, context)
    memory = L.llama_get_memory(handle)
    batch = L.llama_batch_init(PREFILL, 0, 1)
    vocabulary = L.llama_vocab_n_tokens(L.llama_model_get_vocab(model))

    def decode(rows: list[tuple[int, int]], logits_of_all: bool) -> None:
        batch.n_tokens = len(rows)
        for at, (sequence, position) in enumerate(rows):
            batch.token[at] = (at * 7919 + position * 31) % vocabulary
            batch.pos[at], batch.n_seq_id[at], batch.seq_id[at][0] = position, 1, sequence
            batch.logits[at] = logits_of_all or at == len(rows) - 1
        assert L.llama_decode(handle, batch) == 0

    def prefill() -> None:
        L.llama_memory_clear(memory, True)
        decode([(0, position) for position in range(PREFILL)], False)

    def steps(count: int) -> None:
        for position in range(DECODED):
            decode([(sequence, position) for sequence in range(count)], True)

    print(json.dumps({"what": "prefill", "batch": 1, "tokens_per_s": PREFILL / best(prefill)}))
    for count in BATCHES:
        def fresh() -> None:
            L.llama_memory_clear(memory, True)
            steps(count)
        print(json.dumps({"what": "decode", "batch": count, "tokens_per_s": count * DECODED / best(fresh)}))


def reference(folder: str, dtype: str, threads: int) -> None:
    """transformers, its plain CPU path."""
    import torch
    from transformers import AutoModelForCausalLM

    torch.set_num_threads(threads)
    kind = torch.float32 if dtype == "f32" else torch.bfloat16
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=kind).eval()
    ids = torch.randint(0, model.config.vocab_size, (1, PREFILL))
    with torch.no_grad():
        print(json.dumps({"what": "prefill", "batch": 1, "tokens_per_s": PREFILL / best(lambda: model(ids))}))
        for count in BATCHES:
            few = torch.randint(0, model.config.vocab_size, (count, 4))
            def write(tokens: int) -> float:
                options = dict(max_new_tokens=tokens, min_new_tokens=tokens, do_sample=False, pad_token_id=0)
                return best(lambda: model.generate(few, **options))
            seconds = write(1 + DECODED) - write(1)
            print(json.dumps({"what": "decode", "batch": count, "tokens_per_s": count * DECODED / seconds}))


def lines(*command) -> list[dict]:
    run = subprocess.run([str(part) for part in command], capture_output=True, text=True, cwd=ROOT)
    if run.returncode != 0:
        print(f"{command}: {run.stderr.strip()[-2000:]}", file=sys.stderr)
        return []
    return [json.loads(line) for line in run.stdout.splitlines() if line.startswith("{")]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("models", nargs="*", choices=["mamba", "qwen", []], default=[])
    parser.add_argument("--tiny", action="store_true")
    parser.add_argument("--dtype", nargs="+", choices=DTYPES, default=DTYPES)
    parser.add_argument("--loom", help="the bench's executable")
    parser.add_argument("--child", nargs=4, metavar=("ENGINE", "PATH", "DTYPE", "THREADS"))
    arguments = parser.parse_args()
    if arguments.child:
        engine, path, dtype, threads = arguments.child
        return llama(path, int(threads)) if engine == "llama" else reference(path, dtype, int(threads))
    loom = [arguments.loom]
    # Memory is read from huge pages, as weights are.
    for line in lines("env", "GLIBC_TUNABLES=glibc.malloc.hugetlb=1", *loom):
        if line["what"] == "read":
            print(f"read bandwidth, {line['threads']} threads: {line['gigabytes_per_s']:.1f} GB/s")
        else:
            print(f"copy of {line['bytes'] / 1e6:.2f} MB: {line['microseconds']:.0f} µs")
    for kind in arguments.models or ["mamba", "qwen"]:
        folder, files = make(kind, arguments.tiny)
        cell = {}
        for dtype, path in ((dtype, files[dtype]) for dtype in arguments.dtype):
            for line in lines(*loom, path):
                if line["what"] == "fork":
                    print(f"fork, {dtype}: {line['microseconds']:.2f} µs", file=sys.stderr)
                else:
                    cell["loom", dtype, line["threads"], line["what"], line["batch"]] = line["tokens_per_s"]
            for threads in THREADS:
                child = [sys.executable, __file__, "--child"]
                runs = {"llama.cpp": lines(*child, "llama", path, dtype, threads)}
                if dtype in ("f32", "bf16"):
                    runs["transformers"] = lines(*child, "transformers", folder, dtype, threads)
                for engine, found in runs.items():
                    for line in found:
                        cell[engine, dtype, threads, line["what"], line["batch"]] = line["tokens_per_s"]
        print(f"\n## {kind}, tokens a second\n")
        print("| dtype | threads | | loom | llama.cpp | ratio | transformers |\n|---|---:|---|---:|---:|---:|---:|")
        for dtype in arguments.dtype:
            for threads in THREADS:
                for what, batch in [("prefill", 1)] + [("decode", batch) for batch in BATCHES]:
                    at = (dtype, threads, what, batch)
                    ours, theirs, torch = (cell.get((engine, *at)) for engine in ("loom", "llama.cpp", "transformers"))
                    number = lambda x: "–" if x is None else f"{x:.1f}"
                    ratio = f"{ours / theirs:.2f}" if ours and theirs else "–"
                    name = "prefill 1,024" if what == "prefill" else f"decode × {batch}"
                    print(f"| {dtype} | {threads} | {name} | {number(ours)} | {number(theirs)} | {ratio} | {number(torch)} |")


main()
