"""Make the tables of the page for instructors from the table of reasons and the table of cases.

python -m tests.damaged.page            # writes book/instructors/damaged.md
"""

from __future__ import annotations

import html

from autograder.reasons import Reason
from tests.damaged.cases import CASES, CELLS, FILES, FORMATS, RUNS, Case
from tests.damaged.edits import ROOT

PAGE = ROOT / "book/instructors/damaged.md"
BEGIN, END = "<!-- made by tests/damaged/page.py -->", "<!-- end of what is made -->"
SCOPES = {
    "file": "The file",
    "cells": "The cells",
    "run": "The run",
    "check": "A check that fails",
}
GROUPS = {
    "The file": FILES,
    "The format": FORMATS,
    "The cells": CELLS,
    "The run": RUNS,
}


def tables() -> str:
    """The generated part of the page."""
    parts = ["## The reasons", ""]
    for scope, title in SCOPES.items():
        parts += [f"### {title}", "", "| reason | when | costs |", "| :-- | :-- | :-- |"]
        parts += [f"| `{r.value}` | {_cell(r.meaning)} | {_cell(r.costs)} |" for r in Reason if r.scope == scope]
        parts.append("")
    parts += [f"## The {len(CASES)} submissions", ""]
    parts += ["Points are of 20; a right notebook has 20, the half-right one 15."]
    for title, cases in GROUPS.items():
        parts += [
            "",
            f"### {title}: what was done",
            "",
            "| done to the notebook | points | reasons |",
            "| :-- | --: | :-- |",
        ]
        parts += [f"| {_cell(_what(case))} | {case.points:g} | {_reasons(case)} |" for case in cases]
    return "\n".join(parts)


def _what(case: Case) -> str:
    return case.what + (f" ({case.report})" if "#" in case.report else "")


def _reasons(case: Case) -> str:
    found = dict.fromkeys(f"`{reason.value}`" for reason in [*case.reasons, *dict(case.lost).values()])
    return ", ".join(found) or "none"


def _cell(text: str) -> str:
    return (
        html.escape(text, quote=False).replace("|", r"\|").replace("%%", r"\%%").replace("_", r"\_").replace("#", r"\#")
    )


def text() -> str:
    """The page as it should be."""
    before, _, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
    return f"{before}{BEGIN}\n\n{tables()}\n\n{END}{rest.partition(END)[2]}"


if __name__ == "__main__":
    PAGE.write_text(text(), encoding="utf-8")
