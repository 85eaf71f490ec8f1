"""What pydantic refuses, in sentences."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .logs import WITHHELD

if TYPE_CHECKING:
    from pydantic import ValidationError

_SECRET = "api_key"


def describe_validation(error: ValidationError, *, of: str = "") -> str:
    """Say each bad value in a sentence of its own, an API key's without the key.

    Args:
        of: begins the settings' names.
    """
    sentences = []
    for problem in error.errors():
        name = ".".join(str(part) for part in problem["loc"])
        message = problem["msg"].removeprefix("Value error, ")
        value = WITHHELD if name == _SECRET else repr(problem["input"])
        sentences.append(f"{of}{name} is {value}: {message}" if name else message)
    return "; ".join(sentences)
