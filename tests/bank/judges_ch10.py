"""The judges of chapter 10 for test_bank_itself: each holds a piece against formulas of its own and notes departures."""

from __future__ import annotations

import gc
import math
import random

import torch
from torch import Tensor, nn


def judge_batches_by_tokens(space, found) -> None:
    draw = random.Random(10)
    cases = [([], 5), ([4], 4), ([3, 5, 2, 5], 10), ([2] * 7, 6), ([1, 1, 1, 6], 12), ([7, 1, 7, 1, 7, 1], 21)]
    cases += [([draw.randint(1, 12) for _ in range(draw.randint(5, 40))], draw.randint(12, 70)) for _ in range(12)]
    for lengths, budget in cases:
        where = f"{lengths} in {budget}"
        given = list(lengths)
        got = found.call(where, space.batches_by_tokens, given, budget)
        if given != lengths:
            found.append(f"{where}: input changed")
        # Closed form: from each start, the longest run of the sorted indices whose product fits.
        order = sorted(range(len(lengths)), key=lambda i: (lengths[i], i))
        want, start = [], 0
        while start < len(order):
            stop = max(s for s in range(start + 1, len(order) + 1) if (s - start) * lengths[order[s - 1]] <= budget)
            want.append(order[start:stop])
            start = stop
        if got != want:
            found.append(f"{where}: {got} for {want}")
    for lengths, budget in (([10, 2], 9), ([3], 2), ([2, 2, 2, 30], 29)):
        where = f"{lengths} in {budget}, which is too little"
        try:
            space.batches_by_tokens(lengths, budget)
        except ValueError:
            continue
        except Exception as error:
            found.append(f"{where}: {type(error).__name__}")
        else:
            found.append(f"{where} is accepted")


class _Polynomial(nn.Module):
    """x → a·x + b·x², with a parameter that is not used; its gradients are sums that can be written down."""

    def __init__(self, dtype, idle=True):
        super().__init__()
        self.a, self.b = (nn.Parameter(torch.tensor(value, dtype=dtype)) for value in (0.5, -0.25))
        self.unused = nn.Parameter(torch.ones(2, dtype=dtype)) if idle else None

    def forward(self, x):
        return self.a * x + self.b * x * x


class _Loss:
    """The mean of model(x) over the real places; counts the graphs that are there when it is called."""

    def __init__(self):
        self.graphs: list = []
        self.most = 0

    def __call__(self, model, part):
        x, real = part
        self.most = max(self.most, sum(alive() for alive in self.graphs))
        held = _Count()
        with torch.autograd.graph.saved_tensors_hooks(held.pack, lambda pair: pair.tensor):
            mean = (model(x) * real).sum() / real.sum()
        self.graphs.append(held)
        return mean, real.sum()


class _Count:
    """How many saved tensors of a graph are still there."""

    def __init__(self):
        self.left = 0

    def pack(self, tensor):
        return _Saved(self, tensor)

    def __call__(self) -> bool:
        return self.left > 0


class _Saved:
    def __init__(self, owner, tensor):
        self.owner, self.tensor = owner, tensor
        owner.left += 1

    def __del__(self):
        self.owner.left -= 1


def judge_accumulate(space, found) -> None:
    gc.freeze()  # what is there already, as the corpora of other tests, is not looked through after each call
    generator = torch.Generator().manual_seed(11)
    for dtype in (torch.float32, torch.float64):
        for counts in ((3, 9, 1), (5,), (2, 2, 8, 4), (1, 30)):
            where = f"{dtype} parts of {counts}"
            model, loss, parts, reals = _Polynomial(dtype, len(counts) < 4), _Loss(), [], []
            for number, count in enumerate(counts):
                x = torch.randn(3, 12, generator=generator, dtype=dtype) + number
                real = torch.zeros(36, dtype=torch.bool)
                real[torch.randperm(36, generator=generator)[:count]] = True
                parts.append((x, real.view(3, 12)))
                reals += x.flatten()[real].double().tolist()
            before = {name: p.detach().clone() for name, p in model.named_parameters()}
            want = {
                "a": math.fsum(reals) / len(reals),
                "b": math.fsum(x * x for x in reals) / len(reals),
            }
            mean = 0.5 * want["a"] - 0.25 * want["b"]
            for attempt in ("first", "second"):
                loss.most, loss.graphs = 0, []
                got = found.call(f"{where}, {attempt} call", space.accumulate, model, loss, list(parts))
                gc.collect()
                if loss.most:
                    found.append(f"{where}, {attempt} call: {loss.most + 1} graphs at once")
                for name, value in want.items():
                    grad = model.get_parameter(name).grad
                    if grad is None:
                        found.append(f"{where}, {attempt} call: {name} has no gradient")
                    else:
                        found.equal(
                            f"{where}, {attempt} call: gradient of {name}",
                            grad,
                            torch.tensor(value),
                            dtype,
                            tolerance=1e-5,
                        )
                if model.unused is not None and model.unused.grad is not None and model.unused.grad.any():
                    found.append(f"{where}: what is not used has a gradient")
                if any(not torch.equal(p.detach(), before[name]) for name, p in model.named_parameters()):
                    found.append(f"{where}: parameters changed")
                if not (isinstance(got, (tuple, list)) and len(got) == 2):
                    found.append(f"{where}: no pair")
                    continue
                if isinstance(got[0], Tensor) and got[0].requires_grad:
                    found.append(f"{where}: the mean has a graph")
                if not abs(float(got[0]) - mean) <= 1e-5 * max(1, abs(mean)):
                    found.append(f"{where}: {float(got[0]):.6g} for {mean:.6g}")
                if int(got[1]) != len(reals):
                    found.append(f"{where}: {int(got[1])} tokens for {len(reals)}")
    try:
        space.accumulate(_Polynomial(torch.float32), _Loss(), [])
    except ValueError:
        return
    except Exception as error:
        found.append(f"no part: {type(error).__name__}")
    else:
        found.append("no part is accepted")


def judge_attend_with_cache(space, found) -> None:
    generator = torch.Generator().manual_seed(12)
    for batch, heads, past, new, width, masked, scale in [
        (2, 3, 4, 1, 5, False, 1.0),
        (3, 2, 5, 4, 6, False, 1.0),
        (2, 4, 3, 5, 7, True, 1.0),
        (1, 2, 0, 6, 4, False, 1.0),
        (4, 1, 0, 5, 3, True, 1.0),
        (3, 2, 6, 1, 4, True, 1.0),
        (2, 2, 4, 3, 8, True, 40.0),
        (2, 2, 3, 3, 3, False, 40.0),
    ]:
        for dtype in (torch.float32, torch.float64):
            where = f"{dtype} {(batch, heads, past, new, width)} mask {masked} ×{scale:g}"
            q, k, v = (
                scale * torch.randn(batch, heads, new, width, generator=generator, dtype=dtype) for _ in range(3)
            )
            old = [scale * torch.randn(batch, heads, past, width, generator=generator, dtype=dtype) for _ in range(2)]
            mask = None
            if masked:
                mask = torch.rand(batch, past + new, generator=generator) > 0.4
                mask[0, 0] = False
                mask[-1] = False  # one sentence is all padding
            given = list(old) if past else None
            tensors = [q, k, v, *old] + ([mask] if masked else [])
            copies = [x.clone() for x in tensors]
            got = found.call(where, space.attend_with_cache, q, k, v, given, *([mask] if masked else []))
            same = all(torch.equal(x, c) for x, c in zip(tensors, copies, strict=True))
            if not same or (past and not all(x is y for x, y in zip(given, old, strict=True))):
                found.append(f"{where}: input changed")
                continue
            if not (isinstance(got, tuple) and len(got) == 2 and len(got[1]) == 2):
                found.append(f"{where}: no pair of an output and a pair")
                continue
            keys, values = torch.cat([old[0], k], 2), torch.cat([old[1], v], 2)
            found.equal(f"{where}: keys", got[1][0], keys, dtype)
            found.equal(f"{where}: values", got[1][1], values, dtype)
            found.equal(f"{where}: output", got[0], _attended(q, keys, values, past, mask), dtype)


def _attended(q: Tensor, keys: Tensor, values: Tensor, past: int, mask: Tensor | None) -> Tensor:
    """Position by position, over the list of what is open to it, in float64."""
    want = torch.zeros(q.shape, dtype=torch.float64)
    for b in range(q.size(0)):
        for i in range(q.size(2)):
            opened = [j for j in range(past + i + 1) if mask is None or mask[b, j]]
            if opened:
                scores = keys[b, :, opened].double() @ q[b, :, i].double()[..., None] / math.sqrt(q.size(-1))
                want[b, :, i] = (scores[..., 0].softmax(-1)[..., None] * values[b, :, opened].double()).sum(1)
    return want


def judge_diagnosis(space, found) -> None:
    """The causes are what the runs were made with; what a look at their files says, tests/lab asks."""
    for name, cause in (("A", "target shift"), ("B", "warm-up"), ("C", "leaking mask")):
        got = found.call(name, space.diagnosis, name)
        if got != cause:
            found.append(f"{name}: {got!r}")
    found.ran += 3  # more cannot be asked
    for name in ("D", "Q", "healthy"):
        try:
            space.diagnosis(name)
        except (KeyError, ValueError):
            continue
        except Exception as error:
            found.append(f"{name}: {type(error).__name__}")
        else:
            found.append(f"{name} has a diagnosis")


JUDGES = {
    "batches_by_tokens": judge_batches_by_tokens,
    "accumulate": judge_accumulate,
    "attend_with_cache": judge_attend_with_cache,
    "diagnosis": judge_diagnosis,
}
