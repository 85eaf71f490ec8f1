"""Which changes a comparison can see: the power of its test, and the questions that it takes.

By the normal approximation of a paired test of means (Miller 2024, arXiv:2411.00640, section 5).
The differences vary by their attempts, which more attempts average out, and by their questions,
whose shares change by more or less, which only more questions average out.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import NormalDist, fmean, variance

from .estimators import SIGNIFICANCE

POWER = 0.8
"""The probability with which a change is to be seen."""

TELLING_CHANGE = 0.15
"""The change of a task's solved share that a comparison is for: 15 points."""

ADVISED_ATTEMPTS = 4


@dataclass(frozen=True, kw_only=True, slots=True)
class Power:
    """What a comparison's differences tell about the questions that it takes.

    Attributes:
        significance: the p-value that one more task needs to be found.
        by_attempts: variance of a difference with one attempt on each side, as far as attempts
            vary; None if no question has several.
        by_questions: its variance beyond that.
        attempts: scored attempts at a question, the mean over both evaluations.
    """

    significance: float
    by_attempts: float | None
    by_questions: float
    attempts: float

    def questions_for(self, change: float, attempts: float) -> int:
        """Return the questions of a task that show a change with probability POWER."""
        spread = (self.by_attempts or 0.0) / attempts + self.by_questions
        normal = NormalDist()
        quantiles = normal.inv_cdf(1 - self.significance / 2) + normal.inv_cdf(POWER)
        # A test of signs has a p-value of at least 2 / 2 ** questions.
        least = math.ceil(1 - math.log2(self.significance))
        return max(least, math.ceil(spread * (quantiles / change) ** 2))

    @property
    def advice(self) -> str:
        """What it takes to see TELLING_CHANGE on one task, in words."""
        attempts = max(1, round(self.attempts))
        need = self.questions_for(TELLING_CHANGE, self.attempts)
        text = (
            f"To see {TELLING_CHANGE * 100:.0f} points on one task with a probability of "
            f"{POWER:.0%} takes about {need} questions of it with {_times(attempts)} each"
        )
        if self.by_attempts is None:
            return f"{text}; more attempts take fewer."
        if attempts < ADVISED_ATTEMPTS:
            fewer = self.questions_for(TELLING_CHANGE, ADVISED_ATTEMPTS)
            text += f", or {fewer} with {ADVISED_ATTEMPTS}"
        return f"{text}."


def _times(attempts: int) -> str:
    return "1 attempt" if attempts == 1 else f"{attempts} attempts"


def power_of(
    differences: Iterable[Sequence[float]],
    attempts: Sequence[tuple[float, int]],
    *,
    changed_tasks: int,
) -> Power | None:
    """Estimate the power of a comparison; None if no task has two questions.

    Args:
        differences: of the questions of each task.
        attempts: the solved share and number of attempts, of each question in each evaluation.
        changed_tasks: number of tasks that changed beyond noise.
    """
    tasks = list(differences)
    tasks_with_spread = [task for task in tasks if len(task) > 1]
    if not tasks_with_spread:
        return None
    freedom = sum(len(task) - 1 for task in tasks_with_spread)
    total = (
        sum(variance(task) * (len(task) - 1) for task in tasks_with_spread) / freedom
    )
    number = fmean(count for _, count in attempts)
    repeated = [(share, count) for share, count in attempts if count > 1]
    by_attempts = None
    by_questions = total
    if repeated:
        # Unbiased, of one attempt; there is one on each side.
        of_attempt = fmean(
            share * (1 - share) * count / (count - 1) for share, count in repeated
        )
        by_attempts = 2 * of_attempt
        by_questions = max(0.0, total - by_attempts / number)
    return Power(
        significance=SIGNIFICANCE * min(1.0, (changed_tasks + 1) / len(tasks)),
        by_attempts=by_attempts,
        by_questions=by_questions,
        attempts=number,
    )
