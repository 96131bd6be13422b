"""The judges of chapter 8 for test_bank_itself: pooling, encoder and classifier against loops and float64 formulas."""

from __future__ import annotations

import itertools

import torch
from torch import Tensor, nn

from .judges_ch05_to_ch07 import _cotangent, _expect_parameters, _judge_call


def _masks(batch: int, length: int, generator) -> dict[str, Tensor]:
    """Masks (B, L) with at least one True in each row."""
    lengths = torch.randint(1, length + 1, (batch, 1), generator=generator)
    behind = torch.arange(length) < lengths
    anywhere = torch.rand(batch, length, generator=generator) < 0.5
    anywhere[torch.arange(batch), torch.randint(length, (batch,), generator=generator)] = True
    return {"none": torch.ones(batch, length).bool(), "behind": behind, "before": behind.flip(1), "anywhere": anywhere}


def _means(hidden: Tensor, mask: Tensor) -> Tensor:
    rows = []
    for row, real in zip(hidden, mask, strict=True):
        total, count = torch.zeros_like(row[0]), 0
        for token, counts in zip(row, real.tolist(), strict=True):
            if counts:
                total, count = total + token, count + 1
        rows.append(total / count)
    return torch.stack(rows)


def judge_masked_mean_pool(space, found) -> None:
    generator = torch.Generator().manual_seed(81)
    for shape in ((3, 5, 4), (2, 7, 3), (1, 4, 6), (4, 1, 3), (3, 4, 1), (4, 4, 4), (1, 1, 1), (1, 1, 5), (5, 2, 2)):
        for kind, mask in _masks(*shape[:2], generator).items():
            for dtype, loud in itertools.product((torch.float32, torch.float64), (1.0, 1e20)):
                hidden = torch.randn(shape, generator=generator, dtype=dtype) + 0.5
                hidden = hidden.where(mask.unsqueeze(-1), hidden * loud)
                where = f"hidden {shape} {dtype} padding {kind} × {loud:g}"

                def formula(hidden, _, mask=mask):
                    return _means(hidden, mask)

                copy = hidden.clone()
                found.call(where, space.masked_mean_pool, hidden, mask)
                if not torch.equal(hidden, copy):
                    found.append(f"{where}: hidden changed")
                _judge_call(found, where, space.masked_mean_pool, [copy], {}, formula, (mask,))


class _Layer(nn.Module):
    """Tokens that read the open ones, each layer in its own way; notes the masks that it is given."""

    def __init__(self, width: int, generator):
        super().__init__()
        self.own, self.read = (nn.Parameter(torch.randn(width, width, generator=generator)) for _ in range(2))
        self.masks: list = []

    def forward(self, *args):
        x, mask = (*args, None)[:2]
        self.masks.append(mask)
        if len(args) > 2:
            raise TypeError("too many arguments")
        return _read(x, mask, self.own, self.read)


def _read(x, mask, own, read):
    rows = torch.ones(len(x), x.size(1), x.size(1), dtype=x.dtype)
    if mask is not None:
        rows = rows * mask[:, 0]
    mean = rows @ x / rows.sum(-1, keepdim=True).clamp(min=1)
    return torch.tanh(x @ own + mean @ read)


class _Norm(nn.Module):
    def __init__(self, width: int, generator):
        super().__init__()
        self.gain = nn.Parameter(torch.randn(width, generator=generator))
        self.count = 0

    def forward(self, x):
        self.count += 1
        return self.gain * x.sin()


def judge_encoder(space, found) -> None:
    generator = torch.Generator().manual_seed(82)
    for plan, (batch, length, width) in itertools.product(
        ("0", "01", "0123", "010", "00"), ((2, 4, 3), (3, 3, 5), (1, 5, 2))
    ):
        for with_norm in (False, True):
            where = f"layers {plan} norm {with_norm} {(batch, length, width)}"
            layers = [_Layer(width, generator) for _ in range(4)]
            given = [layers[int(place)] for place in plan]
            norm = _Norm(width, generator) if with_norm else None
            module = found.call(where, space.Encoder, given, *((norm,) if with_norm else ()))
            if module is None:
                continue
            state = {f"layers.{i}.{name}": (width, width) for i in range(len(plan)) for name in ("own", "read")}
            state |= {"norm.gain": (width,)} if with_norm else {}
            shapes = {name: tuple(value.shape) for name, value in module.state_dict().items()}
            if shapes != state:
                found.append(f"{where}: state {shapes}")
                continue
            if [id(layer) for layer in module.layers] != [id(layer) for layer in given]:
                found.append(f"{where}: not the very objects")
                continue
            if getattr(module, "norm", "none") is not norm:
                found.append(f"{where}: not the very norm")
            masks = _masks(batch, length, generator)
            pairs = torch.rand(batch, 1, length, length, generator=generator) < 0.5
            for index, mask in enumerate(
                (None, masks["behind"][:, None, None], masks["anywhere"][:, None, None], pairs)
            ):
                dtype = torch.float64 if index == 1 else torch.float32
                module = module.to(dtype).train(index % 2 == 0)
                for layer in layers:
                    layer.masks.clear()
                if norm is not None:
                    norm.count = 0
                x = torch.randn(batch, length, width, generator=generator, dtype=dtype)

                def formula(x, p, mask=mask, plan=plan):
                    for place in plan:
                        x = _read(x, mask, p[f"{place}.own"], p[f"{place}.read"])
                    return p["gain"] * x.sin() if "gain" in p else x

                others = {f"{i}.{name}": p for i in set(plan) for name, p in layers[int(i)].named_parameters()}
                others |= {} if norm is None else {"gain": norm.gain}
                rest = () if mask is None else (mask,)
                _judge_call(found, f"{where} mask {index} {dtype}", module, [x], others, formula, rest)
                for i in set(plan):
                    seen = layers[int(i)].masks
                    same = all(s is None if mask is None else s is not None and torch.equal(s, mask) for s in seen)
                    if len(seen) != plan.count(i) or not same:
                        found.append(f"{where} mask {index}: layer {i} got other masks, or another number of them")
                if norm is not None and norm.count != 1:
                    found.append(f"{where}: the norm was called {norm.count} times")


class _Table(nn.Module):
    """Ids look up its rows, numbers multiply the first."""

    def __init__(self, size: int, width: int, generator):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(size, width, generator=generator))

    def forward(self, inputs):
        return _embedded(inputs, self.weight)


def _embedded(inputs, weight):
    return inputs.unsqueeze(-1) * weight[0] if inputs.is_floating_point() else weight[inputs]


def judge_sequence_classifier(space, found) -> None:
    generator = torch.Generator().manual_seed(83)
    for batch, length, width, classes in ((3, 5, 4, 2), (2, 6, 3, 5), (1, 4, 5, 3), (4, 4, 4, 4), (5, 1, 3, 2)):
        where = f"{(batch, length, width, classes)}"
        embed, encoder = _Table(9, width, generator), _Layer(width, generator)
        module = found.call(where, space.SequenceClassifier, embed, encoder, width, classes)
        if module is None:
            continue
        wanted = {"embed.weight": (9, width), "encoder.own": (width, width), "encoder.read": (width, width)}
        wanted |= {"head.weight": (classes, width), "head.bias": (classes,)}
        if not _expect_parameters(found, where, module, wanted):
            continue
        if module.embed is not embed or module.encoder is not encoder or not isinstance(module.head, nn.Linear):
            found.append(f"{where}: other parts than were given")
            continue
        for index, (kind, mask) in enumerate(_masks(batch, length, generator).items()):
            for dtype, numbers in itertools.product((torch.float32, torch.float64), (False, True)):
                module = module.to(dtype).train(index % 2 == 0)
                encoder.masks.clear()
                label = f"{where} {dtype} {'numbers' if numbers else 'ids'} padding {kind}"
                inputs = torch.randint(0, 9, (batch, length), generator=generator)
                parameters = dict(module.named_parameters())

                def formula(inputs, p, mask=mask):
                    vectors = _embedded(inputs, p["embed.weight"])
                    hidden = _read(vectors, mask[:, None, None], p["encoder.own"], p["encoder.read"])
                    return _means(hidden, mask) @ p["head.weight"].T + p["head.bias"]

                if numbers:
                    inputs = torch.randn(batch, length, generator=generator, dtype=dtype)
                    _judge_call(found, label, module, [inputs], parameters, formula, (mask,))
                else:
                    _judge_ids(found, label, module, inputs, mask, parameters, formula)
                seen = encoder.masks
                if len(seen) != 1 or seen[0] is None or not _same(seen[0], mask[:, None, None]):
                    found.append(f"{label}: the encoder got another mask")


def _same(a: Tensor, b: Tensor) -> bool:
    return a.dtype == b.dtype and a.shape == b.shape and torch.equal(a, b)


def _judge_ids(found, where, module, ids, mask, parameters, formula) -> None:
    """Values and gradients for ids, which have no gradient themselves."""
    copies = ids.clone(), mask.clone()
    module.zero_grad()
    got = found.call(where, module, ids, mask)
    if not (torch.equal(ids, copies[0]) and torch.equal(mask, copies[1])):
        found.append(f"{where}: input changed")
        return
    exact = {name: p.detach().double().requires_grad_(True) for name, p in parameters.items()}
    want = formula(ids, exact)
    found.equal(where, got, want.detach(), next(iter(parameters.values())).dtype)
    if not (isinstance(got, Tensor) and got.shape == want.shape and got.requires_grad):
        found.append(f"{where}: no gradient")
        return
    cotangent = _cotangent(want.shape)
    (got * cotangent).sum().backward()
    for (name, p), grad in zip(
        parameters.items(), torch.autograd.grad((want * cotangent).sum(), list(exact.values())), strict=True
    ):
        if p.grad is None:
            found.append(f"{where}: no gradient for {name}")
        else:
            found.equal(f"{where}: gradient of {name}", p.grad, grad, tolerance=1e-3)


JUDGES = {
    "masked_mean_pool": judge_masked_mean_pool,
    "Encoder": judge_encoder,
    "SequenceClassifier": judge_sequence_classifier,
}
