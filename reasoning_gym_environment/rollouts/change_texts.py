"""What is told of a change: one sentence, its numbers, and the rollouts that show it."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Sequence
from statistics import NormalDist
from typing import TYPE_CHECKING, Any, NamedTuple

from ..problems.curve import fit_curve
from .change_points import Episode
from .measures import (
    COLLAPSE,
    LENGTH,
    LEVEL,
    NO_ANSWER,
    NO_LEVEL,
    REPEATS,
    REWARD,
    SOLVED,
    TRUNCATED,
    UNSCORED,
    WITHHELD,
    Measure,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Rows = NDArray[Any]

GROUPS_BEFORE = 200
"""The most groups before a change with which a sentence compares."""

LEVEL_STEP = 0.5
"""A mean level that moves by less is the same."""

QUANTILE = NormalDist().inv_cdf(0.975)
"""Standard errors on each side of a 95 % interval."""

WORDS = {
    SOLVED: "solved",
    NO_ANSWER: "without an answer",
    TRUNCATED: "truncated",
    REPEATS: "of answers repeat another problem's",
    UNSCORED: "unscored",
    WITHHELD: "withheld by the server's filter",
}
"""What a share is of, by column."""

CONDITIONS = {
    "no_answer": "status:no_answer,several_answers",
    "unscored": "status:unscored",
    "withheld": "status:no_answer,unscored",
}
"""Which rollouts show a change of a kind, where not all of its groups do."""


class ToldChange(NamedTuple):
    """What is told of one measure's change.

    Attributes:
        old, new: the means before and within; of lengths, in tokens.
        low, high: the 95 % interval of their difference; of lengths, of `new / old`.
    """

    kind: str
    old: float
    new: float
    low: float
    high: float
    text: str


def tell(measure: Measure, rows: Rows, episode: Episode) -> ToldChange:
    """Return what is so since a change, with what was before in brackets."""
    before, within = means(rows, episode)
    column = measure.column
    old = before[column]
    new = within[column]
    # Levels and tasks may differ between both; the error is that of the compared values.
    error = QUANTILE * abs((episode.within - episode.before) / episode.sigmas)
    low = new - old - error
    high = new - old + error
    if column == LENGTH:
        old, new, low, high = map(math.exp, (old, new, low, high))
        text = f"{new:.0f} tokens ({old:.0f} before, times {low:.2g} to {high:.2g})"
        if measure.kind == "shorter":
            text += f", reward {within[REWARD]:.2f} ({before[REWARD]:.2f} before)"
    else:
        points = f"{100 * (new - old):+.0f} ± {100 * error:.0f} points"
        text = f"{new:.0%} {WORDS[column]} ({old:.0%} before, {points})"
        if measure is COLLAPSE:
            text += _levels_of_collapse(rows, episode, before, within)
    return ToldChange(measure.kind, old, new, low, high, text)


def _levels_of_collapse(
    rows: Rows, episode: Episode, before: Sequence[float], within: Sequence[float]
) -> str:
    """Return what levels say of a collapse: they explain it only where they were measured."""
    if abs(within[LEVEL] - before[LEVEL]) < LEVEL_STEP:
        return ""
    text = f" while the level goes from {before[LEVEL]:.1f} to {within[LEVEL]:.1f}"
    rows_before = rows[max(0, episode.begin - GROUPS_BEFORE) : episode.begin]
    rows_within = rows[episode.begin : episode.end]
    if set(rows_before[:, LEVEL]) & set(rows_within[:, LEVEL]):
        return text
    expected = _expected_share(rows_before, rows_within)
    return f"{text}: level or ability, no common level ({expected:.0%} expected there)"


def _expected_share(before: Rows, within: Rows) -> float:
    """Return the solved share that the curriculum's curve, fitted before, expects within."""
    evidence: dict[int, tuple[float, float]] = {}
    for level, solved in before[:, [LEVEL, SOLVED]].tolist():
        if level != NO_LEVEL and not math.isnan(solved):
            total, count = evidence.get(round(level), (0.0, 0.0))
            # Rollouts of a group are alike, so it counts as one answer.
            evidence[round(level)] = (total + solved, count + 1)
    levels = Counter(round(level) for level in within[:, LEVEL].tolist())
    height = max(2, 1 + max(*levels, *evidence, 0))
    curve = fit_curve(evidence, height, target=0.5)
    total = sum(count * curve.at_level(level) for level, count in levels.items())
    return total / len(within)


def means(rows: Rows, episode: Episode) -> tuple[list[float], list[float]]:
    """Return the mean row before an episode, and within it."""
    first_row = max(0, episode.begin - GROUPS_BEFORE)
    return (
        _column_means(rows[first_row : episode.begin]),
        _column_means(rows[episode.begin : episode.end]),
    )


def _column_means(rows: Rows) -> list[float]:
    """Return the mean of what is known of each column; NaN if nothing is."""
    import numpy as np  # slow, not for help

    is_known = ~np.isnan(rows)
    sums = np.where(is_known, rows, 0.0).sum(axis=0).tolist()
    counts = is_known.sum(axis=0).tolist()
    pairs = zip(sums, counts, strict=True)
    return [total / count if count else math.nan for total, count in pairs]


def condition(
    *,
    task: str | None,
    category: str | None,
    kind: str,
    since: int,
    until: int | None,
) -> str:
    """Return the condition of `--where` and of the page that selects a change's rollouts.

    Example:
        >>> condition(task="gcd", category=None, kind="unscored", since=601, until=None)
        'task:gcd group:>=601 status:unscored'
    """
    terms = []
    if task or category:
        field = "task" if task else "category"
        name = task or category or ""
        terms.append(
            f"{field}:{name}" if re.fullmatch(r"[\w.]+", name) else f'{field}:"{name}"'
        )
    terms.append(f"group:>={since}" if until is None else f"group:{since}..{until}")
    if kind in CONDITIONS:
        terms.append(CONDITIONS[kind])
    return " ".join(terms)
