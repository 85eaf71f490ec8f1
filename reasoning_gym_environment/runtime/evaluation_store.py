"""An evaluation on disk: settings, samples as they finish, and how to go on after an interruption.

`run.json` holds the settings, `samples.partial.jsonl` every finished sample while the evaluation
runs, `samples.jsonl` all samples in their order once it is complete.
"""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..core.errors import ConfigurationError, FixableError
from .dumps import append_whole, read_dump

RUN, SAMPLES, PARTIAL = "run.json", "samples.jsonl", "samples.partial.jsonl"


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
            FixableError: the folder can't be written to.
        """
        self._partial = folder / PARTIAL
        self._writing = asyncio.Lock()
        present = stored_samples(folder)
        require_same_settings(folder, settings, begun=bool(present))
        self.folder = folder
        self.rows = {recipe_key(row["recipe"]): row for row in present if is_finished(row)}
        try:
            folder.mkdir(parents=True, exist_ok=True)
            write_settings(folder / RUN, settings)
            end_torn_line(self._partial)
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
        line = (json.dumps(row) + "\n").encode()
        async with self._writing:
            await asyncio.to_thread(append_whole, self._partial, line)

    def complete(self) -> None:
        """The samples are in `samples.jsonl`: those kept on the way are no longer needed."""
        self._partial.unlink(missing_ok=True)


def stored_samples(folder: Path) -> list[dict[str, Any]]:
    """All samples of a folder, complete or not; those kept on the way come last."""
    files = [folder / name for name in (SAMPLES, PARTIAL)]
    return [row for file in files if file.exists() for row in read_dump(file).rows]


def stored_settings(folder: Path) -> dict[str, Any] | None:
    """The settings of an evaluation; None where there are none."""
    file = folder / RUN
    if not file.exists():
        return None
    settings: dict[str, Any] = json.loads(file.read_text())["settings"]
    return settings


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


def write_settings(path: Path, settings: Mapping[str, Any]) -> None:
    """Whole or not at all."""
    whole = path.with_suffix(".tmp")
    whole.write_text(json.dumps({"settings": settings}, indent=2) + "\n")
    whole.replace(path)


def end_torn_line(path: Path) -> None:
    """What is appended next begins a line of its own, whatever a crash has left behind."""
    if path.exists() and not path.read_bytes().endswith(b"\n"):
        append_whole(path, b"\n")


def unused(folder: Path) -> Path:
    """The folder, or where something is there already, one beside it with a number."""
    beside = (folder.with_name(f"{folder.name}-{n}") for n in itertools.count(2))
    return next(path for path in itertools.chain([folder], beside) if not path.exists())
