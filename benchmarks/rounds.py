"""Run programs in turn for several rounds, and print the mean and spread of their figures."""

from __future__ import annotations

import json
import statistics
import subprocess
from collections.abc import Mapping, Sequence


def in_turn(
    programs: Mapping[str, Sequence[str]], rounds: int
) -> dict[str, list[dict[str, float]]]:
    """Run each program once a round, one after another, and return the figures of each run by name.

    A program prints a JSON object of numbers by name, on a line of its own.
    """
    found: dict[str, list[dict[str, float]]] = {name: [] for name in programs}
    for _ in range(rounds):
        for name, command in programs.items():
            done = subprocess.run(
                command, stdout=subprocess.PIPE, check=True, text=True
            )
            [*_, last] = (
                line for line in done.stdout.splitlines() if line.startswith("{")
            )
            found[name].append(json.loads(last))
            print(f"{name}: {found[name][-1]}", flush=True)
    return found


def show(found: Mapping[str, Sequence[Mapping[str, float]]]) -> None:
    """Print a row for each program and a column for each number: mean (least to most)."""
    columns = list(
        dict.fromkeys(name for runs in found.values() for run in runs for name in run)
    )
    print(f"| | {' | '.join(columns)} |\n|{' --- |' * (len(columns) + 1)}")
    for name, runs in found.items():
        cells = [
            _cell([run[column] for run in runs if column in run]) for column in columns
        ]
        print(f"| {name} | {' | '.join(cells)} |")


def _cell(values: Sequence[float]) -> str:
    if not values:
        return ""
    mean = f"{statistics.fmean(values):.3g}"
    return (
        mean if len(values) == 1 else f"{mean} ({min(values):.3g} to {max(values):.3g})"
    )
