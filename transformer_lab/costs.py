"""What a training costs, worked out: operations, hours, money, and when several GPUs wait for each other.

    from transformer_lab import costs

    base = costs.PAPER["base"]
    base.training_flops()                          # from the sizes and the tokens that the paper states
    costs.hours(base.training_flops(), costs.Gpu())
    costs.balance_tokens(costs.Gpu(), gpus=8, bandwidth=450e9)

Operations are counted as in :func:`transformer_lab.measurements.bench.model_flops`: three times the products of the forward
pass over real tokens. What a machine makes of its speed, and what an hour costs, are assumptions and parameters.
"""

from __future__ import annotations

from dataclasses import dataclass

from transformer_lab import translation
from transformer_lab.measurements.bench import model_flops


@dataclass(frozen=True)
class Training:
    """A training of the 2017 paper: what its sections 3, 5 and 6 and its tables 2 and 3 state.

    Attributes
    ----------
    config
        Sizes; its dropout and schedule do not matter here.
    vocabulary
        Tokens that both sides share (section 5.1).
    tokens
        Of each side in a batch (section 5.1).
    steps, seconds_per_step
        Section 5.2.
    gpus, gpu_flops
        NVIDIA P100 (section 5.2), and the operations a second that the paper reckons with for one of them (section 6.1).
    stated_parameters, stated_flops
        Tables 3 and 2, to compare with.
    """

    config: translation.Config
    steps: int
    seconds_per_step: float
    stated_parameters: float
    stated_flops: float
    vocabulary: int = 37_000
    tokens: int = 25_000
    gpus: int = 8
    gpu_flops: float = 9.5e12

    def parameters(self) -> int:
        """How many there are, one table of embeddings for both sides and the output."""
        width, hidden, layers = self.config.d_model, self.config.d_ff, self.config.num_layers
        attention = 4 * (width * width + width)
        feed_forward = 2 * width * hidden + hidden + width
        encoder = attention + feed_forward + 2 * 2 * width
        decoder = 2 * attention + feed_forward + 3 * 2 * width
        return self.vocabulary * width + layers * (encoder + decoder)

    def step_flops(self, length: int = 25) -> float:
        """Operations of one step, if all sentences have ``length`` tokens on either side."""
        sentences = [length] * (self.tokens // length)
        return model_flops(self.config, self.vocabulary, sentences, sentences)

    def training_flops(self, length: int = 25) -> float:
        """Operations of all steps."""
        return self.steps * self.step_flops(length)

    def stated_hours(self) -> float:
        """What the stated steps took."""
        return self.steps * self.seconds_per_step / 3600

    def utilisation(self) -> float:
        """Which share of its machine's stated speed the training made use of, by our count of operations."""
        return self.step_flops() / (self.seconds_per_step * self.gpus * self.gpu_flops)


PAPER = {
    "base": Training(
        translation.Config(d_model=512, num_heads=8, d_ff=2048, num_layers=6),
        steps=100_000,
        seconds_per_step=0.4,
        stated_parameters=65e6,
        stated_flops=3.3e18,
    ),
    "big": Training(
        translation.Config(d_model=1024, num_heads=16, d_ff=4096, num_layers=6),
        steps=300_000,
        seconds_per_step=1.0,
        stated_parameters=213e6,
        stated_flops=2.3e19,
    ),
}


@dataclass(frozen=True)
class Gpu:
    """A GPU as one assumes it: nothing here is measured.

    Attributes
    ----------
    peak
        Operations a second in the number format of training.
    utilisation
        Which share of them a training makes use of.
    price
        Of an hour.
    memory
        Bytes.
    """

    peak: float = 1e15
    utilisation: float = 0.4
    price: float = 3.0
    memory: float = 80e9

    def __post_init__(self) -> None:
        if not (self.peak > 0 and 0 < self.utilisation <= 1 and self.memory > 0 and self.price >= 0):
            raise ValueError(f"{self} is no GPU: a peak and a memory above 0, a utilisation up to 1, a price from 0.")


def hours(flops: float, gpu: Gpu) -> float:
    """Hours of one GPU for so many operations."""
    return flops / (gpu.peak * gpu.utilisation) / 3600


def price(flops: float, gpu: Gpu) -> float:
    """What these hours cost, in the unit of ``gpu.price``."""
    return hours(flops, gpu) * gpu.price


# --- several GPUs -------------------------------------------------------------------------------------------------------


def communication_seconds(parameters: float, gpus: int, bandwidth: float, bytes_each: int = 4) -> float:
    """How long it takes until every GPU has the sum of all gradients, at best.

    In a ring each GPU sends 2 (n - 1) / n times the size of the gradients (Patarasuk & Yuan 2009); with one GPU nothing.

    Parameters
    ----------
    parameters
        How many gradients there are.
    bandwidth
        Bytes a second that a GPU can send while it receives as many.
    bytes_each
        Of one gradient.
    """
    return 2 * (gpus - 1) / gpus * parameters * bytes_each / bandwidth


def compute_seconds(parameters: float, tokens: float, gpu: Gpu) -> float:
    """How long a GPU computes for a step with so many tokens: six operations for a parameter and a token.

    Good enough for a model in which every token meets every parameter once, which an encoder–decoder is if a token of the
    source and one of the target count as one.
    """
    return 6 * parameters * tokens / (gpu.peak * gpu.utilisation)


def balance_tokens(gpu: Gpu, gpus: int, bandwidth: float, bytes_each: int = 4) -> float:
    """With how many tokens for each GPU and step communication takes as long as computing: whatever the model's size."""
    return communication_seconds(1, gpus, bandwidth, bytes_each) / compute_seconds(1, 1, gpu)


#: Bytes that a parameter costs in training with Adam in float32, besides what a batch needs.
STATE = {"weight": 4, "gradient": 4, "Adam's two means": 8}


def state_bytes(parameters: float, gpus: int = 1, sharded: bool = False) -> float:
    """Bytes of weights, gradients and Adam's two means on each GPU: all of them, or a share of them where sharded."""
    return parameters * sum(STATE.values()) / (gpus if sharded else 1)
