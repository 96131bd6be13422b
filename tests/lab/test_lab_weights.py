"""What is known of the training that chapter 10's notebook begins with, and that the notebook says what is known."""

from __future__ import annotations

import ast
import math
import re
from dataclasses import asdict, replace

import pytest

from transformer_lab import results, translation, weights
from transformer_lab.cells import read_cells
from transformer_lab.measurements import lab_weights
from transformer_lab.pieces import COURSE_ROOT

SOURCE = COURSE_ROOT / "solutions/10_training_lab.md"
SMALL = translation.Config(d_model=16, num_heads=2, d_ff=16, num_layers=1, steps=4)


def calls(name: str) -> list[ast.Call]:
    """The calls of a function or method in the notebook's code."""
    trees = [ast.parse(cell.source) for cell in read_cells(SOURCE)]
    found = [node for tree in trees for node in ast.walk(tree) if isinstance(node, ast.Call)]
    return [node for node in found if ast.unparse(node.func).split(".")[-1] == name]


def given(call: ast.Call) -> dict[str, object]:
    """Its named arguments, as far as they are constants."""
    return {word.arg: word.value.value for word in call.keywords if word.arg and isinstance(word.value, ast.Constant)}


def test_a_training_gives_a_row_the_same_each_time():
    row = lab_weights.measure(5, SMALL, every=2)
    assert (row["seed"], row["steps"]) == (5, 4)
    again = lab_weights.measure(5, SMALL, every=2)
    assert {**row, "minutes": 0} == {**again, "minutes": 0}


def test_only_what_is_not_known_is_measured(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(lab_weights, "ProcessPoolExecutor", _Here)
    monkeypatch.setattr(lab_weights, "measure", lambda seed: {"seed": seed, "exact_long": 0.5})
    for seeds in ([1], [1, 0]):
        lab_weights.run(seeds, 1, tmp_path)
    assert [row["seed"] for row in results.load(lab_weights.NAME, tmp_path).select()] == [0, 1]
    assert len(capsys.readouterr().out.splitlines()) == 2


class _Here:
    """Instead of other processes, which would not know what has been put in the place of the training."""

    def __init__(self, *given):
        pass

    def __enter__(self):
        from concurrent.futures import ThreadPoolExecutor

        self.pool = ThreadPoolExecutor(1)
        return self.pool

    def __exit__(self, *error):
        self.pool.shutdown()


def test_it_is_the_training_of_the_notebook():
    (config,) = [call for call in calls("Config") if given(call).get("steps") == lab_weights.CONFIG.steps]
    assert asdict(replace(translation.Config(), **given(config))) == asdict(lab_weights.CONFIG)
    assert {"every": lab_weights.EVERY, "validate": lab_weights.VALIDATED, "samples": 1} in map(given, calls("trainer"))
    (drawn,) = calls("further_pairs")
    assert ast.unparse(drawn) == f"further_pairs({lab_weights.FURTHER}, seed={lab_weights.SEED})"
    assert f"if len(pair.source) >= {lab_weights.LONG}]" in SOURCE.read_text(encoding="utf-8")


def test_the_notebook_says_what_was_measured():
    rows = results.load(lab_weights.NAME).select()
    assert len(rows) >= 3
    shapes = weights.specification("lab", lab_weights.CONFIG).values()
    assert {row["parameters"] for row in rows} == {sum(map(math.prod, shapes))}
    low, high = (f"{100 * pick(row['exact_long'] for row in rows):.1f}" for pick in (min, max))
    text = SOURCE.read_text(encoding="utf-8")
    said = re.search(r"([\d,]+) parameters, translated ([\d.]+) to ([\d.]+) % of the long sentences", text)
    assert said is not None
    assert said.groups() == (f"{rows[0]['parameters']:,}", low, high)


@pytest.mark.parametrize("share", [0.5, 0.75, 0.9, 0.97])
def test_a_point_is_given_from_a_share_that_has_been_reached(share):
    assert all(row["exact_long"] >= share for row in results.load(lab_weights.NAME).select())
