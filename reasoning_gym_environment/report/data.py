"""What a report is made from: stored groups and metrics, read from files."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..errors import FixableError
from ..evaluation.store import METRICS
from ..storage.dumps import FAILED, PARTIAL, read_groups, stored_files
from ..storage.rows import StoredGroup
from ..util.files import read_regular
from ..util.values import convert
from .identity import EVALUATION, TRAINING, split_of

SUCCESSFUL_GROUPS = "successful groups"
FAILED_GROUPS = "failed groups"


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
    for file in stored_files(paths, also=METRICS):
        path = file.resolve()
        if path.suffix == ".json":
            recorded[str(path)] = read_metrics(path)
            sources.append(Source(name=str(path), kind="evaluation metrics"))
            continue
        groups_of_file, torn = read_groups(path)
        groups += groups_of_file
        sources.append(summarize(path, groups_of_file, torn))
    if not groups:
        raise FixableError(
            f"no rollouts in {', '.join(map(str, paths))}: name a dump file"
        )
    has_times = all(group.time for group in groups)
    if has_times:
        groups.sort(key=lambda group: group.time)
    kinds = {source.kind for source in sources if source.groups}
    is_one_sequence = not kinds >= {SUCCESSFUL_GROUPS, FAILED_GROUPS}
    return ReportData(
        groups=tuple(groups),
        ordered=has_times or is_one_sequence,
        sources=tuple(sources),
        recorded=recorded,
    )


def read_metrics(path: Path) -> dict[str, float]:
    """Read the numbers of an evaluation's metrics.json; FixableError for anything else."""
    try:
        content = json.loads(read_regular(path))
        metrics = convert(content["results"]["all"], dict[str, Any])
    except OSError as error:
        raise FixableError(f"{path} can't be read: {error.strerror}") from error
    except (LookupError, TypeError, ValueError, RecursionError) as error:
        raise FixableError(
            f"{path} is not an evaluation's metrics.json: {error}"
        ) from error
    numbers = {}
    for name, value in metrics.items():
        # Another program may have written texts, lists, NaN or huge integers beside the numbers.
        if isinstance(value, int | float) and abs(value) <= sys.float_info.max:
            numbers[name] = float(value)
    return numbers


def summarize(path: Path, groups: Sequence[StoredGroup], torn: int) -> Source:
    """Return what a file holds."""
    splits = {split_of(group) for group in groups}
    kinds = []
    if TRAINING in splits:
        kinds.append(_training_kind(path.name))
    if EVALUATION in splits:
        kinds.append("evaluation samples")
    return Source(
        name=str(path),
        kind=" and ".join(kinds) or "empty",
        groups=len(groups),
        rollouts=sum(len(group.rollouts) for group in groups),
        torn=torn,
    )


def _training_kind(file_name: str) -> str:
    if FAILED.name in file_name:
        return FAILED_GROUPS
    if PARTIAL.name in file_name:
        return "partly successful groups"
    return SUCCESSFUL_GROUPS
