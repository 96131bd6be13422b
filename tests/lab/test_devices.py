"""The device and the number format: every decision, on a machine that may have neither."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from transformer_lab import devices
from transformer_lab.devices import Capabilities, choose

NEW = Capabilities(cuda="H100", compute=(9, 0), threads=8, fused=frozenset({"cuda", "cpu"}))
OLD = Capabilities(cuda="T4", compute=(7, 5), threads=2, fused=frozenset({"cuda", "cpu"}))
APPLE = Capabilities(mps=True, threads=8)
PLAIN = Capabilities(threads=2, fused=frozenset({"cpu"}))


@pytest.mark.parametrize(
    ("machine", "wanted", "device", "dtype", "scaled", "tf32", "fused"),
    [
        (NEW, {}, "cuda", torch.bfloat16, False, True, True),
        (NEW, {"dtype": "float16"}, "cuda", torch.float16, True, True, True),
        (NEW, {"dtype": "float32"}, "cuda", torch.float32, False, True, True),
        (NEW, {"device": "cpu"}, "cpu", torch.float32, False, False, True),
        (NEW, {"device": "cpu", "dtype": "bfloat16"}, "cpu", torch.bfloat16, False, False, True),
        (OLD, {}, "cuda", torch.float16, True, False, True),
        (OLD, {"dtype": "float32"}, "cuda", torch.float32, False, False, True),
        (APPLE, {}, "mps", torch.float32, False, False, False),
        (APPLE, {"dtype": "float16"}, "mps", torch.float16, True, False, False),
        (PLAIN, {}, "cpu", torch.float32, False, False, True),
    ],
)
def test_the_setting_follows_from_what_the_machine_can_do(machine, wanted, device, dtype, scaled, tf32, fused):
    setting = choose(machine, **wanted)
    assert (setting.device, setting.dtype, setting.scaled) == (device, dtype, scaled)
    assert (setting.tf32, setting.fused) == (tf32, fused)


@pytest.mark.parametrize(
    ("machine", "wanted", "said"),
    [
        (PLAIN, {"device": "cuda"}, "no device cuda here: take cpu"),
        (OLD, {"dtype": "bfloat16"}, "T4 does not multiply in bfloat16"),
        (PLAIN, {"dtype": "float16"}, "float32 or bfloat16"),
        (PLAIN, {"dtype": "int8"}, "no format int8"),
    ],
)
def test_what_cannot_be_had_is_refused_in_a_sentence(machine, wanted, said):
    with pytest.raises(ValueError, match=said):
        choose(machine, **wanted)


def test_the_setting_is_said_aloud():
    assert choose(OLD).sentence == (
        "Computing on the CUDA device T4: matrices in float16 with a scaled loss, fused Adam."
    )
    assert choose(NEW).sentence == (
        "Computing on the CUDA device H100: matrices in bfloat16, float32 matrices in TF32, fused Adam."
    )
    assert choose(PLAIN).sentence == "Computing on the processor with 2 threads: matrices in float32, fused Adam."


def test_this_machine_can_do_what_it_says():
    machine = devices.look()
    setting = choose(machine, device="cpu")
    layer = nn.Linear(4, 4)
    optimiser = devices.adam(layer.parameters(), setting)
    optimiser.param_groups[0]["lr"] = 0.1
    before = layer.weight.detach().clone()
    with setting.autocast():
        loss = layer(torch.ones(2, 4)).square().mean()
    scaler = setting.scaler()
    scaler.scale(loss).backward()
    scaler.step(optimiser)
    assert not torch.equal(layer.weight, before)
    assert machine.threads == torch.get_num_threads()


def test_autocast_multiplies_in_the_format_and_keeps_parameters_in_float32():
    layer, x = nn.Linear(4, 4), torch.ones(2, 4)
    with choose(PLAIN, dtype="bfloat16").autocast():
        assert layer(x).dtype == torch.bfloat16
    with choose(PLAIN).autocast():
        assert layer(x).dtype == torch.float32
    assert layer.weight.dtype == torch.float32


def test_tf32_is_set_and_taken_back():
    before = torch.get_float32_matmul_precision()
    try:
        choose(NEW).apply()
        assert torch.get_float32_matmul_precision() == "high"
        choose(PLAIN).apply()
        assert torch.get_float32_matmul_precision() == "highest"
    finally:
        torch.set_float32_matmul_precision(before)
