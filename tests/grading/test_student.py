"""The one verb on a local and on a sandboxed student: the same arrays, for functions and for modules with sub-layers."""

import numpy as np
import pytest

from autograder import sandbox
from autograder.execute import run_cell
from autograder.student import LocalStudent, Probe, RemoteStudent, StudentError

SOURCE = '''
import torch
from torch import nn


def softmax(scores, dim=-1):
    return torch.softmax(scores, dim)


def pair(x, scale=2.0):
    return x * scale, {"shape": list(x.shape), "half": x.dtype == torch.float16}


class Residual(nn.Module):
    """x + sublayer(norm(x)), with the sub-layers as arguments of the call."""

    def __init__(self, dropout=0.0):
        super().__init__()
        self.gain = nn.Parameter(torch.ones(4))
        self.dropout = nn.Dropout(dropout)

    def forward(self, x, sublayer, norm):
        return x + self.gain * self.dropout(sublayer(norm(x)))


class Stack(nn.Module):
    """Sub-layers as members: the same one twice, then another."""

    def __init__(self, first, second):
        super().__init__()
        self.first, self.second = first, second

    def forward(self, x):
        return self.second(self.first(self.first(x)))


def slow(x):
    while True:
        pass


def wrong(x):
    raise ValueError("three heads do not fit")
'''


@pytest.fixture(scope="module")
def kernel(needs_sandbox):
    with sandbox.start(sandbox.Limits()) as kernel:
        assert run_cell(kernel, SOURCE, 120, 10_000).stopped == ""
        yield kernel


@pytest.fixture(scope="module")
def students(kernel):
    namespace: dict = {}
    exec(SOURCE, namespace)
    return LocalStudent(namespace), RemoteStudent(kernel)


def both(students, piece, *inputs, **options):
    local, remote = (student.run(piece, *inputs, **options) for student in students)
    assert_same(local, remote)
    return local


def assert_same(a, b):
    assert type(a) is type(b)
    if isinstance(a, np.ndarray):
        assert a.dtype == b.dtype
        np.testing.assert_array_equal(a, b)
    elif isinstance(a, dict):
        assert a.keys() == b.keys()
        for key in a:
            assert_same(a[key], b[key])
    elif isinstance(a, list):
        assert len(a) == len(b)
        for x, y in zip(a, b, strict=True):
            assert_same(x, y)
    else:
        assert a == b


X = np.random.default_rng(0).normal(size=(2, 3, 4))
W = np.random.default_rng(1).normal(size=(4, 4))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_function(students, dtype):
    output, grads, after = both(students, "softmax", X.astype(dtype), dim=1, want=("output", "input_grads", "inputs"))
    assert output.dtype == dtype
    assert np.allclose(output.sum(1), 1)
    assert np.array_equal(after[0], X.astype(dtype))
    assert grads[0].shape == X.shape


def test_several_results_and_keyword_arguments(students):
    output = both(students, "pair", X, scale=3.0)
    assert np.array_equal(output[0], X * 3)
    assert output[1] == {"shape": [2, 3, 4], "half": False}


@pytest.mark.parametrize("mode", ["eval", "train"])
def test_a_residual_wrapper_with_its_sublayers_as_probes(students, mode):
    sublayer, norm = Probe("linear", "sublayer", W, np.arange(4.0)), Probe("identity", "norm")
    gain = np.array([1.0, 2.0, 3.0, 4.0])
    output, calls, input_grads, grads, shapes, names, again = both(
        students,
        "Residual",
        X,
        sublayer,
        norm,
        init=(0.5,),
        state={"gain": gain},
        mode=mode,
        seed=3,
        want=("output", "calls", "input_grads", "parameter_grads", "parameter_shapes", "state_names", "again"),
    )
    inner = X @ W.T + np.arange(4.0)
    if mode == "eval":
        assert np.allclose(output, X + gain * inner)
        assert np.allclose(again, output)
    else:
        dropped = np.isclose(output, X)
        assert 0 < dropped.mean() < 1
        assert np.allclose(output, np.where(dropped, X, X + gain * inner * 2))
    assert np.allclose(calls["norm"][0][0], X)
    assert np.allclose(calls["sublayer"][0][0], X)
    assert input_grads[0].shape == X.shape
    assert input_grads[1] is None
    assert grads["gain"].shape == (4,)
    assert shapes == {"gain": [4]}
    assert names == ["gain"]


def test_a_sublayer_named_twice_is_one_object(students):
    shared, other = Probe("linear", "shared", W, np.zeros(4)), Probe("identity", "other")
    output, calls = both(students, "Stack", X, init=(shared, other), want=("output", "calls"))
    assert np.allclose(output, X @ W.T @ W.T)
    assert len(calls["shared"]) == 2
    assert len(calls["other"]) == 1


def test_errors_are_the_same_and_name_the_line(students):
    found = []
    for student in students:
        with pytest.raises(StudentError) as error:
            student.run("wrong", X)
        found.append((error.value.type_name, error.value.message))
        assert "wrong" in error.value.where
        with pytest.raises(StudentError, match="nowhere is not defined"):
            student.run("nowhere", X)
    assert found == [("ValueError", "three heads do not fit")] * 2


def test_a_call_without_end_is_interrupted_and_the_kernel_lives_on(kernel):
    student = RemoteStudent(kernel, seconds=1.0)
    with pytest.raises(StudentError) as error:
        student.run("slow", X)
    assert error.value.type_name == "Timeout"
    assert not student.lost
    assert np.allclose(RemoteStudent(kernel).run("softmax", X).sum(-1), 1)


def test_a_kernel_that_lies_gives_no_answer(kernel):
    for lie in (
        "__import__('transformer_lab.driver').driver.answer = lambda *a: 'nonsense'",
        "__import__('transformer_lab.driver').driver.answer = lambda *a: __import__('pickle').dumps(print)",
        "__import__('transformer_lab.driver').driver.answer = lambda *a: b'\\0\\0\\0\\2{}'",
        "__import__('transformer_lab.driver').driver.answer_in_base64 = lambda *a: 'no base64!'",
    ):
        assert run_cell(kernel, lie, 10, 1000).stopped == ""
        with pytest.raises(StudentError) as error:
            RemoteStudent(kernel).run("softmax", X)
        assert error.value.type_name == "BadAnswer"


def test_a_dead_kernel_is_noticed(needs_sandbox):
    with sandbox.start(sandbox.Limits()) as kernel:
        run_cell(kernel, "import os\ndef die(x):\n    os._exit(3)", 30, 1000)
        student = RemoteStudent(kernel)
        with pytest.raises(StudentError) as error:
            student.run("die", X)
        assert error.value.type_name == "KernelDied"
        assert student.lost


# ------------------------------------------------------------------------------------------------- over the own channel


@pytest.fixture
def own(needs_sandbox):
    with sandbox.start(sandbox.Limits()) as kernel:
        assert run_cell(kernel, SOURCE, 120, 10_000).stopped == ""
        yield kernel


def test_a_conversation_gives_what_messages_give(own):
    student = RemoteStudent(own)
    messages = [student.run("pair", X, scale=scale) for scale in (1.0, 2.0)]
    sent = []
    execute = own.client.execute
    own.client.execute = lambda *arguments, **named: sent.append(1) or execute(*arguments, **named)
    with student.conversation():
        spoken = [student.run("pair", X, scale=scale) for scale in (1.0, 2.0)]
        with pytest.raises(StudentError, match="three heads do not fit"):
            student.run("wrong", X)
    assert len(sent) == 1
    assert [repr(answer) for answer in spoken] == [repr(answer) for answer in messages]
    assert run_cell(own, "softmax", 10, 1000).stopped == ""  # and then the kernel is free again
    assert own.channel is not None


def test_a_call_without_end_ends_the_conversation_and_not_the_kernel(own):
    student = RemoteStudent(own, seconds=1.0)
    with student.conversation():
        with pytest.raises(StudentError) as error:
            student.run("slow", X)
        assert error.value.type_name == "Timeout"
        assert np.allclose(student.run("softmax", X).sum(-1), 1)
    assert not student.lost
    assert own.channel is None


@pytest.mark.parametrize(
    ("trick", "kind"),
    {
        "closes it": ("[os.close(f) for f in sockets()]", "BadAnswer"),
        "says too much": ("[os.write(f, b'\\xff' * 64) for f in sockets()]", "BadAnswer"),
        "answers another question": ("[os.write(f, struct.pack('!II', 7, 2) + b'{}') for f in sockets()]", "BadAnswer"),
        "says half": ("[os.write(f, struct.pack('!II', 1, 100)) for f in sockets()]; time.sleep(60)", "Timeout"),
        "raises an interrupt": ("raise_(KeyboardInterrupt)", "BadAnswer"),
        "raises what is no exception": ("raise_(GeneratorExit)", "BadAnswer"),
        "dies": ("os._exit(1)", "KernelDied"),
    }.values(),
    ids=str,
)
def test_what_a_piece_does_to_the_channel_is_an_answer_of_its_own(own, trick, kind):
    """Whatever it writes there counts for its own call at most, as it may answer that as it likes."""
    source = f"""
import os, struct, time, types
kernel = get_ipython().kernel
def sockets():
    return [kernel.answer_requests.args[0]]
def raise_(error):
    raise error
def trick(x):
    {trick}
    return x
"""
    assert run_cell(own, source, 30, 10_000).error == ""
    student = RemoteStudent(own, seconds=2.0)
    with student.conversation():
        with pytest.raises(StudentError) as error:
            student.run("trick", X)
        assert error.value.type_name == kind
        if kind != "KernelDied":
            assert np.allclose(student.run("softmax", X).sum(-1), 1)
    assert student.lost == (kind == "KernelDied")
