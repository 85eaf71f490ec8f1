"""Plots of levels and signal over time."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from pictures import figure, save
from simulation import Group, Rule, Setting, simulate

TASKS = 6
"""Number of tasks whose levels are drawn."""

SHOWN = ("unset", "random", "curriculum", "curriculum, signal")

WINDOW = 3
"""Groups a task over which shares are averaged."""


def plot(
    path: Path, heights: Mapping[str, int], modes: Mapping[str, tuple[Rule, bool]]
) -> None:
    """Plot the levels and the signal of a learner that suddenly improves."""
    setting = Setting(learner="jump", in_flight=64)
    runs = {
        name: simulate(rule, replace(setting, by_signal=on), heights, 1)
        for name, (rule, on) in modes.items()
        if name in SHOWN
    }
    made, (levels, solved, signal) = figure(3, width=13)
    _draw_levels(levels, runs["curriculum, signal"], heights)
    for name, groups in runs.items():
        _draw_shares(
            solved, name, groups, [group.solved / 8 for group in groups], len(heights)
        )
        _draw_shares(
            signal, name, groups, [group.mixed for group in groups], len(heights)
        )
    solved.axhline(0.7, color="0.6", linestyle=":")
    solved.set_title("solved share of all answers")
    signal.set_title("groups with signal")
    made.legend(
        *signal.get_legend_handles_labels(),
        loc="outside lower center",
        ncols=5,
        frameon=False,
    )
    for axes in (solved, signal):
        axes.set_ylim(0, 1)
        axes.set_xlabel("groups drawn / tasks")
    save(made, path)


def _draw_levels(
    axes: Any, groups: Sequence[Group], heights: Mapping[str, int]
) -> None:
    """Draw each task's place on its ladder, for a few spread over the alphabet."""
    names = sorted(heights)[:: len(heights) // TASKS][:TASKS]
    for name in names:
        own = [(i, g.level) for i, g in enumerate(groups) if g.task == name]
        axes.plot(
            [i / len(heights) for i, _ in own],
            [level / (heights[name] - 1) for _, level in own],
            label=name,
            linewidth=1,
            drawstyle="steps-post",
        )
    axes.set_title("difficulty of six tasks (curriculum, signal)")
    axes.set_xlabel("groups drawn / tasks")
    axes.set_ylim(-0.02, 1.02)
    below = {"loc": "upper center", "bbox_to_anchor": (0.5, -0.14)}
    axes.legend(fontsize="x-small", frameon=False, ncols=3, **below)


def _draw_shares(
    axes: Any, name: str, groups: Sequence[Group], values: Sequence[float], tasks: int
) -> None:
    size = WINDOW * tasks
    starts = range(0, len(groups) - size + 1, tasks)
    axes.plot(
        [(start + size / 2) / tasks for start in starts],
        [statistics.mean(values[start : start + size]) for start in starts],
        label=name,
        linewidth=1,
    )
