"""Run a learner's notebook in the sandbox and judge its pieces from outside.

The learner's cells run in the sandboxed kernel. Where the source has a graded cell, the hidden checks run *here*, in the
grader's process, and see the kernel's pieces through ``student.run`` only: what the learner's code patches, prints or hides
cannot become points.
"""

from __future__ import annotations

import contextlib
import re
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import nbformat
from nbformat import NotebookNode
from nbgrader.preprocessors import NbGraderPreprocessor
from traitlets import Float

from autograder import award, registry, sandbox, seeds, weights
from autograder.execute import error_output, run_cell
from autograder.runner import CheckResult, run_checks
from autograder.student import LocalStudent, RemoteStudent, Student, StudentError
from transformer_lab.cells import SKIP_TAG, Cell, grade_id_of, is_test, nbgrader_flags, points_of

#: A kernel that died or hung is started again this often; the cell at fault is left out.
RESTARTS = 3

#: A single call of a piece may take this long. The checks' inputs are tiny.
CALL_SECONDS = 10.0

#: Run in a new kernel; binds no name in the learner's namespace.
IMPORTS, IMPORT_SECONDS = "__import__('transformer_lab.driver');", 120.0

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
    remarks: list[str] = field(default_factory=list)
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
        self.kernel: Any = None
        self.left_out: set[int] = set()
        self.restarts = 0
        self.began = time.monotonic()

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
        skip = "skip-execution" in (cell.metadata.get("tags") or [])
        if skip or not cell.source.strip():
            return
        if not self._ready(index):
            cell.outputs = [error_output("NotRun", self._why_not())]
            return
        seconds = min(self.limits.cell_seconds, self._time_left())
        ran = run_cell(self.kernel, cell.source, seconds, self.limits.output_bytes)
        cell.outputs = [_no_score(output) for output in ran.outputs] if is_test(cell.metadata) else ran.outputs
        if ran.stopped:
            name = _label(cell, index)
            sentence = {
                "timeout": f"{name} was stopped after {seconds:g} seconds: a loop that does not end?",
                "hung": f"{name} took longer than {seconds:g} seconds and could not be interrupted, so the kernel was ended.",
                "died": f"The kernel died in {name}: out of memory, or the process was ended.",
            }[ran.stopped]
            self.judgement.remarks.append(sentence)
            cell.outputs.append(error_output("Stopped", sentence))
            if ran.stopped in ("hung", "died"):
                self.left_out.add(index)
                self._stop()

    def _check(self, cell: NotebookNode, piece: str) -> None:
        index = next(i for i, c in enumerate(self.judgement.notebook.cells) if c is cell)
        if piece in self.files:  # no code of the learner's takes part
            student: Student = LocalStudent({}, folder=self.folder)
        elif self._ready(index):
            student = RemoteStudent(self.kernel, min(CALL_SECONDS, max(1.0, self._time_left())))
        else:
            student = LocalStudent({}, folder=None)
        cells = self._cells(index)
        results = run_checks(student, piece=piece, seed=self.seed, cells=cells, builtin_costs=self.builtin_costs)
        if getattr(student, "lost", False):
            self.judgement.remarks.append(f"The kernel did not survive a call of {piece}.")
            self._stop()
        self.judgement.results.extend(results)
        if piece in self.files:
            self._fingerprint(student, self.files[piece])
        earned = round(sum(result.earned for result in results), 6)
        points = points_of(cell.metadata)
        if abs(points - sum(result.points for result in results)) > 1e-9:
            raise ValueError(
                f"The cell of {piece} has {points:g} points, its checks another sum: run `make notebooks`."
            )
        text = award.lines(results) + "\n"
        cell.source = strip_hidden(cell.source)
        cell.outputs = [
            nbformat.v4.new_output("stream", name="stdout", text=text),
            nbformat.v4.new_output("execute_result", data={"text/plain": f"{earned:.10g}"}, execution_count=None),
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
            self.kernel = sandbox.start(self.limits, sandboxed=self.sandboxed)
            # On a busy machine the first import takes seconds, which must not be those of the learner's first cell.
            run_cell(self.kernel, IMPORTS, IMPORT_SECONDS, self.limits.output_bytes)
            if not self._replay(index):
                self._stop()
        return self._time_left() > 0

    def _replay(self, until: int) -> bool:
        """Run again what ran before a kernel was lost, without the cells that ended it."""
        for index, cell in enumerate(self.judgement.notebook.cells[:until]):
            wanted = cell.cell_type == "code" and index not in self.left_out and not is_test(cell.metadata)
            if not wanted or "skip-execution" in (cell.metadata.get("tags") or []):
                continue
            ran = run_cell(
                self.kernel, cell.source, min(self.limits.cell_seconds, self._time_left()), self.limits.output_bytes
            )
            if ran.stopped in ("hung", "died"):
                self.left_out.add(index)
                return False
        return True

    def _stop(self) -> None:
        if self.kernel is not None:
            kernel, self.kernel = self.kernel, None
            kernel.close()

    def _time_left(self) -> float:
        return self.limits.notebook_seconds - (time.monotonic() - self.began)

    def _why_not(self) -> str:
        if self._time_left() <= 0:
            return f"The notebook took longer than {self.limits.notebook_seconds:g} seconds; this cell was not run."
        return "The kernel died too often; this cell was not run."


def strip_hidden(source: str) -> str:
    """The text of a graded cell without its hidden region."""
    return re.sub(r"\n?### BEGIN HIDDEN TESTS.*?### END HIDDEN TESTS", "", source, flags=re.DOTALL).rstrip()


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

    def preprocess(self, nb: NotebookNode, resources: dict) -> tuple[NotebookNode, dict]:
        info = resources["nbgrader"]
        seed = seeds.round_seed(seeds.find_course(), info["assignment"])
        # nbgrader has put what was handed in beside the notebook where it runs it.
        folder = Path(resources["metadata"]["path"])
        judgement = judge(nb, seed, builtin_costs=self.builtin_costs, folder=folder)
        for remark in judgement.remarks:
            self.log.warning("%s: %s", info["student"], remark)
        return judgement.notebook, resources
