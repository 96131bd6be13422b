"""A warm parent of kernels in bubblewrap: it has PyTorch and IPython loaded, and a kernel is a fork of it.

Starting a kernel from a warm parent takes a fraction of the seconds that ``import torch`` takes. The parent runs no
learner's code and holds no secret; what separates its kernels from each other is in ``kernel_main.py``.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import re
import select
import signal
import socket
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

from autograder import enclosure
from autograder.enclosure import KERNEL_MAIN, RunDirectory, SandboxError, Way

#: What a warm parent must import, and with it PyTorch: without, no piece can be judged.
NEEDED = ("transformer_lab.driver",)

#: What it imports besides, where it is there: whatever nearly every notebook needs, as long as importing it computes
#: nothing. After a colon, a function to call: the table of PyTorch's functions, in which a piece's calls are looked up.
PRELOAD = (
    *("torch.nn.functional", "transformer_lab.builtin"),
    *("IPython.core.completer", "IPython.core.interactiveshell", "matplotlib_inline", "zmq.eventloop.zmqstream"),
    *("IPython.core.completerlib", "IPython.core.debugger", "IPython.core.logger", "IPython.core.oinspect"),
    *("IPython.extensions.storemagic", "IPython.utils.wildcard", "encodings.utf_16_be", "faulthandler", "pdb"),
    # The third is what PyTorch's own encoder imports when it is first called, and with it half a thousand modules.
    *(
        "torch.overrides:get_overridable_functions",
        "numpy.random",
        "torch.fx.experimental.symbolic_shapes",
        "secrets",
        "tornado.platform.asyncio",
    ),
    *("matplotlib.figure", "matplotlib.backends.backend_agg", "matplotlib.font_manager", "matplotlib.colorbar"),
)

_STDERR_BYTES = 1 << 16


def memory_file(name: str) -> int:
    """A descriptor of a file in memory that can't grow: for what a process says at last.

    Not a pipe, since a full one would stop the process, nor a file, which could fill a disk.
    """
    descriptor = os.memfd_create(name, os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    os.ftruncate(descriptor, _STDERR_BYTES)
    fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, fcntl.F_SEAL_GROW | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_SEAL)
    return descriptor


def text_of(descriptor: int) -> str:
    """What has been written to a :func:`memory_file`."""
    return os.pread(descriptor, _STDERR_BYTES, 0).rstrip(b"\0").decode(errors="replace").strip()


class Process:
    """A process of a sandbox by its handle, with the few methods of ``subprocess.Popen`` that jupyter_client calls."""

    stdin = stdout = stderr = None

    def __init__(self, handle: int):
        self._handle = handle
        # Not at the interpreter's end, where others still ask for the process: the system closes it then.
        weakref.finalize(self, os.close, handle).atexit = False
        self.pid = _number_of(handle)

    def poll(self) -> int | None:
        """None while it runs. How it ended is known to its parent alone, which is in the sandbox."""
        return 1 if select.select([self._handle], [], [], 0)[0] else None

    def wait(self, timeout: float | None = None) -> int:
        if not select.select([self._handle], [], [], timeout)[0]:
            raise subprocess.TimeoutExpired("kernel", timeout or 0)
        return 1

    def send_signal(self, number: int) -> None:
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(self._handle, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    terminate = kill


def _number_of(handle: int) -> int:
    """The process number, as this process sees it, behind a handle that came from another namespace."""
    found = re.search(r"^Pid:\s*(-?\d+)$", Path(f"/proc/self/fdinfo/{handle}").read_text(), re.MULTILINE)
    return int(found.group(1)) if found else -1


class Parent:
    """A process in bubblewrap that makes kernels.

    It ends when the *thread* that started it ends, and all kernels with it: the operating system counts that thread as
    the sandbox's parent.

    Parameters
    ----------
    way
        How its kernels are cut off.
    hidden
        Folders that must not be seen.
    needed, preload
        Modules to import, and those of which some may be missing.
    file_bytes
        Size of the temporary file systems, as far as kernels don't get their own.
    """

    def __init__(
        self,
        way: Way,
        hidden: Iterable[Path],
        file_bytes: int,
        needed: Iterable[str] = (),
        preload: Iterable[str] = (),
    ):
        self.way, self.hidden = way, tuple(hidden)
        self._lock = threading.Lock()
        run, self._stderr = RunDirectory(), memory_file("stderr")
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        info, told = os.pipe2(os.O_CLOEXEC)
        arguments = os.memfd_create("bwrap-args", os.MFD_CLOEXEC)
        try:
            run.show()
            words, kept = enclosure.bwrap_arguments(way, run.path, hidden, file_bytes)
            # By descriptor and not on the command line, which the sandboxed processes can read.
            os.write(arguments, b"".join(os.fsencode(word) + b"\0" for word in words))
            os.lseek(arguments, 0, os.SEEK_SET)
            modules = {"needed": list(needed), "preload": list(preload)}
            plan = {"control": theirs.fileno(), "way": asdict(way), "kept": kept, **modules}
            command = [sys.executable, str(run.path / KERNEL_MAIN.name), json.dumps(plan)]
            self._process = subprocess.Popen(
                [enclosure._bwrap(), "--args", str(arguments), "--info-fd", str(told), "--", *command],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=self._stderr,
                pass_fds=(theirs.fileno(), told, arguments),
                # bwrap's first process inside keeps the environment that bwrap was started with, readable in /proc.
                env={"PATH": "/usr/bin:/bin"},
                cwd="/",
                **enclosure.as_user(way),
            )
        except BaseException:
            ours.close()
            os.close(info)
            os.close(self._stderr)
            run.remove()
            raise
        finally:
            theirs.close()
            os.close(told)
            os.close(arguments)
        self._first = _first_process(info)
        self._control = ours
        self._ready = False
        self.close = weakref.finalize(self, _close, self._process, self._first, ours, self._stderr, run, os.getpid())

    def lend(self) -> Lent:
        """What another process of this grader needs to make kernels of this parent, given to it as it is started."""
        return Lent(self.way, self.hidden, Path.cwd(), RunDirectory.base(), self._control)

    def is_alive(self) -> bool:
        return self.close.alive and self._process.poll() is None

    def stderr_text(self) -> str:
        """What the parent itself wrote to its real stderr."""
        return text_of(self._stderr) if self.close.alive else ""

    def start(self, plan: dict, stderr: int, listeners: list[int], seconds: float) -> tuple[Process, socket.socket]:
        """Make a kernel that waits to be let go: its first process, and the socket on which to send ``go``.

        Raises
        ------
        SandboxError
            The parent or the kernel died, or made no kernel in time.
        """
        deadline = time.monotonic() + seconds
        with self._lock:
            if not self._ready:
                self._expect(self._control, deadline, seconds, self._stderr)
                self._ready = True
            ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            request = os.memfd_create("plan", os.MFD_CLOEXEC)
            try:
                os.write(request, json.dumps(plan).encode())
                socket.send_fds(self._control, [b"kernel"], [request, stderr, theirs.fileno(), *listeners])
                theirs.close()
                handles = self._expect(ours, deadline, seconds, stderr)
                return Process(handles[0]), ours
            except OSError as error:
                raise SandboxError(f"The sandbox died: {error}. {_last(self.stderr_text())}") from error
            except BaseException:
                ours.close()
                raise
            finally:
                theirs.close()
                os.close(request)

    def _expect(self, channel: socket.socket, deadline: float, seconds: float, stderr: int) -> list[int]:
        """The descriptors of the next message."""
        while True:
            left = deadline - time.monotonic()
            if left <= 0:
                raise SandboxError(
                    f"The kernel gave no answer in {seconds:g} seconds: the machine is too busy or too slow, so give it "
                    f"more time or fewer kernels at once. {_last(text_of(stderr))}"
                )
            if not select.select([channel], [], [], min(left, 1))[0]:
                continue
            try:
                message, descriptors, _, _ = socket.recv_fds(channel, 16, 4, socket.MSG_CMSG_CLOEXEC)
            except OSError:
                message, descriptors = b"", []
            if message in (b"ready", b"process"):
                return descriptors
            raise SandboxError(f"The kernel died while it started. {_last(text_of(stderr))}")


@dataclass(frozen=True)
class Lent:
    """A parent of another process, with what must be the same here for its kernels to be the ones that are asked for.

    It travels only with a process that is being started: ``control`` is a descriptor.
    """

    way: Way
    hidden: tuple[Path, ...]
    folder: Path
    base: str
    control: socket.socket


class Borrowed(Parent):
    """A parent that another process has started and that ends with that process."""

    def __init__(self, lent: Lent):
        self.lent, self.way, self.hidden = lent, lent.way, lent.hidden
        self._lock, self._control, self._ready = threading.Lock(), lent.control, True

    def fits(self, way: Way, hidden: tuple[Path, ...]) -> bool:
        """Whether its kernels are those that one started here would make."""
        lent = self.lent
        wanted = (way, hidden, Path.cwd(), RunDirectory.base())
        return self.is_alive() and (lent.way, lent.hidden, lent.folder, lent.base) == wanted

    def is_alive(self) -> bool:
        poll = select.poll()
        poll.register(self._control, 0)  # whether the other side is gone is told unasked
        return not poll.poll(0)

    def stderr_text(self) -> str:
        return ""


def _last(text: str) -> str:
    lines = text.splitlines()
    return f"Its last words: {lines[-1]}" if lines else "It said nothing."


def _first_process(info: int) -> int | None:
    """A handle on bwrap's first process inside, from what it tells of itself; None: it has failed."""
    told = b""
    try:
        while b"}" not in told and (part := os.read(info, 4096)):
            told += part
    finally:
        os.close(info)
    with contextlib.suppress(ProcessLookupError, ValueError):
        return os.pidfd_open(json.loads(told)["child-pid"])
    return None


def _close(process, first: int | None, control: socket.socket, stderr: int, run: RunDirectory, owner: int) -> None:
    """Kill the first process of the sandbox, and return when the system has ended all others with it."""
    control.close()
    if os.getpid() != owner:  # a forked worker of the grader must leave its parent's sandboxes alone
        return
    if first is not None:
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(first, signal.SIGKILL)
        # Readable when it and with it all others have ended; bwrap itself may end before.
        select.select([first], [], [], 10)
        os.close(first)
    process.kill()  # does nothing to a process that has ended
    process.wait()
    os.close(stderr)
    run.remove()


_warm: dict[tuple, Parent] = {}
_warming = threading.Lock()
_borrowed: list[Borrowed] = []


def borrow(lent: Lent) -> None:
    """Let :func:`warm` give this parent of another process, where it fits and as long as it lives."""
    _borrowed[:] = [Borrowed(lent)]


def warm(way: Way, hidden: Iterable[Path], file_bytes: int, renew: bool = False) -> Parent:
    """The warm parent of this process and thread for these hidden folders, started where there is none yet.

    ``renew`` ends the one that is there, with all its kernels, and starts another.
    """
    hidden = tuple(sorted(Path(folder).resolve() for folder in hidden))
    key = (os.getpid(), threading.get_ident(), way, hidden, Path.cwd(), RunDirectory.base())
    with _warming:
        for borrowed in _borrowed:
            if borrowed.fits(way, hidden):
                return borrowed
        for other, old in list(_warm.items()):
            if other[0] != os.getpid() or not old.is_alive() or (renew and other == key):
                del _warm[other]
                old.close()
        if key not in _warm:
            _warm[key] = Parent(way, hidden, file_bytes, NEEDED, PRELOAD)
        return _warm[key]
