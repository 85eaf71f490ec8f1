"""The seeds of training, of evaluation and of sets of problems.

They never overlap. They are hashes, not sums: on most tasks `seed + 1` is the same stream shifted
by one, so that sums would make replicas repeat each other's items. Which side may ask a question
its seed doesn't decide: see `split`.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

from ..records import Ladder, Recipe
from .levels import level_at, position_of

SEED_BITS = 53
"""Seeds fit a double, so every JSON reader keeps them exact."""

EVAL_SEED = 123
"""The seed of evaluation sets unless another is given."""


def hash_bits(bits: int, *parts: object) -> int:
    """Return the first `bits` (at most 64) of a hash of the parts."""
    text = "\x1f".join(str(part) for part in parts)
    digest = hashlib.blake2b(text.encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") >> (64 - bits)


def training_seed(run_seed: int, replica: str, task: str, draw: int) -> int:
    """Return the seed of a training item, which is even."""
    return hash_bits(SEED_BITS - 1, "train", run_seed, replica, task, draw) << 1


def evaluation_seed(
    eval_seed: int, task: str, index: int, level: int | None = None
) -> int:
    """Return the seed of a level's evaluation item with this number, which is odd."""
    item = (task, index) if level is None else (task, level, index)
    return hash_bits(SEED_BITS - 1, "eval", eval_seed, *item) << 1 | 1


def redrawn_seed(seed: int) -> int:
    """Return the seed of the item that takes one's place, drawn for the same split."""
    return hash_bits(SEED_BITS - 1, "redrawn", seed) << 1 | seed % 2


def evaluation_recipe(
    eval_seed: int,
    task: str,
    index: int,
    level: int | None = None,
    parameters: Mapping[str, Any] = MappingProxyType({}),
) -> Recipe:
    """Return the evaluation item with this number, of a level or the default configuration."""
    seed = evaluation_seed(eval_seed, task, index, level)
    return Recipe(task=task, seed=seed, level=level, parameters=dict(parameters))


def evaluation_recipes(
    eval_seed: int, tasks: Sequence[str], per_task: int
) -> list[Recipe]:
    """Return the first `per_task` evaluation items of each task's default configuration."""
    return [
        evaluation_recipe(eval_seed, task, index)
        for task in tasks
        for index in range(per_task)
    ]


def evaluation_levels(
    difficulty: float, height: int, *, eval_seed: int, task: str, count: int
) -> list[int]:
    """Return the levels of a task's evaluation items at a difficulty in [0, 1]."""
    position = position_of(difficulty, height)
    levels = []
    for index in range(count):
        item = (eval_seed, task, difficulty, index)
        uniform = hash_bits(SEED_BITS, "eval level", *item) / 2**SEED_BITS
        levels.append(level_at(position, uniform))
    return levels


def evaluation_recipes_at(
    difficulties: Sequence[float],
    ladder: Ladder,
    *,
    eval_seed: int,
    task: str,
    per_difficulty: int,
) -> list[tuple[Recipe, float]]:
    """Return a task's evaluation items at difficulties in [0, 1]; between two levels, they mix.

    They are the first items of their levels, whichever difficulty asks for them. Difficulties that
    share a level take turns: none has an item of another.
    """
    planned: list[tuple[Recipe, float]] = []
    next_index: Counter[int] = Counter()
    for difficulty in difficulties:
        for level in evaluation_levels(
            difficulty,
            len(ladder),
            eval_seed=eval_seed,
            task=task,
            count=per_difficulty,
        ):
            recipe = evaluation_recipe(
                eval_seed, task, next_index[level], level, ladder[level]
            )
            next_index[level] += 1
            planned.append((recipe, difficulty))
    return planned
