"""shift_targets(target_ids): what the decoder reads and what it is to say, and what people make of it."""

from .entry import IMPORTS, Collector

BANK = Collector("shift_targets", "shift-targets", IMPORTS)


def _returns(first: str, second: str, *before: str) -> str:
    lines = "".join(f"    {line}\n" for line in before)
    return f"\ndef shift_targets(target_ids):\n{lines}    return {first}, {second}\n"


_INPUT, _LABELS = "target_ids[:, :-1]", "target_ids[:, 1:]"

# ----------------------------------------------------------------------------------------------------------- right

BANK.right("slices", "All but the last column, all but the first.", _returns(_INPUT, _LABELS))
BANK.right(
    "narrow",
    "The same with narrow, and a copy.",
    _returns(
        "target_ids.narrow(1, 0, size)", "target_ids.narrow(1, 1, size).contiguous()", "size = target_ids.size(1) - 1"
    ),
)
BANK.right(
    "ellipsis", "Along the last axis, whatever is before it.", _returns("target_ids[..., :-1]", "target_ids[..., 1:]")
)
BANK.right("copies", "Copies of both.", _returns(f"{_INPUT}.clone()", f"{_LABELS}.clone()"))
BANK.right(
    "indices",
    "Columns picked by their numbers.",
    _returns(
        "target_ids.index_select(1, columns)", "target_ids.index_select(1, columns + 1)",
        "columns = torch.arange(target_ids.shape[1] - 1, device=target_ids.device)",
    ),
)  # fmt: skip
BANK.right(
    "rolled-and-cut",
    "Rolled by one, and the column that has come round is cut off.",
    _returns(_INPUT, "torch.roll(target_ids, -1, dims=1)[:, :-1]"),
)
BANK.right(
    "row-by-row",
    "A list of rows.",
    _returns("torch.stack([row[:-1] for row in target_ids])", "torch.stack([row[1:] for row in target_ids])"),
)

# ----------------------------------------------------------------------------------------------------------- wrong

BANK.wrong("none", "No shift at all.", _returns("target_ids", "target_ids"), "not-shifted")
BANK.wrong("both-inputs", "Labels that are the decoder's input.", _returns(_INPUT, _INPUT), "not-shifted")
BANK.wrong("both-labels", "The decoder reads the labels.", _returns(_LABELS, _LABELS), "not-shifted")
BANK.wrong(
    "backwards", "The decoder reads what comes, and says what was.", _returns(_LABELS, _INPUT), "shifted-backwards"
)
BANK.wrong(
    "rolled",
    "The labels are rolled: the last one is <bos>.",
    _returns("target_ids", "torch.roll(target_ids, -1, dims=1)"),
    "labels-rolled",
)
BANK.wrong(
    "input-whole", "The decoder's input keeps its last column.", _returns("target_ids", _LABELS), "last-column-kept"
)
BANK.wrong("labels-whole", "The labels keep their first column.", _returns(_INPUT, "target_ids"))
BANK.wrong("cut-on-both-sides", "The labels lose their last column too.", _returns(_INPUT, "target_ids[:, 1:-1]"))
BANK.wrong("by-two", "Shifted by two.", _returns("target_ids[:, :-2]", "target_ids[:, 2:]"), "shifted-by-two")
BANK.wrong(
    "along-the-batch",
    "The first axis is cut in place of the second.",
    _returns("target_ids[:-1]", "target_ids[1:]"),
    "wrong-axis",
)
BANK.wrong(
    "labels-filled-up",
    "The labels are as long as the sentence, with a zero at the end.",
    _returns("target_ids", f"F.pad({_LABELS}, (0, 1))"),
)
BANK.wrong(
    "bos-put-in-front",
    "A further <bos> is put in front, as if there were none.",
    _returns(f"torch.cat([target_ids[:, :1], {_INPUT}], dim=1)", "target_ids"),
    "bos-twice",
)
BANK.wrong(
    "end-taken-out",
    "In the input, <eos> of the shorter rows is replaced by zero.",
    _returns(f"{_INPUT}.masked_fill({_INPUT} == 2, 0)", _LABELS),
)
BANK.wrong(
    "in-place",
    "The given ids are overwritten.",
    _returns("inputs", _LABELS, f"inputs = {_INPUT}.clone()", "target_ids[:, 0] = 0"),
    "input-changed",
)
BANK.wrong("as-floats", "Labels as numbers with a point.", _returns(_INPUT, f"{_LABELS}.float()"))
BANK.wrong("first-row", "Only the first sentence.", _returns("target_ids[:1, :-1]", "target_ids[:1, 1:]"))
