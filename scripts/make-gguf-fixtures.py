#!/usr/bin/env python3
"""Makes tests/data/gguf with llama.cpp's `gguf` package, which writes the files and dequantises the reference values.

    python3 -m venv target/gguf && target/gguf/bin/pip install gguf numpy
    target/gguf/bin/python scripts/make-gguf-fixtures.py

`plain.gguf` is tests/data/mamba/plain as llama.cpp's converter lays it out, with a byte-level tokenizer of 40 tokens.
`types.gguf` holds a matrix in every supported type and its values in f32 (`NAME.f32`); scales and all other bits are
random. `pieces.gguf` is the header of a Llama with a SentencePiece vocabulary. The others are models of
tests/data/models, as llama.cpp's converter lays them out; names of tensors are those of its `TensorNameMap`.
"""

import json
import struct
from pathlib import Path

import numpy as np
import gguf
from gguf import GGMLQuantizationType as Type
from gguf import MODEL_ARCH as Arch
from gguf import GGUFWriter, TokenType
from gguf.quants import dequantize

ROOT = Path(__file__).resolve().parent.parent
OUT = ROOT / "tests/data/gguf"
BYTES = 40


def safetensors(path: Path) -> dict[str, np.ndarray]:
    data = path.read_bytes()
    size = struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8 : 8 + size])
    return {
        name: np.frombuffer(data, "<f4", (b - a) // 4, 8 + size + a).reshape(info["shape"])
        for name, info in header.items()
        if name != "__metadata__"
        for a, b in [info["data_offsets"]]
    }


def byte_level(writer: GGUFWriter, pre: str, end: int | None = 0) -> None:
    """The letters a to z, some merges, two control tokens."""
    tokens = ["<|end|>", "<|user|>"] + [chr(c) for c in range(ord("a"), ord("z") + 1)]
    merges = ["Ġ t", "h e", "Ġt he", "i n", "in g", "Ġ a", "e r"]
    tokens += ["Ġ"] + [merge.replace(" ", "") for merge in merges] + ["'", "1", "2", "!"]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(pre)
    writer.add_token_list(tokens)
    writer.add_token_types([TokenType.CONTROL] * 2 + [TokenType.NORMAL] * (len(tokens) - 2))
    writer.add_token_merges(merges)
    writer.add_bos_token_id(0)
    if end is not None:
        writer.add_eos_token_id(end)
    assert len(tokens) == BYTES


def finish(writer: GGUFWriter) -> None:
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def plain() -> None:
    source = ROOT / "tests/data/mamba/plain"
    config = json.loads((source / "config.json").read_text())
    writer = GGUFWriter(OUT / "plain.gguf", "mamba")
    writer.add_context_length(1 << 20)
    writer.add_embedding_length(config["hidden_size"])
    writer.add_feed_forward_length(0)
    writer.add_head_count(0)
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_ssm_conv_kernel(config["conv_kernel"])
    writer.add_ssm_inner_size(config["intermediate_size"])
    writer.add_ssm_state_size(config["state_size"])
    writer.add_ssm_time_step_rank(config["time_step_rank"])
    writer.add_layer_norm_rms_eps(config["layer_norm_epsilon"])
    writer.add_file_type(0)
    byte_level(writer, "gpt-2")
    writer.add_chat_template("{% for m in messages %}<|user|>{{ m.content }}{% endfor %}")
    names = {
        "mixer.in_proj": "ssm_in", "mixer.conv1d": "ssm_conv1d", "mixer.x_proj": "ssm_x", "mixer.dt_proj": "ssm_dt",
        "mixer.A_log": "ssm_a", "mixer.D": "ssm_d", "mixer.out_proj": "ssm_out", "norm": "attn_norm",
    }
    for name, tensor in safetensors(source / "model.safetensors").items():
        if name == "backbone.embeddings.weight":
            name = "token_embd.weight"
        elif name == "backbone.norm_f.weight":
            name = "output_norm.weight"
        else:
            layer, rest = name.removeprefix("backbone.layers.").split(".", 1)
            part = next(part for part in names if rest.startswith(part))
            name = f"blk.{layer}.{names[part]}{rest.removeprefix(part)}"
        if "A_log" in name or name.endswith("ssm_a"):
            tensor = -np.exp(tensor)
        if "conv1d.weight" in name:
            tensor = tensor.squeeze(1)
        writer.add_tensor(name, np.ascontiguousarray(tensor))
    finish(writer)


def types() -> None:
    random = np.random.default_rng(7)
    writer = GGUFWriter(OUT / "types.gguf", "mamba")
    byte_level(writer, "smollm")

    def half(rows: int, columns: int) -> np.ndarray:
        return (random.normal(size=(rows, columns)) / 32).astype(np.float16).view(np.uint8)

    def bits(rows: int, columns: int) -> np.ndarray:
        return random.integers(0, 256, (rows, columns), dtype=np.uint8)

    rows, width = 3, 512
    blocks = {
        Type.Q8_0: lambda n: (n * width // 32, lambda k: [half(k, 1), bits(k, 32)]),
        Type.Q4_0: lambda n: (n * width // 32, lambda k: [half(k, 1), bits(k, 16)]),
        Type.Q4_1: lambda n: (n * width // 32, lambda k: [half(k, 2), bits(k, 16)]),
        Type.Q5_0: lambda n: (n * width // 32, lambda k: [half(k, 1), bits(k, 20)]),
        Type.Q5_1: lambda n: (n * width // 32, lambda k: [half(k, 2), bits(k, 20)]),
        Type.Q2_K: lambda n: (n * width // 256, lambda k: [bits(k, 80), half(k, 2)]),
        Type.Q3_K: lambda n: (n * width // 256, lambda k: [bits(k, 108), half(k, 1)]),
        Type.Q4_K: lambda n: (n * width // 256, lambda k: [half(k, 2), bits(k, 140)]),
        Type.Q5_K: lambda n: (n * width // 256, lambda k: [half(k, 2), bits(k, 172)]),
        Type.Q6_K: lambda n: (n * width // 256, lambda k: [bits(k, 208), half(k, 1)]),
    }
    for kind, make in blocks.items():
        count, parts = make(rows)
        raw = np.concatenate(parts(count), axis=1).reshape(rows, -1)
        writer.add_tensor(kind.name, raw, raw_dtype=kind)
        writer.add_tensor(f"{kind.name}.f32", dequantize(raw, kind).astype(np.float32))
    exact = random.normal(size=(rows, width)).astype(np.float32)
    writer.add_tensor("F16", exact.astype(np.float16))
    writer.add_tensor("F16.f32", exact.astype(np.float16).astype(np.float32))
    narrow = exact.view(np.uint32) & np.uint32(0xFFFF0000)
    writer.add_tensor("BF16", (narrow >> 16).astype("<u2").view(np.uint8), raw_dtype=Type.BF16)
    writer.add_tensor("BF16.f32", narrow.view(np.float32))
    finish(writer)


def pieces() -> None:
    words = {"▁": -3, "t": -4, "h": -5, "e": -6, "▁t": -10, "he": -11, "▁the": -12, "▁th": -13, "▁he": -14, "s": -15, "es": -16}
    tokens = ["<unk>", "<s>", "</s>"] + [f"<0x{byte:02X}>" for byte in range(256)] + list(words)
    writer = GGUFWriter(OUT / "pieces.gguf", "llama")
    writer.add_tokenizer_model("llama")
    writer.add_token_list(tokens)
    writer.add_token_scores([0.0] * 259 + [float(score) for score in words.values()])
    kinds = [TokenType.UNKNOWN, TokenType.CONTROL, TokenType.CONTROL] + [TokenType.BYTE] * 256
    writer.add_token_types(kinds + [TokenType.NORMAL] * len(words))
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_unk_token_id(0)
    writer.add_context_length(64)
    writer.add_embedding_length(32)
    writer.add_feed_forward_length(64)
    writer.add_block_count(1)
    writer.add_head_count(2)
    writer.add_head_count_kv(1)
    writer.add_layer_norm_rms_eps(1e-5)
    random = np.random.default_rng(8)
    table = {
        "token_embd.weight": (len(tokens), 32), "output_norm.weight": (32,), "blk.0.attn_norm.weight": (32,),
        "blk.0.ffn_norm.weight": (32,), "blk.0.attn_q.weight": (32, 32), "blk.0.attn_k.weight": (16, 32),
        "blk.0.attn_v.weight": (16, 32), "blk.0.attn_output.weight": (32, 32), "blk.0.ffn_gate.weight": (64, 32),
        "blk.0.ffn_up.weight": (64, 32), "blk.0.ffn_down.weight": (32, 64),
    }
    for name, dims in table.items():
        writer.add_tensor(name, random.normal(size=dims).astype(np.float32))
    finish(writer)


ARCHITECTURES = {
    "gemma2": Arch.GEMMA2, "gemma3": Arch.GEMMA3, "olmo2": Arch.OLMO2, "phi3": Arch.PHI3, "granite": Arch.GRANITE,
    "qwen3-yarn": Arch.QWEN3, "qwen3-moe": Arch.QWEN3MOE, "granite-hybrid": Arch.GRANITE_HYBRID,
    "granite-hybrid-moe": Arch.GRANITE_HYBRID, "bamba": Arch.GRANITE_HYBRID, "falcon-h1": Arch.FALCON_H1,
    "smollm3": Arch.SMOLLM3, "mamba2": Arch.MAMBA2, "falcon-mamba": Arch.MAMBA,
    "nemotron-h": Arch.NEMOTRON_H,
}
# Their queries and keys are interleaved.
INTERLEAVED = (Arch.GRANITE, Arch.GRANITE_HYBRID, Arch.SMOLLM3)


def interleaved(rows: np.ndarray, heads: int) -> np.ndarray:
    """The rows of rotary heads in llama.cpp's order."""
    halves = rows.reshape(heads, 2, rows.shape[0] // heads // 2, *rows.shape[1:])
    return halves.swapaxes(1, 2).reshape(rows.shape)


def recurrent_settings(writer: GGUFWriter, arch: Arch, config: dict) -> None:
    writer.add_context_length(1 << 20)
    writer.add_embedding_length(config["hidden_size"])
    writer.add_feed_forward_length(0)
    writer.add_head_count(0)
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_layer_norm_rms_eps(config["layer_norm_epsilon"])
    writer.add_file_type(0)
    writer.add_ssm_conv_kernel(config["conv_kernel"])
    writer.add_ssm_state_size(config["state_size"])
    if arch == Arch.MAMBA2:
        writer.add_ssm_inner_size(config["num_heads"] * config["head_dim"])
        writer.add_ssm_time_step_rank(config["num_heads"])
        writer.add_ssm_group_count(config["n_groups"])
    else:
        writer.add_ssm_inner_size(config["intermediate_size"])
        writer.add_ssm_time_step_rank(config["time_step_rank"])
        writer.add_ssm_dt_b_c_rms(True)


def nemotron_settings(writer: GGUFWriter, config: dict) -> None:
    kinds = config["layers_block_type"]
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_feed_forward_length([config["intermediate_size"] if kind == "mlp" else 0 for kind in kinds])
    writer.add_block_count(len(kinds))
    writer.add_head_count(config["num_attention_heads"])
    writer.add_head_count_kv([config["num_key_value_heads"] if kind == "full_attention" else 0 for kind in kinds])
    writer.add_key_length(config["head_dim"])
    writer.add_value_length(config["head_dim"])
    writer.add_layer_norm_rms_eps(config["layer_norm_epsilon"])
    writer.add_file_type(0)
    writer.add_ssm_conv_kernel(config["conv_kernel"])
    writer.add_ssm_state_size(config["ssm_state_size"])
    writer.add_ssm_group_count(config["n_groups"])
    writer.add_ssm_inner_size(config["mamba_num_heads"] * config["mamba_head_dim"])
    writer.add_ssm_time_step_rank(config["mamba_num_heads"])


def settings(writer: GGUFWriter, arch: Arch, config: dict) -> None:
    if arch == Arch.NEMOTRON_H:
        return nemotron_settings(writer, config)
    if arch in (Arch.MAMBA, Arch.MAMBA2):
        return recurrent_settings(writer, arch, config)
    rope = config["rope_parameters"]
    whole = rope.get("full_attention", rope)
    heads, layers = config["num_attention_heads"], config["num_hidden_layers"]
    head_dim = config.get("head_dim") or config["hidden_size"] // heads
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_block_count(layers)
    writer.add_head_count(heads)
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    writer.add_file_type(0)
    kinds = config.get("layer_types")
    if arch == Arch.GRANITE_HYBRID and config["model_type"] == "bamba":
        kinds = ["full_attention" if i in config["attn_layer_indices"] else "mamba" for i in range(layers)]
        writer.add_rope_dimension_count(head_dim // 2)
    if arch == Arch.FALCON_H1:
        writer.add_ssm_conv_kernel(config["mamba_d_conv"])
        writer.add_ssm_state_size(config["mamba_d_state"])
        writer.add_ssm_group_count(config["mamba_n_groups"])
        writer.add_ssm_inner_size(config["mamba_d_ssm"])
        writer.add_ssm_time_step_rank(config["mamba_n_heads"])
    if arch == Arch.GRANITE_HYBRID:
        writer.add_head_count_kv([config["num_key_value_heads"] if kind == "full_attention" else 0 for kind in kinds])
        writer.add_rope_scaling_finetuned(config.get("position_embedding_type", "rope") == "rope")
        writer.add_ssm_conv_kernel(config["mamba_d_conv"])
        writer.add_ssm_state_size(config["mamba_d_state"])
        writer.add_ssm_group_count(config["mamba_n_groups"])
        writer.add_ssm_inner_size(config["mamba_expand"] * config["hidden_size"])
        writer.add_ssm_time_step_rank(config["mamba_n_heads"])
        if config.get("num_local_experts"):
            writer.add_expert_count(config["num_local_experts"])
            writer.add_expert_used_count(config["num_experts_per_tok"])
        if config["model_type"] != "bamba":
            writer.add_expert_shared_feed_forward_length(config["shared_intermediate_size"])
    else:
        writer.add_head_count_kv(config["num_key_value_heads"])
    if arch != Arch.PHI3:
        writer.add_rope_freq_base(whole["rope_theta"])
    if arch in (Arch.GEMMA2, Arch.GEMMA3, Arch.QWEN3, Arch.QWEN3MOE, Arch.FALCON_H1):
        writer.add_key_length(head_dim)
        writer.add_value_length(head_dim)
    if arch in (Arch.GEMMA2, Arch.GEMMA3):
        writer.add_sliding_window(config["sliding_window"])
    if arch == Arch.GEMMA2:
        writer.add_attn_logit_softcapping(config["attn_logit_softcapping"])
        writer.add_final_logit_softcapping(config["final_logit_softcapping"])
    if whole["rope_type"] == "linear":
        writer.add_rope_scaling_type(gguf.RopeScalingType.LINEAR)
        writer.add_rope_scaling_factor(whole["factor"])
    if whole["rope_type"] == "yarn":
        writer.add_rope_scaling_type(gguf.RopeScalingType.YARN)
        writer.add_rope_scaling_factor(whole["factor"])
        writer.add_rope_scaling_orig_ctx_len(whole["original_max_position_embeddings"])
        writer.add_rope_scaling_yarn_beta_fast(whole["beta_fast"])
        writer.add_rope_scaling_yarn_beta_slow(whole["beta_slow"])
    if arch == Arch.PHI3:
        trained = config["original_max_position_embeddings"]
        writer.add_rope_freq_base(whole["rope_theta"])
        writer.add_rope_scaling_orig_ctx_len(trained)
        writer.add_rope_dimension_count(int(whole["partial_rotary_factor"] * head_dim))
        writer.add_sliding_window(config["sliding_window"] or 0)
        scale = config["max_position_embeddings"] / trained
        writer.add_rope_scaling_attn_factors(float(np.sqrt(1 + np.log(scale) / np.log(trained))))
        writer.add_tensor("rope_factors_long.weight", np.array(whole["long_factor"], np.float32))
        writer.add_tensor("rope_factors_short.weight", np.array(whole["short_factor"], np.float32))
    if arch in (Arch.GRANITE, Arch.GRANITE_HYBRID) and config["model_type"] != "bamba":
        writer.add_attention_scale(config["attention_multiplier"])
        writer.add_embedding_scale(config["embedding_multiplier"])
        writer.add_residual_scale(config["residual_multiplier"])
        writer.add_logit_scale(config["logits_scaling"])
    if arch == Arch.QWEN3MOE:
        writer.add_expert_count(config["num_local_experts"])
        writer.add_expert_used_count(config["num_experts_per_tok"])
        writer.add_expert_feed_forward_length(config["moe_intermediate_size"])


def multiplied(name: str, tensor: np.ndarray, config: dict) -> np.ndarray:
    """A tensor of Falcon-H1, whose multipliers llama.cpp's converter folds into the weights."""
    if name.endswith("mamba.in_proj.weight"):
        inner, states = config["mamba_d_ssm"], config["mamba_n_groups"] * config["mamba_d_state"]
        widths = [inner, inner, states, states, config["mamba_n_heads"]]
        return tensor * config["ssm_in_multiplier"] * np.repeat(config["ssm_multipliers"], widths)[:, None]
    factors = {
        "embed_tokens.weight": config["embedding_multiplier"], "lm_head.weight": config["lm_head_multiplier"],
        "q_proj.weight": config["attention_in_multiplier"], "v_proj.weight": config["attention_in_multiplier"],
        "k_proj.weight": config["attention_in_multiplier"] * config["key_multiplier"],
        "o_proj.weight": config["attention_out_multiplier"], "mamba.out_proj.weight": config["ssm_out_multiplier"],
        "gate_proj.weight": config["mlp_multipliers"][0], "down_proj.weight": config["mlp_multipliers"][1],
    }
    return tensor * next((factor for suffix, factor in factors.items() if name.endswith(suffix)), 1.0)


def tensors(arch: Arch, config: dict, files: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The tensors under Hugging Face's names, with the values that llama.cpp stores."""
    out, experts = {}, {}
    for name, tensor in files.items():
        if arch in (Arch.GEMMA2, Arch.GEMMA3) and name.endswith("norm.weight"):
            tensor = tensor + 1
        if arch == Arch.FALCON_H1:
            tensor = multiplied(name, tensor, config)
        if arch in INTERLEAVED and name.endswith("q_proj.weight"):
            tensor = interleaved(tensor, config["num_attention_heads"])
        if arch in INTERLEAVED and name.endswith("k_proj.weight"):
            tensor = interleaved(tensor, config["num_key_value_heads"])
        if name.endswith("dt_bias"):
            name = name.replace("dt_bias", "dt_proj.bias")
        if name.endswith("A_log"):
            tensor = -np.exp(tensor)
        if name.endswith(("A_log", ".D")) and arch != Arch.MAMBA:
            tensor = tensor.reshape(-1, 1)
        if name.endswith(("mamba.norm.weight", "mixer.norm.weight")):
            tensor = tensor.reshape(config.get("mamba_n_groups") or config["n_groups"], -1)
        if name.endswith("conv1d.weight"):
            tensor = tensor.squeeze(1)
        layer = name.split(".")[2] if name.startswith("model.layers.") else ""
        if ".mlp.experts." in name:
            index, part = name.split(".")[5:7]
            experts.setdefault((layer, part), {})[int(index)] = tensor
        elif name.endswith("input_linear.weight"):
            gate, up = np.split(tensor, 2, axis=-2)
            suffix = "exps" if "block_sparse" in name else "shexp" if config.get("num_local_experts") else ""
            for part, rows in (("gate", gate), ("up", up)):
                out[f"blk.{layer}.ffn_{part}{'_' + suffix if suffix else ''}.weight"] = rows
        elif name.endswith("shared_mlp.output_linear.weight") and not config["num_local_experts"]:
            out[f"blk.{layer}.ffn_down.weight"] = tensor
        else:
            out[name] = tensor
    for (layer, part), each in experts.items():
        out[f"model.layers.{layer}.mlp.experts.{part}.weight"] = np.stack([each[i] for i in range(len(each))])
    return out


def family(name: str, arch: Arch) -> None:
    source = ROOT / "tests/data/models" / name
    config = json.loads((source / "config.json").read_text())
    writer = GGUFWriter(OUT / f"{name}.gguf", gguf.MODEL_ARCH_NAMES[arch])
    settings(writer, arch, config)
    # Without an end: the reference continues after every token.
    byte_level(writer, "gpt-2", end=None)
    known = gguf.get_tensor_name_map(arch, config.get("num_hidden_layers") or len(config["layers_block_type"]))
    for hf, tensor in tensors(arch, config, safetensors(source / "model.safetensors")).items():
        mapped = hf if hf.startswith("blk.") else known.get_name(hf, try_suffixes=(".weight", ".bias"))
        assert mapped, hf
        writer.add_tensor(mapped, np.ascontiguousarray(tensor, np.float32))
    finish(writer)


OUT.mkdir(parents=True, exist_ok=True)
for name, arch in ARCHITECTURES.items():
    family(name, arch)
plain()
types()
pieces()
