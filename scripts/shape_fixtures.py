"""How many parameters `transformers` counts in each model of models/catalog, and in models of further families, from the
configuration alone: no weights are made. Writes tests/data/model_shapes.json."""

import json
from pathlib import Path

import torch
import yaml
from transformers import AutoConfig, AutoModel, AutoModelForCausalLM

root = Path(__file__).parent.parent
configs = {path.stem: yaml.safe_load(path.read_text())["config"] for path in sorted((root / "models/catalog").glob("*.yaml"))}
configs["mamba2"] = {
    "model_type": "mamba2", "vocab_size": 1000, "hidden_size": 256, "num_hidden_layers": 3, "num_heads": 8, "head_dim": 64,
    "n_groups": 2, "state_size": 32, "conv_kernel": 4, "expand": 2, "use_bias": False, "use_conv_bias": True,
    "tie_word_embeddings": False,
}
configs["biased"] = {
    "model_type": "llama", "vocab_size": 1000, "hidden_size": 64, "intermediate_size": 160, "num_hidden_layers": 2,
    "num_attention_heads": 4, "num_key_value_heads": 2, "attention_bias": True, "mlp_bias": True, "tie_word_embeddings": False,
}
# Published models of further families, from their files.
configs |= {
    "gemma-2-2b": {
        "model_type": "gemma2", "vocab_size": 256000, "hidden_size": 2304, "intermediate_size": 9216,
        "num_hidden_layers": 26, "num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 256,
    },
    "gemma-3-1b": {
        "model_type": "gemma3_text", "vocab_size": 262144, "hidden_size": 1152, "intermediate_size": 6912,
        "num_hidden_layers": 26, "num_attention_heads": 4, "num_key_value_heads": 1, "head_dim": 256,
    },
    "olmo-2-1b": {
        "model_type": "olmo2", "vocab_size": 100352, "hidden_size": 2048, "intermediate_size": 8192,
        "num_hidden_layers": 16, "num_attention_heads": 16, "num_key_value_heads": 16, "tie_word_embeddings": False,
    },
    "phi-4-mini": {
        "model_type": "phi3", "vocab_size": 200064, "hidden_size": 3072, "intermediate_size": 8192,
        "num_hidden_layers": 32, "num_attention_heads": 24, "num_key_value_heads": 8, "pad_token_id": 199999,
        "partial_rotary_factor": 0.75, "tie_word_embeddings": True,
    },
    "granite-3.3-2b": {
        "model_type": "granite", "vocab_size": 49159, "hidden_size": 2048, "intermediate_size": 8192,
        "num_hidden_layers": 40, "num_attention_heads": 32, "num_key_value_heads": 8, "tie_word_embeddings": True,
    },
    "qwen3-30b-a3b": {
        "model_type": "qwen3_moe", "vocab_size": 151936, "hidden_size": 2048, "intermediate_size": 6144,
        "moe_intermediate_size": 768, "num_experts": 128, "num_experts_per_tok": 8, "num_hidden_layers": 48,
        "num_attention_heads": 32, "num_key_value_heads": 4, "head_dim": 128, "tie_word_embeddings": False,
    },
    "granite-4.0-h-tiny": {
        "model_type": "granitemoehybrid", "vocab_size": 100352, "hidden_size": 1536, "intermediate_size": 512,
        "num_hidden_layers": 40, "num_attention_heads": 12, "num_key_value_heads": 4, "num_local_experts": 64,
        "num_experts_per_tok": 6, "shared_intermediate_size": 1024, "mamba_n_heads": 48, "mamba_d_head": 64,
        "mamba_d_state": 128, "mamba_n_groups": 1, "tie_word_embeddings": True,
        "layer_types": ["attention" if layer in (5, 15, 25, 35) else "mamba" for layer in range(40)],
    },
    "falcon-h1-0.5b": {
        "model_type": "falcon_h1", "vocab_size": 32784, "hidden_size": 1024, "intermediate_size": 2048,
        "num_hidden_layers": 36, "num_attention_heads": 8, "num_key_value_heads": 2, "head_dim": 64, "mamba_d_ssm": 1536,
        "mamba_n_heads": 24, "mamba_d_head": 64, "mamba_n_groups": 1, "mamba_d_state": 128, "tie_word_embeddings": False,
    },
    "bamba-9b": {
        "model_type": "bamba", "vocab_size": 128256, "hidden_size": 4096, "intermediate_size": 14336,
        "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8, "mamba_n_heads": 128,
        "mamba_d_head": 64, "mamba_n_groups": 1, "mamba_d_state": 128, "attn_layer_indices": [9, 18, 27],
        "tie_word_embeddings": False,
    },
    "nemotron-h-8b": {
        "model_type": "nemotron_h", "vocab_size": 131072, "hidden_size": 4096, "num_attention_heads": 32,
        "num_key_value_heads": 8, "head_dim": 128, "intermediate_size": 21504, "mamba_num_heads": 128,
        "mamba_head_dim": 64, "ssm_state_size": 128, "n_groups": 8, "tie_word_embeddings": False,
        "hybrid_override_pattern": "M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M-",
    },
}
shapes = {}
for name, config in configs.items():
    kinds = {"mamba": "linear_attention", "attention": "full_attention"}
    types = config.get("layer_types")
    kind = AutoConfig.for_model(**config | ({"layer_types": [kinds[name] for name in types]} if types else {}))
    with torch.device("meta"):
        make = AutoModel if config["model_type"] == "bert" else AutoModelForCausalLM
        model = make.from_config(kind)
    shapes[name] = {"config": config, "parameters": sum(p.numel() for p in model.parameters())}
(root / "tests/data/model_shapes.json").write_text(json.dumps(shapes, indent=1) + "\n")
