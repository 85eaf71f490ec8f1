"""Simulate how often the interval of a task's change misses it, and excludes 0 for nothing.

    python -m research.intervals [--runs 4000]

A task's items are solved with one probability, with probabilities around it, or always or never.
The second model turns a share of the failures into successes, or changes nothing. Of all shares and
gains, the table has the highest rates, with what they are of. The intervals are those of one task,
and of one among 18 of which none is beyond noise.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from random import Random

from reasoning_gym_environment.evaluation.estimators import (
    SIGNIFICANCE,
    paired_difference,
)

SHARES = (0.0, 0.02, 0.5, 0.98)
GAINS = (0.0, 0.05, 0.1, 0.3)
SIZES = ((6, 1), (10, 1), (10, 4), (20, 1), (20, 4), (30, 1), (30, 4), (100, 1))
TASKS = (1, 18)


def alike(share: float, random: Random) -> float:
    """All items are equally hard."""
    return share


def spread(share: float, random: Random) -> float:
    """Easy and hard items."""
    return random.betavariate(2 * share, 2 - 2 * share) if share else 0.0


def sure(share: float, random: Random) -> float:
    """Each item is solved always or never."""
    return float(random.random() < share)


KINDS: tuple[Callable[[float, Random], float], ...] = (alike, spread, sure)


def rates(
    kind: Callable[[float, Random], float],
    share: float,
    gain: float,
    *,
    items: int,
    attempts: int,
    significance: float,
    runs: int,
) -> tuple[float, float]:
    """Return how often an interval misses the change, and how often it excludes 0."""
    random = Random(f"{kind.__name__} {share} {gain} {items} {attempts}")
    truth = (1 - share) * gain
    misses = found = 0

    def solved(probability: float) -> float:
        right = sum(random.random() < probability for _ in range(attempts))
        return right / attempts

    for _ in range(runs):
        differences = []
        for _ in range(items):
            before = kind(share, random)
            after = before + (1 - before) * gain
            if kind is sure:
                after = float(random.random() < after)
            differences.append(solved(after) - solved(before))
        _, _, low, high = paired_difference(differences, significance)
        misses += not low <= truth <= high
        found += low > 0 or high < 0
    return misses / runs, found / runs


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--runs", type=int, default=4000)
    options = parser.parse_args()
    print("| tasks | items | attempts | misses at most | mean | excludes 0 of none |")
    print("| --- | --- | --- | --- | --- | --- |")
    for tasks in TASKS:
        for items, attempts in SIZES:
            misses: list[tuple[float, str]] = []
            alarms: list[float] = []
            for kind in KINDS:
                for share in SHARES:
                    for gain in GAINS:
                        missed, found = rates(
                            kind,
                            share,
                            gain,
                            items=items,
                            attempts=attempts,
                            significance=SIGNIFICANCE / tasks,
                            runs=options.runs,
                        )
                        what = f"{kind.__name__}, {share:.0%}, {gain:+.0%} of the rest"
                        misses.append((missed, what))
                        if not gain:
                            alarms.append(found)
            most, what = max(misses)
            mean = sum(missed for missed, _ in misses) / len(misses)
            print(
                f"| {tasks} | {items} | {attempts} | {most:.2%} ({what}) | {mean:.2%} | "
                f"{max(alarms):.2%} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
