"""Checkpoints: files that are whole at any moment, and the state of every generator of random numbers."""

from __future__ import annotations

import io
import os
import random
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch


def write(path: Path, state: Mapping[str, Any]) -> None:
    """Write plain data and tensors: the old file, or the new one, is whole at any moment, also when the machine fails.

    OSError where the file cannot be written; the old one is kept then.
    """
    content = io.BytesIO()
    torch.save(state, content)  # to memory, since torch hides why a file could not be written
    replace(path, content.getbuffer())


def replace(path: Path, content: bytes | memoryview) -> None:
    """Put a file in the place of another: the old one, or the new one, is whole at any moment; OSError keeps the old one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.new")  # one name, so that what a killed run has left is written over
    try:
        with partial.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


def read(path: Path) -> dict[str, Any]:
    """What :func:`write` has written, tensors on the processor; nothing in the file is run."""
    return torch.load(path, weights_only=True, map_location="cpu")


def random_state() -> dict[str, Any]:
    """The state of every generator that a training may draw from, as plain data and tensors."""
    numbers: Any = np.random.get_state()  # noqa: NPY002 - the global generator is part of the state
    kind, words, *rest = numbers
    version, inner, gauss = random.getstate()
    cuda = {"cuda": torch.cuda.get_rng_state()} if torch.cuda.is_available() else {}
    return {
        "torch": torch.get_rng_state(),
        "python": [version, list(inner), gauss],
        "numpy": [kind, torch.from_numpy(words.astype(np.int64)), *rest],
    } | cuda


def set_random_state(state: Mapping[str, Any]) -> None:
    torch.set_rng_state(state["torch"])
    if "cuda" in state and torch.cuda.is_available():
        torch.cuda.set_rng_state(state["cuda"])
    version, inner, gauss = state["python"]
    random.setstate((version, tuple(inner), gauss))
    kind, words, *rest = state["numpy"]
    np.random.set_state((kind, words.numpy().astype(np.uint32), *rest))  # noqa: NPY002
