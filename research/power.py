"""Simulate how often `compare` finds a change, by the items of a task and their attempts.

    python -m research.power [--tasks 25] [--repeats 200]

The items of a task are solved with probabilities that are uniform in [0, 1] before. After, the
log-odds of all are higher by as much as raises the mean by 15 or 30 points. Either one task
changes, or all do.
"""

from __future__ import annotations

import argparse
import math
from random import Random

from reasoning_gym_environment.evaluation.comparison import Item, compare_items

POINTS = (0.15, 0.30)
SIZES = ((10, 1), (20, 1), (20, 2), (20, 4), (30, 4), (50, 4), (100, 4), (200, 1))


def shifted(share: float, log_odds: float) -> float:
    return 1 / (1 + math.exp(-log_odds) * (1 - share) / share)


def shift_for(change: float) -> float:
    """Return the log-odds that raise the mean of uniform shares by a change."""
    shares = [(n + 0.5) / 1000 for n in range(1000)]
    low, high = 0.0, 20.0
    for _ in range(50):
        middle = (low + high) / 2
        mean = sum(shifted(share, middle) - share for share in shares) / len(shares)
        low, high = (middle, high) if mean < change else (low, middle)
    return low


def found_share(
    change: float,
    *,
    tasks: int,
    changed: int,
    items: int,
    attempts: int,
    repeats: int,
) -> float:
    """Return the share of the changed tasks that are found to be beyond noise."""
    random = Random(f"{change} {tasks} {changed} {items} {attempts}")
    log_odds = shift_for(change)

    def item(task: int, place: int, share: float) -> Item:
        solved = sum(random.random() < share for _ in range(attempts)) / attempts
        return Item(
            task=str(task),
            question=place,
            attempts=attempts,
            solved=solved,
            score=solved,
        )

    found = 0
    for _ in range(repeats):
        before: dict[tuple[int, int], Item | None] = {}
        after: dict[tuple[int, int], Item | None] = {}
        for task in range(tasks):
            for place in range(items):
                share = 1 - random.random()
                key = (task, place)
                before[key] = item(task, place, share)
                better = shifted(share, log_odds) if task < changed else share
                after[key] = item(task, place, better)
        comparison = compare_items(before, after)
        assert comparison is not None
        found += sum(
            bool(comparison.tasks[str(task)].beyond_noise) for task in range(changed)
        )
    return found / (repeats * changed)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--tasks", type=int, default=25)
    parser.add_argument("--repeats", type=int, default=200)
    options = parser.parse_args()
    cases = [
        (change, tasks, changed)
        for change in POINTS
        for tasks, changed in (
            (1, 1),
            (options.tasks, 1),
            (options.tasks, options.tasks),
        )
    ]
    heads = [f"{100 * c:.0f} points, {n} of {tasks}" for c, tasks, n in cases]
    print(f"| items | attempts | {' | '.join(heads)} |")
    for items, attempts in SIZES:
        shares = [
            found_share(
                change,
                tasks=tasks,
                changed=changed,
                items=items,
                attempts=attempts,
                repeats=options.repeats if tasks > 1 else 5 * options.repeats,
            )
            for change, tasks, changed in cases
        ]
        cells = " | ".join(f"{share:.0%}" for share in shares)
        print(f"| {items} | {attempts} | {cells} |", flush=True)
