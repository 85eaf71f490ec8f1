"""Comparison of evaluations: of two, paired by item, and of many as a suite's leaderboard."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from html import escape
from statistics import fmean
from typing import Any

import msgspec

from ..errors import FixableError
from ..problems.suites import Suite
from ..records import recipe_key
from ..storage.rows import StoredGroup, StoredRollout
from ..util.values import group_by
from .estimators import (
    Estimate,
    discoveries,
    macro_difference,
    macro_share,
    mean_difference,
    sign_flip_p,
)
from .metrics import MAX_TASKS, Baselines, Coverage
from .store import EvaluationResults

MIN_ITEMS = 6
"""Items of a task that a test at 5 % needs: of 5, 2 of 32 patterns of signs are as extreme."""

Pair = tuple[float, float]
"""One item's means over the scored attempts of the evaluation before and of the one after."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Change:
    """The change of a mean between two evaluations, over the items in both.

    Attributes:
        difference: `after - before`, with its interval.
        beyond_noise: whether the change is significant among all tasks; None if not tested.
    """

    items: int
    before: float
    after: float
    difference: Estimate
    p_value: float | None = None
    beyond_noise: bool | None = None

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "difference": self.difference._asdict()}


@dataclass(frozen=True, kw_only=True, slots=True)
class Comparison:
    """The solved shares of two evaluations, paired.

    Attributes:
        by_items, by_tasks: overall, with equal weights of items or of tasks.
        score: the mean score, by items.
        only_before, only_after: number of items that the other evaluation lacks.
        unscored: number of items in both without a scored attempt in one.
        coverage: of each evaluation, "before" and "after".
    """

    by_items: Change
    by_tasks: Change
    score: Change
    tasks: Mapping[str, Change]
    only_before: int
    only_after: int
    unscored: int
    coverage: Mapping[str, Coverage]

    def to_json(self) -> dict[str, Any]:
        changes = {
            name: getattr(self, name).to_json() for name in ("by_items", "by_tasks", "score")
        }
        counts = {n: getattr(self, n) for n in ("only_before", "only_after", "unscored")}
        counts |= {"coverage": {name: own._asdict() for name, own in self.coverage.items()}}
        return {**changes, **counts, "tasks": {t: c.to_json() for t, c in self.tasks.items()}}


def compare(before: Iterable[StoredGroup], after: Iterable[StoredGroup]) -> Comparison | None:
    """Pair two evaluations; None when no item is scored in both.

    A task changed beyond noise if its randomization test is significant at a false discovery rate
    of 5 % over all tasks. Its 95 % interval is not corrected for the other tasks.
    """
    one, other = ({sample.item_key: sample for sample in samples} for samples in (before, after))
    common = [(one[key], other[key]) for key in one if key in other]
    scored = [(a, b) for a, b in common if a.scored and b.scored]
    if not scored:
        return None
    solved = [_pair(*both, lambda rollout: float(rollout.solved)) for both in scored]
    scores = [_pair(*both, lambda rollout: rollout.raw_score or 0.0) for both in scored]
    by_task = group_by(lambda item: item[0][0].task, zip(scored, solved, strict=True))
    tasks = {task: [pair for _, pair in own] for task, own in sorted(by_task.items())}
    differences = {task: _differences(pairs) for task, pairs in tasks.items()}
    changes = {task: _by_items(pairs) for task, pairs in tasks.items()}
    p_values = {task: sign_flip_p(own) for task, own in differences.items()}
    found = discoveries(p_values)
    return Comparison(
        by_items=_by_items(solved),
        by_tasks=Change(
            items=len(solved),
            before=fmean(change.before for change in changes.values()),
            after=fmean(change.after for change in changes.values()),
            difference=macro_difference(list(differences.values())),
        ),
        score=_by_items(scores),
        tasks={
            task: replace(change, p_value=p_values[task], beyond_noise=task in found)
            for task, change in changes.items()
        },
        only_before=len(one) - len(common),
        only_after=len(other) - len(common),
        unscored=len(common) - len(scored),
        coverage={"before": Coverage.of(one.values()), "after": Coverage.of(other.values())},
    )


def _pair(before: StoredGroup, after: StoredGroup, value: Callable[[StoredRollout], float]) -> Pair:
    return fmean(map(value, before.scored)), fmean(map(value, after.scored))


def _differences(pairs: Iterable[Pair]) -> list[float]:
    return [after - before for before, after in pairs]


def _by_items(pairs: Sequence[Pair]) -> Change:
    return Change(
        items=len(pairs),
        before=fmean(before for before, _ in pairs),
        after=fmean(after for _, after in pairs),
        difference=mean_difference(_differences(pairs)),
    )


def comparison_table(comparison: Comparison) -> str:
    """Return the overall changes, then those of tasks: beyond noise first, from loss to gain.

    Of the others, only the largest changes are shown.
    """
    return "\n".join(_table_lines(comparison))


def _table_lines(comparison: Comparison) -> Iterator[str]:
    ranked = sorted(comparison.tasks.items(), key=lambda entry: entry[1].difference.value)
    beyond = [(task, change) for task, change in ranked if change.beyond_noise]
    within = [(task, change) for task, change in ranked if not change.beyond_noise]
    for name, coverage in comparison.coverage.items():
        if coverage.missing:
            yield f"INCOMPLETE: {name} stands on {coverage}"
    yield f"{'':32} {'items':>6} {'before':>8} {'after':>8} {'change':>8}  {'95 %':>15}"
    yield _row("solved, mean over items", comparison.by_items)
    yield _row("solved, mean over tasks", comparison.by_tasks)
    yield _row("score, mean over items", comparison.score)
    yield ""
    if all(change.items < MIN_ITEMS for _, change in ranked):
        yield (
            f"too few items per task for a test (at least {MIN_ITEMS}): evaluate both with a "
            "higher --env.num_eval_samples_per_task"
        )
    else:
        yield f"{len(beyond)} of {len(ranked)} tasks changed beyond noise (solved)"
        yield from (_row(f"  {task}", change) for task, change in beyond)
        yield from ("", "within noise") if within else ()
    listed = within
    if len(within) > 2 * MAX_TASKS:
        by_size = sorted(within, key=lambda entry: abs(entry[1].difference.value))
        largest = by_size[-2 * MAX_TASKS :]
        listed = [entry for entry in within if entry in largest and entry[1].difference.value]
    yield from (_row(f"  {task}", change) for task, change in listed)
    if left := len(within) - len(listed):
        less = "with a smaller change or none" if listed else "without a change"
        yield f"  {left} tasks {less}; --json has all"
    yield ""
    yield "Beyond noise: paired randomization test at a false discovery rate of 5 % over all tasks"
    yield "(Benjamini-Hochberg). It needs at least 6 items of a task, better 10 to 20."
    yield "Each interval is its own row's 95 %: among many tasks, some exclude 0 by chance."
    yield (
        f"Excluded: {comparison.only_before} items only before, {comparison.only_after} only "
        f"after, {comparison.unscored} unscored in one."
    )


def _row(title: str, change: Change) -> str:
    difference = change.difference
    interval = f"{difference.low * 100:+.1f} to {difference.high * 100:+.1f}"
    return (
        f"{title:32} {change.items:>6} {change.before:>8.1%} {change.after:>8.1%} "
        f"{difference.value * 100:>+8.1f}  {interval:>15}"
    )


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
    """Measure an evaluation; FixableError if it is of another suite or lacks too many items."""
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
    """Return the table in Markdown, the best model first; `more` gives a row's further cells."""

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
