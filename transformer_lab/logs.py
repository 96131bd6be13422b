"""Where a training writes down how it goes: rows of numbers as they come, in a CSV file or for TensorBoard.

    logs = [CsvLog("build/run/log.csv"), TensorBoardLog("build/run/tensorboard")]
    trainer = Trainer(model, …, logs=logs)

A row holds a ``step`` and numbers by name. What has been written is on the disk when ``write`` returns. A training that is
resumed goes on in the same place: ``resume(step)`` takes back the rows of later steps, which will come again.
"""

from __future__ import annotations

import contextlib
import csv
import io
import operator
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

Row = dict[str, float]


class CsvLog:
    """Rows in a CSV file, the column ``step`` first.

    The first row names the columns. A row that lacks one leaves its cell empty; a row with a new one gives the file a new
    column behind the others, with empty cells in the rows before. For that the file is written anew beside the old one and
    takes its place when it is whole. A row that could not be written, on a full disk, is kept and written with the next.

    A new training never writes into the file of an old one: with its first row it sets the old file aside, under the next
    free name, ``log.1.csv`` for ``log.csv``.
    """

    def __init__(self, path: str | Path):
        self.path = Path(path)
        self._columns: list[str] = []
        self._written: list[Row] = []
        self._waiting: list[Row] = []
        self._own = False  # whether the file that lies there is this training's

    def write(self, row: Mapping[str, float]) -> None:
        """Append a row and force it to the disk.

        Raises
        ------
        ValueError
            The row has no ``step``.
        OSError
            It cannot be written. The file has whole rows only, and the next ``write`` or ``close`` tries this one again.
        """
        self._waiting.append(_plain(row))
        self._put_down()

    def resume(self, step: int) -> None:
        """Go on in the file, without its rows of steps after ``step``; nothing happens where there is none.

        Raises ``ValueError`` where what lies there is no such file, and ``OSError`` where it cannot be read or written.
        """
        self._waiting = [row for row in self._waiting if row["step"] <= step]
        self._own = True
        if not self.path.is_file():
            return
        self._written = [row for row in read(self.path) if row["step"] <= step]
        self._columns = _columns(self._written)
        self._write_anew()

    def close(self) -> None:
        """Write what could not be written before; OSError where it still can't."""
        self._put_down()

    def _put_down(self) -> None:
        if not self._waiting:
            return
        if not self._own:
            _set_aside(self.path)
            self._own = True
        rows = self._waiting
        columns = _columns([dict.fromkeys(self._columns, 0.0), *rows])
        if columns == self._columns and self.path.is_file():
            _append(self.path, _lines(columns, rows))
            self._written += rows
        else:
            self._written, self._columns, before = [*self._written, *rows], columns, (self._written, self._columns)
            try:
                self._write_anew()
            except OSError:
                self._written, self._columns = before
                raise
        self._waiting = []

    def _write_anew(self) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        partial = self.path.with_name(f".{self.path.name}.new")
        partial.unlink(missing_ok=True)  # of a run that was killed while it wrote
        head = _lines(self._columns, [dict(zip(self._columns, self._columns, strict=True))])
        try:
            _append(partial, (head if self._columns else "") + _lines(self._columns, self._written))
            partial.replace(self.path)
        finally:
            partial.unlink(missing_ok=True)


def read(path: str | Path) -> list[Row]:
    """The rows of a file of :class:`CsvLog`; what a row has no number for is not in it.

    A last line that was not finished, because the machine failed, is left out.

    Raises
    ------
    FileNotFoundError
        There is no file.
    ValueError
        It is another kind of file: the first line has no ``step``, or there is a cell that is no number.
    """
    with Path(path).open(encoding="utf-8", newline="") as file:
        text = file.read()
    finished = text[: text.rfind("\n") + 1]
    if not finished:
        return []
    columns, *cells = csv.reader(io.StringIO(finished, newline=""))
    try:
        if "step" not in columns:
            raise ValueError("the first line names no step")
        return [{name: _number(text) for name, text in zip(columns, row, strict=True) if text} for row in cells]
    except ValueError as error:
        raise ValueError(f"{path} is no log of a training ({error}).") from error


class TensorBoardLog:
    """The same rows for TensorBoard, a curve for each name: ``tensorboard --logdir FOLDER`` shows them.

    What an earlier training has left in the folder stays there, and TensorBoard no longer shows it; of a resumed one it
    shows no step twice.

    Raises
    ------
    ImportError
        tensorboard is not installed.
    """

    def __init__(self, folder: str | Path):
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError as error:
            raise ImportError("TensorBoard is not installed: pip install tensorboard, or log to CSV only.") from error
        self.folder = Path(folder)
        self._open: Any = SummaryWriter
        self._writer: Any = None

    def write(self, row: Mapping[str, float]) -> None:
        """Add a point to each curve and hand it to the operating system. ValueError: the row has no ``step``."""
        plain = _plain(row)
        if self._writer is None:
            self._begin(0)
        step = int(plain.pop("step"))
        for name, value in plain.items():
            self._writer.add_scalar(name, value, step)
        self._writer.flush()

    def resume(self, step: int) -> None:
        """Go on after ``step``: points of later steps that lie in the folder are shown no more."""
        self.close()
        self._begin(step + 1)

    def close(self) -> None:
        """Close the file; a later row opens a new one."""
        if self._writer is not None:
            self._writer.close()
            self._writer = None

    def _begin(self, step: int) -> None:
        self._writer = self._open(log_dir=str(self.folder), purge_step=step)


# --------------------------------------------------------------------------------------------------------------------


def _plain(row: Mapping[str, Any]) -> Row:
    """The row as Python's own numbers, which is what a CSV file gives back to the last bit."""
    if "step" not in row:
        raise ValueError(f"A row of a log has a step, and this one only {', '.join(row) or 'nothing'}.")
    return {name: _as_number(value) for name, value in row.items()}


def _as_number(value: Any) -> float:
    try:
        return operator.index(value)
    except TypeError:
        return float(value)


def _number(text: str) -> float:
    try:
        return int(text)
    except ValueError:
        return float(text)


def _columns(rows: Iterable[Row]) -> list[str]:
    names = dict.fromkeys(name for row in rows for name in row)
    return ["step", *(name for name in names if name != "step")] if names else []


def _lines(columns: Sequence[str], rows: Iterable[Mapping[str, Any]]) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows([row.get(name, "") for name in columns] for row in rows)
    return text.getvalue()


def _append(path: Path, text: str) -> None:
    """Put ``text`` at the end of a file and on the disk; where that fails, the file is as long as it was before."""
    with path.open("ab", buffering=0) as file:
        before = file.tell()
        content = memoryview(text.encode())
        try:
            while content:
                content = content[file.write(content) :]
            os.fsync(file.fileno())
        except OSError:
            with contextlib.suppress(OSError):
                file.truncate(before)
            raise


def _set_aside(path: Path) -> None:
    if path.is_file():
        names = (path.with_name(f"{path.stem}.{number}{path.suffix}") for number in range(1, 10**6))
        path.rename(next(name for name in names if not name.exists()))
