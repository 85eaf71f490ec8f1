"""JSON from outside: read within bounds, and refused in a sentence."""

from __future__ import annotations

import json
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError
from pydantic_core import from_json

from ..tasks.recipes import shorten
from .refusals import Refusal

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
    try:
        json.dumps(value, allow_nan=False)  # 1e999 is infinite once it is read
    except ValueError:
        raise Refusal(400, f"{what} holds a number that is too large") from None
    return value


def read_message(model: type[Message], body: bytes) -> Message:
    """Read a request's body; the Refusal names the field and its value."""
    value = read_json(body, "the body")
    try:
        return model.model_validate(value)
    except ValidationError as error:
        [first, *_] = error.errors(include_url=False)
        field = ".".join(map(str, first["loc"])) or "the body"
        message = f"{field}: {first['msg']}; it is {shorten(first['input'])}"
        raise Refusal(422, message) from None
