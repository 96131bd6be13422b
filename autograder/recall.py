"""What a check said of the same answers before: in a large class most notebooks answer most checks alike.

What a check says follows from its inputs, which the seed decides, and from what the piece answers, to the last bit. So a
piece is asked everything anew, but where another one has answered the same before, the check is not run again: neither are
its inputs drawn, nor what is expected computed, nor the answers compared.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from autograder.student import Exchange, Student, StudentError

#: When so many steps are remembered, all are forgotten. A step takes some hundred bytes; requests are kept once.
MOST = 100_000


@dataclass(frozen=True)
class Said:
    """What a check said.

    ``message`` is empty where it holds, and so is ``reason``, the code of a :class:`autograder.reasons.Reason`. ``ends``
    tells that the other checks of the piece needn't be run.
    """

    message: str = ""
    reason: str = ""
    ends: bool = False


@dataclass(frozen=True)
class _Question:
    """The next request of a check, as it is made and as it is sent."""

    request: dict
    sent: bytes


@dataclass(frozen=True)
class _End:
    """What a check said after all answers, and which errors these were."""

    said: Said
    errors: tuple[StudentError | None, ...]


class _Recalled(Exchange):
    """An exchange whose answer is read only when somebody asks what is in it."""

    def __init__(self, request: dict, answer: bytes, error: StudentError | None):
        for name, value in (("request", request), ("answer", answer), ("error", error)):
            object.__setattr__(self, name, value)

    @cached_property
    def wanted(self) -> dict | None:  # type: ignore[override]
        return None if self.error else Student.read(self.answer, self.request["want"])  # type: ignore[attr-defined]


class _Heard(Student):
    """Another student, to whom questions are put only from where the answers end that have been heard already."""

    def __init__(self, student: Student, answers: list[bytes | StudentError]):
        super().__init__()
        self.student, self.answers, self.setting = student, answers, student.setting
        self.questions: list[bytes] = []

    def exchange(self, request: bytes) -> bytes:
        self.questions.append(request)
        if len(self.questions) > len(self.answers):
            self.answers.append(_answer(self.student, request))
        answer = self.answers[len(self.questions) - 1]
        if isinstance(answer, StudentError):
            raise answer
        return answer


def _answer(student: Student, request: bytes) -> bytes | StudentError:
    try:
        return student.exchange(request)
    except StudentError as error:
        return error


_steps: dict[bytes, _Question | _End] = {}
_questions: dict[bytes, _Question] = {}


def said(student: Student, name: str, seed: int | bytes, judged: Callable[[Student], Said]) -> Said:
    """What ``judged(student)`` gives, which runs a check; it must depend on nothing but the seed and what is answered.

    The exchanges are added to the student's transcript, as running the check would.

    Parameters
    ----------
    student
        Whose pieces are asked. Its ``setting`` must be None or have a ``repr`` that says all about it.
    name
        Of the check, in the whole course.
    """
    start = repr((name, seed, student.setting)).encode()
    state = hashlib.sha256(start)
    asked: list[_Question] = []
    answers: list[Any] = []
    while isinstance(step := _steps.get(state.digest()), _Question):
        asked.append(step)
        answers.append(_answer(student, step.sent))
        if isinstance(answers[-1], StudentError):  # no answer at all: the check itself must see that
            break
        state.update(hashlib.sha256(answers[-1]).digest())
    if isinstance(step, _End):
        told = zip(asked, answers, step.errors, strict=True)
        student.transcript.extend(_Recalled(question.request, answer, error) for question, answer, error in told)
        return step.said
    heard = _Heard(student, answers)
    outcome = judged(heard)
    student.transcript.extend(heard.transcript)
    if not any(isinstance(answer, StudentError) for answer in answers):
        _remember(start, heard, outcome)
    return outcome


def _remember(start: bytes, heard: _Heard, outcome: Said) -> None:
    if len(_steps) > MOST:
        _steps.clear()
        _questions.clear()
    state = hashlib.sha256(start)
    for sent, exchange, answer in zip(heard.questions, heard.transcript, heard.answers, strict=True):
        _steps[state.digest()] = _questions.setdefault(sent, _Question(exchange.request, sent))
        state.update(hashlib.sha256(answer).digest())  # type: ignore[arg-type]
    _steps[state.digest()] = _End(outcome, tuple(exchange.error for exchange in heard.transcript))
