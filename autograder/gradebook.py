"""The one writer to nbgrader's gradebook: each submission in one transaction, through nbgrader's own preprocessors.

nbgrader opens the gradebook anew and commits after every cell; ended in between, it leaves half a submission. Here its
commits do nothing, and what was written for a submission becomes visible at once or not at all.
"""

from __future__ import annotations

import contextlib
import logging
import warnings
from datetime import datetime
from typing import Any

from nbformat import NotebookNode
from nbgrader.api import (
    Assignment,
    BaseCell,
    Comment,
    Grade,
    Gradebook,
    MissingEntry,
    Student,
    SubmittedAssignment,
    SubmittedNotebook,
)
from nbgrader.preprocessors import AssignLatePenalties, SaveAutoGrades, latesubmissions, saveautogrades
from sqlalchemy.exc import OperationalError, SAWarning
from sqlalchemy.orm import Session, scoped_session, sessionmaker

from autograder import settings
from autograder.course import Course, CourseError
from transformer_lab.cells import grade_id_of

#: How long to wait for another program that is writing to the gradebook.
BUSY_SECONDS = 60


class _Session(Session):
    """A session whose commits wait for :meth:`finish`: until then each query sees what was added before it."""

    def commit(self) -> None:
        """Nothing, of which there is much: nbgrader commits after each cell, and each time all rows are looked through."""

    def finish(self) -> None:
        super().commit()


class _Gradebook(Gradebook):
    """nbgrader's gradebook in one long-lived connection, which nbgrader's preprocessors may open and close at will."""

    def __init__(self, course: Course):
        super().__init__(f"{course.db_url}?timeout={BUSY_SECONDS}", course.course_id)
        self.db = scoped_session(sessionmaker(autoflush=True, bind=self.engine, future=True, class_=_Session))

        #: The rows of the submission that is being written, which nbgrader asks for one by one: by kind and cell.
        self._rows: dict[tuple[type, str], Any] = {}
        self._whose: tuple[str, ...] = ()

    def __exit__(self, *exception: object) -> None:
        """Stay open."""

    def take_up(self, notebook: str, assignment: str, student: str) -> None:
        """Look up the rows of a submission, all at once."""
        self.let_go()
        submitted = self.find_submission_notebook(notebook, assignment, student)
        for kind in (Grade, Comment):
            query = self.db.query(BaseCell.name, kind).join(kind, BaseCell.id == kind.cell_id)
            found = query.filter(kind.notebook_id == submitted.id).all()
            self._rows |= {(kind, name): row for name, row in found}
        self._rows[SubmittedNotebook, ""] = submitted
        self._whose = (notebook, assignment, student)

    def let_go(self) -> None:
        self._rows, self._whose = {}, ()

    def _row(self, kind: type, cell: str, *whose: str) -> Any:
        return self._rows.get((kind, cell)) if whose == self._whose else None

    def find_grade(self, grade_cell: str, *whose: str) -> Grade:
        return self._row(Grade, grade_cell, *whose) or super().find_grade(grade_cell, *whose)

    def find_comment(self, solution_cell: str, *whose: str) -> Comment:
        return self._row(Comment, solution_cell, *whose) or super().find_comment(solution_cell, *whose)

    def find_submission_notebook(self, *whose: str) -> SubmittedNotebook:
        return self._row(SubmittedNotebook, "", *whose) or super().find_submission_notebook(*whose)


class SaveScores(SaveAutoGrades):
    """nbgrader's own SaveAutoGrades, with the failed checks as the comment of each answer."""

    def __init__(self, comments: dict[str, str], **kwargs: Any):
        super().__init__(**kwargs)
        self.comments = comments

    def _add_comment(self, cell, resources):
        super()._add_comment(cell, resources)
        text = self.comments.get(grade_id_of(cell.metadata))
        comment = self.gradebook.find_comment(
            grade_id_of(cell.metadata), self.notebook_id, self.assignment_id, self.student_id
        )
        if text and not comment.auto_comment:
            comment.auto_comment = text
            self.gradebook.db.commit()


class Writer:
    """Writes judged submissions to the gradebook of a course; use it in a ``with`` block, and only one at a time."""

    def __init__(self, course: Course):
        # nbgrader lets SQLAlchemy flush half-made rows, which SQLAlchemy warns of and then does right.
        warnings.filterwarnings("ignore", category=SAWarning, module="nbgrader")
        self._course = course
        self._config = settings.read_config(course.root)  # late penalties are the instructor's to set
        self._gradebook = _Gradebook(course)

    def __enter__(self) -> Writer:
        return self

    def __exit__(self, *exception: object) -> None:
        self._gradebook.close()

    def points(self, assignment: str) -> dict[str, float]:
        """The graded cells of an assignment as the gradebook knows them, and what they are worth; none where it doesn't."""
        try:
            notebook = self._gradebook.find_notebook(assignment, assignment)
        except MissingEntry:
            return {}
        return {cell.name: cell.max_score for cell in notebook.grade_cells}

    def students(self, assignment: str) -> set[str]:
        """Whose submission of an assignment the gradebook holds."""
        query = self._gradebook.db.query(Student.id).join(SubmittedAssignment).join(Assignment)
        return {student for (student,) in query.filter(Assignment.name == assignment)}

    def write(
        self,
        student: str,
        assignment: str,
        notebook: NotebookNode | None,
        comments: dict[str, str],
        timestamp: datetime | None,
    ) -> tuple[float, float]:
        """Write one judged submission and return its score and the most that there is.

        Parameters
        ----------
        notebook
            The judged notebook; None where there was none to judge, which is worth nothing.
        comments
            What to say beside each answer, by grade id.
        timestamp
            When it was handed in, if that is known.

        Raises
        ------
        CourseError
            Another program keeps the gradebook to itself.
        """
        try:
            scores = self._write(student, assignment, notebook, comments, timestamp)
            self._gradebook.let_go()
            self._gradebook.db().finish()
        except OperationalError as error:
            self._gradebook.let_go()
            self._gradebook.db.rollback()
            raise CourseError(
                f"The gradebook cannot be written ({error.orig}): does another program use it? What is judged so far is "
                "kept, and the same command goes on from there."
            ) from error
        except BaseException:
            self._gradebook.let_go()
            self._gradebook.db.rollback()
            raise
        return scores

    def _write(self, student, assignment, notebook, comments, timestamp) -> tuple[float, float]:
        gradebook = self._gradebook
        gradebook.update_or_create_student(student)
        when = {} if timestamp is None else {"timestamp": timestamp}
        gradebook.update_or_create_submission(assignment, student, **when)
        gradebook.take_up(assignment, assignment, student)
        if notebook is not None:
            info = {"student": student, "assignment": assignment, "notebook": assignment, "db_url": self._course.db_url}
            quiet = logging.getLogger("autograder.nbgrader")
            with self._lent():
                SaveScores(comments, log=quiet).preprocess(notebook, {"nbgrader": info})
                AssignLatePenalties(config=self._config, log=quiet).preprocess(notebook, {"nbgrader": info})
        submitted = gradebook.find_submission_notebook(assignment, assignment, student)
        if notebook is None:
            for grade in submitted.grades:
                grade.auto_score, grade.needs_manual_grade = 0, False
        gradebook.db.flush()
        gradebook.db.refresh(submitted)
        return float(submitted.score), float(submitted.max_score)

    @contextlib.contextmanager
    def _lent(self):
        """nbgrader's preprocessors open a gradebook by its address: meanwhile they get the one that is open."""
        before = saveautogrades.Gradebook, latesubmissions.Gradebook
        saveautogrades.Gradebook = latesubmissions.Gradebook = lambda db_url: self._gradebook
        try:
            yield
        finally:
            saveautogrades.Gradebook, latesubmissions.Gradebook = before
