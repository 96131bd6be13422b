"""The journal of a grading: every outcome on disk before anything is done with it, so that no judging is lost.

One line of JSON for each judged submission, appended and forced to the disk before the gradebook hears of it. A run that was
ended at any moment leaves at most half a line at the end, which the next run passes over; whatever stands in a whole line is
written to the gradebook without being judged again. The file is only ever appended to. It may be deleted while no run goes
on: then unfinished work is judged again.
"""

from __future__ import annotations

import fcntl
import json
import os
from pathlib import Path
from typing import Any

from autograder.course import CourseError


class Journal:
    """The journal of one assignment, open for one run; a second run at the same time is refused.

    Parameters
    ----------
    path
        The file, made where it is missing.

    Raises
    ------
    CourseError
        Another run has it open.
    """

    def __init__(self, path: Path):
        path.parent.mkdir(parents=True, exist_ok=True)
        new = not path.exists()
        self._file = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            # The system lets go of the lock when the process ends, however it ends.
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(self._file)
            raise CourseError(f"Another run is grading {path.stem} here; wait for its end, or end it.") from None
        if new:
            _sync_folder(path.parent)
        #: Where the last outcome of a student and a digest stands: its first byte and its length.
        self._places: dict[tuple[str, str], tuple[int, int]] = {}
        self._end = 0
        self._whole = True  # whether the last line ends as it should
        self._scan()

    def _scan(self) -> None:
        with os.fdopen(os.dup(self._file), "rb") as file:
            file.seek(0)
            for line in file:
                self._whole = line.endswith(b"\n")
                try:
                    entry = json.loads(line)
                    self._places[entry["student"], entry["hash"]] = (self._end, len(line))
                except (ValueError, KeyError, TypeError):  # half a line, where a run was ended
                    pass
                self._end += len(line)

    def add(self, student: str, digest: str, outcome: dict[str, Any]) -> None:
        """Put an outcome on the disk; when this returns, it stays there."""
        entry = {"student": student, "hash": digest, "outcome": outcome}
        line = json.dumps(entry, ensure_ascii=True).encode() + b"\n"
        start = b"" if self._whole else b"\n"
        left = memoryview(start + line)
        while left:
            self._whole = False
            left = left[os.write(self._file, left) :]
        os.fsync(self._file)
        self._whole = True
        self._places[student, digest] = (self._end + len(start), len(line))
        self._end += len(start) + len(line)

    def __contains__(self, key: tuple[str, str]) -> bool:
        return key in self._places

    def outcome(self, student: str, digest: str) -> dict[str, Any]:
        """The last outcome that was written for a student and a digest; ``KeyError`` where there is none."""
        start, length = self._places[student, digest]
        return json.loads(os.pread(self._file, length, start))["outcome"]

    def close(self) -> None:
        os.close(self._file)

    def __enter__(self) -> Journal:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
