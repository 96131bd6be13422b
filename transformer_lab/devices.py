"""Which device to train on and in which number format, chosen by what the machine can do and said aloud.

    setting = devices.choose(devices.look())
    print(setting.sentence)                     # CUDA device NVIDIA …: matrices in bfloat16, …
    model.to(setting.device)
    optimiser = devices.adam(model.parameters(), setting)
    with setting.autocast():
        loss = …

:func:`look` asks PyTorch once; :func:`choose` decides from its answer alone, so that every decision can be tested on a
machine without a GPU.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

DEVICES = ("cuda", "mps", "cpu")
FORMATS = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


@dataclass(frozen=True)
class Capabilities:
    """What a machine can do.

    Attributes
    ----------
    cuda
        The name of the CUDA device; empty: there is none.
    compute
        Its compute capability, such as (9, 0). From (8, 0) on it multiplies in bfloat16 and in TF32.
    mps
        Whether there is an Apple GPU.
    threads
        Processor threads.
    fused
        The devices on which PyTorch's Adam updates all parameters in one kernel.
    """

    cuda: str = ""
    compute: tuple[int, int] = (0, 0)
    mps: bool = False
    threads: int = 1
    fused: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Setting:
    """Where and how to compute.

    Attributes
    ----------
    device
        ``"cuda"``, ``"mps"`` or ``"cpu"``.
    dtype
        The format in which matrices are multiplied; parameters, norms and the loss stay in float32.
    scaled
        Whether the loss is to be scaled before gradients are taken: float16 rounds small ones to 0.
    tf32
        Whether float32 matrices are multiplied with TF32's 10 bits behind the point.
    fused
        Whether the optimiser is a fused one.
    sentence
        All of this in one sentence.
    """

    device: str
    dtype: torch.dtype
    scaled: bool
    tf32: bool
    fused: bool
    sentence: str

    def autocast(self) -> contextlib.AbstractContextManager[Any]:
        """The context in which matrices are multiplied in ``dtype``; it changes nothing where that is float32."""
        if self.dtype == torch.float32:
            return contextlib.nullcontext()
        return torch.autocast(self.device, dtype=self.dtype)

    def scaler(self) -> torch.amp.GradScaler:
        """What scales the loss and takes the factor out of the gradients again; it does nothing where not ``scaled``."""
        return torch.amp.GradScaler(self.device, enabled=self.scaled)

    def apply(self) -> None:
        """Tell PyTorch whether float32 matrices may be multiplied in TF32: a setting of the whole process."""
        torch.set_float32_matmul_precision("high" if self.tf32 else "highest")


def look() -> Capabilities:
    """What this machine can do, as PyTorch sees it."""
    found = [name for name in DEVICES if _available(name)]
    cuda = "cuda" in found
    return Capabilities(
        cuda=torch.cuda.get_device_name() if cuda else "",
        compute=torch.cuda.get_device_capability() if cuda else (0, 0),
        mps="mps" in found,
        threads=torch.get_num_threads(),
        fused=frozenset(name for name in found if _has_fused_adam(name)),
    )


def choose(machine: Capabilities, device: str | None = None, dtype: str | None = None) -> Setting:
    """The setting for a machine: the fastest device there is, in the shortest format that trains without trouble.

    CUDA computes in bfloat16 where it can and else in float16 with a scaled loss; an Apple GPU and a processor in float32.
    (A processor with instructions for bfloat16 took longer with it than without when a small model was trained.)

    Parameters
    ----------
    machine
        From :func:`look`.
    device, dtype
        Names that are wanted instead, such as ``"cpu"`` and ``"float32"``.

    Raises
    ------
    ValueError
        The device is not there, or does not know the format; the sentence says what there is.
    """
    there = [name for name, has in (("cuda", bool(machine.cuda)), ("mps", machine.mps), ("cpu", True)) if has]
    device = device or there[0]
    if device not in there:
        raise ValueError(f"There is no device {device} here: take {' or '.join(there)}.")
    recent = device == "cuda" and machine.compute >= (8, 0)
    dtype = dtype or ("bfloat16" if recent else "float16" if device == "cuda" else "float32")
    if dtype not in FORMATS:
        raise ValueError(f"There is no format {dtype}: take {', '.join(FORMATS)}.")
    if device == "cuda" and dtype == "bfloat16" and not recent:
        raise ValueError(f"{machine.cuda} does not multiply in bfloat16: take float16 or float32.")
    if device == "cpu" and dtype == "float16":
        raise ValueError("A processor does not train in float16: take float32 or bfloat16.")
    scaled, fused = dtype == "float16", device in machine.fused
    where = {
        "cuda": f"CUDA device {machine.cuda}",
        "mps": "Apple GPU (MPS)",
        "cpu": f"processor with {machine.threads} {'thread' if machine.threads == 1 else 'threads'}",
    }[device]
    parts = [
        f"matrices in {dtype}" + (" with a scaled loss" if scaled else ""),
        *(["float32 matrices in TF32"] if recent else []),
        f"{'fused' if fused else 'plain'} Adam",
    ]
    sentence = f"Computing on the {where}: {', '.join(parts)}."
    return Setting(device, FORMATS[dtype], scaled, recent, fused, sentence)


#: A processor in float32, as every machine has it.
PROCESSOR = choose(Capabilities(fused=frozenset({"cpu"})), "cpu")


def adam(
    parameters: Iterable[nn.Parameter], setting: Setting, *, betas: tuple[float, float] = (0.9, 0.98), eps: float = 1e-9
) -> torch.optim.Adam:
    """Adam with the paper's constants (Vaswani et al. 2017, section 5.3), fused where the setting says so.

    The learning rate is 0 until a schedule sets it.
    """
    return torch.optim.Adam(parameters, lr=0.0, betas=betas, eps=eps, fused=setting.fused or None)


def _available(name: str) -> bool:
    return {"cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available(), "cpu": True}[name]


def _has_fused_adam(device: str) -> bool:
    try:
        torch.optim.Adam([nn.Parameter(torch.zeros(1, device=device))], fused=True)
    except RuntimeError:
        return False
    return True
