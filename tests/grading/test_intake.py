"""Rebuilding a submission on the released notebook: the learner's answers and cells, everything else from the source."""

import json
import pickle
import re
from pathlib import Path

import nbformat
import pytest

from autograder.intake import IntakeError, listing, read_submission, rebuild, receive
from autograder.reasons import Reason
from transformer_lab.cells import read_notebook

ROOT = Path(__file__).resolve().parents[2]
STUB = read_notebook(ROOT / "notebooks/03_attention/03_attention.ipynb")
ANSWER = "def softmax(scores, dim=-1):\n    return helper(scores, dim)"


def copy():
    return nbformat.from_dict(json.loads(json.dumps(STUB)))


def cell(notebook, grade_id):
    return next(c for c in notebook.cells if (c.metadata.get("nbgrader") or {}).get("grade_id") == grade_id)


def sources(intake):
    return [c.source for c in intake.notebook.cells]


def test_an_untouched_stub_comes_back_as_it_is():
    intake = rebuild(copy(), copy())
    assert sources(intake) == [c.source for c in STUB.cells]
    assert intake.remarks == []


def test_answers_are_taken_and_tests_are_not():
    theirs = copy()
    cell(theirs, "softmax").source = ANSWER
    for grade_id in ("test_softmax", "check_softmax"):
        cell(theirs, grade_id).source = "pass"
        cell(theirs, grade_id).metadata.tags = ["skip-execution"]
    intake = rebuild(copy(), theirs)
    assert cell(intake.notebook, "softmax").source == ANSWER
    for grade_id in ("test_softmax", "check_softmax"):
        assert cell(intake.notebook, grade_id) == cell(STUB, grade_id)


def test_points_and_flags_come_from_the_source():
    theirs = copy()
    cell(theirs, "check_softmax").metadata.nbgrader.points = 1000
    cell(theirs, "softmax").metadata.nbgrader.solution = False
    cell(theirs, "softmax").metadata.nbgrader.schema_version = 99
    intake = rebuild(copy(), theirs)
    assert [c.metadata for c in intake.notebook.cells] == [c.metadata for c in STUB.cells]


def test_an_added_cell_stays_before_what_it_stood_before():
    theirs = copy()
    place = theirs.cells.index(cell(theirs, "softmax"))
    helper = nbformat.v4.new_code_cell("def helper(s, dim): ...", metadata={"tags": ["skip-execution"], "x": 1})
    theirs.cells.insert(place, helper)
    cell(theirs, "softmax").source = ANSWER
    order = sources(rebuild(copy(), theirs))
    assert order.index(helper.source) < order.index(ANSWER)
    kept = next(c for c in rebuild(copy(), theirs).notebook.cells if c.source == helper.source)
    assert kept.metadata == {}


@pytest.mark.parametrize("hosted", [False, True], ids=["as it was", "ids gone"])
def test_the_first_cell_stays_what_nobody_runs(hosted):
    theirs = copy()
    setup = next(c for c in theirs.cells if c.id == "setup")
    setup.metadata.tags = []
    if hosted:  # some services write notebooks of the format before cells had ids
        for c in theirs.cells:
            del c["id"]
    else:
        setup.source += "\nraise SystemExit"
    rebuilt = rebuild(copy(), theirs).notebook.cells
    assert [c.metadata.get("tags") for c in rebuilt if "def set_up" in c.source] == [["skip-execution"]]
    assert len(rebuilt) == len(STUB.cells)


def test_answers_are_found_by_name_when_the_metadata_is_gone():
    theirs = copy()
    cell(theirs, "softmax").source = ANSWER
    for c in theirs.cells:
        c.metadata = nbformat.from_dict({})
        c.pop("id", None)
    intake = rebuild(copy(), theirs)
    assert cell(intake.notebook, "softmax").source == ANSWER
    assert any("lost its nbgrader metadata" in remark for remark in intake.remarks)
    assert sources(intake).count(cell(STUB, "test_softmax").source) == 1


def test_a_deleted_answer_stays_unwritten():
    theirs = copy()
    theirs.cells.remove(cell(theirs, "softmax"))
    intake = rebuild(copy(), theirs)
    assert "NotImplementedError" in cell(intake.notebook, "softmax").source
    assert any("missing" in remark for remark in intake.remarks)


def test_of_a_copied_answer_the_last_that_defines_the_piece_counts():
    theirs = copy()
    again = nbformat.from_dict(json.loads(json.dumps(cell(theirs, "softmax"))))
    again.source = ANSWER
    theirs.cells += [again, nbformat.from_dict({**json.loads(json.dumps(again)), "source": "# scratch"})]
    intake = rebuild(copy(), theirs)
    assert cell(intake.notebook, "softmax").source == ANSWER


def test_copies_of_tests_are_dropped():
    theirs = copy()
    theirs.cells.append(nbformat.from_dict(json.loads(json.dumps(cell(theirs, "test_softmax")))))
    assert sources(rebuild(copy(), theirs)) == [c.source for c in STUB.cells]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", Reason.EMPTY_FILE),
        ("\x00", Reason.EMPTY_FILE),
        ("{}", Reason.NOT_A_NOTEBOOK),
        ("[]", Reason.NOT_A_NOTEBOOK),
        ('{"cells": 3}', Reason.NOT_A_NOTEBOOK),
        ("[" * 100_000, Reason.NOT_A_NOTEBOOK),
        ('{"cells": [', Reason.CUT_OFF),
        ("not json", Reason.OTHER_FORMAT),
        ("PK\x03\x04 and so on", Reason.ARCHIVE),
    ],
)
def test_what_is_no_notebook_gets_a_reason_and_a_sentence(tmp_path, text, reason):
    path = tmp_path / "03_attention.ipynb"
    path.write_text(text)
    with pytest.raises(IntakeError) as caught:
        read_submission(path)
    assert caught.value.remark.reason is reason
    assert re.fullmatch(r"03_attention\.ipynb .+\.", caught.value.remark)


def test_a_link_is_not_followed(tmp_path):
    (tmp_path / "secret").write_text("{}")
    (tmp_path / "03_attention.ipynb").symlink_to(tmp_path / "secret")
    with pytest.raises(IntakeError, match="not a regular file"):
        read_submission(tmp_path / "03_attention.ipynb")


def test_a_cell_with_nonsense_for_metadata_is_the_learners_own():
    theirs = copy()
    theirs.cells.append(nbformat.v4.new_code_cell("x = 1", metadata={"nbgrader": "graded"}))
    assert [c.metadata for c in rebuild(copy(), theirs).notebook.cells if c.source == "x = 1"] == [{}]


def written(folder, notebook, name="03_attention.ipynb"):
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(notebook))
    return path


def answered():
    notebook = copy()
    cell(notebook, "softmax").source = ANSWER
    return notebook


def reasons(intake):
    return [remark.reason for remark in intake.remarks]


def test_of_a_submission_only_texts_are_read(tmp_path):
    theirs = answered()
    cell(theirs, "softmax").outputs = [nbformat.v4.new_output("stream", text="x" * 1000)]
    cell(theirs, "softmax").metadata.tags = ["skip-execution"]
    found = cell(read_submission(written(tmp_path, theirs)), "softmax")
    assert dict(found) == {
        "cell_type": "code",
        "id": "softmax",
        "source": ANSWER,
        "metadata": {"nbgrader": {"grade_id": "softmax"}},
    }


def test_the_named_notebook_is_taken_unless_no_work_is_in_it(tmp_path):
    written(tmp_path, answered(), "draft.ipynb")
    written(tmp_path, answered())
    received = receive(tmp_path, "03_attention", copy())
    assert received.path.name == "03_attention.ipynb"
    assert reasons(received) == []
    written(tmp_path, copy())
    received = receive(tmp_path, "03_attention", copy())
    assert received.path.name == "draft.ipynb"
    assert reasons(received) == [Reason.SEVERAL]


def test_a_folder_is_looked_through_to_a_depth_and_through_no_link(tmp_path):
    (tmp_path / "secret").mkdir()
    written(tmp_path / "secret", answered(), "work.ipynb")
    mine = tmp_path / "mine"
    deep = mine / "a/b/c/d/e"
    deep.mkdir(parents=True)
    written(deep, answered())
    (mine / "link").symlink_to(tmp_path / "secret")
    (mine / "file.ipynb").symlink_to(tmp_path / "secret/work.ipynb")
    assert [path.name for path in listing(mine)] == ["file.ipynb", "link"]
    assert receive(mine, "03_attention", copy()).notebook is None


def test_a_damaged_notebook_gives_its_whole_cells(tmp_path):
    path = written(tmp_path, answered())
    text = path.read_text()
    path.write_text(text[: text.index("def scaled_dot_product_attention")])
    received = receive(tmp_path, "03_attention", copy())
    assert reasons(received) == [Reason.CUT_OFF]
    assert cell(rebuild(copy(), received.notebook).notebook, "softmax").source == ANSWER


def test_an_untouched_stub_does_not_replace_an_answer_elsewhere():
    for place in (2, None):  # above the stub, and at the very end, where its checks would have come before it
        theirs = copy()
        theirs.cells.insert(len(theirs.cells) if place is None else place, nbformat.v4.new_code_cell(ANSWER))
        rebuilt = rebuild(copy(), theirs)
        texts = sources(rebuilt)
        assert reasons(rebuilt) == [Reason.ANSWER_ELSEWHERE]
        assert texts.count(ANSWER) == 1
        assert texts.index(ANSWER) < texts.index(cell(STUB, "test_softmax").source)
        assert cell(STUB, "softmax").source not in texts


def test_added_cells_have_the_same_ids_every_time():
    theirs = copy()
    theirs.cells.insert(3, nbformat.v4.new_code_cell("x = 1"))
    first, second = (rebuild(copy(), theirs).notebook for _ in range(2))
    assert [c.id for c in first.cells] == [c.id for c in second.cells]
    nbformat.validate(first)


def test_every_remark_survives_the_way_from_a_worker():
    remark = Reason.CUT_OFF("It ends too early.")
    again = pickle.loads(pickle.dumps(remark))
    assert again == "It ends too early."
    assert again.reason is Reason.CUT_OFF
