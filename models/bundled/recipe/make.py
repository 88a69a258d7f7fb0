"""Writes the dialogues made for this model as training data.

    python make.py OUT_DIR [POOL …] [--seed N]

The pools: `small` (small personas), `helper` (the other side), `shipped` (the personas that come with the program), `judge`.
"""
import argparse
import importlib
import pathlib
import random
import time

import packing

# Pool: module, function, how many documents.
POOLS = {
    'small': ('small', 'document', 30000),
    'recall': ('small', 'recall', 40000),
    'helper': ('small', 'other_side', 8000),
    'shipped': ('shipped', 'document', 6000),
    'target': ('shipped', 'other_side', 5000),
    'judge': ('judging', 'document', 15000),
}


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument('out', type=pathlib.Path)
    p.add_argument('pools', nargs='*')
    p.add_argument('--seed', type=int, default=1)
    p.add_argument('--share', type=float, default=1., help='of the number of documents')
    a = p.parse_args()
    tok = packing.tokenizer()
    for name in a.pools or POOLS:
        module, function, count = POOLS[name]
        make = getattr(importlib.import_module(module), function)
        rng = random.Random(f'{name} {a.seed}')
        begun = time.time()
        documents = [make(rng) for _ in range(int(count * a.share))]
        tokens, counted = packing.write(a.out / f'{name}.npz', packing.encode(tok, documents))
        print(f'{name}: {len(documents)} documents, {tokens} tokens, {counted} of them in the loss, {time.time() - begun:.0f} s', flush=True)


if __name__ == '__main__':
    main()
