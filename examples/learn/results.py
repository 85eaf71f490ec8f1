"""Results of a run: a table of held-out items, and a plot."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from operator import itemgetter
from pathlib import Path
from statistics import mean

import matplotlib.pyplot as plt

from reasoning_gym_environment import compare, read_results
from reasoning_gym_environment.evaluation.comparison import comparison_table
from reasoning_gym_environment.evaluation.estimators import share
from reasoning_gym_environment.evaluation.store import EvaluationResults
from reasoning_gym_environment.storage.dumps import read_dump
from reasoning_gym_environment.storage.rows import StoredGroup

WINDOW = 128
"""Groups over which the solved share in training is averaged."""


def held_out(folder: Path) -> EvaluationResults:
    """Read an evaluation's results at the trained level."""
    results = read_results(folder)
    at_level = tuple(sample for sample in results.samples if sample.difficulty == 0)
    return replace(results, samples=at_level)


def table(evaluations: Mapping[str, Path]) -> str:
    """Return solved shares by task and stage, and the last two stages compared item by item."""
    stages = {name: held_out(folder) for name, folder in evaluations.items()}
    samples = [results.samples for results in stages.values()]
    tasks = sorted({sample.task for own in samples for sample in own})
    lines = [
        f"{'held-out items solved':24}" + "".join(f"{name:>22}" for name in stages)
    ]
    for task in tasks:
        lines.append(f"{task:24}" + "".join(cell(own, task) for own in samples))
    lines.append(f"{'all':24}" + "".join(map(cell, samples)))
    *_, before, after = stages.values()
    return "\n".join([*lines, "", comparison_table(*compare(before, after))])


def values(samples: Sequence[StoredGroup], task: str = "") -> list[list[float]]:
    """Return 1 for a solved rollout and 0 for another, by item, of a task or of all."""
    ours = [sample for sample in samples if sample.scored and task in ("", sample.task)]
    return [[float(rollout.solved) for rollout in sample.scored] for sample in ours]


def cell(samples: Sequence[StoredGroup], task: str = "") -> str:
    """Return the solved share with its 95 % interval."""
    each = share(values(samples, task))
    return f"{each.value:8.2f} ({each.low:.2f} to {each.high:.2f})"


def plot(dumps: Sequence[Path], evaluations: Mapping[str, Path], path: Path) -> None:
    """Draw the solved share in training over rollouts, and the evaluations before and after."""
    rows = sorted(
        (row for dump in dumps for row in read_dump(dump).rows), key=itemgetter("time")
    )
    groups = [row["rollouts"] for row in rows]
    shares = [
        mean(rollout["status"] == "solved" for rollout in group) for group in groups
    ]
    window, size = min(WINDOW, len(shares)), len(groups[0])
    ends = range(window, len(shares) + 1)
    means = [mean(shares[end - window : end]) for end in ends]
    figure, axes = plt.subplots(figsize=(8, 4.5), layout="constrained")
    axes.plot(
        [size * end for end in ends],
        means,
        label=f"in training, mean of {window} groups",
    )
    *_, before, after = (
        share(values(held_out(folder).samples)) for folder in evaluations.values()
    )
    for place, each in ((0, before), (size * len(groups), after)):
        error = [[each.value - each.low], [each.high - each.value]]
        axes.errorbar(
            [place], [each.value], yerr=error, fmt="o", color="black", capsize=4
        )
    axes.plot([], [], "ko", label="held out, with 95 % interval")
    axes.set(xlabel="rollouts", ylabel="solved share", ylim=(0, 1))
    axes.legend()
    figure.savefig(path)
