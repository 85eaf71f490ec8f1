"""The files a report is about, read into records."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..errors import FixableError
from ..evaluation.store import SAMPLES, recipe_key
from ..problems.seeds import is_evaluation_seed
from ..records import Recipe, Signal, Status, Verdict
from ..scoring.rewards import signal
from ..storage.dumps import FAILED
from ..storage.stored import completion
from ..storage.stored_groups import distinct_files, read_groups
from ..tasks.catalogue import known_categories

TRAINING, EVALUATION = "training", "evaluation"
SPLITS = (TRAINING, EVALUATION)
METRICS = "metrics.json"
SUCCESSFUL_GROUPS, FAILED_GROUPS = "successful groups", "failed groups"

_CATEGORIES = known_categories()


@dataclass(frozen=True, kw_only=True, slots=True)
class Rollout:
    """One rollout of a row.

    Attributes:
        text: the completion.
        reward: what the trainer got.
        tokens: length of the completion; None where the server gave none.
        row: the rollout as it is stored.
    """

    text: str
    verdict: Verdict
    reward: float
    tokens: int | None
    truncated: bool
    row: Mapping[str, Any]


@dataclass(frozen=True, kw_only=True, slots=True)
class Group:
    """All rollouts of one problem.

    Attributes:
        problem: equal for groups of the same problem, whichever files they are in.
        difficulty: that an evaluation asked for; None where it is the task's default.
        split: "training" or "evaluation", as the recipe's seed says.
        time: when it was written, ISO 8601 in UTC; "" in rows that don't say.
        source: the file's place among the files.
    """

    task: str
    category: str
    problem: str
    level: float | None
    difficulty: float | None
    split: str
    time: str
    source: int
    rollouts: tuple[Rollout, ...]
    row: Mapping[str, Any]

    @property
    def scored(self) -> list[Rollout]:
        return [r for r in self.rollouts if r.verdict.status is not Status.UNSCORED]

    @property
    def solved(self) -> int:
        return sum(r.verdict.status is Status.SOLVED for r in self.rollouts)

    @property
    def signal(self) -> Signal | None:
        """As `scoring.rewards.signal`."""
        return signal([rollout.verdict for rollout in self.rollouts])


@dataclass(frozen=True, kw_only=True, slots=True)
class Source:
    """What one file holds. `kind` says so in words."""

    name: str
    kind: str
    groups: int = 0
    rollouts: int = 0
    torn: int = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class Material:
    """Everything a report is made from.

    Attributes:
        groups: oldest first where every row has its time, else as the files come.
        ordered: whether that is the order in which the training groups came. Successful and
            failed groups are in files of their own: without times their order is lost.
        recorded: the metrics of each metrics.json, by its path.
    """

    groups: tuple[Group, ...]
    ordered: bool
    sources: tuple[Source, ...]
    recorded: Mapping[str, Mapping[str, float]]

    def of(self, split: str) -> list[Group]:
        return [group for group in self.groups if group.split == split]


def read_material(paths: Sequence[Path]) -> Material:
    """Read dumps, evaluation samples, metrics.json files and folders of these, each once.

    Raises:
        FixableError: a file can't be read, is something else, or is given with its rescored form;
            or no rollout is in any.
    """
    groups: list[Group] = []
    sources: list[Source] = []
    recorded = {}
    for path in map(Path.resolve, distinct_files(expanded(paths))):
        if path.suffix == ".json":
            recorded[str(path)] = read_metrics(path)
            sources.append(Source(name=str(path), kind="evaluation metrics"))
            continue
        rows, torn = read_groups(path)
        own = [group_of(row, len(sources)) for row in rows]
        groups += own
        sources.append(describe(path, own, torn))
    if not groups:
        raise FixableError(f"no rollout is in {', '.join(map(str, paths))}: name a dump file")
    timed = all(group.time for group in groups)
    if timed:
        groups.sort(key=lambda group: group.time)
    kinds = {sources[group.source].kind for group in groups}
    return Material(
        groups=tuple(groups),
        ordered=timed or not kinds >= {SUCCESSFUL_GROUPS, FAILED_GROUPS},
        sources=tuple(sources),
        recorded=recorded,
    )


def expanded(paths: Sequence[Path]) -> list[Path]:
    """The paths, with the evaluations of a folder in its place, however deep they lie.

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


def group_of(row: Mapping[str, Any], source: int) -> Group:
    recipe = Recipe.from_json(row["recipe"])
    return Group(
        task=recipe.task,
        category=_CATEGORIES.get(recipe.task, "other"),
        problem=recipe_key(row["recipe"]),
        level=recipe.level,
        difficulty=row.get("difficulty"),
        split=SPLITS[is_evaluation_seed(recipe.seed)],
        time=row.get("time", ""),
        source=source,
        rollouts=tuple(rollout_of(rollout) for rollout in row["rollouts"]),
        row=row,
    )


def rollout_of(row: Mapping[str, Any]) -> Rollout:
    return Rollout(
        text=completion(row),
        verdict=Verdict(score=row["raw_score"], status=Status(row["status"])),
        reward=row["score"],
        tokens=row["completion_tokens"] if row["tokens"] else None,
        truncated=row["finish_reason"] == "length",
        row=row,
    )


def read_metrics(path: Path) -> dict[str, float]:
    """The overall and finer numbers of an evaluation's metrics.json.

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


def describe(path: Path, groups: Sequence[Group], torn: int) -> Source:
    training = FAILED_GROUPS if FAILED.name in path.name else SUCCESSFUL_GROUPS
    kinds = {TRAINING: training, EVALUATION: "evaluation samples"}
    splits = {group.split for group in groups}
    return Source(
        name=str(path),
        kind=" and ".join(kinds[split] for split in SPLITS if split in splits) or "empty",
        groups=len(groups),
        rollouts=sum(len(group.rollouts) for group in groups),
        torn=torn,
    )
