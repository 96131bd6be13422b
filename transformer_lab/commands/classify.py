"""Train a classifier of sequences, or make the numbers and figures of chapter 8.

One task of chapter 8 is compared with the best that is possible. With --report: train whatever the results of chapter 8 lack,
print its tables, and draw its figures into build/classify/.
"""

from __future__ import annotations

import argparse

from transformer_lab import classifier, sequences, training
from transformer_lab.measurements import classifier as measurements


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--task", default=None, metavar="NAME", help="first-motif (default), or another; a wrong name lists them"
    )
    parser.add_argument(
        "--seed", type=int, default=0, help="of the data, the initial weights and the order of the batches (default: 0)"
    )
    parser.add_argument("--steps", type=int, default=None, help="batches to train on, at most")
    parser.add_argument("--report", action="store_true", help="make the numbers and figures of chapter 8")
    parser.set_defaults(parser=parser)


def run(options: argparse.Namespace) -> int:
    if options.report:
        if options.task or options.steps:
            options.parser.error("--report trains all tasks; it takes no --task and no --steps.")
        return _report()
    name = options.task or classifier.GRADED.task
    if name not in sequences.TASKS:
        options.parser.error(f"there is no task {name}; there are {', '.join(sequences.TASKS)}.")
    task = sequences.TASKS[name]
    print(task.description)
    parts = sequences.splits(task, options.seed)
    job = measurements.Job(name, "transformer", options.seed)
    model, history = measurements.trained(job, parts, options.steps, progress=True)
    print(f"{len(history.losses)} steps; the weights of step {history.best_step} are kept.")
    print(f"accuracy on {len(parts['test'])} test sequences: {100 * training.evaluate(model, parts['test']):.1f} %")
    print(f"the best rule that there is:            {100 * task.bayes_accuracy():.1f} %")
    return 0


def _report() -> int:
    from transformer_lab import classifier_figures  # needs matplotlib

    if not measurements.up_to_date():
        for path in measurements.write(measurements.measure()):
            print(f"wrote {path}")
    print(classifier_figures.report(measurements.BUILD), end="")
    print(f"\nThe figures are in {measurements.BUILD}")
    return 0
