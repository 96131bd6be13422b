"""batches_by_tokens(lengths, budget): sentences shared out by padded tokens, and what people make of it."""

from .entry import IMPORTS, Collector

BANK = Collector("batches_by_tokens", "batches", IMPORTS)

_PLAIN = """
def batches_by_tokens(lengths, budget):
    batches, batch = [], []
    for index in {order}:
        length = lengths[index]
        {refuse}
        if {full}:
            batches.append(batch)
            batch = []{lost}
        {take}
    {last}
    return {result}
"""
_LINES = {
    "order": "sorted(range(len(lengths)), key=lambda i: lengths[i])",
    "refuse": "if length > budget: raise ValueError('too long')",
    "full": "batch and (len(batch) + 1) * length > budget",
    "lost": "",
    "take": "batch.append(index)",
    "last": "if batch: batches.append(batch)",
    "result": "batches",
}


def _plain(**lines: str) -> str:
    """The plain form with some of its lines replaced."""
    assert not set(lines) - set(_LINES), lines
    return "\n".join(line for line in _PLAIN.format(**(_LINES | lines)).split("\n") if line.strip()) + "\n"


# ----------------------------------------------------------------------------------------------------------- right

BANK.right("plain", "A batch that is closed when the next sentence does not fit.", _plain())
BANK.right(
    "last-batch",
    "The last batch of the list grows.",
    """
def batches_by_tokens(lengths, budget):
    if any(length > budget for length in lengths):
        raise ValueError("a sentence is longer than the budget")
    batches = []
    for index in sorted(range(len(lengths)), key=lengths.__getitem__):
        if not batches or (len(batches[-1]) + 1) * lengths[index] > budget:
            batches.append([])
        batches[-1].append(index)
    return batches
""",
)
BANK.right(
    "pairs",
    "Pairs of length and index are sorted.",
    """
def batches_by_tokens(lengths, budget):
    pairs = sorted((length, index) for index, length in enumerate(lengths))
    if pairs and pairs[-1][0] > budget:
        raise ValueError(f"{pairs[-1][0]} > {budget}")
    result, current = [], []
    for length, index in pairs:
        current.append(index)
        if len(current) * length > budget:
            result.append(current[:-1])
            current = [index]
    if current:
        result.append(current)
    return result
""",
)
BANK.right(
    "numpy",
    "A stable argsort, and slices of it.",
    """
def batches_by_tokens(lengths, budget):
    order = np.argsort(np.array(lengths, dtype=int), kind="stable").tolist()
    found, start = [], 0
    while start < len(order):
        stop = start
        while stop < len(order) and (stop + 1 - start) * lengths[order[stop]] <= budget:
            stop += 1
        if stop == start:
            raise ValueError("too long")
        found.append(order[start:stop])
        start = stop
    return found
""",
)
BANK.right(
    "torch",
    "PyTorch's stable sort.",
    """
def batches_by_tokens(lengths, budget):
    if not lengths:
        return []
    values, places = torch.tensor(lengths).sort(stable=True)
    if values[-1] > budget:
        raise ValueError("too long")
    batches = [[]]
    for length, place in zip(values.tolist(), places.tolist()):
        if (len(batches[-1]) + 1) * length > budget:
            batches.append([])
        batches[-1].append(place)
    return batches
""",
)
BANK.right(
    "generator",
    "A generator of batches with the longest row looked for each time.",
    """
def _grow(lengths, budget, order):
    batch = []
    for index in order:
        longest = max(lengths[other] for other in [*batch, index])
        if longest * (len(batch) + 1) > budget:
            if not batch:
                raise ValueError(f"sentence {index} does not fit")
            yield batch
            batch = []
            if lengths[index] > budget:
                raise ValueError(f"sentence {index} does not fit")
        batch.append(index)
    if batch:
        yield batch


def batches_by_tokens(lengths, budget):
    return list(_grow(lengths, budget, sorted(range(len(lengths)), key=lambda i: (lengths[i], i))))
""",
)
BANK.right(
    "deque",
    "Sentences are taken from the left of a queue.",
    """
from collections import deque


def batches_by_tokens(lengths, budget):
    waiting = deque(sorted(enumerate(lengths), key=lambda pair: pair[1]))
    batches = []
    while waiting:
        batch = []
        while waiting and waiting[0][1] * (len(batch) + 1) <= budget:
            batch.append(waiting.popleft()[0])
        if not batch:
            raise ValueError("a sentence is longer than the budget")
        batches.append(batch)
    return batches
""",
)

# ----------------------------------------------------------------------------------------------------------- wrong

BANK.wrong(
    "real-tokens",
    "The budget is one of real tokens.",
    _plain(full="batch and sum(lengths[i] for i in batch) + length > budget"),
    "real-tokens-counted",
)
BANK.wrong(
    "longest-of-before",
    "The product is made with the longest row before the new one is in.",
    _plain(full="batch and (len(batch) + 1) * max(lengths[i] for i in batch) > budget"),
    "padding-of-before",
)
BANK.wrong(
    "without-the-new",
    "The new sentence is not counted.",
    _plain(full="batch and len(batch) * length > budget"),
    "one-row-too-many",
)
BANK.wrong(
    "strict",
    "A batch stays below the budget.",
    _plain(full="batch and (len(batch) + 1) * length >= budget"),
    "budget-never-reached",
)
BANK.wrong("sentences", "The budget is a number of sentences.", _plain(full="len(batch) == budget"), "rows-for-tokens")
BANK.wrong(
    "as-they-come",
    "Nothing is sorted.",
    _plain(
        order="range(len(lengths))",
        full="batch and (len(batch) + 1) * max(length, *(lengths[i] for i in batch)) > budget",
    ),
    "not-sorted",
)
BANK.wrong(
    "as-they-come-by-the-last",
    "Nothing is sorted, and the last one is taken for the longest.",
    _plain(order="range(len(lengths))"),
    "not-sorted",
)
BANK.wrong(
    "longest-first",
    "The longest first.",
    _plain(
        order="sorted(range(len(lengths)), key=lambda i: lengths[i], reverse=True)",
        full="batch and (len(batch) + 1) * lengths[batch[0]] > budget",
    ),
    "longest-first",
)
BANK.wrong(
    "longest-first-by-the-last",
    "The longest first, and the last one is taken for the longest.",
    _plain(order="sorted(range(len(lengths)), key=lambda i: -lengths[i])"),
)
BANK.wrong(
    "equals-turned",
    "Equally long ones are turned round.",
    _plain(order="sorted(range(len(lengths))[::-1], key=lambda i: lengths[i])"),
    "equals-exchanged",
)
BANK.wrong("last-lost", "The last batch is never added.", _plain(last=""), "last-batch-lost")
BANK.wrong(
    "lengths",
    "Lengths in place of indices.",
    _plain(take="batch.append(length)", full="batch and (len(batch) + 1) * length > budget"),
    "lengths-for-indices",
)
BANK.wrong(
    "empty-last",
    "The last batch is added whether there is one or not.",
    _plain(last="batches.append(batch)"),
    "empty-batch",
)
BANK.wrong(
    "empty-first",
    "The list begins with an empty batch.",
    _plain(order="sorted(range(len(lengths)), key=lambda i: lengths[i])", result="[[], *batches]"),
    "empty-batch",
)
BANK.wrong("too-long-alone", "What is too long is a batch by itself.", _plain(refuse=""), "too-long-kept")
BANK.wrong(
    "too-long-skipped",
    "What is too long is left out.",
    _plain(refuse="if length > budget: continue"),
    "too-long-dropped",
)
BANK.wrong(
    "too-long-at-the-budget",
    "A sentence as long as the budget is refused.",
    _plain(refuse="if length >= budget: raise ValueError('too long')"),
)
BANK.wrong("too-long-by-assert", "An AssertionError.", _plain(refuse="assert length <= budget, 'too long'"))
BANK.wrong(
    "one-lost",
    "The sentence with which a batch would be too large is lost.",
    _plain(lost="\n            continue"),
    "sentence-lost",
)
BANK.wrong(
    "sorted-in-place",
    "The caller's list is sorted.",
    """
def batches_by_tokens(lengths, budget):
    lengths.sort()
    if lengths and lengths[-1] > budget:
        raise ValueError("too long")
    batches = []
    for index, length in enumerate(lengths):
        if batches and (len(batches[-1]) + 1) * length <= budget:
            batches[-1].append(index)
        else:
            batches.append([index])
    return batches
""",
    "lengths-sorted",
)
BANK.wrong(
    "places-of-the-sorted",
    "Places in the sorted list.",
    """
def batches_by_tokens(lengths, budget):
    batches = []
    for index, length in enumerate(sorted(lengths)):
        if length > budget:
            raise ValueError("too long")
        if batches and (len(batches[-1]) + 1) * length <= budget:
            batches[-1].append(index)
        else:
            batches.append([index])
    return batches
""",
    "sorted-copy",
)
BANK.wrong(
    "tensor",
    "Tensors of indices.",
    _plain(result="[torch.tensor(batch) for batch in batches]"),
)
BANK.wrong(
    "equal-lengths-only",
    "A batch holds sentences of one length.",
    _plain(full="batch and ((len(batch) + 1) * length > budget or lengths[batch[-1]] != length)"),
)
