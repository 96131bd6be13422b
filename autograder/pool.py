"""Judge many submissions at once, by any executor of ``concurrent.futures``.

By default these are processes of this machine, forks of one that has PyTorch loaded, and they share one warm sandbox.
Whatever else keeps to ``concurrent.futures.Executor`` can take their place: the executors of Dask, of mpi4py or of a batch
system, where the workers see the course folder by the same path.

This module imports nothing heavy: sandbox and workers load PyTorch while the grader still reads its course.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import multiprocessing
import os
import tempfile
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, TypeVar

from autograder import enclosure, parent, quick_start

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
                pool.shutdown(wait=False)
                pool = executor(workers)
    finally:
        for future in running:  # one by one: not every executor knows ``cancel_futures``
            future.cancel()
        pool.shutdown(wait=True)


def processes(file_bytes: int | None) -> ExecutorFactory:
    """Processes of this machine. ``file_bytes`` is the limit of the sandbox that they share; None: there is none.

    They share one warm sandbox, which this process and thread keeps. Where a process of theirs dies, a kernel of its may
    have lost its master: the new pool gets a new sandbox, and all kernels of the old one end with it.
    """
    made = 0
    folder = tempfile.TemporaryDirectory(prefix="autograder-")  # removed when the factory is forgotten

    def make(workers: int) -> concurrent.futures.Executor:
        nonlocal made
        made += 1
        shared = None if file_bytes is None else _sandbox(file_bytes, renew=made > 1)
        return concurrent.futures.ProcessPoolExecutor(
            workers, quick_start.context(), initializer=_begin, initargs=(shared, folder.name)
        )

    return make


@contextlib.contextmanager
def kept(executor: ExecutorFactory, workers: int) -> Iterator[ExecutorFactory]:
    """The same ``workers`` for several runs, one after the other; they end with the ``with`` block, or where they break."""
    living: list[concurrent.futures.Executor] = []

    def make(_: int) -> concurrent.futures.Executor:
        if not living:
            living.append(executor(workers))
        return _Kept(living)

    try:
        yield make
    finally:
        for pool in living:
            pool.shutdown(wait=True)


class _Kept(concurrent.futures.Executor):
    """An executor whose end is put off, unless it is given up (``wait=False``)."""

    def __init__(self, living: list[concurrent.futures.Executor]):
        self._living, self._pool = living, living[0]
        self._given: list[concurrent.futures.Future] = []

    def submit(self, function: Callable[..., T], /, *args: Any, **kwargs: Any) -> concurrent.futures.Future[T]:
        future = self._pool.submit(function, *args, **kwargs)
        self._given = [other for other in self._given if not other.done()] + [future]
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        if cancel_futures:
            for future in self._given:
                future.cancel()
        if wait:
            concurrent.futures.wait(self._given)
        else:
            self._living.clear()
            self._pool.shutdown(wait=False)


def _sandbox(file_bytes: int, renew: bool = False) -> parent.Lent | None:
    """The warm sandbox of this process and thread, to be lent to the workers; None where each kernel needs one of its own."""
    way = enclosure.way_inside()
    if way is None or not way.inner:
        return None
    with contextlib.suppress(enclosure.SandboxError):  # the first kernel will say it better
        return parent.warm(way, (), file_bytes, renew=renew).lend()
    return None


def begin(sandboxed: bool = True) -> None:
    """Let the sandbox and the workers begin to load what they need, beside what this process has still to do."""
    quick_start.begin()
    if sandboxed:
        _sandbox(enclosure.FILE_BYTES)


def _begin(shared: parent.Lent | None, folder: str) -> None:
    """What a worker does before its first task. ``folder`` is one that the workers share."""
    threading.Thread(target=_end_with_parent, daemon=True).start()
    if shared is not None:
        parent.borrow(shared)
    from autograder import diagnose, loaded  # noqa: F401 - here already where workers are forks

    diagnose.share(Path(folder))


def _end_with_parent() -> None:
    """A worker of a grader that was killed ends too, and its sandbox with it: it would wait for ever for a task."""
    grader = multiprocessing.parent_process()
    if grader is not None:
        grader.join()
        os._exit(1)
