"""Which problems to write for one model: its evaluation gives each task's levels that teach."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from ..problems.expected_signal import Counts
from ..problems.teaching_levels import (
    Groups,
    LevelEstimate,
    LevelMix,
    choose_mix,
    estimate_levels,
    why_none_teaches,
)
from ..records import Ladder, Recipe
from ..storage.rows import StoredGroup
from ..util.values import group_by, table
from .planning import Part


class Chosen(NamedTuple):
    """A task's levels, and what the library's default brings, if that was evaluated."""

    mix: LevelMix
    default: LevelEstimate | None


@dataclass(frozen=True, kw_only=True, slots=True)
class RowsForModel:
    """What to write for a model.

    Attributes:
        chosen: the levels by task.
        left_out: tasks without such a level, by the reason.
        parts: ordered by task and level.
        empty: categories of which no task is left.
    """

    chosen: Mapping[str, Chosen] = field(default_factory=dict)
    left_out: Mapping[str, Sequence[str]] = field(default_factory=dict)
    parts: Sequence[Part] = ()
    empty: Sequence[str] = ()

    def lines(self, group_size: int) -> list[str]:
        """Return a table of what to expect before and after, and why tasks are left out."""
        lines = [
            f"no level teaches, {why}: {', '.join(sorted(tasks))}"
            for why, tasks in sorted(self.left_out.items())
        ]
        if self.empty:
            lines.append(f"no task is left of: {', '.join(self.empty)}")
        if self.chosen:
            lines.append(self._table(group_size))
        return lines

    def _table(self, group_size: int) -> str:
        rows = [
            ["task", "default: solved", "signal", "level", "rows: solved", "signal"]
        ]
        for task, (mix, default) in sorted(self.chosen.items()):
            before = ["-", "-"] if default is None else _percents(default)
            rows.append([task, *before, str(mix), *_percents(mix.expected)])
        sizes = group_by(lambda part: part.recipe.task, self.parts)
        weights = {
            task: sum(part.size for part in parts) for task, parts in sizes.items()
        }
        total = sum(weights.values())
        solved = signal = 0.0
        for task, weight in weights.items():
            expected = self.chosen[task].mix.expected
            solved += weight * expected.solved / total
            signal += weight * expected.signal / total
        overall = (
            f"of all rows the evaluated model solves {solved:.0%}; {signal:.0%} of groups of "
            f"{group_size} have signal"
        )
        return f"{table(rows)}\n{overall}"


def _percents(estimate: LevelEstimate) -> list[str]:
    return [f"{estimate.solved:.0%}", f"{estimate.signal:.0%}"]


def rows_for_model(
    samples: Iterable[StoredGroup],
    ladders: Mapping[str, Ladder],
    categories: Mapping[str, str],
    *,
    target: float,
    count: int,
    group_size: int,
) -> RowsForModel:
    """Choose each evaluated task's levels that teach, and how many problems of each to write.

    A category has `count` problems for each of its evaluated tasks, also if some are left out.

    Args:
        samples: of the evaluation.
        ladders: of the tasks to choose from.
        target: the solved share to aim at.
        group_size: rollouts of the groups that will be trained.
    """
    evaluated = group_by(lambda sample: sample.task, (s for s in samples if s.scored))
    tasks = [task for task in ladders if task in evaluated]
    chosen: dict[str, Chosen] = {}
    left_out: defaultdict[str, list[str]] = defaultdict(list)
    for task in tasks:
        outcome = _choose(evaluated[task], ladders[task], target, group_size)
        if isinstance(outcome, Chosen):
            chosen[task] = outcome
        else:
            left_out[outcome].append(task)
    sizes = shared_out(tasks, categories, kept=chosen, count=count)
    parts: list[Part] = []
    for task, size in sorted(sizes.items()):
        for level, number in chosen[task].mix.counts(size):
            parts.append(Part(recipe_at(level, evaluated[task], ladders[task]), number))
    empty = {categories[task] for task in tasks} - {categories[task] for task in chosen}
    return RowsForModel(
        chosen=chosen,
        left_out=left_out,
        parts=parts,
        empty=sorted(empty),
    )


def _choose(
    samples: Sequence[StoredGroup],
    ladder: Ladder,
    target: float,
    group_size: int,
) -> Chosen | str:
    """Choose the levels of an evaluated task, or say why none teaches."""
    groups = groups_by_level(samples, ladder)
    if not groups:
        return "evaluated at levels of another version"
    estimates = estimate_levels(
        groups,
        len(ladder),
        target=target,
        group_size=group_size,
    )
    why = why_none_teaches(groups, estimates)
    return why or Chosen(choose_mix(estimates, target), estimates.get(None))


def shared_out(
    tasks: Sequence[str],
    categories: Mapping[str, str],
    *,
    kept: Collection[str],
    count: int,
) -> dict[str, int]:
    """Return the number of problems of each task that is kept: `count` for each of its category."""
    sizes = {}
    for of_category in group_by(lambda task: categories[task], tasks).values():
        kept_tasks = [task for task in of_category if task in kept]
        total = count * len(of_category)
        number = len(kept_tasks)
        for n, task in enumerate(kept_tasks):
            sizes[task] = total * (n + 1) // number - total * n // number
    return sizes


def groups_by_level(samples: Sequence[StoredGroup], ladder: Ladder) -> Groups:
    """Return the scored groups of an evaluated task by level.

    Levels that had other parameters when they were evaluated are left out.
    """
    groups: defaultdict[int | None, list[Counts]] = defaultdict(list)
    for sample in samples:
        level = sample.recipe.level
        if level is not None:
            level = int(level)  # a stored one may have a decimal point
            if level >= len(ladder):
                continue
        if sample.recipe.parameters == recipe_at(level, samples, ladder).parameters:
            groups[level].append(Counts(sample.solved, len(sample.scored)))
    return groups


def recipe_at(
    level: int | None, samples: Sequence[StoredGroup], ladder: Ladder
) -> Recipe:
    """Return what the recipes of an evaluated task's level have in common: all but the seed.

    Without a level, the parameters are those that were evaluated: a suite may have its own.
    """
    task = samples[0].task
    if level is not None:
        return Recipe(task=task, seed=0, level=level, parameters=ladder[level])
    recipes = [sample.recipe for sample in samples]
    return replace(next(recipe for recipe in recipes if recipe.level is None), seed=0)
