"""Train a model step by step, so that nothing is lost: the engine of the translation chapter and of the training lab.

    trainer = Trainer(model, loss=loss, batches=batches, optimiser=optimiser, schedule=schedule, folder="build/run")
    trainer.resume()                    # goes on where an earlier run with this folder stopped, to the last bit on a CPU
    trainer.train(steps=2500)

A step is what :func:`transformer_lab.training.fit` teaches: loss, gradients, optimiser. Around it stand what a longer run
needs: a schedule of the learning rate, checkpoints, a bar that says how fast it goes and how long it will take, best
weights that survive Ctrl-C, and an end in words when the loss is no number any more.
"""

from __future__ import annotations

import contextlib
import math
import os
import random
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor, nn
from tqdm import tqdm

#: The mean loss of a batch over its tokens, and how many tokens that were.
Loss = Callable[[nn.Module, Any], tuple[Tensor, int]]

CHECKPOINT = "checkpoint.pt"


class TrainingFailed(RuntimeError):
    """The loss is no number any more. The message says at which step, and which layer was the first to show it."""


class Batches(Protocol):
    """Where batches come from: the same number of an epoch gives the same batches in the same order, always."""

    def epoch(self, number: int) -> Sequence[Any]: ...


class Trainer:
    """A model in training, with everything that a checkpoint must remember.

    Parameters
    ----------
    model, optimiser
        The optimiser holds the model's parameters; its learning rate is set before every step.
    loss
        ``loss(model, batch)`` gives the mean loss over the batch's tokens and their number.
    batches
        See :class:`Batches`.
    schedule
        ``schedule(step)`` is the learning rate of a step; steps count from 1.
    evaluate
        ``evaluate(model)`` in evaluation mode gives numbers by name; the first of them is the score by which weights are
        best: higher is better, and of equal ones the later. Without it the last weights are the best.
    every
        After so many steps the model is evaluated, a row is added to ``history`` and a checkpoint is written.
    folder
        Where the checkpoint is kept; None keeps none.
    say
        Called with a line of text after each evaluation, for instance to show sample translations; see ``report``.
    report
        ``report(model)`` gives that line.
    """

    def __init__(
        self,
        model: nn.Module,
        *,
        loss: Loss,
        batches: Batches,
        optimiser: torch.optim.Optimizer,
        schedule: Callable[[int], float],
        evaluate: Callable[[nn.Module], Mapping[str, float]] | None = None,
        every: int = 250,
        folder: str | Path | None = None,
        report: Callable[[nn.Module], str] | None = None,
        say: Callable[[str], None] = tqdm.write,
    ):
        self.model, self.loss, self.batches, self.optimiser, self.schedule = model, loss, batches, optimiser, schedule
        self.evaluate, self.every, self.report, self.say = evaluate, every, report, say
        self.folder = Path(folder) if folder is not None else None
        self.step, self.epoch, self.place = 0, 0, 0
        self.seconds, self.tokens = 0.0, 0
        #: One row for every ``every`` steps: step, loss, lr, tokens (seen so far), seconds, and what ``evaluate`` gave.
        self.history: list[dict[str, float]] = []
        self.best_step, self.best_score = 0, -math.inf
        self._best: dict[str, Tensor] = {}
        self._last: dict[str, Tensor] = {}  # the weights to go on from, while the model has its best ones
        self._recent: list[float] = []

    # ----------------------------------------------------------------------------------------------------- training

    def train(
        self, steps: int | None = None, minutes: float | None = None, progress: bool = True
    ) -> list[dict[str, float]]:
        """Train until ``steps`` steps are done in all, or for ``minutes``, whichever comes first; return the history.

        The model ends with its best weights, also after Ctrl-C, which stops behind the step at hand. A second call goes on
        from the last weights, not from the best.

        Raises
        ------
        TrainingFailed
            The loss is NaN or infinite. The model has its best weights; the checkpoint is that of the last evaluation.
        ValueError
            Neither steps nor minutes are given.
        """
        if steps is None and minutes is None:
            raise ValueError("Say how long to train: steps, minutes, or both.")
        self._use_last()
        deadline = time.monotonic() + 60 * minutes if minutes is not None else math.inf
        last = steps if steps is not None else 10**12
        bar = tqdm(total=steps, initial=self.step, unit="step", disable=not progress, smoothing=0.1)
        began, tokens = time.monotonic(), 0
        with bar, _interrupts() as interrupted:
            for batch in self._remaining(last):
                value, count = self._advance(batch)
                tokens += count
                bar.update()
                bar.set_postfix_str(
                    f"loss {value:.3f}, {tokens / (time.monotonic() - began):,.0f} tokens/s", refresh=False
                )
                over = self.step >= last or time.monotonic() > deadline or interrupted.is_set()
                if self.step % self.every == 0 or over:
                    self.seconds += time.monotonic() - began
                    self._pause(evaluating=not interrupted.is_set())
                    began, tokens = time.monotonic(), 0
                if over:
                    break
        if interrupted.is_set():
            kept = f"step {self.best_step}" if self._best else "the last step"
            self.say(f"Stopped after step {self.step}; the model has the weights of {kept}.")
        self.use_best()
        return self.history

    def _remaining(self, last: int) -> Iterator[Any]:
        while self.step < last:
            own = self.batches.epoch(self.epoch)
            if not len(own):
                raise ValueError("There is nothing to train on: an epoch has no batch.")
            while self.place < len(own) and self.step < last:
                self.place += 1
                yield own[self.place - 1]
            if self.place >= len(own):
                self.epoch, self.place = self.epoch + 1, 0

    def _advance(self, batch: Any) -> tuple[float, int]:
        self.model.train()
        rate = self.schedule(self.step + 1)
        for group in self.optimiser.param_groups:
            group["lr"] = rate
        self.optimiser.zero_grad()
        loss, tokens = self.loss(self.model, batch)
        value = loss.item()
        if not math.isfinite(value):
            where = _first_not_finite(self.model, lambda: self.loss(self.model, batch))
            kept = (
                f"the weights of step {self.best_step} are kept"
                if self._best
                else "there are no earlier weights to keep"
            )
            self.use_best()
            raise TrainingFailed(
                f"The loss became {value} at step {self.step + 1}, learning rate {rate:.2g}; {where}. "
                f"Try a lower learning rate or a longer warm-up; {kept}."
            )
        loss.backward()
        self.optimiser.step()
        self.step, self.tokens = self.step + 1, self.tokens + tokens
        self._recent.append(value)
        return value, tokens

    def _pause(self, evaluating: bool) -> None:
        """What is done every so many steps: measure, remember, save."""
        scores: dict[str, float] = {}
        if self.evaluate and evaluating:
            self.model.eval()
            with torch.no_grad():
                scores = dict(self.evaluate(self.model))
                if self.report:
                    self.say(f"step {self.step}: {self.report(self.model)}")
            score = next(iter(scores.values()))
            if score >= self.best_score:  # of equals the one that has learnt longer
                self.best_step, self.best_score = self.step, score
                self._best = _copy(self.model.state_dict())
        row = {"step": self.step, "loss": sum(self._recent) / len(self._recent), "lr": self.schedule(self.step)}
        self.history.append(row | {"tokens": self.tokens, "seconds": round(self.seconds, 2)} | scores)
        self._recent = []
        if self.folder is not None:
            self.save(self.folder / CHECKPOINT)

    def use_best(self) -> None:
        """Give the model its best weights, in evaluation mode; training goes on from the last ones all the same."""
        if self._best:
            self._last = self._last or _copy(self.model.state_dict())
            self.model.load_state_dict(self._best)
        self.model.eval()

    def _use_last(self) -> None:
        if self._last:
            self.model.load_state_dict(self._last)
            self._last = {}

    # -------------------------------------------------------------------------------------------------- checkpoints

    def save(self, path: str | Path) -> None:
        """Write a checkpoint: the old one, or the new one, is whole at any moment."""
        path = Path(path)
        path.parent.mkdir(parents=True, exist_ok=True)
        partial = path.with_name(f".{path.name}.{os.getpid()}")
        try:
            torch.save(self.state(), partial)
            partial.replace(path)
        finally:
            partial.unlink(missing_ok=True)

    def state(self) -> dict[str, Any]:
        """Everything that decides how training goes on, as plain data and tensors."""
        numbers: Any = np.random.get_state()  # noqa: NPY002 - the global generator is part of the state
        kind, words, *rest = numbers
        version, inner, gauss = random.getstate()
        return {
            "model": self.model.state_dict(),
            "optimiser": self.optimiser.state_dict(),
            "best": self._best,
            "counters": {name: getattr(self, name) for name in _COUNTERS},
            "history": self.history,
            "recent": self._recent,
            "random": {"torch": torch.get_rng_state(), "python": [version, list(inner), gauss]}
            | {"numpy": [kind, torch.from_numpy(words.astype(np.int64)), *rest]},
        }

    def resume(self, path: str | Path | None = None) -> bool:
        """Go on from a checkpoint, by default the one of ``folder``; False when there is none.

        Raises ``ValueError`` when the checkpoint is damaged or belongs to another model.
        """
        path = Path(path) if path is not None else self.folder and self.folder / CHECKPOINT
        if path is None or not path.is_file():
            return False
        try:
            state = torch.load(path, weights_only=True)
            self.model.load_state_dict(state["model"])
            self.optimiser.load_state_dict(state["optimiser"])
            for name in _COUNTERS:
                setattr(self, name, state["counters"][name])
            self._best, self.history, self._recent = state["best"], state["history"], state["recent"]
            self._last = {}
            torch.set_rng_state(state["random"]["torch"])
            version, inner, gauss = state["random"]["python"]
            random.setstate((version, tuple(inner), gauss))
            kind, words, *rest = state["random"]["numpy"]
            np.random.set_state((kind, words.numpy().astype(np.uint32), *rest))  # noqa: NPY002
        except Exception as error:
            first = str(error).splitlines()[0] if str(error) else type(error).__name__
            raise ValueError(f"{path} cannot be resumed ({first}); delete it to begin again.") from error
        return True


_COUNTERS = ("step", "epoch", "place", "seconds", "tokens", "best_step", "best_score")


def _copy(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name: value.detach().clone() for name, value in state.items()}


@contextlib.contextmanager
def _interrupts() -> Iterator[threading.Event]:
    """An event that Ctrl-C sets, so that a step is never left half done; a second Ctrl-C interrupts at once."""
    pressed = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield pressed
        return
    before = signal.getsignal(signal.SIGINT)

    def press(number, frame):
        pressed.set()
        signal.signal(signal.SIGINT, before)

    signal.signal(signal.SIGINT, press)
    try:
        yield pressed
    finally:
        signal.signal(signal.SIGINT, before)


def _first_not_finite(model: nn.Module, again: Callable[[], Any]) -> str:
    """Which parameter or layer holds the first number that is none, in words; ``again`` repeats the forward pass."""
    for name, parameter in model.named_parameters():
        if not parameter.isfinite().all():
            return f"the weights {name} are no finite numbers any more"
    found: list[str] = []  # a layer is done before what holds it: the first is the innermost

    def look(name: str) -> Callable:
        def hook(module: nn.Module, inputs: Any, output: Any) -> None:
            if not found and isinstance(output, Tensor) and not output.isfinite().all():
                found.append(name or type(module).__name__)

        return hook

    hooks = [module.register_forward_hook(look(name)) for name, module in model.named_modules()]
    try:
        with torch.no_grad():
            again()
    finally:
        for hook in hooks:
            hook.remove()
    return f"the first layer to give such a number is {found[0]}" if found else "all layers give finite numbers"
