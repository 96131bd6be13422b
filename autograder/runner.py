"""Run the hidden checks on a learner's pieces: the one public face for the command line, the judge, tests and scripts."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import hmac
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import torch

from autograder import diagnose, recreates, registry, settings
from autograder.compare import CheckFailed
from autograder.diagnose import Diagnosis
from autograder.student import FILE_ERRORS, Student, StudentError, as_student
from transformer_lab.cells import Cell

#: After one of these, the remaining checks of a piece fail without being run.
STOPPED = ("Timeout", "TimeoutError", "Hung", "KernelDied")


@dataclass(frozen=True)
class CheckResult:
    """What one hidden check found.

    ``message`` is empty when the check holds; ``diagnosis`` names the known mistake whose numbers the piece gives.
    ``notes`` are about the piece and stand with the first of its checks; what they cost is gone from ``earned``.
    """

    check: str
    piece: str
    chapter: int
    points: float
    earned: float
    message: str = ""
    diagnosis: Diagnosis | None = None
    notes: tuple[str, ...] = ()
    seconds: float = 0.0

    @property
    def passed(self) -> bool:
        return not self.message

    def as_dict(self) -> dict:
        """The result as plain data, equal to what a file of JSON gives back."""
        return asdict(self) | {"notes": list(self.notes)}


def run_checks(
    student: Any,
    *,
    chapter: int | str | None = None,
    piece: str | None = None,
    seed: int | bytes = 0,
    diagnosing: bool = True,
    cells: Sequence[Cell] | None = None,
    builtin_costs: float = 0.0,
) -> list[CheckResult]:
    """Run the hidden checks of a chapter, of one piece, or all of them.

    Parameters
    ----------
    student
        The pieces: any namespace, module or dictionary, or a :class:`autograder.student.Student`. A missing name fails
        its checks.
    chapter, piece
        Which checks to run, as in :func:`autograder.registry.checks`.
    seed
        Decides the fresh random inputs; the same seed gives every student the same inputs.
    diagnosing
        False leaves out the search for the known mistake, which takes longer than the checks.
    cells
        The learner's code cells, in which uses of a built-in that a piece re-creates are looked for; None looks for
        them where the namespace comes from.
    builtin_costs
        The share of a piece's points, 0 to 1, that such a use costs; it is noted in any case.

    Returns
    -------
    list[CheckResult]
        One per check, in the order of the course. Nothing that the learner's code does makes this function raise.

    Raises
    ------
    ValueError
        There are no such checks, or ``builtin_costs`` is no share.
    """
    student, price = as_student(student), settings.share(builtin_costs)
    selected = registry.checks(chapter=chapter, piece=piece)
    results: list[CheckResult] = []
    with _one_thread():
        for name in dict.fromkeys(check.piece for check in selected):
            own = [check for check in selected if check.piece == name]
            results.extend(_run_piece(student, own, seed, diagnosing, cells, price))
    return results


def random_for(seed: int | bytes, check: str) -> np.random.Generator:
    """The generator of a check's inputs: keyed by the seed and the check's name, so that checks don't depend on order."""
    key = seed if isinstance(seed, bytes) else str(seed).encode()
    digest = hmac.new(key, check.encode(), hashlib.sha256).digest()
    return np.random.default_rng(int.from_bytes(digest, "big"))


@contextlib.contextmanager
def _one_thread():
    """Torch on one thread: the same sums everywhere, and no waiting for each other where many notebooks are graded."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _run_piece(
    student: Student,
    checks: list[registry.Check],
    seed: int | bytes,
    diagnosing: bool,
    cells: Sequence[Cell] | None,
    price: float,
) -> list[CheckResult]:
    attempts: list[diagnose.Attempt] = []
    outcomes: list[tuple[str, float]] = []
    stopped = ""
    for check in checks:
        rerun = _rerun(check, seed)
        began, start, message = time.perf_counter(), len(student.transcript), stopped
        if not stopped:
            try:
                rerun(student)
            except CheckFailed as failure:
                message = str(failure)
            except StudentError as error:
                message = _error_message(check.piece, error)
                if error.type_name in STOPPED:
                    stopped = f"Not run: {message}"
            except Exception as error:  # plain data of an unexpected kind: whatever a kernel may answer
                detail = f"{type(error).__name__}: {error}".splitlines()[0][:200]
                message = f"What `{check.piece}` gave cannot be compared with what was expected ({detail})."
        attempts.append(diagnose.Attempt(rerun, student.transcript[start:], bool(message)))
        outcomes.append((message, time.perf_counter() - began))
    note = "" if stopped else _note(student, checks[0].piece, attempts, cells)
    del student.transcript[:]
    found = diagnose.explain(checks[0].piece, attempts) if diagnosing and not stopped else [None] * len(checks)
    results = [
        CheckResult(
            check.name,
            check.piece,
            check.chapter,
            check.points,
            0.0 if message else check.points,
            message,
            diagnosis,
            seconds=seconds,
        )
        for check, (message, seconds), diagnosis in zip(checks, outcomes, found, strict=True)
    ]
    return _noted(results, note, price) if note else results


def _note(student: Student, piece: str, attempts: list[diagnose.Attempt], cells: Sequence[Cell] | None) -> str:
    """The note on a built-in that the piece uses; the first request that each check saw answered may be traced."""
    answered = ([e.request for e in attempt.exchanges if e.wanted is not None] for attempt in attempts)
    requests = [own[0] for own in answered if own]
    return recreates.note(student, piece, requests, cells, right=not any(attempt.failed for attempt in attempts))


def _noted(results: list[CheckResult], note: str, price: float) -> list[CheckResult]:
    """The results of a piece with a note on its first, and what the note costs taken off what was earned."""
    before = sum(result.earned for result in results)
    if price and before:
        results = [replace(result, earned=round(result.earned * (1 - price), 6)) for result in results]
        after = sum(result.earned for result in results)
        note += f" In this course that costs {100 * price:.3g} % of what was earned for it: {before:.4g} become {after:.4g}."
    return [replace(results[0], notes=(note,)), *results[1:]]


@functools.lru_cache(maxsize=1000)
def _rerun(check: registry.Check, seed: int | bytes):
    """A check with its inputs, the same object for the same check and seed (see ``diagnose.Attempt``)."""
    return functools.partial(_run_check, check, seed)


def _run_check(check: registry.Check, seed: int | bytes, student) -> None:
    key = f"{check.chapter}/{check.piece}" + ("" if check.file else f"/{check.name}")
    check.function(student, random_for(seed, key))


def _error_message(piece: str, error: StudentError) -> str:
    if error.type_name in FILE_ERRORS:
        return error.message
    if error.type_name == "NotImplementedError":
        return f"`{piece}` is not written yet: it still raises NotImplementedError."
    if error.type_name == "NameError" and error.message.endswith("is not defined") and f"{piece} " in error.message:
        return f"`{piece}` is not defined: the cell that should define it did not run to its end."
    if error.type_name in ("Timeout", "TimeoutError", "Hung"):
        return f"`{piece}` gave {error.message}: a loop that does not end?"
    if error.type_name == "KernelDied":
        return f"The kernel died while `{piece}` ran: out of memory, or the process was ended."
    return f"`{piece}` raised {error}."
