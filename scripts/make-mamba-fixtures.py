#!/usr/bin/env python3
"""Makes tests/data/mamba: tiny random Mambas, and reference values for a few tokens computed with `transformers`.

    python3 -m venv target/venv && target/venv/bin/pip install torch transformers tokenizers
    target/venv/bin/python scripts/make-mamba-fixtures.py

`expected.json` holds log-softmax rows in f32: row i is the distribution after ids[..=i].
"""

import json
import shutil
from pathlib import Path

import torch
import transformers
from transformers import MambaConfig, MambaForCausalLM

OUT = Path(__file__).resolve().parent.parent / "tests/data/mamba"
COMMON = dict(vocab_size=40, bos_token_id=0, eos_token_id=1, pad_token_id=0)
MODELS = {
    # The published configuration, scaled down.
    "plain": dict(hidden_size=24, num_hidden_layers=2),
    # All optional features of a config.
    "odd": dict(
        hidden_size=20, num_hidden_layers=2, state_size=5, conv_kernel=3, time_step_rank=7, use_bias=True,
        use_conv_bias=False, tie_word_embeddings=False, residual_in_fp32=False, layer_norm_epsilon=1e-4,
    ),
    # A wide state and a short convolution, stored as bf16 in several shards.
    "shards": dict(hidden_size=16, num_hidden_layers=2, state_size=20, conv_kernel=2, expand=3),
}


def randomise(model: MambaForCausalLM) -> None:
    """Weights large enough that every part affects the logits."""
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if name.endswith("A_log"):
                weight.copy_(torch.empty_like(weight).uniform_(-2.0, 2.5))
            elif "norm" in name or name.endswith(".D"):
                weight.copy_(torch.empty_like(weight).uniform_(0.5, 1.5))
            elif name.endswith("dt_proj.bias"):
                weight.copy_(torch.empty_like(weight).uniform_(-5.0, 1.0))
            else:
                fan_in = weight.shape[-1] if weight.dim() > 1 else 4
                weight.copy_(torch.randn_like(weight) * (1.5 / fan_in**0.5))


def tokenizer(vocabulary: int) -> dict:
    words = {f"w{i}": i for i in range(vocabulary)}
    return {
        "version": "1.0", "truncation": None, "padding": None, "added_tokens": [], "normalizer": None,
        "pre_tokenizer": {"type": "WhitespaceSplit"}, "post_processor": None, "decoder": None,
        "model": {"type": "WordLevel", "vocab": words, "unk_token": "w0"},
    }


def main() -> None:
    for number, (name, dims) in enumerate(MODELS.items()):
        torch.manual_seed(number)
        folder = OUT / name
        shutil.rmtree(folder, ignore_errors=True)
        model = MambaForCausalLM(MambaConfig(**COMMON, **dims)).eval()
        randomise(model)
        if name == "shards":
            model = model.to(torch.bfloat16)
            model.save_pretrained(folder, max_shard_size="12KB")
            model = model.to(torch.float32)
        else:
            model.save_pretrained(folder)
        ids = torch.randint(0, COMMON["vocab_size"], (1, 17))
        with torch.no_grad():
            rows = torch.log_softmax(model(ids).logits[0].float(), dim=-1)
        (folder / "generation_config.json").unlink(missing_ok=True)
        (folder / "tokenizer.json").write_text(json.dumps(tokenizer(COMMON["vocab_size"])))
        expected = {
            "source": f"transformers {transformers.__version__}, torch {torch.__version__}, f32, CPU",
            "ids": ids[0].tolist(),
            "logprobs": [[round(x, 7) for x in row] for row in rows.tolist()],
        }
        (folder / "expected.json").write_text(json.dumps(expected))


main()
