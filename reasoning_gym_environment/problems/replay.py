"""Problems whose last group had signal: they are asked again.

Questions of one level differ in difficulty, so a problem that some rollouts solved and others
didn't is likelier to have signal again than a fresh one. research/curriculum.md has the
measurements.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import astuple, dataclass, fields
from itertools import islice
from typing import Annotated, Any

from msgspec import Meta, Struct, convert

from ..records import Recipe
from .levels import Amount, Count

HALF_LIFE = 20
"""The evidence of a level loses half of its weight in this many groups per task."""

WAIT = 200
"""Draws before a problem is asked again, so that the policy has moved."""

MAX_ATTEMPTS = 5
"""Times that a problem is asked at the most."""

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
        for problem in self._ready[task].values():
            if draw - problem.since < WAIT:
                break  # the others were scored later
            if (
                self._step is not None
                and problem.step is not None
                and self._step <= problem.step
            ):
                continue  # the policy has not moved since
            level = self._levels[task].get(problem.recipe.level) or _Level()
            keep = 0.5 ** ((draw - problem.since) / PROBLEM_HALF_LIFE)
            solved = weight * level.mean + keep * problem.solved
            failed = weight * (1 - level.mean) + keep * problem.failed
            problem.expected = signal_probability(solved, failed, problem.size)
            if problem.expected > chance:
                chance = problem.expected
                best = problem.recipe
        return min(1.0, chance * self._mixed / self._expected), best

    def _correlation(self, task: str) -> float:
        """Estimate the correlation of two rollouts of one problem, over all levels of a task."""
        between = 0.0
        total = 0.0
        for level in self._levels[task].values():
            between += level.pairs - level.groups * level.mean**2
            total += level.groups * level.mean * (1 - level.mean)
        # The prior has groups of which half is solved.
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
        problem = self._awaited.pop((recipe.task, recipe.seed), None)
        again = problem is not None
        problem = problem or ReplayedProblem(recipe=recipe)
        if again:
            self._mixed = 0.99 * self._mixed + (0 < solved < scored)
            self._expected = 0.99 * self._expected + problem.expected
        elif scored > 1:
            level = self._levels[recipe.task].setdefault(
                recipe.level, _Level(since=draw)
            )
            level.age(draw, self._level_half_life)
            level.groups += 1
            level.shares += solved / scored
            level.pairs += solved * (solved - 1) / (scored * (scored - 1))
        keep = 0.5 ** ((draw - problem.since) / PROBLEM_HALF_LIFE)
        problem.solved = keep * problem.solved + solved
        problem.failed = keep * problem.failed + scored - solved
        problem.attempts += 1
        problem.size = scored
        problem.since = draw
        problem.step = step
        if 0 < solved < scored and problem.attempts < MAX_ATTEMPTS:
            self._keep(problem)
        return again

    def _keep(self, known: ReplayedProblem) -> None:
        ready = self._ready[known.recipe.task]
        ready[known.recipe.seed] = known
        if len(ready) > self._room:
            del ready[next(iter(ready))]

    def state_dict(self) -> dict[str, Any]:
        """Return the memory as JSON."""
        level_rows = []
        for task, levels in self._levels.items():
            for level, evidence in levels.items():
                level_rows.append([task, level, *astuple(evidence)])
        ready_rows = []
        for ready in self._ready.values():
            ready_rows += [_row(problem) for problem in ready.values()]
        return {
            "step": self._step,
            "correction": [self._mixed, self._expected],
            "levels": level_rows,
            "ready": ready_rows,
            "awaited": [_row(problem) for problem in self._awaited.values()],
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
        for problem in _read(stored.ready, is_drawn):
            self._keep(problem)
        for problem in islice(_read(stored.awaited, is_drawn), MAX_PROBLEMS):
            self._awaited[problem.recipe.task, problem.recipe.seed] = problem


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
