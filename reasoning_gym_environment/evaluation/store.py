"""An evaluation's results on disk; an interrupted evaluation can resume.

`run.json` holds the settings. While the evaluation runs, `samples.partial.jsonl` holds every
finished sample, and `attempts.partial.jsonl` the completions of unfinished ones; `samples.jsonl`,
all samples in order, and `metrics.json` follow at the end.
"""

from __future__ import annotations

import itertools
import json
import logging
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from msgspec import Struct, to_builtins

from ..errors import ConfigurationError, FixableError
from ..records import Completion, recipe_key
from ..storage.dumps import read_rows, require_no_rescored
from ..storage.rows import StoredGroup
from ..util.concurrency import DaemonWriter
from ..util.files import (
    LockFile,
    append_whole,
    read_regular,
    stays_below,
    write_whole,
)
from ..util.values import convert
from .metrics import EvaluationReport
from .options import COMMAND
from .tables import evaluation_table, headline

RUN = "run.json"
SAMPLES = "samples.jsonl"
METRICS = "metrics.json"
PARTIAL_SAMPLES = "samples.partial.jsonl"
PARTIAL_ATTEMPTS = "attempts.partial.jsonl"

RULE_BEFORE = "seed"
"""The `split_rule` of evaluations that don't name theirs: seeds decided, and not questions."""

logger = logging.getLogger(__name__)


class _StoredCompletion(Struct, frozen=True, kw_only=True):
    """What grading needs of a completion.

    Attributes:
        usage: numbers of tokens of prompt and completion.
    """

    text: str
    finish_reason: str
    server_finish_reason: str | None
    usage: tuple[int, int]


class _StoredAttempts(Struct, frozen=True, kw_only=True):
    """The completions that one request returned."""

    question: str
    completions: list[_StoredCompletion]

    @classmethod
    def of(cls, question: str, completions: Sequence[Completion]) -> _StoredAttempts:
        stored = [
            _StoredCompletion(
                text=c.text,
                finish_reason=c.finish_reason,
                server_finish_reason=c.server_finish_reason,
                usage=(c.length - c.completion_tokens, c.completion_tokens),
            )
            for c in completions
        ]
        return cls(question=question, completions=stored)

    def line(self) -> str:
        """Return the stored row as an ASCII line."""
        return json.dumps(to_builtins(self)) + "\n"

    def read(self) -> list[Completion]:
        """Return the completions, without their tokens."""
        return [
            Completion(tokens=(), masks=(), logprobs=None, **to_builtins(stored))
            for stored in self.completions
        ]


class EvaluationStore:
    """The samples of one evaluation by `recipe_key`, stored in a folder as they finish.

    Attributes:
        attempts: the completions that were made for unfinished samples, by question.
    """

    def __init__(
        self,
        folder: Path,
        settings: Mapping[str, Any],
        folder_option: str = COMMAND.folder_option,
    ) -> None:
        """Open a new evaluation, or one whose results the same settings determine.

        Raises ConfigurationError for other settings; FixableError if it can't be read or written.
        """
        self._partial = folder / PARTIAL_SAMPLES
        self._partial_attempts = folder / PARTIAL_ATTEMPTS
        self.disk = DaemonWriter(folder)
        present = samples_in(folder)
        self.attempts = _attempts_in(folder)
        stored = settings_in(folder)
        old = stored or {}
        new = dict(settings)
        names = sorted(n for n in old.keys() | new.keys() if old.get(n) != new.get(n))
        if (present or self.attempts) and (names or stored is None):
            there = {name: old.get(name) for name in names}
            now = {name: new.get(name) for name in names}
            raise ConfigurationError(
                f"{folder} holds an evaluation with another {', '.join(names)} (there: {there}, "
                f"now: {now}): use the same settings to continue it, or another {folder_option}"
            )
        self.folder = folder
        self._folder_option = folder_option
        self.samples = {
            recipe_key(sample.recipe): sample for sample in present if sample.scored
        }
        for sample in self.samples.values():
            self.attempts.pop(sample.question, None)
        with self._explained_errors():
            write_whole(
                folder / RUN, json.dumps({"settings": settings}, indent=2) + "\n"
            )
            write_whole(
                self._partial,
                "".join(sample.line() for sample in self.samples.values()),
            )
            self._write_attempts()

    def _write_attempts(self) -> None:
        """Write the attempts that are left, or no file if none is."""
        if not self.attempts:
            self._partial_attempts.unlink(missing_ok=True)
            return
        rows = (_StoredAttempts.of(*attempts) for attempts in self.attempts.items())
        write_whole(self._partial_attempts, "".join(row.line() for row in rows))

    @contextmanager
    def _explained_errors(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise FixableError(
                f"evaluation results can't be written to {self.folder} ({error}): free space, or "
                f"set another {self._folder_option}"
            ) from error

    async def add(self, sample: StoredGroup) -> None:
        """Store a sample; cancellation doesn't stop the write. Raises FixableError if it fails."""
        self.samples[recipe_key(sample.recipe)] = sample
        append = partial(append_whole, self._partial, sample.line().encode())
        with self._explained_errors():
            await self.disk.write(append, must_end=True)

    async def add_attempts(
        self, question: str, completions: Sequence[Completion]
    ) -> None:
        """Store completions of a sample that is not finished, as `add` stores one that is."""
        self.attempts.setdefault(question, []).extend(completions)
        line = _StoredAttempts.of(question, completions).line()
        append = partial(append_whole, self._partial_attempts, line.encode())
        with self._explained_errors():
            await self.disk.write(append, must_end=True)

    def complete(
        self, samples: Iterable[StoredGroup], results: Mapping[str, Any]
    ) -> None:
        """Write all samples in order, and `metrics.json`; raise FixableError if that fails."""
        with self._explained_errors():
            write_whole(
                self.folder / SAMPLES, "".join(sample.line() for sample in samples)
            )
            write_whole(self.folder / METRICS, json.dumps(results, indent=2))
            self._write_attempts()
        self._partial.unlink(missing_ok=True)

    def close(self) -> None:
        """Wait for pending writes for a while, then log the rest as lost."""
        lost = self.disk.close(patience=3.0)
        if lost:
            logger.error(
                "The disk of %s does not respond: %d samples lost", self.folder, lost
            )


@contextmanager
def locked(folder: Path, folder_option: str = COMMAND.folder_option) -> Iterator[None]:
    """Hold a folder while this process lives; raise FixableError if another evaluates into it."""
    lock = LockFile(folder / "evaluate.lock")
    try:
        if not lock.acquire():
            raise FixableError(
                f"{folder} is in use: {lock.holder or 'another process'} evaluates into it; wait "
                f"until it ends, or set another {folder_option}"
            )
        lock.sign()
    except OSError as error:
        logger.warning("%s can't be locked (%s)", lock.path, error)
    try:
        yield
    finally:
        lock.release()


def _attempts_in(folder: Path) -> dict[str, list[Completion]]:
    """Read the completions of a folder's unfinished samples, by question."""
    file = folder / PARTIAL_ATTEMPTS
    if not file.exists():
        return {}
    if not stays_below(file, folder):
        raise FixableError(f"{file} is not a regular file of its folder: delete it")
    attempts: defaultdict[str, list[Completion]] = defaultdict(list)
    for number, row in enumerate(read_rows(file).rows, start=1):
        try:
            stored = convert(row, _StoredAttempts)
        except ValueError as error:
            raise FixableError(
                f"{file}: row {number} is not an evaluation's attempts ({error}): delete the "
                "file, and they are made again"
            ) from error
        attempts[stored.question] += stored.read()
    return dict(attempts)


def samples_in(folder: Path) -> list[StoredGroup]:
    """Read a folder's samples, complete or not; those of `samples.partial.jsonl` come last."""
    samples: list[StoredGroup] = []
    for name in (SAMPLES, PARTIAL_SAMPLES):
        file = folder / name
        if not file.exists():
            continue
        if not stays_below(file, folder):
            raise FixableError(
                f"{file} is not a regular file of its folder: name the file"
            )
        samples += read_samples(file)
    return samples


def read_samples(path: Path) -> list[StoredGroup]:
    """Read a file's samples; raise FixableError if it can't be read or holds other rows."""
    samples = []
    for number, row in enumerate(read_rows(path).rows, start=1):
        try:
            sample = StoredGroup.from_json(row, file=path)
            if not sample.is_sample:
                raise ValueError("difficulty is missing: this row is a dump")
        except ValueError as error:
            raise FixableError(
                f"{path}: row {number} is not an evaluation sample ({error}); "
                "give a folder that `evaluate` has written, or its samples.jsonl"
            ) from error
        samples.append(sample)
    return samples


def settings_in(folder: Path) -> dict[str, Any] | None:
    """Read an evaluation's settings; None without any; raise FixableError if unreadable."""
    file = folder / RUN
    if not file.exists():
        return None
    try:
        if not stays_below(file, folder):
            raise OSError("it is not a regular file of its folder")
        content = read_regular(file)
        return convert(json.loads(content), dict[str, dict[str, Any]])["settings"]
    except (KeyError, OSError, ValueError, RecursionError) as error:
        raise FixableError(
            f"{file} can't be read ({type(error).__name__}: {error}): give another folder, or "
            "delete the file; its samples can then be compared, but not continued"
        ) from error


def write_metrics(path: Path, report: EvaluationReport) -> None:
    """Write an evaluation's metrics with Atropos's keys."""
    content = {"headline": headline(report), "results": {"all": report.numbers()}}
    write_whole(path, json.dumps(content, indent=2) + "\n")


def next_free_folder(folder: Path) -> Path:
    """Return the folder or, if it exists, the same name with a number."""
    numbered = (folder.with_name(f"{folder.name}-{n}") for n in itertools.count(2))
    return next(
        path for path in itertools.chain([folder], numbered) if not path.exists()
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class EvaluationResults:
    """An evaluation read from disk: each item once, and the settings as far as stored.

    Attributes:
        missing_items: what its set lacks, as in `metrics.json`; empty without that file.
    """

    path: Path
    samples: tuple[StoredGroup, ...]
    settings: Mapping[str, Any]
    missing_items: Sequence[Mapping[str, Any]] = ()

    @property
    def library_versions(self) -> list[str]:
        """The versions of reasoning-gym that made the items, sorted."""
        return sorted({sample.library_version for sample in self.samples})

    @property
    def split_rule(self) -> str | None:
        """What decided the side of its questions; None of a suite, or without settings."""
        if "eval_seed" not in self.settings or self.settings.get("suite"):
            return None
        return str(self.settings.get("split_rule", RULE_BEFORE))

    def differing(self, results: EvaluationResults) -> dict[str, tuple[Any, Any]]:
        """Return the settings known of both that differ, with both values."""
        differing = {}
        for name in sorted(self.settings.keys() & results.settings.keys()):
            values = (self.settings[name], results.settings[name])
            if values[0] != values[1]:
                differing[name] = values
        return differing


@dataclass(frozen=True, kw_only=True, slots=True)
class FinishedEvaluation(EvaluationResults):
    """The results of an evaluation that has just ended, which are on disk, too.

    Attributes:
        report: its metrics; `report.numbers()` are those of `metrics.json`.
    """

    report: EvaluationReport

    def table(self) -> str:
        """Return the table that the command prints."""
        return evaluation_table(self.report)


def read_results(path: str | Path) -> EvaluationResults:
    """Read an evaluation's folder, complete or not, or file; raise FixableError without samples."""
    path = Path(path)
    if not path.exists():
        raise FixableError(f"{path} does not exist")
    if path.is_dir():
        require_no_rescored(path, [path / SAMPLES])
    samples = samples_in(path) if path.is_dir() else read_samples(path)
    if not samples:
        raise FixableError(
            f"{path} holds no evaluation samples; is it a folder of `evaluate`?"
        )
    items = {sample.item_key: sample for sample in samples}
    folder = path if path.is_dir() else path.parent
    settings = {**(settings_in(folder) or {}), **_sample_settings(samples)}
    return EvaluationResults(
        path=path,
        samples=tuple(items.values()),
        settings=settings,
        missing_items=_missing_items_in(folder),
    )


class _MissingItem(Struct):
    recipe: dict[str, Any]
    difficulty: float | None
    reason: str


class _Metrics(Struct):
    """The part of `metrics.json` that names missing items."""

    missing_items: list[_MissingItem] = []


def _missing_items_in(folder: Path) -> Sequence[Mapping[str, Any]]:
    """Return what an evaluation's set lacks; nothing where no file tells."""
    file = folder / METRICS
    if not file.exists() or not stays_below(file, folder):
        return ()
    try:
        missing = convert(json.loads(read_regular(file)), _Metrics).missing_items
        return [to_builtins(item) for item in missing]
    except (OSError, ValueError, RecursionError) as error:
        raise FixableError(
            f"{file} can't be read ({type(error).__name__}: {error}): give another folder, or "
            "delete the file; what its evaluation set lacks is then unknown"
        ) from error


def _sample_settings(samples: Iterable[StoredGroup]) -> dict[str, Any]:
    """Return the settings in the samples: rescored ones differ from their folder's.

    A setting with several values in one file is their list.
    """
    values: defaultdict[str, list[Any]] = defaultdict(list)
    for sample in samples:
        settings = dict(sample.scoring)
        if sample.library_versions:
            settings["library_versions"] = sample.library_versions
        for name, value in settings.items():
            if value not in values[name]:
                values[name].append(value)
    return {
        name: values_of_name[0] if len(values_of_name) == 1 else values_of_name
        for name, values_of_name in values.items()
    }
