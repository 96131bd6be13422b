"""Bounds on memory and processes that hold for everybody, root as well: control groups, version 1 or 2.

A group holds for all processes of a kernel together and counts what belongs to no process, such as files in a temporary
file system in memory. It is made where this process may make one: for root nearly everywhere; for an ordinary user where
a session manager has given a part of the tree away (``systemd-run --user --scope autograder grade …``).
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import os
import re
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

PREFIX = "autograder-"

_numbers = itertools.count(1)


@dataclass(frozen=True)
class Place:
    """Where groups are made: the folder in the hierarchy that bounds memory, and the one that bounds processes."""

    memory: Path
    pids: Path
    unified: bool  # version 2, where both are one

    @property
    def folders(self) -> tuple[Path, ...]:
        return (self.memory,) if self.unified else tuple(dict.fromkeys((self.memory, self.pids)))


class Group:
    """A group for one kernel.

    Parameters
    ----------
    place
        Where to make it (:func:`place`).
    memory_bytes
        Resident memory of all processes together, with their files in memory.
    processes
        Processes and threads.

    Raises
    ------
    OSError
        The group can't be made or bounded.
    """

    def __init__(self, place: Place, memory_bytes: int, processes: int):
        self._unified = place.unified
        name = f"{PREFIX}{os.getpid()}-{next(_numbers)}"
        self._memory, self._pids = place.memory / name, place.pids / name
        self._peak, self._kills = 0, 0
        try:
            for folder in self._folders():
                folder.mkdir()
            if place.unified:
                _write(self._memory / "memory.max", memory_bytes)
                _write_if_there(self._memory / "memory.swap.max", 0)
                _write_if_there(self._memory / "memory.oom.group", 1)
            else:
                _write(self._memory / "memory.limit_in_bytes", memory_bytes)
                _write_if_there(self._memory / "memory.memsw.limit_in_bytes", memory_bytes)  # memory and swap
            _write(self._pids / "pids.max", processes)
        except OSError:
            self.close()
            raise

    def _folders(self) -> tuple[Path, ...]:
        return tuple(dict.fromkeys((self._memory, self._pids)))

    def add(self, process: int) -> None:
        """Bound a process and all that it starts from now on."""
        for folder in self._folders():
            _write(folder / "cgroup.procs", process)

    def out_of_memory(self) -> bool:
        """Whether the system has ended a process of the group because it asked for more memory than it may have."""
        with contextlib.suppress(OSError):
            text = (self._memory / ("memory.events" if self._unified else "memory.oom_control")).read_text()
            found = re.search(r"^oom_kill (\d+)$", text, re.MULTILINE)
            self._kills = int(found.group(1)) if found else 0
        return self._kills > 0

    def peak_bytes(self) -> int:
        """The most memory that the group has had; 0 where the system doesn't tell."""
        with contextlib.suppress(OSError, ValueError):
            name = "memory.peak" if self._unified else "memory.max_usage_in_bytes"
            self._peak = int((self._memory / name).read_text())
        return self._peak

    def close(self) -> None:
        """Remove the group; its processes must have ended. What it has counted can still be asked for."""
        self.out_of_memory()
        self.peak_bytes()
        for folder in self._folders():
            for _ in range(50):
                try:
                    folder.rmdir()
                    break
                except FileNotFoundError:
                    break
                except OSError:  # the system is still clearing a process away
                    time.sleep(0.02)


@functools.cache
def place() -> Place | None:
    """Where this process can make groups and put another process into them; None where it can't."""
    for candidate in _candidates(Path("/proc/self/cgroup").read_text(), Path("/proc/self/mountinfo").read_text()):
        if _works(candidate):
            _remove_stale(candidate)
            return candidate
    return None


def _candidates(groups: str, mounts: str) -> list[Place]:
    """Places to try: version 1 below the own group, version 2 in the own group or the nearest around it."""
    own = {}
    for line in groups.splitlines():
        _, controllers, path = line.split(":", 2)
        own.update(dict.fromkeys(controllers.split(","), path))
    folders: dict[str, tuple[Path, Path]] = {}  # controller: where its hierarchy begins, and the own group in it
    for line in mounts.splitlines():
        words, rest = line.split(" - ", 1)
        root, point = words.split()[3:5]
        kind, _, options = rest.split(maxsplit=2)
        names = [""] if kind == "cgroup2" else options.split(",") if kind == "cgroup" else []
        for name in names:
            if name in own:
                inside = os.path.relpath(own[name], root) if root != "/" else own[name].lstrip("/")
                folder = Path(point) if inside.startswith("..") else Path(point) / inside
                folders.setdefault(name, (Path(point), folder))
    found = []
    if "memory" in folders and "pids" in folders:
        found.append(Place(folders["memory"][1], folders["pids"][1], unified=False))
    if "" in folders:
        top, folder = folders[""]
        for around in (folder, *folder.parents):
            with contextlib.suppress(OSError):
                if {"memory", "pids"} <= set((around / "cgroup.subtree_control").read_text().split()):
                    found.append(Place(around, around, unified=True))
            if around == top:
                break
    return found


def _works(candidate: Place) -> bool:
    """Whether a group can be made there and a child of this process be put into it."""
    try:
        group = Group(candidate, 1 << 26, 16)
    except OSError:
        return False
    child = subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL)
    try:
        group.add(child.pid)
        return True
    except OSError:
        return False
    finally:
        child.communicate()
        group.close()


def _remove_stale(candidate: Place) -> None:
    """Remove the groups of graders that were killed: those that are empty and not new."""
    for folder in candidate.folders:
        for left in folder.glob(f"{PREFIX}*"):
            with contextlib.suppress(OSError):
                process = left.name.removeprefix(PREFIX).partition("-")[0]
                if not Path("/proc", process).exists():
                    left.rmdir()


def _write(file: Path, value: int) -> None:
    with open(file, "w") as stream:
        stream.write(str(value))


def _write_if_there(file: Path, value: int) -> None:
    if file.exists():
        _write(file, value)
