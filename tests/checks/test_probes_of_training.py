"""The probes that stand in for a model and a loss: gradients that can be asked for, and graphs that are counted."""

import numpy as np
import pytest
import torch

from autograder.checks import ch10_training_lab as ch10
from autograder.student import LocalStudent, Probe
from transformer_lab import accumulation, builtin, decoding

RNG = np.random.default_rng(10)


def asked(step, *want, count=3, **how):
    """What a piece that is made of ``step`` leaves behind, on the parts of one large batch."""
    large = ch10._Large(RNG, count)
    found = large.run(LocalStudent({"accumulate": step}), *want, **how)
    return large, found


def test_a_network_and_its_loss_say_what_pytorch_says():
    large, (found, grads) = asked(
        lambda model, loss, parts: accumulation.accumulate(model, loss, parts), "output", "probe_grads"
    )
    assert found[0] == pytest.approx(large.mean, rel=1e-4)
    assert found[1] == large.tokens
    for name, want in large.grads.items():
        np.testing.assert_allclose(grads["model"][name], want, atol=1e-4 * abs(want).max())
    assert grads["loss"] == {}


def test_a_parameter_that_nothing_uses_has_no_gradient():
    arrays = [RNG.normal(size=shape) for shape in ((4, 3), (2, 4), (5,))]
    part = [RNG.normal(size=(2, 3, 3)), RNG.normal(size=(2, 3, 2)), np.ones((2, 3), bool)]

    def differentiated(model, loss, part):
        loss(model, part)[0].backward()

    grads, after = LocalStudent({"ask": differentiated}).run(
        "ask",
        Probe("network", "model", *arrays),
        Probe("squares", "loss"),
        part,
        want=("probe_grads", "probe_parameters"),
    )
    assert grads["model"]["idle"] is None
    assert grads["model"]["first"].shape == (4, 3)
    for name, array in zip(("first", "second", "idle"), arrays, strict=True):
        np.testing.assert_array_equal(after["model"][name], array)


def each(model, loss, parts, **how):
    for part in parts:
        mean, count = loss(model, part)
        (mean * count).backward(**how)
    return mean.detach(), count


def kept(model, loss, parts):
    pairs = [loss(model, part) for part in parts]
    sum(mean for mean, _ in pairs).backward()
    return pairs[0][0].detach(), 0


@pytest.mark.parametrize(
    ("step", "held"),
    [
        (each, [0, 0, 0, 0]),
        (lambda *given: each(*given, retain_graph=True), [0, 1, 1, 1]),  # until the next one has its name
        (kept, [0, 1, 2, 3]),
        (lambda model, loss, parts: torch.no_grad()(lambda: [loss(model, part)[0] for part in parts])(), [0, 0, 0, 0]),
    ],
)
def test_graphs_are_counted_while_they_are_there(step, held):
    _, (graphs, _) = asked(step, "graphs", "output", count=4)
    assert graphs == {"loss": held}


def test_the_labs_cache_stands_behind_the_pieces_name():
    generator = torch.Generator().manual_seed(10)
    q, k, v = (torch.randn(2, 3, 6, 4, generator=generator) for _ in range(3))
    cache, rows = decoding.KeyValueCache(), []
    past = None
    for start, stop in ((0, 1), (1, 2), (2, 3)):
        new = [x[:, :, start:stop] for x in (q, k, v)]
        output, past = builtin.attend_with_cache(*new, past)
        rows.append((output, decoding.attend_with_cache(*new, cache)))
    for ours, theirs in rows:
        torch.testing.assert_close(ours, theirs)
    torch.testing.assert_close(past[0], k[:, :, :3])
