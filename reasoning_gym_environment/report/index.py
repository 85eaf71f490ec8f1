"""The columnar index of stored groups, from which the page computes every figure.

The page loads the texts of a group when it shows it. The index grows by group, and hands out what
came since, so that a page can follow a run.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping
from hashlib import blake2b
from pathlib import Path
from statistics import fmean
from typing import Any

from ..evaluation.comparison import Item
from ..records import FORMAT_FAILURES, Signal, Status
from ..storage.rows import StoredGroup, StoredRollout
from ..storage.run_record import RunRecord, read_run
from ..tasks.facts import floors, ladder_heights, level_floors
from .identity import (
    TRAINING,
    category_of,
    group_id,
    run_of,
    split_of,
    training_name,
)
from .runs import RunEntry
from .times import seconds_of

LAYOUT_VERSION = 2
"""Of the index's columns; the page refuses another one."""

PROBLEM_HASH_BYTES = 8
"""Of the hash that stands for a problem's key or a question, which may be long."""

ALL = ""
"""The label of all difficulties together."""

_STATUSES = list(Status)


class GroupIndex:
    """Columns of the groups added so far; each task, run and problem has a number from 0."""

    def __init__(self) -> None:
        self.runs: dict[str, RunEntry] = {}
        self._run_numbers: dict[str, int] = {}
        self._tasks: dict[str, dict[str, Any]] = {}
        self._task_numbers: dict[str, int] = {}
        self._names: list[str] = []  # of the tasks, by number
        self._problems: dict[bytes, int] = {}
        self._questions: dict[bytes, int] = {}
        self._copies: Counter[str] = Counter()  # groups by identifier
        # By group; the last one is the number of all rollouts.
        self._first_rollouts = [0]
        names = ("id", "at", *_GROUP_COLUMNS, "run", "task", "problem", "question")
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
        # All values come before the first column grows: an error leaves the columns equally long.
        values = {
            "at": at,
            "task": self._task(group),
            "problem": self._problem(group),
            "question": self._question(group),
            **{name: value(group) for name, value in _GROUP_COLUMNS.items()},
        }
        rollout_values = [
            {name: value(rollout) for name, value in _ROLLOUT_COLUMNS.items()}
            for rollout in group.rollouts
        ]
        values["run"] = self._run(group)
        self._copies[identifier] += 1
        copy = self._copies[identifier]
        if copy > 1:  # the same row twice, or an accident
            identifier = f"{identifier}-{copy}"
        values["id"] = identifier
        for name, column in self._groups.items():
            column.append(values[name])
        for of_rollout in rollout_values:
            for name, column in self._rollouts.items():
                column.append(of_rollout[name])
        self._first_rollouts.append(self._first_rollouts[-1] + len(group.rollouts))
        return identifier

    def identifier(self, number: int) -> str:
        """Return the identifier of the group with that number."""
        return str(self._groups["id"][number])

    def rollouts_of(self, run: str, number: int) -> int:
        """Return how many rollouts the group with that number has; 0 if it is another run's."""
        if self._groups["run"][number] != self._run_numbers[run]:
            return 0
        return self._first_rollouts[number + 1] - self._first_rollouts[number]

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
            for key in (ALL, label):
                items[key][groups["problem"][group]] = item
        return dict(items)

    def _item(self, group: int) -> Item | None:
        """Return the means of a group; None without a scored rollout."""
        rollouts = range(self._first_rollouts[group], self._first_rollouts[group + 1])
        columns = self._rollouts
        scored = [
            rollout for rollout in rollouts if columns["score"][rollout] is not None
        ]
        if not scored:
            return None
        return Item(
            task=self._names[self._groups["task"][group]],
            question=self._groups["question"][group],
            attempts=len(scored),
            solved=fmean(columns["solved"][rollout] for rollout in scored),
            score=fmean(columns["score"][rollout] for rollout in scored),
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
        return _number(self._problems, group.item_key)

    def _question(self, group: StoredGroup) -> int:
        """Return the same number for problems that ask the same question."""
        return _number(self._questions, f"{group.task}\0{group.question}")


def _number(numbers: dict[bytes, int], text: str) -> int:
    """Return a text's number, the next one if it is new."""
    # Rows may hold lone surrogates, which UTF-8 can't encode.
    key = text.encode("utf-8", "surrogatepass")
    digest = blake2b(key, digest_size=PROBLEM_HASH_BYTES).digest()
    return numbers.setdefault(digest, len(numbers))


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
