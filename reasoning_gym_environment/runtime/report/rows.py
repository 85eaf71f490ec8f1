"""The files a report is about, read into records."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...core.errors import FixableError
from ...core.records import Recipe, Status, Verdict
from ...core.rewards import signal
from ...tasks.catalogue import known_categories
from ..dumps import FAILED, read_dump

TRAINING, EVALUATION = "training", "evaluation"
SPLITS = (TRAINING, EVALUATION)
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
        split: "training" or "evaluation", as the recipe's seed says.
        time: when it was written, ISO 8601 in UTC; "" in rows that don't say.
        source: the file's place among the files.
    """

    task: str
    category: str
    level: float | None
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
    def signal(self) -> str | None:
        """As `core.rewards.signal`."""
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
    """Read dumps, evaluation samples and metrics.json files, each once.

    Raises:
        FixableError: a file can't be read, is something else, or no rollout is in any.
    """
    groups: list[Group] = []
    sources: list[Source] = []
    recorded = {}
    for path in dict.fromkeys(path.resolve() for path in paths):
        try:
            if path.suffix == ".json":
                recorded[str(path)] = read_metrics(path)
                sources.append(Source(name=str(path), kind="evaluation metrics"))
                continue
            rows, torn = read_dump(path)
        except OSError as error:
            raise FixableError(f"{path} can't be read: {error.strerror}") from error
        own = [parse_row(row, path, number, len(sources)) for number, row in enumerate(rows, 1)]
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


def parse_row(row: Mapping[str, Any], path: Path, number: int, source: int) -> Group:
    """Raises FixableError when the row isn't one of this package's."""
    try:
        recipe = Recipe.from_json(row["recipe"])
        if not row["rollouts"]:
            raise ValueError("it has no rollouts")
        return Group(
            task=recipe.task,
            category=_CATEGORIES.get(recipe.task, "other"),
            level=recipe.level,
            split=SPLITS[recipe.seed & 1],
            time=str(row.get("time", "")),
            source=source,
            rollouts=tuple(parse_rollout(rollout) for rollout in row["rollouts"]),
            row=row,
        )
    except (LookupError, TypeError, ValueError) as error:
        raise FixableError(
            f"{path}, row {number}: {type(error).__name__}: {error}; "
            "name dumps or evaluation samples that this package wrote"
        ) from error


def parse_rollout(row: Mapping[str, Any]) -> Rollout:
    """Raises LookupError, TypeError or ValueError when it isn't one."""
    score = None if row["raw_score"] is None else float(row["raw_score"])
    reward = float(row["score"])
    if not math.isfinite(reward) or not math.isfinite(score or 0.0):
        raise ValueError(f"scores {reward} and {score} are not finite")
    return Rollout(
        text=str(row["conversation"][-1]["content"]),
        verdict=Verdict(score=score, status=Status(row["status"])),
        reward=reward,
        tokens=int(row["completion_tokens"]) if row["tokens"] else None,
        truncated=row["finish_reason"] == "length",
        row=row,
    )


def read_metrics(path: Path) -> dict[str, float]:
    """The overall and finer numbers of an evaluation's metrics.json.

    Raises:
        OSError: the file can't be read.
        FixableError: it holds something else.
    """
    try:
        metrics = json.loads(path.read_bytes())["results"]["all"]
        return {n: float(value) for n, value in metrics.items() if isinstance(value, int | float)}
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
