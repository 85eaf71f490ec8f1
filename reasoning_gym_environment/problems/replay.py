"""Replay: problems whose last group had signal are asked again.

Questions of one level differ in difficulty, so a problem that some rollouts solved and others
didn't is likelier to have signal again than a fresh one. research/curriculum.md has the
measurements.

A problem goes round like this:

1. A group has signal: `report_result` makes its problem ready for replay.
2. After WAIT draws, `best` offers it where no other of its task is likelier to have signal.
3. If the sampler prefers it to a fresh problem, `take` hands it out. It awaits its result.
4. `report_result` adds that. With signal the problem is ready again, MAX_ATTEMPTS times in all.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
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
"""Times that a problem is asked at the most, so that a model doesn't learn its answer by heart."""

PROBLEM_HALF_LIFE = 1000
"""A problem's results lose half of their weight in this many draws, as the policy changes.

This is several times WAIT, so that results still count when the problem is asked again."""

MAX_PROBLEMS = 2000
"""Problems that are ready at the most, and as many that await a result. A checkpoint has all."""

LEAST_OF_TASK = 8
MOST_OF_TASK = 256
"""Problems of a task that are ready at the most, whatever the number of tasks.

A run of many tasks still has some to choose from. A run of one task compares no more in a draw."""

CALIBRATION_DECAY = 0.99
"""Share of the calibration that stays with each replayed group: about the last 100 count."""

CALIBRATION_PRIOR = 10.0
"""A run starts as if so many groups with signal had been expected, and had come."""


@dataclass(kw_only=True, slots=True)
class PastProblem:
    """A problem that was asked, `attempts` times.

    Attributes:
        size: scored rollouts of the last group.
        solved, failed: numbers of rollouts of all its groups, decayed until the last draw.
        last_draw: the number of draws when it was last scored.
        last_step: the trainer's step then; None if unknown.
        expected_signal: the probability of signal when it was last compared, before correction.
    """

    recipe: Recipe
    attempts: int = 0
    size: int = 0
    solved: float = 0.0
    failed: float = 0.0
    last_draw: int = 0
    last_step: int | None = None
    expected_signal: float = 0.0

    @property
    def key(self) -> tuple[str, int]:
        return self.recipe.task, self.recipe.seed

    def weight(self, draw: int) -> float:
        """Return how much its results still count at a draw."""
        return math.pow(0.5, (draw - self.last_draw) / PROBLEM_HALF_LIFE)

    def add_group(
        self, *, solved: int, scored: int, draw: int, step: int | None
    ) -> None:
        """Add a group's results to the decayed ones."""
        weight = self.weight(draw)
        self.solved = weight * self.solved + solved
        self.failed = weight * self.failed + scored - solved
        self.attempts += 1
        self.size = scored
        self.last_draw = draw
        self.last_step = step


@dataclass(kw_only=True, slots=True)
class Calibration:
    """Compares how many replayed groups had signal with how many were expected to.

    The policy learns, so a problem's past results may promise too much or too little. Both numbers
    decay with each replayed group.
    """

    observed: float = CALIBRATION_PRIOR
    expected: float = CALIBRATION_PRIOR

    def add_group(self, *, had_signal: bool, expected_signal: float) -> None:
        """Add a replayed group, which had this probability of signal."""
        self.observed = CALIBRATION_DECAY * self.observed + had_signal
        self.expected = CALIBRATION_DECAY * self.expected + expected_signal

    def correct(self, expected_signal: float) -> float:
        """Return a probability of signal as the replayed groups so far bear it out."""
        return min(1.0, expected_signal * self.observed / self.expected)


StoredProblem = tuple[
    dict[str, Any],
    Count,
    Count,
    Amount,
    Amount,
    Count,
    Count | None,
    Annotated[float, Meta(ge=0, le=1)],
]
"""The stored fields of a PastProblem, in their order."""


class ReplayState(Struct):
    """The stored state; `correction` is the calibration: observed and expected."""

    step: Count | None
    correction: tuple[Amount, Annotated[float, Meta(ge=0.01, le=2**53)]]
    ready: list[StoredProblem]
    awaited: list[StoredProblem]


class ReplayBuffer:
    """Problems to ask again, each with the probability that its next group has signal.

    What is known of a level's problems is the prior of each. A problem's own results, which decay,
    update it. Where problems of a level are alike, none is worth asking again.

    Args:
        tasks: of the run.
        shares: what is known of the levels, from the first groups of this run's problems.
    """

    def __init__(self, tasks: Collection[str], shares: SolvedShares) -> None:
        self._shares = shares
        per_task = MAX_PROBLEMS // len(tasks)
        self._room = max(LEAST_OF_TASK, min(MOST_OF_TASK, per_task))
        # By seed, those that were scored first come first.
        self._ready: dict[str, dict[int, PastProblem]] = {task: {} for task in tasks}
        # By task and seed, those that were handed out first come first.
        self._awaited: dict[tuple[str, int], PastProblem] = {}
        self._step: int | None = None
        self._calibration = Calibration()

    def is_replayed(self, recipe: Recipe) -> bool:
        """Return whether a recipe was handed out by `take` and has no result yet."""
        return (recipe.task, recipe.seed) in self._awaited

    def best(self, task: str, draw: int) -> tuple[float, Recipe | None]:
        """Return the ready problem of a task that is likeliest to have signal.

        Returns:
            The probability, and the problem's recipe; 0 and None if none is ready.
        """
        prior_at = cache(partial(self._shares.prior, task))
        best_signal = 0.0
        best = None
        for problem in self._ready[task].values():
            if draw - problem.last_draw < WAIT:
                break  # so do all that follow, which were scored later
            if not self._policy_has_moved_since(problem):
                continue
            weight = problem.weight(draw)
            # The calibration compares this with the result, if the problem is taken.
            problem.expected_signal = prior_at(problem.recipe.level).signal(
                problem.size,
                solved=weight * problem.solved,
                failed=weight * problem.failed,
            )
            if problem.expected_signal > best_signal:
                best_signal = problem.expected_signal
                best = problem.recipe
        return self._calibration.correct(best_signal), best

    def _policy_has_moved_since(self, problem: PastProblem) -> bool:
        """Return whether the trainer made a step since a problem's result, if steps are known."""
        if self._step is None or problem.last_step is None:
            return True
        return self._step > problem.last_step

    def take(self, recipe: Recipe) -> None:
        """Hand out a problem of `best`; it is not offered again before its result."""
        problem = self._ready[recipe.task].pop(recipe.seed)
        self._awaited[problem.key] = problem
        if len(self._awaited) > MAX_PROBLEMS:
            _drop_first(self._awaited)

    def report_result(
        self,
        recipe: Recipe,
        draw: int,
        *,
        solved: int,
        scored: int,
        step: int | None,
    ) -> bool:
        """Learn from a group; return whether its problem was replayed.

        Args:
            draw: the number of recipes drawn so far.
            solved, scored: rollouts of the group.
            step: the trainer's step; None if unknown.
        """
        self._step = step
        had_signal = 0 < solved < scored
        problem = self._awaited.pop((recipe.task, recipe.seed), None)
        is_replayed = problem is not None
        if problem is None:
            problem = PastProblem(recipe=recipe)
        else:
            self._calibration.add_group(
                had_signal=had_signal, expected_signal=problem.expected_signal
            )
        problem.add_group(solved=solved, scored=scored, draw=draw, step=step)
        if had_signal and problem.attempts < MAX_ATTEMPTS:
            self._make_ready(problem)
        return is_replayed

    def _make_ready(self, problem: PastProblem) -> None:
        ready = self._ready[problem.recipe.task]
        ready[problem.recipe.seed] = problem
        if len(ready) > self._room:
            _drop_first(ready)

    def state_dict(self) -> dict[str, Any]:
        """Return the buffer as JSON."""
        ready_rows = []
        for ready in self._ready.values():
            ready_rows += [_to_row(problem) for problem in ready.values()]
        return {
            "step": self._step,
            "correction": [self._calibration.observed, self._calibration.expected],
            "ready": ready_rows,
            "awaited": [_to_row(problem) for problem in self._awaited.values()],
        }

    def load_state_dict(
        self, state: Mapping[str, Any], is_drawn: Callable[[Recipe], bool]
    ) -> None:
        """Restore the buffer.

        Args:
            is_drawn: whether this run can draw a recipe; others are forgotten.
        """
        stored = convert(state, ReplayState)
        self._step = stored.step
        observed, expected = stored.correction
        self._calibration = Calibration(observed=observed, expected=expected)
        for problem in _from_rows(stored.ready, is_drawn):
            self._make_ready(problem)
        for problem in islice(_from_rows(stored.awaited, is_drawn), MAX_PROBLEMS):
            self._awaited[problem.key] = problem


def _drop_first(problems: dict[Any, PastProblem]) -> None:
    """Forget the problem that is in a dictionary for longest."""
    del problems[next(iter(problems))]


def _to_row(problem: PastProblem) -> list[Any]:
    return [
        problem.recipe.to_json(),
        problem.attempts,
        problem.size,
        problem.solved,
        problem.failed,
        problem.last_draw,
        problem.last_step,
        problem.expected_signal,
    ]


def _from_rows(
    rows: Iterable[StoredProblem], is_drawn: Callable[[Recipe], bool]
) -> Iterator[PastProblem]:
    for data, attempts, size, solved, failed, last_draw, last_step, signal in rows:
        recipe = Recipe.from_json(data)
        if is_drawn(recipe):
            yield PastProblem(
                recipe=recipe,
                attempts=attempts,
                size=size,
                solved=solved,
                failed=failed,
                last_draw=last_draw,
                last_step=last_step,
                expected_signal=signal,
            )
