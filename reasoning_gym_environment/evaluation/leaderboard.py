"""The leaderboard of a suite: solved shares of several evaluations, with intervals and ranks."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from statistics import fmean

import msgspec

from ..errors import FixableError
from ..problems.suites import Suite
from ..records import recipe_key
from ..util.grouping import group_by
from .estimators import Estimate, macro_share
from .metrics import Baselines
from .store import EvaluationResults


@dataclass(frozen=True, kw_only=True, slots=True)
class Standing:
    """One evaluation on a suite; every task has equal weight.

    Attributes:
        tokens: the limit of prompt and completion; None where it is unknown.
        items: those with a score, and without a fault.
        solved, score: of these.
        above_chance: the solved share less the floors of its tasks; None where none was measured.
        categories, tasks: solved shares by name.
    """

    model: str
    tokens: int | None
    items: int
    solved: Estimate
    score: Estimate
    above_chance: float | None
    categories: Mapping[str, Estimate]
    tasks: Mapping[str, Estimate]


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
    missing = len(suite) - len(clean)
    if missing > 0.02 * len(suite) and "imported" not in results.settings:
        raise FixableError(
            f"{results.path}: {missing} of the {len(suite)} items of {suite.name} have no score; "
            "repeat the command to complete it"
        )
    tasks = group_by(lambda sample: sample.task, clean)
    categories = group_by(lambda task: baselines.categories.get(task, "other"), sorted(tasks))
    solved = {
        task: [[float(rollout.solved) for rollout in sample.scored] for sample in own]
        for task, own in sorted(tasks.items())
    }
    scores = [
        [[rollout.raw_score or 0.0 for rollout in sample.scored] for sample in own]
        for own in tasks.values()
    ]
    # Floors are measured at the default configuration alone.
    has_floors = all(
        not own[0].recipe.parameters and task in baselines.floors for task, own in tasks.items()
    )
    overall = macro_share(list(solved.values()))
    above_chance = None
    if tasks and has_floors:
        above_chance = overall.value - fmean(
            max(baselines.floors[task], baselines.no_reasoning_floors[task]) for task in tasks
        )
    return Standing(
        model=str(results.settings.get("model_name", results.path.name)),
        tokens=results.settings.get("max_token_length"),
        items=len(clean),
        solved=overall,
        score=macro_share(scores),
        above_chance=above_chance,
        categories={
            name: macro_share([solved[task] for task in own])
            for name, own in sorted(categories.items())
        },
        tasks={task: macro_share([own]) for task, own in solved.items()},
    )


def encode_standings(suite: Suite, standings: Sequence[Standing]) -> str:
    """Return standings as JSON, their shares with six digits."""
    rounded = json.loads(
        json.dumps(msgspec.to_builtins(standings)), parse_float=lambda text: round(float(text), 6)
    )
    return json.dumps({"suite": suite.identity, "models": rounded}, indent=1)


def leaderboard_table(
    standings: Sequence[Standing],
    more: Callable[[Standing], Mapping[str, str]] = lambda standing: {},
) -> str:
    """Return the table in Markdown: a row for each model, the best first; shares in percent.

    Args:
        more: further cells of a row, by column.
    """

    def percent(share: Estimate | None) -> str:
        return "" if share is None else f"{share.value:.1%}"

    categories = sorted({name for each in standings for name in each.categories})
    rows = [
        {
            "rank": str(rank),
            "model": escape(each.model).replace("|", "&#124;"),
            "items": str(each.items),
            "solved": percent(each.solved),
            "95 %": f"{each.solved.low:.1%} to {each.solved.high:.1%}",
            "above chance": "" if each.above_chance is None else f"{each.above_chance:.1%}",
            "score": f"{each.score.value:.3f}",
            "tokens": "" if each.tokens is None else str(each.tokens),
            **more(each),
            **{name: percent(each.categories.get(name)) for name in categories},
        }
        for rank, each in enumerate(sorted(standings, key=lambda s: -s.solved.value), 1)
    ]
    head = [" | ".join(rows[0]), " | ".join("---" for _ in rows[0])]
    return "\n".join(f"| {line} |" for line in [*head, *(" | ".join(r.values()) for r in rows)])
