"""Which task and seed come next.

Every draw is a pure function of (run seed, replica, draw number): the sampler's whole state
is one integer. Seeds are hashes, never sums: on most tasks `seed + 1` is the same stream
shifted by one, so sums would make replicas repeat each other and reach the evaluation items.
"""

from __future__ import annotations

import bisect
import hashlib
import itertools
from collections.abc import Mapping, Sequence
from typing import Any

from .difficulty import Ladder, level_at, position_of
from .records import Recipe

SEED_BITS = 53
"""Seeds fit a double, so every JSON reader keeps them whole."""


def _hash_bits(bits: int, *parts: object) -> int:
    """The first `bits` (at most 64) of a hash that keeps the parts apart."""
    text = "\x1f".join(str(part) for part in parts)
    digest = hashlib.blake2b(text.encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") >> (64 - bits)


def training_seed(run_seed: int, replica: str, task: str, draw: int) -> int:
    """An even seed: no evaluation item can have it."""
    return _hash_bits(SEED_BITS - 1, "train", run_seed, replica, task, draw) << 1


def evaluation_seed(eval_seed: int, task: str, index: int) -> int:
    """An odd seed: no training item can have it."""
    return _hash_bits(SEED_BITS - 1, "eval", eval_seed, task, index) << 1 | 1


def evaluation_recipes(eval_seed: int, tasks: Sequence[str], per_task: int) -> list[Recipe]:
    """The fixed evaluation set: `per_task` recipes for each task, from `eval_seed` alone."""
    return [
        Recipe(task=task, seed=evaluation_seed(eval_seed, task, index))
        for task in tasks
        for index in range(per_task)
    ]


def evaluation_recipe_at(
    difficulty: float, ladder: Ladder, *, eval_seed: int, task: str, index: int
) -> Recipe:
    """An evaluation item at a difficulty in [0, 1]; between two levels the items mix them."""
    item = (eval_seed, task, difficulty, index)
    uniform = _hash_bits(SEED_BITS, "eval level", *item) / 2**SEED_BITS
    level = level_at(position_of(difficulty, len(ladder)), uniform)
    seed = _hash_bits(SEED_BITS - 1, "eval at", *item) << 1 | 1
    return Recipe(task=task, seed=seed, level=float(level), parameters=dict(ladder[level]))


class Sampler:
    """An endless stream of training recipes.

    Args:
        weights: task name to relative weight, at least one above 0.
        run_seed: the configured seed.
        replica: this environment's identity; two replicas draw different problems.

    Example:
        >>> sampler = Sampler({"gcd": 1.0}, run_seed=1, replica="a")
        >>> sampler.next_recipe().task
        'gcd'
    """

    def __init__(self, weights: Mapping[str, float], *, run_seed: int, replica: str) -> None:
        self._tasks = sorted(task for task, weight in weights.items() if weight > 0)
        if not self._tasks:
            raise ValueError("no task has a weight above 0")
        self._cumulative = list(itertools.accumulate(weights[task] for task in self._tasks))
        self._run_seed = run_seed
        self._replica = replica
        self._draw = 0

    def next_recipe(self) -> Recipe:
        draw = self._draw
        self._draw += 1
        uniform = _hash_bits(SEED_BITS, "task", self._run_seed, self._replica, draw) / 2**SEED_BITS
        index = bisect.bisect_right(self._cumulative, uniform * self._cumulative[-1])
        task = self._tasks[min(index, len(self._tasks) - 1)]
        seed = training_seed(self._run_seed, self._replica, task, draw)
        return Recipe(task=task, seed=seed)

    def state_dict(self) -> dict[str, Any]:
        """JSON; `load_state_dict` of another sampler continues the stream exactly."""
        return {"run_seed": self._run_seed, "replica": self._replica, "draw": self._draw}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Raises KeyError on a missing key."""
        self._run_seed = state["run_seed"]
        self._replica = state["replica"]
        self._draw = state["draw"]
