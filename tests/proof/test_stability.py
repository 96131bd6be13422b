"""The tool that looks for verdicts that depend on chance: it finds a planted one, and goes on where it was stopped."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch

from autograder import registry
from autograder.compare import expect
from autograder.student import LocalStudent
from tests.proof import stability
from tests.proof.stability import SETTINGS, Direct, Judge, Setting, Subject, subjects

MAIN = SETTINGS[:1]
SMALL = ["causal_mask", "target_mask"]


def some(piece: str, count: int = 6) -> list[Subject]:
    """A few right and a few wrong implementations of a piece."""
    table = subjects(piece)
    return [s for s in table if s.right][:count] + [s for s in table if not s.right][:count]


@pytest.mark.parametrize("piece", ["shift_matrix", "TransformerEmbedding", "LayerNorm", "causal_mask"])
def test_asking_directly_is_asking_through_text(piece):
    table = some(piece)
    assert Judge(piece, table).judge(3) == Judge(piece, table, student=LocalStudent).judge(3)


@pytest.mark.parametrize("piece", registry.pieces())
def test_the_solution_and_pytorchs_own_pass(piece):
    table = [subject for subject in subjects(piece) if subject.id in ("solution", "PyTorch's")]
    assert table
    assert Judge(piece, table).judge(5)["wrongly"] == []


def test_every_known_implementation_is_judged():
    table = subjects("LayerNorm")
    assert len({subject.id for subject in table}) == len(table)
    assert sum(not subject.right for subject in table) > 60


def now_and_then():
    """A causal mask that is wrong for some inputs only: for the larger of the drawn sizes."""

    def causal_mask(size):
        mask = torch.ones(size, size, dtype=torch.bool).tril()
        return mask if size < 40 else ~mask

    return {"causal_mask": causal_mask}


@pytest.mark.parametrize("right", [True, False])
def test_a_verdict_that_depends_on_the_seed_is_found(right):
    """A check that draws a size that this mask gets wrong now and then."""

    def drawn(student, rng):
        size = int(rng.integers(2, 60))
        expect(student.run("causal_mask", size), np.tri(size, dtype=bool), "the mask")

    check = registry.Check("drawn", "causal_mask", 7, 1.0, drawn)
    planted = Subject("causal_mask", "planted", right, "", now_and_then)
    judge = Judge("causal_mask", [planted], [check])
    wrongly = [bool(judge.judge(seed)["wrongly"]) for seed in range(12)]
    assert any(wrongly)
    assert not all(wrongly)


def test_margins_tell_how_near_a_verdict_was():
    def noisy(by):
        return lambda: {"f": lambda x: x + by}

    def check(student, rng):
        expect(student.run("f", np.ones(3, np.float32)), np.ones(3), "the sum")

    one = registry.Check("check", "f", 1, 1.0, check)
    table = [
        Subject("f", "nearly wrong", True, "", noisy(5e-5)),
        Subject("f", "right", True, "", noisy(0.0)),
        Subject("f", "nearly right", False, "", noisy(3e-4)),
        Subject("f", "wrong", False, "", noisy(1.0)),
    ]
    found = Judge("f", table, [one]).judge(0)
    assert found["wrongly"] == []
    assert [(case[0], case[1], case[2], round(case[3], 1)) for case in found["near"]] == [
        ("nearly wrong", "check", "the sum", 0.5),
        ("nearly right", "check", "the sum", 3.0),
    ]
    assert found["right"] == pytest.approx(0.5, abs=0.01)
    assert found["wrong"] == pytest.approx(3.0, abs=0.01)


def test_a_run_that_was_stopped_goes_on_and_finds_the_same(tmp_path, monkeypatch):
    tables = {piece: some(piece, 3) for piece in SMALL}
    judged = []
    judge = Judge.judge
    monkeypatch.setattr(Judge, "judge", lambda self, seed: judged.append((self.piece, seed)) or judge(self, seed))

    def run(folder, seeds):
        del judged[:]
        return stability.run(seeds, SMALL, tmp_path / folder, settings=MAIN, tables=tables)

    whole = run("whole", 3)
    assert len(judged) == 6
    run("stopped", 2)
    file = tmp_path / "stopped" / "verdicts.jsonl"
    file.write_text(file.read_text()[:-20])  # killed while it wrote the fourth line
    assert run("stopped", 3) == whole
    assert judged == [("target_mask", 1), ("causal_mask", 2), ("target_mask", 2)]
    assert [row["piece"] for row in map(json.loads, file.read_text().splitlines()[:3])] == [*SMALL, SMALL[0]]
    assert run("stopped", 3) == whole
    assert judged == []
    assert stability.table(run("stopped", 3), SMALL) == stability.table(whole, SMALL)


def test_what_has_changed_is_judged_again(tmp_path, monkeypatch):
    tables = {piece: some(piece, 1) for piece in SMALL}
    stability.run(1, SMALL, tmp_path, settings=MAIN, tables=tables)
    digest = stability.digest
    monkeypatch.setattr(stability, "digest", lambda piece: "other" if piece == "causal_mask" else digest(piece))
    judged = []
    judge = Judge.judge
    monkeypatch.setattr(Judge, "judge", lambda self, seed: judged.append(self.piece) or judge(self, seed))
    stability.run(1, SMALL, tmp_path, settings=MAIN, tables=tables)
    assert judged == ["causal_mask"]


def test_workers_find_what_one_process_finds(tmp_path):
    tables = {"causal_mask": some("causal_mask", 2)}
    found = [stability.run(3, ["causal_mask"], tmp_path / str(jobs), jobs, MAIN, tables) for jobs in (1, 2)]
    assert found[0] == found[1]


def test_settings_hold_while_it_is_judged_and_no_longer():
    seen = []

    def check(student, rng):
        seen.append((torch.get_num_threads(), torch.are_deterministic_algorithms_enabled()))

    before = torch.get_num_threads()
    judge = Judge("f", [Subject("f", "f", True, "", dict)], [registry.Check("check", "f", 1, 1.0, check)])
    for setting in (Setting("a", 2, True), Setting("b", 1, False)):
        with setting.here():
            judge.judge(0)
    assert seen == [(2, True), (1, False)]
    assert (torch.get_num_threads(), torch.are_deterministic_algorithms_enabled()) == (before, False)


def test_units_cover_every_seed_once_and_the_other_settings_now_and_then():
    units = stability.units(200, ["a", "b"])
    assert len(set(units)) == len(units)
    assert sum(unit[0] == SETTINGS[0].name for unit in units) == 400
    for setting in SETTINGS[1:]:
        assert sorted(unit[1] for unit in units if unit[0] == setting.name and unit[2] == "a") == [*range(0, 200, 20)]


def test_the_table_tells_pieces_and_near_cases(tmp_path):
    first = subjects("causal_mask")[0]
    found = {
        (MAIN[0].name, seed, "causal_mask"): {
            "wrongly": [[first.id, "a check", "The mask: wrong."]] if seed == 1 else [],
            "near": [[first.id, "a check", "the mask", 0.2 + seed / 10]],
            "right": 0.2 + seed / 10,
            "wrong": None,
        }
        for seed in range(3)
    }
    rows = stability.table(found, ["causal_mask"])
    assert [row["row"] for row in rows] == ["verdicts", "unexpected", "near"]
    assert (rows[0]["seeds"], rows[0]["unexpected"], rows[0]["largest_right"]) == (3, 1, 0.4)
    assert (rows[2]["implementation"], rows[2]["verdict"], rows[2]["margin"], rows[2]["seeds"]) == (
        first.id,
        "right",
        0.4,
        3,
    )
    path = stability.save(rows, ["causal_mask"], 3, tmp_path)
    assert json.loads(path.read_text())["command"] == "make stability SEEDS=3"


def test_direct_answers_errors_as_text_would():
    def broken(x):
        raise ValueError("no")

    for student in (Direct({"f": broken}), LocalStudent({"f": broken})):
        with pytest.raises(Exception, match="ValueError: no"):
            student.run("f", np.zeros(2))
