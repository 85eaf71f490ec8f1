"""The arms of `benchmarks/learning.py` over rollouts, drawn."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt

from reasoning_gym_environment.util.grouping import group_by

Result = dict[str, Any]
"""What one run leaves, as `learning.py` writes it."""


def plot(path: Path, results: Sequence[Result], held_out: Callable[[Result], float]) -> None:
    """Draw what the arms solve, what their groups teach and where their tasks stand."""
    plt.rcParams["svg.hashsalt"] = "learning"  # the same figure, the same file
    figure, (solved, signal, levels) = plt.subplots(1, 3, figsize=(13, 4), layout="constrained")
    for number, (arm, runs) in enumerate(group_by(lambda r: str(r["arm"]), results).items()):
        curves = [[(each["rollouts"], held_out(each)) for each in run["curve"]] for run in runs]
        draw = partial(_draw, label=arm, color=f"C{number}")
        draw(solved, curves)
        draw(signal, [_over_time(run, lambda window: window["signal"]) for run in runs])
        if all(window["levels"] for run in runs for window in run["training"]):
            draw(levels, [_over_time(run, _mean_level) for run in runs])
    solved.set_title("held-out items solved")
    signal.set_title("groups with signal")
    levels.set_title("mean level of the problems")
    solved.legend(fontsize="small")
    signal.set_ylim(0, 1)
    levels.set_ylim(0)
    for axes in (solved, signal, levels):
        axes.set_xlabel("rollouts")
    figure.savefig(path, metadata={"Date": None})


def _over_time(run: Result, value: Callable[[Result], float]) -> list[tuple[int, float]]:
    whole = run["training"][:-1]
    return [(window["rollouts"], value(window)) for window in whole]


def _mean_level(window: Result) -> float:
    return statistics.mean(window["levels"].values())


def _draw(
    axes: plt.Axes, curves: Sequence[Sequence[tuple[int, float]]], *, label: str, color: str
) -> None:
    """Draw the mean over seeds as a line, each seed thinly."""
    points = [list(zip(*at_one_place, strict=True)) for at_one_place in zip(*curves, strict=False)]
    means = [(statistics.mean(x), statistics.mean(y)) for x, y in points]
    axes.plot(*zip(*means, strict=True), label=label, color=color)
    for curve in curves:
        axes.plot(*zip(*curve, strict=True), color=color, linewidth=0.5, alpha=0.6)
