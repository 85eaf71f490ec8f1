"""Cost of the item checks, and the share of items that they leave out, by task.

    python benchmarks/item_checks.py [--items 300] > docs/item-checks.csv

Prints CSV: median and longest time of a check in milliseconds, and the shares that are drawn again
in training and in evaluation, of default items and of those of all levels.
"""

from __future__ import annotations

import argparse
import csv
import itertools
import statistics
import sys
import time
from collections.abc import Iterator, Mapping
from typing import Any

from reasoning_gym_environment.problems.seeds import evaluation_recipes
from reasoning_gym_environment.records import FaultKind, Recipe
from reasoning_gym_environment.tasks.datasets import Datasets
from reasoning_gym_environment.tasks.item_checks import CHECKS, item_fault
from reasoning_gym_environment.tasks.item_checks.faults import Entry
from reasoning_gym_environment.tasks.ladders import build_ladders


def entries(task: str, parameters: Mapping[str, Any], items: int) -> Iterator[Entry]:
    """Make items of a task, without those that the library fails to make."""
    datasets = Datasets()
    for one in evaluation_recipes(5, [task], items):
        try:
            yield datasets.entry(
                Recipe(task=task, seed=one.seed, parameters=parameters)
            )
        except Exception as error:  # noqa: BLE001 - the library may raise anything: said, and left out
            print(f"{task} {dict(parameters)}: {error}", file=sys.stderr)


def measure(
    task: str, parameters: Mapping[str, Any], items: int
) -> list[tuple[float, float, float]]:
    """Return milliseconds of the check, and whether training and evaluation leave the item out."""
    rows = []
    for entry in entries(task, parameters, items):
        begin = time.perf_counter()
        fault = item_fault(task, entry)
        seconds = time.perf_counter() - begin
        trained = fault is not None and fault.kind is not FaultKind.AMBIGUOUS
        rows.append((1000 * seconds, float(trained), float(fault is not None)))
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--items", type=int, default=300, help="default items; levels have a tenth"
    )
    items = parser.parse_args().items
    ladders = build_ladders(CHECKS)
    table = csv.writer(sys.stdout, lineterminator="\n")
    uses = itertools.product(("training", "evaluation"), ("default", "levels"))
    table.writerow(
        ["task", "median ms", "longest ms", *(f"{use}, {of} %" for use, of in uses)]
    )
    for task in CHECKS:
        default = measure(task, {}, items)
        levels = [
            row
            for level in ladders[task].levels
            for row in measure(task, level, items // 10)
        ]
        milliseconds = [row[0] for row in (*default, *levels)]
        shares = [
            f"{100 * statistics.fmean(row[column] for row in part):.1f}"
            for column in (1, 2)
            for part in (default, levels)
        ]
        times = (f"{statistics.median(milliseconds):.3f}", f"{max(milliseconds):.1f}")
        table.writerow([task, *times, *shares])
        sys.stdout.flush()


if __name__ == "__main__":
    main()
