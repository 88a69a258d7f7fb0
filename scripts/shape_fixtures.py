"""How many parameters `transformers` counts in each model of models/catalog, and in a Mamba-2, from the configuration
alone: no weights are made. Writes tests/data/model_shapes.json."""

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
shapes = {}
for name, config in configs.items():
    kind = AutoConfig.for_model(**config)
    with torch.device("meta"):
        make = AutoModel if config["model_type"] == "bert" else AutoModelForCausalLM
        model = make.from_config(kind)
    shapes[name] = {"config": config, "parameters": sum(p.numel() for p in model.parameters())}
(root / "tests/data/model_shapes.json").write_text(json.dumps(shapes, indent=1) + "\n")
