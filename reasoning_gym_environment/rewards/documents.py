"""JSON from outside: read within bounds, and refused in a sentence."""

from __future__ import annotations

import math
import re
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError
from pydantic_core import from_json

from ..tasks.recipes import shown
from .refusals import Refusal

_LARGE = re.compile(rb"[eE]\+?0*[1-9][0-9]{2}|[0-9]{300}")
"""Where a number stands that may be too large for a float, if it stands in no text."""

Message = TypeVar("Message", bound=BaseModel)


def read_json(text: bytes | str, what: str) -> Any:
    """Read JSON that is at most 200 levels deep and has finite numbers alone.

    Args:
        what: names it in the message.

    Raises:
        Refusal: it is no such JSON.
    """
    try:
        value = from_json(text, allow_inf_nan=False)
    except ValueError as error:
        raise Refusal(400, f"{what} is no JSON: {error}") from None
    if _LARGE.search(text if isinstance(text, bytes) else text.encode()):
        _require_finite(value, what)
    return value


def _require_finite(value: Any, what: str) -> None:
    """Refuse a number such as 1e999, which is infinite once it is read."""
    ahead = [value]
    while ahead:
        match ahead.pop():
            case float() as number if not math.isfinite(number):
                raise Refusal(400, f"{what} holds a number that is too large")
            case list() as values:
                ahead += values
            case dict() as members:
                ahead += members.values()


def read_message(model: type[Message], body: bytes) -> Message:
    """Read a request's body; the Refusal names the field and its value."""
    value = read_json(body, "the body")
    try:
        return model.model_validate(value)
    except ValidationError as error:
        [first, *_] = error.errors(include_url=False)
        field = ".".join(map(str, first["loc"])) or "the body"
        message = f"{field}: {first['msg']}; it is {shown(first['input'])}"
        raise Refusal(422, message) from None
