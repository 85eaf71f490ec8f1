"""What a stored row says: that it is one, its question and its completions."""

from __future__ import annotations

from collections.abc import Mapping
from sys import float_info
from typing import Any

from ..records import Status

_NUMBER = (int, float)
_NUMBER_OR_NULL = (int, float, type(None))
_TEXT_OR_NULL = (str, type(None))
_ROW = {"item_id": str, "recipe": dict, "oracle": _TEXT_OR_NULL, "rollouts": list}
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
    if not row["rollouts"]:
        raise ValueError("it has no rollouts")
    for rollout in row["rollouts"]:
        _require(rollout, _ROLLOUT)
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
        finite = not isinstance(value, _NUMBER) or abs(value) <= float_info.max
        if not isinstance(value, kind) or not finite:
            raise ValueError(f"{key} is {value!r:.50}")


def prompt(rollout: Mapping[str, Any]) -> list[dict[str, str]]:
    """The messages before the completion."""
    messages: list[dict[str, str]] = rollout["conversation"]
    return messages[:-1]


def completion(rollout: Mapping[str, Any]) -> str:
    """What the model wrote."""
    text: str = rollout["conversation"][-1]["content"]
    return text


def question(rollout: Mapping[str, Any]) -> str:
    """The last message of the user; empty where there is none.

    Example:
        >>> question({"conversation": [{"role": "user", "content": "2+2?"},
        ...                            {"role": "assistant", "content": "4"}]})
        '2+2?'
    """
    said = (
        message["content"] for message in reversed(prompt(rollout)) if message["role"] == "user"
    )
    return next(said, "")
