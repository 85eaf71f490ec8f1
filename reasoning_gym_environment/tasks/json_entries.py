"""Entries of the library that went through JSON, as rows of other programs hold them.

JSON makes lists of tuples and texts of numbers that are keys. What a verifier reads is put back as
it was; `tests/service/test_entries.py` proves by every task that verdicts are then the same.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from .catalogue import known_categories

_SEND_A_RECIPE = "send the recipe of a problem made by this package in its place"

_EVALUATED = "its verifier evaluates what the entry holds"
_UNCHECKED = "the entry has no answer of its own by which it could be checked"

NOT_SCORED = MappingProxyType(
    {
        "bitwise_arithmetic": _EVALUATED,
        "boxnet": _UNCHECKED,
        "graph_color": _UNCHECKED,
        "intermediate_integration": _EVALUATED,
        "number_sorting": _EVALUATED,
        "polynomial_multiplication": _EVALUATED,
        "propositional_logic": _UNCHECKED,
        "rubiks_cube": _UNCHECKED,
        "rush_hour": _UNCHECKED,
        "simple_integration": _EVALUATED,
    }
)
"""Tasks whose entries from outside can't be trusted, and why; their recipes can."""


def _tuples(value: Any) -> Any:
    return tuple(map(_tuples, value)) if isinstance(value, list) else value


def _list_of_tuples(value: Any) -> Any:
    return list(map(_tuples, value)) if isinstance(value, list) else value


_WAS: Mapping[str, tuple[str, Callable[[Any], Any]]] = MappingProxyType(
    {
        "advanced_geometry": ("ortho", _tuples),
        "arc_agi": ("output", _tuples),
        "complex_arithmetic": ("result", _tuples),
        "knight_swap": ("solution", _list_of_tuples),
        "rearc": ("output", _tuples),
    }
)
"""Task to the part of its metadata that its verifier reads and JSON changes, and how it was."""


def restored(entry: Mapping[str, Any]) -> dict[str, Any]:
    """Put back what JSON has changed in an entry.

    Args:
        entry: `question` and `answer`, both texts, and `metadata` with `source_dataset`.

    Raises:
        ValueError: it is no entry that can be scored; the message says why, and the way out.
    """
    metadata = entry["metadata"]
    task = metadata.get("source_dataset")
    if not isinstance(task, str) or task not in known_categories():
        raise ValueError(
            f"metadata.source_dataset is {task!r:.50}, which is no task of reasoning-gym"
        )
    if task in NOT_SCORED:
        raise ValueError(f"entries of {task} are not scored: {NOT_SCORED[task]}; {_SEND_A_RECIPE}")
    if entry["answer"] is None:
        raise ValueError(f"answer is null, so this {task} can't be checked; {_SEND_A_RECIPE}")
    if task in _WAS:
        name, as_it_was = _WAS[task]
        if name in metadata:
            metadata = {**metadata, name: as_it_was(metadata[name])}
    return {"question": entry["question"], "answer": entry["answer"], "metadata": dict(metadata)}
