"""What one implementation of the bank is."""

from __future__ import annotations

from dataclasses import dataclass

#: What every source of the bank may use without importing it again.
IMPORTS = """\
import math

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

"""


@dataclass(frozen=True)
class Entry:
    """One implementation of a piece: its source, and what is known about it.

    ``source`` is a complete Python file that defines ``piece``; ``verdict`` is ``"right"`` or ``"wrong"`` by the
    specification in ``solutions/``; ``misconception`` names the diagnosis that fits a wrong one, if any does.
    """

    piece: str
    id: str
    source: str
    verdict: str
    note: str
    misconception: str | None = None


class Collector:
    """The implementations of one piece, in the order in which they are written down."""

    def __init__(self, piece: str, prefix: str, imports: str = IMPORTS):
        self.piece, self.prefix, self.imports = piece, prefix, imports
        self.entries: list[Entry] = []

    def right(self, name: str, note: str, body: str) -> None:
        self._add("right", name, note, body, None)

    def wrong(self, name: str, note: str, body: str, misconception: str | None = None) -> None:
        self._add("wrong", name, note, body, misconception)

    def _add(self, verdict: str, name: str, note: str, body: str, misconception: str | None) -> None:
        source = self.imports + body.lstrip("\n")
        self.entries.append(Entry(self.piece, f"{self.prefix}-{name}", source, verdict, note, misconception))
