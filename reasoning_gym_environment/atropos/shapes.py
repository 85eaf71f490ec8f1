"""What of a reply each dialect looks at: nothing else of it is made into objects.

A group of 16 completions of 8,000 tokens is a reply of 10 MB, most of which nobody reads.
"""

from __future__ import annotations

import json
from array import array
from collections.abc import Sequence
from typing import Any

import msgspec

from .arrays import in_arrays
from .dialects import ChatTokens, SglangGenerate, TrlGenerate, VllmCompletions, VllmGenerate
from .failures import own_words
from .replies import Ask, Dialect, ReplyError, Sampled, read


class _Part(msgspec.Struct):
    """A part of a reply, which is read as the JSON object it stands for."""

    def __getitem__(self, name: str) -> Any:
        return getattr(self, name)

    def get(self, name: str, default: Any = None) -> Any:
        value = getattr(self, name)
        return default if value is msgspec.UNSET else value


class _Logprobs(_Part):
    token_logprobs: Sequence[float]

    def __post_init__(self) -> None:
        self.token_logprobs = array("d", self.token_logprobs)


class _Choice(_Part):
    """One completion, whose lists of numbers are gone before the next one's are made.

    Other threads have their turn between them, which wait 20 ms for a whole reply otherwise.
    """

    finish_reason: str
    logprobs: _Logprobs
    prompt_token_ids: list[int]
    token_ids: Sequence[int]

    def __post_init__(self) -> None:
        self.token_ids = array("q", self.token_ids)


class _Completions(_Part):
    choices: list[_Choice]


class _Generated(_Part):
    finish_reasons: list[str]
    logprobs: list[list[list[dict[str, float]]]]


class _Reason(_Part):
    type: str


class _Meta(_Part):
    finish_reason: _Reason
    output_token_logprobs: list[tuple[float, int, Any]]


class _Result(_Part):
    meta_info: _Meta


class _Trl(_Part):
    completion_ids: list[list[int]]
    logprobs: list[list[list[float]]]
    prompt_ids: list[list[int]]


class _Entry(_Part, gc=False):  # there is one for each token
    logprob: float


class _Content(_Part):
    content: list[_Entry]


class _Message(_Part):
    finish_reason: str
    logprobs: _Content
    prompt_token_ids: list[int] | msgspec.UnsetType = msgspec.UNSET
    token_ids: list[int] | msgspec.UnsetType = msgspec.UNSET
    response_token_ids: list[int] | msgspec.UnsetType = msgspec.UNSET


class _Chat(_Part):
    choices: list[_Message]
    prompt_token_ids: list[int] | msgspec.UnsetType = msgspec.UNSET


_READERS: dict[type[Any], msgspec.json.Decoder[Any]] = {
    VllmCompletions: msgspec.json.Decoder(_Completions),
    VllmGenerate: msgspec.json.Decoder(_Generated),
    SglangGenerate: msgspec.json.Decoder(list[_Result] | _Result),
    TrlGenerate: msgspec.json.Decoder(_Trl),
    ChatTokens: msgspec.json.Decoder(_Chat),
}

_DOUBTS = (ArithmeticError, KeyError, RecursionError, ReplyError, ValueError)
"""What says that a reply may not be as its dialect wants it."""


def read_body(dialect: Dialect, body: bytes | memoryview, ask: Ask) -> list[Sampled]:
    """Read a reply's completions, each checked, from its JSON; sound ones have arrays.

    Raises:
        ReplyError: it is no JSON, or as of `read`.
    """
    try:
        return read(dialect, _READERS[type(dialect)].decode(body), ask, in_arrays)
    except _DOUBTS:  # all of it is read, to say what is wrong with it
        return read(dialect, parsed(body, dialect.path), ask)


def parsed(body: bytes | memoryview, path: str) -> Any:
    """Read all of a reply's JSON; raises ReplyError where it is none."""
    try:
        return json.loads(bytes(body))
    except (RecursionError, ValueError) as error:
        said = own_words(bytes(body).decode(errors="replace"))
        raise ReplyError(f"the reply to {path} is no JSON: {said!r}") from error
