"""Comparison of many evaluations: a suite's leaderboard."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from html import escape
from statistics import fmean
from types import MappingProxyType
from typing import Annotated

import msgspec

from ..errors import FixableError
from ..problems.suites import Suite, earlier_file
from ..records import recipe_key
from ..storage.rows import StoredRollout
from ..tasks.facts import PAYS_ANY_ANSWER, floors, has_few_questions
from ..util.values import group_by
from .estimators import Clusters, Estimate, macro_share, mean_difference
from .store import EvaluationResults

LEAST_ITEMS = 20
"""Items that give a task a weight and a category a column in a leaderboard."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Standing:
    """One evaluation on a suite.

    Attributes:
        tokens: the limit of prompt and completion; None where it is unknown.
        items: by task, "right/scored" attempts of each question in the order of the suite.
    """

    model: str
    tokens: int | None
    items: Mapping[str, Annotated[str, msgspec.Meta(pattern=r"^\d+/\d+( \d+/\d+)*$")]]

    def attempts(self, task: str) -> list[list[float]]:
        """Return 1.0 for each right and 0.0 for each wrong scored attempt, by question."""
        counts = [map(int, item.split("/")) for item in self.items[task].split()]
        return [[1.0] * right + [0.0] * (scored - right) for right, scored in counts]


def standing(results: EvaluationResults, suite: Suite) -> Standing:
    """Count right answers; FixableError if the suite is another or too many items are missing."""
    _require_made_on(suite, results)
    by_recipe = {recipe_key(sample.recipe): sample.scored for sample in results.samples}
    questions: defaultdict[str, defaultdict[str, list[StoredRollout]]]
    questions = defaultdict(lambda: defaultdict(list))
    missing = 0
    for recipe, _, digits in suite.items():
        scored = by_recipe.get(recipe_key(recipe), [])
        missing += not scored
        questions[recipe.task][digits] += scored
    if missing > 0.02 * len(suite) and "imported" not in results.settings:
        raise FixableError(
            f"{results.path}: {missing} of the {len(suite)} items of {suite.name} have no score; "
            "repeat the command to complete it"
        )
    return Standing(
        model=str(results.settings.get("model_name", results.path.name)),
        tokens=results.settings.get("max_token_length"),
        items={
            task: " ".join(
                f"{sum(rollout.solved for rollout in scored)}/{len(scored)}"
                for scored in of_task.values()
            )
            for task, of_task in sorted(questions.items())
        },
    )


def _require_made_on(suite: Suite, results: EvaluationResults) -> None:
    """Raise FixableError if an evaluation is of another suite or version, or not by its rules."""
    made_on = results.settings.get("suite")
    answer_format = results.settings.get("answer_format", "tags")
    if answer_format != "tags":
        raise FixableError(
            f"{results.path}: answer_format must be tags on a suite, got {answer_format!r}: "
            "`rescore` it without --env.answer_format"
        )
    if made_on == suite.identity:
        return
    remedy = f"run `evaluate --suite {suite.name}`"
    if isinstance(made_on, dict):
        file = earlier_file(made_on.get("name"), made_on.get("version"))
        if file is not None:
            remedy += f", or give the results' suite, {file} in the repository"
    raise FixableError(
        f"{results.path} was made on {made_on or 'no suite'}, not on {suite.name}@"
        f"{suite.version}: {remedy}"
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


def trained_questions(suite: Suite) -> dict[str, list[bool]]:
    """Return by task, for each question in the order of the suite, whether training asks it too."""
    trained: defaultdict[str, dict[str, bool]] = defaultdict(dict)
    for recipe, _, digits in suite.items():
        of_task = trained[recipe.task]
        asked_elsewhere = of_task.get(digits, False)
        of_task[digits] = asked_elsewhere or bool(has_few_questions(recipe))
    return {task: [*of_task.values()] for task, of_task in trained.items()}


def _without(standing: Standing, left_out: Mapping[str, Sequence[bool]]) -> Standing:
    """Return a standing without any score of the questions that are left out."""
    items = dict(standing.items)
    for task, is_left_out in left_out.items():
        kept = [
            "0/0" if without else item
            for item, without in zip(items[task].split(), is_left_out, strict=True)
        ]
        items[task] = " ".join(kept)
    return replace(standing, items=items)


def _scored_by_all(
    standings: Sequence[Standing], task: str
) -> list[tuple[list[float], ...]]:
    """Return each item's attempts of all standings, of the items that all have scored."""
    items = zip(*(standing.attempts(task) for standing in standings), strict=True)
    return [attempts for attempts in items if all(attempts)]


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
        scored_by_all = _scored_by_all(standings, task)
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

    def is_better(model: int, rival: int) -> bool:
        differences = [
            [mine - theirs for theirs, mine in zip(*task, strict=True)]
            for task in zip(means[rival], means[model], strict=True)
        ]
        return mean_difference(*differences).low > 0

    models = range(len(by_model))
    ranked = []
    for model in models:
        better_models = sum(is_better(rival, model) for rival in models)
        ranked.append((1 + better_models, model, macro_share(by_model[model])))
    return sorted(ranked, key=lambda row: (row[0], -row[2].value))


def _item_means(task: Clusters) -> list[float]:
    return [fmean(attempts) for attempts in task]


def leaderboard_table(
    standings: Sequence[Standing],
    categories: Mapping[str, str],
    floor_of: Mapping[str, float],
    more: Callable[[Standing], Mapping[str, str]] = lambda standing: {},
    *,
    trained: Mapping[str, Sequence[bool]] = MappingProxyType({}),
) -> str:
    """Return the table of standings on one suite in Markdown.

    Args:
        categories, floor_of: by task, for its items in the suite.
        trained: as `trained_questions` returns it.
        more: gives a row's further cells.
    """
    common, too_few = common_items(standings)
    counts = {task: len(of_all[0]) for task, of_all in common.items()}
    untrained_standings = [_without(each, trained) for each in standings]
    without_trained: dict[str, list[Clusters]] = {}
    trained_counts: dict[str, int] = {}
    for task, count in counts.items():
        untrained = _scored_by_all(untrained_standings, task)
        if untrained:
            without_trained[task] = list(zip(*untrained, strict=True))
        if len(untrained) < count:
            trained_counts[task] = count - len(untrained)
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
        model_standing = standings[number]
        of_task = {task: of_all[number] for task, of_all in common.items()}
        row = {
            "rank": str(place),
            "model": escape(model_standing.model).replace("|", "&#124;"),
            f"solved ({sum(counts.values()):,})": f"{solved.value:.1%}",
            "95 %": f"{solved.low:.1%} to {solved.high:.1%}",
        }
        if trained_counts and without_trained:
            of_rest = [of_all[number] for of_all in without_trained.values()]
            items = sum(counts.values()) - sum(trained_counts.values())
            row[f"without trained ({items:,})"] = f"{macro_share(of_rest).value:.1%}"
        row |= {
            "above chance": "" if floor is None else f"{solved.value - floor:.1%}",
            "tokens": ""
            if model_standing.tokens is None
            else str(model_standing.tokens),
            **more(model_standing),
        }
        for head, tasks_of_category in columns.items():
            row[head] = (
                f"{macro_share([of_task[task] for task in tasks_of_category]).value:.1%}"
            )
        rows.append(row)
    lines = [" | ".join(rows[0]), " | ".join("---" for _ in rows[0])]
    lines += [" | ".join(row.values()) for row in rows]
    legend = _legend(len(common), too_few, trained_counts)
    return "\n".join([*(f"| {line} |" for line in lines), "", legend])


def _legend(
    tasks: int, too_few: Mapping[str, int], trained_counts: Mapping[str, int]
) -> str:
    """Return what stands below a table; of tasks that are named, the number of items."""
    sentences = [
        f"In brackets: items, the same for all models. {tasks} tasks weigh alike."
    ]
    for about, counts in (
        (f"Fewer than {LEAST_ITEMS} items of all models, and so no weight", too_few),
        (
            "Training asks these, too, as their levels have few questions",
            trained_counts,
        ),
    ):
        if counts:
            named = ", ".join(f"`{task}` {count}" for task, count in counts.items())
            sentences.append(f"{about}: {named}.")
    return " ".join(sentences)
