"""A learner's kernel in a sandbox of its own.

    with sandbox.start(Limits(), sandboxed=True) as kernel:
        kernel.client.execute("1 + 1")

The sandbox is bubblewrap (``bwrap``): user, process, network, mount, host name and inter-process namespaces of its own,
no capability, a read-only system, and a private, bounded ``/tmp``. Of the host it sees the system's libraries, the
Python installation and the package ``transformer_lab``; nothing of the course, of other submissions or of the grader.

The network namespace is empty: Jupyter's messages travel over Unix sockets. The grader binds them and the kernel
inherits them, so that no folder of the host is writable in the sandbox.

Three layers, each usable alone: :class:`BubblewrapProvisioner` wraps the command of a kernel, :class:`SandboxKernelManager`
is a ``jupyter_client`` manager that uses it (with nbclient: ``NotebookClient(nb, km=kernel.manager)``), and
:func:`start` gives a ready :class:`Kernel`.
"""

from __future__ import annotations

import contextlib
import fcntl
import functools
import json
import os
import platform
import re
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import weakref
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from queue import Empty
from typing import Any, TypeVar

from jupyter_client.asynchronous import AsyncKernelClient
from jupyter_client.blocking import BlockingKernelClient
from jupyter_client.client import KernelClient
from jupyter_client.kernelspec import KernelSpec
from jupyter_client.manager import KernelManager
from jupyter_client.provisioning import LocalProvisioner
from jupyter_client.session import Session
from jupyter_core.utils import run_sync
from traitlets import Bool, Instance

import transformer_lab

Client = TypeVar("Client", bound=KernelClient)

PROVISIONER = "bubblewrap-provisioner"
KERNEL_MAIN = Path(__file__).with_name("kernel_main.py")

#: Where things are inside the sandbox.
COURSE, HOME, WORK = "/course", "/tmp/home", "/tmp/work"

#: The first version that can bound a temporary file system, and the first that can forbid nested user namespaces.
OLDEST_BWRAP, BWRAP_DISABLES_USERNS = (0, 7), (0, 8)

#: The whole of /etc: what the dynamic linker, fonts and local time need. Accounts are made up, see _write_accounts.
ETC = ("ld.so.cache", "ld.so.conf", "ld.so.conf.d", "alternatives", "fonts", "localtime")

#: The user without rights, as every distribution numbers it.
NOBODY = 65534

_RUN_PREFIX = "tpp-"
_STDERR_BYTES = 1 << 16


class SandboxError(RuntimeError):
    """The kernel can't be started as asked; the message says what to do."""


@dataclass(frozen=True)
class Limits:
    """What one learner's notebook may use.

    Seconds of a cell and bytes of output are for the judge to watch; the rest is set on the kernel before any learner's
    code runs, and :func:`unenforced_limits` says what this host can't enforce.

    cell_seconds, notebook_seconds
        Time by the clock. ``notebook_seconds`` is also each process's limit of processor time.
    memory_bytes
        Address space of each process. PyTorch on a CPU needs about 0.6 GB to be imported; CUDA maps many times the
        memory that it uses, so a kernel that may use a GPU needs another kind of limit.
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
    startup_seconds: float = 60,
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

    Raises
    ------
    SandboxError
        There is no sandbox here (:func:`why_unavailable` says why), or the kernel died or did not answer in time.
    """
    kernel = Kernel(limits or Limits(), sandboxed=sandboxed, hidden=hidden)
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

    def __init__(self, limits: Limits, *, sandboxed: bool, hidden: Iterable[Path] = ()):
        self.limits = limits
        self.sandboxed = sandboxed
        self.manager = SandboxKernelManager(limits=limits, sandboxed=sandboxed)
        self.manager.hidden = tuple(hidden)
        self._client: BlockingKernelClient | None = None
        # Also when it is forgotten: the garbage collector waits for ever for ZeroMQ sockets that are left open.
        self._close = weakref.finalize(self, _close_manager, self.manager, os.getpid())

    @property
    def client(self) -> BlockingKernelClient:
        """The blocking client of this kernel, its channels started."""
        if self._client is None:
            raise SandboxError("This kernel is not running.")
        return self._client

    def _start(self, startup_seconds: float) -> None:
        self.manager.start_kernel()
        self._client = client = self.manager.connect(BlockingKernelClient)
        client.allow_stdin = False  # input() raises in the cell at once instead of waiting for nobody
        client.start_channels(stdin=False, hb=False)
        deadline = time.monotonic() + startup_seconds
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
                answered = self.client.get_shell_msg(timeout=0.25)["parent_header"].get("msg_id") == request
        with contextlib.suppress(Empty):
            while self.is_alive():
                message = self.client.get_iopub_msg(timeout=0.5)
                ours = message["parent_header"].get("msg_id") == request
                if ours and message["content"].get("execution_state") == "idle":
                    return True
        return False

    def is_alive(self) -> bool:
        """Whether the kernel's process runs."""
        return self.manager.is_alive()

    def interrupt(self) -> None:
        """Raise KeyboardInterrupt in the running cell, if the kernel is alive.

        It comes as a request that the kernel may ignore, and code that never returns to Python goes on: then
        :meth:`kill`.
        """
        if self.is_alive():
            self.manager.interrupt_kernel()

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

    def _manager(self) -> SandboxKernelManager:
        if not isinstance(self.parent, SandboxKernelManager):
            raise SandboxError("This kernel has no network: start it with autograder.sandbox.SandboxKernelManager.")
        return self.parent

    async def pre_launch(self, **kwargs: Any) -> dict[str, Any]:
        manager = self._manager()
        kwargs = await super().pre_launch(**kwargs)
        run = manager.run_directory.path
        sockets = {f"ipc://{manager.ip}-{port}": self._listen(f"{manager.ip}-{port}") for port in manager.ports}
        plan = json.dumps({"limits": _resource_limits(manager.limits, manager.sandboxed), "sockets": sockets})
        python, script, *arguments = kwargs["cmd"]
        kwargs["cmd"] = [python, script, plan, *arguments]
        for folder in ("home", "work", "course"):
            (run / folder).mkdir()
        (run / "course" / "transformer_lab").symlink_to(_transformer_lab())
        kwargs["env"] = _environment(home=str(run / "home"), temporary=str(run), course=str(run / "course"))
        kwargs["cwd"] = str(run / "work")
        # What is written to the real stderr is kept, up to a limit, to explain a failed start. It goes to memory and
        # not to a pipe (a full pipe would stop the kernel) nor to a file (which could grow).
        self._stderr = os.memfd_create("stderr", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        os.ftruncate(self._stderr, _STDERR_BYTES)
        fcntl.fcntl(self._stderr, fcntl.F_ADD_SEALS, fcntl.F_SEAL_GROW | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_SEAL)
        kwargs.update(stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=self._stderr)
        return kwargs

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
        if self._stderr is None:
            return ""
        return os.pread(self._stderr, _STDERR_BYTES, 0).rstrip(b"\0").decode(errors="replace").strip()

    def _listen(self, path: str) -> int:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
            listener.bind(path)
            listener.listen(16)
            return self._pass(listener.detach())

    def _pass(self, descriptor: int) -> int:
        self._passed.append(descriptor)
        return descriptor

    def _close_passed(self) -> None:
        while self._passed:
            os.close(self._passed.pop())


class BubblewrapProvisioner(DirectProvisioner):
    """Starts the kernel inside bubblewrap; the entry point ``bubblewrap-provisioner`` names it to Jupyter."""

    def __init__(self, **kwargs: Any):
        super().__init__(**kwargs)
        self._first: int | None = None  # pidfd of the sandbox's first process

    async def pre_launch(self, **kwargs: Any) -> dict[str, Any]:
        reason = why_unavailable()
        if reason is not None:
            raise SandboxError(reason)
        kwargs = await super().pre_launch(**kwargs)
        manager = self._manager()
        arguments = _bwrap_arguments(manager.limits, manager.run_directory.path, manager.hidden)
        # By descriptor and not on the command line, which the sandboxed processes can read.
        args = self._pass(os.memfd_create("bwrap-args", os.MFD_CLOEXEC))
        os.write(args, b"".join(os.fsencode(argument) + b"\0" for argument in arguments))
        os.lseek(args, 0, os.SEEK_SET)
        self._info, info = os.pipe2(os.O_CLOEXEC)
        self._pass(info)
        kwargs["cmd"] = [_bwrap(), "--args", str(args), "--info-fd", str(info), "--", *kwargs["cmd"]]
        # bwrap's first process inside keeps the environment that bwrap was started with, readable in /proc.
        kwargs["env"] = {"PATH": "/usr/bin:/bin"}
        kwargs["independent"] = True  # keeps the grader's process number out of it as well
        kwargs["cwd"] = "/"
        user = _sandbox_user()
        if user is not None:
            kwargs.update(user=user, group=user, extra_groups=[])
            manager.run_directory.give_to(user)
        return kwargs

    async def launch_kernel(self, cmd: list[str], **kwargs: Any):
        try:
            connection_info = await super().launch_kernel(cmd, **kwargs)
            told = b""
            while b"}" not in told and (part := os.read(self._info, 4096)):
                told += part
        finally:
            os.close(self._info)
        if told:  # else bwrap has failed, which poll() will tell
            with contextlib.suppress(ProcessLookupError):
                self._first = os.pidfd_open(json.loads(told)["child-pid"])
        return connection_info

    async def send_signal(self, signum: int) -> None:
        if signum not in (signal.SIGKILL, signal.SIGTERM):
            raise SandboxError("A sandboxed kernel takes no signals from outside; interrupt it by message.")
        await self.kill()

    async def kill(self, restart: bool = False) -> None:
        """Kill the first process of the sandbox, and return when the system has ended all others with it."""
        if self.process is None:
            return
        try:
            if self._first is not None:
                with contextlib.suppress(ProcessLookupError):
                    signal.pidfd_send_signal(self._first, signal.SIGKILL)
                # Readable when it and with it all others have ended; bwrap itself may end before.
                select.select([self._first], [], [], 10)
        finally:
            self.process.kill()  # does nothing to a process that has ended
            self.process.wait()

    async def terminate(self, restart: bool = False) -> None:
        await self.kill(restart=restart)

    async def cleanup(self, restart: bool = False) -> None:
        await super().cleanup(restart=restart)
        if self._first is not None:
            os.close(self._first)
            self._first = None


class SandboxKernelManager(KernelManager):
    """A kernel manager whose kernel runs this Python in the sandbox, whatever kernelspec is asked for.

    Its clients are asynchronous, as nbclient needs them. It may be named as ``kernel_manager_class`` of nbclient's or
    nbgrader's preprocessors.
    """

    limits = Instance(Limits, args=())
    sandboxed = Bool(True)
    hidden: tuple[Path, ...] = ()

    def __init__(self, **kwargs: Any):
        super().__init__(**kwargs)
        self._clients: list[KernelClient] = []
        self._run: _RunDirectory | None = None

    @property
    def run_directory(self) -> _RunDirectory:
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
        session = Session(parent=self, key=self.session.key, signature_scheme=self.session.signature_scheme)
        connection = self.get_connection_info() | {"session": session, "connection_file": self.connection_file}
        del connection["key"], connection["signature_scheme"]
        client = kind(**(connection | {"parent": self} | kwargs))
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

    async def _async_cleanup_resources(self, restart: bool = False) -> None:
        try:
            while self._clients:
                self._clients.pop().stop_channels()
            await super()._async_cleanup_resources(restart=restart)
        finally:
            if self._run is not None:
                self._run.remove()
                self._run = None
            self.provisioner = None

    cleanup_resources = run_sync(_async_cleanup_resources)

    def kernel_stderr(self) -> str:
        """What the kernel's process wrote to its real stderr, up to a limit: mostly nothing, or why it failed."""
        return self.provisioner.stderr_text() if isinstance(self.provisioner, DirectProvisioner) else ""

    def _prepare_run_directory(self) -> None:
        if self._run is not None:
            return
        self._run = _RunDirectory()
        run = self._run.path
        self.transport = "ipc"
        self.ip = str(run / "k")
        self.connection_file = str(run / "connection.json")
        self._connection_file_written = False
        self.shell_port, self.iopub_port, self.stdin_port, self.control_port, self.hb_port = range(1, 6)


class _RunDirectory:
    """A kernel's folder on the host: sockets, connection file, accounts. Removed on request, at the latest at exit.

    A lock tells the folders of running graders from those of killed ones, which the next grader removes.
    """

    def __init__(self):
        base = tempfile.gettempdir()
        if len(base) > 60:  # the path of a Unix socket holds 107 bytes
            base = "/tmp"
        _remove_stale(base)
        self.path = Path(tempfile.mkdtemp(prefix=_RUN_PREFIX, dir=base)).resolve()
        lock = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        fcntl.flock(lock, fcntl.LOCK_EX)
        self.remove = weakref.finalize(self, _remove_run_directory, self.path, lock, os.getpid())
        shutil.copyfile(KERNEL_MAIN, self.path / KERNEL_MAIN.name)
        (self.path / "passwd").write_text(
            f"root:x:0:0:root:/nonexistent:/bin/false\nlearner:x:1000:1000:Learner:{HOME}:/bin/sh\n"
        )
        (self.path / "group").write_text("root:x:0:\nlearner:x:1000:\n")
        (self.path / "hosts").write_text("127.0.0.1 localhost\n")

    def give_to(self, user: int) -> None:
        """Make ``user`` the owner of the folder and of all in it. Only root can."""
        for path in (self.path, *self.path.rglob("*")):
            os.chown(path, user, user, follow_symlinks=False)


def _remove_run_directory(path: Path, lock: int, owner: int) -> None:
    if os.getpid() == owner:  # a forked worker of the grader must leave its parent's folder alone
        shutil.rmtree(path, ignore_errors=True)
        os.close(lock)


@functools.cache
def _remove_stale(base: str) -> None:
    owners = (0, NOBODY) if os.geteuid() == 0 else (os.geteuid(),)
    for path in Path(base).glob(f"{_RUN_PREFIX}*"):
        with contextlib.suppress(OSError):
            # A minute's grace: a folder is made before it can be locked.
            if path.is_symlink() or path.stat().st_uid not in owners or time.time() - path.stat().st_mtime < 60:
                continue
            descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(path, ignore_errors=True)
            finally:
                os.close(descriptor)


# -------------------------------------------------------------------------------------------------------- what is seen


def _bwrap() -> str:
    return shutil.which("bwrap") or ""


def _bwrap_version() -> tuple[int, ...]:
    text = subprocess.run([_bwrap(), "--version"], capture_output=True, text=True, timeout=10).stdout
    return tuple(int(number) for number in re.findall(r"\d+", text)[:2])


def _bwrap_arguments(limits: Limits, run: Path, hidden: Iterable[Path]) -> list[str]:
    """The sandbox as arguments of bwrap, without the command."""
    size = str(limits.file_bytes)
    environment = _environment(home=HOME, temporary="/tmp", course=COURSE)
    return [
        # --unshare-all alone would go on without a user namespace where there is none.
        *("--unshare-all", "--unshare-user", "--die-with-parent", "--new-session", "--cap-drop", "ALL"),
        *("--uid", "1000", "--gid", "1000", "--hostname", "sandbox"),
        # A fork server that puts each fork into namespaces of its own will have to give this one up.
        *(["--disable-userns"] if _bwrap_version() >= BWRAP_DISABLES_USERNS else []),
        "--clearenv",
        *(word for name, value in environment.items() for word in ("--setenv", name, value)),
        # Read-only: Linux lets processes of the host's root write host-wide settings there, whatever the namespace.
        *("--proc", "/proc", "--remount-ro", "/proc"),
        *("--dev", "/dev", "--size", size, "--perms", "1777", "--tmpfs", "/dev/shm", "--remount-ro", "/dev"),
        *("--size", size, "--perms", "1777", "--tmpfs", "/tmp", "--dir", HOME, "--dir", WORK),
        *_mounts(run, hidden),
        *("--remount-ro", "/"),  # the file system that holds the mount points, in memory and else unbounded
        *("--chdir", WORK),
    ]


def _mounts(run: Path, hidden: Iterable[Path]) -> list[str]:
    """Read-only views of the host, and empty folders over what must not be seen, the outer ones first."""
    links, binds = _system()
    for folder in _python_folders():
        binds.setdefault(folder, folder)
    binds[f"{COURSE}/transformer_lab"] = str(_transformer_lab())
    for name in ("passwd", "group", "hosts"):
        binds[f"/etc/{name}"] = str(run / name)
    binds[str(run)] = str(run)
    sources = {inside: Path(outside).resolve() for inside, outside in binds.items()}
    masks = set()
    for concealed in {path.resolve() for path in (*_course_folders(), Path.cwd(), *hidden)}:
        for inside, source in sources.items():
            if concealed == source:
                raise SandboxError(
                    f"{concealed} holds submissions or solutions, and the sandbox must show it because it is also "
                    "a folder of the system or of the Python installation: move one of the two."
                )
            if concealed.is_relative_to(source) and concealed.is_dir():
                masks.add(str(Path(inside) / concealed.relative_to(source)))
    words = [word for inside, target in links.items() for word in ("--symlink", target, inside)]
    for path in sorted({*binds, *masks}, key=lambda path: (path.count("/"), path)):
        words += ["--tmpfs", path] if path in masks else ["--ro-bind", str(sources[path]), path]
    # Last, since a folder that is hidden may hold one that is seen: the environment .venv in the course's checkout.
    return words + [word for path in sorted(masks) for word in ("--remount-ro", path)]


def _system() -> tuple[dict[str, str], dict[str, str]]:
    """The system's programs and libraries: symbolic links (path: target) and folders (path inside: path outside)."""
    links, binds = {}, {}
    for path in ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32"):
        if os.path.islink(path):
            links[path] = os.readlink(path)
        elif os.path.isdir(path):
            binds[path] = path
    for name in ETC:
        if os.path.exists(f"/etc/{name}"):
            binds[f"/etc/{name}"] = f"/etc/{name}"
    return links, binds


def _python_folders() -> list[str]:
    """The Python installation and environment, the packages outside of them, and each link on the way to the program."""
    folders = [sys.prefix, sys.base_prefix, *_package_folders()]
    link = sys.executable
    while True:
        if not any(Path(link).is_relative_to(folder) for folder in folders):
            folders.append(link)
        if not os.path.islink(link):
            return folders
        link = os.path.normpath(os.path.join(os.path.dirname(link), os.readlink(link)))


def _package_folders() -> list[str]:
    """Folders of installed packages outside of the environment, such as the user's own."""
    prefixes = (sys.prefix, sys.base_prefix)
    return [
        folder
        for folder in dict.fromkeys(sys.path)
        if Path(folder).name in ("site-packages", "dist-packages")
        and os.path.isdir(folder)
        and not any(Path(folder).is_relative_to(prefix) for prefix in prefixes)
    ]


def _transformer_lab() -> Path:
    return Path(transformer_lab.__file__).resolve().parent


def _course_folders() -> list[Path]:
    """The checkout that this package lies in; the package alone if it is installed among others."""
    package = Path(__file__).resolve().parent
    return [package.parent if (package.parent / "pyproject.toml").exists() else package]


def _environment(*, home: str, temporary: str, course: str) -> dict[str, str]:
    """All of the kernel's environment. One thread each, so that sums come out the same on every machine."""
    threads = ("OMP", "MKL", "OPENBLAS", "NUMEXPR")
    return {
        "PATH": f"{Path(sys.executable).parent}:/usr/local/bin:/usr/bin:/bin",
        "HOME": home,
        "USER": "learner",
        "LOGNAME": "learner",
        "LANG": "C.UTF-8",
        "TMPDIR": temporary,
        "IPYTHONDIR": f"{temporary}/ipython",
        "MPLCONFIGDIR": f"{temporary}/matplotlib",
        "PYTHONPATH": ":".join([course, *_package_folders()]),
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONHASHSEED": "0",
        "TRANSFORMER_LAB_PIECES": "builtin",
        **{f"{library}_NUM_THREADS": "1" for library in threads},
    }


# -------------------------------------------------------------------------------------------------- limits and the host


def _resource_limits(limits: Limits, sandboxed: bool) -> dict[str, int]:
    wanted = {
        "RLIMIT_AS": limits.memory_bytes,
        "RLIMIT_FSIZE": limits.file_bytes,
        "RLIMIT_CPU": int(limits.notebook_seconds) + 1,
        "RLIMIT_NOFILE": 1024,
        "RLIMIT_CORE": 0,
    }
    if sandboxed and not _processes_unbounded():  # outside, all of the user's processes would count
        wanted["RLIMIT_NPROC"] = limits.processes
    return wanted


def _processes_unbounded() -> str | None:
    """Why the number of processes can't be bounded here, as a sentence, or None."""
    if os.geteuid() == 0 and _sandbox_user() is None:
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
    sentences = [
        "Memory and processor time are bounded for each process of a kernel, but not for several processes together, "
        "nor for memory that belongs to no process (shared memory, a flood of small files)."
    ]
    processes = _processes_unbounded()
    return [*sentences, processes] if processes else sentences


@functools.cache
def why_unavailable() -> str | None:
    """None if a sandbox can be started here, else one sentence that says what is missing and what to do."""
    if sys.platform != "linux":
        return "The sandbox needs Linux: grade in a Linux machine, virtual machine or container."
    if not _bwrap():
        return (
            "bubblewrap is not installed: run `apt-get install bubblewrap` (or your distribution's package bubblewrap)."
        )
    version = _bwrap_version()
    if version < OLDEST_BWRAP:
        return (
            f"bubblewrap {'.'.join(map(str, version))} is too old to bound the sandbox's disk: "
            f"install version {'.'.join(map(str, OLDEST_BWRAP))} or newer."
        )
    try:
        complaint = _trial(_sandbox_user())
    except SandboxError as error:
        return str(error)
    except subprocess.TimeoutExpired:
        return "bubblewrap did not start a program within 60 seconds: the machine is too busy or bubblewrap is broken."
    return None if complaint is None else _explain(complaint)


@functools.cache
def _trial(user: int | None) -> str | None:
    """Run Python in a sandbox; None if that works, else what bwrap complains of."""
    run = _RunDirectory()
    try:
        if user is not None:
            run.give_to(user)
        identity: dict[str, Any] = {} if user is None else {"user": user, "group": user, "extra_groups": []}
        trial = [_bwrap(), *_bwrap_arguments(Limits(), run.path, ()), "--", sys.executable, "-I", "-S", "-c", "pass"]
        done = subprocess.run(
            trial, env={}, cwd="/", stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60, **identity
        )
        return None if done.returncode == 0 else done.stderr.strip()
    finally:
        run.remove()


@functools.cache
def _sandbox_user() -> int | None:
    """Whom the sandbox runs as, seen from outside: None for the grader's own user.

    A grader that is root hands over to ``nobody``, since Linux exempts root's processes from some limits in every
    namespace. That fails where ``nobody`` can't read the Python installation (in root's home, say).
    """
    if os.geteuid() != 0 or not _bwrap():
        return None
    return NOBODY if _trial(NOBODY) is None else None


def _explain(complaint: str) -> str:
    """bwrap's complaint with its likely cause and what to do about it."""
    said = f"(bubblewrap says: {' '.join(complaint.split())})"
    if _sysctl("kernel/apparmor_restrict_unprivileged_userns") == "1" and os.geteuid() != 0:
        return (
            "AppArmor forbids unprivileged user namespaces: set the sysctl kernel.apparmor_restrict_unprivileged_userns "
            f"to 0, or install an AppArmor profile that allows them to {_bwrap()} {said}."
        )
    if _sysctl("kernel/unprivileged_userns_clone") == "0" and os.geteuid() != 0:
        return (
            f"Unprivileged user namespaces are forbidden: set the sysctl kernel.unprivileged_userns_clone to 1 {said}."
        )
    if _sysctl("user/max_user_namespaces") == "0":
        return f"User namespaces are forbidden: set the sysctl user.max_user_namespaces to 10000, say {said}."
    if re.search(r"namespace|proc on|not permitted", complaint, re.IGNORECASE):
        return (
            "The system forbids new namespaces, as containers do by default: start the container with "
            "--security-opt seccomp=unconfined --security-opt apparmor=unconfined --security-opt systempaths=unconfined, "
            f"or grade outside of it {said}."
        )
    return f"bubblewrap can't start Python in a sandbox here {said}."


def _sysctl(name: str) -> str | None:
    try:
        return Path("/proc/sys", name).read_text().strip()
    except OSError:
        return None
