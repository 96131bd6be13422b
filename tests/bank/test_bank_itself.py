"""The bank holds what it says: every right entry meets the specification, every wrong one breaks it somewhere.

Judged here without the autograder, by closed forms in float64 NumPy and by PyTorch's own operators.
"""

from __future__ import annotations

import contextlib
import inspect
import math
import re
from collections import Counter
from collections.abc import Callable

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from . import Entry, entries, judges_ch05_to_ch07, judges_ch08, judges_ch09, judges_ch10, load

TOLERANCE = 1e-4  # of the specification; what is right stays well below, see the last test
PIECES = (
    "one_hot_lookup",
    "TokenEmbedding",
    "positional_encoding",
    "shift_matrix",
    "TransformerEmbedding",
    "softmax",
    "scaled_dot_product_attention",
    "SelfAttention",
    "split_heads",
    "merge_heads",
    "MultiHeadAttention",
    *judges_ch05_to_ch07.JUDGES,
    *judges_ch08.JUDGES,
    *judges_ch09.JUDGES,
    *judges_ch10.JUDGES,
)


class Enough(Exception):
    """One departure is found."""


class Findings(list):
    """Where an implementation departs from the specification, one line each; ``ran`` counts the calls that returned.

    With ``one`` the first departure of an implementation that runs ends the judging: ``Enough`` is raised.
    """

    largest = 0.0

    def __init__(self, one: bool = False):
        super().__init__()
        self.one, self.ran = one, 0

    def append(self, line: str):
        super().append(line)
        if self.one and self.ran:
            raise Enough

    def equal(self, where: str, got, want: Tensor, dtype: torch.dtype | None = None, tolerance: float = TOLERANCE):
        if not isinstance(got, Tensor):
            return self.append(f"{where}: a {type(got).__name__}")
        if got.shape != want.shape:
            return self.append(f"{where}: shape {tuple(got.shape)}")
        if dtype is not None and got.dtype != dtype:
            return self.append(f"{where}: dtype {got.dtype}")
        deviation = (got.detach().double() - want.double()).abs().max().item() if want.numel() else 0.0
        if not deviation <= tolerance * max(1.0, want.double().abs().max().item()):  # NaN is no number below anything
            return self.append(f"{where}: off by {deviation:.3g}")
        self.largest = max(self.largest, deviation)
        return None

    def call(self, where: str, piece: Callable, *args, **kwargs):
        try:
            result = piece(*args, **kwargs)
        except Exception as error:
            self.append(f"{where}: {type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}")
            return None
        self.ran += 1
        return result


def _same(tensors, copies) -> bool:
    return all(torch.equal(t, c) for t, c in zip(tensors, copies, strict=True))


# ------------------------------------------------------------------------------------------------------- chapter 1


def _cotangent(shape) -> Tensor:
    """Weights, no two alike, by which a result is summed before it is differentiated."""
    return torch.cos(torch.arange(1.0, 1 + math.prod(shape), dtype=torch.float64)).reshape(shape)


def judge_one_hot_lookup(space, found: Findings) -> None:
    generator = torch.Generator().manual_seed(1)
    for dtype in (torch.float32, torch.float64):
        for shape, rows, width in [
            ((4,), 7, 5),
            ((), 5, 3),
            ((3, 4), 6, 4),
            ((2, 1, 3), 5, 8),
            ((1, 1), 9, 2),
            ((6,), 2, 1),
            ((2, 3, 2, 2), 4, 6),
            ((2, 9), 3, 7),
        ]:
            for largest in (rows, max(1, rows - 2)):  # the last rows don't occur the second time
                where = f"{dtype} ids {shape} below {largest} table ({rows}, {width})"
                ids = torch.randint(0, largest, shape, generator=generator)
                table = torch.randn(rows, width, generator=generator, dtype=dtype, requires_grad=True)
                ids_copy, copy = ids.clone(), table.detach().clone()
                got = found.call(where, space.one_hot_lookup, ids, table)
                if not (ids.shape == ids_copy.shape and _same((ids, table.detach()), (ids_copy, copy))):
                    found.append(f"{where}: input changed")
                    continue
                want = torch.from_numpy(np.take(copy.numpy(), ids_copy.numpy(), axis=0))
                found.equal(where, got, want, dtype)
                if not (isinstance(got, Tensor) and got.shape == want.shape):
                    continue
                if not got.requires_grad:
                    found.append(f"{where}: no gradient")
                    continue
                cotangent = _cotangent(want.shape)
                (grad,) = torch.autograd.grad((got * cotangent).sum(), table, allow_unused=True)
                total = np.zeros((rows, width))
                np.add.at(total, ids_copy.numpy(), cotangent.numpy())
                found.equal(f"{where}: gradient", grad, torch.from_numpy(total))


def judge_token_embedding(space, found: Findings) -> None:
    generator = torch.Generator().manual_seed(2)
    for vocabulary, width, pad, shape in [
        (11, 6, 3, (2, 5)),
        (7, 5, 0, (4,)),
        (9, 16, 8, (3, 4)),
        (12, 7, None, (3, 1)),
        (5, 9, "default", (1, 6)),
        (6, 1, 2, (2, 3, 4)),
        (8, 10, None, (2, 2)),
    ]:
        where = f"({vocabulary}, {width}, {pad}) ids {shape}"
        sizes = (vocabulary, width) if pad == "default" else (vocabulary, width, pad)
        pad = None if pad == "default" else pad
        module = found.call(where, space.TokenEmbedding, *sizes)
        if module is None:
            continue
        parameters = {name: tuple(p.shape) for name, p in module.named_parameters() if p.requires_grad}
        wanted = {"embedding.weight": (vocabulary, width)}
        if parameters != wanted or list(module.state_dict()) != list(wanted):
            found.append(f"{where}: parameters {parameters}, state {list(module.state_dict())}")
            continue
        weight = module.embedding.weight
        still = (weight.detach() == 0).all(dim=1).nonzero().flatten().tolist()
        if still != ([] if pad is None else [pad]):
            found.append(f"{where}: rows {still} are zero at the start")
        loaded = torch.randn(vocabulary, width, generator=generator) + 0.3
        if pad is not None:
            loaded[pad] = 0
        for mode, dtype in [(False, torch.float32), (True, torch.float32), (False, torch.float64)]:
            module = module.train(mode).to(dtype)
            module.load_state_dict({"embedding.weight": loaded.to(dtype)})
            module.zero_grad()
            ids = torch.randint(0, vocabulary, shape, generator=generator)
            ids.view(-1)[0] = ids.view(-1)[-1] = vocabulary - 1
            ids.view(-1)[1] = 0 if pad is None else pad
            copy = ids.clone()
            got = found.call(where, module, ids)
            if not torch.equal(ids, copy):
                found.append(f"{where}: ids changed")
                continue
            want = loaded.double()[copy] * width**0.5
            found.equal(f"{where} train={mode} {dtype}", got, want, dtype)
            if not torch.equal(weight, loaded.to(dtype)):
                found.append(f"{where}: the table changed")
                continue
            if not (isinstance(got, Tensor) and got.shape == want.shape and got.requires_grad):
                found.append(f"{where}: no gradient")
                continue
            cotangent = _cotangent(want.shape)
            (got * cotangent).sum().backward()
            total = np.zeros((vocabulary, width))
            np.add.at(total, copy.numpy(), cotangent.numpy() * math.sqrt(width))
            if pad is not None:
                total[pad] = 0
            if weight.grad is None:
                found.append(f"{where}: no gradient for the table")
            else:
                found.equal(f"{where}: gradient", weight.grad, torch.from_numpy(total))


# ------------------------------------------------------------------------------------------------------- chapter 2


def table(length: int, width: int) -> Tensor:
    column = np.arange(width)
    angle = np.arange(length)[:, None] * np.exp(-np.log(1e4) * (column // 2 * 2) / width)
    return torch.from_numpy(np.where(column % 2, np.cos(angle), np.sin(angle)))


def judge_positional_encoding(space, found: Findings) -> None:
    piece = space.positional_encoding
    for length, width in [(7, 6), (1, 2), (6, 4), (9, 6), (4, 6), (50, 16), (1001, 4), (1001, 64), (3, 512)]:
        where = f"({length}, {width})"
        got = found.call(where, piece, length, width)
        if got is not None:
            found.equal(where, got, table(length, width), torch.float32)
            if isinstance(got, Tensor) and got.requires_grad:
                found.append(f"{where}: carries a gradient")


def judge_shift_matrix(space, found: Findings) -> None:
    piece = space.shift_matrix
    for offset, width in [(3, 6), (0, 6), (-3, 6), (1, 2), (-1, 2), (7, 10), (-1000, 12), (1000, 12), (41, 4), (5, 64)]:
        where = f"({offset}, {width})"
        got = found.call(where, piece, offset, width)
        if got is None:
            continue
        want = torch.zeros(width, width, dtype=torch.float64)
        for i in range(0, width, 2):
            angle = offset / 1e4 ** (i / width)
            want[i, i] = want[i + 1, i + 1] = math.cos(angle)
            want[i, i + 1], want[i + 1, i] = math.sin(angle), -math.sin(angle)
        # The matrix written above is checked by what it is for.
        rows = table(1200, width)
        first = max(0, -offset)
        assert torch.allclose(rows[first + offset : first + offset + 9], rows[first : first + 9] @ want.T, atol=1e-9)
        found.equal(where, got, want, torch.float32)
        if isinstance(got, Tensor) and got.shape == want.shape:
            blocks = torch.block_diag(*[torch.ones(2, 2)] * (width // 2)).bool()
            if got[~blocks].any():
                found.append(f"{where}: an entry outside the blocks is not 0")


def judge_transformer_embedding(space, found: Findings) -> None:
    vocabulary, width, longest, pad = 11, 6, 9, 2

    def make(where: str, *args, **kwargs):
        return found.call(where, space.TransformerEmbedding, *args, **kwargs)

    def weight_of(module: torch.nn.Module) -> Tensor:
        alike = [p for p in module.parameters() if p.dim() == 2 and p.size(0) == vocabulary]
        return alike[0] if alike else torch.zeros(vocabulary, 1)

    for batch, length in [(3, 5), (2, 9), (9, 1), (1, 4), (4, 4)]:
        where = f"ids ({batch}, {length})"
        module = make("constructor", vocabulary, width, longest, pad_id=pad)
        if module is None:
            return
        if list(module.state_dict()) != ["token.embedding.weight"]:
            found.append(f"state: {list(module.state_dict())}")
        if [name for name, _ in module.named_parameters()] != ["token.embedding.weight"]:
            found.append(f"parameters: {[name for name, _ in module.named_parameters()]}")
        for mode, dtype in [(False, torch.float32), (True, torch.float32), (False, torch.float64)]:
            module = module.train(mode).to(dtype)
            module.zero_grad()
            weight = weight_of(module)
            ids = torch.randint(0, vocabulary, (batch, length))
            ids[0, 0] = pad
            ids[-1, -1] = 1
            copy = ids.clone()
            got = found.call(where, module, ids)
            if got is None:
                continue
            if not torch.equal(ids, copy):
                found.append(f"{where}: ids changed")
            want = weight.detach()[copy].double() * math.sqrt(width) + table(length, width)
            found.equal(f"{where}, train={mode}, {dtype}", got, want, dtype)
            if not (isinstance(got, Tensor) and got.requires_grad):
                found.append(f"{where}: no gradient")
                continue
            got.sum().backward()
            count = torch.bincount(copy.flatten(), minlength=vocabulary).double()
            count[pad] = 0
            if weight.grad is None:
                found.append(f"{where}: no gradient for the embedding")
            elif weight.grad.shape == (vocabulary, width):
                found.equal(f"{where}: gradient", weight.grad, count[:, None].expand(-1, width) * math.sqrt(width))

    module = make("on another device", vocabulary, width, longest)
    if module is not None:
        found.call("on another device", module.to("meta").eval(), torch.zeros(2, 4, dtype=torch.int64, device="meta"))

    module = make("padding 0", vocabulary, width, longest, pad_id=0)
    if module is not None and weight_of(module)[0].any():
        found.append("padding 0: its row is not zero")

    module = make("without padding", vocabulary, width, longest)
    if module is not None:
        ids = torch.tensor([[0, 1, 2, 0]])
        got = found.call("without padding", module.eval(), ids)
        weight = weight_of(module)
        if got is not None:
            want = weight.detach()[ids].double() * math.sqrt(width) + table(4, width)
            found.equal("without padding", got, want, torch.float32)
        if isinstance(got, Tensor) and got.requires_grad and got.shape == (1, 4, width):
            got.sum().backward()
            if weight.grad is not None and not weight.grad[0].all():
                found.append("without padding: id 0 is not trained")

    module = make("with dropout", vocabulary, 64, 40, dropout=0.3)
    if module is not None:
        ids = torch.randint(0, vocabulary, (8, 40))
        whole = found.call("with dropout, eval", module.eval(), ids)
        torch.manual_seed(0)
        thinned = found.call("with dropout, train", module.train(), ids)
        if isinstance(whole, Tensor) and isinstance(thinned, Tensor) and whole.shape == thinned.shape == (8, 40, 64):
            want = weight_of(module).detach()[ids].double() * 8 + table(40, 64)
            found.equal("with dropout, eval", whole, want)
            zero = thinned == 0
            share = zero.double().mean().item()
            if abs(share - 0.3) > 0.03:
                found.append(f"with dropout: {share:.0%} zeros")
            found.equal("with dropout, what is left", thinned, (want / 0.7).masked_fill(zero, 0.0))
            for axis in range(3):
                if (zero == zero.narrow(axis, 0, 1)).all():
                    found.append(f"with dropout: all alike along axis {axis}")
            if torch.equal(thinned, module(ids)):
                found.append("with dropout: the same entries in a second call")


# ------------------------------------------------------------------------------------------------------- chapter 3


def exact_softmax(scores: Tensor, dim: int) -> Tensor:
    s = scores.detach().double().numpy()
    e = np.exp(s - s.max(axis=dim, keepdims=True))
    return torch.from_numpy(e / e.sum(axis=dim, keepdims=True))


def judge_softmax(space, found: Findings) -> None:
    piece = space.softmax
    generator = torch.Generator().manual_seed(5)
    for dtype in (torch.float32, torch.float64):
        for shape, dim in [((4, 7), -1), ((7,), 0), ((2, 3, 5), 1), ((2, 3, 5), 0), ((2, 3, 5), -2), ((4, 1), -1)]:
            plain = torch.randn(shape, generator=generator, dtype=dtype) * 3
            blocked = plain.masked_fill(torch.rand(shape, generator=generator) < 0.4, -math.inf)
            first = blocked.select(dim, 0)
            first.copy_(plain.select(dim, 0))
            far = plain * 100
            far.select(0, -1).sub_(1000.0)
            low = plain - 1000.0
            huge = torch.where(plain == plain.amax(dim, keepdim=True), 1e30, -1e30).to(dtype)
            distant, deep = plain * 1e5, blocked * 1e5 - 1e7
            cases = {"plain": plain, "blocked": blocked, "far": far, "low": low, "huge": huge}
            cases |= {"distant": distant, "deep": deep}
            for kind, scores in cases.items():
                where = f"{kind} {dtype} {shape} dim={dim}"
                scores = scores.clone().requires_grad_(True)
                copy = scores.detach().clone()
                got = found.call(where, piece, scores, dim=dim)
                if not torch.equal(scores.detach(), copy):
                    found.append(f"{where}: scores changed")
                    continue
                found.equal(where, got, exact_softmax(copy, dim), dtype)
                if not isinstance(got, Tensor) or got.shape != copy.shape:
                    continue
                if got.detach()[copy == -math.inf].any():
                    found.append(f"{where}: a score of −∞ has a weight")
                if not got.requires_grad:
                    found.append(f"{where}: no gradient")
                    continue
                cotangent = torch.cos(torch.arange(1.0, 1 + copy.numel()).view(shape)).to(dtype)
                if got.dtype == dtype:
                    (grad,) = torch.autograd.grad((got * cotangent).sum(), scores, allow_unused=True)
                    w = exact_softmax(copy, dim)
                    want = w * (cotangent - (w * cotangent).sum(dim, keepdim=True))
                    found.equal(f"{where}: gradient", grad, want)
    scores = torch.randn(3, 4, generator=generator)
    found.equal("default dim", found.call("default dim", piece, scores), exact_softmax(scores, -1))
    found.equal("dim by place", found.call("dim by place", piece, scores, 0), exact_softmax(scores, 0))


def exact_attention(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor]:
    q, k, v = (t.double() for t in (q, k, v))
    weights = F.scaled_dot_product_attention(q, k, torch.eye(k.size(-2)).double().expand(*k.shape[:-1], -1), mask)
    return F.scaled_dot_product_attention(q, k, v, mask), weights


def _masks(leading: tuple[int, ...], queries: int, keys: int, generator) -> dict[str, Tensor | None]:
    def some(*shape):
        mask = torch.rand(shape, generator=generator) < 0.5
        return mask.scatter(-1, torch.randint(0, shape[-1], (*shape[:-1], 1), generator=generator), True)

    masks = {"none": None, "queries × keys": some(queries, keys), "keys": some(1, keys)}
    if leading:
        masks["full"] = some(*leading, queries, keys)
        masks["padding"] = some(leading[0], *[1] * (len(leading) - 1), 1, keys)
        masks["first axis 1"] = some(1, *leading[1:], queries, keys)
    return masks


def judge_attention(space, found: Findings) -> None:
    piece = space.scaled_dot_product_attention
    generator = torch.Generator().manual_seed(6)
    for dtype in (torch.float32, torch.float64):
        for leading, queries, keys, width, values in [
            ((2, 3), 4, 6, 5, 7),
            ((2,), 6, 4, 9, 3),
            ((), 3, 5, 8, 2),
            ((3, 2), 5, 5, 6, 6),
            ((2, 1, 3), 2, 7, 3, 4),
            ((2,), 1, 4, 6, 3),
        ]:
            for name, mask in _masks(leading, queries, keys, generator).items():
                for scale in (1.0, 15.0):
                    where = f"{dtype} {(*leading, queries, keys, width, values)} mask {name} ×{scale:g}"
                    inputs = [
                        (torch.randn(*leading, *size, generator=generator, dtype=dtype) * factor).requires_grad_(True)
                        for size, factor in (((queries, width), scale), ((keys, width), scale), ((keys, values), 1.0))
                    ]
                    copies = [t.detach().clone() for t in inputs]
                    mask_copy = None if mask is None else mask.clone()
                    result = found.call(where, piece, *inputs, mask)
                    if mask is not None and not torch.equal(mask, mask_copy):
                        found.append(f"{where}: mask changed")
                        mask = mask_copy
                        continue
                    if not _same([t.detach() for t in inputs], copies):
                        found.append(f"{where}: input changed")
                        continue
                    if result is None:
                        continue
                    if not (isinstance(result, tuple) and len(result) == 2):
                        found.append(f"{where}: no pair")
                        continue
                    want = exact_attention(*copies, mask)
                    # Scores in the hundreds carry rounding of their own in float32.
                    tolerance = TOLERANCE if scale == 1.0 else 2e-3
                    for what, got, exact in zip(("output", "weights"), result, want, strict=True):
                        found.equal(f"{where}: {what}", got, exact, dtype, tolerance)
                    output, weights = result
                    alike = isinstance(weights, Tensor) and weights.shape == want[1].shape
                    if mask is not None and alike and weights.detach()[~mask.expand_as(weights)].any():
                        found.append(f"{where}: a blocked key has a weight")
                    if scale != 1.0 or not isinstance(output, Tensor) or output.shape != want[0].shape:
                        continue
                    if not output.requires_grad:
                        found.append(f"{where}: no gradient")
                        continue
                    cotangent = torch.cos(torch.arange(1.0, 1 + output.numel())).view(output.shape)
                    exact_inputs = [t.double().requires_grad_(True) for t in copies]
                    exact = (F.scaled_dot_product_attention(*exact_inputs, mask) * cotangent).sum()
                    grads = torch.autograd.grad((output * cotangent).sum(), inputs, allow_unused=True)
                    for letter, grad, want_grad in zip(
                        "qkv", grads, torch.autograd.grad(exact, exact_inputs), strict=True
                    ):
                        found.equal(f"{where}: gradient of {letter}", grad, want_grad)
    # Allowed scores near −1000 (width 1: the scores are the keys), a blocked one near 1000.
    q, k, v = torch.ones(1, 1), torch.tensor([[-990.0], [-993.0], [-991.0], [995.0]]), torch.eye(4)
    mask = torch.tensor([[True, True, False, False]])
    result = found.call("low scores", piece, q, k, v, mask)
    if isinstance(result, tuple) and isinstance(result[1], Tensor) and result[1].shape == mask.shape:
        found.equal("low scores", result[1], exact_attention(q, k, v, mask)[1])
        if result[1].detach()[~mask].any():
            found.append("low scores: a blocked key has a weight")


def judge_self_attention(space, found: Findings) -> None:
    generator = torch.Generator().manual_seed(7)
    for dtype in (torch.float32, torch.float64):
        for batch, length, width, inner in [(2, 5, 6, 4), (3, 4, 3, 8), (1, 7, 5, 2), (4, 4, 6, 6)]:
            module = found.call("constructor", space.SelfAttention, width, inner)
            if module is None:
                return
            shapes = {name: tuple(p.shape) for name, p in module.named_parameters()}
            wanted = {f"{name}.weight": (inner, width) for name in ("w_q", "w_k", "w_v")}
            if shapes != wanted or set(module.state_dict()) != set(wanted):
                found.append(f"parameters {shapes}")
            if any(p.max() == p.min() for p in module.parameters() if p.dim() == 2):
                found.append("a weight starts with all entries alike")
            module = module.to(dtype)
            for name in ("w_q", "w_k", "w_v"):
                layer = getattr(module, name, None)
                if isinstance(layer, torch.nn.Linear):
                    with torch.no_grad():
                        layer.weight.copy_(torch.randn(layer.weight.shape, generator=generator))
            for mode in (False, True):
                for mask_name, mask in _masks((batch,), length, length, generator).items():
                    where = f"{dtype} {(batch, length, width, inner)} train={mode} mask {mask_name}"
                    x = torch.randn(batch, length, width, generator=generator, dtype=dtype).requires_grad_(True)
                    copy = x.detach().clone()
                    mask_copy = None if mask is None else mask.clone()
                    module.train(mode).zero_grad()
                    got = found.call(where, module, x, mask)
                    if not torch.equal(x.detach(), copy) or (mask is not None and not torch.equal(mask, mask_copy)):
                        found.append(f"{where}: input changed")
                        continue
                    if got is None or shapes != wanted:
                        continue
                    leaves = [copy.double().requires_grad_(True)] + [
                        getattr(module, name).weight.detach().double().requires_grad_(True)
                        for name in ("w_q", "w_k", "w_v")
                    ]
                    q, k, v = (leaves[0] @ weight.T for weight in leaves[1:])
                    want = F.scaled_dot_product_attention(q, k, v, mask)
                    found.equal(where, got, want.detach(), dtype)
                    if not (isinstance(got, Tensor) and got.shape == want.shape and got.requires_grad):
                        continue
                    cotangent = torch.cos(torch.arange(1.0, 1 + got.numel())).view(got.shape)
                    (got * cotangent).sum().backward()
                    exact = torch.autograd.grad((want * cotangent).sum(), leaves)
                    grads = [x.grad] + [getattr(module, name).weight.grad for name in ("w_q", "w_k", "w_v")]
                    for name, grad, want_grad in zip(("x", "w_q", "w_k", "w_v"), grads, exact, strict=True):
                        found.equal(f"{where}: gradient of {name}", grad, want_grad)


# ------------------------------------------------------------------------------------------------------- chapter 4


def _rearranged(found: Findings, piece: Callable, x: Tensor, source: np.ndarray, *args) -> None:
    """``piece(x, *args)`` must hold the entries of x whose flat numbers ``source`` gives, and send gradients back there."""
    where = f"{x.dtype} {tuple(x.shape)} strides {x.stride()} {args}"
    x = x.detach().requires_grad_(True)
    copy, strides = x.detach().clone(), x.stride()
    got = found.call(where, piece, x, *args)
    if x.shape != copy.shape or x.stride() != strides or not torch.equal(x.detach(), copy):
        found.append(f"{where}: input changed")
        return
    want = torch.from_numpy(copy.numpy().reshape(-1)[source])
    found.equal(where, got, want, x.dtype, tolerance=1e-6)
    if not (isinstance(got, Tensor) and got.shape == want.shape):
        return
    if not got.requires_grad:
        found.append(f"{where}: no gradient")
        return
    cotangent = _cotangent(want.shape)
    (grad,) = torch.autograd.grad((got * cotangent).sum(), x, allow_unused=True)
    back = np.empty(x.numel())
    back[source.reshape(-1)] = cotangent.numpy().reshape(-1)
    found.equal(f"{where}: gradient", grad, torch.from_numpy(back).view(x.shape))


def _layouts(*shape: int, dtype: torch.dtype, generator) -> list[Tensor]:
    """Random tensors of one shape: a fresh one, one with axes exchanged, one that is part of a larger one."""

    def fresh(*sizes):
        return torch.randn(*sizes, generator=generator, dtype=dtype)

    turned = fresh(shape[1], shape[0], *shape[2:]).transpose(0, 1)
    inner = fresh(*shape[:-2], shape[-1], shape[-2]).transpose(-2, -1)
    part = fresh(*[size + 1 for size in shape])[tuple(slice(1, None) for _ in shape)]
    return [fresh(*shape), turned, inner, part]


SPLITS = [
    (2, 5, 12, 3),
    (3, 4, 6, 1),
    (2, 3, 5, 5),
    (1, 7, 8, 2),
    (4, 1, 10, 5),
    (3, 3, 9, 3),
    (2, 6, 12, 6),
    (1, 1, 4, 4),
]


def judge_split_heads(space, found: Findings) -> None:
    generator = torch.Generator().manual_seed(8)
    for dtype in (torch.float32, torch.float64):
        for batch, length, width, heads in SPLITS:
            b, h, t, c = np.ix_(range(batch), range(heads), range(length), range(width // heads))
            source = (b * length + t) * width + h * (width // heads) + c
            for x in _layouts(batch, length, width, dtype=dtype, generator=generator):
                _rearranged(found, space.split_heads, x, source, heads)
    for width, heads in [(13, 4), (6, 12), (10, 3)]:
        try:
            space.split_heads(torch.zeros(2, heads * 2, width), heads)
        except ValueError as error:
            if not {str(width), str(heads)} <= set(re.findall(r"\d+", str(error))):
                found.append(f"({width}, {heads}): the message does not name both: {error}")
        except Exception as error:
            found.append(f"({width}, {heads}): {type(error).__name__}")
        else:
            found.append(f"({width}, {heads}) is accepted")


def judge_merge_heads(space, found: Findings) -> None:
    generator = torch.Generator().manual_seed(9)
    for dtype in (torch.float32, torch.float64):
        for batch, length, width, heads in SPLITS:
            inner = width // heads
            b, t, j = np.ix_(range(batch), range(length), range(width))
            source = ((b * heads + j // inner) * length + t) * inner + j % inner
            layouts = _layouts(batch, heads, length, inner, dtype=dtype, generator=generator)
            split = torch.randn(batch, length, heads, inner, generator=generator, dtype=dtype).transpose(1, 2)
            for x in [*layouts, split]:
                _rearranged(found, space.merge_heads, x, source)


def judge_multi_head_attention(space, found: Findings) -> None:
    generator = torch.Generator().manual_seed(10)
    layers = ("w_q", "w_k", "w_v", "w_o")
    for width, heads in [(10, 4), (7, 2), (9, 6)]:
        try:
            space.MultiHeadAttention(width, heads)
        except ValueError:
            continue
        except Exception as error:
            found.append(f"({width}, {heads}): {type(error).__name__}")
        else:
            found.append(f"({width}, {heads}) is accepted")
    for batch, queries, keys, width, heads in [
        (2, 3, 5, 18, 3),
        (3, 6, 4, 12, 6),
        (2, 4, 6, 7, 1),
        (3, 4, 4, 10, 5),
        (1, 5, 5, 5, 5),
        (4, 4, 4, 16, 4),
        (2, 1, 3, 12, 2),
    ]:
        where = f"{(batch, queries, keys, width, heads)}"
        module = found.call(where, space.MultiHeadAttention, width, heads)
        if module is None:
            continue
        parameters = {name: tuple(p.shape) for name, p in module.named_parameters(remove_duplicate=False)}
        wanted = {f"{name}.weight": (width, width) for name in layers} | {f"{name}.bias": (width,) for name in layers}
        distinct = len(list(module.parameters())) == len(wanted)
        if parameters != wanted or set(module.state_dict()) != set(wanted) or not distinct:
            found.append(f"{where}: parameters {parameters}, state {list(module.state_dict())}")
            continue
        masks = _masks((batch, heads), queries, keys, generator)
        some = torch.rand(batch, 1, queries, keys, generator=generator) < 0.5
        some[..., 0] = True
        masks |= {"per sentence": some, "per head": masks["full"][0], "one": torch.ones(1, 1, dtype=torch.bool)}
        for dtype in (torch.float32, torch.float64):
            module = module.to(dtype)
            loaded = {
                name: torch.randn(shape, generator=generator, dtype=dtype) * (1.5 * width**-0.5)
                for name, shape in wanted.items()
            }
            module.load_state_dict(loaded)
            roles = ["qkv", "qkk"] if queries != keys else ["qkv", "qkk", "qqv", "qqq"]  # which inputs are one tensor
            for index, (mask_name, mask) in enumerate(masks.items(), start=dtype == torch.float64):
                module.train(index % 3 == 0)
                role = roles[index % len(roles)]
                where = f"{(batch, queries, keys, width, heads)} {dtype} inputs {role} mask {mask_name}"
                tensors = {
                    letter: torch.randn(batch, length, width, generator=generator, dtype=dtype)
                    for letter, length in zip("qkv", (queries, keys, keys), strict=True)
                    if letter in role
                }
                _judge_attending(found, where + " train" * module.training, module, heads, loaded, tensors, role, mask)


def _judge_attending(found, where, module, heads, loaded, tensors, role, mask) -> None:
    """One call of multi-head attention, held against PyTorch's own in float64, forwards and backwards."""
    copies = {letter: tensor.clone() for letter, tensor in tensors.items()}
    inputs = [tensors[letter].requires_grad_(True) for letter in role]
    kept = None if mask is None else mask.clone()
    module.zero_grad()
    given = inputs if mask is None else [*inputs, kept]
    got = found.call(where, module, *given)
    changed = mask is not None and not torch.equal(mask, kept)
    if changed or not _same([x.detach() for x in tensors.values()], copies.values()):
        found.append(f"{where}: input changed")
        return
    if not _same([p.detach() for p in module.parameters()], [loaded[n] for n, _ in module.named_parameters()]):
        found.append(f"{where}: parameters changed")
        return
    (batch, queries, width), keys = inputs[0].shape, inputs[1].size(1)
    exact = {name: x.double().requires_grad_(True) for name, x in (copies | loaded).items()}
    blocked = None
    if mask is not None:
        blocked = ~mask.expand(batch, heads, queries, keys).reshape(batch * heads, queries, keys)
    want, _ = F.multi_head_attention_forward(
        *(exact[letter].transpose(0, 1) for letter in role),
        width,
        heads,
        None,
        torch.cat([exact[f"w_{letter}.bias"] for letter in "qkv"]),
        None,
        None,
        False,
        0.0,
        exact["w_o.weight"],
        exact["w_o.bias"],
        need_weights=False,
        attn_mask=blocked,
        use_separate_proj_weight=True,
        q_proj_weight=exact["w_q.weight"],
        k_proj_weight=exact["w_k.weight"],
        v_proj_weight=exact["w_v.weight"],
    )
    want = want.transpose(0, 1)
    found.equal(where, got, want.detach(), inputs[0].dtype)
    if not (isinstance(got, Tensor) and got.shape == want.shape):
        return
    if not got.requires_grad:
        found.append(f"{where}: no gradient")
        return
    cotangent = _cotangent(want.shape)
    found.call(f"{where}: backward", (got * cotangent).sum().backward)
    own = tensors | dict(module.named_parameters())
    grads = torch.autograd.grad((want * cotangent).sum(), list(exact.values()))
    for name, exact_grad in zip(exact, grads, strict=True):
        grad = own[name].grad
        if grad is not None:
            found.equal(f"{where}: gradient of {name}", grad, exact_grad)
        elif name != "w_k.bias":  # it moves all scores of a query alike, and no weight
            found.append(f"{where}: no gradient for {name}")
    again = module(*given)
    if not torch.equal(again, got):
        found.append(f"{where}: a second call gives something else")


JUDGES = {
    "one_hot_lookup": judge_one_hot_lookup,
    "TokenEmbedding": judge_token_embedding,
    "positional_encoding": judge_positional_encoding,
    "shift_matrix": judge_shift_matrix,
    "TransformerEmbedding": judge_transformer_embedding,
    "softmax": judge_softmax,
    "scaled_dot_product_attention": judge_attention,
    "SelfAttention": judge_self_attention,
    "split_heads": judge_split_heads,
    "merge_heads": judge_merge_heads,
    "MultiHeadAttention": judge_multi_head_attention,
    **judges_ch05_to_ch07.JUDGES,
    **judges_ch08.JUDGES,
    **judges_ch09.JUDGES,
    **judges_ch10.JUDGES,
}


def judged(entry: Entry, one: bool = False) -> Findings:
    torch.manual_seed(11)
    found = Findings(one)
    with contextlib.suppress(Enough):
        JUDGES[entry.piece](load(entry), found)
    return found


# ----------------------------------------------------------------------------------------------------------- tests


@pytest.fixture(autouse=True, scope="module")
def _one_thread():
    """Tensors this small only wait for each other's threads, for minutes on a busy machine."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.mark.parametrize("entry", entries(verdict="right"), ids=lambda entry: entry.id)
def test_right_entries_meet_the_specification(entry):
    found = judged(entry)
    assert not found, f"{len(found)} departures, the first: {found[0]}"
    assert found.ran > 5


@pytest.mark.filterwarnings("ignore:The use of `x.T`")
@pytest.mark.parametrize("entry", entries(verdict="wrong"), ids=lambda entry: entry.id)
def test_wrong_entries_break_it_and_yet_run(entry):
    found = judged(entry, one=True)
    assert found, "no departure from the specification was found"
    assert found.ran, f"it never runs, which is no mistake of this piece: {found[0]}"


def test_right_entries_leave_room_below_the_tolerance():
    """The accepted deviation is set by what honest float32 arithmetic needs, not by what wrong entries just exceed."""
    small = {}
    for entry in entries(verdict="right"):
        if entry.piece in ("positional_encoding", "shift_matrix"):
            small[entry.id] = judged(entry).largest
    assert max(small.values()) < TOLERANCE * 0.9, small


def test_the_bank_is_large_enough_and_its_table_consistent():
    ids = Counter(entry.id for entry in entries())
    assert max(ids.values()) == 1, "ids are unique"
    for piece in PIECES:
        function = piece[0].islower()
        assert len(entries(piece, "wrong")) >= (12 if function else 8), piece
        assert len(entries(piece, "right")) >= (6 if function else 5), piece
    for entry in entries():
        assert entry.piece in PIECES
        assert entry.note.endswith("."), entry.id
        assert entry.verdict == "wrong" or entry.misconception is None, entry.id


def test_no_two_entries_of_a_piece_have_the_same_body():
    sources = Counter((entry.piece, entry.source) for entry in entries())
    assert max(sources.values()) == 1


def test_a_misspelt_question_is_refused():
    with pytest.raises(KeyError, match="no piece"):
        entries("soft_max")
    with pytest.raises(ValueError, match="verdict"):
        entries("softmax", "Wrong")


def test_loaded_entries_are_fresh_and_show_their_source():
    entry = next(e for e in entries("positional_encoding") if e.id == "pe-stale-cache")
    first, second = load(entry), load(entry)
    first.positional_encoding(3, 4)
    assert len(second.positional_encoding(5, 4)) == 5, "state of one load must not reach the next"
    assert inspect.getsource(first.positional_encoding).startswith("def positional_encoding")
    entry = entries("SelfAttention", "right")[0]
    assert inspect.getsource(load(entry).SelfAttention).startswith("class SelfAttention")
