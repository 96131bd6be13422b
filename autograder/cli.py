"""The command line: ``autograder --help``."""

from __future__ import annotations

import contextlib
import gc
import json
import os
import sys
import warnings
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated

import typer
from rich import box
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from autograder import quick_start, settings

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    help="Check your own pieces, make the stubs, grade a class.",
)
# Rich takes 80 columns where there is no terminal: too few for a class's table in a log.
WIDTH = None if sys.stdout.isatty() or "COLUMNS" in os.environ else 132
out, err = Console(width=WIDTH), Console(stderr=True)

CoursePath = Annotated[Path, typer.Option("--course", "-c", help="The nbgrader course folder.")]
DEFAULT_COURSE = Path("build/course")
DEFAULT_BUNDLE = Path("build/transformer-piece-by-piece.zip")


class Failure(Exception):
    """Ends a command with one sentence and exit status 2."""


# ------------------------------------------------------------------------------------------------------------ learners


@app.command()
def check(
    path: Annotated[Path, typer.Argument(help="A notebook, its folder, or a .py file.")],
    piece: Annotated[str | None, typer.Option(help="Check this piece only.")] = None,
    chapter: Annotated[str | None, typer.Option(help="Check this chapter only; by default the one in PATH.")] = None,
    seed: Annotated[int, typer.Option(help="Decides the random inputs.")] = 0,
    seconds: Annotated[float, typer.Option(help="Stop a call of a piece after this time.")] = 10.0,
    as_json: Annotated[bool, typer.Option("--json", help="Print the results as JSON.")] = False,
) -> None:
    """Run the hidden checks on your own pieces, in this process and without a sandbox.

    Exits with 0 when every check holds and with 1 when one does not.
    """
    from autograder import registry
    from autograder.runner import run_checks
    from autograder.student import LocalStudent
    from transformer_lab import pieces

    with _one_sentence(FileNotFoundError, ValueError):
        wanted = _which(registry, path, piece, chapter)
    with _one_sentence(FileNotFoundError, ValueError), _quiet(as_json):
        namespace = pieces.load(path)
    for error in namespace.cell_errors:
        err.print(f"[bold]A cell failed:[/] {escape(str(error))}", highlight=False, soft_wrap=True)
    if not wanted:
        wanted = [{"piece": name} for name in registry.pieces() if hasattr(namespace, name)]
        if not wanted:
            known = ", ".join(registry.pieces())
            raise Failure(f"{path} defines no piece that has checks. Pieces with checks: {known}.")
    student = LocalStudent(namespace, seconds=seconds, folder=path if path.is_dir() else path.parent)
    with _quiet(as_json):
        results = [result for which in wanted for result in run_checks(student, seed=seed, **which)]
    if as_json:
        print(json.dumps([result.as_dict() for result in results], indent=1, ensure_ascii=False))
    else:
        _print_results(results)
    raise typer.Exit(0 if all(result.passed for result in results) else 1)


def _which(registry, path: Path, piece: str | None, chapter: str | None) -> list[dict]:
    """The selections for run_checks that the options or the name of ``path`` ask for; [] means whatever is defined."""
    if piece or chapter:
        registry.checks(piece=piece, chapter=chapter)
        return [{"piece": piece, "chapter": chapter}]
    for name in (path.stem, path.resolve().parent.name):
        if name[:2].isdigit() and name[2:3] == "_" and registry.pieces(name):
            return [{"chapter": name}]
    return []


def _print_results(results) -> None:
    from autograder.registry import title

    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
    table.add_column("piece", style="bold", no_wrap=True)
    table.add_column("check", overflow="fold")
    table.add_column("points", justify="right", no_wrap=True)
    table.add_column("", no_wrap=True)
    before = None
    for result in results:
        name = result.piece if result.piece != before else ""
        before = result.piece
        mark = "[green]ok[/]" if result.passed else "[red]FAILED[/]"
        table.add_row(name, title(result.piece, result.check), f"{result.earned:g}/{result.points:g}", mark)
    out.print(table)
    failed = [result for result in results if not result.passed]
    for piece in dict.fromkeys(result.piece for result in results if result.message or result.notes or result.terms):
        ours = [result for result in failed if result.piece == piece]
        out.print(f"\n[bold]{piece}[/]")
        for term in (term for result in results if result.piece == piece for term in result.terms):
            out.print(f"  [yellow]Mind:[/] {escape(term)}", highlight=False, soft_wrap=True)
        for note in (note for result in results if result.piece == piece for note in result.notes):
            out.print(f"  [yellow]Noted:[/] {escape(note)}", highlight=False, soft_wrap=True)
        for hint in dict.fromkeys(result.diagnosis.hint for result in ours if result.diagnosis):
            out.print(f"  [yellow]Likely slip:[/] {escape(hint)}", highlight=False, soft_wrap=True)
        for message in dict.fromkeys(result.message for result in ours):
            out.print(f"  {escape(message)}", highlight=False, soft_wrap=True)
    earned, points = sum(r.earned for r in results), sum(r.points for r in results)
    out.print(
        f"\n[bold]{earned:g} of {points:g} points[/], {len(results) - len(failed)} of {len(results)} checks hold."
    )


# ---------------------------------------------------------------------------------------------------------- instructors


@app.command()
def release(
    solutions: Annotated[Path, typer.Option(help="The sources.")] = Path("solutions"),
    notebooks: Annotated[Path, typer.Option(help="Where the stubs go.")] = Path("notebooks"),
    course: CoursePath = Path("build/release"),
    overwrite: Annotated[bool, typer.Option(help="Also replace notebooks in which someone has worked.")] = False,
) -> None:
    """Make the learner's stubs from the sources, with nbgrader's generate-assignment."""
    from autograder import release as maker

    with _one_sentence(maker.ReleaseError, maker.LeakError, ValueError, FileNotFoundError), warnings.catch_warnings():
        warnings.simplefilter("always", maker.OwnWorkKept)
        warnings.showwarning = lambda message, *args, **kwargs: err.print(str(message), soft_wrap=True)
        changed = maker.build_stubs(solutions, notebooks, course, overwrite=overwrite)
    for path in changed:
        out.print(f"wrote {path}", highlight=False, soft_wrap=True)
    if not changed:
        out.print("All stubs are as the sources give them.")


@app.command()
def bundle(
    output: Annotated[Path, typer.Option("--output", "-o", help="The zip to write.")] = DEFAULT_BUNDLE,
    solutions: Annotated[Path, typer.Option(help="The sources.")] = Path("solutions"),
    course: CoursePath = Path("build/release"),
) -> None:
    """Make the zip for a class: fresh stubs, transformer_lab, and how to begin; nothing of grading."""
    from autograder import bundle as maker
    from autograder import release as stubs
    from autograder.markup import count

    with _one_sentence(stubs.ReleaseError, stubs.LeakError, ValueError, OSError), TemporaryDirectory() as folder:
        stubs.build_stubs(solutions, folder, course)
        files = maker.write_bundle(output, Path(folder), solutions)
    notebooks = count(sum(name.endswith(".ipynb") for name in files), "notebook")
    out.print(f"wrote {output}: {notebooks} and transformer_lab", highlight=False, soft_wrap=True)


@app.command("course")
def lay_out_course(
    course: Annotated[Path, typer.Argument(help="The course folder to make or to bring up to date.")] = DEFAULT_COURSE,
    solutions: Annotated[Path, typer.Option(help="The sources.")] = Path("solutions"),
    samples: Annotated[bool, typer.Option(help="Also hand in the sample submissions.")] = False,
) -> None:
    """Lay out an nbgrader course: sources, releases and gradebook; nbgrader's own commands work in it."""
    from autograder import release as maker
    from autograder import seeds

    with _one_sentence(maker.ReleaseError, maker.LeakError, ValueError, FileNotFoundError, OSError):
        names = maker.write_source_course(course, solutions)
        for name in names:
            if _outdated(course, name):
                maker.generate_assignment(course, name)
        seeds.course_key(course)
        if samples:
            from autograder.samples import write

            write(course, Path("notebooks"))
    out.print(f"{course}: {', '.join(names)}", highlight=False, soft_wrap=True)


def _outdated(course: Path, name: str) -> bool:
    from autograder.course import Course, CourseError

    made = Course(course)
    try:
        made.graded_base(name)
    except CourseError:
        return True
    source, released = made.source(name), made.released(name)
    return source.stat().st_mtime > released.stat().st_mtime or not (course / "gradebook.db").exists()


@app.command()
def grade(
    assignments: Annotated[list[str] | None, typer.Argument(help="Which assignments; by default all of them.")] = None,
    course: CoursePath = DEFAULT_COURSE,
    student: Annotated[list[str] | None, typer.Option(help="Grade this student only (may be repeated).")] = None,
    workers: Annotated[int | None, typer.Option(min=1, help="Notebooks at once; by default one per processor.")] = None,
    sandbox: Annotated[
        str, typer.Option(help="bubblewrap, or none: only for notebooks that you trust.")
    ] = "bubblewrap",
    cell_seconds: Annotated[float, typer.Option(min=1, help="Time limit of a cell.")] = 60.0,
    notebook_seconds: Annotated[float, typer.Option(min=1, help="Time limit of a notebook.")] = 600.0,
    memory: Annotated[float, typer.Option(min=1, help="Memory limit of a notebook in GiB.")] = 4.0,
    builtin_costs: Annotated[
        float | None,
        typer.Option(
            min=0,
            max=1,
            help="The share of a piece's points that using the built-in which it re-creates costs; by default what "
            "c.Judge.builtin_costs in nbgrader_config.py says, which is 0.",
        ),
    ] = None,
    force: Annotated[bool, typer.Option(help="Grade again what has not changed.")] = False,
    accept_unenforced: Annotated[
        bool,
        typer.Option(
            "--accept-unenforced",
            envvar="AUTOGRADER_ACCEPT_UNENFORCED",
            help="Grade although this host can't enforce a limit; which one is said.",
        ),
    ] = False,
    yes: Annotated[
        bool, typer.Option("--yes", "-y", help="Change points that were given before for the same answers, unasked.")
    ] = False,
) -> None:
    """Grade submissions: submitted/<student>/<assignment>/<assignment>.ipynb in the course folder.

    Writes scores and comments to the gradebook, a feedback page per submission, and the class report. Ended at any moment,
    the same command goes on from there. Where the checks have changed since, it says who gains and who loses and asks
    before it writes; where nobody can be asked and --yes is not given, the old points stay and the exit status is 3.
    Exits with 1 when a submission could not be graded because of an error of the grader.
    """
    from autograder import pool

    if sandbox not in ("bubblewrap", "none"):
        raise Failure(f"--sandbox is bubblewrap or none, not {sandbox}.")
    pool.begin(sandboxed=sandbox == "bubblewrap")
    from autograder.course import Course, CourseError

    # What is wrong with the folder is said before what takes seconds to load.
    place = Course(course.resolve())
    with _one_sentence(CourseError, ValueError, OSError):
        for sentence in place.passed_over():
            err.print(f"[yellow]Note:[/] {escape(sentence)}", highlight=False, soft_wrap=True)
        names = assignments or [name for name in place.assignments() if place.submissions(name)]
        if not names:
            raise CourseError(f"{course} holds no submission: they go to submitted/<student>/<assignment>/ in it.")
        for name in names:
            place.graded_base(name)
        if builtin_costs is None:
            builtin_costs = settings.builtin_costs(place.root)
    from autograder import feedback, report
    from autograder import grade as engine
    from autograder.sandbox import Limits, SandboxError, unenforced_limits

    gc.freeze()  # what is loaded stays: the collections of a long run needn't go through it
    limits = Limits(cell_seconds=cell_seconds, notebook_seconds=notebook_seconds, memory_bytes=int(memory * 2**30))
    if sandbox == "none":
        err.print("[bold red]No sandbox:[/] learners' code runs as you, with your files and your network.")
    else:
        for sentence in unenforced_limits():
            err.print(f"[yellow]Note:[/] {escape(sentence)}", highlight=False, soft_wrap=True)
    records, kept, regraded = [], [], {}
    workers = workers or os.cpu_count() or 1
    made = pool.processes(limits.file_bytes if sandbox != "none" else None)
    with _one_sentence(CourseError, SandboxError, ValueError, OSError), pool.kept(made, workers) as executor:
        for name in names:
            with _progress(name) as (bar, progress):

                def accept(changes, name=name, bar=bar):
                    bar.stop()
                    _print_changes(name, changes)
                    page = report.write_changes(place.root, name, changes, written=False)
                    out.print(f"The same as a page: {_short(page)}", highlight=False, soft_wrap=True)
                    if not (yes or _asked("Write these points?")):
                        kept.append(name)
                        return False
                    regraded[name] = changes
                    return True

                graded = engine.grade(
                    place,
                    name,
                    students=student,
                    workers=workers,
                    sandboxed=sandbox != "none",
                    limits=limits,
                    builtin_costs=builtin_costs,
                    force=force,
                    executor=executor,
                    accept_unenforced=accept_unenforced,
                    progress=progress,
                )
            _write_feedback(feedback, place, name, graded, executor(workers))
            _print_class(name, graded)
            records += graded
        for name, changes in regraded.items():
            report.write_changes(place.root, name, changes, written=True)
        page = report.write_report(place.root)
    out.print(f"\nFeedback: {_short(place.root / 'feedback')}/<student>/<assignment>/<assignment>.html")
    out.print(f"Class report: {_short(page)}")
    out.print(f"Gradebook: {_short(place.root / 'gradebook.db')}")
    failed = [record for record in records if record["status"] == engine.FAILED]
    for record in failed:
        err.print(f"[red]{escape(record['student'])}[/]: {escape(' '.join(record['remarks']))}")
    for name in kept:
        err.print(
            f"{name}: the old points stay. They change with `autograder grade {name} --yes`, without new judging."
        )
    raise typer.Exit(1 if failed else 3 if kept else 0)


@app.command("sandbox")
def sandbox_works() -> None:
    """Say whether learners' code can be run in a sandbox here; exits with 1 when it cannot."""
    from autograder.sandbox import unenforced_limits, why_unavailable

    reason = why_unavailable()
    if reason:
        err.print(f"[bold red]No sandbox here.[/] {escape(reason)}", highlight=False, soft_wrap=True)
        raise typer.Exit(1)
    out.print("The sandbox works.")
    for sentence in unenforced_limits():
        err.print(f"[yellow]Note:[/] {escape(sentence)}", highlight=False, soft_wrap=True)


def _write_feedback(feedback, place, assignment: str, records: list[dict], workers) -> None:
    """Pages of all submissions; those that are newer than everything that they show stay as they are."""
    gradebook, code = place.root / "gradebook.db", Path(feedback.__file__).parent
    newest = max(path.stat().st_mtime for path in (gradebook, code / "feedback.py", *(code / "templates").iterdir()))
    pages = {r["student"]: place.root / "feedback" / r["student"] / assignment / f"{assignment}.html" for r in records}
    old = [student for student, page in pages.items() if not page.exists() or page.stat().st_mtime < newest]
    entries = feedback.gradebook_entries(gradebook, assignment, old)
    written = [workers.submit(feedback.write_page, place, assignment, student, entry) for student, entry in entries]
    for page in written:
        page.result()


def _print_changes(assignment: str, changes: list) -> None:
    """Who gains and who loses by judging the same answers again."""
    table = Table(title=f"{assignment}: judged again", box=box.SIMPLE_HEAD, title_justify="left", title_style="bold")
    for column, justify in (("student", "left"), ("change", "right"), ("pieces", "left")):
        table.add_column(column, justify=justify)  # type: ignore[arg-type]
    for change in changes:
        pieces = (f"{piece} {change.before[piece]:g} → {change.after[piece]:g}" for piece in change.before)
        table.add_row(escape(change.student), f"{change.difference:+g}", ", ".join(pieces))
    out.print(table)
    gain, lose = (sum(sign * change.difference > 0 for change in changes) for sign in (1, -1))
    out.print(f"The checks or their settings have changed: {gain} would gain points, {lose} would lose some.")


def _asked(question: str) -> bool:
    """The answer of whoever sits at the terminal; no where nobody does."""
    return sys.stdin.isatty() and typer.confirm(question, err=True)


def _print_class(assignment: str, records: list[dict]) -> None:
    from autograder.report import told
    from autograder.weights import alike

    table = Table(title=assignment, box=box.SIMPLE_HEAD, title_justify="left", title_style="bold", pad_edge=False)
    table.add_column("student", no_wrap=True)
    pieces = list(dict.fromkeys(result["piece"] for record in records for result in record["results"]))
    for piece in pieces:
        table.add_column(piece, justify="right", max_width=14, overflow="ellipsis", no_wrap=True)
    table.add_column("score", justify="right", no_wrap=True)
    table.add_column("remark", overflow="fold", ratio=1)
    for record in records:
        earned = {p: sum(r["earned"] for r in record["results"] if r["piece"] == p) for p in pieces}
        cells = [f"{earned[p]:g}" if record["results"] else "–" for p in pieces]
        score = "–" if record["score"] is None else f"{record['score']:g}/{record['max_score']:g}"
        table.add_row(escape(record["student"]), *cells, score, escape("; ".join(told(record))))
    out.print(table)
    for group in alike(records):
        what = f"The same {group.file}" + ", or nearly," * group.near
        out.print(f"{what} from {escape(', '.join(group.students))}.", highlight=False, soft_wrap=True)


# --------------------------------------------------------------------------------------------------------------- parts


@contextlib.contextmanager
def _progress(title: str):
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=err, transient=not err.is_terminal) as bar:
        task = bar.add_task(title, total=None)
        yield bar, lambda done, total: bar.update(task, completed=done, total=total)


@contextlib.contextmanager
def _one_sentence(*errors: type[BaseException]):
    try:
        yield
    except errors as error:
        raise Failure(str(error)) from error


@contextlib.contextmanager
def _quiet(silent: bool):
    """Keep what a learner's cells print out of JSON."""
    if not silent:
        yield
        return
    with open(os.devnull, "w") as nowhere, contextlib.redirect_stdout(nowhere):
        yield


def _short(path: Path) -> str:
    with contextlib.suppress(ValueError):
        return str(path.relative_to(Path.cwd()))
    return str(path)


def main() -> None:
    """Entry point: a failure is one sentence on stderr and exit status 2."""
    quick_start.leave_out_unused()
    # nbgrader starts `alembic` by name: it stands beside this Python, which need not be on PATH.
    os.environ["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    try:
        app(standalone_mode=True)
    except Failure as failure:
        err.print(f"[bold red]autograder:[/] {escape(str(failure))}", highlight=False, soft_wrap=True)
        sys.exit(2)
    except KeyboardInterrupt:
        err.print("Interrupted: what is graded so far is kept; the same command goes on from there.")
        sys.exit(130)


if __name__ == "__main__":
    main()
