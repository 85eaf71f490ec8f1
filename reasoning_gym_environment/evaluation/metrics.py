"""What is reported about an evaluation, as flat numbers.

Items at the default configuration have the plain names, so that these stay comparable whether
or not other difficulties are evaluated beside them; those at a named difficulty have the same
names below `difficulty/<d>/`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from ..records import FORMAT_FAILURES, Status
from ..storage.rows import StoredGroup, StoredRollout
from ..util.grouping import group_by
from .estimators import Clusters, Estimate, macro_share, pass_at_k, share

Numbers = dict[str, float]


@dataclass(frozen=True, kw_only=True, slots=True)
class Background:
    """What the numbers are set against.

    Attributes:
        categories: category by task.
        floors: task to the share of its default items that the best constant answer solves.
        attempts: completions asked for per item.
    """

    categories: Mapping[str, str]
    floors: Mapping[str, float]
    attempts: int


def evaluation_metrics(items: Sequence[StoredGroup], background: Background) -> Numbers:
    """Numbers below `eval/`; what is unknown, since nothing was scored, has no entry.

    Shares are in [0, 1]; unscored attempts count in `unscored` and `status/unscored` alone.
    """
    slices = group_by(lambda item: item.difficulty, items)
    numbers = _of_slice(slices.pop(None, []), background)
    for difficulty, members in sorted(slices.items(), key=lambda entry: entry[0] or 0.0):
        numbers |= _below(f"difficulty/{difficulty:g}", _of_slice(members, background))
    return _below("eval", numbers)


def lean(metrics: Mapping[str, float]) -> Numbers:
    """The part that is worth a curve: of single tasks only what they solve and score."""
    return {
        name: value
        for name, value in metrics.items()
        if "/task/" not in name or name.rpartition("/")[2] in ("solved", "score")
    }


def _of_slice(items: Sequence[StoredGroup], background: Background) -> Numbers:
    """Overall by items, by tasks (`macro`), and for each category and task."""
    if not items:
        return {}
    tasks = group_by(lambda item: item.task, items)
    categories = group_by(lambda item: background.categories[item.task], items)
    numbers = _of_items(items, background) | _statuses(items)
    numbers |= _below("macro", _by_tasks(list(tasks.values()), background))
    if "solved" in numbers:
        numbers["percent_correct"] = numbers["solved"]
    for kind, groups in (("category", categories), ("task", tasks)):
        for name, members in sorted(groups.items()):
            numbers |= _below(f"{kind}/{name}", _of_items(members, background))
    return numbers


def _of_items(items: Sequence[StoredGroup], background: Background) -> Numbers:
    numbers: Numbers = {"items": float(len(items))}
    for name, clusters in _shares(items, background.attempts).items():
        numbers |= _estimate(name, share(clusters)) if clusters else {}
    return numbers | _means(items, background.floors)


def _means(items: Sequence[StoredGroup], floors: Mapping[str, float]) -> Numbers:
    """What is given without an error: of all attempts, of those that came or of those scored."""
    numbers: Numbers = {}
    outcomes = [outcome for item in items for outcome in item.rollouts]
    given = [o for o in outcomes if o.length is not None]
    for name, values in (
        ("unscored", [float(not o.scored) for o in outcomes]),
        ("format_failures", [float(o.status in FORMAT_FAILURES) for o in given]),
        ("truncated", [float(o.truncated) for o in given]),
        ("completion_tokens", [float(o.length or 0) for o in given]),
        ("reward", [o.score for o in outcomes if o.scored]),
    ):
        numbers |= _mean(name, values)
    return numbers | _against_chance(items, floors)


def _by_tasks(tasks: Sequence[Sequence[StoredGroup]], background: Background) -> Numbers:
    numbers: Numbers = {"tasks": float(len(tasks))}
    shares = [_shares(items, background.attempts) for items in tasks]
    for name in shares[0]:
        if known := [of_task[name] for of_task in shares if of_task[name]]:
            numbers |= _estimate(name, macro_share(known))
    means = [_means(items, background.floors) for items in tasks]
    for name in sorted({name for of_task in means for name in of_task}):
        numbers |= _mean(name, [of_task[name] for of_task in means if name in of_task])
    return numbers


def _shares(items: Sequence[StoredGroup], attempts: int) -> dict[str, Clusters]:
    """What is estimated with an error: values by item, without items that say nothing of it."""
    scored = [item.scored for item in items if item.scored]
    solved = [(len(outcomes), sum(o.solved for o in outcomes)) for outcomes in scored]
    shares: dict[str, Clusters] = {
        "score": [[o.raw_score or 0.0 for o in outcomes] for outcomes in scored],
        "solved": [[float(o.solved) for o in outcomes] for outcomes in scored],
        f"avg@{attempts}": [[right / made] for made, right in solved],
    }
    for k in range(1, attempts + 1):
        shares[f"pass@{k}"] = [[pass_at_k(made, right, k)] for made, right in solved if made >= k]
    return shares


def _against_chance(items: Iterable[StoredGroup], floors: Mapping[str, float]) -> Numbers:
    """Of items at the default configuration: that is what the floors were measured on."""
    pairs: list[tuple[float, StoredRollout]] = [
        (floors[item.task], outcome)
        for item in items
        if item.difficulty is None and item.task in floors
        for outcome in item.scored
    ]
    chance = _mean("chance", [floor for floor, _ in pairs])
    return chance | _mean("above_chance", [outcome.solved - floor for floor, outcome in pairs])


def _statuses(items: Iterable[StoredGroup]) -> Numbers:
    statuses = [outcome.status for item in items for outcome in item.rollouts]
    return {f"status/{s.value}": statuses.count(s) / len(statuses) for s in Status}


def _estimate(name: str, estimate: Estimate) -> Numbers:
    numbers = {
        name: estimate.value,
        f"{name}_low": estimate.low,
        f"{name}_high": estimate.high,
    }
    if estimate.standard_error is not None:
        numbers[f"{name}_stderr"] = estimate.standard_error
    return numbers


def _mean(name: str, values: Sequence[float]) -> Numbers:
    return {name: math.fsum(values) / len(values)} if values else {}


def _below(prefix: str, numbers: Mapping[str, float]) -> Numbers:
    return {f"{prefix}/{name}": value for name, value in numbers.items()}
