"""What makes the grader's own processes start in half the time. It imports nothing heavy itself.

A worker is a fork of one process that has imported all that judging needs (the *fork server* of :mod:`multiprocessing`), so
that PyTorch is loaded once for all of them.
"""

from __future__ import annotations

import multiprocessing
import sys
from multiprocessing.context import BaseContext

#: With this in the place of a module, importing it fails.
ABSENT = None


def leave_out_unused() -> None:
    """Spare this process what an import does in vain: call it before anything imports ``nbformat``.

    ``jsonschema`` builds 39 grammars of internationalised addresses (RFC 3987) as soon as it is imported, which takes longer
    than PyTorch; a notebook's schema has no such format, and jsonschema does without where the package is missing.
    ``transformer_lab.cells`` does the same for the import alone, in notebooks and pages, where the package may be wanted.
    """
    sys.modules.setdefault("rfc3987_syntax", ABSENT)  # type: ignore[arg-type]


def context() -> BaseContext:
    """How workers are started: forked from a process that is ready, where the system can do that."""
    if "forkserver" not in multiprocessing.get_all_start_methods():
        return multiprocessing.get_context("spawn")
    found = multiprocessing.get_context("forkserver")
    found.set_forkserver_preload([f"{__package__}.loaded"])
    return found


def begin() -> None:
    """Let the workers' imports begin now, beside this process's own."""
    if context().get_start_method() == "forkserver":
        from multiprocessing import forkserver

        forkserver.ensure_running()
