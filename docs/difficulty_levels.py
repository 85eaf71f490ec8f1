"""Prove every level of every task and write docs/difficulty-levels.md.

python docs/difficulty_levels.py [ITEMS]

ITEMS (30 by default) are generated at each level. If a level fails, its faults are printed and
nothing is written.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

from reasoning_gym_environment.audit.ladder_proof import LevelProof, faults, prove_ladders
from reasoning_gym_environment.sandbox.pool import PoolSettings, TaskPool
from reasoning_gym_environment.tasks.ladders import TaskLadder

PAGE = Path(__file__).with_name("difficulty-levels.md")
PROCESSES = 2
WIDTH = 120
"""The width of a level's parameters, in characters."""

ORIGINS = {
    "curriculum": "the library's curriculum, with ranges as a window near the level",
    "repaired": "in place of a curriculum that is broken, slow, too long or starts too hard",
    "own": "our own, in place of a curriculum that is missing or useless",
    "none": "a single level",
}

HEAD = """# Difficulty levels

This page lists the {levels} levels of {tasks} tasks, each proven on {items} items of reasoning-gym
{version}. `python docs/difficulty_levels.py` writes it, and fails if a level is faulty: every item
is generated within {deadline:g} s, the task's own answer, if any, earns 1, and neighboring levels
differ in their parameters and in the questions of equal seeds.

| origin | ladder | tasks |
| --- | --- | --- |
{origins}

{single}
"""


def single_levels(ladders: Mapping[str, TaskLadder]) -> str:
    rows = [
        f"- `{task}`: {ladder.reason}" for task, ladder in ladders.items() if len(ladder.levels) < 2
    ]
    return (
        "\n".join(["Tasks with one level:", "", *rows]) if rows else "No task has one level only."
    )


def shown(parameters: Mapping[str, Any]) -> str:
    """Format parameters for a table cell, with `min_x` and `max_x` as one range.

    Example:
        >>> shown({"min_n": 2, "max_n": 4, "p": 0.5})
        'n 2..4, p 0.5'
    """
    parts = []
    for name, value in parameters.items():
        other = name.replace("min_", "max_", 1)
        if name.startswith("min_") and other in parameters:
            parts.append(f"{name.removeprefix('min_')} {value}..{parameters[other]}")
        elif not (name.startswith("max_") and name.replace("max_", "min_", 1) in parameters):
            parts.append(f"{name} {json.dumps(value)}")
    text = ", ".join(parts).replace("|", "\\|")
    return text if len(text) <= WIDTH else f"{text[: WIDTH - 1]}…"


def changes(lower: Mapping[str, Any], upper: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parameters that the upper level changes, with both ends of a changed range."""
    moved = {name for name in upper if name not in lower or upper[name] != lower[name]}
    ends = {f"{end}_{name[4:]}" for name in moved for end in ("min", "max")}
    return {name: value for name, value in upper.items() if name in moved | ends}


def section(ladder: TaskLadder, proofs: Sequence[LevelProof]) -> str:
    changed = [
        proofs[0].parameters,
        *(changes(a.parameters, b.parameters) for a, b in itertools.pairwise(proofs)),
    ]
    rows = [
        f"| {proof.level} | {shown(parameters)} | {proof.mean_seconds:.3f} | "
        f"{max(proof.seconds):.2f} | {proof.mean_characters:.0f} |"
        for proof, parameters in zip(proofs, changed, strict=True)
    ]
    return "\n".join(
        [
            f"## {proofs[0].task}",
            "",
            ladder.origin + (f": {ladder.reason}" if ladder.reason else ""),
            "",
            "| level | what changes | mean s | max s | characters |",
            "| --- | --- | --- | --- | --- |",
            *rows,
        ]
    )


def page(ladders: Mapping[str, TaskLadder], proofs: Sequence[Sequence[LevelProof]]) -> str:
    counts = Counter(ladder.origin for ladder in ladders.values())
    head = HEAD.format(
        version=version("reasoning-gym"),
        levels=sum(map(len, proofs)),
        tasks=len(ladders),
        items=len(proofs[0][0].questions),
        deadline=PoolSettings(processes=1).generation_timeout,
        origins="\n".join(
            f"| {origin} | {ORIGINS[origin]} | {count} |" for origin, count in counts.most_common()
        ),
        single=single_levels(ladders),
    )
    sections = [section(ladders[of_task[0].task], of_task) for of_task in proofs]
    return head + "\n" + "\n\n".join(sections) + "\n"


async def prove(items: int) -> int | str:
    async with TaskPool(PoolSettings(processes=PROCESSES), Counter()) as pool:
        ladders = await pool.ladders()
        proofs = await prove_ladders(pool, ladders, items=items, at_once=PROCESSES)
    if found := [fault for of_task in proofs for fault in faults(of_task)]:
        return "\n".join(found)
    PAGE.write_text(page(ladders, proofs))
    return 0


if __name__ == "__main__":
    sys.exit(asyncio.run(prove(int(sys.argv[1]) if len(sys.argv) > 1 else 30)))
