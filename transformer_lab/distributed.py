"""One training by several processes, each with its share of every batch, that gives what one process would give.

    torchrun --nproc-per-node 2 train.py

    with distributed.group() as ranks:
        batches = TokenBatches(pairs, budget, seed=seed, rank=ranks.rank, world=ranks.world)
        torch.manual_seed(ranks.seed(seed))                     # other dropout in every process
        model = ranks.wrap(model)
        loss, tokens = distributed.accumulate(ranks, model, loss_of, parts)

PyTorch's ``DistributedDataParallel`` starts all processes with the weights of the first and takes the mean of their
gradients. That mean is the large batch's gradient only where all have equally many tokens. Here each process's sum of
losses is divided by the number of tokens that all have together, so that a token counts the same wherever it is.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from transformer_lab.accumulation import Loss, divide_gradients


@dataclass(frozen=True)
class Ranks:
    """Which process this is: ``rank`` of ``world``, and ``local`` among those on this machine, all counted from 0."""

    rank: int = 0
    local: int = 0
    world: int = 1

    @classmethod
    def of(cls, environment: Mapping[str, str]) -> Ranks:
        """What ``torchrun`` has written into the environment; without it, one process alone.

        ValueError where the numbers don't fit together.
        """
        rank, local, world = (int(environment.get(name, default)) for name, default in _VARIABLES)
        if not (0 <= local <= rank < world):
            raise ValueError(f"There is no process {rank} (here {local}) among {world}: start it with torchrun.")
        return cls(rank, local, world)

    @property
    def first(self) -> bool:
        """Whether this is the process that writes files and speaks."""
        return self.rank == 0

    def seed(self, seed: int) -> int:
        """A seed of this process's own: that of dropout, which must not be the same everywhere. The first one keeps it."""
        return seed + 1_000_003 * self.rank

    def wrap(self, model: nn.Module) -> nn.Module:
        """The model as one of all processes' copies; unchanged where this process is alone."""
        if self.world == 1:
            return model
        cuda = next(model.parameters()).device.type == "cuda"
        return DistributedDataParallel(model, device_ids=[self.local] if cuda else None)

    def any(self, flag: bool) -> bool:
        """Whether any process says yes; each of them gets it, so that all decide alike."""
        if self.world == 1:
            return flag
        device = "cuda" if dist.get_backend() == "nccl" else "cpu"
        return bool(self.sum(torch.tensor(float(flag), device=device)))

    def gather(self, own: Any) -> list[Any]:
        """What every process has, plain data and tensors, in the order of their numbers; each of them gets it."""
        if self.world == 1:
            return [own]
        everybody: list[Any] = [None] * self.world
        dist.all_gather_object(everybody, own)
        return everybody

    def from_first(self, read: Callable[[], Any]) -> Any:
        """What ``read`` gives in the first process, plain data and tensors; each of them gets it, or the first one's error."""
        if self.world == 1:
            return read()
        answer: list[Any] = [None, None]
        if self.first:
            try:
                answer[0] = read()
            except Exception as error:
                answer[1] = error
        dist.broadcast_object_list(answer)
        if answer[1] is not None:
            raise answer[1]
        return answer[0]

    def wait(self) -> None:
        """Return when all processes have come here."""
        self.any(False)

    def sum(self, number: Tensor) -> Tensor:
        """The sum of all processes' numbers; each of them gets it."""
        if self.world > 1:
            number = number.clone()
            dist.all_reduce(number)
        return number


#: One process by itself.
ALONE = Ranks()

_VARIABLES = (("RANK", "0"), ("LOCAL_RANK", "0"), ("WORLD_SIZE", "1"))


@contextlib.contextmanager
def group(device: str = "cpu") -> Iterator[Ranks]:
    """The processes that ``torchrun`` has started, connected as long as the context lasts; alone, nothing is connected.

    On ``"cuda"`` each process takes the GPU of its number and they talk through NCCL, else through Gloo.
    """
    ranks = Ranks.of(os.environ)
    if ranks.world == 1:
        yield ranks
        return
    if device == "cuda":
        torch.cuda.set_device(ranks.local)
    dist.init_process_group("nccl" if device == "cuda" else "gloo")
    try:
        yield ranks
    finally:
        dist.destroy_process_group()


def accumulate(
    ranks: Ranks,
    model: nn.Module,
    loss: Loss,
    parts: Iterable[Any],
    backward: Callable[[Tensor], None] = Tensor.backward,
) -> tuple[Tensor, Tensor]:
    """Set the gradients to those of one large batch, of which every process has some parts: one or more each.

    As :func:`transformer_lab.accumulation.accumulate`, for the parts of all processes together. Gradients travel once, with
    the last part. ``model`` is what :meth:`Ranks.wrap` gave.

    Returns
    -------
    mean, tokens
        The mean loss over the tokens of all parts of all processes, and their number, the same in every process.

    Raises
    ------
    ValueError
        There is no part.
    """
    parts = list(parts)
    if not parts:
        raise ValueError("There is nothing to accumulate: a batch has at least one part.")
    model.zero_grad(set_to_none=True)
    sums, counts = [], []
    for number, part in enumerate(parts, start=1):
        waiting = number < len(parts) and isinstance(model, DistributedDataParallel)
        with model.no_sync() if waiting else contextlib.nullcontext():  # type: ignore[operator]
            mean, count = loss(model, part)
            tokens = torch.as_tensor(count, device=mean.device)
            backward(mean * tokens)
        sums.append((mean * tokens).detach())
        counts.append(tokens)
    loss_sum = torch.stack(sums).sum()
    # One message for both; float32 counts without error up to 2**24 tokens, and an Apple GPU knows no float64.
    total, tokens = ranks.sum(torch.stack([loss_sum, torch.stack(counts).sum().to(loss_sum.dtype)])).unbind()
    # DistributedDataParallel has divided the sum over processes by their number already.
    divide_gradients(model, tokens / ranks.world)
    return total / tokens, tokens.long()
