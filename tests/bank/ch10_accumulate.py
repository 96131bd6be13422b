"""accumulate(model, loss, parts): the gradients of a large batch from its parts, and what people make of it."""

from .entry import IMPORTS, Collector

BANK = Collector("accumulate", "accumulate", IMPORTS)

_PLAIN = """
def accumulate(model, loss, parts):
    {refuse}
    {before}
    total, tokens = 0.0, 0
    for part in parts:
        {each}
        mean, count = loss(model, part)
        {backward}
        total = total + {summed}
        tokens = tokens + {counted}
    {after}
    return {result}
"""
_DIVIDE = """for parameter in model.parameters():
        if parameter.grad is not None:
            parameter.grad = parameter.grad / {by}"""
_LINES = {
    "refuse": "if len(parts) == 0: raise ValueError('no part')",
    "before": "model.zero_grad(set_to_none=True)",
    "each": "",
    "backward": "(mean * count).backward()",
    "summed": "mean.detach() * count",
    "counted": "count",
    "after": _DIVIDE.format(by="tokens"),
    "result": "total / tokens, tokens",
}


def _plain(**lines: str) -> str:
    """The plain form with some of its lines replaced."""
    assert not set(lines) - set(_LINES), lines
    return "\n".join(line for line in _PLAIN.format(**(_LINES | lines)).split("\n") if line.strip()) + "\n"


# ----------------------------------------------------------------------------------------------------------- right

BANK.right("plain", "Sums are differentiated, and divided at the end.", _plain())
BANK.right(
    "counted-first",
    "A first pass counts, so that each part is scaled before its backward.",
    """
def accumulate(model, loss, parts):
    with torch.no_grad():
        counts = [int(loss(model, part)[1]) for part in parts]
    if not counts:
        raise ValueError("no part")
    tokens, total = sum(counts), torch.zeros(())
    for parameter in model.parameters():
        parameter.grad = None
    for part, count in zip(parts, counts):
        share = loss(model, part)[0] * (count / tokens)
        share.backward()
        total = total + share.detach()
    return total, tokens
""",
)
BANK.right(
    "autograd-grad",
    "Gradients are asked for and added up by hand.",
    """
def accumulate(model, loss, parts):
    parameters = [p for p in model.parameters() if p.requires_grad]
    sums, total, tokens = [None] * len(parameters), 0.0, 0
    for part in parts:
        mean, count = loss(model, part)
        grads = torch.autograd.grad(mean * count, parameters, allow_unused=True)
        sums = [g if s is None else s if g is None else s + g for s, g in zip(sums, grads)]
        total, tokens = total + mean.item() * int(count), tokens + int(count)
    if tokens == 0:
        raise ValueError("no part")
    for parameter, found in zip(parameters, sums):
        parameter.grad = None if found is None else found / tokens
    return torch.tensor(total / tokens), tokens
""",
)
BANK.right(
    "running-mean",
    "What has been added up is scaled down as the parts come.",
    """
def accumulate(model, loss, parts):
    if not parts:
        raise ValueError("no part")
    model.zero_grad()
    mean_so_far, tokens = 0.0, 0
    for part in parts:
        mean, count = loss(model, part)
        before, tokens = tokens, tokens + count
        for parameter in model.parameters():
            if parameter.grad is not None:
                parameter.grad *= before / tokens
        share = mean * (count / tokens)
        share.backward()
        mean_so_far = mean_so_far * (before / tokens) + share.detach()
    return mean_so_far, tokens
""",
)
BANK.right(
    "zeros-kept",
    "Gradients are set to zeros, also of what is not used.",
    """
def accumulate(model, loss, parts):
    parts = list(parts)
    if not parts:
        raise ValueError("no part")
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    losses, counts = [], []
    for part in parts:
        mean, count = loss(model, part)
        summed = mean * count
        summed.backward()
        losses.append(summed.detach())
        counts.append(int(count))
    for parameter in model.parameters():
        parameter.grad.div_(sum(counts))
    return torch.stack(losses).sum() / sum(counts), sum(counts)
""",
)
BANK.right(
    "backward-of-the-mean",
    "backward is given the weight of the part.",
    _plain(
        backward="mean.backward(count.to(mean.dtype))", summed="mean.detach() * count.item()", counted="count.item()"
    ),
)
BANK.right(
    "model-called-by-functional-call",
    "The loss is differentiated by torch.func, with the parameters put in anew.",
    """
def accumulate(model, loss, parts):
    if not parts:
        raise ValueError("no part")
    names = {name: parameter.detach().clone().requires_grad_() for name, parameter in model.named_parameters()}
    called = lambda x: torch.func.functional_call(model, names, (x,))
    total, tokens = 0, 0
    for part in parts:
        mean, count = loss(called, part)
        (mean * count).backward()
        total, tokens = total + mean.detach() * count, tokens + count
    for name, parameter in model.named_parameters():
        parameter.grad = None if names[name].grad is None else names[name].grad / tokens
    return total / tokens, tokens
""",
)

# ----------------------------------------------------------------------------------------------------------- wrong

BANK.wrong(
    "mean-of-means",
    "The usual line: the loss divided by the number of parts.",
    _plain(backward="(mean / len(parts)).backward()", after=""),
    "mean-of-means",
)
BANK.wrong(
    "mean-of-means-returned",
    "The same, and the mean of the means comes back.",
    _plain(
        backward="(mean / len(parts)).backward()", after="", summed="mean.detach() / len(parts)", result="total, tokens"
    ),
    "mean-of-means",
)
BANK.wrong(
    "sum-of-means", "The means' gradients are added up.", _plain(backward="mean.backward()", after=""), "means-summed"
)
BANK.wrong(
    "means-over-tokens",
    "The means' gradients are added up and divided by the tokens.",
    _plain(backward="mean.backward()"),
)
BANK.wrong("sum", "The gradient of the sum.", _plain(after=""), "not-divided")
BANK.wrong(
    "sum-returned-too", "The sum, in gradient and result.", _plain(after="", result="total, tokens"), "not-divided"
)
BANK.wrong(
    "over-parts", "Divided by the number of parts.", _plain(after=_DIVIDE.format(by="len(parts)")), "divided-by-parts"
)
BANK.wrong(
    "divided-twice",
    "Divided by the tokens and by the parts.",
    _plain(after=_DIVIDE.format(by="(tokens * len(parts))")),
    "divided-twice",
)
BANK.wrong("not-emptied", "What was in .grad stays.", _plain(before=""), "old-gradients-kept")
BANK.wrong("emptied-each-time", "Emptied for each part.", _plain(each="model.zero_grad()"), "emptied-in-the-loop")
BANK.wrong(
    "emptied-behind",
    "Emptied at the end.",
    _plain(after=_LINES["after"] + "\n    value = total / tokens\n    model.zero_grad()", result="value, tokens"),
    "emptied-at-the-end",
)
BANK.wrong(
    "divided-in-the-loop",
    "Divided by the tokens so far, part after part.",
    _plain(
        backward="(mean * count).backward(); tokens = tokens + count\n"
        "        for parameter in model.parameters():\n"
        "            if parameter.grad is not None: parameter.grad /= tokens",
        counted="0",
        after="",
    ),
    "divided-in-the-loop",
)
BANK.wrong(
    "one-backward",
    "All losses are kept for one backward.",
    """
def accumulate(model, loss, parts):
    if not parts:
        raise ValueError("no part")
    model.zero_grad()
    total, tokens = 0, 0
    for part in parts:
        mean, count = loss(model, part)
        total, tokens = total + mean * count, tokens + count
    (total / tokens).backward()
    return (total / tokens).detach(), tokens
""",
    "graphs-kept",
)
BANK.wrong(
    "one-backward-of-means",
    "The mean of all means, kept for one backward.",
    """
def accumulate(model, loss, parts):
    if not parts:
        raise ValueError("no part")
    model.zero_grad()
    means, counts = zip(*[loss(model, part) for part in parts])
    mean = torch.stack(means).mean()
    mean.backward()
    return mean.detach(), sum(counts)
""",
    "graphs-kept",
)
BANK.wrong(
    "retained",
    "The graphs are retained.",
    _plain(backward="(mean * count).backward(retain_graph=True)"),
    "graph-retained",
)
BANK.wrong("with-graph", "What comes back has a graph.", _plain(summed="mean * count"), "not-detached")
BANK.wrong("sum-back", "The sum of the losses comes back.", _plain(result="total, tokens"), "sum-returned")
BANK.wrong(
    "parts-back", "The number of parts comes back.", _plain(result="total / tokens, len(parts)"), "parts-counted"
)
BANK.wrong(
    "last-loss", "The last part's loss comes back.", _plain(result="mean.detach(), tokens"), "last-part-returned"
)
BANK.wrong("last-pair", "The last part's pair comes back.", _plain(result="mean.detach(), count"), "last-part-returned")
BANK.wrong(
    "first-part",
    "It returns within the loop.",
    _plain(
        after="",
        counted=f"count\n        {_LINES['after'].replace(chr(10), chr(10) + '    ')}\n        return total / tokens, tokens",
    ),
    "returned-too-early",
)
BANK.wrong(
    "no-part-is-zero",
    "No part gives 0.",
    _plain(refuse="", result="total / max(1, tokens), tokens"),
    "nothing-to-do",
)
BANK.wrong("no-part-divides", "No part divides by 0.", _plain(refuse=""))
BANK.wrong("mean-alone", "The mean alone comes back.", _plain(result="total / tokens"))
BANK.wrong(
    "detached-before",
    "The loss is detached before the backward.",
    _plain(backward="(mean.detach() * count).requires_grad_().backward()"),
)
BANK.wrong(
    "unused-not-expected",
    "Every parameter is expected to have a gradient.",
    _plain(after="for parameter in model.parameters():\n        parameter.grad /= tokens"),
)
BANK.wrong(
    "rows-counted",
    "The parts are weighed by their rows.",
    _plain(
        counted="part[0].shape[0]",
        backward="(mean * part[0].shape[0]).backward()",
        summed="mean.detach() * part[0].shape[0]",
    ),
)
BANK.wrong(
    "a-step-as-well",
    "A step is made besides.",
    _plain(after=_LINES["after"] + "\n    torch.optim.SGD(model.parameters(), lr=0.1).step()"),
)
BANK.wrong(
    "padding-counted",
    "The parts are weighed by all their places, padding too.",
    _plain(
        backward="size = part[0][..., 0].numel(); (mean * size).backward()",
        counted="size",
        summed="mean.detach() * size",
    ),
)
