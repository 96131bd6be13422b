"""The judges of chapters 5 to 7 for test_bank_itself: each holds a piece against float64 formulas and notes departures."""

from __future__ import annotations

import itertools
import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn


def _cotangent(shape) -> Tensor:
    """Weights, no two alike, by which a result is summed before it is differentiated."""
    return torch.cos(torch.arange(1.0, 1 + math.prod(shape), dtype=torch.float64)).reshape(shape)


def _judge_call(found, where, module, inputs, others, formula, rest=()) -> None:
    """One call of a module, its inputs and all gradients, held against ``formula`` of float64 copies.

    ``others`` are further tensors that receive gradients, such as parameters, by name.
    """
    copies = [x.detach().clone() for x in inputs]
    kept = [None if r is None else r.clone() for r in rest]
    for tensor in (*inputs, *others.values()):
        tensor.requires_grad_(True)
        tensor.grad = None
    got = found.call(where, module, *inputs, *rest)
    if not all(torch.equal(a, b) for a, b in zip(inputs, copies, strict=True)) or not all(
        r is None or torch.equal(r, k) for r, k in zip(rest, kept, strict=True)
    ):
        found.append(f"{where}: input changed")
        return
    exact = [x.double().requires_grad_(True) for x in copies]
    exact_others = {name: tensor.detach().double().requires_grad_(True) for name, tensor in others.items()}
    want = formula(*exact, exact_others)
    found.equal(where, got, want.detach(), inputs[0].dtype)
    if not (isinstance(got, Tensor) and got.shape == want.shape):
        return
    if not got.requires_grad:
        found.append(f"{where}: no gradient")
        return
    cotangent = _cotangent(want.shape)
    found.call(f"{where}: backward", (got * cotangent).sum().backward)
    wanted = torch.autograd.grad((want * cotangent).sum(), [*exact, *exact_others.values()])
    names = [*(f"input {i}" for i in range(len(inputs))), *others]
    for name, own, grad in zip(names, [*inputs, *others.values()], wanted, strict=True):
        if own.grad is None:
            found.append(f"{where}: no gradient for {name}")
        else:
            found.equal(f"{where}: gradient of {name}", own.grad, grad, tolerance=1e-3)


def _expect_parameters(found, where, module, wanted: dict) -> bool:
    """True when the trainable parameters and the saved state are the wanted ones."""
    shapes = {name: tuple(p.shape) for name, p in module.named_parameters(remove_duplicate=False) if p.requires_grad}
    state = {name: tuple(t.shape) for name, t in module.state_dict().items()}
    distinct = len(list(module.parameters())) == len(wanted)
    if shapes != wanted or state != wanted or not distinct or list(module.buffers()):
        found.append(f"{where}: parameters {shapes}, state {list(state)}")
        return False
    return True


# ------------------------------------------------------------------------------------------------------- chapter 5


def judge_feed_forward(space, found) -> None:
    generator = torch.Generator().manual_seed(5)
    for shape, d_ff in [((2, 3, 5), 7), ((4, 7), 3), ((6,), 4), ((2, 1, 3, 4), 9), ((3, 3), 3), ((2, 5, 6), 6)]:
        width, where = shape[-1], f"x {shape} d_ff {d_ff}"
        module = found.call(where, space.PositionwiseFeedForward, width, d_ff)
        wanted = {"linear1.weight": (d_ff, width), "linear1.bias": (d_ff,)}
        wanted |= {"linear2.weight": (width, d_ff), "linear2.bias": (width,)}
        if module is None or not _expect_parameters(found, where, module, wanted):
            continue
        for dtype, train in itertools.product((torch.float32, torch.float64), (False, True)):
            module = module.to(dtype).train(train)
            module.load_state_dict({n: torch.randn(s, generator=generator, dtype=dtype) for n, s in wanted.items()})
            x = torch.randn(shape, generator=generator, dtype=dtype)

            def formula(x, p):
                hidden = F.relu(x @ p["linear1.weight"].T + p["linear1.bias"])
                return hidden @ p["linear2.weight"].T + p["linear2.bias"]

            _judge_call(found, f"{where} {dtype} train={train}", module, [x], dict(module.named_parameters()), formula)
    # Dropout: the hidden layer is 4 everywhere, linear2 copies it and adds 10.
    for rate in (0.2, 0.6):
        module = found.call("with dropout", space.PositionwiseFeedForward, 3, 3, rate)
        wanted = {"linear1.weight": (3, 3), "linear1.bias": (3,), "linear2.weight": (3, 3), "linear2.bias": (3,)}
        if module is None or not _expect_parameters(found, "with dropout", module, wanted):
            return
        with torch.no_grad():
            for name, parameter in module.named_parameters():
                value = {"linear1.weight": 1.0, "linear1.bias": 1.0, "linear2.bias": 10.0}.get(name)
                parameter.copy_(torch.eye(3) if value is None else torch.full_like(parameter, value))
        x = torch.ones(40, 30, 3)
        _judge_dropped(found, f"dropout {rate}", module, (x,), 10.0, 4.0, rate)


def _judge_dropped(found, where, module, inputs, base: float, branch: float, rate: float) -> None:
    """In evaluation base + branch everywhere; in training base, or base + branch / (1 − rate), entry by entry."""
    for train in (False, True):
        module.train(train)
        got = found.call(f"{where} train={train}", module, *inputs)
        if not isinstance(got, Tensor) or got.shape != inputs[0].shape:
            found.append(f"{where}: no tensor {tuple(inputs[0].shape)}")
            return
        branches = (got.detach() - base) / branch
        if not train:
            found.equal(f"{where} in evaluation", branches, torch.ones_like(branches))
            continue
        gone, kept = branches.abs() < 1e-4, (branches * (1 - rate) - 1).abs() < 1e-4
        if not (gone | kept).all():
            found.append(f"{where}: entries that are neither dropped nor scaled")
        elif abs(gone.float().mean().item() - rate) > 0.06:
            found.append(f"{where}: {gone.float().mean().item():.2f} dropped")
        elif any((gone == gone.narrow(axis, 0, 1)).all() for axis in range(gone.dim())):
            found.append(f"{where}: one draw for several entries")
        again = module(*inputs)
        if torch.equal(again, got):
            found.append(f"{where}: the same draw twice")


def judge_count_parameters(space, found) -> None:
    for sizes in [
        (11, 6, 2, 9, 3),
        (11, 6, 3, 9, 3),
        (7, 5, 1, 4, 1),
        (37, 8, 8, 8, 2),
        (10**20 + 7, 3 * 10**17 + 3, 3, 10**18 + 11, 7),
        (37000, 512, 8, 2048, 6),
        (5, 1, 1, 1, 4),
    ]:
        got = found.call(f"{sizes}", space.count_parameters, *sizes)
        vocabulary, width, _, inside, layers = sizes
        want = {
            "embedding": vocabulary * width,
            "attention": 3 * layers * 4 * (width + 1) * width,
            "feed_forward": 2 * layers * ((width + 1) * inside + (inside + 1) * width),
            "norm": 10 * layers * width,
        }
        want["total"] = sum(want.values())
        if got is not None and (got != want or not all(type(number) is int for number in got.values())):
            found.append(f"{sizes}: {got}")
    small = want_of_pytorch(11, 6, 2, 9, 3)
    got = found.call("PyTorch's own", space.count_parameters, 11, 6, 2, 9, 3)
    if got is not None and got.get("total") != small:
        found.append(f"total {got.get('total')}, PyTorch's {small}")


def want_of_pytorch(vocabulary, width, heads, inside, layers) -> int:
    """The count of PyTorch's own modules, without its two final norms."""
    model = nn.Transformer(width, heads, layers, layers, inside, device="meta")
    return sum(p.numel() for p in model.parameters()) - 4 * width + vocabulary * width


# ------------------------------------------------------------------------------------------------------- chapter 6


def _norm(x, gamma, beta, eps=1e-5):
    centred = x - x.mean(-1, keepdim=True)
    return gamma * centred / torch.sqrt(centred.square().mean(-1, keepdim=True) + eps) + beta


def judge_layer_norm(space, found) -> None:
    generator = torch.Generator().manual_seed(6)
    for shape, eps in [
        ((2, 3, 5), None),
        ((4, 6), 1e-3),
        ((7,), None),
        ((2, 3, 4, 8), 0.5),
        ((3, 3), None),
        ((1, 1, 2), None),
        ((4, 4, 4), 1e-2),
    ]:
        width, where = shape[-1], f"x {shape} eps {eps}"
        module = found.call(where, space.LayerNorm, *((width,) if eps is None else (width, eps)))
        if module is None or not _expect_parameters(found, where, module, {"gamma": (width,), "beta": (width,)}):
            continue
        fresh = torch.cat([module.gamma.detach(), module.beta.detach()])
        found.equal(f"{where}: fresh parameters", fresh, torch.tensor([1.0] * width + [0.0] * width))
        x = torch.randn(shape, generator=generator)
        for kind, scale, offset in [("plain", 2.0, 1.0), ("tiny", 2e-3, 0.0), ("constant", 0.0, 3.0)]:
            for dtype, train in ((torch.float32, True), (torch.float64, False)):
                module = module.to(dtype).train(train)
                module.load_state_dict(
                    {n: 1 + torch.randn(width, generator=generator, dtype=dtype) for n in ("gamma", "beta")}
                )
                given = (x * scale + offset).to(dtype)

                def formula(x, p, eps=eps):
                    return _norm(x, p["gamma"], p["beta"], eps or 1e-5)

                parameters = dict(module.named_parameters())
                _judge_call(found, f"{where} {kind} {dtype}", module, [given], parameters, formula)
        # A mean a thousand times the standard deviation: the specification allows 1e-3 of the size of gamma.
        module = module.float()
        far = torch.randn(shape, generator=generator) + 1000
        got = found.call(f"{where} far", module, far)
        want = _norm(far.double(), module.gamma.double(), module.beta.double(), eps or 1e-5).detach()
        found.equal(f"{where} far", got, want, tolerance=2e-3)


class _Watched:
    """A callable that notes how often it is called and with what."""

    def __init__(self, function):
        self.function, self.calls = function, []

    def __call__(self, *args, **kwargs):
        self.calls.append((args, kwargs))
        return self.function(*args, **kwargs)


def judge_residual(space, found) -> None:
    generator = torch.Generator().manual_seed(61)
    for norm_first in (False, True):
        module = found.call("constructor", space.Residual, 0.0, norm_first)
        if module is None:
            return
        if list(module.state_dict()) or list(module.parameters()) or list(module.buffers()):
            found.append("it has a state")
        for index, (shape, dtype) in enumerate(
            [((2, 3, 4), torch.float32), ((5, 3), torch.float64), ((6,), torch.float32)]
        ):
            width, where = shape[-1], f"norm_first={norm_first} {shape} {dtype}"
            module.train(index % 2 == 0)
            w = {n: torch.randn(width, generator=generator, dtype=dtype) for n in ("a", "b", "gamma", "beta")}
            x = torch.randn(shape, generator=generator, dtype=dtype)
            sublayer = _Watched(lambda t, w=w: torch.tanh(t * w["a"] + w["b"]))
            norm = _Watched(lambda t, w=w: _norm(t, w["gamma"], w["beta"]))

            def formula(x, p, norm_first=norm_first):
                def f(t):
                    return torch.tanh(t * p["a"] + p["b"])

                if norm_first:
                    return x + f(_norm(x, p["gamma"], p["beta"]))
                return _norm(x + f(x), p["gamma"], p["beta"])

            def call(x, module=module, sublayer=sublayer, norm=norm):
                return module(x, sublayer, norm)

            _judge_call(found, where, call, [x], w, formula)
            for name, watched in (("sublayer", sublayer), ("norm", norm)):
                if [(len(a), k) for a, k in watched.calls] != [(1, {})]:
                    found.append(f"{where}: {name} called {len(watched.calls)} times")
        # What a callable hands back may be x itself.
        x = torch.randn(3, 4, generator=generator)
        copy = x.clone()
        got = found.call("identities", module, x, lambda t: t, lambda t: t)
        if got is not None:
            found.equal("identities", got, 2 * copy)
            found.equal("x after identities", x, copy)
        for rate in (0.3, 0.6):
            module = found.call("constructor", space.Residual, rate, norm_first)
            x = torch.full((40, 30, 3), 10.0)

            _judge_dropped(found, f"norm_first={norm_first} dropout {rate}", _Wrapped(module), (x,), 10.0, 4.0, rate)
    default = found.call("defaults", space.Residual)
    if default is not None:
        x = torch.randn(4, 5, generator=generator)
        got = found.call("defaults", default.train(), x, lambda t: t * 2, lambda t: t + 1)
        if got is not None:
            found.equal("defaults", got, 3 * x + 1)


class _Wrapped(nn.Module):
    """A residual around a constant, seen as a function of x alone."""

    def __init__(self, residual):
        super().__init__()
        self.residual = residual

    def forward(self, x):
        return self.residual(x, lambda t: torch.full_like(t, 4.0), lambda t: t)


class _Attention(nn.Module):
    """Stands for an attention: query, key, value and mask enter in different ways, all trained."""

    def __init__(self, width, generator):
        super().__init__()
        for name in ("q", "k", "v"):
            setattr(self, name, nn.Parameter(torch.randn(width, generator=generator)))
        self.masks: list = []

    def forward(self, *args):
        query, key, value, mask = (*args, None)[:4]
        self.masks.append(mask)
        return _attend(query, key, value, mask, {"q": self.q, "k": self.k, "v": self.v})


def _attend(query, key, value, mask, p):
    scores = (query * p["q"]) @ (key * p["k"]).transpose(-1, -2)
    scores = torch.tanh(scores)
    if mask is not None:
        scores = scores * mask
    return scores @ (value * p["v"]) / key.size(-2)


class _FeedForward(nn.Module):
    def __init__(self, width, generator):
        super().__init__()
        self.scale = nn.Parameter(torch.randn(width, generator=generator))

    def forward(self, *args):
        (x,) = args
        return torch.tanh(x * self.scale + 0.3)


def _sub(p, name):
    return {key.rpartition(".")[2]: value for key, value in p.items() if key.startswith(f"{name}.")}


def _wired(norm_first, x, steps):
    """Each step's function and norm in turn, in either order."""
    for function, norm in steps:
        x = x + function(norm(x)) if norm_first else norm(x + function(x))
    return x


def _judge_layer(space, found, name, attentions, formula, lengths, masks_of) -> None:
    """An encoder or decoder layer: values, gradients, masks, parameters, dropout, both orders."""
    generator = torch.Generator().manual_seed(62)
    norms = [f"norm{i + 1}" for i in range(len(attentions) + 1)]
    for norm_first, (batch, *sizes, width) in itertools.product((False, True), lengths):
        where = f"norm_first={norm_first} {(batch, *sizes, width)}"
        parts = {a: _Attention(width, generator) for a in attentions}
        parts["feed_forward"] = _FeedForward(width, generator)
        module = found.call(where, getattr(space, name), *parts.values(), width, 0.0, norm_first)
        if module is None:
            return
        wanted = {f"{n}.{p}": (width,) for n in norms for p in ("gamma", "beta")}
        wanted |= {f"{a}.{p}": (width,) for a in attentions for p in "qkv"} | {"feed_forward.scale": (width,)}
        if not _expect_parameters(found, where, module, wanted):
            continue
        if any(getattr(module, part) is not given for part, given in parts.items()):
            found.append(f"{where}: not the very objects")
            continue
        with torch.no_grad():
            for norm in norms:
                for parameter in (getattr(module, norm).gamma, getattr(module, norm).beta):
                    parameter.copy_(1 + 0.7 * torch.randn(width, generator=generator))
        for dtype, train in ((torch.float32, True), (torch.float64, False)):
            module = module.to(dtype).train(train)
            for masks in masks_of(batch, *sizes, generator):
                inputs = [torch.randn(batch, s, width, generator=generator, dtype=dtype) * 2 + 0.5 for s in sizes]
                for attention in attentions:
                    parts[attention].masks.clear()
                kinds = [None if m is None else tuple(m.shape) for m in masks]

                def exact(*args, masks=masks, norm_first=norm_first):
                    return formula(norm_first, *args, masks)

                label = f"{where} {dtype} masks {kinds}"
                _judge_call(found, label, module, inputs, dict(module.named_parameters()), exact, masks)
                for attention, mask in zip(attentions, masks, strict=True):
                    seen = parts[attention].masks
                    same = len(seen) == 1 and (
                        seen[0] is None if mask is None else seen[0] is not None and torch.equal(seen[0], mask)
                    )
                    if not same:
                        found.append(f"{label}: {attention} was called with other masks")
    for norm_first, rate in itertools.product((False, True), (0.3, 0.6)):
        _judge_layer_dropout(space, found, name, len(attentions) + 1, norm_first, rate, len(lengths[0]) - 2)


class _Constant(nn.Module):
    def __init__(self, value):
        super().__init__()
        self.value = value

    def forward(self, x, *rest):
        return torch.full_like(x, self.value)


def _judge_layer_dropout(space, found, name, number, norm_first, rate, inputs) -> None:
    """Sub-layers that return constants, norms that do nothing: dropout acts on each branch by itself."""
    x = torch.full((40, 30, 3), 10.0)
    given = (x,) * inputs
    for index in range(number):
        values = [4.0 if i == index else 0.0 for i in range(number)]
        module = found.call("constructor", getattr(space, name), *map(_Constant, values), 3, rate, norm_first)
        if module is None:
            return
        for i in range(number):
            setattr(module, f"norm{i + 1}", nn.Identity())
        where = f"norm_first={norm_first} dropout {rate} of sub-layer {index + 1}"
        _judge_dropped(found, where, module, given, 10.0, 4.0, rate)
    module = getattr(space, name)(*map(_Constant, [4.0] * number), 3, rate, norm_first).train()
    for i in range(number):
        setattr(module, f"norm{i + 1}", nn.Identity())
    counts = ((module(*given).detach() - 10) * (1 - rate) / 4).round().unique().tolist()
    if counts != list(range(number + 1)):
        found.append(f"norm_first={norm_first} dropout {rate}: the draws of the sub-layers hang together: {counts}")


def judge_encoder_layer(space, found) -> None:
    def masks_of(batch, length, generator):
        some = torch.rand(batch, length, length, generator=generator) < 0.5
        return [(None,), (some,), (some[:, :1],)]

    def formula(norm_first, x, p, masks):
        def attention(t):
            return _attend(t, t, t, masks[0], _sub(p, "self_attention"))

        steps = [(attention, 1), (lambda t: torch.tanh(t * p["feed_forward.scale"] + 0.3), 2)]
        return _wired(norm_first, x, [(f, lambda t, i=i: _norm(t, **_sub(p, f"norm{i}"))) for f, i in steps])

    lengths = [(2, 3, 5), (3, 4, 4), (1, 6, 3)]
    _judge_layer(space, found, "EncoderLayer", ["self_attention"], formula, lengths, masks_of)


# ------------------------------------------------------------------------------------------------------- chapter 7


def _judge_ids(found, piece, formula) -> None:
    """A mask of ids (B, L) and a padding id, entry by entry."""
    generator = torch.Generator().manual_seed(7)
    for rows, pad in [
        ([[5, 7, 3, 0, 0], [4, 6, 0, 0, 0]], 0),
        ([[5, 0, 3, 1, 1], [4, 6, 1, 1, 1]], 1),
        ([[0, 0, 5, 7, 3], [0, 4, 6, 2, 9]], 0),
        ([[5, 9, 3, 9, 7, 2]], 9),
        ([[5, 9], [9, 9], [9, 3]], 9),
        ([[4], [2]], 2),
        ([[3, 4, 5, 6]], 0),
        (torch.randint(0, 4, (4, 4), generator=generator).tolist(), 3),
        (torch.randint(0, 6, (3, 7), generator=generator).tolist(), 2),
        ([[-1, 0, 4], [2, -1, -1]], -1),
    ]:
        ids = torch.tensor(rows)
        copy, where = ids.clone(), f"ids {rows} pad {pad}"
        got = found.call(where, piece, ids, pad)
        if not torch.equal(ids, copy):
            found.append(f"{where}: ids changed")
            continue
        found.equal(where, got, formula(rows, pad), torch.bool)


def judge_padding_mask(space, found) -> None:
    def formula(rows, pad):
        return torch.tensor([[[[token != pad for token in row]]] for row in rows])

    _judge_ids(found, space.padding_mask, formula)


def judge_causal_mask(space, found) -> None:
    for size in (5, 1, 2, 3, 17, 40, 4):
        got = found.call(f"{size}", space.causal_mask, size)
        if got is not None:
            want = torch.tensor([[j <= i for j in range(size)] for i in range(size)])
            found.equal(f"{size}", got, want, torch.bool)


def judge_target_mask(space, found) -> None:
    def formula(rows, pad):
        size = range(len(rows[0]))
        return torch.tensor([[[[j <= i and row[j] != pad for j in size] for i in size]] for row in rows])

    _judge_ids(found, space.target_mask, formula)


def judge_decoder_layer(space, found) -> None:
    def masks_of(batch, target, source, generator):
        causal = torch.ones(target, target, dtype=torch.bool).tril()
        padding = torch.rand(batch, 1, 1, source, generator=generator) < 0.6
        padding[..., 0] = True
        own = causal & (torch.rand(batch, 1, 1, target, generator=generator) < 0.6)
        return [(None, None), (causal, None), (None, padding[:, 0]), (own[:, 0], padding[:, 0])]

    def formula(norm_first, x, memory, p, masks):
        def own(t):
            return _attend(t, t, t, masks[0], _sub(p, "self_attention"))

        def other(t):
            return _attend(t, memory, memory, masks[1], _sub(p, "cross_attention"))

        def think(t):
            return torch.tanh(t * p["feed_forward.scale"] + 0.3)

        steps = [
            (f, lambda t, i=i: _norm(t, **_sub(p, f"norm{i}"))) for i, f in enumerate((own, other, think), start=1)
        ]
        return _wired(norm_first, x, steps)

    lengths = [(2, 3, 6, 5), (3, 4, 4, 4), (1, 5, 2, 3)]
    attentions = ["self_attention", "cross_attention"]
    _judge_layer(space, found, "DecoderLayer", attentions, formula, lengths, masks_of)


JUDGES = {
    "PositionwiseFeedForward": judge_feed_forward,
    "count_parameters": judge_count_parameters,
    "LayerNorm": judge_layer_norm,
    "Residual": judge_residual,
    "EncoderLayer": judge_encoder_layer,
    "padding_mask": judge_padding_mask,
    "causal_mask": judge_causal_mask,
    "target_mask": judge_target_mask,
    "DecoderLayer": judge_decoder_layer,
}
