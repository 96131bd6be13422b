"""What the heads of a small trained model attend to, and what is lost without each of them.

    python -m transformer_lab.measurements.heads

writes ``results/heads-roles.json``, one row for each trained model and head, and ``results/heads-maps.json``, the
attention weights of one model for one sentence.

A sentence has twelve tokens, each a letter with a colour: six letters, each twice, in random order, and four colours,
drawn for each token. At each token the model says two colours, that of the token *before* it and that of its *twin*, the
other token with the same letter. One attention layer, its residual and a linear read-out is all it has: what attention
fetches must already be told apart. No token may attend to itself.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from transformer_lab import results

LETTERS, COLOURS = 6, 4
LENGTH, WIDTH = 2 * LETTERS, 32
HEADS = (1, 2, 4)
STEPS, BATCH, RATE = 800, 64, 3e-3
TESTED = 1000
#: After this many steps the loss is written down, so that a test can do the first part of a run again.
EARLY = 20
#: The model and the sentence whose attention is drawn.
SHOWN_HEADS, SHOWN_SEED = 2, 0

OTHERS = ~torch.eye(LENGTH, dtype=torch.bool)  # (L, L), True = may attend


@dataclass(frozen=True)
class Sentences:
    """``letters`` and ``colours`` (B, L); the place of each token's ``twin`` (B, L); the two ``answers`` (B, L, 2)."""

    letters: Tensor
    colours: Tensor
    twin: Tensor
    answers: Tensor


def draw(number: int) -> Sentences:
    """``number`` fresh sentences; the first token has no token before it, and its first answer is −100, not asked."""
    letters = torch.rand(number, LENGTH).argsort(1) % LETTERS
    colours = torch.randint(COLOURS, (number, LENGTH))
    twin = ((letters[:, :, None] == letters[:, None]) & OTHERS).int().argmax(-1)
    before = F.pad(colours[:, :-1], (1, 0), value=-100)
    return Sentences(letters, colours, twin, torch.stack([before, colours.gather(1, twin)], dim=-1))


class Reader(nn.Module):
    """Letters and colours (B, L) → logits (B, L, 2, COLOURS) for the two answers, and weights (B, H, L, L)."""

    def __init__(self, heads: int):
        super().__init__()
        self.letter = nn.Embedding(LETTERS, WIDTH)
        self.colour = nn.Embedding(COLOURS, WIDTH)
        self.attention = nn.MultiheadAttention(WIDTH, heads, batch_first=True)
        self.read_out = nn.Linear(WIDTH, 2 * COLOURS)

    def forward(self, sentences: Sentences) -> tuple[Tensor, Tensor]:
        x = self.letter(sentences.letters) + self.colour(sentences.colours) + positions()
        heads, weights = self.attention(x, x, x, attn_mask=~OTHERS, average_attn_weights=False)
        return self.read_out(x + heads).unflatten(-1, (2, COLOURS)), weights


def positions() -> Tensor:
    """Sines and cosines of the positions, (LENGTH, WIDTH), base 10000; pairs of columns side by side."""
    angles = torch.arange(LENGTH)[:, None] * 10000.0 ** (-torch.arange(0, WIDTH, 2) / WIDTH)
    return torch.stack([angles.sin(), angles.cos()], dim=-1).flatten(1)


def train(heads: int, seed: int, steps: int = STEPS) -> tuple[Reader, float]:
    """The model after ``steps`` steps, and its loss after the first few."""
    torch.manual_seed(seed)
    model = Reader(heads)
    optimiser = torch.optim.Adam(model.parameters(), RATE)
    early = float("nan")
    for step in range(1, steps + 1):
        sentences = draw(BATCH)
        logits, _ = model(sentences)
        loss = F.cross_entropy(logits.flatten(0, 2), sentences.answers.flatten())
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        if step == EARLY:
            early = float(loss.detach())
    return model, early


@torch.no_grad()
def accuracy(model: Reader, sentences: Sentences, without: int | None = None) -> tuple[float, float, float]:
    """The shares of tokens, the first of each sentence left out, with the first, the second, and both answers right.

    ``without`` names a head whose result is replaced by its mean over all tokens before the output projection: what
    remains is what the model does when that head always says the same.
    """
    hooks = []
    if without is not None:
        attention = model.attention
        x = model.letter(sentences.letters) + model.colour(sentences.colours) + positions()
        own = slice(without * attention.head_dim, (without + 1) * attention.head_dim)
        values = F.linear(x, attention.in_proj_weight[2 * WIDTH :], attention.in_proj_bias[2 * WIDTH :])[..., own]
        said = model(sentences)[1][:, without] @ values
        lost = (said - said.mean((0, 1))) @ attention.out_proj.weight[:, own].T
        hooks.append(attention.register_forward_hook(lambda module, inputs, output: (output[0] - lost, output[1])))
    try:
        right = (model(sentences)[0].argmax(-1) == sentences.answers)[:, 1:].double()
    finally:
        for hook in hooks:
            hook.remove()
    before, twin = right.mean((0, 1)).tolist()
    return before, twin, float(right.prod(-1).mean())


@torch.no_grad()
def describe(model: Reader, heads: int, seed: int, early: float) -> list[dict[str, Any]]:
    """One row for each head: its mean weight on the token before and on the twin, and what is right with and without it."""
    sentences = draw(TESTED)
    weights = model(sentences)[1][:, :, 1:]
    queries = torch.arange(1, LENGTH)
    on_before = weights[:, :, queries - 1, queries - 1].mean((0, 2))
    on_twin = weights.gather(-1, sentences.twin[:, None, 1:, None].expand(-1, heads, -1, 1)).mean((0, 2, 3))
    before, twin, both = accuracy(model, sentences)
    rows = []
    for head in range(heads):
        without_before, without_twin, _ = accuracy(model, sentences, without=head)
        numbers = {
            "weight_before": float(on_before[head]),
            "weight_twin": float(on_twin[head]),
            "right_before": before,
            "right_twin": twin,
            "right_both": both,
            "before_without": without_before,
            "twin_without": without_twin,
            "early_loss": early,
        }
        row = {"heads": heads, "seed": seed, "head": head}
        rows.append(row | {name: round(value, 4) for name, value in numbers.items()})
    return rows


@torch.no_grad()
def maps(model: Reader) -> list[dict[str, Any]]:
    """The attention weights for one fresh sentence: one row for each head and query."""
    sentence = draw(1)
    weights = model(sentence)[1][0]
    rows = []
    for head in range(weights.size(0)):
        for query in range(LENGTH):
            token = {
                "letter": "ABCDEF"[int(sentence.letters[0, query])],
                "colour": int(sentence.colours[0, query]),
                "twin": int(sentence.twin[0, query]),
            }
            shares = [round(float(weight), 4) for weight in weights[head, query]]
            rows.append({"head": head, "query": query, **token, "weights": shares})
    return rows


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m transformer_lab.measurements.heads",
        description="Train models with 1, 2 and 4 heads; write results/heads-roles.json and results/heads-maps.json.",
    )
    parser.add_argument("--seeds", type=int, default=10, help="how many models with each number of heads (default: 10)")
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    roles, shown = [], []
    for heads in HEADS:
        for seed in range(options.seeds):
            model, early = train(heads, seed)
            roles += describe(model, heads, seed, early)
            if (heads, seed) == (SHOWN_HEADS, SHOWN_SEED):
                shown = maps(model)
            print(*roles[-1].values(), file=sys.stderr, flush=True)
    for name, rows in (("heads-roles", roles), ("heads-maps", shown)):
        path = results.save(
            name,
            rows,
            command="python -m transformer_lab.measurements.heads",
            code=[__file__],
            seed=0,
            machine=results.describe_machine(),
        )
        print(f"{len(rows)} rows in {path}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
