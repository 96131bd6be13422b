"""What the hidden checks compare with, and what they draw their inputs with.

Values are computed in float64 NumPy and gradients by PyTorch's own operators; nothing here knows the course's solutions.
"""

import numpy as np
import torch

from autograder.compare import require
from transformer_lab.driver import cotangent


def softmax(scores, axis=-1) -> np.ndarray:
    """exp(s) / Σ exp(s) along one axis, in float64, for scores of any size and −inf."""
    scores = np.asarray(scores, dtype=np.float64)
    powers = np.exp(scores - scores.max(axis=axis, keepdims=True))
    return powers / powers.sum(axis=axis, keepdims=True)


def attention(q, k, v, mask=None) -> tuple[np.ndarray, np.ndarray]:
    """softmax(q kᵀ / √K) v and the weights (Vaswani et al. 2017, equation 1), in float64."""
    q, k, v = (np.asarray(a, dtype=np.float64) for a in (q, k, v))
    scores = q @ np.swapaxes(k, -1, -2) / np.sqrt(q.shape[-1])
    if mask is not None:
        scores = np.where(mask, scores, -np.inf)
    weights = softmax(scores)
    return weights @ v, weights


def distinct_sizes(rng, count: int, low: int = 2, high: int = 9) -> list[int]:
    """``count`` sizes, no two alike."""
    return [int(size) for size in rng.permutation(np.arange(low, high))[:count]]


def normal(rng, *shape, scale=1.0, dtype=np.float32) -> np.ndarray:
    return (rng.normal(size=shape) * scale).astype(dtype)


def gradients(function, *arrays) -> list[np.ndarray]:
    """d(Σ function(arrays) · cotangent)/d(array) for each array, by PyTorch in float64."""
    tensors = [torch.tensor(np.asarray(a, dtype=np.float64), requires_grad=True) for a in arrays]
    output = function(*tensors)
    (output * torch.from_numpy(cotangent(tuple(output.shape)))).sum().backward()
    return [tensor.grad.numpy() for tensor in tensors if tensor.grad is not None]


def any_mask(rng, *shape) -> np.ndarray:
    """A random boolean mask in which every row allows at least one key and blocks at least one."""
    mask = rng.random(shape) > 0.4
    keys = shape[-1]
    open_key = rng.integers(0, keys, size=shape[:-1])
    np.put_along_axis(mask, open_key[..., None], True, axis=-1)
    np.put_along_axis(
        mask, ((open_key + 1 + rng.integers(0, keys - 1, size=shape[:-1])) % keys)[..., None], False, axis=-1
    )
    return mask


def require_dtype(got: np.ndarray, given: type, inputs: str, what: str) -> None:
    """The dtype of the inputs, or float32, which is accepted for float64 inputs too."""
    wanted = np.dtype(given)
    kept = got.dtype in (wanted, np.dtype(np.float32))
    require(kept, f"{wanted} {inputs} gave {what} of dtype {got.dtype}, expected {wanted}.")
