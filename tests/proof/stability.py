"""Whether a verdict depends on chance: every known implementation, judged over many seeds and settings of torch.

    python -m tests.proof.stability

judges the bank (``tests/bank``), the known mistakes of ``autograder/misconceptions``, the solutions and PyTorch's own pieces
with the inputs of 200 seeds, and with other settings of torch (``SETTINGS``) for fewer; it writes ``results/stability.json``.
A right implementation must pass every check and a wrong one fail one, each time. What it finds is kept under
``build/stability``, a line for each piece, seed and setting, so that a run that was stopped goes on where it ended, and after
a change only the pieces are judged again whose checks or implementations have changed.

A wrong implementation is judged until one check fails, beginning with the one that it failed last. What counts is how
clearly: where a deviation decides and is less than ``CLEAR`` times the accepted one, the other checks are asked too.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import hashlib
import inspect
import json
import math
import multiprocessing
import os
import signal
import sys
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import rich.console
import rich.progress
import torch
from torch import Tensor

from autograder import compare, oracles, registry, wiring
from autograder.compare import CheckFailed
from autograder.runner import random_for
from autograder.student import Student, StudentError
from tests.bank import entries, load
from transformer_lab import builtin, driver, pieces, results

SEEDS = 200
WORK = pieces.COURSE_ROOT / "build" / "stability"
#: A wrong implementation that deviates by so many times what is accepted is clearly wrong, and a right one that deviates
#: by less than this part of it is clearly right: 10 times and a tenth.
CLEAR = 10.0


@dataclass(frozen=True)
class Setting:
    """How torch computes."""

    name: str
    threads: int
    deterministic: bool
    #: Which seeds, of those that are asked for: the first of every so many.
    every: int = 1

    @contextlib.contextmanager
    def here(self) -> Iterator[None]:
        threads, deterministic = torch.get_num_threads(), torch.are_deterministic_algorithms_enabled()
        torch.set_num_threads(self.threads)
        torch.use_deterministic_algorithms(self.deterministic)
        try:
            yield
        finally:
            torch.set_num_threads(threads)
            torch.use_deterministic_algorithms(deterministic)


#: The first is how checks run; the others show that nothing hangs on it, for every twentieth seed.
SETTINGS = (
    Setting("1 thread", 1, False),
    Setting("2 threads", 2, False, every=20),
    Setting("1 thread, deterministic algorithms", 1, True, every=20),
    Setting("2 threads, deterministic algorithms", 2, True, every=20),
)


@dataclass(frozen=True)
class Subject:
    """An implementation and what is known of it."""

    piece: str
    id: str
    right: bool
    source: str
    make: Callable[[], Any]

    @functools.cached_property
    def namespace(self) -> Any:
        return self.make()


@functools.cache
def subjects(piece: str) -> list[Subject]:
    """What is judged of a piece: the bank's entries, the known mistakes, the solution and PyTorch's own."""
    found = [Subject(piece, e.id, e.verdict == "right", e.source, functools.partial(load, e)) for e in entries(piece)]
    counted: dict[str, int] = defaultdict(int)
    for known in registry.misconceptions(piece):
        counted[known.id] += 1
        name = f"mistake {known.id} {counted[known.id]}"
        source = _digest(inspect.getfile(known.implementation))
        found.append(Subject(piece, name, False, source, lambda known=known: {known.piece: known.implementation}))
    solution = _solutions()
    found.append(Subject(piece, "solution", True, "", lambda: solution))
    if hasattr(builtin, piece):
        found.append(Subject(piece, "PyTorch's", True, _digest(builtin.__file__), lambda: builtin))
    return found


@functools.cache
def _solutions() -> Any:
    return pieces.load("solutions")


class Direct(Student):
    """The pieces in this process, asked without turning everything into text and back, which takes a third of the time.

    What arrives and comes back is what would have travelled (tested against :class:`LocalStudent`).
    """

    def __init__(self, namespace: Any):
        super().__init__()
        self.namespace = namespace

    def send(self, request: dict) -> dict:
        try:
            return _plain(driver._tensors_only(driver.run(self.namespace, _plain(request))))
        except (Exception, SystemExit) as error:
            raise StudentError(*driver.describe(error).values()) from None


def _plain(value: Any) -> Any:
    """``driver.loads(driver.dumps(value))``, by a shorter way for arrays and what holds them."""
    if (
        isinstance(value, Tensor)
        and value.dtype in _COMMON
        and value.layout == torch.strided
        and value.device.type == "cpu"
    ):
        return value.detach().numpy().copy()
    if isinstance(value, np.ndarray) and value.dtype.kind in "biuf":
        return value.copy()
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if isinstance(value, driver.Probe):
        return driver.Probe(value.kind, value.name, *map(_plain, value.arrays))
    return driver.decode(driver.encode(value))


_COMMON = {torch.float32, torch.float64, torch.int64, torch.bool}


class Judge:
    """Judges the subjects of a piece again and again."""

    def __init__(
        self,
        piece: str,
        subjects: Sequence[Subject],
        checks: Sequence[registry.Check] | None = None,
        student: Callable[[Any], Student] = Direct,
    ):
        self.piece, self.subjects, self.student = piece, list(subjects), student
        self.checks = list(checks if checks is not None else registry.checks(piece=piece))
        self.order: dict[str, list[registry.Check]] = {}

    def judge(self, seed: int) -> dict[str, Any]:
        """For one seed, the subjects that are judged wrongly, and those that are judged rightly by a narrow margin.

        Margins are the largest deviation of a right one, and that of a wrong one in the check where it is largest, both
        over the accepted deviation; None where no number decides.
        """
        wrongly, near = [], []
        extremes: dict[bool, float | None] = {True: None, False: None}
        for subject in self.subjects:
            passed, margin, check, what = self._judge(subject, seed)
            if passed != subject.right:
                wrongly.append([subject.id, check, what])
                continue
            if margin is None:
                continue
            closer = max if subject.right else min
            before = extremes[subject.right]
            extremes[subject.right] = margin if before is None else closer(before, margin)
            if margin > 1 / CLEAR if subject.right else margin < CLEAR:
                near.append([subject.id, check, what, margin])
        return {"wrongly": wrongly, "near": near, "right": extremes[True], "wrong": extremes[False]}

    def _judge(self, subject: Subject, seed: int) -> tuple[bool, float | None, str, str]:
        student = self.student(subject.namespace)
        order = self.order.setdefault(subject.id, list(self.checks))
        best: tuple[float | None, str, str] = (None, "", "")
        failed = False
        for check in list(order):
            with compare.measuring() as margins:
                message = _message(check, student, seed)
            if subject.right and message:
                return False, None, check.name, message
            if subject.right:
                what, margin = max(margins, key=lambda pair: pair[1], default=("", 0.0))
                if best[0] is None or margin > best[0]:
                    best = (margin, check.name, what)
            elif message:
                if not failed:
                    order.remove(check)
                    order.insert(0, check)
                beyond = [pair for pair in margins if not pair[1] <= 1]
                what, margin = max(beyond, key=lambda pair: pair[1], default=("", math.inf))
                if not math.isfinite(margin):
                    return False, None, check.name, message
                if not failed or margin > (best[0] or 0):
                    best = (margin, check.name, what)
                failed = True
                if margin >= CLEAR:
                    order.remove(check)
                    order.insert(0, check)
                    break
        return (subject.right or not failed), *best


def _message(check: registry.Check, student: Student, seed: int) -> str:
    """Why a check fails, empty where it holds."""
    try:
        check.function(student, random_for(seed, f"{check.chapter}/{check.piece}/{check.name}"))
    except (CheckFailed, StudentError) as failure:
        return str(failure) or type(failure).__name__
    except Exception as error:  # what came back cannot be compared
        return f"{type(error).__name__}: {error}"
    return ""


# ------------------------------------------------------------------------------------------------------- the long run


def digest(piece: str) -> str:
    """16 hexadecimal digits of what decides the verdicts on a piece: its checks, what they compare with, who is judged."""
    parts = [_digest(path) for path in _code(piece)]
    parts += [f"{s.id} {s.right} {s.source}" for s in subjects(piece)]
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]


@functools.cache
def _digest(path: str | Path) -> str:
    return results.digest(Path(path))


def _code(piece: str) -> list[Path]:
    """The files by which verdicts on a piece are decided."""
    chapter = registry.checks(piece=piece)[0].chapter
    found = [Path(inspect.getfile(registry.checks(piece=piece)[0].function))]
    found += [Path(inspect.getfile(module)) for module in (compare, oracles, wiring)]
    return found + sorted((pieces.COURSE_ROOT / "solutions").glob(f"{chapter:02d}_*.md"))


Unit = tuple[str, int, str]  # setting, seed, piece


def units(seeds: int, names: Sequence[str], settings: Sequence[Setting] = SETTINGS) -> list[Unit]:
    """All that is to be done, seed by seed."""
    return [
        (setting.name, seed, piece)
        for seed in range(seeds)
        for setting in settings
        if seed % setting.every == 0
        for piece in names
    ]


def read(work: Path, digests: dict[str, str]) -> dict[Unit, dict[str, Any]]:
    """What earlier runs found, as far as it still holds. The last line of a run that was killed may be incomplete."""
    found = {}
    path = work / "verdicts.jsonl"
    for line in path.read_text(encoding="utf-8").splitlines() if path.exists() else []:
        try:
            row = json.loads(line)
        except json.JSONDecodeError:
            continue
        if digests.get(row["piece"]) == row["digest"]:
            found[row["setting"], row["seed"], row["piece"]] = row
    return found


def run(
    seeds: int,
    names: Sequence[str],
    work: Path = WORK,
    jobs: int = 1,
    settings: Sequence[Setting] = SETTINGS,
    tables: dict[str, list[Subject]] | None = None,
) -> dict[Unit, dict[str, Any]]:
    """Judge what is not judged yet; everything that is known then. Ctrl-C stops it and keeps what was done."""
    tables = tables or {piece: subjects(piece) for piece in names}
    digests = {piece: digest(piece) for piece in names}
    known = read(work, digests)
    wanted = units(seeds, names, settings)
    todo = [unit for unit in wanted if unit not in known]
    work.mkdir(parents=True, exist_ok=True)
    path = work / "verdicts.jsonl"
    if path.exists() and not path.read_bytes().endswith((b"\n",)) and path.stat().st_size:
        with path.open("a") as file:
            file.write("\n")
    _Worker.prepare(tables, settings)
    with path.open("a", encoding="utf-8") as file, _progress() as bar:
        task = bar.add_task("judging", total=len(wanted), completed=len(wanted) - len(todo))
        with _workers(jobs) as answers:
            for (setting, seed, piece), found in answers(todo):
                row = {"setting": setting, "seed": seed, "piece": piece, "digest": digests[piece], **found}
                file.write(json.dumps(row, ensure_ascii=False) + "\n")
                file.flush()
                known[setting, seed, piece] = row
                bar.update(task, advance=1, description=f"seed {seed}, {setting}, {piece}")
    return {unit: known[unit] for unit in wanted if unit in known}


class _Worker:
    """What a forked process finds ready: the judges, and torch imported."""

    judges: dict[tuple[str, str], Judge]
    settings: dict[str, Setting]

    @classmethod
    def prepare(cls, tables: dict[str, list[Subject]], settings: Sequence[Setting]) -> None:
        cls.judges = {piece: Judge(piece, table) for piece, table in tables.items()}
        cls.settings = {setting.name: setting for setting in settings}

    @classmethod
    def do(cls, unit: Unit) -> tuple[Unit, dict[str, Any]]:
        setting, seed, piece = unit
        with cls.settings[setting].here(), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # implementations that are wrong on purpose
            return unit, cls.judges[piece].judge(seed)


@contextlib.contextmanager
def _workers(jobs: int) -> Iterator[Callable[[Iterable[Unit]], Iterator[tuple[Unit, dict[str, Any]]]]]:
    if jobs == 1:
        yield lambda todo: map(_Worker.do, todo)
        return
    context = multiprocessing.get_context("fork")
    with context.Pool(jobs, initializer=signal.signal, initargs=(signal.SIGINT, signal.SIG_IGN)) as pool:
        yield lambda todo: pool.imap_unordered(_Worker.do, todo)


def _progress() -> rich.progress.Progress:
    console = rich.console.Console(stderr=True)
    columns = (
        rich.progress.BarColumn(),
        rich.progress.MofNCompleteColumn(),
        rich.progress.TimeRemainingColumn(),
        rich.progress.TextColumn("{task.description}"),
    )
    return rich.progress.Progress(*columns, console=console, refresh_per_second=1)


# ---------------------------------------------------------------------------------------------------------- the table


def table(found: dict[Unit, dict[str, Any]], names: Sequence[str]) -> list[dict[str, Any]]:
    """The rows of the result: one per piece and setting, then each implementation that was judged wrongly or narrowly."""
    rows = []
    for setting, piece in dict.fromkeys((setting, piece) for setting, _, piece in sorted(found, key=_position(names))):
        own = [row for unit, row in found.items() if unit[0] == setting and unit[2] == piece]
        table = subjects(piece)
        rights = [row["right"] for row in own if row["right"] is not None]
        wrongs = [row["wrong"] for row in own if row["wrong"] is not None]
        rows.append(
            _row(
                "verdicts",
                piece,
                setting,
                seeds=len(own),
                right=sum(s.right for s in table),
                wrong=sum(not s.right for s in table),
                unexpected=sum(len(row["wrongly"]) for row in own),
                largest_right=_short(max(rights, default=None)),
                smallest_wrong=_short(min(wrongs, default=None)),
            )
        )
    for kind in ("wrongly", "near"):
        cases: dict[tuple[str, str], list] = defaultdict(list)
        for (_, _, piece), row in found.items():
            for case in row[kind]:
                cases[piece, case[0]].append(case)
        for (piece, subject), several in sorted(cases.items(), key=lambda item: (names.index(item[0][0]), item[0][1])):
            right = next(s.right for s in subjects(piece) if s.id == subject)
            margins = [case[3] for case in several] if kind == "near" else []
            worst = (max if right else min)(several, key=lambda case: case[3]) if margins else several[0]
            rows.append(
                _row(
                    "unexpected" if kind == "wrongly" else "near",
                    piece,
                    implementation=subject,
                    verdict="right" if right else "wrong",
                    seeds=len(several),
                    check=worst[1],
                    compared=worst[2],
                    margin=_short(worst[3]) if margins else None,
                )
            )
    return rows


COLUMNS = (
    "row",
    "piece",
    "chapter",
    "setting",
    "seeds",
    "right",
    "wrong",
    "unexpected",
    "largest_right",
    "smallest_wrong",
    "implementation",
    "verdict",
    "check",
    "compared",
    "margin",
)


def _row(row: str, piece: str, setting: str | None = None, **values: Any) -> dict[str, Any]:
    chapter = registry.checks(piece=piece)[0].chapter
    known = {"row": row, "piece": piece, "chapter": chapter, "setting": setting} | values
    return {column: known.get(column) for column in COLUMNS}


def _position(names: Sequence[str]) -> Callable[[Unit], Any]:
    order = [setting.name for setting in SETTINGS]
    return lambda unit: (order.index(unit[0]) if unit[0] in order else 0, names.index(unit[2]), unit[1])


def _short(number: float | None) -> float | None:
    return None if number is None else float(f"{number:.3g}")


def save(rows: Sequence[dict[str, Any]], names: Sequence[str], seeds: int, folder: Path = results.FOLDER) -> Path:
    code = dict.fromkeys(path for piece in names for path in _code(piece))
    code |= dict.fromkeys(Path(inspect.getfile(registry.misconceptions(p)[0].implementation)) for p in names)
    code |= dict.fromkeys(sorted((pieces.COURSE_ROOT / "tests" / "bank").glob("ch*.py")))
    return results.save(
        "stability",
        rows,
        command="make stability" + (f" SEEDS={seeds}" if seeds != SEEDS else ""),
        code=code,
        seed=0,
        machine=results.describe_machine(),
        folder=folder,
    )


def show(rows: Sequence[dict[str, Any]]) -> None:
    for row in rows:
        if row["row"] == "verdicts":
            print(
                f"{row['chapter']:2d}  {row['piece']:28s} {row['setting']:36s} {row['seeds']:4d} seeds, "
                f"{row['right']:3d} right up to {row['largest_right'] or 0:.2g} of what is accepted, "
                f"{row['wrong']:3d} wrong from {row['smallest_wrong'] or math.inf:.3g} times, "
                f"{row['unexpected']} unexpected verdicts"
            )
    for row in rows:
        if row["row"] != "verdicts":
            print(
                f"{row['row']}: {row['piece']} {row['implementation']} ({row['verdict']}), {row['seeds']} seeds, "
                f"{row['check']}, {row['margin']}: {row['compared']}"
            )


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seeds", type=int, default=SEEDS)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--done", action="store_true", help="judge nothing more; write down what is known")
    options = parser.parse_args(arguments)
    names = registry.pieces()
    if options.done:
        digests = {piece: digest(piece) for piece in names}
        wanted = set(units(options.seeds, names))
        found = {unit: row for unit, row in read(WORK, digests).items() if unit in wanted}
    else:
        found = run(options.seeds, names, jobs=options.jobs)
    rows = table(found, names)
    show(rows)
    print(save(rows, names, options.seeds))
    return 1 if any(row["unexpected"] for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
