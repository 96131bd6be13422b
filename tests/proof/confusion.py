"""Which known mistake is named as which: the wrong implementations of the bank against the diagnoses given.

    python -m tests.proof.confusion

grades every wrong implementation of ``tests/bank`` with diagnosis, prints how many are named in each chapter, and writes
``results/confusion.json``, one row for each: what it loses, the name that fits it (``expected``, given in the bank by
reading the code) and the names that it was given. A mistake may go without a name; a wrong name is a fault, and the
command fails.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import multiprocessing
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import rich.console
import rich.progress

import autograder
from autograder import registry
from tests.bank import Entry, entries, load
from transformer_lab import pieces, results

SEED = 0
#: What a row says of the diagnosis.
NAMED, WRONGLY, UNNAMED, UNKNOWN = "named", "wrongly named", "not named", "no name fits"


def row(entry: Entry, seed: int = SEED, namespace: Any = None) -> dict[str, Any]:
    """One wrong implementation: what it loses and what it is called. ``namespace`` stands for the entry's own in tests."""
    judged = autograder.run_checks(namespace or load(entry), piece=entry.piece, seed=seed, cells=[])
    failed = [result for result in judged if not result.passed]
    given = sorted({result.diagnosis.id for result in failed if result.diagnosis})
    return {
        "chapter": judged[0].chapter,
        "piece": entry.piece,
        "entry": entry.id,
        "note": entry.note,
        "expected": entry.misconception,
        "given": given,
        "diagnosis": _verdict(entry.misconception, given),
        "lost": sum(result.points - result.earned for result in judged),
        "points": sum(result.points for result in judged),
        "failed": len(failed),
        "explained": sum(result.diagnosis is not None for result in failed),
        "checks": len(judged),
    }


def _verdict(expected: str | None, given: Sequence[str]) -> str:
    if set(given) - {expected}:
        return WRONGLY
    if given:
        return NAMED
    return UNNAMED if expected else UNKNOWN


def rows(
    chosen: Sequence[Entry], jobs: int = 1, say: Callable[[str], None] = lambda entry: None
) -> list[dict[str, Any]]:
    """The rows of these entries, in their order; ``say`` is told the entry that is done."""
    found: dict[str, dict[str, Any]] = {}
    if jobs == 1:
        for entry in chosen:
            found[entry.id] = row(entry)
            say(entry.id)
    else:
        registry.checks()
        with concurrent.futures.ProcessPoolExecutor(jobs, multiprocessing.get_context("fork")) as pool:
            for done in concurrent.futures.as_completed(pool.submit(row, entry) for entry in chosen):
                found[done.result()["entry"]] = done.result()
                say(done.result()["entry"])
    return [found[entry.id] for entry in chosen]


def shares(rows: Sequence[dict[str, Any]], by: str) -> dict[Any, dict[str, int]]:
    """For each value of the column ``by``, how many rows there are of each kind of diagnosis."""
    kinds = (NAMED, WRONGLY, UNNAMED, UNKNOWN)
    groups = dict.fromkeys(row[by] for row in rows)
    return {
        group: {kind: sum(row[by] == group and row["diagnosis"] == kind for row in rows) for kind in kinds}
        for group in groups
    }


def share(counts: dict[str, int]) -> float:
    """The part of the mistakes that have a name which are given it."""
    known = counts[NAMED] + counts[UNNAMED] + counts[WRONGLY]
    return counts[NAMED] / known if known else 1.0


def show(rows: Sequence[dict[str, Any]]) -> None:
    head = f"{'':30s} {'wrong':>6s} {'has name':>9s} {'named':>6s} {'wrongly':>8s} {'share':>6s}"
    for by in ("piece", "chapter"):
        print(head)
        for group, counts in shares(rows, by).items():
            _line(f"chapter {group}" if by == "chapter" else group, counts)
        print()
    _line("all", {kind: sum(row["diagnosis"] == kind for row in rows) for kind in (NAMED, WRONGLY, UNNAMED, UNKNOWN)})
    for row in rows:
        if row["diagnosis"] in (WRONGLY, UNNAMED):
            print(
                f"{row['diagnosis']}: {row['entry']}, {row['expected']}, given {', '.join(row['given']) or 'nothing'}"
            )
    silent = [row["entry"] for row in rows if not row["lost"]]
    if silent:
        print(f"lose no point: {', '.join(silent)}")


def _line(name: str, counts: dict[str, int]) -> None:
    total = sum(counts.values())
    known = total - counts[UNKNOWN]
    print(f"{name:30s} {total:6d} {known:9d} {counts[NAMED]:6d} {counts[WRONGLY]:8d} {100 * share(counts):5.0f} %")


def code() -> list[Path]:
    """The files that decide who is named how."""
    root = pieces.COURSE_ROOT
    folders = ("autograder/checks/ch*.py", "autograder/misconceptions/ch*.py", "tests/bank/ch*.py")
    files = [root / "autograder" / f"{name}.py" for name in ("compare", "diagnose", "oracles", "wiring")]
    return files + [path for pattern in folders for path in sorted(root.glob(pattern))]


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--piece", action="append", help="look at this piece only, and write nothing")
    options = parser.parse_args(arguments)
    chosen = [entry for entry in entries(verdict="wrong") if options.piece is None or entry.piece in options.piece]
    with rich.progress.Progress(console=rich.console.Console(stderr=True)) as bar:
        task = bar.add_task("diagnosing", total=len(chosen))
        found = rows(chosen, options.jobs, lambda entry: bar.update(task, advance=1, description=entry))
    show(found)
    if options.piece is None:
        machine = results.describe_machine()
        print(results.save("confusion", found, command="make confusion", code=code(), seed=SEED, machine=machine))
    return 1 if any(row["diagnosis"] == WRONGLY or not row["lost"] for row in found) else 0


if __name__ == "__main__":
    sys.exit(main())
