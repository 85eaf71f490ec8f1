"""Prove every level of every task and write docs/difficulty-levels.csv.

python docs/difficulty_levels.py [TASK ...]

200 items are generated at each level, of the named tasks or of all. If a level fails, its faults
are printed and nothing is written. The lines of tasks that are not named stay as they are.
"""

from __future__ import annotations

import asyncio
import csv
import itertools
import json
import sys
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from reasoning_gym_environment.proof.ladder_proof import (
    DRAWS,
    LevelProof,
    level_proofs,
    prove_level,
)
from reasoning_gym_environment.proof.levels import (
    count_answers,
    is_open,
    ladder_findings,
)
from reasoning_gym_environment.sandbox.pool import PoolSettings, TaskPool
from reasoning_gym_environment.tasks.ladders import TaskLadder
from reasoning_gym_environment.util.progress import with_progress

TABLE = Path(__file__).with_name("difficulty-levels.csv")
COLUMNS = (
    *("task", "level", "origin", "reason", "changes", "mean s", "max s", "characters"),
    *("questions", "answers", "open", "chance", "rises by"),
)
PROCESSES = 2

LONGER_QUESTIONS = "longer questions"
PUBLISHED = "shares that 11 published models solve, by kind of item"
RISES_BY = {
    "acre": "experiments that show the tested object",
    "advanced_geometry": "digits of the numbers",
    "aiw": PUBLISHED,
    "base_conversion": "digits of the number, in larger bases",
    "coin_flip": "flips",
    "count_bits": "bits of the number",
    "countdown": "numbers to combine",
    "fraction_simplification": "digits of the numbers",
    "gsm_symbolic": "operations of the worked answers",
    "intermediate_integration": "kinds of integrals, in the library's order",
    "jugs": "moves of the shortest solution",
    "knight_swap": "moves of the shortest solution",
    "list_functions": PUBLISHED,
    "mini_sudoku": "blank cells",
    "number_sequence": "operations of the rule",
    "palindrome_partitioning": "letters",
    "polynomial_equations": "degree and terms",
    "power_function": "exponent and base",
    "prime_factorization": "digits of the number",
    "puzzle24": "fewer ways to reach 24",
    "quantum_lock": "moves of the shortest solution",
    "rush_hour": "moves of the shortest solution",
    "self_reference": "single misjudgments that lead to a false solution",
    "simple_integration": "terms",
    "string_splitting": "steps until nothing changes",
    "string_synthesis": "steps until nothing changes",
    "sudoku": "blank cells",
    "syllogism": "forms of statements",
    "time_intervals": PUBLISHED,
    "tower_of_hanoi": "moves of the shortest solution",
    "word_ladder": "words of the ladder",
}
"""What makes each level harder where questions don't get longer, as a reader of the items says."""


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
        elif not (
            name.startswith("max_") and name.replace("max_", "min_", 1) in parameters
        ):
            parts.append(f"{name} {json.dumps(value)}")
    return ", ".join(parts)


def changes(lower: Mapping[str, Any], upper: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parameters that the upper level changes, with both ends of a changed range."""
    moved = {name for name in upper if name not in lower or upper[name] != lower[name]}
    ends = {f"{end}_{name[4:]}" for name in moved for end in ("min", "max")}
    return {name: value for name, value in upper.items() if name in moved | ends}


def described(ladder: TaskLadder) -> list[str]:
    """Return what each level changes; of the first, its parameters."""
    pairs = itertools.pairwise(ladder.levels)
    return [
        shown(ladder.levels[0]),
        *(shown(changes(lower, upper)) for lower, upper in pairs),
    ]


def rows(ladder: TaskLadder, proofs: Sequence[LevelProof]) -> list[list[str]]:
    """Return the lines of a task's levels."""
    return [
        [
            *(proof.task, str(proof.level), ladder.origin, ladder.reason, changed),
            *(f"{proof.mean_seconds:.3f}", f"{max(proof.seconds):.2f}"),
            f"{proof.mean_characters:.0f}",
            *(str(len({*proof.questions.values()})), *_answers(proof)),
            RISES_BY.get(proof.task, LONGER_QUESTIONS),
        ]
        for proof, changed in zip(proofs, described(ladder), strict=True)
    ]


def _answers(proof: LevelProof) -> tuple[str, str, str]:
    """Return how many answers a level has, whether they are open, and the most frequent's share.

    Where several answers are right, they are not counted.
    """
    counted = count_answers(proof.answers.values())
    if not counted:
        return "", "", ""
    share = max(counted.values()) / counted.total()
    return str(len(counted)), "yes" if is_open(counted) else "no", f"{share:.3f}"


def read_table() -> list[dict[str, str]]:
    with TABLE.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def write(lines: Iterable[Sequence[str]]) -> None:
    with TABLE.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows([COLUMNS, *lines])


async def prove_ladders(
    pool: TaskPool,
    ladders: Mapping[str, TaskLadder],
    *,
    items: int,
    at_once: int,
    seed: int = 7,
) -> list[list[LevelProof]]:
    """Prove all levels of every ladder with the same seeds, `at_once` tasks at a time.

    With more tasks at a time than the pool has processes, the seconds include waiting. Another
    seed draws other items.
    """
    places = asyncio.Semaphore(at_once)

    async def one(proofs: list[LevelProof]) -> list[LevelProof]:
        async with places:
            for proof in proofs:
                await prove_level(pool, proof, items=items, seed=seed)
            return proofs

    return await with_progress(
        [one(level_proofs(task, ladder)) for task, ladder in ladders.items()], "ladders"
    )


def faults(proofs: Sequence[LevelProof]) -> list[str]:
    """Return the faults of a ladder, one sentence each; several right answers are none."""
    return [
        f"{proofs[0].task} level {finding.level}: {finding.shown}"
        for finding in ladder_findings(proofs)
        if finding.kind != "no oracle"
    ]


async def prove(tasks: Sequence[str]) -> int | str:
    async with TaskPool(PoolSettings(processes=PROCESSES), Counter()) as pool:
        ladders = await pool.ladders()
        chosen = {task: ladders[task] for task in tasks or ladders}
        proofs = await prove_ladders(pool, chosen, items=DRAWS, at_once=PROCESSES)
    if found := [fault for of_task in proofs for fault in faults(of_task)]:
        return "\n".join(found)
    kept = [row for row in read_table() if tasks and row["task"] not in tasks]
    lines = [[row[name] for name in COLUMNS] for row in kept]
    lines += [
        line for of_task in proofs for line in rows(ladders[of_task[0].task], of_task)
    ]
    write(sorted(lines, key=lambda line: (line[0], int(line[1]))))
    return 0


if __name__ == "__main__":
    sys.exit(asyncio.run(prove(sys.argv[1:])))
