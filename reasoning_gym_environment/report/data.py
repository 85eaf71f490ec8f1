"""The data of a report: stored groups, read from files."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from ..errors import FixableError
from ..evaluation.store import METRICS
from ..storage.dumps import FAILED, PARTIAL, read_groups, stored_files
from ..storage.rows import StoredGroup
from ..tasks.catalogue import known_categories

TRAINING, EVALUATION = "training", "evaluation"


@dataclass(frozen=True, kw_only=True, slots=True)
class Source:
    """The summary of one file.

    Attributes:
        kind: what it holds, in words.
        torn: number of lines that could not be read.
    """

    name: str
    kind: str
    groups: int = 0
    rollouts: int = 0
    torn: int = 0


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


def read_report_data(paths: Sequence[Path]) -> ReportData:
    """Read dumps, evaluation samples, metrics.json files and folders with any of them, each once.

    Raises:
        FixableError: a file can't be read, has other content, or is given with its rescored form;
            or no file holds rollouts.
    """
    groups: list[StoredGroup] = []
    sources: list[Source] = []
    recorded = {}
    for path in map(Path.resolve, stored_files(paths, also=METRICS)):
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
        ordered=timed or not kinds >= {"successful groups", "failed groups"},
        sources=tuple(sources),
        recorded=recorded,
    )


def category_of(task: str) -> str:
    """Return the category of a task; "other" for tasks that are not the library's."""
    return known_categories().get(task, "other")


def split_of(group: StoredGroup) -> str:
    """Return "training" or "evaluation", by the recipe's seed."""
    return EVALUATION if group.has_evaluation_seed else TRAINING


def read_metrics(path: Path) -> dict[str, float]:
    """Read the numbers of an evaluation's metrics.json.

    Raises:
        FixableError: the file can't be read, or holds something else.
    """
    try:
        metrics = msgspec.convert(json.loads(path.read_bytes())["results"]["all"], dict[str, Any])
    except OSError as error:
        raise FixableError(f"{path} can't be read: {error.strerror}") from error
    except (LookupError, TypeError, ValueError, RecursionError) as error:
        raise FixableError(f"{path} is not an evaluation's metrics.json: {error}") from error
    return {n: float(value) for n, value in metrics.items() if isinstance(value, int | float)}


def summarize(path: Path, groups: Sequence[StoredGroup], torn: int) -> Source:
    """Return what a file holds."""
    names = {FAILED.name: "failed groups", PARTIAL.name: "partly successful groups"}
    named = (kind for name, kind in names.items() if name in path.name)
    kinds = {TRAINING: next(named, "successful groups"), EVALUATION: "evaluation samples"}
    splits = {split_of(group) for group in groups}
    return Source(
        name=str(path),
        kind=" and ".join(kind for split, kind in kinds.items() if split in splits) or "empty",
        groups=len(groups),
        rollouts=sum(len(group.rollouts) for group in groups),
        torn=torn,
    )
