"""Encoder(layers, norm=None): layers one after the other, and what people make of it."""

from .entry import IMPORTS, Collector

BANK = Collector("Encoder", "stack", IMPORTS + "import copy\n\n")

_CLASS = """
class Encoder(nn.Module):
    def __init__(self, layers, norm=None):
        super().__init__()
        {init}

    def forward(self, x, mask=None):
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
    "body": "x = layer(x, mask)",
    "after": "pass",
    "result": "return x if self.norm is None else self.norm(x)",
}


def _plain(**lines: str) -> str:
    """The plain form with some of its lines replaced."""
    assert not set(lines) - set(_LINES), lines
    return _CLASS.format(**(_LINES | lines))


# ----------------------------------------------------------------------------------------------------------- right

BANK.right("plain", "A loop and a norm behind it.", _plain())
BANK.right(
    "mask-left-out",
    "A mask that is None is not handed on.",
    _plain(before="rest = () if mask is None else (mask,)", body="x = layer(x, *rest)"),
)
BANK.right(
    "sequential-as-a-list",
    "nn.Sequential as the list, walked through by hand.",
    _plain(init="self.layers = nn.Sequential(*layers)\n        self.norm = norm"),
)
BANK.right(
    "append-one-by-one",
    "A list filled in a loop, and an index for the layers.",
    _plain(
        init="self.layers = nn.ModuleList()\n"
        "        for layer in layers:\n            self.layers.append(layer)\n        self.norm = norm",
        order="range(len(self.layers))",
        body="x = self.layers[layer](x, mask)",
    ),
)
BANK.right(
    "identity-forgone",
    "The norm is registered only where there is one, and the result kept in another name.",
    """
class Encoder(nn.Module):
    def __init__(self, layers, norm=None):
        super().__init__()
        self.layers = nn.ModuleList(layers)
        self.register_module("norm", norm)

    def forward(self, x, mask=None):
        hidden = x
        for i in range(len(self.layers)):
            hidden = self.layers[i](hidden, mask)
        if self.norm is not None:
            hidden = self.norm(hidden)
        return hidden
""",
)
BANK.right(
    "reduce",
    "A reduction over the layers.",
    """
from functools import reduce

class Encoder(nn.Module):
    def __init__(self, layers, norm=None):
        super().__init__()
        self.norm = norm
        self.layers = nn.ModuleList(list(layers))

    def forward(self, x, mask=None):
        x = reduce(lambda tokens, layer: layer(tokens, mask), self.layers, x)
        return self.norm(x) if self.norm else x
""",
)
BANK.right(
    "recursion",
    "A function that calls itself for the rest of the list.",
    """
class Encoder(nn.Module):
    def __init__(self, layers, norm=None):
        super().__init__()
        self.layers = nn.ModuleList(layers)
        self.norm = norm

    def run(self, x, mask, place):
        if place == len(self.layers):
            return x
        return self.run(self.layers[place](x, mask), mask, place + 1)

    def forward(self, x, mask=None):
        x = self.run(x, mask, 0)
        return x if self.norm is None else self.norm(x)
""",
)

# ----------------------------------------------------------------------------------------------------------- wrong

BANK.wrong(
    "always-the-embedding",
    "Every layer gets the first x.",
    _plain(body="y = layer(x, mask)", after="x = y"),
    "x-not-carried-on",
)
BANK.wrong("backwards", "From the last layer to the first.", _plain(order="self.layers[::-1]"), "order-reversed")
BANK.wrong(
    "first-again-and-again",
    "One layer object runs N times.",
    _plain(body="x = self.layers[0](x, mask)"),
    "one-layer-for-all",
)
BANK.wrong(
    "one-layer-times-n",
    "[layer] * N in the constructor.",
    _plain(init="self.layers, self.norm = nn.ModuleList([layers[0]] * len(layers)), norm"),
)
BANK.wrong(
    "returns-too-early",
    "The return stands inside the loop.",
    _plain(body="x = layer(x, mask)\n            return x if self.norm is None else self.norm(x)"),
    "first-layer-only",
)
BANK.wrong(
    "range-one-short",
    "The last layer is left out.",
    _plain(order="range(len(self.layers) - 1)", body="x = self.layers[layer](x, mask)"),
    "last-layer-left-out",
)
BANK.wrong(
    "range-from-one",
    "The first layer is left out.",
    _plain(order="range(1, len(self.layers))", body="x = self.layers[layer](x, mask)"),
    "first-layer-left-out",
)
BANK.wrong("residual-outside", "x is added to each layer's output.", _plain(body="x = x + layer(x, mask)"), "x-added")
BANK.wrong(
    "input-added-at-the-end",
    "The first x is added to the output of the last layer.",
    _plain(before="start = x", after="x = x + start"),
)
BANK.wrong(
    "sum-of-layers",
    "The outputs of all layers are added up.",
    _plain(before="total = 0", body="x = layer(x, mask)\n            total = total + x", after="x = total"),
    "outputs-added-up",
)
BANK.wrong(
    "all-outputs",
    "A list of all outputs.",
    _plain(
        before="outputs = []",
        body="x = layer(x, mask)\n            outputs.append(x)",
        result="return outputs[:-1] + [x if self.norm is None else self.norm(x)]",
    ),
    "every-output-returned",
)
BANK.wrong("no-mask", "The layers get no mask.", _plain(body="x = layer(x)"), "mask-not-handed-on")
BANK.wrong(
    "through-sequential",
    "nn.Sequential, which has no way for a mask.",
    """
class Encoder(nn.Module):
    def __init__(self, layers, norm=None):
        super().__init__()
        self.layers = nn.Sequential(*layers)
        self.norm = norm

    def forward(self, x, mask=None):
        x = self.layers(x)
        return x if self.norm is None else self.norm(x)
""",
    "mask-not-handed-on",
)
BANK.wrong(
    "mask-once",
    "The mask goes to the first layer only.",
    _plain(
        order="enumerate(self.layers)",
        body="x = layer[1](x, mask) if layer[0] == 0 else layer[1](x)",
    ),
    "mask-to-the-first-only",
)
BANK.wrong(
    "mask-at-the-end",
    "The mask goes to the last layer only.",
    _plain(body="x = layer(x, mask if layer is self.layers[-1] else None)"),
    "mask-to-the-last-only",
)
BANK.wrong(
    "mask-turned-round",
    "True marks what is hidden.",
    _plain(before="mask = None if mask is None else mask.logical_not()"),
    "mask-inverted",
)
BANK.wrong(
    "mask-turned-in-each-layer",
    "The mask is turned round again in every turn.",
    _plain(body="x = layer(x, mask)\n            mask = None if mask is None else ~mask"),
)
BANK.wrong(
    "mask-unsqueezed",
    "A mask that has its axes gets two more.",
    _plain(before="mask = mask[:, None, None] if mask is not None else None"),
    "mask-with-more-axes",
)
BANK.wrong("norm-unused", "The norm is kept and never called.", _plain(result="return x"), "norm-forgotten")
BANK.wrong(
    "norm-in-the-loop",
    "The norm is called after every layer.",
    _plain(body="x = layer(x, mask)\n            x = x if self.norm is None else self.norm(x)", result="return x"),
    "norm-after-every-layer",
)
BANK.wrong(
    "norm-in-the-loop-and-behind",
    "The norm is called after every layer and once more.",
    _plain(body="x = layer(x, mask)\n            x = x if self.norm is None else self.norm(x)"),
)
BANK.wrong(
    "norm-before-each",
    "The norm is called before every layer.",
    _plain(body="x = layer(x if self.norm is None else self.norm(x), mask)", result="return x"),
    "norm-before-every-layer",
)
BANK.wrong(
    "norm-first",
    "The norm comes before the layers.",
    _plain(before="x = x if self.norm is None else self.norm(x)", result="return x"),
    "norm-at-the-beginning",
)
BANK.wrong(
    "norm-first-and-last",
    "The norm comes before the layers and behind them.",
    _plain(before="x = x if self.norm is None else self.norm(x)"),
    "norm-at-both-ends",
)
BANK.wrong(
    "norm-as-residual",
    "x plus its norm.",
    _plain(result="return x if self.norm is None else x + self.norm(x)"),
    "norm-added",
)
BANK.wrong(
    "norm-assumed", "A norm that is None is called.", _plain(result="return self.norm(x)"), "norm-taken-for-granted"
)
BANK.wrong(
    "python-list",
    "A plain list, whose parameters nobody finds.",
    _plain(init="self.layers, self.norm = list(layers), norm"),
    "layers-in-a-plain-list",
)
BANK.wrong(
    "other-name",
    "The attribute is called encoder_layers.",
    _plain(init="self.encoder_layers, self.norm = nn.ModuleList(layers), norm", order="self.encoder_layers"),
    "layers-under-another-name",
)
BANK.wrong(
    "both-names",
    "The layers are registered under two names.",
    _plain(init="self.layers, self.norm = nn.ModuleList(layers), norm\n        self.stack = self.layers"),
)
BANK.wrong(
    "copies",
    "Every layer is copied.",
    _plain(init="self.layers, self.norm = nn.ModuleList(copy.deepcopy(layer) for layer in layers), norm"),
    "layers-copied",
)
BANK.wrong(
    "clones-of-the-first",
    "The first layer is cloned, as nn.TransformerEncoder clones its one layer.",
    _plain(init="self.layers, self.norm = nn.ModuleList(copy.deepcopy(layers[0]) for _ in layers), norm"),
    "first-layer-copied",
)
BANK.wrong(
    "own-norm",
    "A norm of its own, whatever is given.",
    """
class Encoder(nn.Module):
    def __init__(self, layers, norm=None):
        super().__init__()
        self.layers = nn.ModuleList(layers)

    def forward(self, x, mask=None):
        for layer in self.layers:
            x = layer(x, mask)
        return F.layer_norm(x, x.shape[-1:])
""",
)
BANK.wrong("detached", "Each layer gets a detached tensor.", _plain(body="x = layer(x.detach(), mask)"), "gradient-cut")
BANK.wrong(
    "remembers",
    "The result of the first call is handed back by the later ones.",
    """
class Encoder(nn.Module):
    def __init__(self, layers, norm=None):
        super().__init__()
        self.layers, self.norm, self.seen = nn.ModuleList(layers), norm, None

    def forward(self, x, mask=None):
        if self.seen is None:
            for layer in self.layers:
                x = layer(x, mask)
            self.seen = x if self.norm is None else self.norm(x)
        return self.seen
""",
)
