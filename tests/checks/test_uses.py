"""Reading a notebook's source: a built-in is found under every name, and nothing else is taken for one."""

import time

import pytest

from autograder import recreates, uses
from transformer_lab.cells import Cell

SETUP = "import math\n\nimport torch\nimport torch.nn.functional as F\nfrom torch import Tensor, nn\n"
OWN = "    powers = (x - x.amax(dim, keepdim=True)).exp()\n    return powers / powers.sum(dim, keepdim=True)\n"
PIECES = ("softmax", "scaled_dot_product_attention", "SelfAttention", "MultiHeadAttention")


def found(*sources, piece="softmax"):
    """``(name, number of the cell, line)`` of each use in cells that follow the setup, which is cell 0."""
    cells = [Cell(number, "", source, True) for number, source in enumerate((SETUP, *sources))]
    seen = uses.Source(cells).uses(piece, recreates.targets(piece), PIECES)
    return [(use.name, use.cell.number, use.line) for use in seen]


def softmax(body):
    return f"def softmax(x, dim=-1):\n    {body}\n"


ALIASES = {
    "as it is": ("torch.softmax", [softmax("return torch.softmax(x, dim)")]),
    "functional": ("torch.nn.functional.softmax", [softmax("return F.softmax(x, dim)")]),
    "the long way": ("torch.nn.functional.softmax", [softmax("return torch.nn.functional.softmax(x, dim)")]),
    "through nn": ("torch.nn.functional.softmax", [softmax("return nn.functional.softmax(x, dim)")]),
    "module under another name": (
        "torch.nn.functional.softmax",
        ["import torch.nn.functional as fn", softmax("return fn.softmax(x, dim)")],
    ),
    "function under another name": (
        "torch.nn.functional.softmax",
        ["from torch.nn.functional import softmax as s", softmax("return s(x, dim)")],
    ),
    "another module of PyTorch": (
        "torch.nn.Softmax",
        ["from torch.nn.modules.activation import Softmax", softmax("return Softmax(dim)(x)")],
    ),
    "star import": (
        "torch.nn.functional.softmax",
        ["from torch.nn.functional import *", "theirs = softmax", softmax("return theirs(x, dim)")],
    ),
    "import inside": (
        "torch.nn.functional.softmax",
        [softmax("from torch.nn import functional\n    return functional.softmax(x, dim)")],
    ),
    "local name": ("torch.softmax", [softmax("f = torch.softmax\n    return f(x, dim)")]),
    "local name of a module": ("torch.softmax", [softmax("t = torch\n    return t.softmax(x, dim)")]),
    "method": ("torch.Tensor.softmax", [softmax("return x.softmax(dim)")]),
    "method of an expression": ("torch.Tensor.softmax", [softmax("return (x * 1.0).softmax(dim)")]),
    "method of an attribute": (
        "torch.Tensor.log_softmax",
        ["class C:\n    def f(self): return self.x.log_softmax(0)", softmax("return C().f()")],
    ),
    "unbound method": ("torch.Tensor.softmax", [softmax("return Tensor.softmax(x, dim)")]),
    "logarithm": ("torch.log_softmax", [softmax("return torch.log_softmax(x, dim).exp()")]),
    "special": ("torch.special.softmax", [softmax("return torch.special.softmax(x, dim)")]),
    "operator": ("torch.softmax", [softmax("return torch.ops.aten.softmax.int(x, dim)")]),
    "private": ("torch.softmax", [softmax("return torch._softmax(x, dim, False)")]),
    "getattr": ("torch.softmax", [softmax('return getattr(torch, "softmax")(x, dim)')]),
    "layer": ("torch.nn.Softmax", [softmax("return nn.Softmax(dim=dim)(x)")]),
    "the piece is an alias": ("torch.nn.functional.softmax", ["softmax = F.softmax"]),
    "the piece is imported": ("torch.nn.functional.softmax", ["from torch.nn.functional import softmax"]),
    "the piece is a lambda": ("torch.softmax", ["softmax = lambda x, dim=-1: torch.softmax(x, dim)"]),
    "the piece is a layer": ("torch.nn.Softmax", ["softmax = nn.Softmax(dim=-1)"]),
    "in a tuple": ("torch.softmax", ["softmax, other = torch.softmax, 3"]),
    "partial": (
        "torch.softmax",
        ["from functools import partial\nlast = partial(torch.softmax, dim=-1)", softmax("return last(x)")],
    ),
    "wrapped": ("torch.softmax", [softmax("return torch.softmax(x, dim)") + "softmax = torch.no_grad()(softmax)"]),
    "decorated": ("torch.softmax", ["@torch.no_grad()\n" + softmax("return torch.softmax(x, dim)")]),
    "passed on": ("torch.softmax", [softmax("return torch.vmap(torch.softmax)(x, dim=dim)")]),
    "nested": ("torch.softmax", [softmax("def inner(y): return torch.softmax(y, dim)\n    return inner(x)")]),
    "comprehension": ("torch.softmax", [softmax("return torch.stack([torch.softmax(r, 0) for r in x])")]),
    "in a branch": ("torch.softmax", ["if True:\n    def softmax(x, dim=-1):\n        return torch.softmax(x, dim)"]),
    "builtin pieces": (
        "transformer_lab.builtin.softmax",
        ["from transformer_lab.builtin import softmax as theirs", softmax("return theirs(x, dim)")],
    ),
    "earlier pieces": (
        "transformer_lab.builtin.softmax",
        [
            "from transformer_lab import pieces\nearlier = pieces.earlier('builtin')",
            softmax("return earlier.softmax(x, dim)"),
        ],
    ),
    "with magic around": ("torch.softmax", ["%matplotlib inline\n!ls\n" + softmax("return torch.softmax(x, dim)")]),
}


@pytest.mark.parametrize("how", ALIASES)
def test_the_built_in_is_found_under_every_name(how):
    name, sources = ALIASES[how]
    assert [each for each, _, _ in found(*sources)] == [name]


def test_the_line_is_that_of_the_cell_in_which_it_stands():
    answer = "# my answer\n\n" + softmax("y = x\n    return torch.softmax(y, dim)")
    assert found("1 + 1", answer) == [("torch.softmax", 2, 5)]


HELPERS = {
    "a function": ["def shares(y):\n    return y.softmax(-1)", softmax("return shares(x)")],
    "two functions": [
        "def one(y):\n    return y.softmax(-1)",
        "def two(y):\n    return one(y)",
        softmax("return two(x)"),
    ],
    "defined later": [softmax("return shares(x)"), "def shares(y):\n    return y.softmax(-1)"],
    "a class": [
        "class Shares(nn.Module):\n    def __init__(self):\n        super().__init__()\n"
        "        self.inner = nn.Softmax(-1)\n    def forward(self, y):\n        return self.inner(y)",
        softmax("return Shares()(x)"),
    ],
    "a base class": [
        "class A:\n    def f(self, y): return torch.softmax(y, -1)",
        "class B(A): pass",
        softmax("return B().f(x)"),
    ],
    "a method that is called like it": [
        "class A:\n    def softmax(self, y):\n        return torch.softmax(y, -1)",
        softmax("return A().softmax(x)"),
    ],
    "a table of functions": ["how = {'a': torch.softmax}", softmax("return how['a'](x, dim)")],
}


@pytest.mark.parametrize("how", HELPERS)
def test_helpers_of_the_notebook_are_followed(how):
    ((name, _, _),) = found(*HELPERS[how])
    assert name.endswith(("softmax", "Softmax"))


CLEAN = {
    "own code": [softmax("y = 1") + OWN],
    "comments and strings": [f'def softmax(x, dim=-1):\n    """torch.softmax(x)"""\n    # F.softmax(x)\n{OWN}'],
    "a variable called softmax": [
        "def softmax(x, dim=-1):\n    softmax = (x - x.amax(dim, keepdim=True)).exp()\n"
        "    softmax = softmax / softmax.sum(dim, keepdim=True)\n    return softmax\n"
    ],
    "an argument called softmax": ["def shares(softmax):\n    return softmax", "def softmax(x, dim=-1):\n" + OWN],
    "calling itself": [
        "def softmax(x, dim=-1):\n    if dim != -1:\n        return softmax(x.transpose(dim, -1)).transpose(dim, -1)\n"
        + OWN
    ],
    "a class of its own": [
        f"class Own:\n    def softmax(self, x, dim):\n    {OWN.replace(chr(10), chr(10) + '    ')}",
        softmax("own = Own()\n    return own.softmax(x, dim)"),
    ],
    "a comparison beside it": [
        "def softmax(x, dim=-1):\n" + OWN + "print((softmax(torch.ones(3)) - torch.softmax(torch.ones(3), -1)).abs())"
    ],
    "a test of one's own": [
        "def softmax(x, dim=-1):\n" + OWN,
        "def try_it():\n    assert torch.equal(softmax(torch.ones(3)), F.softmax(torch.ones(3), -1))\ntry_it()",
    ],
    "imported and not used": ["from torch.nn.functional import softmax as s", "def softmax(x, dim=-1):\n" + OWN],
    "an attempt that was replaced": [softmax("return torch.softmax(x, dim)"), "def softmax(x, dim=-1):\n" + OWN],
    "a name that was taken over": [
        "from torch.nn.functional import *",
        "def log_softmax(x): return x",
        softmax("return log_softmax(x)"),
    ],
    "an annotation": ["def softmax(x, dim: nn.Softmax = -1) -> nn.Softmax:\n    y: nn.Softmax = x\n" + OWN],
    "another library": ["import scipy.special as special", softmax("return special.softmax(x, dim)")],
    "a cell that is no Python": ["def softmax(x, dim=-1:\n    return torch.softmax(x, dim)"],
    "no cell": [],
}


@pytest.mark.parametrize("how", CLEAN)
def test_nothing_else_is_taken_for_it(how):
    assert found(*CLEAN[how]) == []


def test_what_another_piece_uses_is_that_pieces():
    own = "class MultiHeadAttention(nn.Module):\n    def forward(self, q, k, v):\n        return SelfAttention()(q)\n"
    other = "class SelfAttention(nn.MultiheadAttention): pass\n"
    assert found(other, own, piece="MultiHeadAttention") == []
    assert found(own.replace("SelfAttention", "nn.MultiheadAttention"), piece="MultiHeadAttention") == [
        ("torch.nn.MultiheadAttention", 1, 3)
    ]
    uses_torch = (
        "def scaled_dot_product_attention(q, k, v, mask=None):\n    return torch.softmax(q @ k.mT, -1) @ v, 0\n"
    )
    assert found(uses_torch, piece="scaled_dot_product_attention") == [], "its specification allows torch.softmax"
    fused = uses_torch.replace("torch.softmax(q @ k.mT, -1) @ v", "F.scaled_dot_product_attention(q, k, v, mask)")
    assert found(fused, piece="scaled_dot_product_attention")[0][0].endswith("scaled_dot_product_attention")


def test_a_class_that_extends_or_constructs_a_layer():
    extends = "class MultiHeadAttention(nn.MultiheadAttention):\n    pass\n"
    constructs = (
        "class MultiHeadAttention(nn.Module):\n    def __init__(self, d_model, num_heads):\n        super().__init__()\n"
        "        self.inner = nn.MultiheadAttention(d_model, num_heads)\n"
    )
    assert found(extends, piece="MultiHeadAttention") == [("torch.nn.MultiheadAttention", 1, 1)]
    assert found(constructs, piece="MultiHeadAttention") == [("torch.nn.MultiheadAttention", 1, 4)]


HARD = {
    "deep brackets": softmax("return " + "(" * 5000 + "x" + ")" * 5000),
    "a long chain": softmax("return x" + ".a" * 20000),
    "long sums": softmax("return " + "x + " * 20000 + "x"),
    "aliases of aliases": "a0 = torch\n"
    + "".join(f"a{k} = a{k - 1}\n" * 3 for k in range(1, 3000))
    + softmax("return a2999"),
    "magic without end": "!ls\n" * 30_000 + softmax("return x"),
    "null bytes": "\0" + softmax("return x"),
    "circles": "a = b\nb = a\n" + softmax("a = b = a\n    return a.softmax(dim)"),
}


@pytest.mark.parametrize("how", HARD)
def test_no_source_takes_long_or_raises(how):
    began = time.perf_counter()
    found(HARD[how])
    assert time.perf_counter() - began < 10
