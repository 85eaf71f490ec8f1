"""The table of `upstream.py`'s runs, which needs no PyTorch.

    python research/upstream_results.py

prints the table of the runs in `upstream-runs.json`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from learning_results import spread

RUNS = Path(__file__).with_name("upstream-runs.json")

UPSTREAM = "upstream"
SOUND_ITEMS, ALL_ITEMS = "sound items", "all items"
"""Measures: held-out items that the item checks find sound, and all, by the library's labels."""

Results = Sequence[Mapping[str, Any]]
"""What `upstream.run` returns, for each arm and seed."""


def table(results: Results, begin: Mapping[str, Any], arms: Sequence[str]) -> str:
    """Return what each arm learned, and its difference from upstream, paired by seed.

    Args:
        begin: solved shares of the cold start, by measure and task.
    """
    lines = []
    for when in ("rollouts", "steps"):
        for measure, shares in begin.items():
            lines += [f"solved at equal {when}, {measure}"]
            lines += [row("", [*shares, "all - upstream"])]
            lines += [row("cold start", [f"{share:.3f}" for share in shares.values()])]
            lines += [
                row(arm, cells(results, arm, when, measure))
                for arm in arms
                if of_arm(results, arm, when)
            ]
            lines += [""]
    lines += [row("", ["steps", "groups", "mixed", "interrupted"])]
    lines += [row(arm, paid(own)) for arm in arms if (own := of_arm(results, arm))]
    return "\n".join(lines)


def paid(runs: Mapping[int, Mapping[str, Any]]) -> list[str]:
    """Return an arm's steps, its groups, and the shares of them with signal and thrown away."""
    groups = sum(run["groups"] for run in runs.values())
    shares = [
        sum(run[kind] for run in runs.values()) / groups
        for kind in ("mixed", "interrupted")
    ]
    steps = spread([float(run["steps"]) for run in runs.values()])
    return [steps, str(groups), *(f"{share:.3f}" for share in shares)]


def row(head: str, values: Sequence[str]) -> str:
    return head.ljust(26) + "".join(f"{value:>22}" for value in values)


def of_arm(
    results: Results, arm: str, when: str = "rollouts"
) -> dict[int, Mapping[str, Any]]:
    """Return an arm's results by seed; one that took too few steps has no result after them."""
    return {r["seed"]: r for r in results if r["arm"] == arm and when in r["solved"]}


def cells(results: Results, arm: str, when: str, measure: str) -> list[str]:
    """Return the shares of an arm, over all items and by task, and the paired difference."""
    own = of_arm(results, arm, when)
    shares = {seed: each["solved"][when][measure] for seed, each in own.items()}
    means = [
        spread([each[name] for each in shares.values()])
        for name in next(iter(shares.values()))
    ]
    upstream = of_arm(results, UPSTREAM, when)
    paired = [
        share["all"] - upstream[seed]["solved"][when][measure]["all"]
        for seed, share in shares.items()
        if seed in upstream
    ]
    return [*means, spread(paired) if paired and arm != UPSTREAM else ""]


if __name__ == "__main__":
    measured = json.loads(RUNS.read_text(encoding="utf-8"))
    arms = list(dict.fromkeys(run["arm"] for run in measured["runs"]))
    print(table(measured["runs"], measured["start"], arms))
