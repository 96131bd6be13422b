"""Mutants of the reference pieces against the hidden checks.

    python -m tests.proof.mutation            # or: make mutation

mutmut changes each answer of ``solutions/`` in one place at a time: an argument dropped or None, a number one larger, an
operator exchanged. A mutant is killed when it loses points on its piece with *every* seed of ``SEEDS``, since a learner is
graded with one. What survives is either listed in ``equivalent_mutants.toml``, because it does what the specification asks,
or makes the command fail. The counts go to ``results/mutation.json``, one row per piece.

The mutants run in a few processes that have loaded everything once; each runs in a fork of its own with limits on time and
memory. What one piece's mutants came to is kept in ``build/mutation`` and not computed again until the piece, its checks
or what these import has changed, so that a run that was stopped goes on where it ended.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import difflib
import functools
import hashlib
import importlib.util
import io
import json
import multiprocessing
import os
import re
import resource
import signal
import sys
import tomllib
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import libcst
from libcst.metadata import MetadataWrapper
from mutmut.mutation.file_mutation import MutationVisitor
from mutmut.mutation.mutators import mutation_operators
from mutmut.mutation.pragma_handling import IgnoredCode
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from autograder import registry, runner
from transformer_lab import pieces, results
from transformer_lab.cells import Cell
from transformer_lab.pieces import COURSE_ROOT

SEEDS = (0, 1, 2)
FOLDER = COURSE_ROOT / "build" / "mutation"
EQUIVALENT = Path(__file__).with_name("equivalent_mutants.toml")

#: The checks of a piece take less than a second of processor time with all seeds. The processor's time counts, because
#: the machine may be busy; the clock only ends a mutant that sleeps.
CPU_SECONDS, CLOCK_SECONDS = 15, 300
#: What a mutant may allocate beyond what is there when it starts.
MEMORY = 2**31


@dataclass(frozen=True)
class Mutant:
    """One change of one answer: the cell's source with it, and the line that it changes, before and after."""

    piece: str
    line: str
    becomes: str
    source: str


@dataclass(frozen=True)
class Verdict:
    """What a mutant came to. ``by`` names the first check that it fails; ``seeds`` counts those that lose it points."""

    killed: bool
    by: str = ""
    seeds: int = 0
    timeout: bool = False
    visible: bool = False


@dataclass(frozen=True)
class Equivalent:
    """Mutants of a line that do what the specification asks, and why they do."""

    piece: str
    line: str
    becomes: tuple[str, ...]
    reason: str


# ------------------------------------------------------------------------------------------------------------- mutants


@functools.cache
def reference() -> pieces.Pieces:
    return pieces.load("solutions")


def cell_of(piece: str, name: str) -> Cell:
    """The cell called ``name`` in the notebook that defines ``piece``."""
    return next(cell for cell in pieces.cells_of(reference(), piece) if cell.name == name)


def notebook_of(piece: str) -> Path:
    return Path(str(_module(piece).__file__))


def _module(piece: str):
    return sys.modules[getattr(reference(), piece).__module__]


@functools.cache
def mutants(piece: str) -> tuple[Mutant, ...]:
    """The mutants of what stands between BEGIN SOLUTION and END SOLUTION in the answer cell of ``piece``."""
    source = cell_of(piece, piece).source
    path = FOLDER / notebook_of(piece).stem / f"{piece}.py"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(source + "\n", encoding="utf-8")
    # Without mutmut's own configuration: no comment in the source keeps a line from being mutated.
    visitor = MutationVisitor(mutation_operators, IgnoredCode(set(), set(), set()), _answer_lines(source))
    module = MetadataWrapper(libcst.parse_module(source)).visit(visitor)
    found: dict[str, Mutant] = {}
    for mutation in visitor.mutations:
        code = module.deep_replace(mutation.original_node, mutation.mutated_node).code  # type: ignore[union-attr]
        with contextlib.suppress(SyntaxError):
            found.setdefault(ast.dump(ast.parse(code)), Mutant(piece, *_difference(source, code), code))
    found.pop(ast.dump(ast.parse(source)), None)
    return tuple(found.values())


def _answer_lines(source: str) -> set[int]:
    inside, lines = False, set()
    for number, line in enumerate(source.splitlines(), start=1):
        inside = (inside or "### BEGIN SOLUTION" in line) and "### END SOLUTION" not in line
        if inside:
            lines.add(number)
    return lines


def _difference(before: str, after: str) -> tuple[str, str]:
    """The lines that differ, without indentation and comments."""
    changed = [line for line in difflib.ndiff(before.splitlines(), after.splitlines()) if line[0] in "-+"]
    texts = ([re.sub(r"\s+#.*", "", line[2:]).strip() for line in changed if line[0] == sign] for sign in "-+")
    was, becomes = (" ".join(lines) for lines in texts)
    return was, becomes


# -------------------------------------------------------------------------------------------------------------- verdicts


def namespace(piece: str, source: str) -> dict[str, Any]:
    """The notebook of ``piece`` with its answer replaced by ``source``, or without it where that raises."""
    names = dict(vars(_module(piece)))
    del names[piece]
    with contextlib.suppress(Exception):
        exec(compile(source, f"<mutant of {piece}>", "exec", dont_inherit=True), names)
    return names


def hidden(piece: str, source: str) -> tuple[str, int]:
    """The first hidden check that ``source`` fails, and with how many seeds it fails one."""
    names = namespace(piece, source)
    failed = [runner.first_failure(names, piece, seed) for seed in SEEDS]
    return next(filter(None, failed), ""), sum(map(bool, failed))


def visible(piece: str, source: str) -> bool:
    """Whether the visible tests of ``piece`` hold."""
    names = namespace(piece, source)
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            exec(cell_of(piece, f"test_{piece}").source, names)
    except Exception:
        return False
    return True


def judge(piece: str, source: str, *, seconds: float = CPU_SECONDS) -> Verdict:
    """The verdict on ``source`` as the answer for ``piece``, found in forks of this process.

    This process must not have run PyTorch's backward pass, after which a fork can't.
    """
    by, seeds, timeout = "", len(SEEDS), False
    try:
        by, seeds = limited(hidden, piece, source, seconds=seconds)
    except Stopped as stopped:
        by, timeout = stopped.message, stopped.timeout
    try:
        seen = not limited(visible, piece, source, seconds=seconds)
    except Stopped:
        seen = True
    return Verdict(seeds == len(SEEDS), by, seeds, timeout, seen)


class Stopped(Exception):
    """What ran in the fork did not come to its end."""

    def __init__(self, message: str, timeout: bool):
        super().__init__(message, timeout)  # both, so that it can travel between processes
        self.message, self.timeout = message, timeout


def limited(function: Callable, *arguments: Any, seconds: float = CPU_SECONDS, clock: float = CLOCK_SECONDS) -> Any:
    """``function(*arguments)`` in a fork with limits; Stopped when it reaches one or the fork dies."""
    fork = multiprocessing.get_context("fork")
    reader, writer = fork.Pipe(duplex=False)
    process = fork.Process(target=_forked, args=(writer, seconds, function, arguments))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of forking with threads, of which there are none
        process.start()
    writer.close()
    try:
        if not reader.poll(clock):
            raise Stopped("no result in time", timeout=True)
        return reader.recv()
    except EOFError:
        process.join()
        late = process.exitcode == -signal.SIGXCPU
        raise Stopped("no result in time" if late else f"the process ended with {process.exitcode}", late) from None
    finally:
        process.kill()
        process.join()
        reader.close()


def _forked(writer, seconds: float, function: Callable, arguments: tuple) -> None:
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    for kind, limit in (
        (resource.RLIMIT_CPU, max(1, round(seconds))),
        (resource.RLIMIT_AS, pages * resource.getpagesize() + MEMORY),
        (resource.RLIMIT_CORE, 0),
    ):
        resource.setrlimit(kind, (limit, resource.getrlimit(kind)[1]))
    sys.stderr = open(os.devnull, "w")  # noqa: SIM115 - what a mutant complains of
    writer.send(function(*arguments))


def _warm() -> None:
    """What every worker does once, before it forks."""
    reference(), registry.pieces()


@contextlib.contextmanager
def workers(jobs: int) -> Iterator[ProcessPoolExecutor]:
    """Fresh processes in which :func:`judge` may be called."""
    with ProcessPoolExecutor(jobs, multiprocessing.get_context("spawn"), initializer=_warm) as pool:
        try:
            yield pool
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


# --------------------------------------------------------------------------------------------------------------- survey


#: How a check reaches a piece, and not what it asks of it.
MACHINERY = {"autograder", "autograder.registry", "autograder.student"}


def code_of(piece: str) -> list[Path]:
    """The files that decide what becomes of the mutants of ``piece``: its notebook, its checks and what these import."""
    found, ahead = (
        {Path(__file__), notebook_of(piece)},
        [check.function.__module__ for check in registry.checks(piece=piece)],
    )
    while ahead:
        file = Path(str(importlib.util.find_spec(ahead.pop()).origin))  # type: ignore[union-attr]
        if file not in found:
            found.add(file)
            nodes = ast.walk(ast.parse(file.read_text(encoding="utf-8")))
            modules = {str(node.module) for node in nodes if isinstance(node, ast.ImportFrom)}
            ahead += [name for name in modules if name.partition(".")[0] == "autograder" and name not in MACHINERY]
    return sorted(found)


def survey(
    chosen: Sequence[Mutant], jobs: int, fresh: bool = False, say: Console | None = None
) -> dict[Mutant, Verdict]:
    """The verdict on each of ``chosen``, from the kept ones where nothing has changed since.

    Raises ``RuntimeError`` where an answer that is not mutated loses points or fails its visible tests.
    """
    kept = FOLDER / "verdicts.jsonl"
    if fresh:
        kept.unlink(missing_ok=True)
    known = dict(map(json.loads, kept.read_text(encoding="utf-8").splitlines())) if kept.exists() else {}
    keys = {mutant: _key(mutant) for mutant in chosen}
    found = {mutant: Verdict(**known[key]) for mutant, key in keys.items() if key in known}
    left = [mutant for mutant in chosen if mutant not in found]
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=say, disable=say is None) as bar:
        task = bar.add_task("mutants", total=len(chosen), completed=len(found))
        if not left:
            return found
        FOLDER.mkdir(parents=True, exist_ok=True)
        with workers(jobs) as pool, kept.open("a", encoding="utf-8") as file:
            for piece in dict.fromkeys(mutant.piece for mutant in left):
                verdict = pool.submit(judge, piece, cell_of(piece, piece).source).result()
                if verdict.seeds or verdict.visible:
                    raise RuntimeError(
                        f"{piece} fails as it is, without a mutation: {verdict.by or 'its visible tests'}."
                    )
            futures: dict[Future, Mutant] = {pool.submit(judge, m.piece, m.source): m for m in left}
            for future in as_completed(futures):
                mutant = futures[future]
                found[mutant] = future.result()
                file.write(json.dumps([keys[mutant], asdict(found[mutant])]) + "\n")
                file.flush()
                bar.advance(task)
    return {mutant: found[mutant] for mutant in chosen}


def _key(mutant: Mutant) -> str:
    return hashlib.sha256("\0".join([mutant.piece, mutant.source, _state(mutant.piece)]).encode()).hexdigest()


@functools.cache
def _state(piece: str) -> str:
    return " ".join(map(_digest, code_of(piece)))


_digest = functools.cache(results.digest)


# -------------------------------------------------------------------------------------------------------------- reading


def equivalents(path: Path = EQUIVALENT) -> list[Equivalent]:
    """The list of equivalent mutants. Raises ``ValueError`` for an entry without a reason."""
    listed = [
        Equivalent(entry["piece"], entry["line"], tuple(entry["becomes"]), entry["reason"])
        for entry in tomllib.loads(path.read_text(encoding="utf-8")).get("mutants", [])
    ]
    for entry in listed:
        if not entry.reason.endswith(".") or len(entry.reason.split()) < 5:
            raise ValueError(f"{path.name}: say in a sentence why {entry.line!r} of {entry.piece} may change.")
    return listed


def complaints(verdicts: dict[Mutant, Verdict], listed: Iterable[Equivalent]) -> list[str]:
    """What is wrong: mutants that survive and are not listed, and entries of the list that don't hold (any longer)."""
    places = {(mutant.piece, mutant.line, mutant.becomes): verdict for mutant, verdict in verdicts.items()}
    excused = [(entry.piece, entry.line, becomes) for entry in listed for becomes in entry.becomes]
    surveyed = {mutant.piece for mutant in verdicts}
    wrong = []
    for (piece, line, becomes), verdict in places.items():
        if not verdict.killed and (piece, line, becomes) not in excused:
            partly = f" (killed with {verdict.seeds} of {len(SEEDS)} seeds, by {verdict.by})" if verdict.seeds else ""
            wrong.append(f"{piece}: survives unexplained{partly}\n  - {line}\n  + {becomes}")
    for place in excused:
        piece, line, becomes = place
        if piece in surveyed and (place not in places or places[place].killed):
            why = f"is killed by {places[place].by}" if place in places else "is no mutant any more"
            wrong.append(f"{piece}: listed as equivalent, but {why}\n  - {line}\n  + {becomes}")
        elif excused.count(place) > 1:
            wrong.append(f"{piece}: listed more than once\n  - {line}\n  + {becomes}")
    return wrong


def rows(verdicts: dict[Mutant, Verdict], listed: Iterable[Equivalent]) -> list[dict[str, Any]]:
    """One row per piece: how many mutants there are, and what became of them; timeouts are among the killed."""
    excused = {(entry.piece, entry.line, becomes) for entry in listed for becomes in entry.becomes}
    table = []
    for piece in dict.fromkeys(mutant.piece for mutant in verdicts):
        own = {mutant: verdict for mutant, verdict in verdicts.items() if mutant.piece == piece}
        alive = [mutant for mutant, verdict in own.items() if not verdict.killed]
        equivalent = sum((mutant.piece, mutant.line, mutant.becomes) in excused for mutant in alive)
        table.append(
            {
                "chapter": registry.checks(piece=piece)[0].chapter,
                "piece": piece,
                "mutants": len(own),
                "killed": len(own) - len(alive),
                "timeouts": sum(verdict.timeout for verdict in own.values()),
                "equivalent": equivalent,
                "survived": len(alive) - equivalent,
                "killed_by_visible_tests": sum(verdict.visible for verdict in own.values()),
            }
        )
    return table


def totals(table: Iterable[dict[str, Any]]) -> dict[str, int]:
    """The sums of the columns of ``rows`` that count."""
    table = list(table)
    return {name: sum(row[name] for row in table) for name in table[0] if name not in ("chapter", "piece")}


def score(counts: dict[str, Any]) -> float:
    """The share of the mutants that are not equivalent which the hidden checks kill."""
    return counts["killed"] / max(1, counts["mutants"] - counts["equivalent"])


def by_chapter(table: Sequence[dict[str, Any]]) -> Table:
    shown = Table("chapter", *(name.replace("_", " ") for name in totals(table)), "score", box=None)
    for chapter in (*dict.fromkeys(row["chapter"] for row in table), "all"):
        counts = totals(row for row in table if chapter in ("all", row["chapter"]))
        shown.add_row(str(chapter), *map(str, counts.values()), f"{100 * score(counts):.1f} %")
    for column in shown.columns[1:]:
        column.justify = "right"
    return shown


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.proof.mutation",
        description="Run the hidden checks on mutants of the reference pieces; write results/mutation.json.",
    )
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes (default: one per processor)")
    parser.add_argument("--piece", action="append", help="only this piece, and write no result; may be repeated")
    parser.add_argument("--fresh", action="store_true", help="judge all again, also where nothing has changed")
    options = parser.parse_args(arguments)
    out, err = Console(), Console(stderr=True)
    listed = equivalents()
    chosen = [mutant for piece in options.piece or registry.pieces() for mutant in mutants(piece)]
    code = sorted({EQUIVALENT, *(file for piece in registry.pieces() for file in code_of(piece))})
    before = list(map(results.digest, code))
    verdicts = survey(chosen, options.jobs, options.fresh, say=err)
    table, wrong = rows(verdicts, listed), complaints(verdicts, listed)
    if not options.piece:
        wrong += [
            f"{e.piece}: listed as equivalent, but is no piece" for e in listed if e.piece not in registry.pieces()
        ]
    if list(map(results.digest, code)) != before:
        wrong.append("An answer or a check has changed while the mutants ran: count again.")
    out.print(by_chapter(table))
    for sentence in wrong:
        out.print(sentence, style="red", markup=False, highlight=False, soft_wrap=True)
    if not options.piece and not wrong:
        path = results.save(
            "mutation",
            table,
            command="make mutation",
            code=code,
            seed=SEEDS[0],
            machine=results.describe_machine(),
        )
        out.print(f"{len(table)} pieces in {path.relative_to(COURSE_ROOT)}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
