"""A small training loop for classifiers of sequences, to be read.

from transformer_lab import classifier, sequences, training

parts = sequences.splits(sequences.TASKS["first-motif"], seed=0)
torch.manual_seed(0)
model = classifier.build(classifier.GRADED)
history = training.fit(model, parts["train"], parts["validation"], steps=1500)
training.evaluate(model, parts["test"])
"""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator
from dataclasses import dataclass, field

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from tqdm.auto import tqdm

from transformer_lab.sequences import Sequences


@dataclass
class History:
    """What :func:`fit` wrote down.

    ``losses`` holds the training loss of every step. ``steps`` are those after which the model was looked at, with
    ``accuracies`` and ``validation_losses`` on the validation set. ``best_step`` is the one whose weights were kept.
    """

    losses: list[float] = field(default_factory=list)
    steps: list[int] = field(default_factory=list)
    accuracies: list[float] = field(default_factory=list)
    validation_losses: list[float] = field(default_factory=list)
    best_step: int = 0


def fit(
    model: nn.Module,
    train: Sequences,
    validation: Sequences,
    *,
    steps: int = 1500,
    batch_size: int = 64,
    lr: float = 1e-3,
    every: int = 100,
    patience: int = 5,
    seed: int = 0,
    progress: bool = True,
) -> History:
    """Train ``model`` with Adam on the cross-entropy; it ends with its best weights, in evaluation mode.

    Parameters
    ----------
    model
        Called as ``model(inputs, mask)``, returns logits (B, num_classes). It is changed in place, on the device where it is.
    steps
        At most so many batches.
    lr
        The largest learning rate: it rises to this for three tenths of the steps and falls to almost nothing in the rest
        (Smith and Topin 2019).
    every, patience
        After each ``every`` steps the model is looked at on the validation set. The best weights are those with the
        smallest loss there; when ``patience`` looks in a row have brought nothing better, training stops.
    seed
        Decides the order of the batches, and dropout. (The initial weights are the caller's.)
    progress
        Show a progress bar.

    Ctrl-C stops training and keeps the best weights so far.

    Raises
    ------
    FloatingPointError
        The loss became infinite or NaN; the sentence says at which step.
    """
    torch.manual_seed(seed)
    device = next(model.parameters()).device
    optimiser = torch.optim.Adam(model.parameters(), lr=lr)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, max_lr=lr, total_steps=steps)
    history, best_loss, best_weights = History(), math.inf, copy.deepcopy(model.state_dict())
    bar = tqdm(batches(train, batch_size, steps), total=steps, disable=not progress, unit="step")
    try:
        for step, batch in enumerate(bar, start=1):
            batch = batch.to(device)
            model.train()  # dropout on
            loss = F.cross_entropy(model(batch.inputs, batch.mask), batch.labels)
            if not loss.isfinite():
                raise FloatingPointError(f"The loss is {loss.item()} at step {step}; try a smaller learning rate.")
            optimiser.zero_grad()  # gradients add up unless they are cleared
            loss.backward()
            optimiser.step()
            schedule.step()
            history.losses.append(loss.item())

            if step % every == 0 or step == steps:
                validation_loss, accuracy = _look(model, validation)
                history.steps.append(step)
                history.accuracies.append(accuracy)
                history.validation_losses.append(validation_loss)
                bar.set_postfix(loss=f"{loss.item():.3f}", validation=f"{accuracy:.3f}")
                if validation_loss < best_loss:
                    best_loss, history.best_step = validation_loss, step
                    best_weights = copy.deepcopy(model.state_dict())
                elif len(history.steps) - 1 - history.steps.index(history.best_step) >= patience:
                    break
    except KeyboardInterrupt:
        bar.write(f"Stopped at step {len(history.losses)}; the weights of step {history.best_step} are kept.")
    finally:
        bar.close()
    model.load_state_dict(best_weights)
    model.eval()
    return history


def batches(sequences: Sequences, batch_size: int, steps: int) -> Iterator[Sequences]:
    """``steps`` batches: all sequences in random order, again and again, each time in another order."""
    waiting = torch.empty(0, dtype=torch.long)
    for _ in range(steps):
        while len(waiting) < batch_size:
            waiting = torch.cat([waiting, torch.randperm(len(sequences))])
        yield sequences[waiting[:batch_size]].trimmed()
        waiting = waiting[batch_size:]


def predict(model: nn.Module, sequences: Sequences) -> Tensor:
    """The most likely class of each sequence, (N,)."""
    return logits(model, sequences).argmax(-1)


def evaluate(model: nn.Module, sequences: Sequences) -> float:
    """The share of sequences whose class the model finds."""
    return float((predict(model, sequences) == sequences.labels).double().mean())


@torch.no_grad()
def logits(model: nn.Module, sequences: Sequences, batch_size: int = 500) -> Tensor:
    """The model's logits in evaluation mode, (N, num_classes), on the CPU; the mode is put back afterwards."""
    device, mode = next(model.parameters()).device, model.training
    model.eval()  # dropout off
    try:
        parts = [
            sequences[start : start + batch_size].trimmed().to(device) for start in range(0, len(sequences), batch_size)
        ]
        return torch.cat([model(part.inputs, part.mask).cpu() for part in parts])
    finally:
        model.train(mode)


def _look(model: nn.Module, sequences: Sequences) -> tuple[float, float]:
    """Mean cross-entropy, and accuracy."""
    scores = logits(model, sequences)
    right = (scores.argmax(-1) == sequences.labels).double().mean()
    return float(F.cross_entropy(scores, sequences.labels)), float(right)
