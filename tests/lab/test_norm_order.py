"""Training with the norm in both orders: what is measured, and that the committed runs are of this code's kind."""

from __future__ import annotations

import pytest
import torch

from transformer_lab import results
from transformer_lab.measurements import norm_order

SETTINGS = [
    (order, rate, warmup) for order in norm_order.ORDERS for rate in norm_order.RATES for warmup in norm_order.WARMUPS
]


def test_the_rows_are_complete():
    result = results.load("norm-order")
    assert {(row["order"], row["rate"], row["warmup"]) for row in result.select()} == set(SETTINGS)
    assert len(result.rows) == len(SETTINGS) * len({row["seed"] for row in result.select()})
    for row in result.select():
        assert len(row["losses"]) == norm_order.STEPS // norm_order.WINDOW
        assert 0 <= row["accuracy"] <= 1


@pytest.mark.parametrize("order", norm_order.ORDERS)
@pytest.mark.parametrize("warmup", norm_order.WARMUPS)
def test_the_first_steps_again_give_the_committed_loss(order, warmup):
    _, losses = norm_order.train(norm_order.ORDERS[order], 0.002, warmup, seed=1, steps=norm_order.WINDOW)
    ours = torch.tensor(list(losses)).mean().item()
    (theirs,) = results.load("norm-order").select(order=order, rate=0.002, warmup=warmup, seed=1)
    assert ours == pytest.approx(theirs["losses"][0], abs=0.02)


def test_a_row_has_the_columns_of_the_file():
    (row,) = norm_order.measure((0.001,), (0,), (0,), steps=norm_order.WINDOW)[:1]
    assert tuple(row) == results.load("norm-order").columns
    assert len(row["losses"]) == 1


def test_a_warm_up_begins_with_small_steps():
    def first_step(warmup: int) -> float:
        model, losses = norm_order.train(norm_first=True, rate=0.002, warmup=warmup, seed=0, steps=1)
        before = model.head.bias.detach().clone()
        next(losses)
        return float((model.head.bias.detach() - before).abs().max())

    assert first_step(0) == pytest.approx(0.002, rel=1e-3)
    assert first_step(200) == pytest.approx(0.002 / 200, rel=1e-3)


def test_both_orders_start_from_the_same_weights():
    """Only the order, and the norm behind a pre-norm stack, may make the difference."""
    states = []
    for norm_first in norm_order.ORDERS.values():
        torch.manual_seed(5)
        states.append(norm_order.Sorter(norm_first).state_dict())
    post, pre = states
    assert set(pre) - set(post) == {"norm.weight", "norm.bias"}
    assert all(torch.equal(post[name], pre[name]) for name in post)


def test_accuracy_counts_places():
    class Always(torch.nn.Module):
        def forward(self, ids):
            return torch.nn.functional.one_hot(ids.sort(1).values.clamp(min=5), norm_order.DIGITS).float()

    share = norm_order.accuracy(Always())
    assert 0.45 < share < 0.55, "the digits 5 to 9 are half of all"
