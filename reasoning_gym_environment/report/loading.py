"""Reads the files a report is about."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ..errors import FixableError
from ..evaluation.store import RUN, SAMPLES, settings_in
from ..storage.dumps import FAILED, PARTIAL, distinct_files, read_groups
from ..storage.rows import StoredGroup
from ..tasks.catalogue import known_categories

TRAINING, EVALUATION = "training", "evaluation"
SPLITS = (TRAINING, EVALUATION)
METRICS = "metrics.json"
SUCCESSFUL_GROUPS, FAILED_GROUPS = "successful groups", "failed groups"
PARTIAL_GROUPS = "partly successful groups"

_ABOUT = {
    "model_name": "model",
    "step": "step",
    "eval_temperature": "temperature",
    "eval_attempts": "attempts",
    "eval_seed": "seed",
    "length_limit": "token limit",
}
"""Settings of an evaluation and how they are called beside its figures."""

_CATEGORIES = known_categories()


@dataclass(frozen=True, kw_only=True, slots=True)
class Source:
    """What one file holds.

    Attributes:
        kind: that in words.
        torn: lines that could not be read.
        about: what was evaluated, and how; empty where nothing tells.
    """

    name: str
    kind: str
    groups: int = 0
    rollouts: int = 0
    torn: int = 0
    about: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Material:
    """Everything a report is made from.

    Attributes:
        groups: oldest first where every row has its time, else as the files come.
        ordered: whether that is the order in which the training groups came. Successful and
            failed groups are in files of their own: without times their order is lost.
        recorded: the metrics of each metrics.json, by its path.
    """

    groups: tuple[StoredGroup, ...]
    ordered: bool
    sources: tuple[Source, ...]
    recorded: Mapping[str, Mapping[str, float]]

    def of(self, split: str) -> list[StoredGroup]:
        return [group for group in self.groups if split_of(group) == split]


def read_material(paths: Sequence[Path]) -> Material:
    """Read dumps, evaluation samples, metrics.json files and folders of these, each once.

    Raises:
        FixableError: a file can't be read, is something else, or is given with its rescored form;
            or no rollout is in any.
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
        sources.append(describe(path, own, torn))
    if not groups:
        raise FixableError(f"no rollout is in {', '.join(map(str, paths))}: name a dump file")
    timed = all(group.time for group in groups)
    if timed:
        groups.sort(key=lambda group: group.time)
    kinds = {source.kind for source in sources if source.groups}
    return Material(
        groups=tuple(groups),
        ordered=timed or not kinds >= {SUCCESSFUL_GROUPS, FAILED_GROUPS},
        sources=tuple(sources),
        recorded=recorded,
    )


def expanded(paths: Sequence[Path]) -> list[Path]:
    """Put the evaluations of a folder in its place, however deep they lie.

    Raises:
        FixableError: a folder holds none.
    """
    files: list[Path] = []
    for path in paths:
        own = [path]
        if path.is_dir():
            own = [file for name in (SAMPLES, METRICS) for file in sorted(path.rglob(name))]
        if not own:
            raise FixableError(f"{path} holds no {SAMPLES} or {METRICS}; give the files themselves")
        files += own
    return files


def category_of(group: StoredGroup) -> str:
    """Name the category of the group's task; "other" where the task is not the library's."""
    return _CATEGORIES.get(group.task, "other")


def split_of(group: StoredGroup) -> str:
    """Say whether it is "training" or "evaluation", by the recipe's seed."""
    return SPLITS[group.has_evaluation_seed]


def read_metrics(path: Path) -> dict[str, float]:
    """Read the overall and finer numbers of an evaluation's metrics.json.

    Raises:
        FixableError: the file can't be read, or holds something else.
    """
    try:
        metrics = json.loads(path.read_bytes())["results"]["all"]
        return {n: float(value) for n, value in metrics.items() if isinstance(value, int | float)}
    except OSError as error:
        raise FixableError(f"{path} can't be read: {error.strerror}") from error
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        raise FixableError(f"{path} is no evaluation's metrics.json") from error


def describe(path: Path, groups: Sequence[StoredGroup], torn: int) -> Source:
    of_names = {FAILED.name: FAILED_GROUPS, PARTIAL.name: PARTIAL_GROUPS}
    told = [groups for name, groups in of_names.items() if name in path.name]
    training = told[0] if told else SUCCESSFUL_GROUPS
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
    """Say what was evaluated and how, as far as the folder's `run.json` tells."""
    try:
        settings = settings_in(folder) or {}
    except FixableError:
        return f"{RUN} can't be read"
    known = [(what, settings[name]) for name, what in _ABOUT.items() if name in settings]
    return " · ".join(f"{what} {value}" for what, value in known if value is not None)
