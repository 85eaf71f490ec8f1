"""The sampler of training recipes: task, level and seed.

Every draw is a pure function of (run seed, replica, draw number) and, if levels or tasks depend on
results, of the results recorded before it.
"""

from __future__ import annotations

import bisect
import itertools
import random
from collections import Counter
from collections.abc import Collection, Mapping
from functools import cache, partial
from typing import Any, Literal

from msgspec import Struct

from ..records import Recipe
from ..util.values import shorten
from .expected_signal import HALF_LIFE, SolvedShares
from .levels import Amount, Count, DefaultLevels, LevelPolicy, LevelsState
from .replay import ReplayBuffer, ReplayState
from .seeds import SEED_BITS, hash_bits, training_seed

FRESH_SHARE = 0.3
"""The lowest share of draws that ask a fresh problem."""


def count_group(
    counts: Counter[str],
    *,
    replayed: bool,
    solved: int,
    scored: int,
) -> None:
    """Count a group for `sampling_metrics`; one without scored rollouts counts nowhere."""
    if scored:
        kind = "asked_again" if replayed else "fresh"
        counts["rollouts"] += scored
        counts[kind] += 1
        counts[f"{kind}_with_signal"] += 0 < solved < scored


def sampling_metrics(counts: Mapping[str, int]) -> dict[str, float]:
    """Return what the choice of problems brought, from the counts of `count_group`.

    Returns:
        The share of groups whose problem was replayed; shares of fresh groups, and of those, with
        signal; rollouts per group with signal. What has no groups yet is left out.
    """
    fresh = counts.get("fresh", 0)
    replayed = counts.get("asked_again", 0)
    mixed = {
        kind: counts.get(f"{kind}_with_signal", 0) for kind in ("fresh", "asked_again")
    }
    shares = {
        "asked_again": (replayed, fresh + replayed),
        "fresh_with_signal": (mixed["fresh"], fresh),
        "asked_again_with_signal": (mixed["asked_again"], replayed),
        "rollouts_per_group_with_signal": (
            counts.get("rollouts", 0),
            sum(mixed.values()),
        ),
    }
    return {
        f"sampling/{name}": part / whole
        for name, (part, whole) in shares.items()
        if whole
    }


TaskSampling = Literal["uniform", "signal"]
"""How the next task is drawn: by weight alone, or by weight and signal."""


LEAST_ACCEPTANCE = 0.05
"""The lowest acceptance probability, so that every level is sampled again."""


class SignalEstimates:
    """Estimates, for every level, of the probability that a group has signal.

    A group has signal if some of its rollouts solve the problem and some don't. Each level has a
    Beta distribution of that probability, whose evidence decays, so that levels not seen lately
    are tried again. Drawing by weight and accepting with a probability sampled from it is
    posterior sampling (Thompson, Biometrika 25, 1933).
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

    def sample_signal(
        self,
        task: str,
        level: int | None,
        draw: int,
        rng: random.Random,
    ) -> float:
        """Sample the probability of signal at a draw."""
        mixed, flat = self._aged(task, level, draw)
        return rng.betavariate(0.5 + mixed, 0.5 + flat)  # Jeffreys' prior

    def report_result(
        self,
        task: str,
        level: int | None,
        draw: int,
        *,
        mixed: bool,
    ) -> None:
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
    """The stored state.

    Attributes:
        signal: rows of task, level, groups with signal, groups without, last draw.
        solved_shares: rows of task, level, groups, shares, pairs, last draw.
    """

    run_seed: int
    replica: str
    draw: Count
    levels: LevelsState
    signal: list[tuple[str, Count | None, Amount, Amount, Count]]
    solved_shares: list[tuple[str, Count | None, Amount, Amount, Amount, Count]]
    memory: ReplayState


class Sampler:
    """An endless stream of training recipes.

    Args:
        weights: task name to relative weight, at least one above 0.
        run_seed: the configured seed.
        replica: this environment's identity; two replicas draw different problems.
        levels: which level each recipe has; by default the library's configuration.
        overrides: task name to parameters that override those of the level.
        by_signal: whether to draw tasks and levels by weight times the estimated probability of
            signal, instead of by weight alone, and to replay problems that are likelier to have
            signal than fresh ones.
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
        self._cumulative = list(
            itertools.accumulate(weights[task] for task in self._tasks)
        )
        self._run_seed = run_seed
        self._replica = replica
        self._levels = levels or DefaultLevels()
        self._overrides = overrides or {}
        self._signal = SignalEstimates(self._tasks) if by_signal else None
        self._solved_shares = SolvedShares(self._tasks)
        self._replay = ReplayBuffer(self._tasks, self._solved_shares)
        self._draw = 0

    def next_recipe(self) -> Recipe:
        """Draw the next recipe."""
        draw = self._draw
        self._draw += 1
        if self._signal:
            return self._next_by_signal(self._signal, draw)
        task = self._by_weight(self._uniform("task", draw))
        level = self._levels.level(task, self._uniform("level", draw))
        return self._fresh(task, level, draw)

    def _fresh(self, task: str, level: int | None, draw: int) -> Recipe:
        return Recipe(
            task=task,
            seed=training_seed(self._run_seed, self._replica, task, draw),
            level=level,
            parameters=self._parameters(task, level),
        )

    def _parameters(self, task: str, level: int | None) -> dict[str, Any]:
        return {**self._levels.parameters(task, level), **self._overrides.get(task, {})}

    def _bits(self, purpose: str, draw: int) -> int:
        """Return random bits for one purpose of one draw."""
        return hash_bits(SEED_BITS, purpose, self._run_seed, self._replica, draw)

    def _uniform(self, purpose: str, draw: int) -> float:
        """Return a random number in [0, 1) for one purpose of one draw."""
        return self._bits(purpose, draw) / (1 << SEED_BITS)

    def _next_by_signal(self, signal: SignalEstimates, draw: int) -> Recipe:
        """Draw by weight, accept by the probability of signal of what would be asked."""
        rng = random.Random(self._bits("task", draw))
        only_fresh = rng.random() < FRESH_SHARE
        best_replay = cache(partial(self._replay.best, draw=draw))
        while True:
            task = self._by_weight(rng.random())
            level = self._levels.level(task, rng.random())
            fresh_signal = signal.sample_signal(task, level, draw, rng)
            replay_signal, replayed = (0.0, None) if only_fresh else best_replay(task)
            if rng.random() >= max(LEAST_ACCEPTANCE, fresh_signal, replay_signal):
                continue
            if replayed is None or replay_signal <= fresh_signal:
                return self._fresh(task, level, draw)
            self._replay.take(replayed)
            return replayed

    def _by_weight(self, uniform: float) -> str:
        index = bisect.bisect_right(self._cumulative, uniform * self._cumulative[-1])
        return self._tasks[min(index, len(self._tasks) - 1)]

    def is_replayed(self, recipe: Recipe) -> bool:
        """Return whether a recipe is a replay that has no result yet."""
        return self._replay.is_replayed(recipe)

    def report_result(
        self,
        recipe: Recipe,
        *,
        solved: int,
        scored: int,
        step: int | None = None,
    ) -> str | None:
        """Learn from a group: `solved` of its `scored` rollouts; describe the task's move, if any.

        Levels and their signal learn from first groups alone, since a problem that is replayed
        was chosen.

        Args:
            step: the trainer's step; None if unknown.
        """
        task = recipe.task
        level = recipe.level
        draw = self._draw
        if not scored or task not in self._tasks:
            return None
        if self._signal:
            if self._replay.report_result(
                recipe,
                draw,
                solved=solved,
                scored=scored,
                step=step,
            ):
                return None
            self._signal.report_result(task, level, draw, mixed=0 < solved < scored)
        self._solved_shares.report_result(
            task,
            level,
            draw,
            solved=solved,
            scored=scored,
        )
        return self._levels.report_result(
            task,
            level,
            solved=solved,
            scored=scored,
        )

    def require_drawable(self, recipe: Recipe) -> None:
        """Raise ValueError for a recipe that no draw of this stream gives."""
        task = recipe.task
        if task not in self._tasks:
            raise ValueError(f"problem is of {task}, which this stream never draws")
        if not self._levels.draws(task, recipe.level):
            level = "no level" if recipe.level is None else f"level {recipe.level}"
            raise ValueError(
                f"problem is of {level}, which this stream never draws of {task}"
            )
        if recipe.parameters != self._parameters(task, recipe.level):
            raise ValueError(
                f"problem has the parameters {shorten(dict(recipe.parameters))}, which this stream "
                f"never draws of {task} at its level"
            )
        if recipe.is_evaluation:
            raise ValueError(
                f"problem has the seed {recipe.seed} of an evaluation, which no stream draws"
            )

    def expected_signal(self, task: str, position: float, size: int) -> float | None:
        """Return the expected share of groups with signal: see `SolvedShares.expected_signal`."""
        return self._solved_shares.expected_signal(task, position, size)

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
            "solved_shares": self._solved_shares.state_dict(),
            "memory": self._replay.state_dict(),
        }

    def require_own(self, state: Mapping[str, Any]) -> None:
        """Check that a state is this run's and replica's; raise ValueError otherwise."""
        for name, of_state, of_run in (
            ("seed", state["run_seed"], self._run_seed),
            ("replica", state["replica"], self._replica),
        ):
            if of_state != of_run:
                raise ValueError(
                    f"the state's {name} is {shorten(of_state)}, but this run's is {of_run!r}"
                )

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue another stream; restore the evidence that fits these tasks and ladders."""
        self._run_seed = state["run_seed"]
        self._replica = state["replica"]
        self._draw = state["draw"]
        self._levels.load_state_dict(state["levels"])
        self._solved_shares.load_state_dict(state["solved_shares"])
        if self._signal:
            self._signal.load_state_dict(state["signal"])
            self._replay.load_state_dict(state["memory"], self._is_drawn)

    def _is_drawn(self, recipe: Recipe) -> bool:
        """Return whether this run's tasks, ladders and parameters still give a recipe."""
        task = recipe.task
        level = recipe.level
        is_of_run = task in self._tasks and self._levels.has(task, level)
        return is_of_run and recipe.parameters == self._parameters(task, level)
