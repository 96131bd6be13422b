"""Signals that ask a long run to end, obeyed where nothing is half done.

with interrupts.watched() as asked:
    for batch in batches:
        step(batch)
        if asked.is_set():
            break
"""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator

#: Ctrl-C, and what a machine sends to a program that it is about to end.
SIGNALS = (signal.SIGINT, signal.SIGTERM)


@contextlib.contextmanager
def watched() -> Iterator[threading.Event]:
    """An event that the signals set, so that a step is never left half done; a second signal interrupts at once.

    A signal that this process was started to ignore, as ``nohup`` and a shell's ``&`` do, stays ignored.
    """
    pressed = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield pressed
        return
    before = {n: handler for n in SIGNALS if (handler := signal.getsignal(n)) not in (signal.SIG_IGN, None)}

    def restore() -> None:
        for number, handler in before.items():
            signal.signal(number, handler)

    def press(number, frame):
        pressed.set()
        restore()

    for number in before:
        signal.signal(number, press)
    try:
        yield pressed
    finally:
        restore()
