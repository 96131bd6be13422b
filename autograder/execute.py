"""Run one cell in a kernel within limits, and keep what it printed within limits too."""

from __future__ import annotations

import queue
import time
from dataclasses import dataclass, field
from typing import Any

import nbformat
from nbformat import NotebookNode

#: After an interrupt a kernel gets this long to stop before it counts as hung.
GRACE_SECONDS = 5.0

#: An error that is no longer than this is kept whatever was printed before it.
ERROR_BYTES = 20_000

#: A cell that prints so many times what is kept is stopped; up to that it only prints in vain.
FLOOD = 20


@dataclass
class Ran:
    """The outputs of a cell, and how it ended.

    ``stopped`` says why it did not end as it should: ``timeout``, ``hung``, ``died``, ``flood``, or nothing. ``error`` is
    the name of the exception that it ended with, as the kernel tells it, and ``bytes`` the size of what was kept.
    """

    outputs: list[NotebookNode] = field(default_factory=list)
    stopped: str = ""
    error: str = ""
    bytes: int = 0

    @property
    def out_of_memory(self) -> bool:
        """Whether the exception says that there was not enough memory."""
        return self.error == "MemoryError" or any(
            "allocate memory" in str(output.get("evalue")) for output in self.outputs if output.output_type == "error"
        )


def run_cell(kernel: Any, source: str, seconds: float, output_bytes: int, room: int | None = None) -> Ran:
    """Run ``source`` and collect its outputs.

    Parameters
    ----------
    kernel
        A running kernel with ``client``, ``interrupt()`` and ``is_alive()``.
    source
        The cell's text.
    seconds
        The cell is interrupted after this time; ``stopped`` says whether it obeyed (``timeout``) or not (``hung``).
    output_bytes
        What exceeds this is thrown away with a sentence; ``FLOOD`` times as much, and the cell is interrupted.
    room
        What is left of the bytes of a notebook, where that is less.
    """
    client, ran = kernel.client, Ran()
    message = client.execute(source, allow_stdin=False, store_history=True, stop_on_error=False)
    deadline, size = time.monotonic() + seconds, 0
    most = output_bytes if room is None else max(0, min(room, output_bytes))
    full, interrupted = False, ""
    while True:
        left = deadline - time.monotonic()
        if left <= 0:
            if interrupted:
                ran.stopped = "hung"
                break
            interrupted = "timeout"
            kernel.interrupt()
            deadline = time.monotonic() + GRACE_SECONDS
            continue
        try:
            received = client.iopub_channel.get_msg(timeout=min(left, 0.5))
            kind, content = str(received["msg_type"]), received["content"]
            if received["parent_header"].get("msg_id") != message or kind == "execute_input":
                continue
        except queue.Empty:
            if not kernel.is_alive():
                ran.stopped = "died"
                break
            continue
        except Exception:  # a message that a kernel made up
            continue
        if kind == "status" and content.get("execution_state") == "idle":
            ran.stopped = interrupted
            break
        if kind == "error":
            ran.error = str(content.get("ename"))
        size += _size(content)
        if size <= most or (kind == "error" and _size(content) <= ERROR_BYTES):
            ran.bytes = size
            _collect(ran.outputs, kind, received)
            continue
        if not full:
            full = True
            told = f"More than {most:,} bytes of output: the rest is left out." if most else "No room: output left out."
            ran.outputs.append(_note(told))
        if size > FLOOD * output_bytes and not interrupted:
            interrupted = "flood"
            ran.outputs.append(_note("The cell was stopped, because it printed without end."))
            kernel.interrupt()
            deadline = min(deadline, time.monotonic() + GRACE_SECONDS)
    if ran.stopped not in ("hung", "died"):
        _drain_reply(kernel, message)
    if ran.stopped == "timeout":
        ran.outputs.append(_note(f"Stopped after {seconds:g} seconds."))
    return ran


def error_output(name: str, message: str) -> NotebookNode:
    return nbformat.v4.new_output("error", ename=name, evalue=message, traceback=[f"{name}: {message}"])


def _note(text: str) -> NotebookNode:
    return nbformat.v4.new_output("stream", name="stdout", text=text + "\n")


def _collect(outputs: list[NotebookNode], kind: str, received: dict) -> None:
    if kind not in ("stream", "display_data", "execute_result", "error"):
        return
    try:
        output = nbformat.from_dict(_clean(nbformat.v4.output_from_msg(received)))  # which asks whether it is an output
    except Exception:  # a message that a kernel made up
        return
    last = outputs[-1] if outputs else None
    if kind == "stream" and last is not None and last.output_type == "stream" and last.name == output.name:
        last.text += output.text
    else:
        outputs.append(output)


def _clean(value: Any) -> Any:
    """The same, in texts that a file can hold: no half of a surrogate pair."""
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode()
    if isinstance(value, dict):
        return {_clean(key): _clean(item) for key, item in value.items()}
    return [_clean(item) for item in value] if isinstance(value, (list, tuple)) else value


def _size(content: Any) -> int:
    if isinstance(content, str):
        return len(content)
    if isinstance(content, dict):
        return sum(_size(value) for value in content.values())
    if isinstance(content, (list, tuple)):
        return sum(_size(value) for value in content)
    return 8


def _drain_reply(kernel: Any, message: str) -> None:
    client = kernel.client
    deadline = time.monotonic() + GRACE_SECONDS
    while time.monotonic() < deadline:
        try:
            reply = client.shell_channel.get_msg(timeout=0.5)
            if reply["parent_header"].get("msg_id") == message:
                return
        except queue.Empty:
            if not kernel.is_alive():
                return
        except Exception:  # a message that a kernel made up
            continue
