"""The seeds of training, of evaluation and of sets of problems.

They never overlap. They are hashes, not sums: on most tasks `seed + 1` is the same stream shifted
by one, so that sums would make replicas repeat each other's items and draw evaluation items.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from ..records import Ladder, Recipe
from .levels import level_at, position_of

SEED_BITS = 53
"""Seeds fit a double, so every JSON reader keeps them exact."""


def hash_bits(bits: int, *parts: object) -> int:
    """Return the first `bits` (at most 64) of a hash of the parts."""
    text = "\x1f".join(str(part) for part in parts)
    digest = hashlib.blake2b(text.encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") >> (64 - bits)


def training_seed(run_seed: int, replica: str, task: str, draw: int) -> int:
    """Return the seed of a training item, which is even."""
    return hash_bits(SEED_BITS - 1, "train", run_seed, replica, task, draw) << 1


def evaluation_seed(eval_seed: int, task: str, index: int) -> int:
    """Return the seed of an evaluation item, which is odd."""
    return hash_bits(SEED_BITS - 1, "eval", eval_seed, task, index) << 1 | 1


def split_seed(split: str, seed: int, task: str, index: int) -> int:
    """Return the seed of a task's item in the split "train" or "eval"."""
    if split == "eval":
        return evaluation_seed(seed, task, index)
    return training_seed(seed, "", task, index)


def redrawn_seed(seed: int) -> int:
    """Return the seed of the item that takes a faulty one's place, of the same split."""
    return hash_bits(SEED_BITS - 1, "redrawn", seed) << 1 | seed % 2


def evaluation_recipes(
    eval_seed: int, tasks: Sequence[str], per_task: int
) -> list[Recipe]:
    """Return the fixed evaluation set: `per_task` recipes per task."""
    return [
        Recipe(task=task, seed=evaluation_seed(eval_seed, task, index))
        for task in tasks
        for index in range(per_task)
    ]


def evaluation_recipe_at(
    difficulty: float,
    ladder: Ladder,
    *,
    eval_seed: int,
    task: str,
    index: int,
) -> Recipe:
    """Return an evaluation item at a difficulty in [0, 1]; between two levels, items mix them."""
    item = (eval_seed, task, difficulty, index)
    uniform = hash_bits(SEED_BITS, "eval level", *item) / 2**SEED_BITS
    level = level_at(position_of(difficulty, len(ladder)), uniform)
    seed = hash_bits(SEED_BITS - 1, "eval at", *item) << 1 | 1
    return Recipe(task=task, seed=seed, level=level, parameters=ladder[level])
