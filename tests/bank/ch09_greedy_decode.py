"""greedy_decode(step_fn, bos_id, eos_id, pad_id, batch_size, max_len): word by word, and what people make of it."""

from .entry import IMPORTS, Collector

BANK = Collector("greedy_decode", "greedy", IMPORTS)

_PLAIN = """
def greedy_decode(step_fn, bos_id, eos_id, pad_id, batch_size, max_len):
    ids = {start}
    ended = torch.zeros(batch_size, dtype=torch.bool)
    while {go_on}:
        following = {choice}
        {after}
        ids = torch.cat([ids, following[:, None]], dim=1)
        {stop}
    return {result}
"""
_FILL = "following = torch.where(ended, torch.full_like(following, pad_id), following)"
_END = "ended = ended | (following == eos_id)"
_LINES = {
    "start": "torch.full((batch_size, 1), bos_id)",
    "go_on": "ids.size(1) < max_len and not ended.all()",
    "choice": "step_fn(ids)[:, -1].argmax(dim=-1)",
    "after": f"{_FILL}\n        {_END}",
    "stop": "",
    "result": "ids",
}


def _plain(**lines: str) -> str:
    """The plain form with some of its lines replaced."""
    assert not set(lines) - set(_LINES), lines
    text = _PLAIN.format(**(_LINES | lines))
    return "\n".join(line for line in text.split("\n") if line.strip()) + "\n"


# ----------------------------------------------------------------------------------------------------------- right

BANK.right("plain", "Rows that have ended get padding.", _plain())
BANK.right(
    "for-loop",
    "A loop over the positions, left when all have ended.",
    _plain(
        go_on="ids.size(1) < max_len",
        choice="step_fn(ids).argmax(dim=-1)[:, -1]",
        after=f"following = following.masked_fill(ended, pad_id)\n        {_END}",
        stop="if ended.all():\n            break",
    ),
)
BANK.right(
    "table",
    "A table of padding, filled column by column and cut.",
    """
def greedy_decode(step_fn, bos_id, eos_id, pad_id, batch_size, max_len):
    table = torch.full((batch_size, max_len), pad_id, dtype=torch.long)
    table[:, 0] = bos_id
    alive, length = list(range(batch_size)), 1
    while length < max_len and alive:
        following = step_fn(table[:, :length])[:, length - 1].log_softmax(-1).topk(1).indices[:, 0]
        for row in list(alive):
            table[row, length] = following[row]
            if following[row] == eos_id:
                alive.remove(row)
        length += 1
    return table[:, :length]
""",
)
BANK.right(
    "columns",
    "A list of columns.",
    """
@torch.no_grad()
def greedy_decode(step_fn, bos_id, eos_id, pad_id, batch_size, max_len):
    columns = [torch.tensor([bos_id] * batch_size)]
    ended = torch.zeros(batch_size, dtype=torch.bool)
    for _ in range(max_len - 1):
        best = step_fn(torch.stack(columns, dim=1))[:, -1, :].max(dim=-1).indices
        best[ended] = pad_id
        columns.append(best)
        ended |= best == eos_id
        if bool(ended.all()):
            break
    return torch.stack(columns, dim=1)
""",
)
BANK.right(
    "has-eos",
    "Whether a row has ended is read off its ids.",
    _plain(
        go_on="ids.size(1) < max_len and not (ids[:, 1:] == eos_id).any(dim=1).all()",
        after="following[(ids[:, 1:] == eos_id).any(dim=1)] = pad_id",
    ),
)
BANK.right(
    "rows-as-lists",
    "Lists of ids, padded at the end of each step.",
    """
def greedy_decode(step_fn, bos_id, eos_id, pad_id, batch_size, max_len):
    rows, open_rows = [[bos_id] for _ in range(batch_size)], set(range(batch_size))
    while open_rows and len(rows[0]) < max_len:
        scores = step_fn(torch.tensor(rows))[:, -1].tolist()
        for index, row in enumerate(rows):
            if index not in open_rows:
                row.append(pad_id)
                continue
            row.append(max(range(len(scores[index])), key=scores[index].__getitem__))
            if row[-1] == eos_id:
                open_rows.remove(index)
    return torch.tensor(rows)
""",
)

# ----------------------------------------------------------------------------------------------------------- wrong

BANK.wrong(
    "any-ended",
    "It stops when the first row has ended.",
    _plain(go_on="ids.size(1) < max_len and not ended.any()"),
    "stops-at-the-first-end",
)
BANK.wrong(
    "first-position", "The first position is read.", _plain(choice="step_fn(ids)[:, 0].argmax(dim=-1)"), "position-read"
)
BANK.wrong(
    "position-before",
    "The position before the last is read, once there is one.",
    _plain(choice="step_fn(ids)[:, -2 if ids.size(1) > 1 else -1].argmax(dim=-1)"),
    "position-read",
)
BANK.wrong(
    "max-len-without-bos",
    "max_len words are made besides <bos>.",
    _plain(go_on="ids.size(1) <= max_len and not ended.all()"),
    "length-without-bos",
)
BANK.wrong(
    "one-too-few",
    "It ends one word early.",
    _plain(go_on="ids.size(1) < max_len - 1 and not ended.all()"),
    "one-too-few",
)
BANK.wrong(
    "starts-with-padding",
    "It starts with padding.",
    _plain(start="torch.full((batch_size, 1), pad_id)"),
    "starts-with-padding",
)
BANK.wrong("goes-on", "What follows <eos> is kept.", _plain(after=_END), "words-after-the-end")
BANK.wrong("eos-overwritten", "<eos> itself becomes padding.", _plain(after=f"{_END}\n        {_FILL}"), "end-lost")
BANK.wrong("never-stops", "It goes on to max_len.", _plain(go_on="ids.size(1) < max_len"), "never-stops")
BANK.wrong(
    "filled-with-eos",
    "Behind <eos> stands <eos>.",
    _plain(after=f"{_FILL.replace('pad_id', 'eos_id')}\n        {_END}"),
    "filled-with-the-end",
)
BANK.wrong("bos-cut", "<bos> is cut off at the end.", _plain(result="ids[:, 1:]"), "start-cut")
BANK.wrong(
    "always-max-len",
    "Filled up to max_len.",
    _plain(result="F.pad(ids, (0, max_len - ids.size(1)), value=pad_id)"),
    "filled-to-the-maximum",
)
BANK.wrong("worst", "The least likely word.", _plain(choice="step_fn(ids)[:, -1].argmin(dim=-1)"), "least-likely")
BANK.wrong(
    "sampled",
    "Drawn by chance.",
    _plain(choice="torch.multinomial(step_fn(ids)[:, -1].softmax(-1), 1)[:, 0]"),
    "sampled",
)
BANK.wrong(
    "last-word-only",
    "The step is given the last word only.",
    _plain(choice="step_fn(ids[:, -1:])[:, -1].argmax(dim=-1)"),
    "prefix-forgotten",
)
BANK.wrong(
    "end-is-two",
    "2 ends a sentence, whatever eos_id is.",
    _plain(after=f"{_FILL}\n        {_END.replace('eos_id', '2')}"),
    "ids-fixed",
)
BANK.wrong(
    "padding-is-zero",
    "0 is padding, whatever pad_id is.",
    _plain(after=f"{_FILL.replace('pad_id', '0')}\n        {_END}"),
    "ids-fixed",
)
BANK.wrong("one-row", "Only the first row is decoded.", _plain(start="torch.full((1, 1), bos_id)", after=_END))
BANK.wrong(
    "padding-never-chosen",
    "Padding is kept out of the choice.",
    _plain(choice="step_fn(ids)[:, -1].index_fill(1, torch.tensor([pad_id]), -math.inf).argmax(dim=-1)"),
)
