"""Why a submission did not go the usual way: every reason that grading can give, each with one code.

A record holds the codes of its remarks (``reasons``, one for each of ``remarks``), and every result of a check that does not
hold has one (``reason``). The sentences beside them say what happened to this submission; the table here says what a code
means in general. The page for instructors is made from it.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import Any


class Reason(StrEnum):
    """A code, where it appears (``file``, ``cells``, ``run`` or ``check``), what it means and what it costs."""

    scope: str
    meaning: str
    costs: str

    def __new__(cls, code: str, scope: str, meaning: str, costs: str) -> Reason:
        member = str.__new__(cls, code)
        member._value_ = code
        member.scope, member.meaning, member.costs = scope, meaning, costs
        return member

    # ------------------------------------------------------------------------------------------------ the file
    NO_NOTEBOOK = ("no-notebook", "file", "There is no notebook in the submission's folder.", "everything")
    EMPTY_FILE = ("empty-file", "file", "The file holds nothing.", "everything")
    NOT_A_FILE = (
        "not-a-file",
        "file",
        "A link, a pipe or another special file lies where the notebook should; it is not opened.",
        "everything",
    )
    TOO_LARGE = ("too-large", "file", "The file is larger than what is read, mostly for its outputs.", "everything")
    ARCHIVE = ("archive", "file", "An archive lies in the notebook's place; it is not unpacked.", "everything")
    OTHER_FORMAT = (
        "other-format",
        "file",
        "A page, a picture, a document or a text lies in the notebook's place.",
        "everything",
    )
    NOT_A_NOTEBOOK = ("not-a-notebook", "file", "JSON, but no cells in it.", "everything")
    OTHER_ASSIGNMENT = (
        "other-assignment",
        "file",
        "The notebook holds none of the assignment's answers, by whatever name or place.",
        "everything",
    )
    RENAMED = ("renamed", "file", "The notebook has another name, or lies in a folder of its own.", "nothing")
    SEVERAL = ("several", "file", "There are several notebooks; the one with most work in it was taken.", "nothing")
    SCRIPT = ("script", "file", "A Python script was handed in; its parts were taken for cells.", "nothing")
    ENCODING = ("encoding", "file", "The file is no UTF-8 and was read in the encoding that it has.", "nothing")
    CUT_OFF = (
        "cut-off",
        "file",
        "The file is damaged or ends too early; its whole cells were taken.",
        "the answers that are not whole",
    )
    CONFLICT = (
        "conflict",
        "file",
        "The file holds conflict markers of a version control system; one side was taken.",
        "nothing, if the right side was taken",
    )
    BAD_TIME = ("bad-time", "file", "timestamp.txt holds no time and was left out.", "nothing")

    # ----------------------------------------------------------------------------------------------- the cells
    CELLS_DAMAGED = ("cells-damaged", "cells", "Entries that are no cells were left out.", "nothing else")
    ANSWER_MISSING = ("answer-missing", "cells", "No cell is this answer, and none defines it.", "that piece")
    ANSWER_FOUND = (
        "answer-found",
        "cells",
        "The answer's cell had lost its nbgrader metadata; it was found by its id, name, place or text.",
        "nothing",
    )
    ANSWER_ELSEWHERE = (
        "answer-elsewhere",
        "cells",
        "The answer stands in another cell; the untouched or deleted stub was left out.",
        "nothing",
    )
    ANSWER_DOUBLED = (
        "answer-doubled",
        "cells",
        "Several cells claim to be this answer; the last that defines it counts, the others run as cells of the learner's.",
        "nothing",
    )
    ANSWER_AS_TEXT = (
        "answer-as-text",
        "cells",
        "The answer's cell had become a text cell; it was run as code.",
        "nothing",
    )
    TESTS_RESTORED = (
        "tests-restored",
        "cells",
        "Tests had been changed or deleted; those of the release were run.",
        "nothing",
    )

    # ------------------------------------------------------------------------------------------------- the run
    TIMEOUT = ("timeout", "run", "A cell or a call took too long and was interrupted.", "what it did not define")
    HUNG = ("hung", "run", "A cell could not be interrupted; the kernel was ended.", "that cell")
    DIED = ("died", "run", "The kernel died in a cell; what had run before was run again without it.", "that cell")
    PART_OF_CELL = (
        "part-of-cell",
        "run",
        "A cell did not come to its end; the definitions and imports in it were taken all the same.",
        "what else the cell would have done",
    )
    MEMORY = ("memory", "run", "A cell or a call asked for more memory than there is.", "what it did not define")
    OUTPUT = (
        "output",
        "run",
        "More was printed than is kept; the cell was stopped and the rest left out.",
        "what the cell had not defined by then",
    )
    NOT_RUN = (
        "not-run",
        "run",
        "The notebook's time was up, or the kernel had died too often; the rest did not run.",
        "what did not run",
    )
    KERNEL_LOST = ("kernel-lost", "run", "The kernel did not survive a call of a piece.", "that piece")
    GRADER = ("grader", "run", "An error of the grader, not of the learner; no score is given.", "no score is given")

    # ------------------------------------------------------------------------------------------------ a check
    WRONG = ("wrong", "check", "The piece gives something else than it should; the message says what.", "the check")
    NOT_WRITTEN = ("not-written", "check", "The stub's NotImplementedError is still there.", "the piece")
    NOT_DEFINED = ("not-defined", "check", "Nothing of that name exists after all cells have run.", "the piece")
    RAISED = ("raised", "check", "The piece raised an exception; the message names it.", "the check")
    CALL_TIMEOUT = (
        "call-timeout",
        "check",
        "A call of the piece gave no result in time.",
        "the check and those after it",
    )
    CALL_DIED = ("call-died", "check", "The kernel died in a call of the piece.", "the check and those after it")
    BAD_ANSWER = ("bad-answer", "check", "What came back is no plain data.", "the check")
    NOT_HANDED_IN = ("not-handed-in", "check", "The file beside the notebook is missing.", "the check")
    BAD_FILE = ("bad-file", "check", "The file beside the notebook cannot be read.", "the check")

    def __call__(self, sentence: str) -> Remark:
        """A remark with this reason."""
        return Remark(self, sentence)


class Remark(str):
    """One sentence about a submission, with its reason. Everywhere else it is a string like any other."""

    reason: Reason

    def __new__(cls, reason: Reason, sentence: str) -> Remark:
        remark = super().__new__(cls, sentence)
        remark.reason = reason
        return remark

    def __reduce__(self) -> tuple[Any, ...]:
        return Remark, (self.reason, str(self))


def meaning(code: str) -> str:
    """What a code means in general; nothing where there is no such code."""
    return next((reason.meaning for reason in Reason if reason.value == code), "")


def explained(remarks: Sequence[str], codes: Sequence[str]) -> list[tuple[str, str, str]]:
    """``(remark, code, meaning)``: the remarks of a record with their reasons; records of older graders have none."""
    codes = [*codes, *[""] * (len(remarks) - len(codes))]
    return [(remark, code, meaning(code)) for remark, code in zip(remarks, codes, strict=False)]


#: By the type of the exception that the student's side reports.
_OF_ERROR = {
    "NotImplementedError": Reason.NOT_WRITTEN,
    "Timeout": Reason.CALL_TIMEOUT,
    "TimeoutError": Reason.CALL_TIMEOUT,
    "Hung": Reason.CALL_TIMEOUT,
    "KernelDied": Reason.CALL_DIED,
    "BadAnswer": Reason.BAD_ANSWER,
    "NotSubmitted": Reason.NOT_HANDED_IN,
    "Unreadable": Reason.BAD_FILE,
    "MemoryError": Reason.MEMORY,
}


def of_error(piece: str, type_name: str, message: str) -> Reason:
    """The reason of a check that failed because a call of ``piece`` raised an exception of this type."""
    missing = message == f"{piece} is not defined" or f" defines no {piece};" in message
    if type_name == "NameError" and missing:
        return Reason.NOT_DEFINED
    return _OF_ERROR.get(type_name, Reason.RAISED)
