"""What may change for the worse in a run: the measures, and their values of each group."""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Iterable, Sequence
from statistics import fmean
from typing import NamedTuple

from ..records import recipe_key
from ..storage.rows import StoredGroup

NUMBER = 0
LEVEL = 1
SOLVED = 2
NO_ANSWER = 3
TRUNCATED = 4
LENGTH = 5
REPEATS = 6
UNSCORED = 7
REWARD = 8
WITHHELD = 9
"""Columns of a task's rows: a group's number and level; shares of its rollouts that are solved,
without an answer, truncated; the mean logarithm of their tokens; how often answers to two problems
with different right answers are the same; the unscored share; the mean reward; the share withheld
by the server's content filter. NaN is unknown."""

COLUMNS = 10

NO_LEVEL = -1.0

WITHHELD_REASON = "content_filter"
"""The finish reason of a completion that the server withholds."""

COMPARED_PROBLEMS = 2
"""Earlier problems of its task to whose answers those of a group are compared: with more, a change
would show only after as many groups."""


class Measure(NamedTuple):
    """What may change for the worse, and by how much at least.

    Attributes:
        sign: 1 if a rise is worse, -1 if a fall is.
        least_rise: the least difference of means.
        least_deviation: the least standard deviation of a group: a few may be equal by chance.
        by_level: whether groups are compared within their level.
    """

    kind: str
    column: int
    sign: int
    least_rise: float
    least_deviation: float
    by_level: bool = True


COLLAPSE = Measure("solved", SOLVED, -1, 0.3, 0.2, by_level=False)
COLLAPSED = 0.1
"""Up to this share next to nothing is solved, and no level explains it: a curriculum lowers it."""

MEASURES = (
    Measure("repeats", REPEATS, 1, 0.3, 0.15, by_level=False),
    Measure("truncated", TRUNCATED, 1, 0.15, 0.15),
    Measure("shorter", LENGTH, -1, math.log(2), 0.3, by_level=False),
    Measure("longer", LENGTH, 1, math.log(2), 0.3),
    Measure("no_answer", NO_ANSWER, 1, 0.15, 0.15, by_level=False),
    Measure("unscored", UNSCORED, 1, 0.1, 0.15, by_level=False),
    Measure("withheld", WITHHELD, 1, 0.1, 0.15, by_level=False),
    COLLAPSE,
    Measure("solved", SOLVED, -1, 0.1, 0.2),
)
"""In the order in which a sentence names what changes together."""

CHECKED = (
    "solved, unscored, truncated and withheld rollouts, lengths, missing and repeated "
    "answers"
)
"""What a sentence says where nothing was found."""


class PastProblems:
    """The last problems of a task, with their right answers and how often each was given."""

    def __init__(self) -> None:
        self._past: deque[tuple[str, Counter[int], int]] = deque(
            maxlen=COMPARED_PROBLEMS
        )

    def repeats(self, group: StoredGroup) -> float:
        """Return the share of answers that repeat one to the last problems; take the group in.

        NaN if the last problems have the same right answer, or there are none.
        """
        completed = [rollout for rollout in group.rollouts if rollout.tokens]
        oracle = group.oracle or recipe_key(group.recipe)
        answers = Counter(
            hash(rollout.answer) for rollout in completed if rollout.answer
        )
        share = _repeated_share(oracle, answers, len(completed), self._past)
        if completed:
            self._past.append((oracle, answers, len(completed)))
        return share


def measured(group: StoredGroup, past: PastProblems, *, number: int) -> list[float]:
    """Return a group's row, after those of its task before it.

    Args:
        number: of the group, if it has none itself.
    """
    completed = [rollout for rollout in group.rollouts if rollout.tokens]
    scored = [rollout for rollout in completed if rollout.scored]
    level = group.recipe.level
    row = [0.0] * COLUMNS
    row[NUMBER] = group.number or number
    row[LEVEL] = NO_LEVEL if level is None else level
    row[SOLVED] = _mean([rollout.solved for rollout in scored])
    row[NO_ANSWER] = _mean([rollout.answer is None for rollout in scored])
    row[TRUNCATED] = _mean([rollout.truncated for rollout in completed])
    row[LENGTH] = _mean([math.log(max(1, r.completion_tokens)) for r in completed])
    row[REPEATS] = past.repeats(group)
    row[UNSCORED] = 1 - len(scored) / len(group.rollouts)
    row[REWARD] = _mean([rollout.score for rollout in scored])
    row[WITHHELD] = _mean([r.finish_reason == WITHHELD_REASON for r in group.rollouts])
    return row


def _mean(values: Sequence[float]) -> float:
    return fmean(values) if values else math.nan


def _repeated_share(
    oracle: str,
    answers: Counter[int],
    size: int,
    past: Iterable[tuple[str, Counter[int], int]],
) -> float:
    """Return how often an answer equals one to an earlier problem with another right answer.

    NaN if there is no such problem.
    """
    shares = []
    for past_oracle, past_answers, past_size in past:
        if past_oracle != oracle and size:
            equal_pairs = sum(n * past_answers[answer] for answer, n in answers.items())
            shares.append(equal_pairs / (size * past_size))
    return _mean(shares)
