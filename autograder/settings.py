"""What an instructor decides in the course's ``nbgrader_config.py``, beside nbgrader's own settings."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from traitlets.config import Config

CONFIG_FILE = "nbgrader_config.py"


def read_config(course: Path) -> Config:
    """The settings of the course folder ``course``, empty where it has no ``nbgrader_config.py``.

    Raises ``ValueError`` with one sentence when the file cannot be read.
    """
    from traitlets.config import Config, PyFileConfigLoader

    if not (course / CONFIG_FILE).exists():
        return Config()
    try:
        return PyFileConfigLoader(CONFIG_FILE, path=str(course)).load_config()
    except Exception as error:  # it is a program of the instructor's
        detail = f"{type(error).__name__}: {error}".splitlines()[0]
        raise ValueError(f"{course / CONFIG_FILE} cannot be read: {detail}") from error


def builtin_costs(course: Path) -> float:
    """The share of a piece's points that using the built-in which it re-creates costs: ``c.Judge.builtin_costs``, or 0.

    Raises ``ValueError`` with one sentence when it is not a number from 0 to 1.
    """
    return share(read_config(course).get("Judge", {}).get("builtin_costs", 0.0), f"{course / CONFIG_FILE}: ")


def share(value: object, where: str = "") -> float:
    """``value`` as the share that ``builtin_costs`` is; ``ValueError`` when it is none."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value <= 1:
        raise ValueError(f"{where}builtin_costs is a number from 0 (costs nothing) to 1 (costs all), not {value!r}.")
    return float(value)
