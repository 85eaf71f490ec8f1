"""The sampler of training recipes: task, level and seed.

Every draw is a pure function of (run seed, replica, draw number) and, if levels or tasks depend on
results, of the results recorded before it.

Seeds of training and of evaluation never overlap. They are hashes, not sums: on most tasks
`seed + 1` is the same stream shifted by one, so that sums would make replicas repeat each other's
items and draw evaluation items.

Problems whose last group had signal are asked again. Questions of one level differ in difficulty,
so a problem that some rollouts solved and others didn't is likelier to have signal again than a
fresh one. research/curriculum.md has the measurements.
"""

from __future__ import annotations

import bisect
import hashlib
import itertools
import math
import random
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass, fields
from functools import cache, partial
from itertools import islice
from typing import Annotated, Any, Literal

from msgspec import Meta, Struct, convert

from ..records import Ladder, Recipe
from ..util.values import shorten
from .levels import (
    Amount,
    Count,
    DefaultLevels,
    LevelPolicy,
    LevelsState,
    level_at,
    position_of,
)

WAIT = 200
"""Draws before a problem is asked again, so that the policy has moved."""

MAX_ATTEMPTS = 5
"""Times that a problem is asked at the most."""

FRESH_SHARE = 0.3
"""The lowest share of draws that ask a fresh problem."""

PROBLEM_HALF_LIFE = 1000
"""Results of a problem lose half of their weight in this many draws."""

MAX_PROBLEMS = 2000
"""Problems that are remembered at the most, and as many whose result is awaited."""


@dataclass(slots=True)
class _Level:
    """Decayed sums over the first groups of a level's problems.

    Attributes:
        groups: their number.
        shares: solved shares.
        pairs: shares of the pairs of rollouts that are both solved.
        since: the draw at which these numbers held.
    """

    groups: float = 0.0
    shares: float = 0.0
    pairs: float = 0.0
    since: int = 0

    def age(self, draw: int, half_life: float) -> None:
        keep = 0.5 ** ((draw - self.since) / half_life)
        self.groups, self.shares, self.pairs = (
            keep * each for each in (self.groups, self.shares, self.pairs)
        )
        self.since = draw

    @property
    def mean(self) -> float:
        """The solved share, with one group at one half as prior."""
        return min(max((self.shares + 0.5) / (self.groups + 1), 0.01), 0.99)


@dataclass(slots=True)
class ReplayedProblem:
    """A problem that was asked, `attempts` times.

    Attributes:
        size: scored rollouts of the last group.
        solved, failed: decayed numbers of rollouts.
        expected: the probability of signal when it was asked again, before correction.
        since: the number of draws when it was last scored.
        step: the trainer's step then; None if unknown.
    """

    recipe: Recipe
    attempts: int = 0
    size: int = 0
    solved: float = 0.0
    failed: float = 0.0
    since: int = 0
    step: int | None = None
    expected: float = 0.0


def signal_probability(solved: float, failed: float, size: int) -> float:
    """Return the probability that a group is neither all solved nor all unsolved.

    The number of solved rollouts has a beta-binomial distribution.

    Args:
        solved, failed: the parameters of the Beta distribution, above 0.
        size: rollouts of the group.

    Example:
        >>> round(signal_probability(1.0, 1.0, 2), 3)
        0.333
    """
    total = solved + failed

    def all_of(share: float) -> float:
        log_probability = (
            math.lgamma(share + size) - math.lgamma(share) + math.lgamma(total)
        )
        return math.exp(log_probability - math.lgamma(total + size))

    return max(0.0, 1 - all_of(solved) - all_of(failed))


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
        The share of groups that ask a problem again; shares of fresh groups, and of those, with
        signal; rollouts per group with signal. What has no groups yet is left out.
    """
    fresh = counts.get("fresh", 0)
    again = counts.get("asked_again", 0)
    mixed = {
        kind: counts.get(f"{kind}_with_signal", 0) for kind in ("fresh", "asked_again")
    }
    shares = {
        "asked_again": (again, fresh + again),
        "fresh_with_signal": (mixed["fresh"], fresh),
        "asked_again_with_signal": (mixed["asked_again"], again),
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


KnownRow = tuple[
    dict[str, Any],
    Count,
    Count,
    Amount,
    Amount,
    Count,
    Count | None,
    Annotated[float, Meta(ge=0, le=1)],
]
"""A stored problem: recipe, attempts, size, solved, failed, last draw, step, expected signal."""


class MemoryState(Struct):
    """The stored state; level rows are (task, level, groups, shares, pairs, last draw)."""

    step: Count | None
    correction: tuple[Amount, Annotated[float, Meta(ge=0.01, le=2**53)]]
    levels: list[tuple[str, Count | None, Amount, Amount, Amount, Count]]
    ready: list[KnownRow]
    awaited: list[KnownRow]


PRIOR_GROUPS = 10.0
PRIOR_CORRELATION = 0.1
LEAST_CORRELATION = 0.02
MOST_CORRELATION = 0.9


class ReplayBuffer:
    """Problems whose last group had signal, each with the probability that its next one has.

    The solve probability of a level's problems has a Beta distribution; its mean and spread are
    measured on the first groups of this run's problems. A problem's own results, which decay,
    update it. Where problems of a level are alike, none is worth asking again.
    """

    def __init__(self, tasks: Collection[str]) -> None:
        self._room = max(8, min(256, MAX_PROBLEMS // len(tasks)))  # compared in a draw
        self._level_half_life = HALF_LIFE * len(tasks)
        self._levels: dict[str, dict[int | None, _Level]] = {task: {} for task in tasks}
        self._ready: dict[str, dict[int, ReplayedProblem]] = {
            task: {} for task in tasks
        }
        self._awaited: dict[tuple[str, int], ReplayedProblem] = {}
        self._step: int | None = None
        # As if ten groups had come as expected.
        self._mixed = PRIOR_GROUPS
        self._expected = PRIOR_GROUPS

    def is_replayed(self, recipe: Recipe) -> bool:
        """Return whether a recipe was handed out by `take` and has no result yet."""
        return (recipe.task, recipe.seed) in self._awaited

    def best(self, task: str, draw: int) -> tuple[float, Recipe | None]:
        """Return the likeliest problem of a task to have signal, and its probability.

        Past problems correct the probability: the policy learns, so problems change.
        """
        weight = 1 / self._correlation(task) - 1
        chance = 0.0
        best = None
        for known in self._ready[task].values():
            if draw - known.since < WAIT:
                break  # the others were scored later
            if (
                self._step is not None
                and known.step is not None
                and self._step <= known.step
            ):
                continue  # the policy has not moved since
            level = self._levels[task].get(known.recipe.level) or _Level()
            keep = 0.5 ** ((draw - known.since) / PROBLEM_HALF_LIFE)
            solved = weight * level.mean + keep * known.solved
            failed = weight * (1 - level.mean) + keep * known.failed
            known.expected = signal_probability(solved, failed, known.size)
            if known.expected > chance:
                chance = known.expected
                best = known.recipe
        return min(1.0, chance * self._mixed / self._expected), best

    def _correlation(self, task: str) -> float:
        """Estimate the correlation of two rollouts of one problem, over all levels of a task."""
        between = 0.0
        total = 0.0
        for level in self._levels[task].values():
            between += level.pairs - level.groups * level.mean**2
            total += level.groups * level.mean * (1 - level.mean)
        # Of groups of which half is solved.
        prior_variance = PRIOR_GROUPS * 0.5 * (1 - 0.5)
        correlation = (prior_variance * PRIOR_CORRELATION + between) / (
            prior_variance + total
        )
        return min(max(correlation, LEAST_CORRELATION), MOST_CORRELATION)

    def take(self, recipe: Recipe) -> None:
        """Hand out a problem of `best`; it is not offered again before its result."""
        self._awaited[recipe.task, recipe.seed] = self._ready[recipe.task].pop(
            recipe.seed
        )
        if len(self._awaited) > MAX_PROBLEMS:
            del self._awaited[next(iter(self._awaited))]

    def report_result(
        self,
        recipe: Recipe,
        draw: int,
        *,
        solved: int,
        scored: int,
        step: int | None,
    ) -> bool:
        """Learn from a group; return whether its problem was asked again.

        Args:
            draw: the number of recipes drawn so far.
            solved, scored: rollouts of the group.
            step: the trainer's step; None if unknown.
        """
        self._step = step
        known = self._awaited.pop((recipe.task, recipe.seed), None)
        again = known is not None
        known = known or ReplayedProblem(recipe=recipe)
        if again:
            self._mixed = 0.99 * self._mixed + (0 < solved < scored)
            self._expected = 0.99 * self._expected + known.expected
        elif scored > 1:
            level = self._levels[recipe.task].setdefault(
                recipe.level, _Level(since=draw)
            )
            level.age(draw, self._level_half_life)
            level.groups += 1
            level.shares += solved / scored
            level.pairs += solved * (solved - 1) / (scored * (scored - 1))
        keep = 0.5 ** ((draw - known.since) / PROBLEM_HALF_LIFE)
        known.solved = keep * known.solved + solved
        known.failed = keep * known.failed + scored - solved
        known.attempts += 1
        known.size = scored
        known.since = draw
        known.step = step
        if 0 < solved < scored and known.attempts < MAX_ATTEMPTS:
            self._keep(known)
        return again

    def _keep(self, known: ReplayedProblem) -> None:
        ready = self._ready[known.recipe.task]
        ready[known.recipe.seed] = known
        if len(ready) > self._room:
            del ready[next(iter(ready))]

    def state_dict(self) -> dict[str, Any]:
        """Return the memory as JSON."""
        return {
            "step": self._step,
            "correction": [self._mixed, self._expected],
            "levels": [
                [task, level, *astuple(one)]
                for task, levels in self._levels.items()
                for level, one in levels.items()
            ],
            "ready": [
                _row(one) for ready in self._ready.values() for one in ready.values()
            ],
            "awaited": [_row(one) for one in self._awaited.values()],
        }

    def load_state_dict(
        self, state: Mapping[str, Any], is_drawn: Callable[[Recipe], bool]
    ) -> None:
        """Restore the memory.

        Args:
            is_drawn: whether this run can draw a recipe; others are forgotten.
        """
        stored = convert(state, MemoryState)
        self._step = stored.step
        self._mixed, self._expected = stored.correction
        for task, level, groups, shares, pairs, since in stored.levels:
            if task in self._levels:
                self._levels[task][level] = _Level(groups, shares, pairs, since)
        for known in _read(stored.ready, is_drawn):
            self._keep(known)
        for known in islice(_read(stored.awaited, is_drawn), MAX_PROBLEMS):
            self._awaited[known.recipe.task, known.recipe.seed] = known


def _row(known: ReplayedProblem) -> list[Any]:
    _, *numbers = (getattr(known, field.name) for field in fields(known))
    return [known.recipe.to_json(), *numbers]


def _read(
    rows: Iterable[KnownRow], is_drawn: Callable[[Recipe], bool]
) -> Iterator[ReplayedProblem]:
    for data, attempts, size, solved, failed, since, step, expected in rows:
        recipe = Recipe.from_json(data)
        if is_drawn(recipe):
            yield ReplayedProblem(
                recipe, attempts, size, solved, failed, since, step, expected
            )


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


TaskSampling = Literal["uniform", "signal"]
"""How the next task is drawn: by weight alone, or by weight and signal."""

FLOOR = 0.05
"""The lowest acceptance probability, so that every level is sampled again."""

HALF_LIFE = 20
"""The evidence of a level loses half of its weight in this many groups per task."""


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
    """The stored state; signal rows are (task, level, groups with signal, without, last draw)."""

    run_seed: int
    replica: str
    draw: Count
    levels: LevelsState
    signal: list[tuple[str, Count | None, Amount, Amount, Count]]
    memory: MemoryState


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
        self._memory = ReplayBuffer(self._tasks)
        self._draw = 0

    def next_recipe(self) -> Recipe:
        """Draw the next recipe."""
        draw = self._draw
        self._draw += 1
        if self._signal:
            return self._next_by_signal(self._signal, draw)
        of_task, of_level = (
            self._bits(each, draw) / 2**SEED_BITS for each in ("task", "level")
        )
        task = self._by_weight(of_task)
        return self._fresh(task, self._levels.level(task, of_level), draw)

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

    def is_replayed(self, recipe: Recipe) -> bool:
        """Return whether a recipe without a result yet is one that was asked before."""
        return self._memory.is_replayed(recipe)

    def report_result(
        self,
        recipe: Recipe,
        *,
        solved: int,
        scored: int,
        step: int | None = None,
    ) -> str | None:
        """Learn from a group: `solved` of its `scored` rollouts; describe the task's move, if any.

        Levels and their signal learn from first groups alone, since a problem that is asked again
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
            if self._memory.report_result(
                recipe,
                draw,
                solved=solved,
                scored=scored,
                step=step,
            ):
                return None
            self._signal.report_result(task, level, draw, mixed=0 < solved < scored)
        return self._levels.report_result(
            task,
            level,
            solved=solved,
            scored=scored,
        )

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
        for name, of_state, own in (
            ("seed", state["run_seed"], self._run_seed),
            ("replica", state["replica"], self._replica),
        ):
            if of_state != own:
                raise ValueError(
                    f"the state's {name} is {shorten(of_state)}, but this run's is {own!r}"
                )

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue another stream; restore the evidence that fits these tasks and ladders."""
        self._run_seed = state["run_seed"]
        self._replica = state["replica"]
        self._draw = state["draw"]
        self._levels.load_state_dict(state["levels"])
        if self._signal:
            self._signal.load_state_dict(state["signal"])
            self._memory.load_state_dict(state["memory"], self._is_drawn)

    def _is_drawn(self, recipe: Recipe) -> bool:
        """Return whether this run's tasks, ladders and parameters still give a recipe."""
        task = recipe.task
        level = recipe.level
        own = task in self._tasks and self._levels.has(task, level)
        return own and recipe.parameters == self._parameters(task, level)
