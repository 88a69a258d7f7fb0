"""Reading and writing with the weights: the state as a value, sampling as the program does it."""
import json
import pathlib

import numpy as np
import torch
import torch.nn.functional as F

import model as M
import packing

HERE = pathlib.Path(__file__).resolve().parent


class State:
    """What has been read: per layer the convolution's last three inputs and the scan's state."""

    def __init__(self, conv, scan):
        self.conv, self.scan = conv, scan

    def fork(self):
        return State([c.clone() for c in self.conv], [s.clone() for s in self.scan])


class Runner:
    def __init__(self, path=None):
        path = pathlib.Path(path) if path else HERE.parent / 'model.safetensors'
        from safetensors.torch import load_file
        weights = load_file(str(path))
        layers = 1 + max(int(k.split('.')[2]) for k in weights if k.startswith('backbone.layers.'))
        v, d = weights['backbone.embeddings.weight'].shape
        n = weights['backbone.layers.0.mixer.A_log'].shape[1]
        self.m = M.LM(v, d, layers, n)
        self.m.load_state_dict(weights)
        self.m.eval()
        self.n = n
        self.A = [-torch.exp(b.mixer.A_log.detach()) for b in self.m.backbone.layers]
        self.tok = packing.tokenizer()

    def new(self, batch=1):
        layers = self.m.backbone.layers
        di = layers[0].mixer.di
        return State([torch.zeros(batch, 3, 2 * di) for _ in layers], [torch.zeros(batch, di, self.n) for _ in layers])

    @torch.no_grad()
    def read(self, state, ids):
        """Reads ids [B,L] on from `state`, which changes; the last layer's hidden states."""
        ext = M.extension()
        ids = torch.as_tensor(ids)
        if ids.ndim == 1:
            ids = ids[None]
        x = self.m.backbone.embeddings(ids)
        none = torch.zeros(ids.shape[0], ids.shape[1] + 3, dtype=torch.uint8)
        for k, block in enumerate(self.m.backbone.layers):
            mix = block.mixer
            xz = mix.in_proj(block.norm(x))
            wide = torch.cat([state.conv[k], xz], 1)
            state.conv[k] = wide[:, -3:].clone()
            u = ext.conv_fwd(wide, mix.conv1d.weight.squeeze(1), mix.conv1d.bias, none)[:, 3:].contiguous()
            p = mix.x_proj(u)
            dt = F.linear(p[..., :mix.r], mix.dt_proj.weight)
            y = ext.scan_on(u, dt, mix.dt_proj.bias, self.A[k], p, mix.r, mix.D, xz, state.scan[k])
            x = x + mix.out_proj(y)
        return self.m.backbone.norm_f(x)

    def logits(self, hidden):
        return F.linear(hidden, self.m.backbone.embeddings.weight)

    def encode(self, messages, lead='assistant'):
        """Ids of (role, text) messages, and the beginning of a reply."""
        ids = []
        for role, text, *_ in messages:
            ids += [packing.ROLES[role], *self.tok.encode(text, add_special_tokens=False).ids, packing.END]
        return ids + ([packing.ROLES[lead]] if lead else [])

    def text(self, ids):
        return self.tok.decode([i for i in ids if i > packing.END])

    @torch.no_grad()
    def logprob(self, before, replies, state=None):
        """Sum of log-probabilities of each reply (ids) after `before`, which is read once."""
        state = state or self.new()
        hidden = self.read(state, before)
        out = []
        for reply in replies:
            h = hidden[:, -1:]
            if len(reply) > 1:
                h = torch.cat([h, self.read(state.fork(), reply[:-1])], 1)
            logp = torch.log_softmax(self.logits(h)[0], -1)
            out.append(logp[torch.arange(len(reply)), torch.as_tensor(reply)].sum().item())
        return out

    @torch.no_grad()
    def write(self, state, before, rng, sampling, stop_ids=(0, 1, 2, 3, 4)):
        """Samples a reply after `before`; returns its ids and leaves in `state` everything but the end token read."""
        hidden = self.read(state, before)
        written, recent = [], list(before)
        for _ in range(sampling['max_tokens']):
            logits = self.logits(hidden[0, -1]).clone()
            penalty = sampling.get('repetition_penalty', 1.)
            if penalty != 1.:
                seen = torch.as_tensor(sorted(set(recent[-sampling['repetition_window']:])))
                picked = logits[seen]
                logits[seen] = torch.where(picked > 0, picked / penalty, picked * penalty)
            p = torch.softmax(logits / sampling['temperature'], -1)
            values, order = p.sort(descending=True)
            keep = values.cumsum(0) - values < sampling['top_p']
            values = values[keep].double()
            pick = int(order[int(np.searchsorted((values.cumsum(0) / values.sum()).numpy(), rng.random()))])
            if pick in stop_ids:
                break
            written.append(pick)
            recent.append(pick)
            hidden = self.read(state, [pick])
        return written
