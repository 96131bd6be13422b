"""Gradients of a batch that is too large for the memory, from parts of it.

The loss of a batch is a mean over its real tokens. The mean of the parts' means is another number wherever the parts have
different numbers of tokens, and the more so the more their lengths differ: each part has to count by its tokens.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor, nn

#: The mean loss of a batch over its real tokens, and how many these are, as a number or a tensor.
Loss = Callable[[nn.Module, Any], tuple[Tensor, "int | Tensor"]]


def accumulate(
    model: nn.Module,
    loss: Loss,
    parts: Iterable[Any],
    backward: Callable[[Tensor], None] = Tensor.backward,
) -> tuple[Tensor, Tensor]:
    """Set the gradients to those of one large batch, of which ``parts`` are the parts, and never hold more than one.

    Parameters
    ----------
    model
        Its gradients are replaced; what they were before is gone.
    loss
        ``loss(model, part)`` gives the part's mean loss over its real tokens and their number.
    parts
        The parts, one after the other; each one's intermediate results are freed before the next one is computed.
    backward
        Takes gradients of a sum of losses, for instance of a scaled one.

    Returns
    -------
    mean, tokens
        The mean loss over the tokens of all parts, and their number: tensors on the loss's device, so that a GPU need not
        be waited for.

    Raises
    ------
    ValueError
        There is no part.
    """
    model.zero_grad(set_to_none=True)
    total: Tensor | None = None
    tokens: Tensor | None = None
    for part in parts:
        mean, count = loss(model, part)
        number = torch.as_tensor(count, device=mean.device)
        summed = mean * number
        backward(summed)
        total = summed.detach() if total is None else total + summed.detach()
        tokens = number if tokens is None else tokens + number
    if total is None or tokens is None:
        raise ValueError("There is nothing to accumulate: a batch has at least one part.")
    divide_gradients(model, tokens)
    return total / tokens, tokens


@torch.no_grad()
def divide_gradients(model: nn.Module, by: Tensor) -> None:
    """Divide every gradient of ``model`` by one number, a tensor without axes."""
    gradients = [parameter.grad for parameter in model.parameters() if parameter.grad is not None]
    if gradients:
        torch._foreach_div_(gradients, by.to(gradients[0].dtype))


def split(batch: tuple[Tensor, ...], parts: int) -> list[tuple[Tensor, ...]]:
    """The rows of a batch's tensors (B, …) in ``parts`` groups as equal as can be, none empty; ValueError for none at all."""
    if parts < 1:
        raise ValueError(f"A batch has at least one part, not {parts}.")
    groups = zip(*(tensor.tensor_split(min(parts, tensor.size(0))) for tensor in batch), strict=True)
    return list(groups)
