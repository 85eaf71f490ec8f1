"""Aggregates of groups of rollouts: solved shares, overviews, and changes over time."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

from ..evaluation.estimators import share
from ..records import FORMAT_FAILURES, SOLVED_SCORE, Signal, Status, recipe_key
from ..storage.rows import StoredGroup, StoredRollout
from ..tasks.catalogue import ladder_heights
from ..tasks.chance_floors import Floors, floors
from ..util.grouping import Key, group_by
from .loading import category_of

_MOST_BUCKETS = 40
_SMALLEST_BUCKET = 10


@dataclass(frozen=True, kw_only=True, slots=True)
class Share:
    """The solved share of some groups' scored rollouts, with its 95 % interval.

    Attributes:
        chance: the best constant answer's solved share on the same tasks, averaged over the
            rollouts; None where some group has no such floor.
        no_reasoning: the same for the best copy from the question.
        problems: distinct problems; a problem of several evaluations counts once.
    """

    solved: float
    low: float
    high: float
    chance: float | None
    no_reasoning: float | None
    rollouts: int
    problems: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Overview:
    """The headline figures: shares in [0, 1], lengths in tokens, None where nothing is known.

    Attributes:
        format_failures, truncated: shares of the rollouts that have a completion.
    """

    groups: int
    rollouts: int
    tasks: int
    solved: Share | None
    score: float | None
    reward: float | None
    statuses: Mapping[Status, int]
    format_failures: float
    truncated: float
    median_tokens: float | None
    longest_tokens: int | None
    signal: Mapping[Signal, float]


@dataclass(frozen=True, kw_only=True, slots=True)
class Bucket:
    """Consecutive groups, numbered from `start` up to but not including `end`."""

    start: int
    end: int
    solved: Share | None
    signal: Mapping[Signal, float]


class LevelPoint(NamedTuple):
    """The mean level of some groups, and the mean of their positions."""

    group: float
    level: float


def rollouts_of(groups: Sequence[StoredGroup]) -> list[StoredRollout]:
    return [rollout for group in groups for rollout in group.rollouts]


def floors_of(group: StoredGroup) -> Floors | None:
    """Return the floors of the group's task, where they apply; see `tasks.chance_floors`.

    Floors are of default items at the default threshold, which rows without one had.
    """
    threshold = group.scoring.get("solved_threshold", SOLVED_SCORE)
    default = group.recipe.level is None and not group.recipe.parameters
    return floors().get(group.task) if default and threshold == SOLVED_SCORE else None


def difficulty_of(group: StoredGroup) -> float | None:
    """Return the group's position on its task's ladder, from 0 to 1; None without a level.

    Ladders have different lengths, so levels of different tasks are not comparable.
    """
    height = ladder_heights().get(group.task, 0)
    if group.difficulty is not None or group.recipe.level is None or height < 2:
        return group.difficulty
    return min(1.0, group.recipe.level / (height - 1))


def solved_share(groups: Sequence[StoredGroup]) -> Share | None:
    """Estimate the solved share, clustered by problem; None if no rollout is scored."""
    scored = [group for group in groups if group.scored]
    if not scored:
        return None
    problems = group_by(lambda group: recipe_key(group.recipe), scored)
    solved = share(
        [[float(r.solved) for group in own for r in group.scored] for own in problems.values()]
    )
    rollouts = sum(len(group.scored) for group in scored)
    known = [own for group in scored for own in [floors_of(group)] * len(group.scored) if own]
    whole = len(known) == rollouts
    return Share(
        solved=solved.value,
        low=solved.low,
        high=solved.high,
        chance=statistics.fmean(own.chance.solved for own in known) if whole else None,
        no_reasoning=statistics.fmean(own.no_reasoning.solved for own in known) if whole else None,
        rollouts=rollouts,
        problems=len(problems),
    )


def shares_by(
    key: Callable[[StoredGroup], Key], groups: Sequence[StoredGroup]
) -> Iterator[tuple[Key, Share]]:
    """Yield the solved share of each key that has one."""
    for name, own in group_by(key, groups).items():
        if solved := solved_share(own):
            yield name, solved


def signal_shares(groups: Sequence[StoredGroup]) -> dict[Signal, float]:
    """Return the shares of signals among groups with at least two scored rollouts, if any."""
    kinds = Counter(group.signal for group in groups if len(group.scored) > 1)
    return {one: kinds[one] / kinds.total() for one in Signal} if kinds else {}


def overview(groups: Sequence[StoredGroup]) -> Overview:
    """Return the headline figures of groups."""
    rollouts = rollouts_of(groups)
    lengths = [rollout.length for rollout in rollouts if rollout.length is not None]
    given = max(1, len(lengths))
    statuses = Counter(rollout.status for rollout in rollouts)
    scored = [r for r in rollouts if r.scored]
    return Overview(
        groups=len(groups),
        rollouts=len(rollouts),
        tasks=len({group.task for group in groups}),
        solved=solved_share(groups),
        score=statistics.fmean(r.raw_score or 0.0 for r in scored) if scored else None,
        reward=statistics.fmean(r.score for r in scored) if scored else None,
        statuses={s: statuses[s] for s in Status if statuses[s]},
        format_failures=sum(statuses[s] for s in FORMAT_FAILURES) / given,
        truncated=sum(r.truncated for r in rollouts) / given,
        median_tokens=statistics.median(lengths) if lengths else None,
        longest_tokens=max(lengths, default=None),
        signal=signal_shares(groups),
    )


def buckets(groups: Sequence[StoredGroup]) -> list[Bucket]:
    """Split groups into at most 40 equal buckets of at least 10; none with fewer groups."""
    return [
        Bucket(
            start=part.start,
            end=part.stop,
            solved=solved_share(groups[part]),
            signal=signal_shares(groups[part]),
        )
        for part in equal_parts(len(groups))
    ]


def equal_parts(count: int) -> list[slice]:
    """Split a range into at most 40 equal slices of at least 10."""
    parts = min(_MOST_BUCKETS, count // _SMALLEST_BUCKET)
    ends = [number * count // parts for number in range(parts + 1)] if parts else []
    return [slice(start, end) for start, end in pairwise(ends)]


def level_points(groups: Sequence[StoredGroup]) -> dict[str, list[LevelPoint]]:
    """Return the mean levels of each category over time; none with few groups."""
    points: dict[str, list[LevelPoint]] = {}
    for category in sorted(set(map(category_of, groups))):
        own = [
            LevelPoint(float(number), group.recipe.level)
            for number, group in enumerate(groups)
            if category_of(group) == category and group.recipe.level is not None
        ]
        points[category] = [mean_point(own[part]) for part in equal_parts(len(own))]
    return {category: own for category, own in points.items() if own}


def mean_point(points: Sequence[LevelPoint]) -> LevelPoint:
    groups, levels = zip(*points, strict=True)
    return LevelPoint(statistics.fmean(groups), statistics.fmean(levels))
