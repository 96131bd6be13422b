"""A learner's kernel in a sandbox of its own.

    with sandbox.start(Limits(), sandboxed=True) as kernel:
        kernel.client.execute("1 + 1")

There are two walls. The outer one is bubblewrap (``enclosure.py``): no network, a read-only system, no view of the course,
of other submissions or of the grader. In it waits a warm parent (``parent.py``) that has PyTorch and IPython loaded and
forks once for each kernel; the fork goes behind the inner wall (``kernel_main.py``) before anything of a learner's runs:
user, process, mount, network, host name and inter-process namespaces of its own, no capability, and a private, bounded
``/tmp``. Memory and processes are bounded by control groups (``cgroups.py``), for root as well.

Jupyter's messages travel over Unix sockets. The grader binds them and the kernel inherits them, so that no folder of the
host is writable in the sandbox. What arrives on them is a learner's, and is measured before it is looked at.

Three layers, each usable alone: :class:`BubblewrapProvisioner` starts a kernel, :class:`SandboxKernelManager` is a
``jupyter_client`` manager that uses it (with nbclient: ``NotebookClient(nb, km=kernel.manager)``), and :func:`start` gives
a ready :class:`Kernel`.
"""

from __future__ import annotations

import contextlib
import json
import os
import platform
import re
import signal
import socket
import subprocess
import sys
import time
import weakref
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from queue import Empty
from typing import Any, TypeVar

import zmq
from jupyter_client.asynchronous import AsyncKernelClient
from jupyter_client.blocking import BlockingKernelClient
from jupyter_client.client import KernelClient
from jupyter_client.kernelspec import KernelSpec
from jupyter_client.manager import KernelManager
from jupyter_client.provisioning import LocalProvisioner
from jupyter_client.session import Session, json_unpacker
from jupyter_core.utils import run_sync
from traitlets import Bool, Instance

from autograder import cgroups, enclosure, parent
from autograder.enclosure import HOME, KERNEL_MAIN, WORK, RunDirectory, SandboxError, why_unavailable
from autograder.parent import Parent

__all__ = [
    "BubblewrapProvisioner",
    "Kernel",
    "Limits",
    "SandboxError",
    "SandboxKernelManager",
    "require",
    "start",
    "unenforced_limits",
    "why_unavailable",
]

Client = TypeVar("Client", bound=KernelClient)

PROVISIONER = "bubblewrap-provisioner"

#: The kernel's connection file, inside.
CONNECTION = "/tmp/connection.json"

#: A message of a kernel's may have this many bytes, and this many may wait to be read. A larger one is never received.
MAX_MESSAGE_BYTES, MAX_MESSAGES = 16_000_000, 32

#: JSON that is nested deeper than this is no message.
MAX_MESSAGE_DEPTH = 60

#: Set to 1, it accepts what this host can't enforce (:func:`require`), as the option of the command line does.
ACCEPT = "AUTOGRADER_ACCEPT_UNENFORCED"


@dataclass(frozen=True)
class Limits:
    """What one learner's notebook may use.

    Seconds of a cell and bytes of output are for the judge to watch; the rest is set on the kernel before any learner's
    code runs, and :func:`unenforced_limits` says what this host can't enforce.

    cell_seconds, notebook_seconds
        Time by the clock. ``notebook_seconds`` is also each process's limit of processor time.
    memory_bytes
        Memory of all processes together, files in memory included, where the host has control groups: the system ends
        what asks for more. A single process gets a ``MemoryError`` at seven eighths of it, counted as address space beyond
        what it started with; a fresh kernel needs about 0.6 GB of that for PyTorch.
    file_bytes
        Size of a file, and of each of the two temporary file systems (/tmp and /dev/shm).
    processes
        Processes and threads.
    output_bytes
        What the cells of a notebook may print.
    """

    cell_seconds: float = 60
    notebook_seconds: float = 600
    memory_bytes: int = 4 << 30
    file_bytes: int = 256 << 20
    processes: int = 128
    output_bytes: int = 1_000_000


def start(
    limits: Limits | None = None,
    *,
    sandboxed: bool = True,
    hidden: Iterable[Path] = (),
    startup_seconds: float = 180,
    warm: bool = True,
) -> Kernel:
    """Start a kernel and wait until it answers.

    The kernel ends when the *thread* that started it ends: the operating system counts it as the sandbox's parent.

    Parameters
    ----------
    limits
        What the kernel may use; by default ``Limits()``.
    sandboxed
        False starts the same kernel as an ordinary process in a temporary folder, with a clean environment and the
        same resource limits, but with no isolation at all.
    hidden
        Folders that must be invisible even if they lie inside something that the sandbox sees (the system, the Python
        installation). The course and the working directory always are.
    startup_seconds
        How long to wait for the kernel.
    warm
        Fork the kernel from a parent that has PyTorch loaded, which this process and thread keeps for the next kernels.
        False starts a fresh one, for what can't be forked, such as work on a GPU.

    Raises
    ------
    SandboxError
        There is no sandbox here (:func:`why_unavailable` says why), or the kernel died or did not answer in time.
    """
    kernel = Kernel(limits or Limits(), sandboxed=sandboxed, hidden=hidden, warm=warm)
    try:
        kernel._start(startup_seconds)
    except BaseException:
        kernel.close()
        raise
    return kernel


class Kernel:
    """A running kernel, made by :func:`start`; leaving the ``with`` block ends it and everything that it started.

    ``manager`` is its kernel manager and ``client`` a blocking client with started channels. ``manager.client()`` makes
    further clients, asynchronous ones as nbclient needs them.
    """

    def __init__(self, limits: Limits, *, sandboxed: bool, hidden: Iterable[Path] = (), warm: bool = True):
        self.limits = limits
        self.sandboxed = sandboxed
        self.manager = SandboxKernelManager(limits=limits, sandboxed=sandboxed, warm=warm)
        self.manager.hidden = tuple(hidden)
        self._client: BlockingKernelClient | None = None
        # Also when it is forgotten: the garbage collector waits for ever for ZeroMQ sockets that are left open.
        self._close = weakref.finalize(self, _close_manager, self.manager, os.getpid())

    @property
    def client(self) -> BlockingKernelClient:
        """The blocking client of this kernel, its channels started.

        Ask its channels, as in ``client.iopub_channel.get_msg(timeout=…)``: ``client.get_iopub_msg(timeout=…)`` goes through an
        event loop to the same function, which takes nearly as long again.
        """
        if self._client is None:
            raise SandboxError("This kernel is not running.")
        return self._client

    def _start(self, startup_seconds: float) -> None:
        deadline = time.monotonic() + startup_seconds
        self.manager.startup_seconds = startup_seconds
        self.manager.start_kernel()
        self._client = client = self.manager.connect(BlockingKernelClient)
        client.allow_stdin = False  # input() raises in the cell at once instead of waiting for nobody
        client.start_channels(stdin=False, hb=False)
        while not self._answers(deadline):
            if not self.is_alive():
                raise SandboxError(f"The kernel died while it started. {self._last_words()}")
            if time.monotonic() > deadline:
                raise SandboxError(
                    f"The kernel gave no answer in {startup_seconds:g} seconds: the machine is too busy or too slow, "
                    f"so give it more time or fewer kernels at once. {self._last_words()}"
                )

    def _last_words(self) -> str:
        lines = self.manager.kernel_stderr().splitlines()
        return f"Its last words: {lines[-1]}" if lines else "It said nothing."

    def _answers(self, deadline: float) -> bool:
        """Whether a request is answered on both channels: the first output must not be lost to a late subscription."""
        request = self.client.kernel_info()
        answered = False
        while not answered:
            if time.monotonic() > deadline or not self.is_alive():
                return False
            with contextlib.suppress(Empty):
                answered = self.client.shell_channel.get_msg(timeout=0.25)["parent_header"].get("msg_id") == request
        with contextlib.suppress(Empty):
            while self.is_alive():
                message = self.client.iopub_channel.get_msg(timeout=0.5)
                ours = message["parent_header"].get("msg_id") == request
                if ours and message["content"].get("execution_state") == "idle":
                    return True
        return False

    def is_alive(self) -> bool:
        """Whether the kernel's process runs."""
        return self.manager.is_alive()

    @property
    def is_warm(self) -> bool:
        """Whether it is a fork of a warm parent, with PyTorch loaded and its generator seeded."""
        return self.manager.is_warm

    @property
    def channel(self) -> socket.socket | None:
        """Where pieces can be asked without Jupyter's messages; None once that has gone wrong."""
        return self.manager.channel

    def hang_up(self) -> None:
        """Give up the channel: what is written or asked there from now on reaches nobody."""
        self.manager.hang_up()

    def interrupt(self) -> None:
        """Raise KeyboardInterrupt in the running cell, if the kernel is alive.

        It comes as a request that the kernel may ignore, and code that never returns to Python goes on: then
        :meth:`kill`.
        """
        if self.is_alive():
            self.manager.interrupt_kernel()

    def out_of_memory(self) -> bool:
        """Whether the system has ended a process of the kernel because of the memory that it asked for.

        False where the host has no control groups. Can be asked after the kernel's end, until :meth:`close`.
        """
        group = self.manager.group
        return group is not None and group.out_of_memory()

    def peak_bytes(self) -> int:
        """The most memory that the kernel's processes have had together; 0 where the host has no control groups."""
        group = self.manager.group
        return group.peak_bytes() if group is not None else 0

    def kill(self) -> None:
        """End the kernel now, with every process that it started. Nothing in the kernel can prevent it."""
        self.manager._kill_kernel()

    def close(self) -> None:
        """Kill the kernel and remove its files. Closing twice does no harm."""
        self._client = None
        self._close()

    def __enter__(self) -> Kernel:
        return self

    def __exit__(self, *exception) -> None:
        self.close()


def _close_manager(manager: SandboxKernelManager, owner: int) -> None:
    if os.getpid() != owner:  # a forked worker of the grader must leave its parent's kernels alone
        return
    try:
        if manager.has_kernel:
            manager._kill_kernel()
    finally:
        manager.cleanup_resources()


# ------------------------------------------------------------------------------------------------------------- layers


class DirectProvisioner(LocalProvisioner):
    """Starts a kernel of a :class:`SandboxKernelManager` with inherited sockets, a clean environment and limits."""

    def __init__(self, **kwargs: Any):
        super().__init__(**kwargs)
        self._passed: list[int] = []  # descriptors for the kernel, ours to close once it has them
        self._stderr: int | None = None
        self._plan: dict[str, Any] = {}

    def _manager(self) -> SandboxKernelManager:
        if not isinstance(self.parent, SandboxKernelManager):
            raise SandboxError("This kernel has no network: start it with autograder.sandbox.SandboxKernelManager.")
        return self.parent

    async def pre_launch(self, **kwargs: Any) -> dict[str, Any]:
        manager = self._manager()
        kwargs = await super().pre_launch(**kwargs)
        self._stderr = parent.memory_file("stderr")
        limits = _resource_limits(manager.limits, manager.sandboxed)
        self._plan = {"limits": limits, "message_bytes": MAX_MESSAGE_BYTES // 2}
        return self._dress(manager, kwargs)

    def _dress(self, manager: SandboxKernelManager, kwargs: dict[str, Any]) -> dict[str, Any]:
        run = manager.run_directory.path
        self._plan |= {"sockets": self._listen(manager), "connection_file": manager.connection_file}
        python, script, *_ = kwargs["cmd"]
        for folder in ("home", "work", "course"):
            (run / folder).mkdir()
        (run / "course" / "transformer_lab").symlink_to(enclosure._transformer_lab())
        environment = enclosure.environment(home=str(run / "home"), temporary=str(run), course=str(run / "course"))
        return kwargs | {
            "cmd": [python, script, json.dumps(self._plan)],
            "env": environment,
            "cwd": str(run / "work"),
            "stdin": subprocess.DEVNULL,
            "stdout": subprocess.DEVNULL,
            "stderr": self._stderr,
        }

    async def launch_kernel(self, cmd: list[str], **kwargs: Any):
        try:
            return await super().launch_kernel(cmd, pass_fds=tuple(self._passed), **kwargs)
        finally:
            self._close_passed()

    async def cleanup(self, restart: bool = False) -> None:
        await super().cleanup(restart=restart)
        self._close_passed()
        if self._stderr is not None:
            os.close(self._stderr)
            self._stderr = None

    def stderr_text(self) -> str:
        """What the kernel's process wrote to its real stderr, up to a limit."""
        return "" if self._stderr is None else parent.text_of(self._stderr)

    def _listen(self, manager: SandboxKernelManager) -> dict[str, int]:
        """Bound sockets by the address that the kernel will be told to bind, and one for the answers of pieces."""
        found = {}
        for port in manager.ports:
            path = f"{manager.ip}-{port}"
            with contextlib.suppress(FileNotFoundError):
                os.unlink(path)
            with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
                listener.bind(path)
                listener.listen(16)
                found[f"ipc://{path}"] = listener.detach()
                self._passed.append(found[f"ipc://{path}"])
        manager.channel, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        found["answers"] = theirs.detach()
        self._passed.append(found["answers"])
        return found

    def _close_passed(self) -> None:
        while self._passed:
            os.close(self._passed.pop())


class BubblewrapProvisioner(DirectProvisioner):
    """Starts the kernel in the sandbox; the entry point ``bubblewrap-provisioner`` names it to Jupyter."""

    def __init__(self, **kwargs: Any):
        super().__init__(**kwargs)
        self._own: Parent | None = None  # a parent that makes this one kernel only

    async def pre_launch(self, **kwargs: Any) -> dict[str, Any]:
        reason = why_unavailable()
        if reason is not None:
            raise SandboxError(reason)
        return await super().pre_launch(**kwargs)

    def _dress(self, manager: SandboxKernelManager, kwargs: dict[str, Any]) -> dict[str, Any]:
        self._plan |= {
            "file_bytes": manager.limits.file_bytes,
            "connection": Path(manager.connection_file).read_text(),
            "connection_file": CONNECTION,
            "folders": [HOME, WORK],
            "folder": WORK,
        }
        return kwargs

    async def launch_kernel(self, cmd: list[str], **kwargs: Any):
        manager = self._manager()
        way = enclosure.way_inside()
        assert way is not None  # pre_launch has asked
        listeners = self._listen(manager)
        self._plan["addresses"] = list(listeners)
        assert self._stderr is not None
        go = None
        try:
            manager.is_warm = way.inner and manager.warm
            if manager.is_warm:
                source = parent.warm(way, manager.hidden, manager.limits.file_bytes)
            else:
                source = self._own = Parent(way, manager.hidden, manager.limits.file_bytes)
            given = list(listeners.values())
            process, go = source.start(self._plan, self._stderr, given, manager.startup_seconds)
            self.process = process  # type: ignore[assignment]  # as much of a Popen as is asked for
            self.pid = process.pid
            manager.bound(process.pid)
            go.send(b"go")
        except BrokenPipeError:  # it died meanwhile, which poll() will tell
            pass
        finally:
            self._close_passed()
            if go is not None:
                go.close()
        return self.connection_info

    async def send_signal(self, signum: int) -> None:
        if signum not in (signal.SIGKILL, signal.SIGTERM):
            raise SandboxError("A sandboxed kernel takes no signals from outside; interrupt it by message.")
        await self.kill()

    async def kill(self, restart: bool = False) -> None:
        """Kill the first process of the sandbox, and return when the system has ended all others with it."""
        if self._own is not None:
            self._own.close()
        if self.process is not None:
            self.process.kill()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(10)

    async def terminate(self, restart: bool = False) -> None:
        await self.kill(restart=restart)

    async def cleanup(self, restart: bool = False) -> None:
        await super().cleanup(restart=restart)
        if self._own is not None:
            self._own.close()
            self._own = None


class _Session(Session):
    """Reads a kernel's messages as what they are, a learner's: whatever is no message becomes an empty one.

    An empty message answers no request, so that everybody passes over it.
    """

    def feed_identities(self, msg_list: Any, copy: bool = True) -> Any:
        try:
            return super().feed_identities(msg_list, copy)
        except Exception:
            return [], []

    def deserialize(self, msg_list: Any, content: bool = True, copy: bool = True) -> dict[str, Any]:
        try:
            message = super().deserialize(msg_list, content=content, copy=copy)
            parts = [message[name] for name in ("header", "parent_header", "metadata", "content")]
            names = [message["msg_type"], *(part.get("msg_id", "") for part in parts[:2])]
            if all(isinstance(name, str) for name in names) and _is_shallow(parts):
                return message
        except Exception:  # whatever a hostile kernel may send
            pass
        empty: dict[str, Any] = {name: {} for name in ("header", "parent_header", "metadata", "content")}
        return empty | {"msg_id": "", "msg_type": "", "buffers": []}


def _without_date(part: bytes) -> Any:
    """The value that a part of a message holds, but not when the message was made: nobody asks, and a date is slow to read."""
    value = json_unpacker(part)
    if isinstance(value, dict):
        value.pop("date", None)
    return value


def _is_shallow(parts: list[Any]) -> bool:
    """Whether ``parts`` are dictionaries that are not nested too deep for recursive functions."""
    if not all(isinstance(part, dict) for part in parts):
        return False
    level = parts
    for _ in range(MAX_MESSAGE_DEPTH):
        if not level:
            return True
        inner = (part.values() if isinstance(part, dict) else part for part in level)
        level = [value for values in inner for value in values if isinstance(value, (dict, list))]
    return False


class SandboxKernelManager(KernelManager):
    """A kernel manager whose kernel runs this Python in the sandbox, whatever kernelspec is asked for.

    Its clients are asynchronous, as nbclient needs them. It may be named as ``kernel_manager_class`` of nbclient's or
    nbgrader's preprocessors.
    """

    limits = Instance(Limits, args=())
    sandboxed = Bool(True)
    warm = Bool(True)
    #: Whether the running kernel is a fork of a warm parent: ``warm`` asks for one, but not every host has a place for it.
    is_warm = False
    hidden: tuple[Path, ...] = ()
    startup_seconds: float = 180
    #: The control group of the kernel's processes; None where the host has none. Kept after the kernel's end.
    group: cgroups.Group | None = None
    #: Where a kernel's pieces can be asked directly (``kernel_app.answer_requests``); None once that has gone wrong.
    channel: socket.socket | None = None

    def __init__(self, **kwargs: Any):
        super().__init__(**kwargs)
        self._clients: list[KernelClient] = []
        self._run: RunDirectory | None = None

    def bound(self, process: int) -> None:
        """Put a process, and with it all that it will start, under the limits that only control groups can hold."""
        where = cgroups.place()
        if where is None:
            return
        self.group = cgroups.Group(where, self.limits.memory_bytes, self.limits.processes)
        with contextlib.suppress(ProcessLookupError):
            self.group.add(process)

    @property
    def run_directory(self) -> RunDirectory:
        """The kernel's folder on the host, from its start to its end."""
        if self._run is None:
            raise SandboxError("This kernel is not running.")
        return self._run

    def client(self, **kwargs: Any) -> Any:
        """An asynchronous client, its channels not yet started."""
        return self.connect(AsyncKernelClient, **kwargs)

    def connect(self, kind: Callable[..., Client], **kwargs: Any) -> Client:
        """A client of the given class, its channels not yet started.

        Each has a session of its own: two clients of one session would share an identity, and the kernel would answer
        only the later one.
        """
        session = _Session(
            parent=self, key=self.session.key, signature_scheme=self.session.signature_scheme, unpack=_without_date
        )
        connection = self.get_connection_info() | {"session": session, "connection_file": self.connection_file}
        del connection["key"], connection["signature_scheme"]
        client = kind(**(connection | {"parent": self} | kwargs))
        client.context.setsockopt(zmq.MAXMSGSIZE, MAX_MESSAGE_BYTES)
        client.context.setsockopt(zmq.RCVHWM, MAX_MESSAGES)
        # Stopped with the kernel: nbclient leaves the client of a kernel that it was handed running, and the heartbeat's
        # thread of a forgotten client hangs the garbage collector.
        self._clients.append(client)
        return client

    @property
    def kernel_spec(self) -> KernelSpec:
        """Made here: what a submission or this machine's Jupyter calls its kernels plays no part."""
        return KernelSpec(
            argv=[sys.executable, str(self.run_directory.path / KERNEL_MAIN.name), "-f", "{connection_file}"],
            display_name="Python (sandbox)",
            language="python",
            interrupt_mode="message",  # a signal to the process group would reach bwrap, not the kernel
            metadata={"kernel_provisioner": {"provisioner_name": PROVISIONER}} if self.sandboxed else {},
        )

    async def _async_pre_start_kernel(self, **kwargs: Any):
        self._prepare_run_directory()
        if self.provisioner is None:
            kind = BubblewrapProvisioner if self.sandboxed else DirectProvisioner
            self.provisioner = kind(kernel_id=self.kernel_id or "", kernel_spec=self.kernel_spec, parent=self)
        return await super()._async_pre_start_kernel(**kwargs)

    pre_start_kernel = run_sync(_async_pre_start_kernel)

    def hang_up(self) -> None:
        """Close the kernel's channel."""
        if self.channel is not None:
            self.channel.close()
            self.channel = None

    async def _async_cleanup_resources(self, restart: bool = False) -> None:
        self.hang_up()
        try:
            while self._clients:
                self._clients.pop().stop_channels()
            await super()._async_cleanup_resources(restart=restart)
        finally:
            if self._run is not None:
                self._run.remove()
                self._run = None
            if self.group is not None:
                self.group.close()
            self.provisioner = None

    cleanup_resources = run_sync(_async_cleanup_resources)

    def kernel_stderr(self) -> str:
        """What the kernel's process wrote to its real stderr, up to a limit: mostly nothing, or why it failed."""
        return self.provisioner.stderr_text() if isinstance(self.provisioner, DirectProvisioner) else ""

    def _prepare_run_directory(self) -> None:
        if self._run is not None:
            return
        self.group = None
        self._run = RunDirectory()
        run = self._run.path
        self.transport = "ipc"
        self.ip = str(run / "k")
        self.connection_file = str(run / "connection.json")
        self._connection_file_written = False
        self.shell_port, self.iopub_port, self.stdin_port, self.control_port, self.hb_port = range(1, 6)


# -------------------------------------------------------------------------------------------------- limits and the host


def _resource_limits(limits: Limits, sandboxed: bool) -> dict[str, int]:
    wanted = {
        "RLIMIT_AS": limits.memory_bytes // 8 * 7,
        "RLIMIT_FSIZE": limits.file_bytes,
        "RLIMIT_CPU": int(limits.notebook_seconds) + 1,
        "RLIMIT_NOFILE": 1024,
        "RLIMIT_CORE": 0,
        "RLIMIT_MSGQUEUE": 1 << 20,
        "RLIMIT_MEMLOCK": 1 << 16,
    }
    if sandboxed and not _processes_uncounted():  # outside, all of the user's processes would count
        wanted["RLIMIT_NPROC"] = limits.processes
    return wanted


def _processes_uncounted() -> str | None:
    """Why the number of processes can't be bounded by a resource limit, as a sentence, or None."""
    way = enclosure.way_inside()
    if way is None or not way.unprivileged:
        return (
            "The number of processes is not bounded, because the sandbox runs as root, whom the system exempts: grade as "
            f"an ordinary user, or install Python where everyone can read it ({sys.prefix} and {sys.base_prefix})."
        )
    version = tuple(int(number) for number in re.findall(r"\d+", platform.release())[:2])
    if version < (5, 14):
        return (
            f"The number of processes is not bounded, because Linux {platform.release()} would count the grader's "
            "own among them: use Linux 5.14 or newer."
        )
    return None


def unenforced_limits() -> list[str]:
    """What this host can't enforce of :class:`Limits`, one sentence each; empty if everything holds."""
    if cgroups.place() is not None:
        return []
    memory = (
        "Memory and processor time are bounded for each process of a kernel, but not for several processes together, "
        "nor for memory that belongs to no process (shared memory, a flood of small files), because this process can make "
        "no control groups: grade as root, or with `systemd-run --user --scope` before the command."
    )
    processes = _processes_uncounted()
    return [memory, processes] if processes else [memory]


def require(accept_unenforced: bool = False) -> None:
    """Make sure that learners' code can be run here and that all of its limits hold.

    Parameters
    ----------
    accept_unenforced
        Go on where a limit can't be enforced. The environment variable ``AUTOGRADER_ACCEPT_UNENFORCED=1`` says the same.

    Raises
    ------
    SandboxError
        There is no sandbox here, or a limit does not hold and that is not accepted; the message says what to do.
    """
    reason = why_unavailable()
    if reason is not None:
        raise SandboxError(reason)
    missing = unenforced_limits()
    if missing and not accept_unenforced and os.environ.get(ACCEPT) != "1":
        raise SandboxError(
            f"{' '.join(missing)} To run learners' code all the same, accept this: --accept-unenforced, or {ACCEPT}=1."
        )
