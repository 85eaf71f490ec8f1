"""Estimate from stored rollouts how much the questions of one level differ in difficulty.

    python research/item_spread.py data_dumps/*.jsonl

If all questions of a level were equally hard, the solved share alone would determine how many
groups have signal. A policy that finds some easy and others hard gives fewer. The spread is the
standard deviation of the questions' log-odds, normally distributed within a task and level, that
explains the observed share of groups with signal. For tasks with many levels the script also
prints by how many log-odds answers fall from the easiest level to the hardest.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np
import numpy.typing as npt

from reasoning_gym_environment.problems.curve import fit_curve
from reasoning_gym_environment.records import Signal
from reasoning_gym_environment.report.data import read_report_data
from reasoning_gym_environment.storage.rows import StoredGroup
from reasoning_gym_environment.util.values import group_by

Groups = Sequence[StoredGroup]
Floats = npt.NDArray[np.float64]

ITEMS = np.array([statistics.NormalDist().inv_cdf((i + 0.5) / 200) for i in range(200)])
"""Quantiles of the normal distribution, for means over items."""

FEWEST = 10
"""Groups of a task and level from which its solved share is worth a comparison."""

STEADY = 4
"""Levels of a task from which a curve is fitted."""

WIDEST = 20.0
"""Log-odds; a policy that is always right or always wrong about a question has more."""


def solved_share(groups: Groups) -> float:
    """Return the share of solved rollouts, with equal weight for every group."""
    return statistics.mean(group.solved / len(group.rollouts) for group in groups)


def signal_share(groups: Groups) -> float:
    """Return the share of groups with signal."""
    return statistics.mean(float(group.signal is Signal.MIXED) for group in groups)


def by_quarter(groups: Groups) -> list[dict[str, float]]:
    """Compare, in each quarter of a run, groups with signal with what equal questions would give.

    Returns:
        By quarter: the groups compared (those of tasks and levels of which there are enough, some
        solved and some not), the share of them with signal, the share there would be if questions
        were alike, and the spread. Quarters without such groups are left out.
    """
    cuts = [len(groups) * quarter // 4 for quarter in range(5)]
    quarters = [comparable(groups[begin:end]) for begin, end in pairwise(cuts)]
    return [compared(cells) for cells in quarters if cells]


def comparable(groups: Groups) -> list[Groups]:
    """Split groups by task and level, and keep the parts that can be compared."""
    cells = group_by(lambda group: (group.task, group.recipe.level), groups).values()
    return [
        cell for cell in cells if len(cell) >= FEWEST and 0 < solved_share(cell) < 1
    ]


def compared(cells: Sequence[Groups]) -> dict[str, float]:
    groups = [group for cell in cells for group in cell]
    shares = np.array([solved_share(cell) for cell in cells])
    weights, size = np.array([len(cell) for cell in cells]), len(groups[0].rollouts)
    signal = signal_share(groups)
    low, high = 0.0, WIDEST
    for _ in range(30):
        spread = (low + high) / 2
        wide = np.average(mixed(shares, spread, size), weights=weights) > signal
        low, high = (spread, high) if wide else (low, spread)
    alike = float(np.average(mixed(shares, 0.0, size), weights=weights))
    return {"groups": len(groups), "signal": signal, "if_alike": alike, "spread": low}


def spans(groups: Groups) -> dict[str, float]:
    """Fit by how many log-odds a task's answers fall from the easiest to the hardest level drawn.

    Returns:
        By task, of those drawn at STEADY levels or more; the fit is the curriculum's.
    """
    found = {}
    for task, own in sorted(
        group_by(
            lambda group: group.task, [g for g in groups if g.recipe.level is not None]
        ).items()
    ):
        levels = group_by(lambda group: group.recipe.level or 0, own)
        if len(levels) < STEADY:
            continue
        evidence = {
            level: (
                sum(group.solved for group in at),
                sum(len(group.rollouts) for group in at),
            )
            for level, at in levels.items()
        }
        curve = fit_curve(evidence, max(levels) + 1, target=0.7)
        found[task] = curve.slope * (max(levels) - min(levels))
    return found


def mixed(shares: Floats, spread: float, size: int) -> Floats:
    """Return the share of groups with signal for a spread of questions around solved shares."""
    low, high = np.full(len(shares), -100.0), np.full(len(shares), 100.0)
    # The middle at which the mean over questions is the solved share.
    for _ in range(40):
        middle = (low + high) / 2
        below = chances(middle, spread).mean(axis=1) < shares
        low, high = np.where(below, middle, low), np.where(below, high, middle)
    own = chances(low, spread)
    return np.asarray((1 - own**size - (1 - own) ** size).mean(axis=1))


def chances(middle: Floats, spread: float) -> Floats:
    """Return the probability to solve each question, one row for each middle."""
    return np.asarray(1 / (1 + np.exp(-(middle[:, None] + spread * ITEMS))))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("dumps", type=Path, nargs="+")
    groups = read_report_data(parser.parse_args().dumps).groups
    print(f"{'groups':>8}{'with signal':>14}{'if alike':>10}{'spread':>8}")
    for quarter in by_quarter(groups):
        print(
            "{groups:8.0f}{signal:14.3f}{if_alike:10.3f}{spread:8.1f}".format(**quarter)
        )
    for task, span in spans(groups[: len(groups) // 4]).items():
        print(f"{task}: {span:.1f} log-odds over its levels in the first quarter")
