"""Comparison of evaluations: of two, paired by item, and of many as a suite's leaderboard."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from html import escape
from statistics import fmean
from typing import Annotated, Any

import msgspec

from ..errors import FixableError
from ..problems.suites import Suite
from ..records import recipe_key
from ..storage.rows import StoredGroup, StoredRollout
from ..tasks.facts import PAYS_ANY_ANSWER, floors
from ..util.values import group_by, table
from .estimators import (
    Clusters,
    Estimate,
    discoveries,
    macro_share,
    mean_difference,
    sign_flip_p,
)
from .metrics import MAX_TASKS, Coverage
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
        coverage = {name: counts._asdict() for name, counts in self.coverage.items()}
        tasks = {task: change.to_json() for task, change in self.tasks.items()}
        return {
            "by_items": self.by_items.to_json(),
            "by_tasks": self.by_tasks.to_json(),
            "score": self.score.to_json(),
            "only_before": self.only_before,
            "only_after": self.only_after,
            "unscored": self.unscored,
            "coverage": coverage,
            "tasks": tasks,
        }


def compare(
    before: Iterable[StoredGroup], after: Iterable[StoredGroup]
) -> Comparison | None:
    """Pair two evaluations; None when no item is scored in both.

    A task changed beyond noise if its randomization test is significant at a false discovery rate
    of 5 % over all tasks. Its 95 % interval is not corrected for the other tasks.
    """
    one = {sample.item_key: sample for sample in before}
    other = {sample.item_key: sample for sample in after}
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
    changed_tasks = discoveries(p_values)
    return Comparison(
        by_items=_by_items(solved),
        by_tasks=Change(
            items=len(solved),
            before=fmean(change.before for change in changes.values()),
            after=fmean(change.after for change in changes.values()),
            difference=mean_difference(*differences.values()),
        ),
        score=_by_items(scores),
        tasks={
            task: replace(
                change, p_value=p_values[task], beyond_noise=task in changed_tasks
            )
            for task, change in changes.items()
        },
        only_before=len(one) - len(common),
        only_after=len(other) - len(common),
        unscored=len(common) - len(scored),
        coverage={
            "before": Coverage.of(one.values()),
            "after": Coverage.of(other.values()),
        },
    )


def _pair(
    before: StoredGroup, after: StoredGroup, value: Callable[[StoredRollout], float]
) -> Pair:
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
    return table(list(_table_rows(comparison)))


def _table_rows(comparison: Comparison) -> Iterator[Sequence[str]]:
    ranked = sorted(
        comparison.tasks.items(), key=lambda entry: entry[1].difference.value
    )
    beyond = [(task, change) for task, change in ranked if change.beyond_noise]
    within = [(task, change) for task, change in ranked if not change.beyond_noise]
    for name, coverage in comparison.coverage.items():
        if coverage.missing:
            yield f"INCOMPLETE: {name} stands on {coverage}"
    yield ["", "items", "before", "after", "change", "95 %"]
    yield _row("solved, mean over items", comparison.by_items)
    yield _row("solved, mean over tasks", comparison.by_tasks)
    yield _row("score, mean over items", comparison.score)
    yield ""
    if all(change.items < MIN_ITEMS for _, change in ranked):
        yield (
            f"too few items per task for a test (at least {MIN_ITEMS}): evaluate both with a "
            "higher --limit (--env.num_eval_samples_per_task)"
        )
    else:
        yield f"{len(beyond)} of {len(ranked)} tasks changed beyond noise (solved)"
        yield from (_row(f"  {task}", change) for task, change in beyond)
        yield from ("", "within noise") if within else ()
    listed = within
    if len(within) > 2 * MAX_TASKS:
        by_size = sorted(within, key=lambda entry: abs(entry[1].difference.value))
        largest = by_size[-2 * MAX_TASKS :]
        listed = [
            entry for entry in within if entry in largest and entry[1].difference.value
        ]
    yield from (_row(f"  {task}", change) for task, change in listed)
    unlisted = len(within) - len(listed)
    if unlisted:
        less = "with a smaller change or none" if listed else "without a change"
        yield f"  {unlisted} tasks {less}; --json has all"
    yield ""
    yield (
        "Beyond noise: paired randomization test at a false discovery rate of 5 % over all tasks "
        "(Benjamini-Hochberg). It needs at least 6 items of a task, better 10 to 20. Each interval "
        "is its own row's 95 %: among many tasks, some exclude 0 by chance."
    )
    yield (
        f"Excluded: {comparison.only_before} items only before, {comparison.only_after} only "
        f"after, {comparison.unscored} unscored in one."
    )


def _row(title: str, change: Change) -> list[str]:
    difference = change.difference
    by, low, high = (
        f"{part * 100:+.1f}"
        for part in (difference.value, difference.low, difference.high)
    )
    shares = (f"{change.before:.1%}", f"{change.after:.1%}")
    return [title, str(change.items), *shares, by, f"{low} to {high}"]


LEAST_ITEMS = 20
"""Items that give a task a weight and a category a column in a leaderboard."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Standing:
    """One evaluation on a suite.

    Attributes:
        tokens: the limit of prompt and completion; None where it is unknown.
        items: by task, "right/scored" attempts of each item in the order of the suite.
    """

    model: str
    tokens: int | None
    items: Mapping[str, Annotated[str, msgspec.Meta(pattern=r"^\d+/\d+( \d+/\d+)*$")]]

    def attempts(self, task: str) -> list[list[float]]:
        """Return 1.0 for each right and 0.0 for each wrong scored attempt, by item."""
        counts = [map(int, item.split("/")) for item in self.items[task].split()]
        return [[1.0] * right + [0.0] * (scored - right) for right, scored in counts]


def standing(results: EvaluationResults, suite: Suite) -> Standing:
    """Count right answers; FixableError if the suite is another or too many items are missing."""
    made_on = results.settings.get("suite")
    if made_on != suite.identity:
        raise FixableError(
            f"{results.path} was made on {made_on or 'no suite'}, not on {suite.name}@"
            f"{suite.version}: run `evaluate --suite {suite.name}`, or name an earlier version, "
            f"such as {suite.name}@1"
        )
    by_recipe = {recipe_key(sample.recipe): sample.scored for sample in results.samples}
    items: defaultdict[str, list[str]] = defaultdict(list)
    missing = 0
    for recipe, _ in suite.recipes():
        scored = by_recipe.get(recipe_key(recipe), [])
        missing += not scored
        items[recipe.task].append(
            f"{sum(rollout.solved for rollout in scored)}/{len(scored)}"
        )
    if missing > 0.02 * len(suite) and "imported" not in results.settings:
        raise FixableError(
            f"{results.path}: {missing} of the {len(suite)} items of {suite.name} have no score; "
            "repeat the command to complete it"
        )
    return Standing(
        model=str(results.settings.get("model_name", results.path.name)),
        tokens=results.settings.get("max_token_length"),
        items={task: " ".join(own) for task, own in sorted(items.items())},
    )


def encode_standings(suite: Suite, standings: Sequence[Standing]) -> str:
    """Return standings as JSON."""
    file = {"suite": suite.identity, "models": msgspec.to_builtins(standings)}
    return json.dumps(file, indent=1)


def suite_floors(suite: Suite) -> dict[str, float]:
    """Return the higher floor of each task; none but for default items, where both are measured."""
    measured = (
        floors() if all(recipe.is_default for recipe, _ in suite.recipes()) else {}
    )
    return {
        task: max(floor.chance.solved, floor.no_reasoning.solved)
        for task, floor in measured.items()
    }


def common_items(
    standings: Sequence[Standing],
) -> tuple[dict[str, list[Clusters]], dict[str, int]]:
    """Return each standing's attempts at the items that all have scored, by task with a weight.

    A task has one from LEAST_ITEMS such items on, or if no task of the suite has as many. Of the
    others, the number of items is returned. A task that pays any answer doesn't count at all.
    """
    is_small = all(
        len(items.split()) < LEAST_ITEMS for items in standings[0].items.values()
    )
    least_items = 1 if is_small else LEAST_ITEMS
    common: dict[str, list[Clusters]] = {}
    too_few: dict[str, int] = {}
    for task in standings[0].items:
        if task in PAYS_ANY_ANSWER:
            continue
        # One row an item, with the attempts of each standing; [] without a score.
        items = zip(*(standing.attempts(task) for standing in standings), strict=True)
        scored_by_all = [attempts for attempts in items if all(attempts)]
        if len(scored_by_all) >= least_items:
            common[task] = list(zip(*scored_by_all, strict=True))
        else:
            too_few[task] = len(scored_by_all)
    if not common:
        raise FixableError(
            f"no task has {LEAST_ITEMS} items that all evaluations have scored"
        )
    return common, too_few


def rank(common: Iterable[Sequence[Clusters]]) -> list[tuple[int, int, Estimate]]:
    """Return each standing's rank, its place in the tasks' attempts and its share; the best first.

    Every task has equal weight. A rank is one more than the number of models that a paired test
    finds better.
    """
    by_model = list(zip(*common, strict=True))
    means = [[_item_means(task) for task in tasks] for tasks in by_model]

    def is_better(model: int, other: int) -> bool:
        pairs_of_tasks = map(zip, means[other], means[model])
        return mean_difference(*map(_differences, pairs_of_tasks)).low > 0

    models = range(len(by_model))
    ranked = []
    for model in models:
        better_models = sum(is_better(other, model) for other in models)
        ranked.append((1 + better_models, model, macro_share(by_model[model])))
    return sorted(ranked, key=lambda row: (row[0], -row[2].value))


def _item_means(task: Clusters) -> list[float]:
    return [fmean(attempts) for attempts in task]


def leaderboard_table(
    standings: Sequence[Standing],
    categories: Mapping[str, str],
    floor_of: Mapping[str, float],
    more: Callable[[Standing], Mapping[str, str]] = lambda standing: {},
) -> str:
    """Return the table of standings on one suite in Markdown.

    Args:
        categories, floor_of: by task, for its items in the suite.
        more: gives a row's further cells.
    """
    common, too_few = common_items(standings)
    counts = {task: len(of_all[0]) for task, of_all in common.items()}
    floor = (
        fmean(floor_of[task] for task in common)
        if common.keys() <= floor_of.keys()
        else None
    )
    columns = {
        f"{name} ({items:,})": tasks_of_category
        for name, tasks_of_category in sorted(
            group_by(lambda t: categories.get(t, "other"), common).items()
        )
        if (items := sum(counts[task] for task in tasks_of_category)) >= LEAST_ITEMS
    }
    rows = []
    for place, number, solved in rank(common.values()):
        each = standings[number]
        of_task = {task: of_all[number] for task, of_all in common.items()}
        row = {
            "rank": str(place),
            "model": escape(each.model).replace("|", "&#124;"),
            f"solved ({sum(counts.values()):,})": f"{solved.value:.1%}",
            "95 %": f"{solved.low:.1%} to {solved.high:.1%}",
            "above chance": "" if floor is None else f"{solved.value - floor:.1%}",
            "tokens": "" if each.tokens is None else str(each.tokens),
            **more(each),
        }
        for head, tasks_of_category in columns.items():
            row[head] = (
                f"{macro_share([of_task[task] for task in tasks_of_category]).value:.1%}"
            )
        rows.append(row)
    lines = [" | ".join(rows[0]), " | ".join("---" for _ in rows[0])]
    lines += [" | ".join(row.values()) for row in rows]
    legend = (
        f"In brackets: items, the same for all models. {len(common)} tasks weigh alike."
    )
    if too_few:
        fewer = ", ".join(f"`{task}` {count}" for task, count in too_few.items())
        legend += (
            f" Fewer than {LEAST_ITEMS} items of all models, and so no weight: {fewer}."
        )
    return "\n".join([*(f"| {line} |" for line in lines), "", legend])
