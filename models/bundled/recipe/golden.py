"""Makes tests/data/mamba/bundled.json: what `transformers` says of a few tokens on the bundled weights.

    python golden.py

The ids are those of the file that is there (they do not depend on the weights); the test that reads it is
tests/it/engine/parity.rs.
"""
import json
import pathlib

import torch
from transformers import MambaForCausalLM

HERE = pathlib.Path(__file__).resolve().parent
FILE = HERE.parents[2] / 'tests' / 'data' / 'mamba' / 'bundled.json'


def main():
    ids = json.loads(FILE.read_text())['ids']
    model = MambaForCausalLM.from_pretrained(HERE.parent, dtype=torch.float32).eval()
    with torch.no_grad():
        rows = torch.log_softmax(model(torch.tensor([ids])).logits[0].float(), -1)
    each = rows[:-1]
    told = {
        'ids': ids,
        'next_token_logprob': [round(each[k, ids[k + 1]].item(), 6) for k in range(len(each))],
        'entropy': [round(-(row.exp() * row).sum().item(), 6) for row in each],
        'greedy': each.argmax(-1).tolist(),
        'source': 'transformers MambaForCausalLM, f32, CPU',
    }
    FILE.write_text(json.dumps(told))


if __name__ == '__main__':
    main()
