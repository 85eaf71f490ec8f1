"""Draw docs/images/curves.svg: a healthy run and three faults, each with the group it begins at.

    python -m docs.curves

The rollouts are those of tests/report/invented_run.py.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from msgspec.structs import replace

from reasoning_gym_environment.records import Signal, Status
from reasoning_gym_environment.storage.rows import StoredGroup
from research.pictures import figure, legend_above, save
from tests.report.invented_run import (
    HACKED,
    HACKED_TASK,
    LIMIT,
    TASKS,
    TRUNCATES,
    invented_groups,
)

PICTURE = Path(__file__).with_name("images") / "curves.svg"
POINTS = 25
COLLAPSED_TASK, COLLAPSES = "syllogism", 601

Value = Callable[[StoredGroup], float]


def solved(group: StoredGroup) -> float:
    return fmean(rollout.solved for rollout in group.rollouts)


def mixed(group: StoredGroup) -> float:
    return float(group.signal is Signal.MIXED)


def truncated(group: StoredGroup) -> float:
    return fmean(rollout.truncated for rollout in group.rollouts)


def tokens(group: StoredGroup) -> float:
    return fmean(rollout.completion_tokens for rollout in group.rollouts) / LIMIT


def answers_one(group: StoredGroup) -> float:
    return fmean(rollout.answer == "1" for rollout in group.rollouts)


def collapsed(groups: Iterator[StoredGroup]) -> Iterator[StoredGroup]:
    """Yield groups in which every answer to one task becomes "1"."""
    for group in groups:
        if group.task == COLLAPSED_TASK and group.number >= COLLAPSES:
            wrong = {
                "answer": "1",
                "score": 0.0,
                "raw_score": 0.0,
                "status": Status.WRONG,
            }
            group = replace(
                group, rollouts=[replace(r, **wrong) for r in group.rollouts]
            )
        yield group


def draw(axes: Any, groups: Sequence[StoredGroup], values: Mapping[str, Value]) -> None:
    """Draw means of values over the number of the group, and their names above."""
    size = math.ceil(len(groups) / POINTS)
    windows = [groups[start : start + size] for start in range(0, len(groups), size)]
    numbers = [fmean(group.number for group in window) for window in windows]
    for name, value in values.items():
        axes.plot(
            numbers, [fmean(map(value, window)) for window in windows], label=name
        )
    axes.set_ylim(-0.03, 1.03)
    axes.set_xlabel("group")
    legend_above(axes)


def main() -> None:
    healthy = list(invented_groups(truncates=math.inf, hacked=math.inf))
    sick = list(invented_groups())
    sunk = list(collapsed(invented_groups(truncates=math.inf, hacked=math.inf)))
    games = [group for group in sick if group.task in TASKS["games"]]
    hacked = [group for group in sick if group.task == HACKED_TASK]
    repeated = [group for group in sunk if group.task == COLLAPSED_TASK]
    made, axes = figure(4, width=13, height=3)
    draw(axes[0], healthy, {"solved": solved, "groups with signal": mixed})
    draw(axes[1], games, {"solved": solved, "truncated": truncated})
    draw(axes[2], hacked, {"solved": solved, "tokens / limit": tokens})
    draw(axes[3], repeated, {"solved": solved, "answer is 1": answers_one})
    begins = {
        "healthy": None,
        "truncated": TRUNCATES,
        "shorter": HACKED,
        "repeats": COLLAPSES,
    }
    for each, (title, since) in zip(axes, begins.items(), strict=True):
        each.set_title(title, pad=28)
        if since is not None:
            each.axvline(since, color="0.6", linestyle=":")
    save(made, PICTURE)


if __name__ == "__main__":
    main()
