"""The files of weights that samples hand in: ``python -m autograder.samples.weights`` makes them anew.

    trained.safetensors      of a model that has learnt its task
    resaved.safetensors      the same numbers in another file: another order, other metadata
    untrained.safetensors    of a model as it begins
    cut_off.safetensors      the first half of the trained one, as an upload that broke off

Training takes a few minutes. What it ends at depends a little on the machine; the files are therefore kept, and the tests hold
the kept ones to what the samples claim.
"""

from __future__ import annotations

from pathlib import Path

import safetensors.torch
import torch

from transformer_lab import classifier, sequences, training, weights

FOLDER = Path(__file__).parent / "08_classifier"
KIND = "classifier"
SEED = 20260420

#: More than the notebook takes: the sample must reach its points with every test set that a round may draw.
STEPS = 4000


def main() -> None:
    """Train, write the four files, and say how often the trained weights are right."""
    torch.set_num_threads(1)
    config = classifier.GRADED
    parts = sequences.splits(classifier.task_of(config), seed=SEED)
    torch.manual_seed(SEED)
    model = classifier.build(config)
    untrained = weights.save(model, KIND, FOLDER).rename(FOLDER / "untrained.safetensors")
    training.fit(model, parts["train"], parts["validation"], steps=STEPS, patience=STEPS, seed=SEED)
    trained = weights.save(model, KIND, FOLDER).rename(FOLDER / "trained.safetensors")
    tensors = dict(reversed(weights.read(trained, KIND).items()))
    resaved = FOLDER / "resaved.safetensors"
    resaved.write_bytes(safetensors.torch.save(tensors, metadata={"saved": "again"}))
    cut_off = FOLDER / "cut_off.safetensors"
    cut_off.write_bytes(trained.read_bytes()[: trained.stat().st_size // 2])
    for path in (trained, resaved, untrained, cut_off):
        print(f"wrote {path.name}: {path.stat().st_size:,} bytes")
    print(f"{100 * training.evaluate(model, parts['test']):.2f} % of the test set are right with the trained weights")


if __name__ == "__main__":
    main()
