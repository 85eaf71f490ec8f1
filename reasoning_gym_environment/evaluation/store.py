"""Keeps an evaluation on disk so that it can go on after an interruption, and reads it back.

`run.json` holds the settings, `samples.partial.jsonl` every finished sample while the evaluation
runs; `samples.jsonl` all samples in their order, and `metrics.json`, once it is complete.
"""

from __future__ import annotations

import asyncio
import itertools
import json
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..errors import ConfigurationError, FixableError
from ..storage.dumps import read_rows
from ..storage.rows import StoredGroup, recipe_key
from ..util.files import append_whole, write_whole
from .metrics import EvaluationReport

RUN, SAMPLES, METRICS = "run.json", "samples.jsonl", "metrics.json"
PARTIAL = "samples.partial.jsonl"


class EvaluationStore:
    """Keeps the samples of one evaluation as they finish.

    Attributes:
        folder: where it is.
        samples: by `recipe_key`: what is finished, from before or from now.
    """

    def __init__(self, folder: Path, settings: Mapping[str, Any]) -> None:
        """Open a new evaluation, or one with the same settings.

        Args:
            settings: plain JSON, all that determines the results.

        Raises:
            ConfigurationError: the folder holds an evaluation with other settings.
            FixableError: the folder can't be written to, or what it holds can't be read.
        """
        self._partial = folder / PARTIAL
        self._writing = asyncio.Lock()
        present = samples_in(folder)
        require_same_settings(folder, settings, begun=bool(present))
        self.folder = folder
        self.samples = {recipe_key(each.recipe): each for each in present if each.scored}
        try:
            write_whole(folder / RUN, json.dumps({"settings": settings}, indent=2) + "\n")
            write_whole(self._partial, "".join(sample.line() for sample in self.samples.values()))
        except OSError as error:
            raise self._unwritable(error) from error

    def _unwritable(self, error: OSError) -> FixableError:
        return FixableError(
            f"evaluation results can't be written to {self.folder} ({error}): free space, or set "
            "another --env.data_dir_to_save_evals"
        )

    async def add(self, sample: StoredGroup) -> None:
        """Keep a sample; return when it is on disk. Cancelling does not stop it.

        Raises:
            FixableError: it can't be written.
        """
        try:
            await asyncio.shield(self._add(sample))
        except OSError as error:
            raise self._unwritable(error) from error

    async def _add(self, sample: StoredGroup) -> None:
        self.samples[recipe_key(sample.recipe)] = sample
        async with self._writing:
            await asyncio.to_thread(append_whole, self._partial, sample.line().encode())

    def complete(self, samples: Iterable[StoredGroup], results: Mapping[str, Any]) -> None:
        """Write all samples in their order, and `metrics.json`.

        Raises:
            FixableError: they can't be written; what was kept on the way stays.
        """
        try:
            write_whole(self.folder / SAMPLES, "".join(sample.line() for sample in samples))
            write_whole(self.folder / METRICS, json.dumps(results, indent=2))
        except OSError as error:
            raise self._unwritable(error) from error
        self._partial.unlink(missing_ok=True)


def samples_in(folder: Path) -> list[StoredGroup]:
    """Read all samples of a folder, complete or not; those kept on the way come last.

    Raises:
        FixableError: as `read_samples`.
    """
    files = [folder / name for name in (SAMPLES, PARTIAL)]
    return [sample for file in files if file.exists() for sample in read_samples(file)]


def read_samples(path: Path) -> list[StoredGroup]:
    """Read the samples of a file.

    Raises:
        FixableError: the file can't be read, or holds something else.
    """
    samples = []
    for number, row in enumerate(read_rows(path).rows, start=1):
        try:
            sample = StoredGroup.from_json(row, file=path)
            if not sample.is_sample:
                raise ValueError("it lacks difficulty")
        except ValueError as error:
            raise FixableError(
                f"{path}: row {number} is no evaluation sample ({error}); "
                "give a folder that `evaluate` has written, or its samples.jsonl"
            ) from error
        samples.append(sample)
    return samples


def settings_in(folder: Path) -> dict[str, Any] | None:
    """Read the settings of an evaluation; None where there are none.

    Raises:
        FixableError: they can't be read.
    """
    file = folder / RUN
    if not file.exists():
        return None
    try:
        return dict(json.loads(file.read_text())["settings"])
    except (OSError, LookupError, TypeError, ValueError) as error:
        raise FixableError(
            f"{file} can't be read ({type(error).__name__}: {error}): give another folder, or "
            "delete the file; its samples can then be compared, but not continued"
        ) from error


def differing(one: Mapping[str, Any], other: Mapping[str, Any]) -> list[str]:
    """Name the settings that differ.

    Example:
        >>> differing({"seed": 1, "model": "a"}, {"seed": 2, "model": "a"})
        ['seed']
    """
    return sorted(n for n in one.keys() | other.keys() if one.get(n) != other.get(n))


def require_same_settings(folder: Path, settings: Mapping[str, Any], *, begun: bool) -> None:
    """Raise ConfigurationError, with what differs, when the folder is another evaluation's."""
    before = settings_in(folder)
    names = differing(before or {}, settings)
    if not begun or (before is not None and not names):
        return
    there = {name: (before or {}).get(name) for name in names}
    here = {name: settings.get(name) for name in names}
    raise ConfigurationError(
        f"{folder} holds an evaluation with another {', '.join(names)} (there: {there}, now: "
        f"{here}): use the same settings to continue it, or another data_dir_to_save_evals"
    )


def write_metrics(path: Path, report: EvaluationReport) -> None:
    """Write an evaluation's numbers as Atropos does."""
    write_whole(path, json.dumps({"results": {"all": report.numbers()}}, indent=2) + "\n")


def unused(folder: Path) -> Path:
    """Give the folder or, where something is there already, one beside it with a number."""
    beside = (folder.with_name(f"{folder.name}-{n}") for n in itertools.count(2))
    return next(path for path in itertools.chain([folder], beside) if not path.exists())


@dataclass(frozen=True, kw_only=True, slots=True)
class EvaluationResults:
    """An evaluation read back.

    Attributes:
        path: where it was read.
        samples: each item once.
        settings: what determined them, as far as it is kept.
    """

    path: Path
    samples: tuple[StoredGroup, ...]
    settings: Mapping[str, Any]

    @property
    def tasks(self) -> frozenset[str]:
        return frozenset(sample.task for sample in self.samples)

    def differing(self, other: EvaluationResults) -> dict[str, tuple[Any, Any]]:
        """Find the settings known of both that differ, with both values."""
        names = sorted(self.settings.keys() & other.settings.keys())
        both = {name: (self.settings[name], other.settings[name]) for name in names}
        return {name: (one, another) for name, (one, another) in both.items() if one != another}


def read_results(path: Path) -> EvaluationResults:
    """Read an evaluation's folder, complete or not, or a samples file.

    Raises:
        FixableError: there are no evaluation samples, or something that can't be read.
    """
    if not path.exists():
        raise FixableError(f"there is no {path}")
    samples = samples_in(path) if path.is_dir() else read_samples(path)
    if not samples:
        raise FixableError(f"{path} holds no evaluation samples; is it a folder of `evaluate`?")
    items = {sample.item_key: sample for sample in samples}
    folder = path if path.is_dir() else path.parent
    settings = {**(settings_in(folder) or {}), **said_by(samples)}
    return EvaluationResults(path=path, samples=tuple(items.values()), settings=settings)


def said_by(samples: Iterable[StoredGroup]) -> dict[str, Any]:
    """Collect the settings that samples carry: rescored ones have others than their folder.

    Where the samples of one file disagree, a setting is the list of its values.
    """
    values: defaultdict[str, list[Any]] = defaultdict(list)
    for sample in samples:
        said = {name: sample.about[name] for name in ("library_versions",) if name in sample.about}
        for name, value in {**sample.scoring, **said}.items():
            if value not in values[name]:
                values[name].append(value)
    return {name: known[0] if len(known) == 1 else known for name, known in values.items()}
