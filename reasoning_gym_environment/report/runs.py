"""A run or an evaluation of a page: its name, its settings, and what its files say of it now."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime, timezone
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from msgspec import structs

from ..errors import FixableError
from ..evaluation.store import METRICS, RUN, settings_in
from ..storage.rows import StoredGroup
from ..storage.run_record import RunRecord
from .identity import RUN_NAME_LENGTH, TRAINING

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
    "answer_format": "answer format",
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
    outcomes: Mapping[str, int] = MappingProxyType({})
    servers: tuple[dict[str, Any], ...] = ()
    waits: tuple[dict[str, Any], ...] = ()
    events: tuple[dict[str, Any], ...] = ()
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
        versions = {
            name: str(version) for name, version in group.library_versions.items()
        }
        self.groups += 1
        self.versions.update(versions)
        if group.step is not None:
            self.step = max(self.step or 0, group.step)
        self.last_number = max(self.last_number, group.number)
        self.numbered = self.numbered and group.number > 0
        threshold = group.solved_threshold
        rule = (
            "right answers" if threshold is None else f"scores of {threshold} and more"
        )
        if group.answer_format != "tags":
            rule += f" ({group.answer_format})"
        self.rules.add(rule)
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
            "groups": self.groups,
            "target": _target(files.settings),
            "outcomes": dict(files.outcomes),
            "servers": list(files.servers),
            "waits": list(files.waits),
            "events": list(files.events),
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
            outcomes=record.outcomes,
            servers=tuple(map(structs.asdict, record.servers)),
            waits=tuple(map(structs.asdict, record.waits)),
            events=tuple(map(structs.asdict, record.events)),
            warnings=tuple(map(structs.asdict, record.warnings)),
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


def _target(settings: Mapping[str, Any]) -> float | None:
    """Return the solved share that a curriculum aims at; None without one."""
    target = settings.get("curriculum_target_accuracy")
    has_curriculum = settings.get("complexity_mode") == "curriculum"
    return float(target) if has_curriculum and isinstance(target, int | float) else None


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
