"""The want ``torch_calls``: which torch functions a piece calls, from which of its lines."""

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

from transformer_lab import driver, pieces
from transformer_lab.driver import Probe

SCORES = np.ones((2, 3), dtype=np.float32)


def calls(namespace, piece, *inputs, **changes):
    request = {"piece": piece, "inputs": list(inputs), "kwargs": {}, "init": None, "state": None, "mode": "eval"}
    request |= {"want": ["torch_calls"], "seed": 0, "then": None} | changes
    return driver.loads(driver.answer(namespace, driver.dumps(request)))["wanted"]["torch_calls"]


def test_functions_methods_and_operators_are_named_as_one_writes_them():
    spellings = {
        "torch.softmax": lambda x: torch.softmax(x, -1),
        "torch.nn.functional.softmax": lambda x: F.softmax(x, -1),
        "torch.Tensor.softmax": lambda x: x.softmax(-1),
        "torch.special.softmax": lambda x: torch.special.softmax(x, -1),
        "torch._softmax": lambda x: torch._softmax(x, -1, False),
        "torch.ops.aten.softmax": lambda x: torch.ops.aten.softmax.int(x, -1),
        "torch.nn.Softmax": lambda x: nn.Softmax(-1)(x),
        "torch.nn.functional.scaled_dot_product_attention": lambda x: F.scaled_dot_product_attention(x, x, x),
    }
    for name, piece in spellings.items():
        found = calls({"piece": piece}, "piece", SCORES)
        assert name == found[0][0], found
        assert found[0][1].startswith("line "), found


def test_a_call_has_the_learners_line_and_the_functions_around_it(tmp_path):
    (tmp_path / "answers.py").write_text(
        "import torch\n\nclass Shares:\n    def of(self, x):\n        return torch.softmax(x, -1)\n\n"
        "def piece(x):\n    for _ in range(3):\n        y = Shares().of(x)\n    return y + 1\n"
    )
    found = calls(pieces.load(tmp_path), "piece", SCORES)
    assert found == [
        ["torch.softmax", "line 5 of of: return torch.softmax(x, -1)", ["Shares.of", "piece"]],
        ["torch.Tensor.add", "line 10 of piece: return y + 1", ["piece"]],
    ]


def test_layers_are_named_by_the_class_of_pytorch_that_they_extend():
    class Own(nn.MultiheadAttention):
        pass

    class Piece(nn.Module):
        def __init__(self):
            super().__init__()
            self.attention = Own(4, 2, batch_first=True)

        def forward(self, x):
            return self.attention(x, x, x)[0]

    names = [name for name, _, _ in calls({"Piece": Piece}, "Piece", np.ones((1, 3, 4), np.float32), init=[])]
    assert names[0] == "torch.nn.MultiheadAttention"
    assert "torch.nn.functional.multi_head_attention_forward" in names


def test_nothing_of_the_trace_is_left_when_a_piece_raises():
    def piece(x):
        raise RuntimeError("no")

    request = {"piece": "piece", "inputs": [SCORES], "kwargs": {}, "init": None, "state": None, "mode": "eval"}
    answer = driver.loads(driver.answer({"piece": piece}, driver.dumps(request | {"want": ["torch_calls"], "seed": 0})))
    assert answer["error"]["message"] == "no"
    assert not nn.modules.module._global_forward_pre_hooks
    assert torch.overrides._get_current_function_mode_stack() == []


def test_a_trace_beside_other_wants_changes_none_of_them():
    piece = {"piece": lambda x, layer: layer(x) * 2}
    request = {"piece": "piece", "inputs": [SCORES, Probe("identity", "layer")], "kwargs": {}, "init": None}
    request |= {"state": None, "mode": "eval", "want": ["output", "input_grads"], "seed": 0}
    plain = driver.run(piece, request)
    traced = driver.run(piece, request | {"want": [*request["want"], "torch_calls"]})
    assert torch.equal(plain["output"], traced["output"])
    assert torch.equal(plain["input_grads"][0], traced["input_grads"][0])
    assert [name for name, _, _ in traced["torch_calls"]] == ["torch.Tensor.mul"]
