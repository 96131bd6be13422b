"""The course key and the seeds that come from it."""

import stat

import pytest

from autograder import seeds


def test_the_key_is_made_once_and_is_the_owners_alone(tmp_path):
    key = seeds.course_key(tmp_path)
    assert key == seeds.course_key(tmp_path)
    assert len(key) == 32
    assert stat.S_IMODE((tmp_path / seeds.KEY_FILE).stat().st_mode) == 0o600


def test_a_damaged_key_is_not_replaced(tmp_path):
    (tmp_path / seeds.KEY_FILE).write_text("secret\n")
    with pytest.raises(ValueError, match="64 hexadecimal digits"):
        seeds.course_key(tmp_path)


def test_seeds_differ_by_course_chapter_and_round(tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    a, b = tmp_path / "a", tmp_path / "b"
    assert seeds.round_seed(a, 3) == seeds.round_seed(a, "03_attention")
    found = {seeds.round_seed(a, 2), seeds.round_seed(a, 3), seeds.round_seed(b, 3)}
    seeds.set_round(a, "2")
    found.add(seeds.round_seed(a, 3))
    assert len(found) == 4


def test_the_course_is_found_from_inside(tmp_path):
    inside = tmp_path / "autograded" / "someone" / "03_attention"
    inside.mkdir(parents=True)
    with pytest.raises(FileNotFoundError, match=r"nbgrader_config\.py"):
        seeds.find_course(inside)
    (tmp_path / "nbgrader_config.py").touch()
    assert seeds.find_course(inside) == tmp_path
