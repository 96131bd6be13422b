"""The experiments of chapter 8: what is compared, that the committed rows are of this code's kind, and the command."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch

from transformer_lab import __main__ as command
from transformer_lab import builtin, classifier, classifier_figures, results, sequences, training
from transformer_lab.measurements import classifier as measurements
from transformer_lab.measurements.classifier import Job
from transformer_lab.sequences import TASKS, splits

GRADED = TASKS[classifier.GRADED.task]
SMALL = {"train": 300, "validation": 50, "test": 100}


@pytest.fixture(scope="module")
def runs():
    return results.load("classifier-runs")


# --- the models -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("task", ["first-motif", "trend"])
def test_all_models_are_of_about_one_size_and_none_looks_at_padding(task):
    drawn = TASKS[task].sample(6, np.random.default_rng(0))
    wider, mask = (torch.nn.functional.pad(table, (0, 5)) for table in (drawn.inputs, drawn.mask))
    sizes = {}
    for name, make in measurements.MODELS.items():
        torch.manual_seed(0)
        model = make(TASKS[task]).eval()
        sizes[name] = measurements.count(model)
        logits = model(drawn.inputs, drawn.mask)
        assert torch.allclose(model(wider, mask), logits, atol=1e-5), name
        assert logits.shape == (6, TASKS[task].num_classes)
    assert len({size for name, size in sizes.items() if name != "LSTM"}) == 1
    assert 0.95 * sizes["transformer"] < sizes["LSTM"] <= sizes["transformer"]


def test_each_ablation_takes_away_what_it_says():
    torch.manual_seed(0)
    x = torch.randn(2, 5, classifier.GRADED.d_model)
    models = {name: make(GRADED) for name, make in measurements.MODELS.items() if name != "LSTM"}
    blind = models["no encoding"].embed(torch.full((1, 4), 5))
    assert all(torch.equal(vector, blind[0, 0]) for vector in blind[0]), "the same token is the same vector everywhere"
    seeing = models["transformer"].embed(torch.full((1, 4), 5))
    assert not torch.equal(seeing[0, 1], seeing[0, 0])

    own = models["no attention"].encoder.layers[0].self_attention
    changed = x.clone()
    changed[:, 3] += 1
    alone = [own(tokens, tokens, tokens)[:, [0, 1, 2, 4]] for tokens in (x, changed)]
    assert torch.equal(*alone), "what another token is makes no difference"
    whole = models["transformer"].encoder.layers[0].self_attention
    assert not torch.allclose(*(whole(tokens, tokens, tokens)[:, 0] for tokens in (x, changed)))

    bare = models["no residual"].encoder.layers[0].eval()
    attended = bare.self_attention(*[bare.norm1(x)] * 3)
    assert torch.allclose(bare(x), bare.feed_forward(bare.norm2(attended)), atol=1e-6)
    assert models["one head"].encoder.layers[0].self_attention.num_heads == 1


def test_pieces_are_replaced_in_a_copy():
    replaced = measurements.instead(MultiHeadAttention=measurements.OwnValue)
    assert replaced.MultiHeadAttention is measurements.OwnValue
    assert replaced.Encoder is builtin.Encoder
    assert builtin.MultiHeadAttention is not measurements.OwnValue


# --- the baselines --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("task", TASKS.values(), ids=lambda task: task.name)
def test_statistics_do_not_depend_on_the_order_and_not_on_padding(task):
    drawn = task.sample(20, np.random.default_rng(1))
    mixed = drawn.inputs.clone()
    for row, length in enumerate(drawn.lengths.tolist()):
        mixed[row, :length] = mixed[row, torch.randperm(length)]
    wider = torch.nn.functional.pad(mixed, (0, 4)), torch.nn.functional.pad(drawn.mask, (0, 4))
    found = measurements.statistics(task, drawn)
    assert torch.allclose(measurements.statistics(task, sequences.Sequences(*wider, drawn.labels)), found)
    assert found.isfinite().all()


def test_logistic_regression_finds_what_can_be_found_without_order():
    parts = splits(TASKS["share"], 0, train=2000, validation=10, test=1000)
    assert measurements.order_free(TASKS["share"], parts) > 0.99
    parts = splits(TASKS["trend"], 0, train=2000, validation=10, test=1000)
    assert measurements.order_free(TASKS["trend"], parts) == pytest.approx(0.5, abs=0.06)
    assert measurements.majority(parts) == 0.5


# --- the leak -------------------------------------------------------------------------------------------------------------


def test_the_length_of_leaky_sequences_gives_the_class_away():
    drawn = measurements.leaky(GRADED, 500, np.random.default_rng(2))
    assert len(drawn) == 500
    short, long = (drawn.lengths[drawn.labels == label] for label in (0, 1))
    assert short.max() < long.min()
    assert torch.equal(GRADED.bayes(drawn), drawn.labels), "and the labels are true"
    assert set(drawn.lengths.tolist()) == set(GRADED.lengths)


# --- running, stopping, going on ------------------------------------------------------------------------------------------


@pytest.fixture
def small(monkeypatch):
    monkeypatch.setattr(measurements, "TRAINED", 200)
    monkeypatch.setattr(measurements, "VALIDATED", 50)
    monkeypatch.setattr(measurements, "TESTED", 60)
    monkeypatch.setattr(measurements, "OF_EACH_LENGTH", 10)
    monkeypatch.setattr(measurements, "EVERY", 2)
    monkeypatch.setattr(measurements, "LEAK_STEPS", 2)
    whole = measurements.run
    monkeypatch.setattr(measurements, "run", lambda job: whole(job, steps=4))


def test_a_run_that_was_stopped_goes_on_where_it_was(small, tmp_path, monkeypatch):
    keep = tmp_path / "kept" / "finished.jsonl"
    todo = [Job("share", "majority", 0), Job("trend", "transformer", 1), Job("share", "majority", 2)]
    once = measurements.run

    def stop(job):
        if job.seed == 2:
            raise KeyboardInterrupt
        return once(job)

    monkeypatch.setattr(measurements, "run", stop)
    with pytest.raises(KeyboardInterrupt):
        measurements.measure(todo, keep, progress=False)
    with keep.open("a") as file:
        file.write('\n{"half a li')

    done = []
    monkeypatch.setattr(measurements, "run", lambda job: done.append(job) or once(job))
    rows = measurements.measure(todo, keep, progress=False)
    assert done == todo[2:]
    assert [(row["task"], row["seed"]) for row in rows["runs"]] == [("share", 0), ("trend", 1), ("share", 2)]
    assert measurements.measure(todo, keep, progress=False) == rows
    assert len(done) == 1, "nothing is run twice"


def test_what_other_code_made_is_made_again(small, tmp_path, monkeypatch):
    keep = tmp_path / "finished.jsonl"
    todo = [Job("share", "majority", 0)]
    measurements.measure(todo, keep, progress=False)
    entry = json.loads(keep.read_text())
    assert len(entry["code"]) == len(measurements.CODE)
    entry["code"]["transformer_lab/sequences.py"] = "another"
    entry["rows"]["runs"][0]["test"] = 0.9
    keep.write_text(json.dumps(entry) + "\n")
    assert measurements.measure(todo, keep, progress=False)["runs"][0]["test"] == 0.5


def test_each_kind_of_job_gives_its_rows(small, tmp_path):
    todo = [
        Job(GRADED.name, "transformer", measurements.SHOWN_SEED),
        Job(GRADED.name, "leak", 0),
        Job("period", "transformer", 0),
    ]
    rows = measurements.measure(todo, tmp_path / "finished.jsonl", progress=False)
    assert set(rows) == set(measurements.RESULTS)
    for path in measurements.write(rows, tmp_path):
        ours, committed = results.load(path.stem, tmp_path), results.load(path.stem)
        assert ours.columns == committed.columns
        assert ours.code == committed.code
    heads, layers = classifier.GRADED.num_heads, classifier.GRADED.num_layers
    assert len(rows["maps"]) == 2 * layers * heads * measurements.SHOWN_LENGTH
    assert all(sum(row["weights"]) == pytest.approx(1, abs=0.01) for row in rows["maps"])
    assert sum(sum(row["guesses"]) for row in rows["confusion"]) == 2 * 60
    assert torch.get_num_threads() >= 1


# --- the committed results ------------------------------------------------------------------------------------------------


def test_every_job_has_its_row(runs):
    expected = [job for job in measurements.jobs() if job.model != "leak"]
    assert [Job(row["task"], row["model"], row["seed"]) for row in runs.select()] == expected
    lengths = results.load("classifier-lengths").select()
    assert {row["length"] for row in lengths} == set(measurements.LENGTHS)


def test_the_graded_task_is_learnt_from_every_seed(runs):
    found = runs.select(task=GRADED.name, model="transformer")
    assert len(found) == 5
    assert min(row["test"] for row in found) >= 0.99


@pytest.mark.parametrize("task", TASKS.values(), ids=lambda task: task.name)
def test_the_classifier_comes_within_a_point_of_the_best_rule(runs, task):
    mean, _ = classifier_figures.interval(classifier_figures.scores(task.name, "transformer"))
    assert mean >= task.bayes_accuracy() - 0.01


@pytest.mark.parametrize("task", [task for task in TASKS.values() if task.ordered], ids=lambda task: task.name)
def test_without_order_nobody_is_better_than_chance(task):
    """Each seed within four standard errors of guessing."""
    chance = 1 / task.num_classes
    error = (chance * (1 - chance) / measurements.TESTED) ** 0.5
    assert all(
        abs(score - chance) < 4 * error for score in classifier_figures.scores(task.name, "order-free statistics")
    )
    if task.name in measurements.COMPARED:
        assert all(abs(score - chance) < 4 * error for score in classifier_figures.scores(task.name, "no encoding"))


def test_a_leak_scores_high_and_fails_on_clean_data():
    rows = results.load("classifier-leak")
    for who in ("transformer", "length alone"):
        assert all(row["accuracy"] > 0.98 for row in rows.select(who=who, tested="leaky"))
    assert all(0.4 < row["accuracy"] < 0.6 for row in rows.select(who="length alone", tested="clean"))
    # It has learnt a little about motifs besides, and not nearly what it seems to have learnt.
    assert all(row["accuracy"] < 0.8 for row in rows.select(who="transformer", tested="clean"))


def test_a_baseline_again_gives_the_committed_number(runs):
    (row,) = runs.select(task="variance", model="order-free statistics", seed=0)
    again = measurements.run(Job("variance", "order-free statistics", 0))["runs"][0]
    assert again["test"] == pytest.approx(row["test"], abs=0.002)


def test_the_first_steps_again_give_the_committed_accuracy(runs):
    """Training is interrupted after the first look: the rest is not needed."""
    (row,) = runs.select(task="variance", model="transformer", seed=0)
    job = Job("variance", "transformer", 0)
    parts = splits(TASKS[job.task], job.seed, measurements.TRAINED, measurements.VALIDATED, measurements.TESTED)
    torch.manual_seed(job.seed)
    model = measurements.MODELS[job.model](TASKS[job.task])
    steps = iter(range(measurements.EVERY + 1))

    def count(module, arguments):
        if module.training and next(steps) == measurements.EVERY:
            raise KeyboardInterrupt

    model.register_forward_pre_hook(count)
    with measurements.one_thread():
        history = training.fit(
            model, parts["train"], parts["validation"], steps=measurements.STEPS[job.task], every=measurements.EVERY,
            seed=job.seed, progress=False,
        )  # fmt: skip
    assert history.accuracies[0] == pytest.approx(row["validation"][0], abs=0.03)


# --- tables, figures, command ---------------------------------------------------------------------------------------------


def test_an_interval_is_student_s():
    mean, half = classifier_figures.interval([1.0, 2.0, 3.0])
    assert (mean, half) == pytest.approx((2.0, 4.303 / 3**0.5))
    assert classifier_figures.interval([0.5]) == (0.5, 0.0)
    assert classifier_figures.percent([0.5, 0.5]) == "50.0"
    assert classifier_figures.percent([0.98, 0.99, 1.0]) == "99.0 ± 2.5"


def test_the_report_writes_every_figure_and_table(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(measurements, "BUILD", tmp_path)
    assert command.main(["classify", "--report"]) == 0
    shown = capsys.readouterr().out
    for name in classifier_figures.figures():
        assert (tmp_path / f"{name}.png").stat().st_size > 5_000
        assert (tmp_path / f"{name}.svg").is_file()
    assert (tmp_path / "tables.txt").read_text() in shown
    for name in TASKS:
        assert name in shown


def test_the_command_trains_one_task(capsys, monkeypatch):
    monkeypatch.setattr(
        sequences,
        "splits",
        lambda task, seed, whole=sequences.splits: whole(task, seed, train=200, validation=50, test=80),
    )
    assert command.main(["classify", "--task", "mean", "--steps", "5"]) == 0
    out, err = capsys.readouterr()
    assert TASKS["mean"].description in out
    assert "accuracy on 80 test sequences" in out
    assert f"{100 * TASKS['mean'].bayes_accuracy():.1f} %" in out
    assert "5/5" in err


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["classify", "--task", "tense"], "there is no task tense; there are share, first-motif"),
        (["classify", "--report", "--task", "mean"], "--report trains all tasks"),
        (["fly"], "invalid choice"),
        ([], "required"),
    ],
)
def test_the_command_says_what_is_wrong(arguments, sentence, capsys):
    with pytest.raises(SystemExit) as stopped:
        command.main(arguments)
    assert stopped.value.code == 2
    assert sentence in capsys.readouterr().err
