"""Standings beside what was published of the same models, read from files and shown as a table."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from statistics import fmean

from msgspec import Struct

from reasoning_gym_environment.errors import FixableError
from reasoning_gym_environment.evaluation.comparison import Standing, leaderboard_table, standing
from reasoning_gym_environment.evaluation.metrics import Baselines
from reasoning_gym_environment.evaluation.store import EvaluationResults
from reasoning_gym_environment.problems.suites import Suite
from reasoning_gym_environment.storage.rows import StoredGroup, StoredRollout
from reasoning_gym_environment.tasks.catalogue import known_categories
from reasoning_gym_environment.util.values import group_by, validate

from .published import STORED_SCORE


@dataclass(frozen=True, kw_only=True, slots=True)
class PublishedStanding(Standing):
    """A standing beside the scores that were published, over all items of the publishers.

    Attributes:
        published: the mean score that its publishers gave; None without any.
        rescored: the mean score of the same items by the package.
        solved_with_faulty: the solved share of the same items.
    """

    published: float | None = None
    rescored: float | None = None
    solved_with_faulty: float | None = None


class StandingsFile(Struct, frozen=True, forbid_unknown_fields=True):
    """Standings on one suite, as `suite table --json` writes them."""

    suite: dict[str, str | int]
    models: list[PublishedStanding]


def read_standings(path: Path, suite: Suite) -> list[PublishedStanding]:
    """Read a file of standings.

    Raises:
        FixableError: it is invalid, or of another suite.
    """
    try:
        file = validate(json.loads(path.read_bytes()), StandingsFile)
    except (OSError, ValueError, RecursionError) as error:
        raise FixableError(f"{path} is not a file of standings: {error}") from None
    if file.suite != suite.identity:
        raise FixableError(f"{path} is of the suite {file.suite}, not of {suite.identity}")
    return file.models


def published_standing(results: EvaluationResults, suite: Suite) -> PublishedStanding:
    """Measure one evaluation, and what its publishers said of it; raises as `standing` does."""
    baselines = Baselines.at_threshold(None, categories=known_categories(), attempts=1)
    own = standing(results, suite, baselines)
    tasks = group_by(lambda sample: sample.task, results.samples).values()
    return PublishedStanding(
        **{field.name: getattr(own, field.name) for field in fields(own)},
        published=_macro(tasks, lambda rollout: rollout.other.get(STORED_SCORE)),
        rescored=_macro(tasks, lambda rollout: rollout.raw_score) or 0.0,
        solved_with_faulty=_macro(tasks, lambda rollout: float(rollout.solved)) or 0.0,
    )


def _macro(
    tasks: Iterable[Sequence[StoredGroup]], value: Callable[[StoredRollout], float | None]
) -> float | None:
    """Return the mean of the tasks' means over scored rollouts with a value; None without any."""
    means = []
    for samples in tasks:
        values = [value(rollout) for sample in samples for rollout in sample.scored]
        if known := [each for each in values if each is not None]:
            means.append(fmean(known))
    return fmean(means) if means else None


def published_table(standings: Sequence[PublishedStanding]) -> str:
    """Return the table in Markdown, with what was published of its models if it was of any."""
    known = [each for each in standings if each.published is not None]
    if not known:
        return leaderboard_table(standings)
    by_published = sorted(known, key=lambda each: -(each.published or 0))
    ranks = {each.model: str(rank) for rank, each in enumerate(by_published, 1)}

    def more(each: Standing) -> dict[str, str]:
        assert isinstance(each, PublishedStanding)
        return {
            "rank as published": ranks.get(each.model, ""),
            "score as published": "" if each.published is None else f"{each.published:.3f}",
            "score here": "" if each.rescored is None else f"{each.rescored:.3f}",
            "solved with faulty items": (
                "" if each.solved_with_faulty is None else f"{each.solved_with_faulty:.1%}"
            ),
        }

    return leaderboard_table(standings, more)
