"""An evaluation on disk: settings, samples as they finish, and how to go on after an interruption.

`run.json` holds the settings, `samples.partial.jsonl` every finished sample while the evaluation
runs; `samples.jsonl` all samples in their order, and `metrics.json`, once it is complete.
"""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from ..errors import ConfigurationError, FixableError
from ..storage.dumps import append_whole, read_dump
from ..util.files import replacing
from .evaluated import item_from_row

RUN, SAMPLES, METRICS = "run.json", "samples.jsonl", "metrics.json"
PARTIAL = "samples.partial.jsonl"


class EvaluationStore:
    """The samples of one evaluation.

    Attributes:
        folder: where it is.
        rows: samples by `recipe_key`: what is finished, from before or from now.
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
        present = stored_samples(folder)
        require_same_settings(folder, settings, begun=bool(present))
        self.folder = folder
        self.rows = {recipe_key(row["recipe"]): row for row in present if is_finished(row)}
        try:
            write_whole(folder / RUN, json.dumps({"settings": settings}, indent=2) + "\n")
            write_whole(self._partial, "".join(map(_line, self.rows.values())))
        except OSError as error:
            raise self._unwritable(error) from error

    def _unwritable(self, error: OSError) -> FixableError:
        return FixableError(
            f"evaluation results can't be written to {self.folder} ({error}): free space, or set "
            "another --env.data_dir_to_save_evals"
        )

    async def add(self, row: dict[str, Any]) -> None:
        """Returns when the row is on disk; cancelling does not stop it.

        Raises:
            FixableError: it can't be written.
        """
        try:
            await asyncio.shield(self._add(row))
        except OSError as error:
            raise self._unwritable(error) from error

    async def _add(self, row: dict[str, Any]) -> None:
        self.rows[recipe_key(row["recipe"])] = row
        async with self._writing:
            await asyncio.to_thread(append_whole, self._partial, _line(row).encode())

    def complete(self, rows: Iterable[Mapping[str, Any]], results: Mapping[str, Any]) -> None:
        """Write all samples in their order, and `metrics.json`.

        Raises:
            FixableError: they can't be written; what was kept on the way stays.
        """
        try:
            write_whole(self.folder / SAMPLES, "".join(map(_line, rows)))
            write_whole(self.folder / METRICS, json.dumps(results, indent=2))
        except OSError as error:
            raise self._unwritable(error) from error
        self._partial.unlink(missing_ok=True)


def stored_samples(folder: Path) -> list[dict[str, Any]]:
    """All samples of a folder, complete or not; those kept on the way come last.

    Raises:
        FixableError: as `read_samples`.
    """
    files = [folder / name for name in (SAMPLES, PARTIAL)]
    return [row for file in files if file.exists() for row in read_samples(file)]


def read_samples(path: Path) -> list[dict[str, Any]]:
    """The samples of a file.

    Raises:
        FixableError: the file can't be read, or holds something else.
    """
    try:
        rows = read_dump(path).rows
    except OSError as error:
        raise FixableError(f"{path} can't be read: {error.strerror}") from error
    for number, row in enumerate(rows, start=1):
        try:
            item_from_row(row)
        except (AttributeError, LookupError, TypeError, ValueError) as error:
            raise FixableError(
                f"{path}: row {number} is no evaluation sample ({type(error).__name__}: {error}); "
                "give a folder that `evaluate` has written, or its samples.jsonl"
            ) from error
    return rows


def stored_settings(folder: Path) -> dict[str, Any] | None:
    """The settings of an evaluation; None where there are none.

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
    """The names of the settings that differ.

    Example:
        >>> differing({"seed": 1, "model": "a"}, {"seed": 2, "model": "a"})
        ['seed']
    """
    return sorted(n for n in one.keys() | other.keys() if one.get(n) != other.get(n))


def require_same_settings(folder: Path, settings: Mapping[str, Any], *, begun: bool) -> None:
    """Raises ConfigurationError, with what differs, when the folder is another evaluation's."""
    before = stored_settings(folder)
    names = differing(before or {}, settings)
    if not begun or (before is not None and not names):
        return
    there = {name: (before or {}).get(name) for name in names}
    here = {name: settings.get(name) for name in names}
    raise ConfigurationError(
        f"{folder} holds an evaluation with another {', '.join(names)} (there: {there}, now: "
        f"{here}): use the same settings to continue it, or another data_dir_to_save_evals"
    )


def is_finished(row: Mapping[str, Any]) -> bool:
    """Whether anything was scored; where every request failed, they are made again."""
    return any(rollout["raw_score"] is not None for rollout in row["rollouts"])


def recipe_key(recipe: Mapping[str, Any]) -> str:
    """Names an item within one evaluation set by its recipe, as JSON."""
    return json.dumps(recipe, sort_keys=True)


def write_whole(path: Path, text: str) -> None:
    """Replace a file; what it held stays where that fails."""
    with replacing(path) as whole:
        whole.write_text(text)


def _line(row: Mapping[str, Any]) -> str:
    return json.dumps(row) + "\n"


def unused(folder: Path) -> Path:
    """The folder, or where something is there already, one beside it with a number."""
    beside = (folder.with_name(f"{folder.name}-{n}") for n in itertools.count(2))
    return next(path for path in itertools.chain([folder], beside) if not path.exists())
