"""Run the hidden checks on a learner's pieces: the one public face for the command line, the judge, tests and scripts."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import hmac
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np
import torch

from autograder import diagnose, recall, recreates, registry, settings, stand_ins
from autograder.compare import CheckFailed
from autograder.diagnose import Diagnosis
from autograder.reasons import Reason, of_error
from autograder.student import FILE_ERRORS, RemoteStudent, Student, StudentError, as_student
from transformer_lab.cells import Cell

#: Asks a student's setting what it is; it has no widths of its own.
NO_REQUEST: dict = {"init": None, "inputs": []}

#: After one of these, the remaining checks of a piece fail without being run.
STOPPED = ("Timeout", "TimeoutError", "Hung", "KernelDied")


@dataclass(frozen=True)
class CheckResult:
    """What one hidden check found.

    ``message`` is empty when the check holds, and so is ``reason``, the code of a :class:`autograder.reasons.Reason`;
    ``diagnosis`` names the known mistake whose numbers the piece gives.
    ``notes`` are about the piece and stand with the first of its checks; what they cost is gone from ``earned``.
    So do ``terms``, which say on what terms the piece was judged where these were not the usual ones.
    """

    check: str
    piece: str
    chapter: int
    points: float
    earned: float
    message: str = ""
    diagnosis: Diagnosis | None = None
    notes: tuple[str, ...] = ()
    terms: tuple[str, ...] = ()
    seconds: float = 0.0
    reason: str = ""

    @property
    def passed(self) -> bool:
        return not self.message

    def as_dict(self) -> dict:
        """The result as plain data, equal to what a file of JSON gives back."""
        return asdict(self) | {"notes": list(self.notes), "terms": list(self.terms)}


def run_checks(
    student: Any,
    *,
    chapter: int | str | None = None,
    piece: str | None = None,
    seed: int | bytes = 0,
    diagnosing: bool = True,
    cells: Sequence[Cell] | None = None,
    builtin_costs: float = 0.0,
    verdicts: dict[str, bool] | None = None,
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
    verdicts
        For pieces that have been judged before, by name, whether they pass by themselves; what is found here is added.
        Where a piece fails, the verdicts on the pieces before it that are not there are found out.

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
    verdicts = {} if verdicts is None else verdicts
    results: list[CheckResult] = []
    with _one_thread():
        for name in dict.fromkeys(check.piece for check in selected):
            own = [check for check in selected if check.piece == name]
            results.extend(_run_piece(student, own, seed, diagnosing, cells, price, verdicts))
    return results


def first_failure(student: Any, piece: str, seed: int | bytes = 0) -> str:
    """The name of the first hidden check of ``piece`` that does not hold, empty where all do.

    Quicker than :func:`run_checks` where only that is asked: it goes no further, looks for no reason and grants no
    better terms.
    """
    student = as_student(student)
    with _one_thread():
        return next((c.name for c in registry.checks(piece=piece) if _try(student, [c], seed).failed), "")


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


@dataclass
class _Trial:
    """All checks of a piece, run once: what was exchanged, what each check said, and why the rest was not run, if so."""

    checks: list[registry.Check]
    attempts: list[diagnose.Attempt] = field(default_factory=list)
    outcomes: list[tuple[str, float, str]] = field(default_factory=list)  # message, seconds, code of the reason
    stopped: str = ""

    @property
    def earned(self) -> float:
        return sum(check.points for check, (message, *_) in zip(self.checks, self.outcomes, strict=True) if not message)

    @property
    def failed(self) -> bool:
        return any(message for message, *_ in self.outcomes)

    @property
    def errors(self) -> list[StudentError]:
        return [e.error for attempt in self.attempts for e in attempt.exchanges if e.error is not None]

    def answers_as(self, other: _Trial) -> bool:
        """Whether every check saw the same in both."""
        return [message for message, *_ in self.outcomes] == [message for message, *_ in other.outcomes]


def _try(student: Student, checks: list[registry.Check], seed: int | bytes) -> _Trial:
    trial, reason = _Trial(checks), ""
    for check in checks:
        rerun = _rerun(check, seed)
        began, start, message = time.perf_counter(), len(student.transcript), trial.stopped
        if not trial.stopped:
            judged = functools.partial(_said, check, rerun)
            if isinstance(student, RemoteStudent) and not check.file:
                said = recall.said(student, _key(check), seed, judged)
            else:
                said = judged(student)
            message, reason = said.message, said.reason
            if said.ends:
                trial.stopped = f"Not run: {message}"
        trial.attempts.append(diagnose.Attempt(rerun, student.transcript[start:], bool(message)))
        trial.outcomes.append((message, time.perf_counter() - began, str(reason)))
    del student.transcript[:]
    return trial


def _said(check: registry.Check, rerun: Callable[[Student], None], student: Student) -> recall.Said:
    """Run a check and put in words how it ended."""
    try:
        rerun(student)
    except CheckFailed as failure:
        return recall.Said(str(failure), Reason.WRONG)
    except StudentError as error:
        reason = of_error(check.piece, error.type_name, error.message)
        return recall.Said(_error_message(check.piece, error), reason, error.type_name in STOPPED)
    except Exception as error:  # plain data of an unexpected kind: whatever a kernel may answer
        detail = f"{type(error).__name__}: {error}".splitlines()[0][:200]
        sentence = f"What `{check.piece}` gave cannot be compared with what was expected ({detail})."
        return recall.Said(sentence, Reason.BAD_ANSWER)
    return recall.Said()


def _run_piece(
    student: Student,
    checks: list[registry.Check],
    seed: int | bytes,
    diagnosing: bool,
    cells: Sequence[Cell] | None,
    price: float,
    verdicts: dict[str, bool],
) -> list[CheckResult]:
    piece = checks[0].piece
    trial = _try(student, checks, seed)
    if checks[0].file:  # numbers, in which there is no helper, no built-in and no known mistake
        return [_result(check, *outcome) for check, outcome in zip(checks, trial.outcomes, strict=True)]
    verdicts[piece] = not trial.failed
    terms: list[str] = []
    try:
        if trial.failed and not _lost(student):
            trial, terms = _freed(student, checks, seed, trial, verdicts)
        by_order = bool(student.setting and student.setting(NO_REQUEST).get("by_order"))
        note = "" if trial.stopped else _note(student, piece, trial.attempts, cells)
    finally:
        student.setting = None
        del student.transcript[:]
    explaining = diagnosing and not trial.stopped
    found = diagnose.explain(piece, trial.attempts, by_order) if explaining else [None] * len(checks)
    results = [
        replace(_result(check, *outcome), diagnosis=diagnosis)
        for check, outcome, diagnosis in zip(checks, trial.outcomes, found, strict=True)
    ]
    results[0] = replace(results[0], terms=tuple(terms))
    return _noted(results, note, price) if note else results


def _result(check: registry.Check, message: str, seconds: float, reason: str) -> CheckResult:
    earned = 0.0 if message else check.points
    return CheckResult(
        check.name, check.piece, check.chapter, check.points, earned, message, seconds=seconds, reason=reason
    )


def _freed(
    student: Student, checks: list[registry.Check], seed: int | bytes, trial: _Trial, verdicts: dict[str, bool]
) -> tuple[_Trial, list[str]]:
    """The trial of a piece that fails, or one on better terms, and these terms in words.

    Names cost the points of the checks that ask for them. That others can't set a parameter says nothing of what the
    piece computes: where it is right with the values in their places, the names were all that was wrong.
    A helper that is a piece of its own costs points there: with a right one in its place the piece is judged by itself.
    """
    piece, terms, orders = checks[0].piece, [], [stand_ins.NOTHING]

    def tried(further: dict, helpers: Sequence[str] = ()) -> _Trial:
        student.setting = stand_ins.Setting(tuple(helpers), further)
        return _try(student, checks, seed)

    complaints = (" has no ", " is no parameter")
    missing = [
        e.message for e in trial.errors if e.type_name == "AttributeError" and any(c in e.message for c in complaints)
    ]
    best, order = trial, stand_ins.NOTHING
    if missing:
        orders.append(stand_ins.BY_ORDER)
        if (freer := tried(stand_ins.BY_ORDER)).earned > best.earned:
            best, order, orders = freer, stand_ins.BY_ORDER, [stand_ins.BY_ORDER]
    helpers = _failing_helpers(student, checks[0], seed, trial, verdicts) if best.failed else []
    if helpers:
        trials = [(tried(further, helpers), further) for further in orders]
        with_right, further = max(trials, key=lambda pair: pair[0].earned)
        if with_right.earned < best.earned or with_right.answers_as(best):
            helpers = []
        else:
            best, order = with_right, further
            # Those that the piece does not use make no difference, nor one that fails only by a helper before it.
            for name in helpers[::-1] if len(helpers) > 1 else []:
                fewer = [other for other in helpers if other != name]
                if tried(order, fewer).answers_as(best):
                    helpers = fewer
    if order is stand_ins.BY_ORDER:
        terms.append(stand_ins.by_order_sentence(piece, missing[0]))
    if helpers:
        terms.append(stand_ins.sentence(piece, helpers, best.failed))
    student.setting = stand_ins.Setting(tuple(helpers), order) if terms else None
    return best, terms


def _failing_helpers(
    student: Student, first: registry.Check, seed: int | bytes, trial: _Trial, verdicts: dict[str, bool]
) -> list[str]:
    """The pieces before this one that fail by themselves and that a right one can stand in for.

    Of its own chapter one may be missing altogether, if that is what the piece complains of.
    """
    failing = []
    for name, chapter in stand_ins.before(first.piece):
        if name not in verdicts:
            verdict = _passes(student, name, seed)
            if verdict is None:
                missing = any(e.type_name == "NameError" and f"name '{name}'" in e.message for e in trial.errors)
                if chapter == first.chapter and missing:
                    failing.append(name)
                continue
            verdicts[name] = verdict
        if not verdicts[name]:
            failing.append(name)
        if _lost(student):
            return []
    return failing


def _passes(student: Student, piece: str, seed: int | bytes) -> bool | None:
    """Whether every check of a piece holds; None where there is no such piece."""
    student.setting = None
    for check in registry.checks(piece=piece):
        trial = _try(student, [check], seed)
        if any(e.type_name == "NameError" and _is_missing(piece, e.message) for e in trial.errors):
            return None
        if trial.failed:
            return False
    return True


def _is_missing(piece: str, message: str) -> bool:
    return message == f"{piece} is not defined" or f" defines no {piece};" in message


def _lost(student: Student) -> bool:
    return bool(getattr(student, "lost", False))


def _note(student: Student, piece: str, attempts: list[diagnose.Attempt], cells: Sequence[Cell] | None) -> str:
    """The note on a built-in that the piece uses; the first request that each check saw answered may be traced."""
    answered = ([e.request for e in attempt.exchanges if e.error is None] for attempt in attempts)
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
    check.function(student, random_for(seed, _key(check)))


def _key(check: registry.Check) -> str:
    """The name of a check in the whole course, by which its inputs are drawn. Checks of one file draw the same."""
    return f"{check.chapter}/{check.piece}" + ("" if check.file else f"/{check.name}")


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
