"""The sampler of training recipes: task, level and seed.

Every draw is a pure function of (run seed, replica, draw number) and, if levels or tasks depend on
results, of the results recorded before it.

Seeds of training and of evaluation never overlap. They are hashes, not sums: on most tasks
`seed + 1` is the same stream shifted by one, so that sums would make replicas repeat each other's
items and draw evaluation items.
"""

from __future__ import annotations

import bisect
import hashlib
import itertools
import random
from collections.abc import Collection, Mapping, Sequence
from enum import Enum
from functools import cache, partial
from typing import Any

from msgspec import UNSET, Struct, UnsetType

from ..records import Ladder, Recipe
from ..util.values import shorten
from .levels import (
    Amount,
    Count,
    DefaultLevels,
    LevelPolicy,
    LevelsState,
    Move,
    level_at,
    position_of,
)
from .memory import FRESH_SHARE, MemoryState, ReplayBuffer

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


def evaluation_recipes(eval_seed: int, tasks: Sequence[str], per_task: int) -> list[Recipe]:
    """Return the fixed evaluation set: `per_task` recipes per task."""
    return [
        Recipe(task=task, seed=evaluation_seed(eval_seed, task, index))
        for task in tasks
        for index in range(per_task)
    ]


def evaluation_recipe_at(
    difficulty: float, ladder: Ladder, *, eval_seed: int, task: str, index: int
) -> Recipe:
    """Return an evaluation item at a difficulty in [0, 1]; between two levels, items mix them."""
    item = (eval_seed, task, difficulty, index)
    uniform = hash_bits(SEED_BITS, "eval level", *item) / 2**SEED_BITS
    level = level_at(position_of(difficulty, len(ladder)), uniform)
    seed = hash_bits(SEED_BITS - 1, "eval at", *item) << 1 | 1
    return Recipe(task=task, seed=seed, level=level, parameters=ladder[level])


class TaskSampling(str, Enum):
    """How the next task is drawn: by weight alone, or by weight and signal."""

    UNIFORM = "uniform"
    SIGNAL = "signal"


FLOOR = 0.05
"""The lowest acceptance probability, so that every level is sampled again."""

HALF_LIFE = 20
"""An estimate loses half of its weight in this many groups per task."""


class SignalEstimates:
    """Estimates, for every level, of the probability that a group has signal.

    A group has signal if some of its rollouts solve the problem and some don't. Each level has a
    Beta distribution of that probability, whose evidence decays, so that levels not seen lately
    are tried again. Drawing by weight and accepting with a probability sampled from it is
    posterior sampling (Thompson, Biometrika 25, 1933).

    Args:
        tasks: all tasks of the run.
    """

    def __init__(self, tasks: Collection[str]) -> None:
        self._tasks = frozenset(tasks)
        self._half_life = HALF_LIFE * len(self._tasks)
        self._counts: dict[tuple[str, int | None], tuple[float, float, int]] = {}

    def _aged(self, task: str, level: int | None, draw: int) -> tuple[float, float]:
        """Return the decayed numbers of groups with and without signal."""
        mixed, flat, since = self._counts.get((task, level), (0.0, 0.0, draw))
        keep = 0.5 ** ((draw - since) / self._half_life)
        return keep * mixed, keep * flat

    def sample_signal(self, task: str, level: int | None, draw: int, rng: random.Random) -> float:
        """Sample the probability of signal at a draw."""
        mixed, flat = self._aged(task, level, draw)
        return rng.betavariate(0.5 + mixed, 0.5 + flat)  # Jeffreys' prior

    def record(self, task: str, level: int | None, draw: int, *, mixed: bool) -> None:
        """Learn from a group that was scored after `draw` recipes had been drawn."""
        had, lacked = self._aged(task, level, draw)
        self._counts[task, level] = (had + mixed, lacked + (not mixed), draw)

    def state_dict(self) -> list[Any]:
        """Return the evidence as JSON."""
        return [[*key, *counts] for key, counts in self._counts.items()]

    def load_state_dict(self, state: list[Any]) -> None:
        """Restore the evidence on the tasks of this run."""
        self._counts = {
            (task, level): (mixed, flat, since)
            for task, level, mixed, flat, since in state
            if task in self._tasks
        }


class SamplerState(Struct):
    """The stored state; signal rows are (task, level, groups with signal, without, last draw)."""

    run_seed: int
    replica: str
    draw: Count
    levels: LevelsState | UnsetType = UNSET
    signal: list[tuple[str, Count | None, Amount, Amount, Count]] = []
    memory: MemoryState | UnsetType = UNSET


class Sampler:
    """An endless stream of training recipes.

    Args:
        weights: task name to relative weight, at least one above 0.
        run_seed: the configured seed.
        replica: this environment's identity; two replicas draw different problems.
        levels: which level each recipe has; by default the library's configuration.
        overrides: task name to parameters that override those of the level.
        by_signal: whether to draw tasks and levels by weight times the estimated probability of
            signal, instead of by weight alone, and to ask problems again that are likelier to have
            signal than fresh ones.

    Example:
        >>> sampler = Sampler({"gcd": 1.0}, run_seed=1, replica="a")
        >>> sampler.next_recipe().task
        'gcd'
    """

    def __init__(
        self,
        weights: Mapping[str, float],
        *,
        run_seed: int,
        replica: str,
        levels: LevelPolicy | None = None,
        overrides: Mapping[str, Mapping[str, Any]] | None = None,
        by_signal: bool = False,
    ) -> None:
        self._tasks = sorted(task for task, weight in weights.items() if weight > 0)
        if not self._tasks:
            raise ValueError("no task has a weight above 0")
        self._cumulative = list(itertools.accumulate(weights[task] for task in self._tasks))
        self._run_seed = run_seed
        self._replica = replica
        self._levels = levels or DefaultLevels()
        self._overrides = overrides or {}
        self._signal = SignalEstimates(self._tasks) if by_signal else None
        self._memory = ReplayBuffer(self._tasks, HALF_LIFE * len(self._tasks))
        self._draw = 0

    def next_recipe(self) -> Recipe:
        """Draw the next recipe."""
        draw = self._draw
        self._draw += 1
        if self._signal:
            return self._next_by_signal(self._signal, draw)
        task = self._by_weight(self._uniform("task", draw))
        return self._fresh(task, self._levels.level(task, self._uniform("level", draw)), draw)

    def _fresh(self, task: str, level: int | None, draw: int) -> Recipe:
        return Recipe(
            task=task,
            seed=training_seed(self._run_seed, self._replica, task, draw),
            level=level,
            parameters=self._parameters(task, level),
        )

    def _parameters(self, task: str, level: int | None) -> dict[str, Any]:
        return {**self._levels.parameters(task, level), **self._overrides.get(task, {})}

    def _uniform(self, purpose: str, draw: int) -> float:
        """Return a random number in [0, 1) for one purpose of one draw."""
        return self._bits(purpose, draw) / (1 << SEED_BITS)

    def _bits(self, purpose: str, draw: int) -> int:
        return hash_bits(SEED_BITS, purpose, self._run_seed, self._replica, draw)

    def _next_by_signal(self, signal: SignalEstimates, draw: int) -> Recipe:
        """Draw by weight, accept by the probability of signal of what would be asked."""
        rng = random.Random(self._bits("task", draw))
        only_fresh = rng.random() < FRESH_SHARE
        best = cache(partial(self._memory.best, draw=draw))
        while True:
            task = self._by_weight(rng.random())
            level = self._levels.level(task, rng.random())
            fresh = signal.sample_signal(task, level, draw, rng)
            chance, known = (0.0, None) if only_fresh else best(task)
            if rng.random() >= max(FLOOR, fresh, chance):
                continue
            if known is None or chance <= fresh:
                return self._fresh(task, level, draw)
            self._memory.take(known)
            return known

    def _by_weight(self, uniform: float) -> str:
        index = bisect.bisect_right(self._cumulative, uniform * self._cumulative[-1])
        return self._tasks[min(index, len(self._tasks) - 1)]

    def is_asked_again(self, recipe: Recipe) -> bool:
        """Return whether a recipe without a result yet is one that was asked before."""
        return self._memory.is_asked_again(recipe)

    def record(
        self, recipe: Recipe, *, solved: int, scored: int, step: int | None = None
    ) -> Move | None:
        """Learn from a group: `solved` of its `scored` rollouts; return the task's move, if any.

        Levels and their signal learn from first groups alone, since a problem that is asked again
        was chosen.

        Args:
            step: the trainer's step; None if unknown.
        """
        task, level = recipe.task, recipe.level
        if not scored or task not in self._tasks:
            return None
        if self._signal:
            if self._memory.record(recipe, self._draw, solved=solved, scored=scored, step=step):
                return None
            self._signal.record(task, level, self._draw, mixed=0 < solved < scored)
        return self._levels.record(task, level, solved=solved, scored=scored)

    def cap(self, task: str, top_level: int) -> bool:
        """Stop drawing levels of a task above `top_level`; return whether this is new."""
        return self._levels.cap(task, top_level)

    def state_dict(self) -> dict[str, Any]:
        """Return the state as JSON, from which another sampler continues exactly."""
        return {
            "run_seed": self._run_seed,
            "replica": self._replica,
            "draw": self._draw,
            "levels": self._levels.state_dict(),
            "signal": self._signal.state_dict() if self._signal else [],
            "memory": self._memory.state_dict(),
        }

    def require_own(self, state: Mapping[str, Any]) -> None:
        """Check that a state is this run's and replica's; raise ValueError otherwise."""
        if state["run_seed"] != self._run_seed:
            raise ValueError(
                f"the state's seed is {shorten(state['run_seed'])}, but this run's is "
                f"{self._run_seed}"
            )
        if state["replica"] != self._replica:
            raise ValueError(
                f"the state's replica is {shorten(state['replica'])}, but this one is "
                f"{self._replica!r}"
            )

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue another stream; restore the evidence that fits these tasks and ladders."""
        self._run_seed = state["run_seed"]
        self._replica = state["replica"]
        self._draw = state["draw"]
        self._levels.load_state_dict(state.get("levels", {}))
        if self._signal:
            self._signal.load_state_dict(state.get("signal", []))
            if memory := state.get("memory"):
                self._memory.load_state_dict(memory, self._is_drawn)

    def _is_drawn(self, recipe: Recipe) -> bool:
        """Return whether this run's tasks, ladders and parameters still give a recipe."""
        task, level = recipe.task, recipe.level
        own = task in self._tasks and self._levels.has(task, level)
        return own and recipe.parameters == self._parameters(task, level)
