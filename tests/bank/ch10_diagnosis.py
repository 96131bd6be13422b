"""diagnosis(run): what was wrong with three trainings, and what else could have been said."""

from .entry import IMPORTS, Collector

BANK = Collector("diagnosis", "diagnosis", IMPORTS)

_RIGHT = {"A": "target shift", "B": "warm-up", "C": "leaking mask"}


def _table(**causes: str) -> str:
    return f"\ndef diagnosis(run):\n    return {_RIGHT | causes}[run]\n"


# ----------------------------------------------------------------------------------------------------------- right

BANK.right("table", "A dictionary.", _table())
BANK.right(
    "ifs",
    "One question after another.",
    """
def diagnosis(run):
    if run == "A":
        return "target shift"
    if run == "B":
        return "warm-up"
    if run == "C":
        return "leaking mask"
    raise ValueError(f"there is no run {run}")
""",
)
BANK.right(
    "match",
    "match and case.",
    """
def diagnosis(run):
    match run:
        case "A":
            return "target shift"
        case "B":
            return "warm-up"
        case "C":
            return "leaking mask"
    raise KeyError(run)
""",
)
BANK.right(
    "index",
    "A place in the alphabet; index raises a ValueError.",
    """
CAUSES = "target shift", "warm-up", "leaking mask"


def diagnosis(run):
    return CAUSES["ABC".index(run)]
""",
)
BANK.right(
    "pairs",
    "Pairs, made into a dictionary.",
    """
def diagnosis(run):
    found = dict(zip("ABC", ("target shift", "warm-up", "leaking mask")))
    if run not in found:
        raise ValueError("A, B or C")
    return found[run]
""",
)
BANK.right(
    "letters",
    "Small letters are taken, too.",
    """
def diagnosis(run):
    causes = {"a": "target shift", "b": "warm-up", "c": "leaking mask"}
    return causes[run.lower()]
""",
)

# ----------------------------------------------------------------------------------------------------------- wrong

for _run, _own in _RIGHT.items():
    for _cause in ("warm-up", "leaking mask", "target shift", "none of these"):
        if _cause != _own:
            _name = f"{_run.lower()}-{_cause.replace(' ', '-')}"
            BANK.wrong(_name, f"{_run} is taken for {_cause}.", _table(**{_run: _cause}), f"run-{_run.lower()}")
BANK.wrong(
    "guesses",
    "Every other name has an answer.",
    f'\ndef diagnosis(run):\n    return {_RIGHT}.get(run, "none of these")\n',
    "guesses",
)
BANK.wrong("none", "Every other name gives None.", f"\ndef diagnosis(run):\n    return {_RIGHT}.get(run)\n")
BANK.wrong(
    "capitals",
    "The words are written otherwise.",
    f"\ndef diagnosis(run):\n    return { ({run: cause.title() for run, cause in _RIGHT.items()}) }[run]\n",
)
BANK.wrong("pair", "The run comes back, too.", f"\ndef diagnosis(run):\n    return run, {_RIGHT}[run]\n")
BANK.wrong("printed", "The answer is printed.", f"\ndef diagnosis(run):\n    print({_RIGHT}[run])\n")
BANK.wrong("number", "The number of the cause.", '\ndef diagnosis(run):\n    return {"A": 2, "B": 0, "C": 1}[run]\n')
