"""What of a reply each dialect looks at: nothing else of it is made into objects.

A group of 16 completions of 8,000 tokens is a reply of 10 MB, most of which nobody reads.
"""

from __future__ import annotations

import json
from array import array
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import numpy as np

from ..util.concurrency import StallTolerantSemaphore
from .columns import are_id_array
from .dialects import ChatTokens, SglangGenerate, TrlGenerate, VllmCompletions, VllmGenerate
from .errors import own_words
from .requests import REASONS, ROUNDING, Ask, Dialect, ReplyError, Sampled, read


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


AT_ONCE = 4
"""Replies of a server in memory: a long group's takes 10 MB. The others wait in its connections."""

_KEPT_BYTES = 2**26
"""A buffer that grew beyond it is given up."""


class Buffers:
    """Reads the bodies of a few replies at a time, each into a buffer that was another's before."""

    def __init__(self) -> None:
        self._slots = StallTolerantSemaphore(AT_ONCE)
        self._free: list[bytearray] = []

    @asynccontextmanager
    async def filled(self, parts: AsyncIterator[bytes]) -> AsyncIterator[memoryview]:
        """A body, of which these are all parts; the bytes are another's when the context closes."""
        async with self._slots.slot():
            buffer = self._free.pop() if self._free else bytearray()
            size = 0
            async for part in parts:
                buffer[size : size + len(part)] = part
                size += len(part)
            with memoryview(buffer) as whole, whole[:size] as body:
                yield body
            if len(self._free) < AT_ONCE and len(buffer) <= _KEPT_BYTES:
                self._free.append(buffer)


def in_arrays(sampled: Sampled, ask: Ask) -> Sampled:
    """Check a completion whose columns are lists of `int` and of `float`, and make arrays of them.

    Raises:
        ReplyError: there may be something wrong with it.
        OverflowError: an integer has more than 64 bits.
    """
    ids, logprobs = np.array(sampled.tokens, np.int64), np.array(sampled.logprobs, np.double)
    sound = (
        len(ids) == len(logprobs)
        and len(ids) <= ask.max_tokens
        and are_id_array(ids, ask.vocabulary)
        and bool(np.isfinite(logprobs).all() and (logprobs <= ROUNDING).all())
        and sampled.finish_reason in REASONS
    )
    if not sound:
        raise ReplyError("a completion isn't as expected")
    return Sampled(
        array("i", ids.astype(np.intc).tobytes()),
        array("d", np.minimum(logprobs, 0.0).tobytes()),
        sampled.finish_reason,
    )
