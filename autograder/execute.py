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


@dataclass
class Ran:
    """The outputs of a cell, and why it did not end as it should: ``timeout``, ``hung``, ``died``, or nothing."""

    outputs: list[NotebookNode] = field(default_factory=list)
    stopped: str = ""


def run_cell(kernel: Any, source: str, seconds: float, output_bytes: int) -> Ran:
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
        What exceeds this is thrown away with a sentence, and the cell is interrupted.
    """
    client, ran = kernel.client, Ran()
    message = client.execute(source, allow_stdin=False, store_history=True, stop_on_error=False)
    deadline, room, flooded = time.monotonic() + seconds, output_bytes, False
    interrupted = ""
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
            received = client.get_iopub_msg(timeout=min(left, 0.5))
        except queue.Empty:
            if not kernel.is_alive():
                ran.stopped = "died"
                break
            continue
        if received["parent_header"].get("msg_id") != message:
            continue
        kind, content = received["msg_type"], received["content"]
        if kind == "status" and content.get("execution_state") == "idle":
            ran.stopped = "timeout" if interrupted == "timeout" else ""
            break
        room -= _size(content)
        if room < 0:
            if not flooded:
                flooded, interrupted = True, "output"
                ran.outputs.append(
                    _note(f"More than {output_bytes:,} bytes of output: the rest is left out and the cell stopped.")
                )
                kernel.interrupt()
                deadline = min(deadline, time.monotonic() + GRACE_SECONDS)
            continue
        _collect(ran.outputs, kind, received)
    if ran.stopped in ("", "timeout"):
        _drain_reply(client, message)
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
        output = nbformat.v4.output_from_msg(received)
        nbformat.validate(output, ref="output", version=4)
    except Exception:  # a message that a kernel made up
        return
    last = outputs[-1] if outputs else None
    if kind == "stream" and last is not None and last.output_type == "stream" and last.name == output.name:
        last.text += output.text
    else:
        outputs.append(output)


def _size(content: Any) -> int:
    if isinstance(content, str):
        return len(content)
    if isinstance(content, dict):
        return sum(_size(value) for value in content.values())
    if isinstance(content, (list, tuple)):
        return sum(_size(value) for value in content)
    return 8


def _drain_reply(client: Any, message: str) -> None:
    deadline = time.monotonic() + GRACE_SECONDS
    while time.monotonic() < deadline:
        try:
            reply = client.get_shell_msg(timeout=0.5)
        except queue.Empty:
            continue
        if reply["parent_header"].get("msg_id") == message:
            return
