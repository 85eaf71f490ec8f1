"""The columnar index of stored groups, from which the page computes every figure.

The page loads the texts of a group when it shows it. The index grows by group, and hands out what
came since, so that a page can follow a run.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime, timezone
from hashlib import blake2b
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

from msgspec import structs

from ..errors import FixableError
from ..evaluation.comparison import Item
from ..evaluation.store import METRICS, RUN, settings_in
from ..records import FORMAT_FAILURES, Signal, Status
from ..storage.notes import read_notes
from ..storage.rows import StoredGroup, StoredRollout
from ..storage.run_record import RunRecord, read_run
from ..tasks.facts import floors, ladder_heights, level_floors
from .identity import (
    RUN_NAME_LENGTH,
    TRAINING,
    category_of,
    group_id,
    run_of,
    split_of,
    training_name,
)
from .times import seconds_of

LAYOUT_VERSION = 1
"""Of the index's columns; the page refuses another one."""

PROBLEM_HASH_BYTES = 8
"""Of the hash that stands for a problem's key, which may be as long as its parameters."""

ALL = ""
"""The label of all difficulties together."""

_STATUSES = list(Status)
_LABELS = {
    "model_name": "model",
    "server_type": "server",
    "step": "step",
    "temperature": "temperature",
    "eval_temperature": "temperature",
    "top_p": "top p",
    "max_token_length": "token limit",
    "length_limit": "token limit",
    "group_size": "group size",
    "eval_attempts": "attempts",
    "seed": "seed",
    "eval_seed": "seed",
    "score_mode": "score mode",
    "complexity_mode": "difficulty",
    "sampling": "sampling",
}
"""Labels of the settings that the page shows, in their order."""


class _RunFiles(NamedTuple):
    """What the files of a run say of it now.

    Attributes:
        started, updated, ended: ISO 8601; empty where the files don't say.
        lines: label and value of more lines of the header.
    """

    settings: Mapping[str, Any]
    lines: list[list[str]]
    ended: str
    started: str = ""
    updated: str = ""
    warnings: tuple[dict[str, Any], ...] = ()


@dataclass(kw_only=True, slots=True)
class RunEntry:
    """A training run, or an evaluation at one or more difficulties; never pooled.

    Attributes:
        key: the run's name in its rows, or the evaluation's folder.
        folder: where its record, or its `run.json`, is; None for rows that no file holds.
        rules: what counts as solved.
        step: the trainer's last one, or the evaluation's; None if its rows have none.
        last_number: the largest number of a training group.
        numbered: whether all groups have a number.
        record: of a training run that writes one.
    """

    key: str
    kind: str
    name: str
    folder: Path | None
    system_prompt: str = ""
    versions: dict[str, str] = field(default_factory=dict)
    rules: set[str] = field(default_factory=set)
    step: int | None = None
    groups: int = 0
    last_number: int = 0
    numbered: bool = True
    record: RunRecord | None = None

    def add(self, group: StoredGroup) -> None:
        """Take in what a group says of its run."""
        self.groups += 1
        if group.step is not None:
            self.step = max(self.step or 0, group.step)
        self.last_number = max(self.last_number, group.number)
        self.numbered = self.numbered and group.number > 0
        for name, version in group.library_versions.items():
            self.versions[name] = str(version)
        threshold = group.solved_threshold
        self.rules.add(
            "right answers" if threshold is None else f"scores of {threshold} and more"
        )
        for message in group.prompt:
            if message["role"] == "system":
                self.system_prompt = self.system_prompt or message["content"]

    def to_json(self) -> dict[str, Any]:
        """Return what the page's header shows, with what the run's files say now."""
        files = self._training() if self.kind == TRAINING else self._evaluation()
        step = self.step
        if (
            step is None
            and self.kind != TRAINING
            and isinstance(files.settings.get("step"), int)
        ):
            step = files.settings["step"]
        rules = " or ".join(sorted(self.rules))
        header = _setting_lines(files.settings)
        header += [[name, version] for name, version in self.versions.items()]
        header.append(["counts as solved", rules])
        header += files.lines
        return {
            "id": self.key,
            "kind": self.kind,
            "name": self._named(files.settings),
            "setting": _setting(files.settings),
            "folder": str(self.folder or ""),
            "header": header,
            "rules": rules,
            "system_prompt": self.system_prompt,
            "step": step,
            "started": files.started,
            "updated": files.updated,
            "ended": files.ended,
            "notes": read_notes(self.folder, self.notes_name) if self.folder else {},
            "groups": self.groups,
            "warnings": list(files.warnings),
        }

    @property
    def notes_name(self) -> str:
        """Under which the run's notes are stored in its folder."""
        return self.key if self.kind == TRAINING else ""

    def _named(self, settings: Mapping[str, Any]) -> str:
        """Return the name, which begins with the run's `wandb_name` if it has one."""
        name = settings.get("name")
        if self.kind != TRAINING or not isinstance(name, str) or not name:
            return self.name
        return f"{name} {self.key[:RUN_NAME_LENGTH]}"

    def _training(self) -> _RunFiles:
        record = self.record or RunRecord(run=self.key, started="", updated="")
        if not self.numbered:
            groups = (
                f"{self.groups:,}, perhaps a selection: these rows are not numbered"
            )
        elif self.groups >= self.last_number:
            groups = f"all {self.groups:,}"
        else:
            groups = f"a selection: {self.groups:,} of {self.last_number:,}"
        if record.deleted:
            groups += f"; oldest dump files deleted: {record.deleted} (max_dump_gb)"
        return _RunFiles(
            settings=record.settings,
            lines=[["groups", groups]],
            started=record.started,
            updated=record.updated,
            ended=record.ended,
            warnings=tuple(structs.asdict(warning) for warning in record.warnings),
        )

    def _evaluation(self) -> _RunFiles:
        settings = None
        lines: list[list[str]] = []
        try:
            if self.folder:
                settings = settings_in(self.folder)
        except FixableError:
            # The samples can be shown without them.
            lines = [["settings", f"{RUN} can't be read"]]
        ended = ""
        # An evaluation has no record: it has ended when its metrics are written.
        with suppress(OSError):
            metrics_file = (self.folder or Path()) / METRICS
            written = datetime.fromtimestamp(metrics_file.stat().st_mtime, timezone.utc)
            ended = written.isoformat(timespec="seconds")
        return _RunFiles(settings=settings or {}, lines=lines, ended=ended)


MOST_TASK_NAMES = 3
"""Tasks that the table of runs names; of more, it has the number."""


def _setting(settings: Mapping[str, Any]) -> dict[str, str]:
    """Return by what runs are told apart in their table; without a record, nothing."""
    tasks = settings.get("tasks")
    named = {
        "model": settings.get("model_name"),
        "curriculum": settings.get("complexity_mode"),
        "seed": settings.get("seed", settings.get("eval_seed")),
    }
    if isinstance(tasks, list):
        names = sorted(map(str, tasks))
        few = len(names) <= MOST_TASK_NAMES
        named["tasks"] = ", ".join(names) if few else f"{len(names)} tasks"
    return {name: str(value) for name, value in named.items() if value is not None}


def _setting_lines(settings: Mapping[str, Any]) -> list[list[str]]:
    """Return label and value of the settings that the page shows."""
    lines = []
    for name, label in _LABELS.items():
        # `length_limit` is the stricter of the two token limits, and has the same label.
        if name == "max_token_length" and "length_limit" in settings:
            continue
        if settings.get(name) is not None:
            lines.append([label, str(settings[name])])
    tasks = settings.get("tasks")
    if isinstance(tasks, list):
        lines.append(["tasks", f"{len(tasks)}"])
    return lines


class GroupIndex:
    """Columns of the groups added so far; each task, run and problem has a number from 0."""

    def __init__(self) -> None:
        self.runs: dict[str, RunEntry] = {}
        self._run_numbers: dict[str, int] = {}
        self._tasks: dict[str, dict[str, Any]] = {}
        self._task_numbers: dict[str, int] = {}
        self._names: list[str] = []  # of the tasks, by number
        self._problems: dict[bytes, int] = {}
        self._copies: Counter[str] = Counter()  # groups by identifier
        # By group; the last one is the number of all rollouts.
        self._first_rollouts = [0]
        names = ("id", "at", *_GROUP_COLUMNS, "run", "task", "problem")
        self._groups: dict[str, list[Any]] = {name: [] for name in names}
        self._rollouts: dict[str, list[Any]] = {name: [] for name in _ROLLOUT_COLUMNS}

    def __len__(self) -> int:
        """Return the number of groups."""
        return len(self._first_rollouts) - 1

    def add(self, group: StoredGroup, at: Any = None, *, identifier: str = "") -> str:
        """Append a group, and return its identifier: short, and the same in every index.

        Args:
            at: where its texts are, as the page's source understands it.
        """
        identifier = identifier or group_id(group)
        self._copies[identifier] += 1
        copy = self._copies[identifier]
        if copy > 1:  # the same row twice, or an accident
            identifier = f"{identifier}-{copy}"
        columns = self._groups
        columns["id"].append(identifier)
        columns["at"].append(at)
        columns["run"].append(self._run(group))
        columns["task"].append(self._task(group))
        columns["problem"].append(self._problem(group))
        for name, value in _GROUP_COLUMNS.items():
            columns[name].append(value(group))
        for rollout in group.rollouts:
            for name, value_of in _ROLLOUT_COLUMNS.items():
                self._rollouts[name].append(value_of(rollout))
        self._first_rollouts.append(self._first_rollouts[-1] + len(group.rollouts))
        return identifier

    def identifier(self, number: int) -> str:
        """Return the identifier of the group with that number."""
        return str(self._groups["id"][number])

    def batch(self, since: int = 0) -> dict[str, Any]:
        """Return the columns from a number of groups on, and everything of runs and tasks."""
        first_rollout = self._first_rollouts[since]
        groups = {name: values[since:] for name, values in self._groups.items()}
        rollouts = {
            name: values[first_rollout:] for name, values in self._rollouts.items()
        }
        return {
            "version": LAYOUT_VERSION,
            "cursor": str(len(self)),
            "restart": since == 0,
            "runs": [run.to_json() for run in self.runs.values()],
            "tasks": list(self._tasks.values()),
            "statuses": [status.value for status in _STATUSES],
            "groups": groups,
            "rollouts": rollouts,
        }

    def items(self, run: str) -> dict[str, dict[int, Item | None]]:
        """Return an evaluation's items by problem, at each difficulty; ALL has those of all."""
        groups = self._groups
        number = self._run_numbers[run]
        items: defaultdict[str, dict[int, Item | None]] = defaultdict(dict)
        for group in range(len(self)):
            if groups["run"][group] != number:
                continue
            difficulty = groups["difficulty"][group]
            label = "default" if difficulty is None else f"{difficulty:g}"
            item = self._item(group)
            for each in (ALL, label):
                items[each][groups["problem"][group]] = item
        return dict(items)

    def _item(self, group: int) -> Item | None:
        """Return the means of a group; None without a scored rollout."""
        own = range(self._first_rollouts[group], self._first_rollouts[group + 1])
        columns = self._rollouts
        scored = [each for each in own if columns["score"][each] is not None]
        if not scored:
            return None
        return Item(
            task=self._names[self._groups["task"][group]],
            solved=fmean(columns["solved"][each] for each in scored),
            score=fmean(columns["score"][each] for each in scored),
        )

    def set_record(self, record: RunRecord, folder: Path) -> None:
        """Replace the record of a run, which may have no groups yet."""
        if record.run not in self.runs:
            self._add_run(record.run, training_name(record.run), TRAINING, folder)
        self.runs[record.run].record = record

    def _run(self, group: StoredGroup) -> int:
        key, name = run_of(group)
        if key not in self.runs:
            folder = group.file.parent if group.file else None
            self._add_run(key, name, split_of(group), folder)
        self.runs[key].add(group)
        return self._run_numbers[key]

    def _add_run(
        self,
        key: str,
        name: str,
        kind: str,
        folder: Path | None,
    ) -> None:
        record = read_run(folder, key) if folder and kind == TRAINING else None
        self.runs[key] = RunEntry(
            key=key,
            kind=kind,
            name=name,
            folder=folder,
            record=record,
        )
        self._run_numbers[key] = len(self._run_numbers)

    def _task(self, group: StoredGroup) -> int:
        name = group.task
        if name not in self._tasks:
            task_floors = floors().get(name)  # None for a user's own task
            self._task_numbers[name] = len(self._tasks)
            self._names.append(name)
            self._tasks[name] = {
                "name": name,
                "category": category_of(group),
                "no_reasoning": task_floors.no_reasoning.solved
                if task_floors
                else None,
                "levels": ladder_heights().get(name, 0),
            }
        return self._task_numbers[name]

    def _problem(self, group: StoredGroup) -> int:
        # Rows may hold lone surrogates, which UTF-8 can't encode.
        key = group.item_key.encode("utf-8", "surrogatepass")
        problem = blake2b(key, digest_size=PROBLEM_HASH_BYTES).digest()
        return self._problems.setdefault(problem, len(self._problems))


def difficulty_of(group: StoredGroup) -> float | None:
    """Return the group's position on its task's ladder, from 0 to 1; None without a level.

    Ladders have different lengths, so levels of different tasks are not comparable.
    """
    height = ladder_heights().get(group.task, 0)
    if group.difficulty is not None or group.recipe.level is None or height < 2:
        return group.difficulty
    # The row may come from a version with a taller ladder.
    return min(1.0, group.recipe.level / (height - 1))


def _signal(group: StoredGroup) -> int | None:
    """Return whether the group has signal; None with fewer than two scored rollouts."""
    return int(group.signal is Signal.MIXED) if len(group.scored) > 1 else None


def _chance(group: StoredGroup) -> float | None:
    """Return what a constant answer solves, by the library's default or by level."""
    if not group.recipe.is_default:
        of_level = level_floors(group.recipe, group.solved_threshold)
        return of_level.chance.solved if of_level else None
    task_floors = floors(group.solved_threshold).get(group.task)
    return task_floors.chance.solved if task_floors else group.chance


def _rounded(value: float | None, digits: int = 4) -> float | None:
    return None if value is None else round(value, digits)


BRIEF_LENGTH = 80
"""Characters of an answer in the index; the whole one is in the row."""


def _brief(text: str | None) -> str | None:
    if text is None or len(text) <= BRIEF_LENGTH:
        return text
    return f"{text[: BRIEF_LENGTH - 1]}…"


_GROUP_COLUMNS: Mapping[str, Callable[[StoredGroup], Any]] = {
    "time": lambda group: _rounded(seconds_of(group.time), 1),
    "number": lambda group: group.number,
    "step": lambda group: group.step,
    "level": lambda group: group.recipe.level,
    "difficulty": lambda group: _rounded(difficulty_of(group)),
    "signal": _signal,
    "asked_again": lambda group: int(group.asked_again),
    "chance": _chance,
    "size": lambda group: len(group.rollouts),
    "oracle": lambda group: _brief(group.oracle),
}
_ROLLOUT_COLUMNS: Mapping[str, Callable[[StoredRollout], Any]] = {
    "status": lambda rollout: _STATUSES.index(rollout.status),
    "reward": lambda rollout: _rounded(rollout.score),
    "score": lambda rollout: _rounded(rollout.raw_score),
    "solved": lambda rollout: int(rollout.solved),
    "tokens": lambda rollout: rollout.length,
    "truncated": lambda rollout: int(rollout.truncated),
    "answer": lambda rollout: _brief(rollout.answer),
    "format_failure": lambda rollout: int(rollout.status in FORMAT_FAILURES),
}
