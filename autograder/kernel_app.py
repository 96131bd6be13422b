"""A learner's kernel: ipykernel's application, which a warm parent prepares as far as nothing of it is a learner's.

Copied into the sandbox beside ``kernel_main.py``, like which it imports nothing of the course. :meth:`App.prepare` runs before
the fork and makes neither a socket nor a thread, which would not survive it; :func:`run` runs after it.
"""

import contextlib
import fcntl
import hashlib
import inspect
import os
import resource
import select
import struct
import sys
import termios
import threading
from functools import partial
from typing import Any

import ipykernel.debugger  # noqa: F401 - here already, and without the debugger, when ipykernel looks for it
from ipykernel.compiler import XCachingCompiler, get_tmp_directory
from ipykernel.iostream import OutStream
from ipykernel.ipkernel import IPythonKernel
from ipykernel.kernelapp import IPKernelApp
from IPython.core.application import BaseIPythonApplication
from traitlets import Type, default

#: Of the shell: what a learner's cells were is kept in the notebook, and feedback shows no colours of a terminal.
OPTIONS = ["--HistoryManager.enabled=False", "--InteractiveShell.colors=nocolor"]


class _NoThread:
    """In place of the thread that hands messages to subshells, of which a graded notebook has none: a third of each cell."""

    parent_thread = threading.main_thread()

    def __bool__(self) -> bool:
        return False


class Stream(OutStream):
    """ipykernel's stdout or stderr. Flushing is a conversation of two threads, held four times for each cell."""

    def __init__(self, *args: Any, **kwargs: Any):
        self._taking = threading.Lock()
        super().__init__(*args, **kwargs)

    def flush(self) -> None:
        """Nothing where nothing is waiting: what was flushed before is on its way, and stays before what follows."""
        if self._is_master_process():
            self._take()
            if not self._buffers:
                return
        super().flush()

    def _watch_pipe_fd(self) -> None:
        """Take what is written past Python as it comes. Only waiting for it is done without the lock.

        So it is either in the pipe, where :meth:`flush` finds it, or somebody has it who will be done in a moment.
        """
        pipe: Any = self._fid
        while self._should_watch:
            select.select([pipe], [], [])
            self._take()

    def _take(self) -> None:
        with self._taking:
            size = bytearray(4)
            if self._fid is None or fcntl.ioctl(self._fid, termios.FIONREAD, size) or not any(size):
                return
            taken = os.read(self._fid, int.from_bytes(size, sys.byteorder))
            self.write(taken.decode(errors="replace"))
            with contextlib.suppress(OSError):  # the file that it went to before may be full
                os.write(self._original_stdstream_copy, taken)


class Compiler(XCachingCompiler):
    """Names cells, as ipykernel does for its debugger alone, but by a hash that is not computed in Python.

    And says of which module a cell is: else whoever asks, as each traceback does, looks through all modules for its file.
    """

    def get_code_name(self, raw_code: str, code: str, number: int) -> str:
        digest = hashlib.sha256(raw_code.encode(errors="surrogatepass")).hexdigest()
        name = os.path.join(get_tmp_directory(), f"{digest[:16]}.py")
        inspect.modulesbyfile[name] = "__main__"  # type: ignore[attr-defined]
        return name


class Kernel(IPythonKernel):
    """A kernel without debugger and without subshells, made with its shell before there are channels to it."""

    compiler_class = Type(Compiler)
    _supports_kernel_subshells = False
    _execute_sleep = 0.0  # a pause for outputs that might come too late, as none of ours does

    @classmethod
    def instance(cls, *args: Any, **kwargs: Any) -> Any:
        """The one kernel, with what is given set in it: where ipykernel's application would make it, it is there already."""
        made = cls.initialized()
        kernel = super().instance(*args, **kwargs)
        if made:
            kernel.connect(**kwargs)
        return kernel

    def connect(self, **traits: Any) -> None:
        """Set the channels, and where this process is."""
        for name, value in traits.items():
            if value is not None:
                setattr(self, name, value)
        shell: Any = self.shell
        here = os.getcwd()
        shell.starting_dir, shell.user_ns["_dh"][:] = here, [here]
        for publisher in (shell.displayhook, shell.display_pub):
            publisher.session, publisher.pub_socket = self.session, self.iopub_socket

    def start(self) -> None:
        shell: Any = self.shell
        shell.exit_now = False
        super(IPythonKernel, self).start()  # which leaves out the debugger


def read_once(shell: Any) -> None:
    """ipykernel transforms a cell and compiles it, to see whether it awaits something, and then IPython does both again.

    Let the second take what the first has found, and let neither compile what holds no such word.
    """
    transform, awaits = shell.transform_cell, shell.should_run_async
    found: list[tuple[str, str]] = []

    def transform_cell(raw_cell: str) -> str:
        if found:
            source, transformed = found.pop()
            if source == raw_cell:
                return transformed
        found.append((raw_cell, transform(raw_cell)))
        return found[0][1]

    def should_run_async(raw_cell: str, **how: Any) -> bool:
        return ("await" in raw_cell or "async" in raw_cell) and awaits(raw_cell, **how)

    shell.transform_cell, shell.should_run_async = transform_cell, should_run_async


def rehearse(shell: Any) -> None:
    """Make the tables that IPython and Python keep once they have run a cell and shown where an error came from."""
    shell.run_cell("None", silent=True)
    try:
        raise AssertionError
    except AssertionError as error:
        shell.InteractiveTB.structured_traceback(type(error), error, error.__traceback__)
        shell.InteractiveTB.tb = None


class _Begun(BaseIPythonApplication):
    """The part of an application's start that comes before all that is a kernel's: gone through once."""

    begun = False

    def initialize(self, argv: Any = None) -> None:
        if not self.begun:
            self.begun = True
            super().initialize(argv)


class App(IPKernelApp, _Begun):
    """ipykernel's application in two steps."""

    @default("kernel_class")
    def _kernel_class(self) -> type:
        return Kernel

    @default("outstream_class")
    def _outstream_class(self) -> str:
        return f"{__name__}.{Stream.__name__}"

    def prepare(self) -> None:
        """Read the options, make kernel and shell."""
        _Begun.initialize(self, OPTIONS)
        if not Kernel.initialized():
            self.shell = shell = Kernel.instance(parent=self, log=self.log, profile_dir=self.profile_dir).shell
            self.init_extensions()
            shell.ask_exit = lambda: None  # exit() would end a notebook's kernel once the cell is done
            read_once(shell)
            rehearse(shell)

    def init_connection_file(self) -> None:
        profile: Any = self.profile_dir
        os.makedirs(profile.location, exist_ok=True)  # /tmp is another one now
        profile.check_dirs()
        super().init_connection_file()

    def _run_startup_files(self) -> None:
        """There are none in a new profile, and none of the system's are asked for."""

    def init_control(self, context: Any) -> None:
        super().init_control(context)
        self.shell_channel_thread = _NoThread()


def run(plan: dict) -> None:
    """Be the kernel of a plan (``kernel_main.py``), which ends with this process."""
    sys.argv[1:] = []
    set_limits(plan["limits"])
    Kernel.answer_requests = staticmethod(partial(answer_requests, plan["sockets"].pop("answers")))  # type: ignore[attr-defined]
    take_over_sockets(plan["sockets"])
    cut_messages(plan["message_bytes"])
    seed_generators()
    app = App.instance()
    app.prepare()
    app.connection_file = plan["connection_file"]
    app.initialize()
    app.start()


def set_limits(limits: dict[str, int]) -> None:
    """Set each resource limit, soft and hard, to ``limits`` or to what the host allows, whichever is less.

    The address space is what may be added to what is there already, which a warm parent's is much of.
    """
    for name, value in limits.items():
        if name == "RLIMIT_AS":
            with open("/proc/self/statm") as file:
                value += int(file.read().split()[0]) * resource.getpagesize()
        which = getattr(resource, name)
        _, hard = resource.getrlimit(which)
        if hard != resource.RLIM_INFINITY:
            value = min(value, hard)
        resource.setrlimit(which, (value, value))


def take_over_sockets(sockets: dict[str, int]) -> None:
    """Make ZeroMQ listen on the inherited descriptor wherever it is told to bind one of these addresses."""
    import zmq

    bind = zmq.Socket.bind

    def bind_or_take_over(self, address):
        if address in sockets:
            self.setsockopt(zmq.USE_FD, sockets.pop(address))
            if not sockets:
                zmq.Socket.bind = bind  # type: ignore[method-assign]
        return bind(self, address)

    zmq.Socket.bind = bind_or_take_over  # type: ignore[method-assign]


def cut_messages(most: int) -> None:
    """Cut what a cell shows where it is made, since the grader doesn't receive larger messages.

    It is for those who print too much by mistake; whoever goes round it gains nothing.
    """
    from jupyter_client.session import Session

    serialize = Session.serialize

    def serialize_or_cut(self, msg, ident=None):
        frames = serialize(self, msg, ident)
        size = sum(len(frame) for frame in frames)
        if size <= most:
            return frames
        content, sentence = dict(msg["content"]), f"{size:,} bytes of output: too many, left out."
        if msg["msg_type"] == "stream":
            content["text"] = f"{content['text'][: most // 4]}\n{sentence}\n"
        elif "data" in content:
            content |= {"data": {"text/plain": sentence}, "metadata": {}}
        elif msg["msg_type"] == "error":
            content |= {"evalue": content["evalue"][:1000], "traceback": [sentence]}
        elif "user_expressions" in content:
            content["user_expressions"] = {}
        else:
            content = {}
        return serialize(self, msg | {"content": content, "buffers": []}, ident)

    Session.serialize = serialize_or_cut  # type: ignore[method-assign]


def seed_generators() -> None:
    """Let what a learner draws without a seed be the same whenever it is graded, and whoever's fork this is."""
    import random

    import numpy as np

    random.seed(0)
    np.random.seed(0)  # noqa: NPY002 - the generator that is seeded by itself
    if "torch" in sys.modules:  # whose own manual_seed is slow, as it seeds every GPU too
        sys.modules["torch"].default_generator.manual_seed(0)


def answer_requests(descriptor: int, namespace: dict) -> None:
    """Answer the requests that arrive on a socket until there are no more; one message of Jupyter's for many questions.

    A request is two numbers, its own and its length, and bytes of ``transformer_lab.driver``; so is the answer, which is
    empty where there is none. A request without bytes is the last one.
    """
    from transformer_lab import driver

    while (request := receive(descriptor)) is not None and request[1]:
        try:
            answer = bytes(memoryview(driver.answer(namespace, request[1])))
        except BaseException:  # as a KeyboardInterrupt is, of the learner's or of the grader's
            answer = b""
        left = memoryview(struct.pack("!II", request[0], len(answer)) + answer)
        try:
            while left:
                left = left[os.write(descriptor, left) :]
        except (OSError, KeyboardInterrupt):  # the grader has given up, and says so in both ways
            return


def receive(descriptor: int) -> tuple[int, bytes] | None:
    """The next request, None where there is none to come."""
    found, size = b"", 8
    while len(found) < size:
        try:
            part = os.read(descriptor, size - len(found))
        except (OSError, KeyboardInterrupt):
            return None
        if not part:
            return None
        found += part
        if len(found) == 8:
            size += struct.unpack("!II", found)[1]
    return struct.unpack("!II", found[:8])[0], found[8:]
