"""Mamba-1 as it is trained here: names and shapes as in `transformers`' MambaForCausalLM.

With `fast=True` the block's elementwise parts run in scan.cpp (training); otherwise in plain PyTorch (evaluation on any
machine, and the reference that the C++ is checked against: `python model.py`).
"""
import math
import os
import pathlib

import torch
import torch.nn as nn
import torch.nn.functional as F

HERE = pathlib.Path(__file__).resolve().parent
_ext = None
# Whether matrix products take bf16 factors while training.
BF16 = os.environ.get('BF16', '0') == '1'


def extension():
    """scan.cpp, compiled once."""
    global _ext
    if _ext is None:
        from torch.utils.cpp_extension import load
        flags = ['-O3', '-march=native', '-ffast-math', '-fopenmp']
        _ext = load('loom_scan', [str(HERE / 'scan.cpp')], extra_cflags=flags,
                    extra_ldflags=['-fopenmp', '-lmvec', '-lm'], verbose=False)
    return _ext


class ConvSilu(torch.autograd.Function):
    """SiLU(conv(x)), x being the first half of xz; its gradient is added to xz's by `Scan`."""

    @staticmethod
    def forward(c, xz, w, b, reset, dxz):
        y = extension().conv_fwd(xz, w, b, reset)
        c.save_for_backward(xz, w, b, reset)
        c.dxz = dxz
        return y

    @staticmethod
    def backward(c, g):
        xz, w, b, reset = c.saved_tensors
        dxz = c.dxz[0]
        dw, db = extension().conv_bwd(g.contiguous(), xz, w, b, reset, dxz)
        return dxz, dw, db, None, None


class Scan(torch.autograd.Function):
    """The scan, skip and gate. The gradient of the gate is left in `dxz` for ConvSilu, which runs later in the backward pass."""

    @staticmethod
    def forward(c, u, dt, bias, A, bc, at, D, xz, reset, dxz):
        c.save_for_backward(u, dt, bias, A, bc, D, xz, reset)
        c.at, c.dxz = at, dxz
        return extension().scan_fwd(u, dt, bias, A, bc, at, D, xz, reset)

    @staticmethod
    def backward(c, g):
        u, dt, bias, A, bc, D, xz, reset = c.saved_tensors
        dxz = torch.empty_like(xz)
        c.dxz.append(dxz)
        du, ddt, dbias, dA, dbc, dD = extension().scan_bwd(g.contiguous(), u, dt, bias, A, bc, c.at, D, xz, reset, dxz)
        return du, ddt, dbias, dA, dbc, None, dD, None, None, None


class Product(torch.autograd.Function):
    """x·Wᵀ with bf16 factors and f32 sums: five times as fast where the processor has bf16 products."""

    @staticmethod
    def forward(c, x, w):
        x, w = x.bfloat16(), w.bfloat16()
        c.save_for_backward(x, w)
        return F.linear(x, w).float()

    @staticmethod
    def backward(c, g):
        x, w = c.saved_tensors
        g = g.bfloat16()
        dw = g.reshape(-1, g.shape[-1]).t() @ x.reshape(-1, x.shape[-1])
        return (g @ w).float(), dw.float()


class Norm(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(d))

    def forward(self, x):
        return F.rms_norm(x, (x.shape[-1],), self.weight, 1e-5)


class Mixer(nn.Module):
    def __init__(self, d, n=16, k=4, e=2):
        super().__init__()
        di = d * e
        r = -(-d // 16)
        self.r, self.n, self.di = r, n, di
        self.in_proj = nn.Linear(d, 2 * di, bias=False)
        self.conv1d = nn.Conv1d(di, di, k, groups=di, padding=k - 1, bias=True)
        self.x_proj = nn.Linear(di, r + 2 * n, bias=False)
        self.dt_proj = nn.Linear(r, di, bias=True)
        self.out_proj = nn.Linear(di, d, bias=False)
        self.A_log = nn.Parameter(torch.log(torch.arange(1, n + 1, dtype=torch.float32).repeat(di, 1)))
        self.D = nn.Parameter(torch.ones(di))
        nn.init.uniform_(self.dt_proj.weight, -r ** -.5, r ** -.5)
        dt = torch.exp(torch.rand(di) * (math.log(.1) - math.log(.001)) + math.log(.001)).clamp(min=1e-4)
        with torch.no_grad():
            self.dt_proj.bias.copy_(dt + torch.log(-torch.expm1(-dt)))

    def forward(self, x, reset, fast):
        A = -torch.exp(self.A_log)
        if fast:
            product = Product.apply if BF16 else F.linear
            xz = product(x, self.in_proj.weight)
            dxz = []
            u = ConvSilu.apply(xz, self.conv1d.weight.squeeze(1), self.conv1d.bias, reset, dxz)
            p = product(u, self.x_proj.weight)
            dt = F.linear(p[..., :self.r], self.dt_proj.weight)
            y = Scan.apply(u, dt, self.dt_proj.bias, A, p, self.r, self.D, xz.detach(), reset, dxz)
            return product(y, self.out_proj.weight)
        xz = self.in_proj(x)
        L = x.shape[1]
        u, z = xz.chunk(2, -1)
        u = F.silu(self.conv1d(u.transpose(1, 2))[..., :L].transpose(1, 2))
        dt, B, C = self.x_proj(u).split([self.r, self.n, self.n], -1)
        dt = F.softplus(self.dt_proj(dt))
        h = torch.zeros(x.shape[0], self.di, self.n)
        ys = []
        for t in range(L):
            h = torch.exp(dt[:, t, :, None] * A) * h + (dt[:, t] * u[:, t])[..., None] * B[:, t, None]
            ys.append((h * C[:, t, None]).sum(-1))
        y = torch.stack(ys, 1) + self.D * u
        return self.out_proj(y * F.silu(z))


class Block(nn.Module):
    def __init__(self, d, n):
        super().__init__()
        self.norm = Norm(d)
        self.mixer = Mixer(d, n)

    def forward(self, x, reset, fast):
        return x + self.mixer(self.norm(x), reset, fast)


class Backbone(nn.Module):
    def __init__(self, v, d, layers, n):
        super().__init__()
        self.embeddings = nn.Embedding(v, d)
        self.layers = nn.ModuleList([Block(d, n) for _ in range(layers)])
        self.norm_f = Norm(d)

    def forward(self, ids, reset, fast):
        x = self.embeddings(ids)
        for block in self.layers:
            x = block(x, reset, fast)
        return self.norm_f(x)


class LM(nn.Module):
    def __init__(self, v=4096, d=192, layers=6, n=16):
        super().__init__()
        self.backbone = Backbone(v, d, layers, n)
        nn.init.normal_(self.backbone.embeddings.weight, std=.02)
        for block in self.backbone.layers:
            block.mixer.out_proj.weight.data /= math.sqrt(2 * layers)

    def hidden(self, ids, reset=None, fast=True):
        if reset is None:
            reset = torch.zeros(ids.shape, dtype=torch.uint8)
        return self.backbone(ids, reset, fast)

    def forward(self, ids, reset=None, fast=True):
        return F.linear(self.hidden(ids, reset, fast), self.backbone.embeddings.weight)


class WeightedLoss(torch.autograd.Function):
    """Cross-entropy over the tied head, a slice of rows at a time, so that the logits never stand in memory as a whole."""

    @staticmethod
    def forward(c, h, E, y, w, total):
        loss = 0.
        dh, dE = torch.empty_like(h), torch.zeros_like(E)
        narrow = (lambda a: a.bfloat16()) if BF16 else (lambda a: a)
        e = narrow(E)
        for k in range(0, len(h), 1024):
            x, t, s = narrow(h[k:k + 1024]), y[k:k + 1024], w[k:k + 1024] / total
            g = torch.log_softmax((x @ e.t()).float(), -1)
            loss -= (g.gather(1, t[:, None])[:, 0] * s).sum().item()
            g.exp_()
            g[torch.arange(len(t)), t] -= 1
            g *= s[:, None]
            g = narrow(g)
            dh[k:k + 1024] = (g @ e).float()
            dE += (g.t() @ x).float()
        c.save_for_backward(dh, dE)
        return torch.tensor(loss)

    @staticmethod
    def backward(c, g):
        dh, dE = c.saved_tensors
        return dh * g, dE * g, None, None, None


def loss_of(model, ids, reset, weights):
    """Mean weighted nats of ids[:, 1:]; `weights` belongs to the tokens that are predicted."""
    h = model.hidden(ids[:, :-1], reset[:, :-1].contiguous())
    w = weights[:, 1:].reshape(-1)
    at = w.nonzero()[:, 0]
    rows = h.reshape(-1, h.shape[-1])[at]
    return WeightedLoss.apply(rows, model.backbone.embeddings.weight, ids[:, 1:].reshape(-1)[at], w[at], w.sum().item())


def grown(path, layers, n):
    """The weights of `path`; further layers begin as the identity, further state entries with small B and C."""
    from safetensors.torch import load_file
    old = load_file(path)
    d = old['backbone.norm_f.weight'].shape[0]
    m = LM(old['backbone.embeddings.weight'].shape[0], d, layers, n)
    new = m.state_dict()
    had = 1 + max(int(k.split('.')[2]) for k in old if k.startswith('backbone.layers.'))
    order = list(range(had))
    # New layers go between the old ones, spread evenly.
    place = [round((i + .5) * had / max(1, layers - had)) for i in range(layers - had)]
    stack = []
    for i in range(had):
        stack += [None] * place.count(i)
        stack.append(order[i])
    stack += [None] * (layers - len(stack))
    for k, v in old.items():
        if not k.startswith('backbone.layers.'):
            new[k] = v
    for to, source in enumerate(stack):
        if source is None:
            new[f'backbone.layers.{to}.mixer.out_proj.weight'].zero_()
            continue
        for k, v in old.items():
            if not k.startswith(f'backbone.layers.{source}.'):
                continue
            name = f'backbone.layers.{to}.' + k.split('.', 3)[3]
            into = new[name]
            if into.shape == v.shape:
                into.copy_(v)
            elif k.endswith('A_log'):
                into[:, :v.shape[1]] = v
                # Slower than any before: they are for what lies far back.
                into[:, v.shape[1]:] = torch.log(torch.linspace(.02, 1., n - v.shape[1])).repeat(len(v), 1)
            elif k.endswith('x_proj.weight'):
                r = m.backbone.layers[to].mixer.r
                old_n = (len(v) - r) // 2
                into[r:] *= .3
                into[:r] = v[:r]
                into[r:r + old_n] = v[r:r + old_n]
                into[r + n:r + n + old_n] = v[r + old_n:]
                into[r + n + old_n:] = 0
            else:
                raise ValueError(k)
    m.load_state_dict(new)
    return m


if __name__ == '__main__':
    torch.manual_seed(0)
    torch.set_num_threads(int(os.environ.get('OMP_NUM_THREADS', 2)))
    for n in (16, 32):
        m = LM(64, 32, 2, n)
        ids = torch.randint(0, 64, (2, 40))
        grads = []
        for fast in (False, True):
            m.zero_grad()
            loss = F.cross_entropy(m(ids[:, :-1], fast=fast).reshape(-1, 64), ids[:, 1:].reshape(-1))
            loss.backward()
            grads.append((loss.item(), {k: p.grad.clone() for k, p in m.named_parameters()}))
        m.zero_grad()
        loss = loss_of(m, ids, torch.zeros_like(ids, dtype=torch.uint8), torch.ones(ids.shape))
        loss.backward()
        worst = max(((grads[0][1][k] - grads[1][1][k]).norm() / grads[0][1][k].norm()).item() for k in grads[0][1])
        head = max(((grads[0][1][k] - p.grad).norm() / grads[0][1][k].norm()).item() for k, p in m.named_parameters())
        # A document behind another reads as it does alone.
        two = torch.cat([ids[:1, :15], ids[1:, :25]], 1)
        reset = torch.zeros(two.shape, dtype=torch.uint8)
        reset[0, 15] = 1
        apart = (m(two, reset)[0, 15:] - m(ids[1:, :25])[0]).abs().max().item()
        print(f'n={n} losses {grads[0][0]:.6f} {grads[1][0]:.6f} {loss.item():.6f}; gradients differ by {worst:.1e}, {head:.1e}; '
              f'packed {apart:.1e}')
