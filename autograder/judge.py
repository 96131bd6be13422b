"""Run a learner's notebook in the sandbox and judge its pieces from outside.

The learner's cells run in the sandboxed kernel. Where the source has a graded cell, the hidden checks run *here*, in the
grader's process, and see the kernel's pieces through ``student.run`` only: what the learner's code patches, prints or hides
cannot become points.
"""

from __future__ import annotations

import ast
import contextlib
import math
import re
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import nbformat
from nbformat import NotebookNode
from nbgrader.preprocessors import NbGraderPreprocessor
from traitlets import Bool, Float

from autograder import award, registry, sandbox, seeds, weights
from autograder.execute import error_output, run_cell
from autograder.intake import strip_hidden
from autograder.reasons import Reason, Remark
from autograder.runner import CheckResult, run_checks
from autograder.student import LocalStudent, RemoteStudent, Student, StudentError
from transformer_lab.cells import (
    SKIP_TAG,
    Cell,
    grade_id_of,
    is_test,
    lines_of,
    nbgrader_flags,
    plain_python,
    points_of,
)

#: A kernel that died or hung is started again this often; of the cell at fault only the definitions are run again.
RESTARTS = 10

#: A single call of a piece may take this long. The checks' inputs are tiny.
CALL_SECONDS = 10.0

#: This share of a notebook's time is kept for answers and checks; the learner's other cells may not use it up.
RESERVED = 0.2

#: Run in a kernel that is no fork of a warm parent, which has this behind it; binds no name in the learner's namespace.
IMPORTS = "__import__('transformer_lab.driver'); __import__('torch').default_generator.manual_seed(0);"
IMPORT_SECONDS = 120.0

#: What running the definitions of a cell may take.
DEFINITION_SECONDS = 10.0

GRADED_LINE = re.compile(r'award\(\s*globals\(\)\s*,\s*"(\w+)"\s*\)')


@dataclass
class Judgement:
    """A judged notebook with outputs, the results of its hidden checks, and sentences about what went wrong on the way.

    ``files`` holds, by name, the fingerprint of each file that was handed in beside it and can be read
    (:func:`autograder.weights.fingerprint`).
    """

    notebook: NotebookNode
    results: list[CheckResult] = field(default_factory=list)
    files: dict[str, dict[str, Any]] = field(default_factory=dict)
    remarks: list[Remark] = field(default_factory=list)
    seconds: float = 0.0


def judge(
    notebook: NotebookNode,
    seed: int | bytes,
    limits: sandbox.Limits | None = None,
    sandboxed: bool = True,
    builtin_costs: float = 0.0,
    folder: Path | None = None,
) -> Judgement:
    """Run ``notebook`` (as :func:`autograder.intake.rebuild` gives it) and judge its graded cells.

    Parameters
    ----------
    notebook
        The learner's answers among the source's cells, hidden tests included. It is changed: cells get their outputs,
        and the hidden region of a graded cell is removed.
    seed
        Of the checks' inputs.
    limits
        Of the kernel; the defaults of :class:`autograder.sandbox.Limits` otherwise.
    sandboxed
        False runs the kernel without bubblewrap: for trusted notebooks only.
    builtin_costs
        The share of a piece's points that using the built-in which it re-creates costs.
    folder
        The submission's folder, for files that are handed in beside the notebook; None: there are none. They are read in
        this process; the kernel doesn't see them.

    Returns
    -------
    Judgement
        Each graded cell holds its score as the result of the cell, which is where nbgrader looks for partial credit.
    """
    return _Session(notebook, seed, limits or sandbox.Limits(), sandboxed, builtin_costs, folder).run()


def checked_piece(cell: NotebookNode) -> str | None:
    """The piece whose hidden checks a graded cell runs, None for every other cell."""
    if cell.cell_type != "code" or not nbgrader_flags(cell.metadata).get("grade"):
        return None
    found = GRADED_LINE.search(cell.source)
    return found.group(1) if found else None


class _Session:
    def __init__(
        self,
        notebook: NotebookNode,
        seed: int | bytes,
        limits: sandbox.Limits,
        sandboxed: bool,
        builtin_costs: float,
        folder: Path | None,
    ):
        self.judgement = Judgement(notebook)
        self.folder, self.files = folder, registry.submitted()
        self.seed, self.limits, self.sandboxed, self.builtin_costs = seed, limits, sandboxed, builtin_costs
        self.verdicts: dict[str, bool] = {}
        self.kernel: Any = None
        #: Cells that ended a kernel: of these only the definitions are run again; where those ended one too, nothing.
        self.left_out: set[int] = set()
        self.lost: set[int] = set()
        self.restarts = 0
        self.room = self.limits.output_bytes
        self.began = time.monotonic()
        #: What starting kernels has taken, which is no time of the notebook's.
        self.starting = 0.0

    def run(self) -> Judgement:
        try:
            for index, cell in enumerate(self.judgement.notebook.cells):
                if cell.cell_type != "code":
                    continue
                cell.outputs, cell.execution_count = [], None
                piece = checked_piece(cell)
                if piece:
                    self._check(cell, piece)
                else:
                    self._execute(index, cell)
        finally:
            self._stop()
        self.judgement.seconds = time.monotonic() - self.began
        return self.judgement

    # ------------------------------------------------------------------------------------------------------- cells

    def _execute(self, index: int, cell: NotebookNode) -> None:
        if not self._runs(cell):
            return
        seconds = min(self.limits.cell_seconds, self._time_for(cell))
        if seconds <= 0 or not self._ready(index):
            sentence = self._why_not()
            cell.outputs = [error_output("NotRun", f"{sentence} This cell was not run.")]
            self._remark(Reason.NOT_RUN(sentence))
            return
        ran = run_cell(self.kernel, cell.source, seconds, self.limits.output_bytes, self.room)
        self.room = max(0, self.room - ran.bytes)
        cell.outputs = [_no_score(output) for output in ran.outputs] if is_test(cell.metadata) else ran.outputs
        name = _label(cell, index)
        if ran.stopped:
            remark = {
                "timeout": Reason.TIMEOUT(f"{name} was stopped after {seconds:g} seconds: a loop that does not end?"),
                "flood": Reason.OUTPUT(f"{name} was stopped because it printed without end."),
                "hung": Reason.HUNG(
                    f"{name} took longer than {seconds:g} seconds and could not be interrupted, so the kernel was ended."
                ),
                "died": self._death(f"The kernel died in {name[0].lower()}{name[1:]}"),
            }[ran.stopped]
            self._remark(remark)
            cell.outputs.append(error_output("Stopped", remark))
        elif ran.out_of_memory:
            self._remark(Reason.MEMORY(f"{name} asked for more memory than there is."))
        if ran.stopped in ("hung", "died"):
            self.left_out.add(index)
            self._stop()
        elif (ran.stopped or ran.error) and not is_test(cell.metadata) and self._define(cell):
            why = "before its end" if ran.stopped else f"at an error ({ran.error[:60]})"
            sentence = f"{name} stopped {why}; the definitions and imports in it were taken all the same."
            self._remark(Reason.PART_OF_CELL(sentence))

    def _define(self, cell: NotebookNode) -> bool:
        """Run what a cell that did not come to its end defines and imports, if anything."""
        text = definitions(cell.source)
        if not text:
            return False
        ran = run_cell(self.kernel, text, DEFINITION_SECONDS, self.limits.output_bytes, 0)
        if ran.stopped in ("hung", "died"):
            self.lost.add(next(i for i, c in enumerate(self.judgement.notebook.cells) if c is cell))
            self._stop()
        return not ran.stopped

    def _remark(self, remark: Remark) -> None:
        if remark not in self.judgement.remarks:
            self.judgement.remarks.append(remark)

    def _death(self, what: str) -> Remark:
        """Why a kernel has died, if the system tells."""
        tell = getattr(self.kernel, "out_of_memory", None)
        if tell is not None and tell():
            return Reason.MEMORY(f"{what}: it asked for more memory than there is.")
        return Reason.DIED(f"{what}: out of memory, or the process was ended.")

    def _check(self, cell: NotebookNode, piece: str) -> None:
        index = next(i for i, c in enumerate(self.judgement.notebook.cells) if c is cell)
        student: Student | None = None
        if piece in self.files:  # no code of the learner's takes part
            student = LocalStudent({}, folder=self.folder)
        elif self._ready(index):
            student = RemoteStudent(
                self.kernel, min(CALL_SECONDS, self.limits.cell_seconds, max(1.0, self._time_left()))
            )
        if student is None:
            why = f"Not run: {self._why_not()}"
            results = [
                CheckResult(c.name, c.piece, c.chapter, c.points, 0.0, why, reason=Reason.NOT_RUN.value)
                for c in registry.checks(piece=piece)
            ]
        else:
            with student.conversation():
                results = run_checks(
                    student,
                    piece=piece,
                    seed=self.seed,
                    cells=self._cells(index),
                    builtin_costs=self.builtin_costs,
                    verdicts=self.verdicts,
                )
        if getattr(student, "lost", False):
            remark = self._death(f"The kernel did not survive a call of {piece}")
            self._remark(remark if remark.reason is Reason.MEMORY else Reason.KERNEL_LOST(remark))
            self._stop()
        self.judgement.results.extend(results)
        if student is not None and piece in self.files:
            self._fingerprint(student, self.files[piece])
        points = points_of(cell.metadata)
        earned = _clamped(sum(result.earned for result in results), points)
        if abs(points - sum(result.points for result in results)) > 1e-9:
            raise ValueError(
                f"The cell of {piece} has {points:g} points, its checks another sum: run `make notebooks`."
            )
        text = award.lines(results) + "\n"
        cell.source = strip_hidden(cell.source)
        result = {"output_type": "execute_result", "data": {"text/plain": f"{earned:.10g}"}, "metadata": {}}
        cell.outputs = [
            NotebookNode(output_type="stream", name="stdout", text=text),
            nbformat.from_dict(result | {"execution_count": None}),
        ]

    def _fingerprint(self, student: Student, name: str) -> None:
        with contextlib.suppress(StudentError):  # which the checks have told
            found = weights.fingerprint(Path(name).stem, student.file(name))
            if found is not None:
                self.judgement.files[name] = found

    def _cells(self, until: int) -> list[Cell]:
        """The code cells that have run before a graded cell."""
        found = []
        for index, cell in enumerate(self.judgement.notebook.cells[:until]):
            if cell.cell_type == "code":
                runs = not is_test(cell.metadata) and SKIP_TAG not in (cell.metadata.get("tags") or [])
                found.append(Cell(index + 1, "", cell.source, runs and index not in self.left_out))
        return found

    # ------------------------------------------------------------------------------------------------------ kernel

    def _ready(self, index: int) -> bool:
        """True with a live kernel in which the cells before ``index`` have run."""
        while self.kernel is None:
            if self.restarts > RESTARTS or self._time_left() <= 0:
                return False
            self.restarts += 1
            began = time.monotonic()
            self.kernel = sandbox.start(self.limits, sandboxed=self.sandboxed)
            if not self.kernel.is_warm:
                self._import()
            self.starting += time.monotonic() - began
            if not self._replay(index):
                self._stop()
        return self._time_left() > 0

    def _import(self) -> None:
        """Load PyTorch before any line of the learner's: the seconds that it takes are not those of the first cell."""
        ran = run_cell(self.kernel, IMPORTS, IMPORT_SECONDS, self.limits.output_bytes)
        if ran.stopped or ran.error:
            why = ran.error or ran.stopped
            raise sandbox.SandboxError(f"PyTorch could not be loaded in a kernel ({why}): are the limits too low?")

    def _replay(self, until: int) -> bool:
        """Run again what ran before a kernel was lost; of the cells that ended it only the definitions, or nothing."""
        for index, cell in enumerate(self.judgement.notebook.cells[:until]):
            if cell.cell_type != "code" or is_test(cell.metadata) or not self._runs(cell) or index in self.lost:
                continue
            whole = index not in self.left_out
            text = cell.source if whole else definitions(cell.source)
            most = self.limits.cell_seconds if whole else DEFINITION_SECONDS
            ran = run_cell(self.kernel, text, max(1.0, min(most, self._time_left())), self.limits.output_bytes, 0)
            if ran.stopped in ("hung", "died"):
                (self.left_out if whole else self.lost).add(index)
                return False
            if whole and (ran.stopped or ran.error) and not self._define(cell) and self.kernel is None:
                return False
        return True

    @staticmethod
    def _runs(cell: NotebookNode) -> bool:
        return SKIP_TAG not in (cell.metadata.get("tags") or []) and bool(cell.source.strip())

    def _stop(self) -> None:
        if self.kernel is not None:
            kernel, self.kernel = self.kernel, None
            kernel.close()

    def _time_left(self) -> float:
        return self.limits.notebook_seconds - (time.monotonic() - self.began - self.starting)

    def _time_for(self, cell: NotebookNode) -> float:
        """What a cell may use of the time that is left: all of it for an answer, and for other cells not the last part."""
        answer = bool(nbgrader_flags(cell.metadata).get("solution"))
        return self._time_left() - (0.0 if answer else RESERVED * self.limits.notebook_seconds)

    def _why_not(self) -> str:
        if self.restarts > RESTARTS:
            return "The kernel died too often."
        return f"The notebook's time, {self.limits.notebook_seconds:g} seconds, was up."


def definitions(source: str) -> str:
    """The definitions of functions and classes and the imports of a cell, each at its line; empty where there are none.

    They are what is left of a cell that did not come to its end. An import that fails is passed over.
    """
    text = plain_python(source)
    try:
        body = ast.parse(text).body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return ""
    lines = lines_of(text)
    kept = [""] * len(lines)
    for node in body:
        first, last = node.lineno, node.end_lineno or node.lineno
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            first = min([first, *(decorator.lineno for decorator in node.decorator_list)])
            kept[first - 1 : last] = lines[first - 1 : last]
        elif isinstance(node, ast.ImportFrom) and node.module == "__future__":
            kept[first - 1] = ast.unparse(node)
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            before = kept[first - 1] or "with __import__('contextlib').suppress(Exception): "
            kept[first - 1] = before + ast.unparse(node) + "; "
    return "\n".join(kept) if any(kept) else ""


def _clamped(earned: float, points: float) -> float:
    """A score as it may be: finite, not negative, and not more than there is."""
    return round(min(max(earned, 0.0), points), 6) if math.isfinite(earned) else 0.0


def _no_score(output: NotebookNode) -> NotebookNode:
    """The output of a visible test as a mere display: nbgrader takes a *result* for the cell's score."""
    if output.output_type == "execute_result":
        return nbformat.v4.new_output("display_data", data=output.data, metadata=output.metadata)
    return output


def _label(cell: NotebookNode, index: int) -> str:
    name = grade_id_of(cell.metadata)
    return f"The cell {name}" if name else f"Cell {index + 1}"


class Judge(NbGraderPreprocessor):
    """In place of nbgrader's Execute: ``c.Autograde.autograde_preprocessors = ["autograder.judge.Judge", …]``."""

    builtin_costs = Float(
        0.0,
        min=0.0,
        max=1.0,
        help="The share of a piece's points that using the very built-in which it re-creates costs. Of every way to grade.",
    ).tag(config=True)
    accept_unenforced = Bool(
        False, help="Grade although this host can't enforce a limit of the sandbox (autograder.sandbox.require)."
    ).tag(config=True)

    def preprocess(self, nb: NotebookNode, resources: dict) -> tuple[NotebookNode, dict]:
        sandbox.require(self.accept_unenforced)
        info = resources["nbgrader"]
        seed = seeds.round_seed(seeds.find_course(), info["assignment"])
        # nbgrader has put what was handed in beside the notebook where it runs it.
        folder = Path(resources["metadata"]["path"])
        judgement = judge(nb, seed, builtin_costs=self.builtin_costs, folder=folder)
        for remark in judgement.remarks:
            self.log.warning("%s: %s", info["student"], remark)
        return judgement.notebook, resources
