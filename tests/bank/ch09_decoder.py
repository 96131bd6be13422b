"""Decoder(layers, norm=None): layers that all read one memory, and what people make of it."""

from .entry import IMPORTS, Collector

BANK = Collector("Decoder", "decoder-stack", IMPORTS + "import copy\n\n")

_CLASS = """
class Decoder(nn.Module):
    def __init__(self, layers, norm=None):
        super().__init__()
        {init}

    def forward(self, x, memory, target_mask=None, memory_mask=None):
        {before}
        for layer in {order}:
            {body}
        {after}
        {result}
"""
_LINES = {
    "init": "self.layers, self.norm = nn.ModuleList(layers), norm",
    "before": "pass",
    "order": "self.layers",
    "body": "x = layer(x, memory, target_mask, memory_mask)",
    "after": "pass",
    "result": "return x if self.norm is None else self.norm(x)",
}


def _plain(**lines: str) -> str:
    """The plain form with some of its lines replaced."""
    assert not set(lines) - set(_LINES), lines
    return _CLASS.format(**(_LINES | lines))


# ----------------------------------------------------------------------------------------------------------- right

BANK.right("plain", "A loop, and the norm behind it.", _plain())
BANK.right(
    "numbered",
    "Layers by their numbers, the result under another name.",
    _plain(
        before="tokens = x",
        order="range(len(self.layers))",
        body="tokens = self.layers[layer](tokens, memory, target_mask, memory_mask)",
        result="return self.norm(tokens) if self.norm is not None else tokens",
    ),
)
BANK.right(
    "registered",
    "The norm registered under its name, layers appended one by one.",
    _plain(
        init="self.layers = nn.ModuleList()\n        self.register_module('norm', norm)\n"
        "        for layer in layers:\n            self.layers.append(layer)"
    ),
)
BANK.right(
    "sequential-as-a-list",
    "nn.Sequential as the list, walked through by hand.",
    _plain(init="self.layers = nn.Sequential(*layers)\n        self.norm = norm"),
)
BANK.right(
    "masks-in-a-tuple",
    "What all layers share in one tuple.",
    _plain(before="shared = (memory, target_mask, memory_mask)", body="x = layer(x, *shared)"),
)
BANK.right(
    "reduce",
    "A reduction over the layers.",
    """
from functools import reduce

class Decoder(nn.Module):
    def __init__(self, layers, norm=None):
        super().__init__()
        self.norm = norm
        self.layers = nn.ModuleList(list(layers))

    def forward(self, x, memory, target_mask=None, memory_mask=None):
        x = reduce(lambda tokens, layer: layer(tokens, memory, target_mask, memory_mask), self.layers, x)
        return self.norm(x) if self.norm else x
""",
)

# ----------------------------------------------------------------------------------------------------------- wrong

BANK.wrong(
    "masks-exchanged",
    "The masks stand in each other's places.",
    _plain(body="x = layer(x, memory, memory_mask, target_mask)"),
    "masks-exchanged",
)
BANK.wrong(
    "memory-mask-forgotten",
    "The padding of the source is open.",
    _plain(body="x = layer(x, memory, target_mask)"),
    "memory-mask-not-handed-on",
)
BANK.wrong(
    "target-mask-forgotten",
    "The future is open.",
    _plain(body="x = layer(x, memory, None, memory_mask)"),
    "target-mask-not-handed-on",
)
BANK.wrong("no-masks", "The layers get no masks.", _plain(body="x = layer(x, memory)"), "masks-not-handed-on")
BANK.wrong(
    "one-mask-for-both",
    "The target's mask for the source as well.",
    _plain(body="x = layer(x, memory, target_mask, target_mask)"),
    "one-mask-for-both",
)
BANK.wrong(
    "masks-once",
    "The masks go to the first layer only.",
    _plain(body="x = layer(x, memory, target_mask, memory_mask)\n            target_mask = memory_mask = None"),
    "masks-to-the-first-only",
)
BANK.wrong(
    "masks-inverted",
    "True marks what is hidden.",
    _plain(before="target_mask, memory_mask = (m if m is None else ~m for m in (target_mask, memory_mask))"),
    "masks-inverted",
)
BANK.wrong(
    "memory-carried-on",
    "Each layer reads the output of the one before in place of the memory.",
    _plain(body="x = memory = layer(x, memory, target_mask, memory_mask)"),
    "memory-replaced",
)
BANK.wrong(
    "memory-normed",
    "The decoder's norm is applied to the memory too.",
    _plain(before="memory = memory if self.norm is None else self.norm(memory)"),
    "memory-normed",
)
BANK.wrong(
    "arguments-exchanged",
    "Memory and tokens stand in each other's places.",
    _plain(body="x = layer(memory, x, target_mask, memory_mask)"),
    "memory-for-tokens",
)
BANK.wrong(
    "always-the-embedding",
    "Every layer gets the first x.",
    _plain(body="y = layer(x, memory, target_mask, memory_mask)", after="x = y"),
    "x-not-carried-on",
)
BANK.wrong("backwards", "From the last layer to the first.", _plain(order="self.layers[::-1]"), "order-reversed")
BANK.wrong(
    "first-again-and-again",
    "One layer object runs N times.",
    _plain(body="x = self.layers[0](x, memory, target_mask, memory_mask)"),
    "one-layer-for-all",
)
BANK.wrong(
    "copies",
    "Copies of the first layer.",
    _plain(init="self.layers = nn.ModuleList(copy.deepcopy(layers[0]) for _ in layers)\n        self.norm = norm"),
)
BANK.wrong(
    "plain-list",
    "A list that PyTorch does not see into.",
    _plain(init="self.layers, self.norm = list(layers), norm"),
    "layers-not-registered",
)
BANK.wrong("residual-outside", "x is added to each layer's output.", _plain(
    body="x = x + layer(x, memory, target_mask, memory_mask)"
), "x-added")  # fmt: skip
BANK.wrong(
    "returns-too-early",
    "The return stands inside the loop.",
    _plain(body=f"{_LINES['body']}\n            {_LINES['result']}"),
    "first-layer-only",
)
BANK.wrong("norm-unused", "The norm is kept and never called.", _plain(result="return x"), "norm-forgotten")
BANK.wrong(
    "norm-in-the-loop",
    "The norm is called after every layer.",
    _plain(body=f"{_LINES['body']}\n            x = x if self.norm is None else self.norm(x)", result="return x"),
    "norm-after-every-layer",
)
BANK.wrong(
    "norm-first",
    "The norm comes before the layers.",
    _plain(before="x = x if self.norm is None else self.norm(x)", result="return x"),
    "norm-at-the-beginning",
)
BANK.wrong(
    "norm-of-its-own",
    "A norm is made where none is given.",
    _plain(result="return F.layer_norm(x, x.shape[-1:]) if self.norm is None else self.norm(x)"),
    "norm-where-none-is",
)
