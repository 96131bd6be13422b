"""The outer wall of the sandbox: bubblewrap, what it shows of the host, and whether it works here.

Of the host a sandbox sees the system's libraries, the Python installation and the package ``transformer_lab``, all
read-only; nothing of the course, of other submissions or of the grader. The network namespace is empty.
"""

from __future__ import annotations

import contextlib
import fcntl
import functools
import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import weakref
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import transformer_lab

#: What runs inside: the file to start, and the one that it imports.
KERNEL_MAIN, KERNEL_APP = (Path(__file__).with_name(name) for name in ("kernel_main.py", "kernel_app.py"))

#: Where things are inside the sandbox.
COURSE, HOME, WORK = "/course", "/tmp/home", "/tmp/work"

#: The first version that can bound a temporary file system, and the first that can forbid nested user namespaces.
OLDEST_BWRAP, BWRAP_DISABLES_USERNS = (0, 7), (0, 8)

#: The whole of /etc: what the dynamic linker, fonts and local time need. Accounts are made up, see RunDirectory.
ETC = ("ld.so.cache", "ld.so.conf", "ld.so.conf.d", "alternatives", "fonts", "localtime")

#: The user without rights, as every distribution numbers it.
NOBODY = 65534

_RUN_PREFIX = "tpp-"

#: A temporary file system holds this much unless a kernel's limits say otherwise.
FILE_BYTES = 256 << 20


class SandboxError(RuntimeError):
    """The kernel can't be started as asked; the message says what to do."""


@dataclass(frozen=True)
class Way:
    """How a learner's process is cut off on this host; ``kernel_main.py`` goes it from inside.

    inner
        Each kernel enters namespaces of its own inside of bubblewrap's, so that one warm parent can serve many learners.
        Otherwise bubblewrap's are the only ones, and each kernel needs a parent of its own.
    nobody
        The grader is root and bubblewrap keeps it, to make mounts that only root can; the parent becomes this user.
    outside
        The grader is root and starts bubblewrap as this user; bubblewrap makes a user namespace.
    """

    inner: bool
    nobody: int | None = None
    outside: int | None = None

    @property
    def unprivileged(self) -> bool:
        """Whether the learner's processes belong to a user without rights, seen from the host."""
        return os.geteuid() != 0 or self.nobody is not None or self.outside is not None


def ways() -> list[Way]:
    """The ways to try, the best first."""
    if os.geteuid() != 0:
        return [Way(inner=True), Way(inner=False)]
    # Linux exempts root's processes from some limits in every namespace, hence root hands over where it can.
    return [Way(inner=True, nobody=NOBODY), Way(inner=False, outside=NOBODY), Way(inner=False)]


class RunDirectory:
    """A kernel's folder on the host: sockets, connection file, accounts. Removed on request, at the latest at exit.

    A lock tells the folders of running graders from those of killed ones, which the next grader removes.
    """

    def __init__(self):
        base = self.base()
        _remove_stale(base)
        self.path = Path(tempfile.mkdtemp(prefix=_RUN_PREFIX, dir=base)).resolve()
        lock = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        fcntl.flock(lock, fcntl.LOCK_EX)
        self.remove = weakref.finalize(self, _remove_run_directory, self.path, lock, os.getpid())
        for file in (KERNEL_MAIN, KERNEL_APP):
            shutil.copyfile(file, self.path / file.name)
        (self.path / "passwd").write_text(
            f"root:x:0:0:root:/nonexistent:/bin/false\nlearner:x:1000:1000:Learner:{HOME}:/bin/sh\n"
        )
        (self.path / "group").write_text("root:x:0:\nlearner:x:1000:\n")
        (self.path / "hosts").write_text("127.0.0.1 localhost\n")

    @staticmethod
    def base() -> str:
        """Where such folders are made."""
        base = tempfile.gettempdir()
        return base if len(base) <= 60 else "/tmp"  # the path of a Unix socket holds 107 bytes

    def show(self) -> None:
        """Let every user read the folder, as the user without rights must who runs the kernels of a grader that is root."""
        self.path.chmod(0o755)
        for path in self.path.iterdir():
            path.chmod(0o644)


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


def _bwrap() -> str:
    return shutil.which("bwrap") or ""


def _bwrap_version() -> tuple[int, ...]:
    text = subprocess.run([_bwrap(), "--version"], capture_output=True, text=True, timeout=10).stdout
    return tuple(int(number) for number in re.findall(r"\d+", text)[:2])


def bwrap_arguments(
    way: Way, run: Path, hidden: Iterable[Path], file_bytes: int = FILE_BYTES
) -> tuple[list[str], list[str]]:
    """The outer wall as arguments of bwrap, without the command; and what it shows in /tmp or /dev/shm.

    Parameters
    ----------
    way
        How learners' processes will be cut off.
    run
        The folder that holds ``kernel_main.py`` and the made-up accounts; visible, read-only.
    hidden
        Folders that must not be seen, see :func:`autograder.sandbox.start`.
    file_bytes
        Size of the temporary file systems.
    """
    size = str(file_bytes)
    variables = environment(home=HOME, temporary="/tmp", course=COURSE)
    mounts, seen = _mounts(run, hidden)
    kept = [path for path in seen if path.startswith(("/tmp/", "/dev/shm/")) and path != str(run)]
    arguments = [
        *_namespaces(way),
        *("--die-with-parent", "--new-session", "--hostname", "sandbox", "--clearenv"),
        *(word for name, value in variables.items() for word in ("--setenv", name, value)),
        *_proc(way),
        *("--dev", "/dev", "--size", size, "--perms", "1777", "--tmpfs", "/dev/shm", "--remount-ro", "/dev"),
        *("--size", size, "--perms", "1777", "--tmpfs", "/tmp", "--dir", HOME, "--dir", WORK),
        *mounts,
        *("--remount-ro", "/"),  # the file system that holds the mount points, in memory and else unbounded
        *("--chdir", "/tmp"),
    ]
    # Of two that lie in each other, the outer one brings the inner one along.
    return arguments, [path for path in kept if not any(str(around) in kept for around in Path(path).parents)]


def _namespaces(way: Way) -> list[str]:
    if way.nobody is not None:
        # Root's own rights, without a user namespace: the mounts are root's, and kernel_main.py gives up all rights.
        rights = ("CAP_SYS_ADMIN", "CAP_SETUID", "CAP_SETGID", "CAP_SETPCAP")
        kept = [word for right in rights for word in ("--cap-add", right)]
        apart = ("pid", "net", "ipc", "uts", "cgroup-try")
        return [*(f"--unshare-{name}" for name in apart), "--cap-drop", "ALL", *kept]
    # --unshare-all alone would go on without a user namespace where there is none.
    words = ["--unshare-all", "--unshare-user", "--cap-drop", "ALL", "--uid", "1000", "--gid", "1000"]
    forbid = not way.inner and _bwrap_version() >= BWRAP_DISABLES_USERNS  # else kernel_main.py forbids them
    return [*words, "--disable-userns"] if forbid else words


def _proc(way: Way) -> list[str]:
    if way.nobody is not None:
        return ["--dir", "/proc"]  # mounted by kernel_main.py: what bwrap covers of it would forbid the inner ones
    if way.inner:
        return ["--proc", "/proc"]  # no learner sees this one, and the inner ones are read-only
    # Read-only: Linux lets processes of the host's root write host-wide settings there, whatever the namespace.
    return ["--proc", "/proc", "--remount-ro", "/proc"]


def _mounts(run: Path, hidden: Iterable[Path]) -> tuple[list[str], list[str]]:
    """Read-only views of the host, and empty folders over what must not be seen, the outer ones first; and where they are."""
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
    made = set()
    for path in sorted({*binds, *masks}, key=lambda path: (path.count("/"), path)):
        for around in reversed(Path(path).parents[:-1]):
            if around not in made:  # by itself bwrap would make them for their owner only
                words += ["--perms", "0755", "--dir", str(around)]
                made.add(around)
        words += ["--perms", "0755", "--tmpfs", path] if path in masks else ["--ro-bind", str(sources[path]), path]
    # Last, since a folder that is hidden may hold one that is seen: the environment .venv in the course's checkout.
    return [*words, *(word for path in sorted(masks) for word in ("--remount-ro", path))], sorted({*binds, *masks})


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


def environment(*, home: str, temporary: str, course: str) -> dict[str, str]:
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
        # There is no network: pip says so at once instead of trying again for a minute.
        "PIP_NO_INDEX": "1",
        "PIP_DISABLE_PIP_VERSION_CHECK": "1",
        **{f"{library}_NUM_THREADS": "1" for library in threads},
    }


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
        if way_inside() is not None:
            return None
        complaint = _trial(ways()[-1])
    except SandboxError as error:
        return str(error)
    except subprocess.TimeoutExpired:
        return "bubblewrap did not start a program within 60 seconds: the machine is too busy or bubblewrap is broken."
    return _explain(complaint or "")


@functools.cache
def way_inside() -> Way | None:
    """The best way that works on this host; None: there is none."""
    return next((way for way in ways() if _trial(way) is None), None)


@functools.cache
def _trial(way: Way) -> str | None:
    """Go that way into a sandbox and read there what a kernel must read; None if that works, else the complaint."""
    run = RunDirectory()
    try:
        run.show()
        found = importlib.util.find_spec("torch")
        files = [f"{COURSE}/transformer_lab/driver.py", *([found.origin] if found and found.origin else [])]
        arguments, kept = bwrap_arguments(way, run.path, ())
        plan = json.dumps({"try": True, "way": asdict(way), "files": files, "kept": kept})
        command = [sys.executable, "-I", "-S", str(run.path / KERNEL_MAIN.name), plan]
        done = subprocess.run(
            [_bwrap(), *arguments, "--", *command],
            env={},
            cwd="/",
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=60,
            **as_user(way),
        )
        return None if done.returncode == 0 else done.stderr.strip().splitlines()[-1] if done.stderr.strip() else "?"
    finally:
        run.remove()


def as_user(way: Way) -> dict[str, Any]:
    """Arguments for ``subprocess`` that start bubblewrap as whom it must run."""
    return {} if way.outside is None else {"user": way.outside, "group": way.outside, "extra_groups": []}


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
