"""Trainings in processes of their own, with something that goes wrong in them: what ``test_faults.py`` sends orders to.

    python -m tests.lab.trainings FOLDER

reads an order a line, as JSON, and runs ``python -m transformer_lab WORDS`` in a fork of itself, which has PyTorch and a
small corpus loaded already. It answers with the number of the process at once, and when that has ended with its exit status
(negative: the signal that ended it), with what it wrote, and with the digests of the files that lie in FOLDER.
"""

from __future__ import annotations

import hashlib
import json
import os
import resource
import signal
import sys
import threading
import time
import traceback
import zlib
from contextlib import suppress
from pathlib import Path

import torch
from tqdm import tqdm

from transformer_lab import __main__, translation
from transformer_lab.data import default_corpus

STEPS = 24
EVERY = 4
CONFIG = translation.Config(
    d_model=16, num_heads=2, d_ff=32, num_layers=1, dropout=0.1, batch_size=8, rate=0.01, warmup=5, steps=STEPS
)
#: What is too large for a disk of any machine is a disk of this size: a few checkpoints.
DISK = 2_000_000
BALLAST = "ballast"


def prepare() -> None:
    """The command's default corpus and model become small; which weights are best is a matter of luck, as it is at first."""
    torch.set_num_threads(1)
    tqdm.monitor_interval = 0  # a thread of its own would not live on in a fork
    corpus = default_corpus(60, 3, 2)
    translation.default_corpus = lambda: corpus
    translation.fresh_pairs = lambda epoch: corpus.train
    translation.GRADED = CONFIG
    translation._share_exact = lambda theirs, pairs: zlib.crc32(repr(theirs).encode()) / 2**32
    # What PyTorch imports with its first optimiser, every fork would import again.
    translation.Translator(translation.Task.default(fresh=False), CONFIG).trainer(samples=0).train(1, progress=False)


def main(folder: Path) -> None:
    prepare()
    for line in sys.stdin:
        order = json.loads(line)
        out, err = (folder.parent / name for name in ("out", "err"))
        pid = os.fork()
        if not pid:
            os._exit(_run(order, folder, out, err))
        print(json.dumps({"pid": pid}), flush=True)
        status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        digests = {
            path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in folder.rglob("*") if path.is_file()
        }
        history = folder / "history.csv"
        answer = {
            "status": status,
            "out": out.read_text(),
            "err": err.read_text(),
            "files": digests,
            "history": history.read_text() if history.is_file() else "",
        }
        print(json.dumps(answer), flush=True)


def _run(order: dict, folder: Path, out: Path, err: Path) -> int:
    """In the fork: the command, with its fault."""
    for path, number in ((out, 1), (err, 2)):
        os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), number)
    tqdm.set_lock(threading.RLock())  # its own lock is shared among forks, and kept by one that is killed
    with suppress(FileNotFoundError):
        (folder / BALLAST).unlink()
    for name, argument in order.get("faults", []):
        FAULTS[name](folder, **argument)
    try:
        status = __main__.main([*order["words"], "--folder", str(folder)])
    except SystemExit as error:
        status = int(error.code or 0)
    except BaseException:
        traceback.print_exc()
        status = 1
    sys.stdout.flush()
    sys.stderr.flush()
    return status


# ------------------------------------------------------------------------------------------------------------- faults


def _at_steps(steps: list[int], act) -> None:
    """Call ``act`` when the loss of the process's n-th batch is asked for, n from 1; parts of a batch count too."""
    before, calls = translation.Translator.loss, 0

    def loss(self, model, batch):
        nonlocal calls
        calls += 1
        if calls in steps:
            act()
        return before(self, model, batch)

    translation.Translator.loss = loss


def receive(folder: Path, name: str, steps: list[int]) -> None:
    """The process gets a signal at its n-th step, and has noticed it before it goes on."""

    def act():
        number, handler = getattr(signal, name), signal.getsignal(getattr(signal, name))
        os.kill(os.getpid(), number)
        deadline = time.monotonic() + 10  # another thread may have been told: Python then comes to it a little later
        while signal.getsignal(number) is handler and time.monotonic() < deadline:
            time.sleep(0.01)

    _at_steps(steps, act)


def need(folder: Path, steps: list[int], error: str = "torch") -> None:
    """The n-th loss asks for more memory than there is."""

    def act():
        raise MemoryError if error == "python" else torch.OutOfMemoryError("Tried to allocate 20.00 GiB.")

    _at_steps(steps, act)


def need_in_evaluation(folder: Path, number: int) -> None:
    """The n-th evaluation asks for more memory than there is."""
    before, calls = translation.Translator.translate, 0

    def translate(self, *sentences, **options):
        nonlocal calls
        calls += len(sentences) == 3  # the validation part, and neither samples nor the test part
        if calls == number:
            raise torch.OutOfMemoryError("Tried to allocate 20.00 GiB.")
        return before(self, *sentences, **options)

    translation.Translator.translate = translate


def fill(folder: Path, steps: list[int]) -> None:
    """At the n-th step somebody fills the disk, but for a few bytes."""

    def act():
        folder.mkdir(exist_ok=True)
        size = os.statvfs(folder)
        if size.f_blocks * size.f_frsize > DISK + 100_000:  # a large disk: files of this process may not grow instead
            resource.setrlimit(resource.RLIMIT_FSIZE, (1000, resource.RLIM_INFINITY))
            return
        with suppress(OSError), (folder / BALLAST).open("wb", buffering=0) as file:
            while True:
                file.write(bytes(512))

    _at_steps(steps, act)


def empty(folder: Path, steps: list[int]) -> None:
    """At the n-th step there is room again."""

    def act():
        resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        (folder / BALLAST).unlink(missing_ok=True)

    _at_steps(steps, act)


def die(folder: Path, call: str, number: int, after: bool) -> None:
    """The process is killed right before or after its n-th ``os.fsync``, ``Path.replace`` or ``Path.unlink``."""
    owner = os if call == "fsync" else Path
    before, calls = getattr(owner, call), 0

    def mortal(*given, **named):
        nonlocal calls
        calls += 1
        if calls == number and not after:
            os.kill(os.getpid(), signal.SIGKILL)
        result = before(*given, **named)
        if calls == number:
            os.kill(os.getpid(), signal.SIGKILL)
        return result

    setattr(owner, call, mortal)


def clean(folder: Path) -> None:
    """No fault: what lies in the folder is removed, and nothing is run."""
    for path in sorted(folder.rglob("*"), reverse=True):
        path.unlink()
    os._exit(0)


FAULTS = {one.__name__: one for one in (receive, need, need_in_evaluation, fill, empty, die, clean)}

if __name__ == "__main__":
    main(Path(sys.argv[1]))
