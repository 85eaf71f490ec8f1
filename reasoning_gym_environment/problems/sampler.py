"""Which task, level and seed come next.

Every draw is a pure function of (run seed, replica, draw number) and, where levels or tasks
are chosen by results, of the results recorded before it.
"""

from __future__ import annotations

import bisect
import itertools
import random
from collections.abc import Mapping
from enum import Enum
from typing import Any

from ..records import Recipe
from ..tasks.recipes import shown
from .levels import Levels, Move
from .seeds import SEED_BITS, hash_bits, training_seed
from .signal_estimates import SignalEstimates


class TaskSampling(str, Enum):
    """How the next task is drawn, among those with a weight."""

    UNIFORM = "uniform"
    SIGNAL = "signal"


class Sampler:
    """An endless stream of training recipes.

    Args:
        weights: task name to relative weight, at least one above 0.
        run_seed: the configured seed.
        replica: this environment's identity; two replicas draw different problems.
        levels: which level each recipe has; by default the library's configuration.
        overrides: task name to parameters that win over those of the level.
        by_signal: whether tasks, and the levels that mix in one, are drawn by weight times the
            estimated chance that their group has signal, instead of by weight alone.

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
        levels: Levels | None = None,
        overrides: Mapping[str, Mapping[str, Any]] | None = None,
        by_signal: bool = False,
    ) -> None:
        self._tasks = sorted(task for task, weight in weights.items() if weight > 0)
        if not self._tasks:
            raise ValueError("no task has a weight above 0")
        self._cumulative = list(itertools.accumulate(weights[task] for task in self._tasks))
        self._run_seed = run_seed
        self._replica = replica
        self._levels = levels or Levels()
        self._overrides = overrides or {}
        self._signal = SignalEstimates(self._tasks) if by_signal else None
        self._draw = 0

    def next_recipe(self) -> Recipe:
        """Draw the next recipe."""
        draw = self._draw
        self._draw += 1
        task, level = self._next_level(draw)
        return Recipe(
            task=task,
            seed=training_seed(self._run_seed, self._replica, task, draw),
            level=level,
            parameters={**self._levels.parameters(task, level), **self._overrides.get(task, {})},
        )

    def _uniform(self, purpose: str, draw: int) -> float:
        """Draw a number in [0, 1) for one purpose of one draw."""
        return self._bits(purpose, draw) / (1 << SEED_BITS)

    def _bits(self, purpose: str, draw: int) -> int:
        return hash_bits(SEED_BITS, purpose, self._run_seed, self._replica, draw)

    def _next_level(self, draw: int) -> tuple[str, int | None]:
        if self._signal is None:
            task = self._by_weight(self._uniform("task", draw))
            return task, self._levels.level(task, self._uniform("level", draw))
        rng = random.Random(self._bits("task", draw))
        while True:
            task = self._by_weight(rng.random())
            level = self._levels.level(task, rng.random())
            if rng.random() < self._signal.chance(task, level, draw, rng):
                return task, level

    def _by_weight(self, uniform: float) -> str:
        index = bisect.bisect_right(self._cumulative, uniform * self._cumulative[-1])
        return self._tasks[min(index, len(self._tasks) - 1)]

    def record(self, recipe: Recipe, *, solved: int, scored: int) -> Move | None:
        """Learn from a group: `solved` of its `scored` rollouts.

        Returns:
            The move of the task on its ladder, if this made one.
        """
        task, level = recipe.task, recipe.level
        if not scored or task not in self._tasks:
            return None
        if self._signal:
            self._signal.record(task, level, self._draw, mixed=0 < solved < scored)
        return self._levels.record(task, level, solved=solved, scored=scored)

    def cap(self, task: str, top_level: int) -> bool:
        """Never again draw a level of a task above `top_level`; whether that changes anything."""
        return self._levels.cap(task, top_level)

    def state_dict(self) -> dict[str, Any]:
        """Give the state as JSON; `load_state_dict` of another sampler continues it exactly."""
        return {
            "run_seed": self._run_seed,
            "replica": self._replica,
            "draw": self._draw,
            "levels": self._levels.state_dict(),
            "signal": self._signal.state_dict() if self._signal else [],
        }

    def require_own(self, state: Mapping[str, Any]) -> None:
        """Refuse the state of another run's stream, or another replica's; raises ValueError."""
        if state["run_seed"] != self._run_seed:
            raise ValueError(
                f"it is of a run with seed {shown(state['run_seed'])}, this one's is "
                f"{self._run_seed}"
            )
        if state["replica"] != self._replica:
            raise ValueError(
                f"it is of replica {shown(state['replica'])}, this one is {self._replica!r}"
            )

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue another stream; of what was learnt, take over what fits these tasks and ladders.

        Raises KeyError on a missing key.
        """
        self._run_seed = state["run_seed"]
        self._replica = state["replica"]
        self._draw = state["draw"]
        self._levels.load_state_dict(state.get("levels", {}))
        if self._signal:
            self._signal.load_state_dict(state.get("signal", []))
