"""Citations as they are spoken: *Vaswani et al. (2017)* in the text, and the same words as the label in the list."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

import sphinxcontrib.bibtex.plugin
from pybtex.plugin import register_plugin
from pybtex.style.formatting.unsrt import Style as UnsortedStyle
from pybtex.style.labels import BaseLabelStyle
from pybtex.style.sorting.author_year_title import SortingStyle
from pybtex.style.template import field, sentence, tag
from sphinx.application import Sphinx
from sphinxcontrib.bibtex.style.referencing import BracketStyle
from sphinxcontrib.bibtex.style.referencing.author_year import AuthorYearReferenceStyle


class SpokenLabel(BaseLabelStyle):
    """``Vaswani et al. 2017``, ``Jain and Wallace 2019``; a letter after the year where two would be alike."""

    def format_labels(self, sorted_entries):
        seen: dict[str, int] = {}
        for entry in sorted_entries:
            names = [" ".join(person.last_names) for person in entry.persons["author"]]
            who = names[0] + (" et al." if len(names) > 2 else f" and {names[1]}" if len(names) == 2 else "")
            label = f"{who} {entry.fields['year']}"
            seen[label] = seen.get(label, 0) + 1
            yield label + ("" if seen[label] == 1 else chr(ord("a") + seen[label] - 1))


class SpokenStyle(UnsortedStyle):
    default_label_style = SpokenLabel
    default_sorting_style = SortingStyle

    def format_title(self, e, which_field, as_sentence=True):
        """The title as its authors write it: RoFormer, not Roformer."""
        title = tag("em")[field(which_field)] if which_field == "booktitle" else field(which_field)
        return sentence[title] if as_sentence else title


def _round() -> BracketStyle:
    return BracketStyle(left="(", right=")")


@dataclass
class RoundReferenceStyle(AuthorYearReferenceStyle):
    bracket_parenthetical: BracketStyle = dataclasses.field(default_factory=_round)
    bracket_textual: BracketStyle = dataclasses.field(default_factory=_round)
    bracket_author: BracketStyle = dataclasses.field(default_factory=_round)
    bracket_label: BracketStyle = dataclasses.field(default_factory=_round)
    bracket_year: BracketStyle = dataclasses.field(default_factory=_round)


register_plugin("pybtex.style.formatting", "spoken", SpokenStyle)
sphinxcontrib.bibtex.plugin.register_plugin(
    "sphinxcontrib.bibtex.style.referencing", "author_year_round", RoundReferenceStyle
)


def setup(app: Sphinx) -> dict:
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
