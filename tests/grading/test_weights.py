"""Weights handed in beside a notebook: graded like any piece, whichever way; damaged ones get a sentence; copies are found."""

import csv
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import safetensors.torch
import torch
from nbgrader.api import Gradebook
from typer.testing import CliRunner

from autograder import cli, digests, feedback, grade, registry, release, report, run_checks, sandbox, weights
from autograder.compare import CheckFailed
from autograder.course import Course
from autograder.student import LocalStudent, RemoteStudent, StudentError
from transformer_lab import translation
from transformer_lab import weights as files

ROOT = Path(__file__).resolve().parents[2]
CHAPTER, PIECE, FILE = "08_classifier", "classifier_weights", "classifier.safetensors"
SAMPLES = ROOT / "autograder" / "samples" / CHAPTER
PATH = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])


def sample(name):
    return (SAMPLES / f"{name}.safetensors").read_bytes()


@pytest.fixture(scope="module")
def trained():
    return files.parse(sample("trained"), "classifier")


def packed(tensors, **metadata):
    return safetensors.torch.save({name: tensor.contiguous() for name, tensor in tensors.items()}, metadata or None)


def results(folder, seed=1):
    return run_checks(LocalStudent({}, folder=folder), piece=PIECE, seed=seed)


def hand_in(folder, data):
    folder.mkdir(parents=True, exist_ok=True)
    (folder / FILE).write_bytes(data)
    return folder


# ------------------------------------------------------------------------------------------------------------- registry


def test_files_are_no_pieces_of_code():
    assert registry.submitted(CHAPTER) == {PIECE: FILE}
    assert PIECE not in registry.pieces()
    assert registry.submitted(3) == {}
    assert sum(check.points for check in registry.checks(piece=PIECE)) == 5
    assert {Path(file).stem for file in registry.submitted().values()} <= set(files.KINDS) == set(weights.EXAMS)


# -------------------------------------------------------------------------------------------------------------- a file


def test_a_file_is_read_once_and_outside_the_kernel(tmp_path):
    student = RemoteStudent(kernel=None, folder=hand_in(tmp_path, b"first"))
    assert student.file(FILE) == b"first"
    hand_in(tmp_path, b"second")
    assert student.file(FILE) == b"first", "what was judged and what was fingerprinted must be the same"


def test_where_no_file_is(tmp_path, monkeypatch):
    for student in (LocalStudent({}, folder=tmp_path), LocalStudent({}, folder=None), RemoteStudent(None)):
        with pytest.raises(StudentError, match=r"`classifier\.safetensors` is not handed in") as caught:
            student.file(FILE)
        assert caught.value.type_name == "NotSubmitted"
    (tmp_path / "classifier (1)\n.safetensors").write_bytes(b"x")
    with pytest.raises(StudentError, match=r"\(but `classifier \(1\)\\n.safetensors`\)"):
        LocalStudent({}, folder=tmp_path).file(FILE)
    monkeypatch.chdir(hand_in(tmp_path / "here", b"found"))
    assert LocalStudent({}).file(FILE) == b"found"


@pytest.mark.parametrize("name", ["", ".", "..", "../x", "a/b", "/etc/passwd"])
def test_a_check_asks_for_plain_names_only(tmp_path, name):
    with pytest.raises(ValueError, match="is not the name of a file"):
        LocalStudent({}, folder=tmp_path).file(name)


# -------------------------------------------------------------------------------------------------------------- scores


def test_trained_weights_earn_everything_untrained_ones_nothing(tmp_path):
    assert [r.earned for r in results(hand_in(tmp_path / "a", sample("trained")))] == [1, 2, 2]
    failed = results(hand_in(tmp_path / "b", sample("untrained")))
    assert [r.earned for r in failed] == [0, 0, 0]
    for result, threshold in zip(failed, ("75 %", "95 %", "99 %"), strict=True):
        assert "of 2,000 fresh sequences" in result.message
        assert result.message.endswith(f"{threshold} are asked for here.")
    assert len({r.message.split(";")[0] for r in failed}) == 1, "all thresholds are held against one test set"


def test_the_trained_sample_stands_well_above_the_highest_threshold():
    """Else it would earn its points with one round's test set and not with another's: make the samples' weights anew."""
    rights = [weights.score("classifier", sample("trained"), seed).right for seed in range(5)]
    assert min(rights) >= 0.995 * 2000


def test_the_threshold_is_counted_exactly(monkeypatch, tmp_path):
    student = LocalStudent({}, folder=hand_in(tmp_path, b""))
    for right, passes in ((1900, True), (1899, False)):
        monkeypatch.setattr(weights, "score", lambda *args, right=right: weights.Score(right, 2000))
        if passes:
            weights.require_accuracy(student, np.random.default_rng(0), "classifier", 0.95)
        else:
            with pytest.raises(
                CheckFailed, match=r"1,899 of 2,000 fresh sequences \(94.9 %\); 95 % are asked for here"
            ):
                weights.require_accuracy(student, np.random.default_rng(0), "classifier", 0.95)


def test_the_test_set_is_the_rounds(tmp_path):
    untrained = hand_in(tmp_path, sample("untrained"))
    first, again, other = (results(untrained, seed)[0].message for seed in (b"round 1", b"round 1", b"round 2"))
    assert first == again != other


def test_constant_and_overflowing_logits(tmp_path, trained):
    zero = {name: tensor * 0 for name, tensor in trained.items()}
    assert "1,000 of 2,000" in results(hand_in(tmp_path, packed(zero)))[0].message, "one class always: half are right"
    huge = {name: torch.full_like(tensor, 3e38) for name, tensor in trained.items()}
    message = results(hand_in(tmp_path, packed(huge)))[0].message
    assert "right on 0 of 2,000" in message
    assert message.endswith("On 2,000 its logits are not finite, which counts as wrong.")
    tiny = {name: torch.full_like(tensor, 1e-40) for name, tensor in trained.items()}
    assert sum(r.earned for r in results(hand_in(tmp_path, packed(tiny)))) == 0


def link(folder):
    (folder / "elsewhere").write_bytes(sample("trained"))
    (folder / FILE).symlink_to("elsewhere")


SPOILT = {
    "missing": (lambda folder: None, "is not handed in"),
    "empty": (lambda folder: hand_in(folder, b""), "is empty"),
    "cut off": (lambda folder: hand_in(folder, sample("cut_off")), "damaged or cut off"),
    "pickle": (lambda folder: torch.save({"weight": torch.ones(2)}, folder / FILE), "zip archive"),
    "archive": (lambda folder: np.savez((folder / FILE).open("wb"), a=np.ones(2)), "zip archive"),
    "link": (link, "not a regular file"),
    "folder": (lambda folder: (folder / FILE).mkdir(), "not a regular file"),
    "pipe": (lambda folder: os.mkfifo(folder / FILE), "not a regular file"),
    "sparse": (lambda folder: os.truncate(hand_in(folder, b"x") / FILE, 1 << 40), "MB are read"),
    "other model": (lambda folder: hand_in(folder, packed({"a": torch.ones(2)})), "missing: "),
}


@pytest.mark.parametrize("how", SPOILT)
def test_whatever_is_handed_in_gets_a_sentence_and_nothing(tmp_path, how):
    spoil, words = SPOILT[how]
    spoil(tmp_path)
    found = results(tmp_path)
    assert [r.earned for r in found] == [0, 0, 0]
    assert {words in r.message and r.message.endswith((".", "?")) for r in found} == {True}, found[0].message
    assert len({r.message for r in found}) == 1


# --------------------------------------------------------------------------------------------------------- a translator

TRANSLATOR = "translator_weights"


def translators(tmp_path, data, seed=1):
    (tmp_path / "translator.safetensors").write_bytes(data)
    return run_checks(LocalStudent({}, folder=tmp_path), piece=TRANSLATOR, seed=seed)


@pytest.fixture(scope="module")
def translator():
    return (ROOT / "autograder" / "samples" / "09_translation" / "trained.safetensors").read_bytes()


def test_a_trained_translator_earns_everything_and_its_score_is_that_of_the_lab(tmp_path, translator):
    assert [r.earned for r in translators(tmp_path, translator)] == [1, 1, 1, 1]
    one = translation.Translator(translation.Task.default())
    files.put(one.model, files.parse(translator, "translator"), "translator")
    pairs = weights.EXAMS["translator"].draw(np.random.default_rng(5))
    assert len(pairs) == 500
    found = weights.score("translator", translator, 5)
    assert found.right == round(one.exact(pairs) * 500)
    assert found.right >= 490


@pytest.mark.parametrize("number", [0.0, 3e38], ids=["nothing", "overflow"])
def test_a_translator_of_other_numbers_earns_nothing(tmp_path, translator, monkeypatch, number):
    monkeypatch.setattr(weights, "SENTENCES", 20)
    weights._tests.cache_clear()
    tensors = {n: torch.full_like(t, number) for n, t in files.parse(translator, "translator").items()}
    found = translators(tmp_path, packed(tensors), seed=2)
    weights._tests.cache_clear()
    assert sum(r.earned for r in found) == 0
    assert "right on 0 of 20 fresh sentences (0.0 %)" in found[0].message
    assert ("On 20 its logits are not finite" in found[0].message) == (number > 0)


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "is empty"),
        (sample("trained"), "does not hold the parameters of the course's translator"),
        (b"PK\x03\x04 and so on", "zip archive"),
    ],
    ids=["empty", "the classifier's", "archive"],
)
def test_no_translator(tmp_path, data, words):
    found = translators(tmp_path, data)
    assert sum(r.earned for r in found) == 0
    assert all(words in r.message for r in found)


# -------------------------------------------------------------------------------------------------------------- copies


def noise(tensors, size, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return {n: t + size * t.abs().mean() * torch.randn(t.shape, generator=generator) for n, t in tensors.items()}


def records(**data):
    return [
        {"student": student, "files": {FILE: weights.fingerprint("classifier", content)}}
        for student, content in data.items()
    ]


def test_copies_are_found_and_others_are_not(trained):
    class_ = records(
        ada=sample("trained"),
        bo=packed(dict(reversed(trained.items())), who="me"),
        cem=packed(noise(trained, 1e-3)),
        dora=packed(noise(trained, 1e-3, seed=1)),
        eve=packed(noise(trained, 0.2)),
        fay=sample("untrained"),
    )
    assert weights.alike(class_) == [
        weights.Alike(FILE, ("ada", "bo")),
        weights.Alike(FILE, ("ada", "bo", "cem", "dora"), near=True),
    ]
    assert json.loads(json.dumps(class_)) == class_
    assert (
        weights.alike([{"student": "gil"}, {"student": "hal", "files": {}}, {"student": "ida", "files": {FILE: None}}])
        == []
    )
    assert weights.fingerprint("classifier", b"damaged") is None


def test_a_sketch_keeps_distances(trained):
    numbers = torch.cat([tensor.flatten() for tensor in trained.values()]).double()
    a = np.array(weights.fingerprint("classifier", packed(trained))["sketch"])
    for size in (1e-3, 1e-1, 1.0):
        other = noise(trained, size)
        apart = float((torch.cat([t.flatten() for t in other.values()]).double() - numbers).norm())
        b = np.array(weights.fingerprint("classifier", packed(other))["sketch"])
        assert np.linalg.norm(a - b) == pytest.approx(apart, rel=0.35)


# ---------------------------------------------------------------------------------------------------- a real gradebook


def lay_out(root):
    """A course of this chapter; everybody's notebook is the stub, so that only the weights earn points."""
    os.environ["PATH"] = PATH
    release.write_source_course(root, [ROOT / "solutions" / f"{CHAPTER}.md"])
    release.generate_assignment(root, CHAPTER)
    for student, data in (("ada", sample("trained")), ("bo", sample("resaved")), ("cem", None)):
        folder = root / "submitted" / student / CHAPTER
        folder.mkdir(parents=True)
        shutil.copy(root / "release" / CHAPTER / f"{CHAPTER}.ipynb", folder)
        if data is not None:
            hand_in(folder, data)
    (root / "submitted" / "cem" / CHAPTER / FILE).symlink_to(root / "submitted" / "ada" / CHAPTER / FILE)
    return Course(root)


@pytest.fixture(scope="module")
def course(tmp_path_factory, needs_sandbox):
    return lay_out(tmp_path_factory.mktemp("weights"))


def test_weights_are_graded_outside_the_sandbox_and_reach_everything(course, monkeypatch):
    graded = {r["student"]: r for r in grade.grade(course, CHAPTER, limits=sandbox.Limits(cell_seconds=60))}
    assert {student: (r["status"], r["score"]) for student, r in graded.items()} == {
        "ada": ("graded", 5),
        "bo": ("graded", 5),
        "cem": ("graded", 0),
    }
    with Gradebook(course.db_url, course.course_id) as gradebook:
        assert gradebook.find_submission(CHAPTER, "bo").score == 5
        assert gradebook.find_submission(CHAPTER, "bo").max_score == 20
    assert graded["ada"]["files"][FILE] == graded["bo"]["files"][FILE]
    assert graded["cem"]["files"] == {}

    pages = {s: feedback.write_feedback(course.root, CHAPTER, s).read_text() for s in graded}
    assert "classifier.safetensors is not a regular file." in pages["cem"]
    assert "is not a regular file" not in pages["ada"]
    assert not any(
        words in page for page in pages.values() for words in ("The same weights", "the same as ada", "the same as bo")
    )

    folder = report.write_report(course.root).parent
    page = (folder / f"{CHAPTER}.html").read_text()
    assert "<h2>The same weights</h2>" in page
    with (folder / "grades.csv").open(encoding="utf-8-sig", newline="") as table:
        same = {row["student"]: row["same_weights"] for row in csv.DictReader(table)}
    assert same == {"ada": f"{FILE}: the same as bo", "bo": f"{FILE}: the same as ada", "cem": ""}
    folder = report.write_report(course.root, names=False).parent
    assert not {"ada", "bo"} & set((folder / "grades.csv").read_text(encoding="utf-8-sig").replace(",", " ").split())

    asked = []
    monkeypatch.setattr(grade, "_judge_all", lambda tasks, *rest: iter(asked.extend(t.student for t in tasks) or []))
    assert len(grade.grade(course, CHAPTER, limits=sandbox.Limits(cell_seconds=60))) == 3
    hand_in(course.root / "submitted" / "bo" / CHAPTER, sample("cut_off"))
    grade.grade(course, CHAPTER, limits=sandbox.Limits(cell_seconds=60))
    assert asked == ["bo"]


def test_a_strange_file_does_not_stop_grading(tmp_path):
    folder = tmp_path / "s" / CHAPTER
    folder.mkdir(parents=True)
    os.mkfifo(folder / "pipe")
    (folder / "loop").symlink_to("loop")
    (folder / "huge").touch()
    os.truncate(folder / "huge", 1 << 40)
    contents = {path.name: digests.content(path) for path in folder.iterdir()}
    assert contents["pipe"] == b"pipe is not a regular file."
    assert b"MB are read" in contents["huge"]


@pytest.mark.long
@pytest.mark.parametrize("judge", [False, True], ids=["plain nbgrader", "our judge in nbgrader"])
def test_nbgraders_own_command_gives_the_same_points(tmp_path, needs_sandbox, judge):
    course = lay_out(tmp_path)
    shutil.rmtree(tmp_path / "submitted" / "bo")
    shutil.rmtree(tmp_path / "submitted" / "cem")
    if judge:
        with (tmp_path / "nbgrader_config.py").open("a") as config:
            config.write("names = ['LimitOutput', 'SaveAutoGrades', 'AssignLatePenalties', 'CheckCellMetadata']\n")
            config.write("ours = ['autograder.judge.Judge', *(f'nbgrader.preprocessors.{name}' for name in names)]\n")
            config.write("c.Autograde.autograde_preprocessors = ours\n")
    done = subprocess.run(
        [sys.executable, "-m", "nbgrader", "autograde", CHAPTER, "--create"],
        cwd=tmp_path,
        env={**os.environ, "PATH": PATH},
        capture_output=True,
        text=True,
        timeout=400,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    with Gradebook(course.db_url, course.course_id) as gradebook:
        assert gradebook.find_submission(CHAPTER, "ada").score == 5
    assert (tmp_path / "autograded" / "ada" / CHAPTER / FILE).exists()


def test_a_learner_checks_the_file_beside_the_notebook(tmp_path):
    notebook = tmp_path / "pieces.py"
    notebook.write_text("def masked_mean_pool(hidden, mask): ...\n")
    hand_in(tmp_path, sample("trained"))
    done = CliRunner().invoke(cli.app, ["check", str(notebook), "--piece", PIECE, "--json"])
    assert done.exit_code == 0, done.output
    assert [result["earned"] for result in json.loads(done.stdout)] == [1, 2, 2]
    done = CliRunner().invoke(cli.app, ["check", str(tmp_path), "--piece", PIECE, "--json"])
    assert done.exit_code == 0, done.output


# ------------------------------------------------------------------------------------- a translator of any size (lab)

SIZES = {"d_model": 20, "num_heads": 5, "d_ff": 36, "num_layers": 3}


@pytest.fixture(scope="module")
def lab_config():
    return translation.Config(**SIZES)


@pytest.fixture(scope="module")
def lab_file(lab_config, tmp_path_factory):
    model = files.KINDS["lab"](lab_config)
    return files.save(model, "lab", tmp_path_factory.mktemp("lab"), config=lab_config), model


@pytest.mark.parametrize("norm_first", [True, False])
def test_the_sizes_are_read_off_a_file(tmp_path, norm_first):
    config = translation.Config(**SIZES, norm_first=norm_first, rate=0.5, steps=7)
    model = files.KINDS["lab"](config)
    path = files.save(model, "lab", tmp_path, config=config)
    assert path.name == "lab.safetensors"
    found = files.read_config(path, "lab")
    assert found == translation.Config(**SIZES, norm_first=norm_first), "how it was trained is not in the file"
    other = files.load(files.KINDS["lab"](found), path, "lab")
    ids = torch.randint(4, 100, (2, 5))
    with torch.no_grad():
        torch.testing.assert_close(other.eval()(ids, ids), model.eval()(ids, ids))


def test_a_kind_of_one_size_has_no_configuration(tmp_path, lab_config):
    assert files.config_of(b"", "translator") is None
    with pytest.raises(ValueError, match="have one size"):
        files.specification("classifier", lab_config)
    for ask in (lambda: files.specification("lab"), lambda: files.save(torch.nn.Linear(1, 1), "lab", tmp_path)):
        with pytest.raises(ValueError, match="How large the model is has to be said"):
            ask()


def spoilt_lab(tensors, change):
    about = {"num_heads": "5", "norm_first": "true"}
    change(tensors, about)
    return packed(tensors, **about)


def fewer_layers(tensors, about):
    for name in [name for name in tensors if name.startswith("encoder.layers.2.")]:
        del tensors[name]


def many_layers(tensors, about):
    for number in range(3, 40):
        tensors[f"encoder.layers.{number}.x"] = torch.zeros(1)


def wide(tensors, about):
    tensors["encoder.layers.0.feed_forward.linear1.weight"] = torch.zeros(2000, 20)


def odd(tensors, about):
    tensors["source_embed.token.embedding.weight"] = torch.zeros(640, 21)


def without_feed_forward(tensors, about):
    del tensors["encoder.layers.0.feed_forward.linear1.weight"]


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda tensors, about: about.pop("num_heads"), r"does not say num_heads: weights\.save"),
        (lambda tensors, about: about.pop("norm_first"), "does not say norm_first"),
        (lambda tensors, about: about.update(num_heads="3"), "3 heads can't share d_model = 20 equally"),
        (lambda tensors, about: about.update(num_heads="0"), "0 heads can't share"),
        (lambda tensors, about: about.update(num_heads="four"), "num_heads is 'four', expected a number"),
        (lambda tensors, about: about.update(num_heads="9" * 50), "expected a number"),
        (lambda tensors, about: about.update(norm_first="perhaps"), "norm_first is 'perhaps'"),
        (lambda tensors, about: about.update(norm_first="false"), "not expected: `decoder.norm.beta`"),
        (fewer_layers, "not expected: `decoder.layers.2"),
        (many_layers, "40 layers a side; 1 to 12 are allowed"),
        (wide, r"has [0-9,]+ parameters; up to 400,000 are allowed"),
        (odd, "d_model = 21 is odd"),
        (without_feed_forward, "missing: `encoder.layers.0.feed_forward.linear1.weight`"),
        (lambda tensors, about: tensors.clear(), "missing: `source_embed.token.embedding.weight`"),
    ],
)
def test_each_way_to_be_wrong_has_a_sentence(lab_file, change, sentence):
    tensors = files.read(lab_file[0], "lab")
    data = spoilt_lab(tensors, change)
    with pytest.raises(files.WeightsError, match=sentence):
        files.parse(data, "lab")


def test_what_is_too_large_is_refused_when_it_is_saved(tmp_path):
    config = translation.GRADED
    with pytest.raises(files.WeightsError, match="The model has 626,880 parameters; up to 400,000 are allowed"):
        files.save(torch.nn.Linear(1, 1), "lab", tmp_path, config=config)


def test_long_sentences_are_long_fresh_and_as_many_as_they_should_be(monkeypatch):
    drawn = weights.EXAMS["lab"].draw(np.random.default_rng(1))
    assert len(drawn) == weights.SENTENCES
    assert min(len(pair.source) for pair in drawn) == weights.LONG
    assert not set(drawn) & set(translation.Task.default().corpus.train)


def test_a_translator_of_any_size_is_judged(lab_file, monkeypatch):
    few = weights._drawn_long_sentences(np.random.default_rng(2))[:4]
    monkeypatch.setattr(weights, "_tests", lambda kind, seed: few)
    assert weights.score("lab", lab_file[0].read_bytes(), 1) == weights.Score(0, 4)
