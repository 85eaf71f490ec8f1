"""Problems whose last group had signal: they are asked again.

Questions of one level differ in difficulty, so a problem that some rollouts solved and others
didn't is likelier to have signal again than a fresh one. research/curriculum.md has the
measurements.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, fields
from functools import cache, partial
from itertools import islice
from typing import Annotated, Any

from msgspec import Meta, Struct

from ..records import Recipe
from ..util.values import convert
from .expected_signal import SolvedShares
from .levels import Amount, Count

WAIT = 200
"""Draws before a problem is asked again, so that the policy has moved."""

MAX_ATTEMPTS = 5
"""Times that a problem is asked at the most."""

PROBLEM_HALF_LIFE = 1000
"""Results of a problem lose half of their weight in this many draws."""

MAX_PROBLEMS = 2000
"""Problems that are remembered at the most, and as many whose result is awaited."""

FIRST_GROUPS = 10.0
"""A run starts as if so many groups had come as expected."""


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
    """The stored state."""

    step: Count | None
    correction: tuple[Amount, Annotated[float, Meta(ge=0.01, le=2**53)]]
    ready: list[KnownRow]
    awaited: list[KnownRow]


class ReplayBuffer:
    """Problems whose last group had signal, each with the probability that its next one has.

    What is known of a level's problems is the prior of each. A problem's own results, which decay,
    update it. Where problems of a level are alike, none is worth asking again.

    Args:
        tasks: of the run.
        shares: what is known of the levels, from the first groups of this run's problems.
    """

    def __init__(self, tasks: Collection[str], shares: SolvedShares) -> None:
        self._shares = shares
        self._room = max(8, min(256, MAX_PROBLEMS // len(tasks)))  # compared in a draw
        self._ready: dict[str, dict[int, ReplayedProblem]] = {
            task: {} for task in tasks
        }
        self._awaited: dict[tuple[str, int], ReplayedProblem] = {}
        self._step: int | None = None
        self._mixed = FIRST_GROUPS
        self._expected = FIRST_GROUPS

    def is_replayed(self, recipe: Recipe) -> bool:
        """Return whether a recipe was handed out by `take` and has no result yet."""
        return (recipe.task, recipe.seed) in self._awaited

    def best(self, task: str, draw: int) -> tuple[float, Recipe | None]:
        """Return the likeliest problem of a task to have signal, and its probability.

        Past problems correct the probability: the policy learns, so problems change.
        """
        prior_at = cache(partial(self._shares.prior, task))
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
            keep = 0.5 ** ((draw - problem.since) / PROBLEM_HALF_LIFE)
            problem.expected = prior_at(problem.recipe.level).signal(
                problem.size,
                solved=keep * problem.solved,
                failed=keep * problem.failed,
            )
            if problem.expected > chance:
                chance = problem.expected
                best = problem.recipe
        return min(1.0, chance * self._mixed / self._expected), best

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
        ready_rows = []
        for ready in self._ready.values():
            ready_rows += [_row(problem) for problem in ready.values()]
        return {
            "step": self._step,
            "correction": [self._mixed, self._expected],
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
