"""Checks what a stored row must hold, as JSON, for `StoredGroup.from_json` to read it."""

from __future__ import annotations

from collections.abc import Mapping
from math import isfinite
from typing import Any

from ..records import Status
from ..tasks.recipes import read_recipe

SCHEMA_VERSION = 1

_MOST = 2**53
"""The largest whole number that every reader keeps whole: JSON's, Arrow's, a double."""

_NUMBER = (int, float)
_NUMBER_OR_NULL = (int, float, type(None))
_TEXT_OR_NULL = (str, type(None))
_ROW = {
    "item_id": str,
    "recipe": dict,
    "oracle": _TEXT_OR_NULL,
    "rollouts": list,
    "schema_version": int,
}
_SINCE = {"scoring": dict, "library_versions": dict, "time": str, "difficulty": _NUMBER_OR_NULL}
"""What rows may lack."""

_RECIPE = {"task": str, "seed": int, "level": _NUMBER_OR_NULL, "parameters": dict}
_ROLLOUT = {
    "conversation": list,
    "score": _NUMBER,
    "answer": _TEXT_OR_NULL,
    "status": str,
    "detail": str,
    "raw_score": _NUMBER_OR_NULL,
    "raw_form_score": _NUMBER_OR_NULL,
    "tagged_form_score": _NUMBER_OR_NULL,
    "length_factor": _NUMBER,
    "finish_reason": str,
    "tokens": int,
    "completion_tokens": int,
}
_MESSAGE = {"role": str, "content": str}


def require_group(row: Mapping[str, Any]) -> None:
    """Check what every reader of rows relies on.

    Raises:
        ValueError: the row is no group's; the message says what is wrong with it.
    """
    _require(row, _ROW)
    _require(row, {key: kind for key, kind in _SINCE.items() if key in row})
    _require(row["recipe"], _RECIPE)
    if unknown := row["recipe"].keys() - _RECIPE.keys():
        raise ValueError(f"its recipe has an unknown {', '.join(sorted(unknown))}")
    read_recipe(row["recipe"])
    if row["item_id"] != row["recipe"]["task"]:
        raise ValueError(f"item_id is {row['item_id']!r:.50}, which is not its recipe's task")
    if not row["rollouts"]:
        raise ValueError("it has no rollouts")
    for rollout in row["rollouts"]:
        _require_rollout(rollout)


def _require_rollout(rollout: Any) -> None:
    _require(rollout, _ROLLOUT)
    if "verify_seconds" in rollout:
        _require(rollout, {"verify_seconds": _NUMBER})
    Status(rollout["status"])
    if not 0.0 <= (rollout["raw_score"] or 0.0) <= 1.0:
        raise ValueError(f"raw_score is {rollout['raw_score']}, which is not in [0, 1]")
    if not rollout["conversation"]:
        raise ValueError("a conversation is empty")
    for message in rollout["conversation"]:
        _require(message, _MESSAGE)


def _require(record: Any, kinds: Mapping[str, Any]) -> None:
    if not isinstance(record, dict):
        raise ValueError(f"{record!r:.50} is no JSON object")
    for key, kind in kinds.items():
        if key not in record:
            raise ValueError(f"it lacks {key}")
        value = record[key]
        if not isinstance(value, kind) or not _can_be_kept(value):
            raise ValueError(f"{key} is {value!r:.50}")


def _can_be_kept(value: object) -> bool:
    """Say whether a number can be written again in whatever format; no number is a truth value."""
    if isinstance(value, int):
        return not isinstance(value, bool) and abs(value) <= _MOST
    return not isinstance(value, float) or isfinite(value)
