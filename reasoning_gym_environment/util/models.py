"""Validation of JSON from outside by msgspec models."""

from __future__ import annotations

import json
import re
from typing import Any, TypeVar

import msgspec

from .values import replace_surrogates

Model = TypeVar("Model")


def validate(value: Any, model: type[Model]) -> Model:
    """Convert plain JSON, as `json.loads` returns it, to a model.

    Raises:
        ValueError: it doesn't fit; the message is one sentence with the key and the bad value.

    Example:
        >>> validate([[1, 2], [3, "4"]], list[list[int]])
        Traceback (most recent call last):
        ValueError: [1][1] must be int, got '4'
    """
    try:
        return msgspec.convert(value, model)
    except msgspec.ValidationError as error:
        raise ValueError(_describe(str(error), value)) from None
    except UnicodeEncodeError:  # a lone surrogate in a key or an enumeration's value
        text, _ = replace_surrogates(json.dumps(value, ensure_ascii=False))
        return validate(json.loads(text), model)


def _describe(error: str, value: Any) -> str:
    """Turn msgspec's message into a sentence; it names places as in `$.rollouts[0].score`."""
    message, _, path = error.partition(" - at `$")
    path = path.strip("`.")
    if message.startswith("Expected ") and "[...]" not in path:
        for key in re.findall(r"\w+", path):
            value = value[int(key)] if isinstance(value, list) else value[key]
        expected = message.removeprefix("Expected ").partition(", got")[0].replace("`", "")
        return f"{path or 'the value'} must be {expected}, got {value!r:.50}"
    message = message[0].lower() + message[1:]
    return f"{path}: {message}" if path else message
