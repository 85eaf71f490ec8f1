"""Evaluation results read back from disk."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..errors import FixableError
from .evaluated import EvaluatedItem, item_from_row
from .store import read_samples, stored_samples, stored_settings


@dataclass(frozen=True, kw_only=True, slots=True)
class EvaluationResults:
    """Attributes:
    path: where they were read.
    settings: what determined them, as far as it is kept.
    """

    path: Path
    items: tuple[EvaluatedItem, ...]
    settings: Mapping[str, Any]

    @property
    def tasks(self) -> frozenset[str]:
        return frozenset(item.task for item in self.items)

    def differing(self, other: EvaluationResults) -> dict[str, tuple[Any, Any]]:
        """The settings known of both that differ, with both values."""
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
    rows = stored_samples(path) if path.is_dir() else read_samples(path)
    if not rows:
        raise FixableError(f"{path} holds no evaluation samples; is it a folder of `evaluate`?")
    items = {item.key: item for item in map(item_from_row, rows)}
    folder = path if path.is_dir() else path.parent
    settings = {**(stored_settings(folder) or {}), **said_by(rows)}
    return EvaluationResults(path=path, items=tuple(items.values()), settings=settings)


def said_by(rows: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """The settings that samples carry: rescored ones have others than their folder.

    Where the samples of one file disagree, a setting is the list of its values.
    """
    values: defaultdict[str, list[Any]] = defaultdict(list)
    for row in rows:
        said = {name: row[name] for name in ("library_versions",) if name in row}
        for name, value in {**row.get("scoring", {}), **said}.items():
            if value not in values[name]:
                values[name].append(value)
    return {name: known[0] if len(known) == 1 else known for name, known in values.items()}
