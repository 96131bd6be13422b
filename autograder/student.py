"""The one verb through which checks see a learner's pieces.

A check calls ``student.run(piece, …)`` with plain data and gets plain data. Behind it stands a namespace in this process
(:class:`LocalStudent`) or a kernel in a sandbox (:class:`RemoteStudent`); both run ``transformer_lab.driver`` and hand back
the same arrays.
"""

from __future__ import annotations

import ast
import base64
import contextlib
import itertools
import os
import queue
import signal
import struct
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from transformer_lab import driver, weights
from transformer_lab.driver import Probe, Same, Strided

__all__ = [
    "FILE_ERRORS",
    "Exchange",
    "LocalStudent",
    "Probe",
    "RemoteStudent",
    "Same",
    "Strided",
    "Student",
    "StudentError",
    "as_student",
]

#: A response larger than this is refused before it is decoded. Checks ask for thousands of numbers, and a kernel's message
#: beyond twice this is not even received (autograder.sandbox.MAX_MESSAGE_BYTES).
MAX_RESPONSE_BYTES = 8_000_000

#: A file beside the notebook that is larger than this is not opened, unless a check asks for less.
MAX_FILE_BYTES = 50_000_000

#: The type of a StudentError about a file beside the notebook: its message is a sentence of its own.
FILE_ERRORS = NOT_SUBMITTED, UNREADABLE = "NotSubmitted", "Unreadable"


NO_ANSWER, DIED = "the kernel did not answer the request", "the kernel died while the piece ran"


class StudentError(Exception):
    """The learner's piece raised, took too long or answered with something that is no plain data."""

    def __init__(self, type_name: str, message: str = "", where: str = ""):
        super().__init__(type_name, message, where)
        self.type_name, self.message, self.where = type_name, message, where

    def __str__(self) -> str:
        text = self.type_name + (f": {self.message}" if self.message else "")
        return text + (f" ({self.where})" if self.where else "")


@dataclass(frozen=True)
class Exchange:
    """One request and what came back: the wanted values, or an error."""

    request: dict
    wanted: dict | None
    error: StudentError | None


class Student:
    """A learner's pieces behind one verb. Subclasses say how a request travels (``exchange``).

    ``folder`` is where the files lie that are handed in beside the notebook; None where there are none to be looked for.
    """

    def __init__(self, folder: str | Path | None = None) -> None:
        self.transcript: list[Exchange] = []
        #: What each request is sent with besides: its stand-ins for helpers, a freer reading of names (driver.SETTINGS).
        self.setting: Callable[[dict], dict] | None = None
        self.folder = folder
        self._files: dict[str, bytes] = {}

    def file(self, name: str, max_bytes: int = MAX_FILE_BYTES) -> bytes:
        """The content of a file that was handed in beside the notebook, as it was when it was first asked for.

        It is read in this process, not in the learner's kernel, and never through a link.

        Parameters
        ----------
        name
            A plain file name.
        max_bytes
            A larger file is refused.

        Raises
        ------
        StudentError
            Its type is one of ``FILE_ERRORS`` and its message a sentence: the file is not there, is no regular file, is
            too large or cannot be read.
        """
        if name in ("", ".", "..") or Path(name).name != name:
            raise ValueError(f"{name!r} is not the name of a file beside the notebook.")
        if name not in self._files:
            try:
                if self.folder is None:
                    raise FileNotFoundError
                self._files[name] = weights.read_bytes(Path(self.folder) / name, max_bytes)
            except FileNotFoundError:
                sentence = (
                    f"`{name}` is not handed in: there is no such file beside the notebook{self._others(name)}. "
                    "The notebook's cell that trains writes it."
                )
                raise StudentError(NOT_SUBMITTED, sentence) from None
            except weights.WeightsError as error:
                raise StudentError(UNREADABLE, str(error)) from None
        return self._files[name]

    def _others(self, name: str) -> str:
        """Files of the same kind, one of which may have been meant."""
        found = []
        with contextlib.suppress(OSError):
            if self.folder is not None:
                with os.scandir(self.folder) as entries:
                    names = (entry.name for entry in itertools.islice(entries, 1000))
                    found = sorted(other for other in names if Path(other).suffix == Path(name).suffix)
        return f" (but {weights.listed(found)})" if found else ""

    def run(
        self,
        piece: str,
        *inputs: Any,
        init: tuple | None = None,
        state: dict | None = None,
        mode: str = "eval",
        want: str | tuple[str, ...] = "output",
        seed: int = 0,
        then: tuple | None = None,
        method: str | None = None,
        **kwargs: Any,
    ) -> Any:
        """Call a piece once and return what is wanted of the call, as plain data.

        Parameters
        ----------
        piece
            The piece's name. A function is called with ``inputs`` and ``kwargs``; a module is first constructed with
            ``init``, which may be ``()``.
        inputs, kwargs, init
            NumPy arrays (which arrive as tensors of their own), numbers, strings, None, lists of these, and
            :class:`Probe` where a sub-layer or a step function goes. An input may be the :class:`Same` tensor as one
            before it, or :class:`Strided`, laid out in memory as a transposed one.
        state
            Parameters to set before the call, by attribute path.
        mode
            ``"eval"`` or ``"train"``.
        want
            One name or several of ``driver.WANTS``; several give a list in their order.
        seed
            Seeds torch, NumPy and random before the call.
        then
            The inputs of a second call of the same function or module, whose result is wanted as ``"then"``.
        method
            The name of the module's method that is called in place of the module itself.

        Returns
        -------
        Arrays, numbers, lists and dictionaries. A tuple comes back as a list; what is no plain data as ``Opaque``.

        Raises
        ------
        StudentError
            The piece raised, is not defined, or took too long.
        """
        wants = (want,) if isinstance(want, str) else want
        unknown = set(wants) - set(driver.WANTS)
        if unknown:
            raise ValueError(f"want must be among {', '.join(driver.WANTS)}, not {', '.join(unknown)}.")
        request = {
            "piece": piece,
            "inputs": list(inputs),
            "kwargs": kwargs,
            "init": None if init is None else list(init),
            "state": state,
            "mode": mode,
            "want": list(wants),
            "seed": seed,
            "then": None if then is None else list(then),
        }
        if method is not None:
            request["method"] = method
        wanted = self.send(request)
        values = [wanted[name] for name in wants]
        return values[0] if isinstance(want, str) else values

    def send(self, request: dict) -> dict:
        """Send one request as it stands and keep it, with the answer, in ``transcript``."""
        try:
            setting = self.setting(request) if self.setting else {}
            wanted = self.read(self.exchange(driver.dumps(request | setting)), request["want"])
        except StudentError as error:
            self.transcript.append(Exchange(request, None, error))
            raise
        self.transcript.append(Exchange(request, wanted, None))
        return wanted

    @staticmethod
    def read(answer: bytes, wants: list[str]) -> dict:
        """The wanted values in an answer; StudentError where it holds an error, or nothing of the kind."""
        try:
            if len(answer) > MAX_RESPONSE_BYTES:
                raise ValueError("too large")
            response = driver.loads(answer)
            error = response.get("error")
            if error is not None:
                raise StudentError(*(str(error[key])[:500] for key in ("type", "message", "where")))
            wanted = response["wanted"]
            if set(wanted) != set(wants):
                raise ValueError("something else was answered")
            return wanted
        except StudentError:
            raise
        except Exception as error:  # whatever a hostile kernel may send
            raise StudentError("BadAnswer", f"the piece's result is no plain data ({type(error).__name__})") from None

    @contextlib.contextmanager
    def conversation(self) -> Iterator[None]:
        """Within it, requests may travel in a quicker way where there is one."""
        yield

    def exchange(self, request: bytes) -> bytes:
        """The answer to a request, both as ``transformer_lab.driver`` has them; StudentError where there comes none."""
        raise NotImplementedError


class LocalStudent(Student):
    """The pieces in ``namespace`` (any object with attributes, or a dictionary), run in this process.

    Parameters
    ----------
    namespace
        Where the pieces are.
    seconds
        Stop a call after this time (only in the main thread and where the system has interval timers).
    folder
        Where the files handed in beside the notebook are; the working directory otherwise. None: there are none.
    """

    def __init__(self, namespace: Any, seconds: float | None = None, folder: str | Path | None = "."):
        super().__init__(folder)
        self.namespace, self.seconds = namespace, seconds

    def exchange(self, request: bytes) -> bytes:
        with _time_limit(self.seconds):
            return driver.answer(self.namespace, request)


class RemoteStudent(Student):
    """The pieces in a Jupyter kernel.

    Parameters
    ----------
    kernel
        A running kernel: ``client`` (a blocking Jupyter client), ``interrupt()`` and ``is_alive()``; a ``channel`` and
        ``hang_up()``, if it has them (:class:`autograder.sandbox.Kernel`).
    seconds
        Interrupt a call after this time.
    folder
        The submission's folder, outside the sandbox, where the files handed in beside the notebook are.
    """

    #: How long an interrupted kernel may take to answer before it counts as hung.
    GRACE_SECONDS = 5.0

    def __init__(self, kernel: Any, seconds: float = 20.0, folder: str | Path | None = None):
        super().__init__(folder)
        self.kernel, self.seconds = kernel, seconds
        self.lost = False  # True once the kernel died or no longer answers
        self._talk: _Talk | None = None
        self._talking = False

    @contextlib.contextmanager
    def conversation(self) -> Iterator[None]:
        """Within it the kernel is kept waiting for requests, where it has a channel: each then takes a third of the time.

        Meanwhile nothing else can run in the kernel.
        """
        self._talking = True
        try:
            yield
        finally:
            self._talking = False
            if self._talk is not None and not self.lost:
                talk, self._talk = self._talk, None
                talk.end()
                with contextlib.suppress(StudentError):
                    if self._reply(self.kernel.client, talk.message, self.GRACE_SECONDS) is None:
                        self._interrupt(talk.message)

    def exchange(self, request: bytes) -> bytes:
        if self._talking and not self.lost and getattr(self.kernel, "channel", None) is not None:
            return self._ask(request)
        client = self.kernel.client
        text = base64.b64encode(request).decode("ascii")
        call = f"__import__('transformer_lab.driver', fromlist=['answer']).answer_in_base64(globals(), {text!r})"
        message = client.execute("", silent=True, store_history=False, user_expressions={"answer": call})
        reply = self._reply(client, message, self.seconds)
        if reply is None:
            raise self._interrupt(message)
        try:
            text = reply["content"]["user_expressions"]["answer"]["data"]["text/plain"]
            if len(text) > MAX_RESPONSE_BYTES:
                raise ValueError("too large")
            return base64.b64decode(ast.literal_eval(text), validate=True)
        except Exception:
            raise StudentError("BadAnswer", NO_ANSWER) from None

    def _ask(self, request: bytes) -> bytes:
        """Ask on the kernel's channel, which is given up as soon as anything there is not as it should be."""
        talk = self._talk = self._talk or _Talk(self.kernel)
        try:
            answer = talk.ask(request, self.seconds)
        except StudentError:
            self.lost = True
            raise
        except TimeoutError:
            self._talk = None
            self.kernel.hang_up()
            raise self._interrupt(talk.message) from None
        except (OSError, ValueError):
            self._talk = None
            self.kernel.hang_up()  # which ends the kernel's side too, as soon as the call does
            if not talk.ended and self._reply(self.kernel.client, talk.message, self.seconds) is None:
                raise self._interrupt(talk.message) from None
            answer = b""
        if not answer:
            raise StudentError("BadAnswer", NO_ANSWER)
        return answer

    def _interrupt(self, message: str) -> StudentError:
        """Interrupt what runs in the kernel: the error of a call that took too long, whether it then stopped or not."""
        self.kernel.interrupt()
        answered = self._reply(self.kernel.client, message, self.GRACE_SECONDS) is not None
        self.lost = not answered
        return StudentError("Timeout" if answered else "Hung", f"no result after {self.seconds:g} seconds")

    def _reply(self, client: Any, message: str, seconds: float) -> dict | None:
        """The reply to ``message``, None when there is none in time; StudentError when the kernel died."""
        deadline = time.monotonic() + seconds
        while (left := deadline - time.monotonic()) > 0:
            try:
                reply = client.shell_channel.get_msg(timeout=min(left, 0.5))
            except queue.Empty:
                if not self.kernel.is_alive():
                    self.lost = True
                    raise StudentError("KernelDied", DIED) from None
                continue
            if reply["parent_header"].get("msg_id") == message:
                return reply
        return None


class _Talk:
    """The grader's side of ``kernel_app.answer_requests``. What arrives is a learner's, and is measured before it is kept."""

    HEAD = struct.Struct("!II")
    CALL = "__import__('IPython').get_ipython().kernel.answer_requests(globals())"

    def __init__(self, kernel: Any):
        self.kernel, self.number, self.ended = kernel, 0, False
        call = {"answer": self.CALL}
        self.message = kernel.client.execute("", silent=True, store_history=False, user_expressions=call)

    def ask(self, request: bytes, seconds: float) -> bytes:
        """The answer to a request.

        Raises
        ------
        TimeoutError
            There was none in time.
        StudentError
            The kernel died.
        OSError, ValueError
            It is not answering requests any more, or sent something else than an answer.
        """
        self.number += 1
        deadline = time.monotonic() + seconds
        self.kernel.channel.settimeout(seconds)
        self.kernel.channel.sendall(self.HEAD.pack(self.number, len(request)) + request)
        number, length = self.HEAD.unpack(self._receive(self.HEAD.size, deadline))
        if number != self.number or length > MAX_RESPONSE_BYTES:
            raise ValueError("no answer")
        return self._receive(length, deadline)

    def end(self) -> None:
        with contextlib.suppress(OSError):
            self.kernel.channel.sendall(self.HEAD.pack(0, 0))

    def _receive(self, size: int, deadline: float) -> bytes:
        channel, found = self.kernel.channel, bytearray()
        while len(found) < size:
            left = deadline - time.monotonic()
            if left <= 0:
                raise TimeoutError
            channel.settimeout(min(left, 0.5))
            try:
                part = channel.recv(min(size - len(found), 1 << 20))
            except TimeoutError:
                part = None
            if part:
                found += part
            elif not self.kernel.is_alive():
                raise StudentError("KernelDied", DIED)
            elif part is not None or self._has_ended():
                raise ValueError("no answer")
        return bytes(found)

    def _has_ended(self) -> bool:
        """Whether the kernel has gone back to its other messages."""
        with contextlib.suppress(queue.Empty):
            reply = self.kernel.client.shell_channel.get_msg(timeout=0)
            self.ended = reply["parent_header"].get("msg_id") == self.message
        return self.ended


def as_student(student: Any) -> Student:
    """``student`` itself, or any namespace, module or dictionary as a :class:`LocalStudent`."""
    return student if isinstance(student, Student) else LocalStudent(student)


@contextlib.contextmanager
def _time_limit(seconds: float | None):
    timers = hasattr(signal, "setitimer") and threading.current_thread() is threading.main_thread()
    if not seconds or not timers:
        yield
        return

    def stop(signum, frame):
        raise TimeoutError(f"no result after {seconds:g} seconds")

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
