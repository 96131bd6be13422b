"""What runs inside the sandbox: a warm parent of kernels, and the way from it to a kernel, which is in ``kernel_app.py``.

These two files are copied into the sandbox and started as ``python kernel_main.py PLAN``. They import nothing of the course,
and hold nothing that a learner must not read. ``PLAN`` is JSON and asks for one of three things:

``{"control": 7, "needed": [...], "preload": [...], "way": {...}}``
    A *parent*: it imports the modules of ``needed``, and of ``preload`` those that there are, and then makes a kernel for
    each request that arrives on the socket, by forking, so that a kernel starts with PyTorch and IPython loaded. It runs no
    learner's code and no operation of PyTorch (whose threads would not survive a fork), and gets to see no kernel's key: a
    request is a descriptor, which only the fork reads. Each fork enters namespaces of its own before anything of a
    learner's runs.
``{"limits": {...}, "sockets": {...}, "connection_file": ..., "message_bytes": ...}``
    One kernel in this very process, without the sandbox.
``{"try": true, "way": {...}}``
    Nothing but the way into a sandbox, to find out whether it works on this host.

``way`` says how a learner's process is cut off:

``nobody``   a user number: the parent was started by root, inside mounts that only root could make, and becomes this user.
``inner``    each fork enters user, process, mount, network, host name and inter-process namespaces of its own, with a
             private /proc, /tmp, /dev/shm and /dev/pts. Otherwise the parent becomes the one kernel that it is asked for.
"""

import contextlib
import ctypes
import fcntl
import gc
import importlib
import json
import os
import socket
import stat
import struct
import sys

#: Of <sched.h>, <sys/mount.h>, <linux/prctl.h>, <linux/capability.h> and <linux/if.h>.
NEWNS, NEWCGROUP, NEWUTS, NEWIPC, NEWUSER, NEWPID, NEWNET = (
    0x00020000, 0x02000000, 0x04000000, 0x08000000, 0x10000000, 0x20000000, 0x40000000,
)  # fmt: skip
RDONLY, NOSUID, NODEV, NOEXEC, REMOUNT, BIND, REC, PRIVATE = 1, 2, 4, 8, 32, 4096, 16384, 1 << 18
SET_DUMPABLE, CAPBSET_DROP, SET_NO_NEW_PRIVS = 4, 24, 38
CAPABILITY_VERSION, LAST_CAPABILITY = 0x20080522, 63
SIOCSIFFLAGS, IFF_UP, IFF_RUNNING = 0x8914, 0x1, 0x40
JOIN_SESSION_KEYRING, KEYCTL = 1, {"x86_64": 250, "aarch64": 219}

#: Of <sys/mman.h>: make huge pages of a piece of memory, now.
MADV_COLLAPSE = 25

#: A parent of so many kernels is likely to make many more, and what costs a few tenths of a second now is worth it.
MANY = 6

#: Inside, the learner's user and group have this number, whoever it is outside.
LEARNER = 1000

#: How many small files /tmp and /dev/shm hold.
FILES = 20_000

#: Where this file is.
FOLDER = os.path.dirname(os.path.abspath(__file__))

_libc = ctypes.CDLL(None, use_errno=True)


def main() -> None:
    plan = json.loads(sys.argv[1])
    sys.path[:] = [place for place in sys.path if place != FOLDER]  # IPython puts the working directory in its place
    way = plan.get("way", {})
    if way.get("nobody") is not None:
        become(way["nobody"])
    if plan.get("try"):
        try_out(way, plan["files"], plan["kept"])
    elif "control" in plan:
        serve(socket.socket(fileno=plan["control"]), plan["needed"], plan["preload"], way, plan["kept"])
    else:
        kernel_app().run(plan)


def kernel_app():
    """The module beside this file. It imports ipykernel, so that only who needs a kernel imports it.

    ipykernel does without the debugger where there is none; loading one takes longer than loading IPython.
    """
    sys.path.insert(0, FOLDER)
    absent = sys.modules.setdefault("debugpy", None) is None  # type: ignore[arg-type]
    try:
        return importlib.import_module("kernel_app")
    finally:
        sys.path.remove(FOLDER)
        if absent:
            del sys.modules["debugpy"]


# -------------------------------------------------------------------------------------------------------- the warm parent


def serve(control: socket.socket, needed: list[str], preload: list[str], way: dict, kept: list[str]) -> None:
    """Make kernels until the grader closes the socket."""
    for name in needed:
        importlib.import_module(name)
    for name in preload:
        module, _, function = name.partition(":")
        with contextlib.suppress(ImportError):
            __import__(module)
            if function:
                getattr(sys.modules[module], function)()
    kernel_app().App.instance().prepare()
    gc.collect()
    gc.freeze()  # a collection in a fork would copy every page that holds an object of the parent's
    control.send(b"ready")
    made = 0
    while True:
        _, descriptors, _, _ = socket.recv_fds(control, 1, 16)
        if not descriptors:
            return
        if not way["inner"]:
            control.close()
            start(descriptors, way, kept)
        made += 1
        if made == MANY:
            use_huge_pages()
        child = os.fork()
        if child == 0:
            control.close()
            with dying_loudly(descriptors):
                start(descriptors, way, kept)
        for descriptor in descriptors:
            os.close(descriptor)
        os.waitpid(child, 0)  # it ends as soon as it has made the kernel's first process


def use_huge_pages() -> None:
    """Let the memory of this process be held in pages of 2 MB, as far as the system can: a fork copies the table of pages."""
    with open("/proc/self/maps") as file:
        places = [line.split() for line in file]
    for addresses, rights, _, _, _, *name in places:
        if rights == "rw-p" and name in ([], ["[heap]"]):
            first, last = (int(address, 16) for address in addresses.split("-"))
            # Linux has it since 6.1; before, the call fails.
            _libc.madvise(ctypes.c_void_p(first), ctypes.c_size_t(last - first), MADV_COLLAPSE)


def start(descriptors: list[int], way: dict, kept: list[str]) -> None:
    """Become a kernel, or make one. ``descriptors``: the plan, the real stderr, a socket to the grader, then the sockets."""
    plan, stderr, report, *sockets = descriptors
    os.dup2(stderr, 2)
    if not way["inner"]:
        tell(report, os.getpid())
        wait_for_go(report)
        run(plan, sockets)
    enter_namespaces()
    first = os.fork()
    if first:
        tell(report, first)
        os._exit(0)
    wait_for_go(report)  # by now the grader has bounded this process and all that it will start
    wanted = read(plan)
    close_in(wanted["file_bytes"], kept)
    kernel = os.fork()
    if kernel == 0:
        with dying_loudly(descriptors):
            os.setsid()
            run(plan, sockets)
    # The first process of a process namespace: what loses its parent becomes its child, and all die with it.
    for descriptor in descriptors:
        os.close(descriptor)
    ended = 0
    while ended != kernel:
        ended, _ = os.wait()
    os._exit(0)


def run(plan: int, sockets: list[int]) -> None:
    wanted = read(plan)
    wanted["sockets"] = dict(zip(wanted["addresses"], sockets, strict=True))
    keep = {0, 1, 2, *sockets}
    for name in os.listdir("/proc/self/fd"):
        if int(name) not in keep:
            with contextlib.suppress(OSError):
                os.close(int(name))
    for folder in wanted["folders"]:
        os.makedirs(folder, exist_ok=True)
    os.chdir(wanted["folder"])
    with open(wanted["connection_file"], "w") as file:
        file.write(wanted["connection"])
    kernel_app().run(wanted)
    os._exit(0)


def read(descriptor: int) -> dict:
    return json.loads(os.pread(descriptor, os.fstat(descriptor).st_size, 0))


def tell(report: int, process: int) -> None:
    """Give the grader a handle on a process."""
    handle = os.pidfd_open(process)
    with socket.socket(fileno=os.dup(report)) as channel:
        socket.send_fds(channel, [b"process"], [handle])
    os.close(handle)


def wait_for_go(report: int) -> None:
    with socket.socket(fileno=os.dup(report)) as channel:
        if channel.recv(2) != b"go":
            os._exit(0)


@contextlib.contextmanager
def dying_loudly(descriptors: list[int]):
    """A fork must never return into the loop of its parent. Its last words are on the stderr that it was given."""
    try:
        yield
    except BaseException as error:
        os.write(2, f"{type(error).__name__}: {error}\n".encode(errors="replace"))
    os._exit(1)


# ------------------------------------------------------------------------------------------------------ the way inside


def call(name: str, *arguments) -> None:
    """A function of the C library that returns a negative number and sets errno when it fails."""
    if getattr(_libc, name)(*arguments) < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{name}: {os.strerror(number)}")


def mount(kind: str, target: str, flags: int, options: str = "") -> None:
    call("mount", kind.encode(), target.encode(), kind.encode(), ctypes.c_ulong(flags), options.encode())


def become(user: int) -> None:
    """From root of the host to a user without rights, keeping the mounts that only root could make."""
    mount("proc", "/proc", NOSUID | NODEV | NOEXEC)
    drop_bounding_set()
    os.setgroups([])
    os.setresgid(user, user, user)
    os.setresuid(user, user, user)
    call("prctl", SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    call("prctl", SET_DUMPABLE, 1, 0, 0, 0)  # else its own files in /proc would stay root's


def enter_namespaces() -> None:
    """Namespaces of its own for this process, and for its children those of processes too."""
    user, group = os.getuid(), os.getgid()
    call("unshare", NEWUSER | NEWNS | NEWPID | NEWIPC | NEWNET | NEWUTS)
    for name, text in (
        ("setgroups", "deny"),
        ("uid_map", f"{LEARNER} {user} 1"),
        ("gid_map", f"{LEARNER} {group} 1"),
    ):
        with open(f"/proc/self/{name}", "w") as file:
            file.write(text)


def close_in(file_bytes: int, kept: list[str]) -> None:
    """In new namespaces: private places, no rights, and no way to get any again.

    ``kept``: what must be seen although it lies in a place that is now private, as an installation of Python in /tmp does.
    """
    call("mount", b"none", b"/", None, ctypes.c_ulong(REC | PRIVATE), None)
    seen = {path: os.open(path, os.O_PATH) for path in kept}
    for place in ("/tmp", "/dev/shm"):
        mount("tmpfs", place, NOSUID | NODEV, f"size={file_bytes},nr_inodes={FILES},mode=1777")
    for path, descriptor in seen.items():
        if stat.S_ISDIR(os.fstat(descriptor).st_mode):
            os.makedirs(path)
        else:
            os.makedirs(os.path.dirname(path), exist_ok=True)
            os.close(os.open(path, os.O_CREAT))
        call("mount", f"/proc/self/fd/{descriptor}".encode(), path.encode(), None, ctypes.c_ulong(BIND | REC), None)
        os.close(descriptor)
    mount("devpts", "/dev/pts", NOSUID | NOEXEC, "newinstance,ptmxmode=0666,mode=620")
    mount("proc", "/proc", NOSUID | NODEV | NOEXEC)
    with open("/proc/sys/user/max_user_namespaces", "w") as file:  # in a further one it would be root again
        file.write("0")
    call("mount", b"none", b"/proc", None, ctypes.c_ulong(REMOUNT | BIND | RDONLY | NOSUID | NODEV | NOEXEC), None)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        fcntl.ioctl(any_socket, SIOCSIFFLAGS, struct.pack("16sh22x", b"lo", IFF_UP | IFF_RUNNING))
    with contextlib.suppress(
        OSError
    ):  # the names of the host's control groups; an old kernel has no namespace for them
        call("unshare", NEWCGROUP)
    forget_keys()
    drop_bounding_set()
    header, none = struct.pack("Ii", CAPABILITY_VERSION, 0), bytes(24)
    call("capset", ctypes.create_string_buffer(header), ctypes.create_string_buffer(none))
    call("prctl", SET_NO_NEW_PRIVS, 1, 0, 0, 0)


def forget_keys() -> None:
    """A keyring of its own: the grader's session may have one with secrets in it."""
    number = KEYCTL.get(os.uname().machine)
    if number is not None:  # fails where the system has no keys or forbids to ask for them
        _libc.syscall(number, JOIN_SESSION_KEYRING, None)


def drop_bounding_set() -> None:
    for capability in range(LAST_CAPABILITY + 1):
        _libc.prctl(CAPBSET_DROP, capability, 0, 0, 0)  # fails for those that this system does not know


def try_out(way: dict, files: list[str], kept: list[str]) -> None:
    """Go all the way, and read what a kernel will have to read."""
    if way["inner"]:
        enter_namespaces()
        child = os.fork()
        if child:
            sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
        close_in(1 << 20, kept)
    for name in files:
        with open(name, "rb") as file:
            file.read(1)


if __name__ == "__main__":
    main()
