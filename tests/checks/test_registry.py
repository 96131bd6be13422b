"""The tables of checks and known mistakes: complete, consistent, and each known mistake caught and named as itself."""

import pytest

import autograder
from autograder import recreates, registry


@pytest.fixture(autouse=True, scope="module")
def _no_notes():
    """Looking for the built-ins that a piece uses takes a quarter of the time, and has tests of its own."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(recreates, "note", lambda *arguments, **options: "")
        yield


CHECKS = registry.checks()
MISTAKES = registry.misconceptions()


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: f"{check.piece}-{check.name}")
def test_a_check_says_what_it_tests_and_is_worth_something(check):
    assert check.points > 0
    assert check.description.endswith((".", "…"))
    assert len(check.description.split()) >= 5


def test_names_are_unique():
    names = [(check.piece, check.name) for check in CHECKS]
    assert len(set(names)) == len(names)


def test_a_title_does_not_repeat_the_piece():
    assert registry.title("scaled_dot_product_attention", "attention_obeys_a_mask") == "obeys a mask"
    assert registry.title("SelfAttention", "self_attention_hands_the_mask_on") == "hands the mask on"
    assert registry.title("softmax", "softmax") == "softmax"
    titles = [(check.piece, registry.title(check.piece, check.name)) for check in CHECKS]
    assert len(set(titles)) == len(titles)


@pytest.mark.parametrize("piece", registry.pieces())
def test_every_piece_has_known_mistakes_with_hints(piece):
    known = registry.misconceptions(piece)
    # A diagnosis is one of four words for each of three runs: little can be said of a wrong one.
    assert len({m.id for m in known}) >= (4 if piece == "diagnosis" else 6)
    for m in known:
        assert m.hint.endswith((".", "…", "?"))
        assert len(m.hint) < 200


@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda m: f"{m.piece}-{m.implementation.__name__}")
def test_a_known_mistake_loses_points_and_is_named_as_itself(mistake):
    named_as_itself(mistake, seed=0)


@pytest.mark.long
@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda m: f"{m.piece}-{m.implementation.__name__}")
def test_a_known_mistake_is_named_whatever_the_seed(mistake):
    for seed in range(1, 12):
        named_as_itself(mistake, seed)


def named_as_itself(mistake, seed):
    results = autograder.run_checks({mistake.piece: mistake.implementation}, piece=mistake.piece, seed=seed)
    failed = [r for r in results if not r.passed]
    assert failed
    assert {r.diagnosis and r.diagnosis.id for r in failed} == {mistake.id}
