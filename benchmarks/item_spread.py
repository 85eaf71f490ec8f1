"""How unlike the questions of one task and level are to a policy, and what that does to signal.

    python benchmarks/item_spread.py data_dumps/*.jsonl

Were all questions of a level equally hard, the solved share alone would say how many groups have
signal. A policy that finds some of them easy and others hard gives fewer. The spread is the
standard deviation of the questions' log-odds, normally distributed within a task and level, at
which as many groups would have signal as do; the simulated learners assume one of 0.5.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from reasoning_gym_environment import read_dump
from reasoning_gym_environment.problems.curve import fit_curve
from reasoning_gym_environment.util.grouping import group_by

Row = dict[str, Any]
Floats = npt.NDArray[np.float64]

ITEMS = np.array([statistics.NormalDist().inv_cdf((i + 0.5) / 200) for i in range(200)])
"""Quantiles of the normal distribution, for means over items."""

FEWEST = 10
"""Groups of a task and level from which its solved share is worth a comparison."""

STEADY = 4
"""Levels of a task from which a curve is fitted."""

WIDEST = 20.0
"""Log-odds; a policy that is always right or always wrong about a question has more."""


def rows_of(dumps: Sequence[Path]) -> list[Row]:
    """Read groups in the order in which they were finished."""
    return sorted((row for dump in dumps for row in read_dump(dump).rows), key=lambda r: r["time"])


def solved_share(row: Row) -> float:
    """Say which share of a group's rollouts is solved."""
    return statistics.mean(rollout["status"] == "solved" for rollout in row["rollouts"])


def by_quarter(rows: Sequence[Row]) -> list[dict[str, float]]:
    """Compare, in each quarter of a run, groups with signal with what equal questions would give.

    Returns:
        By quarter: the groups compared (those of tasks and levels of which there are enough, some
        solved and some not), the share of them with signal, the share there would be if questions
        were alike, and the spread. Quarters without such groups are left out.
    """
    cuts = [len(rows) * quarter // 4 for quarter in range(5)]
    by_cell = [cells_of(rows[begin:end]) for begin, end in pairwise(cuts)]
    return [compared(cells, len(rows[0]["rollouts"])) for cells in by_cell if cells]


def cells_of(rows: Sequence[Row]) -> list[list[float]]:
    """List the solved shares of the groups of each task and level that can be compared."""
    by_level = group_by(lambda r: (r["item_id"], r["recipe"]["level"]), rows)
    cells = [[solved_share(row) for row in own] for own in by_level.values() if len(own) >= FEWEST]
    return [cell for cell in cells if 0 < statistics.mean(cell) < 1]


def compared(cells: Sequence[Sequence[float]], size: int) -> dict[str, float]:
    shares = np.array([statistics.mean(cell) for cell in cells])
    weights = np.array([len(cell) for cell in cells])
    signal = float(sum(0 < value < 1 for cell in cells for value in cell) / weights.sum())
    low, high = 0.0, WIDEST
    for _ in range(30):
        spread = (low + high) / 2
        wide = np.average(mixed(shares, spread, size), weights=weights) > signal
        low, high = (spread, high) if wide else (low, spread)
    alike = float(np.average(mixed(shares, 0.0, size), weights=weights))
    return {"groups": int(weights.sum()), "signal": signal, "if_alike": alike, "spread": low}


def spans(rows: Sequence[Row]) -> dict[str, float]:
    """Fit by how many log-odds a task's answers fall from the easiest to the hardest level drawn.

    Returns:
        By task, of those drawn at STEADY levels or more; the fit is the curriculum's.
    """
    found = {}
    for task, own in sorted(group_by(lambda row: str(row["item_id"]), rows).items()):
        levels = group_by(lambda row: row["recipe"]["level"], own)
        if len(levels) < STEADY:
            continue
        size = len(own[0]["rollouts"])
        evidence = {
            level: (sum(size * solved_share(row) for row in at), float(size * len(at)))
            for level, at in levels.items()
        }
        curve = fit_curve(evidence, max(levels) + 1, target=0.7)
        found[task] = curve.slope * (max(levels) - min(levels))
    return found


def mixed(shares: Floats, spread: float, size: int) -> Floats:
    """Work out which share of groups has signal, where questions spread so around solved shares."""
    low, high = np.full(len(shares), -100.0), np.full(len(shares), 100.0)
    for _ in range(40):  # the middle at which the mean over questions is the solved share
        middle = (low + high) / 2
        below = chances(middle, spread).mean(axis=1) < shares
        low, high = np.where(below, middle, low), np.where(below, high, middle)
    own = chances(low, spread)
    return np.asarray((1 - own**size - (1 - own) ** size).mean(axis=1))


def chances(middle: Floats, spread: float) -> Floats:
    """Give the chance to solve each question, one row for each middle."""
    return np.asarray(1 / (1 + np.exp(-(middle[:, None] + spread * ITEMS))))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("dumps", type=Path, nargs="+")
    rows = rows_of(parser.parse_args().dumps)
    print(f"{'groups':>8}{'with signal':>14}{'if alike':>10}{'spread':>8}")
    for quarter in by_quarter(rows):
        print("{groups:8.0f}{signal:14.3f}{if_alike:10.3f}{spread:8.1f}".format(**quarter))
    for task, span in spans(rows[: len(rows) // 4]).items():
        print(f"{task}: {span:.1f} log-odds over its levels in the first quarter")
