"""One cell in a real sandboxed kernel: its outputs, and every way in which it can end."""

import time

import pytest

from autograder import sandbox
from autograder.execute import run_cell


@pytest.fixture(scope="module")
def kernel(needs_sandbox):
    with sandbox.start(sandbox.Limits()) as kernel:
        yield kernel


def text(ran) -> str:
    return "".join(output.get("text", "") for output in ran.outputs)


def test_outputs_come_in_order_and_streams_are_joined(kernel):
    ran = run_cell(kernel, "print('a')\nprint('b')\n1 + 1", 20, 10_000)
    assert [output.output_type for output in ran.outputs] == ["stream", "execute_result"]
    assert ran.outputs[0].text == "a\nb\n"
    assert ran.outputs[1].data["text/plain"] == "2"
    assert ran.stopped == ""


@pytest.mark.parametrize("source", ["1 / 0", "def f(:", "raise SystemExit(1)", "input()"])
def test_an_error_is_an_output_and_the_kernel_goes_on(kernel, source):
    ran = run_cell(kernel, source, 20, 10_000)
    assert "error" in [output.output_type for output in ran.outputs]
    assert run_cell(kernel, "'here'", 20, 1000).outputs[0].data["text/plain"] == "'here'"


def test_a_loop_is_stopped_in_time(kernel):
    began = time.monotonic()
    ran = run_cell(kernel, "print('on')\nwhile True: pass", 1.0, 10_000)
    assert ran.stopped == "timeout"
    assert text(ran).startswith("on\n")
    assert "Stopped after 1 seconds." in text(ran)
    assert time.monotonic() - began < 10


def test_a_flood_is_cut_and_stopped(kernel):
    ran = run_cell(kernel, "while True: print('x' * 1000)", 60, 50_000)
    assert len(text(ran)) < 60_000
    assert "bytes of output" in text(ran)
    assert run_cell(kernel, "2", 20, 1000).outputs[0].data["text/plain"] == "2"


def test_what_cannot_be_interrupted_is_hung(needs_sandbox):
    with sandbox.start(sandbox.Limits()) as kernel:
        source = "import signal\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\nwhile True: pass"
        assert run_cell(kernel, source, 1.0, 1000).stopped == "hung"


def test_death_is_noticed(needs_sandbox):
    with sandbox.start(sandbox.Limits()) as kernel:
        assert run_cell(kernel, "import os; os._exit(1)", 30, 1000).stopped == "died"
