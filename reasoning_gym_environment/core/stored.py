"""What a stored rollout says: its question and its completion."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


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
