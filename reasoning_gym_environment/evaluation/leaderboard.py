"""The leaderboard of a suite: solved shares of several evaluations, with intervals and ranks."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from statistics import fmean

import msgspec
from msgspec import Struct

from ..errors import FixableError
from ..problems.suites import Suite
from ..records import recipe_key
from ..storage.rows import StoredGroup, StoredRollout
from ..util.grouping import group_by
from ..util.models import validate
from .estimators import Clusters, Estimate, macro_share
from .metrics import Baselines
from .published import STORED_SCORE
from .store import EvaluationResults

TOO_MANY_MISSING = 0.02
"""The share of a suite's items that an evaluation may lack or not have scored."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Standing:
    """One evaluation on a suite; every task has equal weight.

    Attributes:
        tokens: the limit of prompt and completion; None where it is unknown.
        items: those with a score, and without a fault.
        solved, score: of these.
        above_chance: the solved share less the floors of its tasks; None where none was measured.
        categories, tasks: solved shares by name.
        published: the mean score that its publishers gave, over all their items; None without any.
        rescored: the mean score of the same items by this package.
        solved_with_faulty: the solved share of the same items.
    """

    model: str
    tokens: int | None
    items: int
    solved: Estimate
    score: Estimate
    above_chance: float | None
    categories: Mapping[str, Estimate]
    tasks: Mapping[str, Estimate]
    published: float | None
    rescored: float
    solved_with_faulty: float


class StandingsFile(Struct, frozen=True, forbid_unknown_fields=True):
    """Standings on one suite, as `suite table --json` writes them."""

    suite: dict[str, str | int]
    models: list[Standing]


def read_standings(path: Path, suite: Suite) -> list[Standing]:
    """Read a file of standings.

    Raises:
        FixableError: it is invalid, or of another suite.
    """
    try:
        file = validate(json.loads(path.read_bytes()), StandingsFile)
    except (OSError, ValueError, RecursionError) as error:
        raise FixableError(f"{path} is not a file of `suite table --json`: {error}") from None
    if file.suite != suite.identity:
        raise FixableError(f"{path} is of the suite {file.suite}, not of {suite.identity}")
    return file.models


def encode_standings(suite: Suite, standings: Sequence[Standing]) -> str:
    """Return the JSON that `read_standings` reads, its shares with six digits."""
    rounded = json.loads(
        json.dumps(msgspec.to_builtins(standings)), parse_float=lambda text: round(float(text), 6)
    )
    return json.dumps({"suite": suite.identity, "models": rounded}, indent=1)


def standing(results: EvaluationResults, suite: Suite, baselines: Baselines) -> Standing:
    """Measure one evaluation.

    Args:
        baselines: categories, and floors at the default configuration.

    Raises:
        FixableError: it is of another suite, or too many items are missing.
    """
    made_on = results.settings.get("suite")
    if made_on != suite.identity:
        raise FixableError(
            f"{results.path} was made on {made_on or 'no suite'}, not on {suite.identity}: run "
            f"`evaluate --suite {suite.name}`"
        )
    of_suite = {recipe_key(recipe) for recipe, _ in suite.recipes()}
    clean = [s for s in results.samples if recipe_key(s.recipe) in of_suite and s.scored]
    missing, is_imported = len(suite) - len(clean), "imported" in results.settings
    if missing > TOO_MANY_MISSING * len(suite) and not is_imported:
        raise FixableError(
            f"{results.path}: {missing} of the {len(suite)} items of {suite.name} have no score; "
            "repeat the command to complete it"
        )
    tasks = group_by(lambda sample: sample.task, clean)
    categories = group_by(lambda task: baselines.categories.get(task, "other"), sorted(tasks))
    solved = {task: _solved(own) for task, own in sorted(tasks.items())}
    everything = list(group_by(lambda sample: sample.task, results.samples).values())
    floor = _floor((own[0] for own in tasks.values()), baselines)
    overall = macro_share(list(solved.values()))
    return Standing(
        model=str(results.settings.get("model_name", results.path.name)),
        tokens=None if is_imported else results.settings.get("max_token_length"),
        items=len(clean),
        solved=overall,
        score=macro_share([_scores(own) for own in tasks.values()]),
        above_chance=None if floor is None else overall.value - floor,
        categories={
            name: macro_share([solved[task] for task in own])
            for name, own in sorted(categories.items())
        },
        tasks={task: macro_share([own]) for task, own in solved.items()},
        published=_macro(everything, lambda rollout: rollout.other.get(STORED_SCORE)),
        rescored=_macro(everything, lambda rollout: rollout.raw_score) or 0.0,
        solved_with_faulty=_macro(everything, lambda rollout: float(rollout.solved)) or 0.0,
    )


def _solved(samples: Iterable[StoredGroup]) -> Clusters:
    return [[float(rollout.solved) for rollout in sample.scored] for sample in samples]


def _scores(samples: Iterable[StoredGroup]) -> Clusters:
    return [[rollout.raw_score or 0.0 for rollout in sample.scored] for sample in samples]


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


def _floor(samples: Iterable[StoredGroup], baselines: Baselines) -> float | None:
    """Return the mean floor of the tasks; None where one was measured with other parameters."""
    floors = []
    for sample in samples:
        if sample.recipe.parameters or sample.task not in baselines.floors:
            return None
        floors.append(
            max(baselines.floors[sample.task], baselines.no_reasoning_floors[sample.task])
        )
    return fmean(floors) if floors else None


def ranked(standings: Iterable[Standing]) -> list[tuple[int | None, Standing]]:
    """Return standings by solved share, each with its rank by the published score, if any."""
    by_published = sorted(
        (s for s in standings if s.published is not None), key=lambda s: -(s.published or 0)
    )
    ranks = {s.model: rank for rank, s in enumerate(by_published, 1)}
    return [(ranks.get(s.model), s) for s in sorted(standings, key=lambda s: -s.solved.value)]


def leaderboard_table(standings: Sequence[Standing]) -> str:
    """Return the table in Markdown: a row for each model, the best first; shares in percent."""
    published = any(each.published is not None for each in standings)
    categories = sorted({name for each in standings for name in each.categories})
    rows = [
        {
            "rank": str(rank),
            "model": escape(each.model).replace("|", "&#124;"),
            **_overall(each),
            **(_as_published(each, before) if published else {}),
            **{name: _percent(each.categories.get(name)) for name in categories},
        }
        for rank, (before, each) in enumerate(ranked(standings), 1)
    ]
    head = [" | ".join(rows[0]), " | ".join("---" for _ in rows[0])]
    return "\n".join(f"| {line} |" for line in [*head, *(" | ".join(r.values()) for r in rows)])


def _overall(each: Standing) -> dict[str, str]:
    return {
        "items": str(each.items),
        "solved": _percent(each.solved),
        "95 %": f"{each.solved.low:.1%} to {each.solved.high:.1%}",
        "above chance": "" if each.above_chance is None else f"{each.above_chance:.1%}",
        "score": f"{each.score.value:.3f}",
        "tokens": "" if each.tokens is None else str(each.tokens),
    }


def _as_published(each: Standing, rank: int | None) -> dict[str, str]:
    """Return the columns on all items of the publishers, faulty ones included."""
    return {
        "rank as published": "" if rank is None else str(rank),
        "score as published": "" if each.published is None else f"{each.published:.3f}",
        "score here": f"{each.rescored:.3f}",
        "solved with faulty items": f"{each.solved_with_faulty:.1%}",
    }


def _percent(share: Estimate | None) -> str:
    return "" if share is None else f"{share.value:.1%}"
