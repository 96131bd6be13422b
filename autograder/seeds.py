"""The secret from which a round's inputs come: one key per course, one seed per assignment and round."""

from __future__ import annotations

import hashlib
import hmac
import os
import secrets
from pathlib import Path

from autograder import registry

KEY_FILE = "course.key"
ROUND_FILE = "round.txt"


def course_key(course: Path) -> bytes:
    """The course's secret key, made on first use and readable by its owner only.

    Raises ``ValueError`` when the key file is damaged: a new key would change everybody's inputs unseen.
    """
    path = course / KEY_FILE
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        pass
    else:
        with os.fdopen(descriptor, "w") as file:
            file.write(secrets.token_hex(32) + "\n")
    try:
        key = bytes.fromhex(path.read_text().strip())
    except ValueError:
        key = b""
    if len(key) != 32:
        raise ValueError(f"{path} must hold 64 hexadecimal digits; restore it, or delete it to begin with a new key.")
    return key


def current_round(course: Path) -> str:
    """The name of the grading round, ``"1"`` until ``set_round`` changes it."""
    path = course / ROUND_FILE
    return path.read_text().strip() if path.exists() else "1"


def set_round(course: Path, name: str) -> None:
    (course / ROUND_FILE).write_text(f"{name}\n")


def round_seed(course: Path, chapter: int | str) -> bytes:
    """The seed of a chapter's checks in the current round, the same for all students."""
    message = f"{int(str(chapter)[:2])}|{current_round(course)}".encode()
    return hmac.new(course_key(course), message, hashlib.sha256).digest()


def find_course(start: Path | None = None) -> Path:
    """The nbgrader course folder around ``start`` (default: the working directory): the one with nbgrader_config.py."""
    start = (start or Path.cwd()).resolve()
    for folder in (start, *start.parents):
        if (folder / "nbgrader_config.py").exists():
            return folder
    raise FileNotFoundError(f"There is no nbgrader_config.py in {start} or above it: grade inside a course folder.")


def chapter_of(piece: str) -> int:
    return registry.checks(piece=piece)[0].chapter
