"""Standings beside what was published of the same models, read from files and shown as a table."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean
from typing import Annotated, Literal

from msgspec import Meta, Struct

from reasoning_gym_environment.errors import FixableError
from reasoning_gym_environment.evaluation.leaderboard import (
    Standing,
    common_items,
    leaderboard_table,
    standing,
    suite_floors,
    trained_questions,
)
from reasoning_gym_environment.evaluation.store import EvaluationResults
from reasoning_gym_environment.problems.suites import Suite
from reasoning_gym_environment.storage.rows import StoredGroup
from reasoning_gym_environment.tasks.facts import known_categories
from reasoning_gym_environment.util.values import convert, group_by

from .published import STORED_SCORE

FLOORS = Path(__file__).with_name("floors.json")
"""By suite and task, the floors at other parameters than the default ones."""


ShortText = Annotated[str, Meta(max_length=100)]

Training = Literal["none", "tasks", "unknown"]
"""What a model's training had: nothing of reasoning-gym, its tasks but no item, or nobody knows."""


class Statement(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What only the submitter of an evaluation knows, so that the row repeats it.

    Attributes:
        eval_temperature: None if the endpoint takes none.
    """

    training: Training
    eval_temperature: float | None
    max_reasoning_tokens: int | None
    reasoning_effort: ShortText | None
    thinking_mode: bool
    chat_template_kwargs: dict[ShortText, bool | int | ShortText | None]


@dataclass(frozen=True, kw_only=True, slots=True)
class PublishedStanding(Standing):
    """A standing beside what was published, over all items of the publishers.

    Attributes:
        published: by task, the mean score that the publishers gave, the mean score of the same
            items here, and their solved share; empty if nothing was published.
        stated: what its submitter says; None if others published the answers.
    """

    published: Mapping[str, tuple[float, float, float]] = field(default_factory=dict)
    stated: Statement | None = None


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
        file = convert(json.loads(path.read_bytes()), StandingsFile)
    except (OSError, ValueError, RecursionError) as error:
        raise FixableError(f"{path} is not a file of standings: {error}") from None
    if file.suite != suite.identity:
        raise FixableError(
            f"{path} is of the suite {file.suite}, not of {suite.identity}"
        )
    asked = {(recipe.task, digits) for recipe, _, digits in suite.items()}
    items = Counter(task for task, _ in asked)
    for model in file.models:
        if {task: len(own.split()) for task, own in model.items.items()} != items:
            raise FixableError(f"{path} has other items than {suite.name}")
    return file.models


def published_standing(results: EvaluationResults, suite: Suite) -> PublishedStanding:
    """Measure one evaluation, and what its publishers said of it; raises as `standing` does."""
    own = standing(results, suite)
    samples = [
        s for s in results.samples if any(STORED_SCORE in r.other for r in s.scored)
    ]
    return PublishedStanding(
        model=own.model,
        tokens=None,  # publishers don't say
        items=own.items,
        published={
            task: means(of_task)
            for task, of_task in sorted(
                group_by(lambda sample: sample.task, samples).items()
            )
        },
    )


def means(samples: Sequence[StoredGroup]) -> tuple[float, float, float]:
    """Return the mean published score, the mean score here and the solved share."""
    rollouts = [
        r for sample in samples for r in sample.scored if STORED_SCORE in r.other
    ]
    return (
        round(fmean(rollout.other[STORED_SCORE] for rollout in rollouts), 6),
        round(fmean(rollout.raw_score or 0.0 for rollout in rollouts), 6),
        round(fmean(rollout.solved for rollout in rollouts), 6),
    )


def floors_of(suite: Suite) -> dict[str, float]:
    """Return the floors of a suite's tasks: the package's, or those measured for its levels."""
    measured: dict[str, dict[str, float]] = json.loads(
        FLOORS.read_text(encoding="utf-8")
    )
    return measured.get(suite.name, {}) or suite_floors(suite)


def published_table(standings: Sequence[PublishedStanding], suite: Suite) -> str:
    """Return the table in Markdown, with what is stated or was published of any of its models.

    Means of what was published are over the tasks with a weight, too.
    """
    weighed, _ = common_items(standings)
    known = {
        each.model: [fmean(own[task][n] for task in weighed) for n in range(3)]
        for each in standings
        if weighed.keys() <= (own := each.published).keys()
    }

    stated = {each.model: each.stated for each in standings if each.stated}

    def more(each: Standing) -> dict[str, str]:
        return {
            **(_stated_cells(stated.get(each.model)) if stated else {}),
            **(_published_cells(known.get(each.model)) if known else {}),
        }

    return leaderboard_table(
        standings,
        known_categories(),
        floors_of(suite),
        more,
        trained=trained_questions(suite),
    )


def _stated_cells(stated: Statement | None) -> dict[str, str]:
    if stated is None:
        return dict.fromkeys(("temperature", "training"), "")
    temperature = stated.eval_temperature
    return {
        "temperature": "its own" if temperature is None else f"{temperature:g}",
        "training": stated.training,
    }


def _published_cells(means_of_model: Sequence[float] | None) -> dict[str, str]:
    if means_of_model is None:
        return dict.fromkeys(
            ("score as published", "score here", "solved with faulty items"), ""
        )
    published, score, solved = means_of_model
    return {
        "score as published": f"{published:.3f}",
        "score here": f"{score:.3f}",
        "solved with faulty items": f"{solved:.1%}",
    }
