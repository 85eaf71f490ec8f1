"""The data of a report: stored groups, read from files, and their figures."""

from __future__ import annotations

import json
import statistics
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from msgspec import Struct

from ..errors import FixableError
from ..evaluation.estimators import share
from ..evaluation.metrics import Coverage
from ..evaluation.store import METRICS, RUN, settings_in
from ..records import FORMAT_FAILURES, Signal, Status, recipe_key
from ..storage.dumps import FAILED, PARTIAL, distinct_files, read_groups, stored_files
from ..storage.rows import StoredGroup, StoredRollout
from ..tasks.catalogue import known_categories, ladder_heights
from ..tasks.chance_floors import Floors, floors
from ..util.grouping import Key, group_by
from ..util.models import validate

TRAINING, EVALUATION = "training", "evaluation"
SPLITS = (TRAINING, EVALUATION)
SUCCESSFUL_GROUPS, FAILED_GROUPS = "successful groups", "failed groups"
PARTIAL_GROUPS = "partly successful groups"

_LABELS = {
    "model_name": "model",
    "step": "step",
    "eval_temperature": "temperature",
    "eval_attempts": "attempts",
    "eval_seed": "seed",
    "length_limit": "token limit",
}
"""Labels of the evaluation settings that stand beside its figures."""

_CATEGORIES = known_categories()

_MOST_BUCKETS = 40
_SMALLEST_BUCKET = 10


class _Results(Struct):
    all: dict[str, Any]


class _Metrics(Struct):
    results: _Results


@dataclass(frozen=True, kw_only=True, slots=True)
class Source:
    """The summary of one file.

    Attributes:
        kind: what it holds, in words.
        torn: number of lines that could not be read.
        about: the evaluation's model and settings; empty if unknown.
    """

    name: str
    kind: str
    groups: int = 0
    rollouts: int = 0
    torn: int = 0
    about: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class ReportData:
    """All data of a report.

    Attributes:
        groups: oldest first if every row has its time, else in the order of the files.
        ordered: whether training groups are in the order of training. Successful and failed
            groups have separate files, so without times their order is unknown.
        recorded: the metrics of each metrics.json, by its path.
    """

    groups: tuple[StoredGroup, ...]
    ordered: bool
    sources: tuple[Source, ...]
    recorded: Mapping[str, Mapping[str, float]]

    def of(self, split: str) -> list[StoredGroup]:
        return [group for group in self.groups if split_of(group) == split]


def read_report_data(paths: Sequence[Path]) -> ReportData:
    """Read dumps, evaluation samples, metrics.json files and folders with any of them, each once.

    Raises:
        FixableError: a file can't be read, has other content, or is given with its rescored form;
            or no file holds rollouts.
    """
    groups: list[StoredGroup] = []
    sources: list[Source] = []
    recorded = {}
    for path in map(Path.resolve, distinct_files(expanded(paths))):
        if path.suffix == ".json":
            recorded[str(path)] = read_metrics(path)
            sources.append(Source(name=str(path), kind="evaluation metrics"))
            continue
        own, torn = read_groups(path)
        groups += own
        sources.append(summarize(path, own, torn))
    if not groups:
        raise FixableError(f"no rollouts in {', '.join(map(str, paths))}: name a dump file")
    timed = all(group.time for group in groups)
    if timed:
        groups.sort(key=lambda group: group.time)
    kinds = {source.kind for source in sources if source.groups}
    return ReportData(
        groups=tuple(groups),
        ordered=timed or not kinds >= {SUCCESSFUL_GROUPS, FAILED_GROUPS},
        sources=tuple(sources),
        recorded=recorded,
    )


def expanded(paths: Sequence[Path]) -> list[Path]:
    """Replace folders with the dumps and the files of all evaluations in them.

    Raises:
        FixableError: a folder holds none.
    """
    metrics = [file for path in paths if path.is_dir() for file in sorted(path.rglob(METRICS))]
    return [*stored_files(paths), *metrics]


def category_of(task: str) -> str:
    """Return the category of a task; "other" for tasks that are not the library's."""
    return _CATEGORIES.get(task, "other")


def split_of(group: StoredGroup) -> str:
    """Return "training" or "evaluation", by the recipe's seed."""
    return SPLITS[group.has_evaluation_seed]


def read_metrics(path: Path) -> dict[str, float]:
    """Read the numbers of an evaluation's metrics.json.

    Raises:
        FixableError: the file can't be read, or holds something else.
    """
    try:
        metrics = validate(json.loads(path.read_bytes()), _Metrics).results.all
    except OSError as error:
        raise FixableError(f"{path} can't be read: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise FixableError(f"{path} is not an evaluation's metrics.json: {error}") from error
    return {n: float(value) for n, value in metrics.items() if isinstance(value, int | float)}


def summarize(path: Path, groups: Sequence[StoredGroup], torn: int) -> Source:
    of_names = {FAILED.name: FAILED_GROUPS, PARTIAL.name: PARTIAL_GROUPS}
    named = (kind for name, kind in of_names.items() if name in path.name)
    training = next(named, SUCCESSFUL_GROUPS)
    kinds = {TRAINING: training, EVALUATION: "evaluation samples"}
    splits = {split_of(group) for group in groups}
    return Source(
        name=str(path),
        kind=" and ".join(kinds[split] for split in SPLITS if split in splits) or "empty",
        groups=len(groups),
        rollouts=sum(len(group.rollouts) for group in groups),
        torn=torn,
        about=about_evaluation(path.parent) if EVALUATION in splits else "",
    )


def about_evaluation(folder: Path) -> str:
    """Return the evaluation's model and settings, as far as the folder's `run.json` has them."""
    try:
        settings = settings_in(folder) or {}
    except FixableError:
        return f"{RUN} can't be read"
    known = [(label, settings[name]) for name, label in _LABELS.items() if name in settings]
    return " · ".join(f"{label} {value}" for label, value in known if value is not None)


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
        coverage: the groups with a scored rollout, of all.
        format_failures, truncated: shares of the rollouts that have a completion.
    """

    coverage: Coverage
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


def rollouts_of(groups: Sequence[StoredGroup]) -> list[StoredRollout]:
    return [rollout for group in groups for rollout in group.rollouts]


def floors_of(group: StoredGroup) -> Floors | None:
    """Return the floors of the group's task, where they apply; see `tasks.chance_floors`.

    Floors are of default items and right answers; rows without a threshold are of an older rule.
    """
    default = group.recipe.level is None and not group.recipe.parameters
    return floors(group.solved_threshold).get(group.task) if default else None


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
        coverage=Coverage.of(groups),
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
