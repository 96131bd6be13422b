"""Judge many submissions at once, by any executor of ``concurrent.futures``.

By default these are processes of this machine, each with its own warm sandbox. Whatever else keeps to
``concurrent.futures.Executor`` can take their place: the executors of Dask, of mpi4py or of a batch system, where the
workers see the course folder by the same path.

This module imports nothing heavy: a worker starts its sandbox first and loads PyTorch while that warms up.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import multiprocessing
import os
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar

T = TypeVar("T")

#: Makes an executor for so many workers.
ExecutorFactory = Callable[[int], concurrent.futures.Executor]

#: A submission is handed to the executor before a worker is free for it, so that none waits: so many for each worker.
AHEAD = 2


def run(
    function: Callable[[T], Any], tasks: Iterable[T], workers: int, executor: ExecutorFactory
) -> Iterator[tuple[T, Any]]:
    """``(task, outcome)`` as they are done; the outcome is what ``function(task)`` gives, or the exception that it ends with.

    Only a few tasks and outcomes are held at a time. A pool that breaks because one of its processes died is made anew, and
    the tasks that it held are tried again, one at a time, so that only the one at fault ends with the exception.
    """
    waiting, suspects = deque(tasks), deque[T]()
    running: dict[concurrent.futures.Future, tuple[T, bool]] = {}
    pool = executor(workers)
    try:
        while waiting or suspects or running:
            broken = False
            while waiting or suspects:
                alone = bool(suspects) or any(again for _, again in running.values())
                if len(running) >= (1 if alone else AHEAD * workers):
                    break
                queue, again = (suspects, True) if suspects else (waiting, False)
                try:
                    future = pool.submit(function, queue[0])
                except concurrent.futures.BrokenExecutor:
                    broken = True
                    break
                running[future] = queue.popleft(), again
            done = concurrent.futures.wait(running, return_when=concurrent.futures.FIRST_COMPLETED).done
            for future in done:
                task, again = running.pop(future)
                error = future.exception()
                if isinstance(error, concurrent.futures.BrokenExecutor):
                    broken = True
                    if not again:
                        suspects.append(task)
                        continue
                yield task, future.result() if error is None else error
            if broken:
                suspects.extend(task for task, _ in running.values())
                running.clear()
                pool.shutdown(wait=False, cancel_futures=True)
                pool = executor(workers)
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def processes(file_bytes: int | None) -> ExecutorFactory:
    """Processes of this machine. ``file_bytes`` is the limit of the sandbox that each warms up; None: there is none."""

    def make(workers: int) -> concurrent.futures.Executor:
        context = multiprocessing.get_context("spawn")
        return concurrent.futures.ProcessPoolExecutor(workers, context, initializer=_begin, initargs=(file_bytes,))

    return make


def _begin(file_bytes: int | None) -> None:
    """What a worker does before its first task."""
    threading.Thread(target=_end_with_parent, daemon=True).start()
    if file_bytes is not None:
        from autograder import enclosure, parent

        way = enclosure.way_inside()
        if way is not None and way.inner:
            with contextlib.suppress(enclosure.SandboxError):  # the first kernel will say it better
                parent.warm(way, (), file_bytes)
    from autograder import registry

    registry.checks()


def _end_with_parent() -> None:
    """A worker of a grader that was killed ends too, and its sandbox with it: it would wait for ever for a task."""
    grader = multiprocessing.parent_process()
    if grader is not None:
        grader.join()
        os._exit(1)
