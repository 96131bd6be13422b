"""Between text and words."""

from __future__ import annotations

import re
from collections.abc import Iterable

#: A number with its separators, a word with its apostrophes and hyphens, or one sign.
_TOKEN = re.compile(r"\d+(?:[.,]\d+)+|\w+(?:['’\-]\w+)*|[^\w\s]")
_BEFORE = re.compile(r" (?=[.,;:!?)\]»”](?: |[.,;:!?)\]»”]|$))")
_AFTER = re.compile(r"(?:(?<=^[(\[«„“])|(?<= [(\[«„“])) ")


def tokenise(text: str) -> tuple[str, ...]:
    """The words and signs of ``text``: ``"It's twenty-five past, Anna."`` has ``It's twenty-five past , Anna .``"""
    return tuple(_TOKEN.findall(text))


def detokenise(words: Iterable[str]) -> str:
    """Words as text, signs next to the words that they belong to: what people read and what is scored.

    Quotation marks that look alike on both sides, and dashes, keep their blanks, because words alone don't tell where they
    belong. ``tokenise(detokenise(words)) == words`` for all words that ``tokenise`` has made.
    """
    return _AFTER.sub("", _BEFORE.sub("", " ".join(words)))
