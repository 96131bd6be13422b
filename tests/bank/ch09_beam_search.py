"""beam_search(step_fn, …, beam_size, length_penalty): several hypotheses at once, and what people make of it."""

from .entry import IMPORTS, Collector

BANK = Collector("beam_search", "beam", IMPORTS)

_PLAIN = """
def beam_search(step_fn, bos_id, eos_id, pad_id, max_len, beam_size, length_penalty):
    live, ended = [([bos_id], 0.0)], []
    while live and len(live[0][0]) < max_len:
        log_p = {log_p}
        grown = [
            (ids + [token], {total})
            for (ids, total), row in zip(live, log_p)
            for token, p in enumerate(row.tolist())
        ]
        grown.sort(key=lambda pair: {order}, reverse=True)
        live = []
        for ids, total in grown[: {size}]:
            if {over}:
                {end}
            else:
                live.append((ids, total))
    {rest}
    ids, total = max(ended, key=lambda pair: {score})
    return {result}
"""
_LINES = {
    "log_p": "step_fn(torch.tensor([ids for ids, _ in live]))[:, -1].log_softmax(-1)",
    "total": "total + p",
    "order": "pair[1]",
    "size": "beam_size",
    "over": "ids[-1] == eos_id",
    "end": "ended.append((ids, total))",
    "rest": "ended += live",
    "score": "pair[1] / (len(pair[0]) - 1) ** length_penalty",
    "result": "torch.tensor(ids), total / (len(ids) - 1) ** length_penalty",
}
_STEP = "step_fn(torch.tensor([ids for ids, _ in live]))"


def _plain(**lines: str) -> str:
    """The plain form with some of its lines replaced."""
    assert not set(lines) - set(_LINES), lines
    return _PLAIN.format(**(_LINES | lines))


# ----------------------------------------------------------------------------------------------------------- right

BANK.right("plain", "Lists of ids and sums, sorted in each step.", _plain())
BANK.right("list", "The ids come back as a list.", _plain(result=f"ids, {_LINES['result'].split(', ', 1)[1]}"))
BANK.right(
    "over-by-length",
    "Hypotheses that are long enough are put aside with those that have ended.",
    _plain(over="ids[-1] == eos_id or len(ids) == max_len", rest=""),
)
BANK.right(
    "log-of-softmax-in-double",
    "Logarithms of probabilities in double precision.",
    _plain(log_p=f"{_STEP}[:, -1].double().softmax(-1).log()"),
)
BANK.right(
    "scores-kept",
    "The score is worked out when a hypothesis ends.",
    _plain(
        end="ended.append((ids, total / (len(ids) - 1) ** length_penalty))",
        rest="ended += [(ids, total / (len(ids) - 1) ** length_penalty) for ids, total in live]",
        score="pair[1]",
        result="torch.tensor(ids), total",
    ),
)
BANK.right(
    "topk",
    "topk over the flattened continuations.",
    """
@torch.no_grad()
def beam_search(step_fn, bos_id, eos_id, pad_id, max_len, beam_size, length_penalty):
    ids, totals = torch.tensor([[bos_id]]), torch.zeros(1)
    best, best_score = None, -math.inf
    while len(ids):
        log_p = step_fn(ids)[:, -1].log_softmax(-1)
        totals, flat = (totals[:, None] + log_p).flatten().topk(min(beam_size, log_p.numel()))
        ids = torch.cat([ids[flat // log_p.size(1)], (flat % log_p.size(1))[:, None]], dim=1)
        over = torch.full((len(ids),), ids.size(1) == max_len) | (ids[:, -1] == eos_id)
        for row, total in zip(ids[over], totals[over].tolist()):
            score = total / (ids.size(1) - 1) ** length_penalty
            if score > best_score:
                best, best_score = row, score
        ids, totals = ids[~over], totals[~over]
    return best, best_score
""",
)

# ----------------------------------------------------------------------------------------------------------- wrong

BANK.wrong("greedy", "A beam of one, whatever is asked for.", _plain(size="1"), "one-hypothesis")
BANK.wrong(
    "one-each",
    "The best continuation of each hypothesis: the beam never branches again.",
    _plain(
        total="total + p if token == int(row.argmax()) or len(ids) == 1 else -math.inf",
    ),
    "one-continuation-each",
)
BANK.wrong(
    "logits-summed", "Logits are added up in place of log-probabilities.", _plain(log_p=f"{_STEP}[:, -1]"),
    "logits-summed",
)  # fmt: skip
BANK.wrong(
    "probabilities-summed",
    "Probabilities are added up.",
    _plain(log_p=f"{_STEP}[:, -1].softmax(-1)"),
    "probabilities-summed",
)
BANK.wrong("last-only", "Each token by itself: the sum is forgotten.", _plain(total="p"), "sum-forgotten")
BANK.wrong("no-penalty", "The length does not count.", _plain(
    score="pair[1]", result="torch.tensor(ids), total"
), "no-length-penalty")  # fmt: skip
BANK.wrong(
    "always-mean",
    "The mean, whatever the penalty is.",
    _plain(score="pair[1] / (len(pair[0]) - 1)", result="torch.tensor(ids), total / (len(ids) - 1)"),
    "always-the-mean",
)
BANK.wrong(
    "bos-counted",
    "BOS is counted among the tokens.",
    _plain(
        score="pair[1] / len(pair[0]) ** length_penalty", result="torch.tensor(ids), total / len(ids) ** length_penalty"
    ),
    "start-counted",
)
BANK.wrong(
    "eos-not-counted",
    "EOS is not counted among the tokens.",
    _plain(
        score="pair[1] / max(1, len(pair[0]) - 1 - (pair[0][-1] == eos_id)) ** length_penalty",
        result="torch.tensor(ids), total / max(1, len(ids) - 1 - (ids[-1] == eos_id)) ** length_penalty",
    ),
    "end-not-counted",
)
BANK.wrong(
    "sum-returned", "The sum comes back for the score.", _plain(result="torch.tensor(ids), total"), "sum-for-score"
)
BANK.wrong(
    "multiplied",
    "Multiplied with the length's power.",
    _plain(
        score="pair[1] * (len(pair[0]) - 1) ** length_penalty",
        result="torch.tensor(ids), total * (len(ids) - 1) ** length_penalty",
    ),
    "penalty-multiplied",
)
BANK.wrong(
    "first-ended",
    "The first hypothesis that ends is the answer.",
    _plain(end="return torch.tensor(ids), total / (len(ids) - 1) ** length_penalty"),
    "first-end-taken",
)
BANK.wrong("never-ended", "EOS is a word like others.", _plain(over="False"), "end-ignored")
BANK.wrong(
    "ended-forgotten",
    "What has ended is dropped where something else goes on.",
    _plain(rest="ended = live or ended"),
    "ended-forgotten",
)
BANK.wrong(
    "live-forgotten",
    "What has not ended at max_len is dropped where something has.",
    _plain(rest="ended = ended or live"),
)
BANK.wrong(
    "worst", "The worst of the beam.", _plain(score="-pair[1] / (len(pair[0]) - 1) ** length_penalty"), "worst-taken"
)
BANK.wrong("ascending", "The least likely are kept.", _plain(order="-pair[1]"), "least-likely-kept")
BANK.wrong(
    "first-position", "The first position is read.", _plain(log_p=f"{_STEP}[:, 0].log_softmax(-1)"), "position-read"
)
BANK.wrong("bos-cut", "BOS is cut off.", _plain(
    result="torch.tensor(ids[1:]), total / (len(ids) - 1) ** length_penalty"
), "start-cut")  # fmt: skip
BANK.wrong("end-is-two", "2 ends a sentence, whatever eos_id is.", _plain(over="ids[-1] == 2"), "ids-fixed")
BANK.wrong("twice-as-many", "Twice as many are kept as the beam has.", _plain(size="2 * beam_size"), "beam-too-wide")
