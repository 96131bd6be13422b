"""The judges of chapter 9 for test_bank_itself: each holds a piece against formulas of its own and notes departures."""

from __future__ import annotations

import math

import torch
from torch import Tensor


def judge_shift_targets(space, found) -> None:
    generator = torch.Generator().manual_seed(9)
    for batch, length, largest in [(3, 6, 50), (1, 4, 50), (5, 2, 9), (2, 9, 3), (4, 4, 50), (6, 3, 50)]:
        where = f"({batch}, {length}) below {largest}"
        ids = torch.randint(0, largest, (batch, length), generator=generator)
        for given in (ids, torch.stack([ids, ids + 1], dim=-1)[..., 0], ids.T.contiguous().T):
            copy = given.clone()
            got = found.call(where, space.shift_targets, given)
            if not torch.equal(given, copy):
                found.append(f"{where}: input changed")
                given = copy
            if not (isinstance(got, tuple) and len(got) == 2):
                found.append(f"{where}: no pair")
                continue
            rows = copy.tolist()
            for what, own, want in zip(
                ("input", "labels"), got, ([r[: length - 1] for r in rows], [r[1:] for r in rows]), strict=True
            ):
                found.equal(f"{where}: {what}", own, torch.tensor(want), torch.int64)


def judge_label_smoothed_cross_entropy(space, found) -> None:
    generator = torch.Generator().manual_seed(10)
    for rows, classes, pad, smoothing, scale in [
        (7, 5, 0, 0.1, 1.0),
        (9, 11, 4, 0.3, 3.0),
        (6, 4, 3, 0.0, 2.0),
        (8, 6, -100, 0.1, 2.0),
        (5, 6, 17, 0.2, 1.0),
        (1, 8, 2, 0.4, 1.0),
        (6, 9, 1, 0.1, 600.0),
        (30, 3, 0, 0.05, 1.0),
        (6, 5, 2, 1.0, 1.0),
        (12, 40, 7, None, 2.0),
    ]:
        for dtype in (torch.float32, torch.float64):
            where = f"{dtype} ({rows}, {classes}) pad {pad} smoothing {smoothing} ×{scale:g}"
            logits = (torch.randn(rows, classes, generator=generator, dtype=dtype) * scale).requires_grad_(True)
            targets = torch.randint(0, classes, (rows,), generator=generator)
            targets[targets == pad] = (pad + 1) % classes
            if rows > 1:
                targets[torch.randperm(rows, generator=generator)[: rows // 3]] = pad
            copies = logits.detach().clone(), targets.clone()
            given = () if smoothing is None else (smoothing,)
            got = found.call(where, space.label_smoothed_cross_entropy, logits, targets, pad, *given)
            if not (torch.equal(logits.detach(), copies[0]) and torch.equal(targets, copies[1])):
                found.append(f"{where}: input changed")
                continue
            want, gradient = _smoothed(*copies, pad, smoothing or 0.0)
            found.equal(where, got, want, dtype)
            if not (isinstance(got, Tensor) and got.shape == want.shape):
                continue
            if not got.requires_grad:
                found.append(f"{where}: no gradient")
                continue
            found.call(f"{where}: backward", got.backward)
            if logits.grad is None:
                found.append(f"{where}: no gradient")
                continue
            found.equal(f"{where}: gradient", logits.grad, gradient)
            if logits.grad[copies[1] == pad].any():
                found.append(f"{where}: padding has a gradient")


def _smoothed(logits: Tensor, targets: Tensor, pad: int, smoothing: float) -> tuple[Tensor, Tensor]:
    """Loss and gradient by their definitions, row by row in float64."""
    rows, classes = logits.shape
    real = [row for row in range(rows) if targets[row] != pad]
    loss, gradient = 0.0, torch.zeros(rows, classes, dtype=torch.float64)
    for row in real:
        x = logits[row].double()
        x = x - x.max()
        log_p = x - x.exp().sum().log()
        wanted = torch.full((classes,), smoothing / classes, dtype=torch.float64)
        wanted[targets[row]] += 1 - smoothing
        loss -= (wanted * log_p).sum().item() / len(real)
        gradient[row] = (log_p.exp() - wanted) / len(real)
    return torch.tensor(loss, dtype=torch.float64), gradient


def judge_noam_lr(space, found) -> None:
    for width, warmup in [(512, 4000), (64, 400), (16, 10), (1, 3), (256, 1), (96, 7)]:
        for step in (1, 2, 3, warmup - 1, warmup, warmup + 1, 10 * warmup, 10**6):
            if step < 1:
                continue
            where = f"step {step} width {width} warmup {warmup}"
            got = found.call(where, space.noam_lr, step, width, warmup)
            want = step / math.sqrt(width * warmup**3) if step <= warmup else 1 / math.sqrt(width * step)
            if not isinstance(got, float):
                found.append(f"{where}: a {type(got).__name__}")
            elif not abs(got - want) <= 1e-6 * want:
                found.append(f"{where}: {got:.6g} for {want:.6g}")


JUDGES = {
    "shift_targets": judge_shift_targets,
    "label_smoothed_cross_entropy": judge_label_smoothed_cross_entropy,
    "noam_lr": judge_noam_lr,
}
