"""Evaluation results read back from disk."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..core.errors import FixableError
from ..core.evaluated import EvaluatedItem, item_from_row
from .dumps import read_dump
from .evaluation_store import differing, stored_samples, stored_settings


@dataclass(frozen=True, kw_only=True, slots=True)
class EvaluationResults:
    """Attributes:
    path: where they were read.
    settings: what determined them; None where they aren't kept.
    """

    path: Path
    items: tuple[EvaluatedItem, ...]
    settings: Mapping[str, Any] | None

    @property
    def tasks(self) -> frozenset[str]:
        return frozenset(item.task for item in self.items)

    def differing(self, other: EvaluationResults) -> dict[str, tuple[Any, Any]]:
        """The settings that differ, with both values; none where one has none."""
        if self.settings is None or other.settings is None:
            return {}
        names = differing(self.settings, other.settings)
        return {name: (self.settings.get(name), other.settings.get(name)) for name in names}


def read_results(path: Path) -> EvaluationResults:
    """Read an evaluation's folder, complete or not, or a samples file.

    Raises:
        FixableError: there are no evaluation samples.
    """
    if not path.exists():
        raise FixableError(f"there is no {path}")
    rows = stored_samples(path) if path.is_dir() else read_dump(path).rows
    try:
        items = {item.key: item for item in map(item_from_row, rows)}
    except (KeyError, TypeError, ValueError) as error:
        raise FixableError(
            f"{path} holds a row that is no evaluation sample ({type(error).__name__}: {error}); "
            "give a folder that `evaluate` has written, or its samples.jsonl"
        ) from error
    if not items:
        raise FixableError(f"{path} holds no evaluation samples; is it a folder of `evaluate`?")
    folder = path if path.is_dir() else path.parent
    return EvaluationResults(
        path=path, items=tuple(items.values()), settings=stored_settings(folder)
    )
