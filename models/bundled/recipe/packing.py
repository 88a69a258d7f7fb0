"""Documents as token ids: how a conversation is tokenised (as the program does it), stored, and packed into rows.

A document is a list of messages (role, text, weight) or (role, text, weight, marks); the weight says how much its tokens
count in the loss, and `marks` are parts of the text that count otherwise: [(part, weight)]. The special tokens are put in by id and the text between them is tokenised apart, as the program does.
"""
import json
import pathlib

import numpy as np
from tokenizers import Tokenizer

ROLES = {'system': 1, 'user': 2, 'assistant': 3}
END_OF_TEXT, END = 0, 4
HERE = pathlib.Path(__file__).resolve().parent


def tokenizer():
    return Tokenizer.from_file(str(HERE.parent / 'tokenizer.json'))


def encode(tok, documents):
    """Yields (ids, weights) of each document."""
    documents = list(documents)
    for k in range(0, len(documents), 500):
        some = documents[k:k + 500]
        encoded = iter(tok.encode_batch([message[1] for document in some for message in document], add_special_tokens=False))
        for document in some:
            ids, weights = [], []
            for role, text, weight, *marks in document:
                e = next(encoded)
                each = [weight] * len(e.ids)
                for part, other in marks[0] if marks else ():
                    at = text.find(part)
                    while at >= 0 and part:
                        for i, (start, end) in enumerate(e.offsets):
                            if start < at + len(part) and end > at:
                                each[i] = max(each[i], other)
                        at = text.find(part, at + len(part))
                ids += [ROLES[role], *e.ids, END]
                weights += [0, *each, weight]
            yield ids, weights


def write(path, documents):
    """Stores encoded documents: one array of ids, one of weights (in hundredths) and the lengths."""
    ids, weights, lengths = [], [], []
    for i, w in documents:
        ids.append(np.asarray(i, np.uint16))
        weights.append((np.asarray(w) * 100).round().astype(np.uint8))
        lengths.append(len(i))
    path = pathlib.Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_suffix('.part.npz')
    np.savez(part, ids=np.concatenate(ids), weights=np.concatenate(weights), lengths=np.asarray(lengths, np.int32))
    part.rename(path)
    return sum(lengths), int(sum((w > 0).sum() for w in weights))


class Pool:
    """Rows of `width` tokens, each filled with whole documents as far as they fit; longer ones are cut at the end."""

    def __init__(self, path, width, seed):
        data = np.load(path)
        self.ids, self.weights = data['ids'], data['weights']
        self.starts = np.concatenate([[0], np.cumsum(data['lengths'], dtype=np.int64)])
        self.width, self.rng = width, np.random.default_rng(seed)
        self.order, self.open, self.rounds = [], [], -1

    def _next(self):
        if not len(self.order):
            self.order = self.rng.permutation(len(self.starts) - 1).tolist()
            self.rounds += 1
        return self.order.pop()

    def row(self):
        """(ids, weights, reset), each of `width` entries."""
        while True:
            k = self._next()
            length = min(self.width, int(self.starts[k + 1] - self.starts[k]))
            for held in self.open:
                if held[0] + length <= self.width:
                    held[0] += length
                    held[1].append(k)
                    break
            else:
                self.open.append([length, [k]])
                if len(self.open) > 24:
                    self.open.sort(key=lambda held: held[0])
                    return self._filled(self.open.pop()[1])

    def _filled(self, documents):
        ids, weights = np.zeros(self.width, np.int64), np.zeros(self.width, np.float32)
        reset = np.zeros(self.width, np.uint8)
        at = 0
        for k in documents:
            a = self.starts[k]
            n = min(self.width - at, int(self.starts[k + 1] - a))
            ids[at:at + n], weights[at:at + n], reset[at] = self.ids[a:a + n], self.weights[a:a + n] / 100, 1
            # What begins a document is not foretold by the one before it.
            weights[at] = 0
            at += n
        if at < self.width:
            reset[at] = 1
        return ids, weights, reset
