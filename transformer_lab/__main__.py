"""``python -m transformer_lab``: train and measure from the command line."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from transformer_lab.commands import bench, compare, look, train, translate


def parser() -> argparse.ArgumentParser:
    """All commands with their options; what is parsed has ``run``."""
    parser = argparse.ArgumentParser(
        prog="python -m transformer_lab", description="Train and measure from the command line."
    )
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    _classify(commands)
    for name, command in (
        ("train", train),
        ("translate", translate),
        ("look", look),
        ("compare", compare),
        ("bench", bench),
    ):
        text = (command.__doc__ or "").strip()
        parser_ = commands.add_parser(name, help=text[:1].lower() + text[1:].rstrip("."), description=text)
        command.add_arguments(parser_)
        parser_.set_defaults(run=command.run)
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    options = parser().parse_args(arguments)
    try:
        return options.run(options)
    except KeyboardInterrupt:
        print("Stopped.", file=sys.stderr)
        return 130


# Each command adds its options, and imports what it needs when it runs.


def _classify(commands: argparse._SubParsersAction) -> None:
    parser = commands.add_parser(
        "classify",
        help="train a classifier of sequences, or make the numbers and figures of chapter 8",
        description=(
            "Train the classifier of chapter 8 on one task and compare it with the best that is possible. With --report: "
            "train whatever the results of chapter 8 lack, print its tables, and draw its figures into build/classify/."
        ),
    )
    parser.add_argument(
        "--task", default=None, metavar="NAME", help="first-motif (default), or another; a wrong name lists them"
    )
    parser.add_argument(
        "--seed", type=int, default=0, help="of the data, the initial weights and the order of the batches (default: 0)"
    )
    parser.add_argument("--steps", type=int, default=None, help="batches to train on, at most")
    parser.add_argument("--report", action="store_true", help="make the numbers and figures of chapter 8")
    parser.set_defaults(run=_run_classify, parser=parser)


def _run_classify(options: argparse.Namespace) -> int:
    from transformer_lab import classifier, sequences

    if options.report:
        if options.task or options.steps:
            options.parser.error("--report trains all tasks; it takes no --task and no --steps.")
        from transformer_lab import classifier_figures
        from transformer_lab.measurements import classifier as measurements

        if not measurements.up_to_date():
            for path in measurements.write(measurements.measure()):
                print(f"wrote {path}")
        print(classifier_figures.report(measurements.BUILD), end="")
        print(f"\nThe figures are in {measurements.BUILD}")
        return 0

    from transformer_lab.measurements.classifier import Job, trained

    name = options.task or classifier.GRADED.task
    if name not in sequences.TASKS:
        options.parser.error(f"there is no task {name}; there are {', '.join(sequences.TASKS)}.")
    task = sequences.TASKS[name]
    print(task.description)
    parts = sequences.splits(task, options.seed)
    job = Job(name, "transformer", options.seed)
    model, history = trained(job, parts, options.steps, progress=True)
    print(f"{len(history.losses)} steps; the weights of step {history.best_step} are kept.")
    from transformer_lab import training

    print(f"accuracy on {len(parts['test'])} test sequences: {100 * training.evaluate(model, parts['test']):.1f} %")
    print(f"the best rule that there is:            {100 * task.bayes_accuracy():.1f} %")
    return 0


if __name__ == "__main__":
    sys.exit(main())
