"""Train a model step by step, so that nothing is lost: the engine of the translation chapter and of the training lab.

    trainer = Trainer(model, loss=loss, batches=batches, optimiser=optimiser, schedule=schedule, folder="build/run")
    trainer.resume()                    # goes on where an earlier run with this folder stopped, to the last bit on a CPU
    trainer.train(steps=2500)

A step is what :func:`transformer_lab.training.fit` teaches: loss, gradients, optimiser. Around it stands what a longer run
needs: a schedule of the learning rate, checkpoints, a bar that says how fast it goes and how long it will take, best
weights that survive Ctrl-C, and an end in words when the loss is no number any more.

The same engine trains on a processor, on a GPU, and in several processes that ``torchrun`` has started (see
:mod:`~transformer_lab.distributed`). On a GPU a step never waits for it: losses stay there until the next look.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader
from tqdm import tqdm

from transformer_lab import accumulation, checkpoint, devices, distributed, interrupts
from transformer_lab.accumulation import Loss
from transformer_lab.distributed import Ranks

CHECKPOINT = "checkpoint.pt"
#: On a GPU the losses are looked at, and signals obeyed, every so many steps; a processor has nothing to wait for.
LOOK = 20


class TrainingFailed(RuntimeError):
    """Training cannot go on: the loss is no number any more, or the memory is too small. The message says what to do."""


class Batches(Protocol):
    """Where batches come from: the same number of an epoch gives the same batches in the same order, always.

    Of several processes each has its own, and all have equally many.
    """

    def epoch(self, number: int) -> Sequence[Any]: ...


class Log(Protocol):
    """Where rows of the history are written as they come, see :mod:`~transformer_lab.logs`."""

    def write(self, row: Mapping[str, float]) -> None: ...

    def resume(self, step: int) -> None: ...


class Trainer:
    """A model in training, with everything that a checkpoint must remember.

    Parameters
    ----------
    model, optimiser
        The optimiser holds the model's parameters; its learning rate is set before every step.
    loss
        ``loss(model, batch)`` gives the mean loss over the batch's tokens and their number. Batches are tensors, or tuples
        of tensors whose first axis is that of the sentences.
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
    setting
        Device and number format, from :func:`transformer_lab.devices.choose`; the model lies on that device.
    ranks
        Which of several processes this is, from :func:`transformer_lab.distributed.group`. The first one evaluates, writes
        and speaks.
    parts
        In how many parts a batch is computed; the gradients are those of the whole one, the memory that of a part. Where the
        memory does not suffice, there are twice as many from then on.
    compiled
        Whether the model is compiled by ``torch.compile``, once for all lengths.
    observe
        ``observe(step, model)`` is called when a step's gradients are there and before the weights change.
    logs
        Each is given every row of the history.
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
        setting: devices.Setting = devices.PROCESSOR,
        ranks: Ranks = distributed.ALONE,
        parts: int = 1,
        compiled: bool = False,
        observe: Callable[[int, nn.Module], None] | None = None,
        logs: Sequence[Log] = (),
    ):
        self.model, self.loss, self.batches, self.optimiser, self.schedule = model, loss, batches, optimiser, schedule
        self.evaluate, self.every, self.report, self.say = evaluate, every, report, say
        self.folder = Path(folder) if folder is not None else None
        self.setting, self.ranks, self.parts, self.compiled = setting, ranks, parts, compiled
        self.observe, self.logs = observe, logs
        self.step, self.epoch, self.place = 0, 0, 0
        self.seconds, self.tokens = 0.0, 0
        #: One row for every ``every`` steps: step, loss, lr, tokens (seen so far), seconds, and what ``evaluate`` gave.
        self.history: list[dict[str, float]] = []
        self.best_step, self.best_score = 0, -math.inf
        #: Whether the last training was ended by a signal, Ctrl-C or a request to end.
        self.stopped = False
        self._scaler = setting.scaler()
        self._running: nn.Module | None = None  # the model as it is trained: compiled, one of several copies
        self._best: dict[str, Tensor] = {}
        self._last: dict[str, Tensor] = {}  # the weights to go on from, while the model has its best ones
        self._recent: list[float] = []
        self._unseen: list[tuple[Tensor, Tensor]] = []  # losses and tokens that still lie on the device
        self._random: list[dict[str, Any]] = []  # of each process, as the checkpoint had them

    # ----------------------------------------------------------------------------------------------------- training

    def train(
        self, steps: int | None = None, minutes: float | None = None, progress: bool = True
    ) -> list[dict[str, float]]:
        """Train until ``steps`` steps are done in all, or for ``minutes``, whichever comes first; return the history.

        The model ends with its best weights, also after Ctrl-C or a request to end (SIGTERM), which stop behind the step at
        hand and leave a checkpoint. A second call goes on from the last weights, not from the best.

        Raises
        ------
        TrainingFailed
            The loss is NaN or infinite, or a single sentence takes more memory than there is. The model has its best
            weights; the checkpoint is that of the last evaluation.
        ValueError
            Neither steps nor minutes are given.
        """
        if steps is None and minutes is None:
            raise ValueError("Say how long to train: steps, minutes, or both.")
        self._use_last()
        self.stopped = False
        self.setting.apply()
        self._running = self._running or self._wrapped()
        deadline = time.monotonic() + 60 * minutes if minutes is not None else math.inf
        last = steps if steps is not None else 10**12
        look = 1 if self.setting.device == "cpu" else LOOK
        # smoothing=0: the mean over the whole run, evaluations and all, tells best how long the rest will take.
        hidden = not (progress and self.ranks.first)
        bar = tqdm(total=steps, initial=self.step, unit="step", disable=hidden, smoothing=0)
        began, before = time.monotonic(), self.tokens
        with bar, interrupts.watched() as interrupted:
            for batch in self._remaining(last):
                self._advance(batch)
                bar.update()
                pausing = self.step % self.every == 0 or self.step >= last
                if not pausing and self.step % look:
                    continue
                self._look(batch)
                speed = (self.tokens - before) / (time.monotonic() - began)
                bar.set_postfix_str(f"loss {self._recent[-1]:.3f}, {speed:,.0f} tokens/s", refresh=False)
                over = self.step >= last or self.ranks.any(time.monotonic() > deadline or interrupted.is_set())
                if pausing or over:
                    self.seconds += time.monotonic() - began
                    self.stopped = self.ranks.any(interrupted.is_set())
                    # Where an undisturbed run evaluates, a stopped one does too: these weights may be the best.
                    self._pause(evaluating=pausing or not self.stopped)
                    began, before = time.monotonic(), self.tokens
                if over:
                    break
        if self.stopped:
            kept = f"step {self.best_step}" if self._best else "the last step"
            self._say(f"Stopped after step {self.step}; the model has the weights of {kept}.")
        self.use_best()
        return self.history

    def _wrapped(self) -> nn.Module:
        if self.compiled:
            self.model.compile(dynamic=True)  # in place: names of parameters stay what they are
        return self.ranks.wrap(self.model)

    def _remaining(self, last: int) -> Iterator[Any]:
        while self.step < last:
            own = self.batches.epoch(self.epoch)
            if not len(own):
                raise ValueError("There is nothing to train on: an epoch has no batch.")
            for batch in self._on_device(own, self.place):
                self.place += 1
                yield batch
                if self.step >= last:
                    break
            if self.place >= len(own):
                self.epoch, self.place = self.epoch + 1, 0

    def _on_device(self, batches: Sequence[Any], first: int) -> Iterator[Any]:
        """The batches from the first on, where the model is; a GPU's next ones are made while it computes."""
        if self.setting.device == "cpu":
            yield from (batches[place] for place in range(first, len(batches)))
            return
        loader: DataLoader = DataLoader(
            batches,  # type: ignore[arg-type]
            batch_size=None,
            sampler=range(first, len(batches)),
            num_workers=1,
            prefetch_factor=8,
            pin_memory=self.setting.device == "cuda",
            generator=torch.Generator(),  # or else it would draw from the one that dropout draws from
        )
        for batch in loader:
            yield _moved(batch, self.setting.device)

    def _advance(self, batch: Any) -> None:
        """One step of the optimiser, for all processes together."""
        self.model.train()
        rate = self.schedule(self.step + 1)
        for group in self.optimiser.param_groups:
            group["lr"] = rate
        value, tokens = self._gradients(batch)
        self._unseen.append((value, tokens))
        if self.setting.device == "cpu":
            self._require_finite(value.item(), batch)
        if self.observe or self.setting.scaled:
            self._scaler.unscale_(self.optimiser)
        if self.observe:
            self.observe(self.step + 1, self.model)
        self._scaler.step(self.optimiser)
        self._scaler.update()
        self.step += 1

    def _gradients(self, batch: Any) -> tuple[Tensor, Tensor]:
        """Set the gradients of a batch, in as many parts as the memory asks for; its mean loss and its tokens."""

        def loss(model: nn.Module, part: Any) -> tuple[Tensor, Any]:
            with self.setting.autocast():
                return self.loss(model, part)

        assert self._running is not None
        while True:
            parts = accumulation.split(batch, self.parts) if self.parts > 1 else [batch]
            try:
                return distributed.accumulate(
                    self.ranks, self._running, loss, parts, lambda value: self._scaler.scale(value).backward()
                )
            except (MemoryError, RuntimeError) as error:
                if not _out_of_memory(error):
                    raise
                rows = batch[0].size(0) if isinstance(batch, tuple) else batch.size(0)
                if self.ranks.world > 1 or self.parts >= rows:
                    raise TrainingFailed(
                        f"The memory does not suffice for step {self.step + 1}, a batch of {rows} sentences in {self.parts} "
                        f"parts: take smaller batches or a smaller model{self._where_to_go_on()}."
                    ) from error
            # Here the failed attempt's tensors are no longer held by the error.
            self.parts = min(2 * self.parts, rows)
            self.model.zero_grad(set_to_none=True)
            if self.setting.device == "cuda":
                torch.cuda.empty_cache()
            self._say(f"Step {self.step + 1} needs more memory than there is: batches go in {self.parts} parts now.")

    def _look(self, batch: Any) -> None:
        """Take the losses since the last look from the device."""
        values, tokens = (torch.stack(numbers).tolist() for numbers in zip(*self._unseen, strict=True))
        self._unseen = []
        self._recent += values
        self.tokens += sum(tokens)
        for value in values:
            self._require_finite(value, batch)

    def _require_finite(self, value: float, batch: Any) -> None:
        """End in words where a loss is no number: on a GPU that is seen some steps later than it happens."""
        if math.isfinite(value):
            return
        where = _first_not_finite(self.model, lambda: self.loss(self.model, batch))
        at_once = self.setting.device == "cpu"
        when = f"at step {self.step + 1}" if at_once else f"in the {LOOK} steps before step {self.step}"
        rate = self.optimiser.param_groups[0]["lr"]
        kept = (
            f"the weights of step {self.best_step} are kept" if self._best else "there are no earlier weights to keep"
        )
        self._last = {}
        self.use_best()
        raise TrainingFailed(
            f"The loss became {value} {when}, learning rate {rate:.2g}; {where}. "
            f"Try a lower learning rate or a longer warm-up; {kept}."
        )

    def _where_to_go_on(self) -> str:
        path = self.folder and self.folder / CHECKPOINT
        saved = self.history[-1]["step"] if self.history else 0
        return f"; {path} has everything up to step {saved:g}" if path and path.is_file() else ""

    def _say(self, text: str) -> None:
        if self.ranks.first:
            self.say(text)

    def _pause(self, evaluating: bool) -> None:
        """What is done every so many steps: measure, remember, save."""
        scores: dict[str, float] = {}
        if self.evaluate and evaluating and self.ranks.first:
            self.model.eval()
            try:
                with torch.no_grad():
                    scores = dict(self.evaluate(self.model))
                    if self.report:
                        self.say(f"step {self.step}: {self.report(self.model)}")
            except (MemoryError, RuntimeError) as error:
                if not _out_of_memory(error):
                    raise
                raise TrainingFailed(
                    f"The memory does not suffice to evaluate the model at step {self.step}{self._where_to_go_on()}."
                ) from error
            score = next(iter(scores.values()))
            if score >= self.best_score:  # of equals the one that has learnt longer
                self.best_step, self.best_score = self.step, score
                self._best = _copy(self.model.state_dict())
        row = {"step": self.step, "loss": sum(self._recent) / len(self._recent), "lr": self.schedule(self.step)}
        self.history.append(row | {"tokens": self.tokens, "seconds": round(self.seconds, 2)} | scores)
        self._recent = []
        path = self.folder and self.folder / CHECKPOINT
        trouble = self._write_down(path)
        if trouble:  # most often a full disk: what has been learnt is in the memory still
            kept = "the earlier checkpoint is kept" if path and path.is_file() else "there is no checkpoint yet"
            self._say(
                f"Step {self.step} could not be written down ({trouble.strerror or trouble}): {kept}, and training goes on. "
                f"Make room on the disk."
            )

    def _write_down(self, path: Path | None) -> OSError | None:
        """Give the logs their row and write the checkpoint, each whether or not the others could; the last error, if any.

        The logs come first: what they have too much when the machine fails in between, resuming takes back.
        """
        trouble = None
        for log in self.logs if self.ranks.first else ():
            try:
                log.write(self.history[-1])
            except OSError as error:
                trouble = error
        try:
            if path:
                self.save(path)
        except OSError as error:
            trouble = error
        return trouble

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
        """Write a checkpoint: the old one, or the new one, is whole at any moment, also when the machine fails.

        All processes call it together, and the first one writes. OSError where the file cannot be written.
        """
        state = self.state()
        try:
            if self.ranks.first:
                checkpoint.write(Path(path), state)
        finally:
            self.ranks.wait()  # nobody goes on before the file is there, or is known not to be

    def state(self) -> dict[str, Any]:
        """Everything that decides how training goes on, as plain data and tensors."""
        return {
            "model": self.model.state_dict(),
            "optimiser": self.optimiser.state_dict(),
            "scaler": self._scaler.state_dict(),
            "best": self._best,
            "counters": {name: getattr(self, name) for name in _COUNTERS} | {"world": self.ranks.world},
            "history": self.history,
            "recent": self._recent,
            "random": self.ranks.gather(checkpoint.random_state()),
        }

    def resume(self, path: str | Path | None = None) -> bool:
        """Go on from a checkpoint, by default the one of ``folder``; False when there is none.

        Raises ``ValueError`` when the checkpoint is damaged, belongs to another model or to another number of processes.
        """
        path = Path(path) if path is not None else self.folder and self.folder / CHECKPOINT
        # The first process reads for all: the others may run on machines without the folder.
        if path is None or not self.ranks.any(self.ranks.first and path.is_file()):
            return False
        try:
            state = self.ranks.from_first(lambda: checkpoint.read(path))
            world = state["counters"]["world"]
            if world != self.ranks.world:
                raise ValueError(f"it is one of {world} processes and this run has {self.ranks.world}")
            self.model.load_state_dict(state["model"])
            self.optimiser.load_state_dict(state["optimiser"])
            self._scaler.load_state_dict(state["scaler"])
            for name in _COUNTERS:
                setattr(self, name, state["counters"][name])
            self._best = {name: value.to(self.setting.device) for name, value in state["best"].items()}
            self.history, self._recent = state["history"], state["recent"]
            self._last = {}
            checkpoint.set_random_state(state["random"][self.ranks.rank])
        except Exception as error:
            first = str(error).splitlines()[0] if str(error) else type(error).__name__
            raise ValueError(f"{path} cannot be resumed ({first}); delete it to begin again.") from error
        if self.ranks.first:
            for log in self.logs:
                log.resume(self.step)
        return True


_COUNTERS = ("step", "epoch", "place", "seconds", "tokens", "best_step", "best_score", "parts")


def _copy(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name: value.detach().clone() for name, value in state.items()}


def _moved(batch: Any, device: str) -> Any:
    if isinstance(batch, Tensor):
        return batch.to(device, non_blocking=True)
    return tuple(part.to(device, non_blocking=True) for part in batch)


def _out_of_memory(error: Exception) -> bool:
    """Whether an error means that memory was asked for and not given; PyTorch says it in several ways."""
    kinds = (MemoryError, torch.OutOfMemoryError)
    return isinstance(error, kinds) or "can't allocate memory" in str(error) or "not enough memory" in str(error)


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
