"""What a training costs: the counts against the models themselves, the paper's own figures, and PyTorch."""

from __future__ import annotations

import pytest

from transformer_lab import builtin, costs, translation
from transformer_lab.data import Corpus, Vocabulary

FREE = costs.Gpu(price=0.0)


@pytest.mark.parametrize("shared", [37, 50])
def test_parameters_are_those_of_the_model(shared):
    words = [f"w{i}" for i in range(shared)]
    task = translation.Task(Corpus((), (), ()), Vocabulary(words), Vocabulary(words))
    config = translation.Config(d_model=16, num_heads=2, d_ff=40, num_layers=3, norm_first=False)
    model = translation.build(config, task, builtin)
    own = costs.Training(config, 1, 1.0, 0, 0, vocabulary=len(task.source))
    # The paper's models share one table; these have two of equal size.
    assert own.parameters() == sum(p.numel() for p in model.parameters()) - len(task.source) * config.d_model


def test_the_paper_comes_out():
    """Section 5.2 and tables 2 and 3, each within what is rounded there."""
    for name, hours in (("base", 12), ("big", 84)):
        training = costs.PAPER[name]
        assert training.parameters() == pytest.approx(training.stated_parameters, rel=0.04)
        assert training.stated_hours() == pytest.approx(hours, rel=0.08)
        # Table 2 is hours, GPUs and speed multiplied, and no count.
        paid = training.stated_hours() * 3600 * training.gpus * training.gpu_flops
        assert paid == pytest.approx(training.stated_flops, rel=0.08)
        assert training.utilisation() == pytest.approx(training.training_flops() / paid)
        assert 0.25 < training.utilisation() < 0.5


def test_six_operations_for_a_parameter_and_a_token():
    for training in costs.PAPER.values():
        assert 6 * training.parameters() * training.tokens == pytest.approx(training.step_flops(), rel=0.02)
    short, long = (costs.PAPER["base"].step_flops(length) for length in (25, 2500))
    assert long > 1.5 * short


def test_hours_and_price():
    gpu = costs.Gpu(peak=2e12, utilisation=0.5, price=4.0)
    assert costs.hours(3.6e15, gpu) == pytest.approx(1.0)
    assert costs.price(3.6e15, gpu) == pytest.approx(4.0)
    assert costs.price(3.6e15, FREE) == 0.0


@pytest.mark.parametrize("wrong", [{"peak": 0}, {"utilisation": 0}, {"utilisation": 1.2}, {"price": -1}, {"memory": 0}])
def test_a_gpu_that_cannot_be_is_refused(wrong):
    with pytest.raises(ValueError, match="no GPU"):
        costs.Gpu(**wrong)


def test_one_gpu_has_nothing_to_send():
    assert costs.communication_seconds(1e6, 1, 1e9) == 0
    assert costs.communication_seconds(1e6, 2, 1e9) == pytest.approx(4e6 / 1e9)
    assert costs.communication_seconds(1e6, 8, 1e9, bytes_each=2) == pytest.approx(1.75 * 2e6 / 1e9)


@pytest.mark.parametrize("parameters", [1e6, 2e9])
def test_where_communication_takes_as_long_as_computing(parameters):
    gpu = costs.Gpu(peak=1e14, utilisation=0.3)
    tokens = costs.balance_tokens(gpu, 4, 1e10)
    computing = costs.compute_seconds(parameters, tokens, gpu)
    assert computing == pytest.approx(costs.communication_seconds(parameters, 4, 1e10))


def test_adam_keeps_sixteen_bytes_for_a_parameter():
    assert costs.state_bytes(1000) == 16_000
    assert costs.state_bytes(1000, gpus=8) == 16_000
    assert costs.state_bytes(1000, gpus=8, sharded=True) == 2_000
