"""Request and reply formats of inference servers, and the validation of what they return.

They are one table: a dialect turns a `GenerationRequest` into a request's JSON, and a reply's bytes
into samples. 16 completions of 8,000 tokens are a reply of 10 MB. So wire models name only the
fields that are used, and each completion becomes arrays before the next is decoded.
"""

from __future__ import annotations

import json
import re
from abc import ABC, abstractmethod
from array import array
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, NamedTuple, TypeVar

import msgspec
import numpy as np

from .errors import ReplyError, error_message
from .finish_reasons import INVALID_TOKEN, Ending, read_ending
from .usage import WireUsage

_UNCHANGED = {"top_k": -1, "min_p": 0.0, "repetition_penalty": 1.0}
"""Explicit, because servers take defaults from the model's `generation_config.json`."""


@dataclass(frozen=True, kw_only=True, slots=True)
class SamplingParams:
    """How completions are sampled; `split` is "train" or "eval", which have separate limits."""

    temperature: float
    top_p: float
    split: str

    @property
    def distribution(self) -> dict[str, float]:
        """The parameters that change the distribution, under the names that trainers use."""
        return {"temperature": self.temperature, "top_p": self.top_p}


@dataclass(frozen=True, kw_only=True, slots=True)
class GenerationRequest:
    """One request for completions.

    Attributes:
        prompt: token ids of the rendered `messages`.
        vocabulary: number of token ids.
        candidates: most probable tokens whose logprobs are requested besides the sampled one's.
        more: other sampling parameters, as the server names them.
        template_kwargs: variables of the chat template, for endpoints that render it.
    """

    model: str
    prompt: Sequence[int]
    messages: Sequence[Mapping[str, str]]
    n: int
    max_tokens: int
    temperature: float
    top_p: float
    vocabulary: int
    candidates: int = 0
    more: Mapping[str, Any] = field(default_factory=dict)
    template_kwargs: Mapping[str, Any] = field(default_factory=dict)

    @property
    def chat(self) -> dict[str, Any]:
        """Fields of a chat request beside sampling."""
        fields: dict[str, Any] = {"messages": list(self.messages)}
        if self.template_kwargs:
            fields["chat_template_kwargs"] = dict(self.template_kwargs)
        return fields

    @property
    def sampling(self) -> dict[str, Any]:
        """Fields that most servers name as OpenAI does, and `more`."""
        return {
            **self.more,
            "n": self.n,
            "max_tokens": self.max_tokens,
            "temperature": self.temperature,
            "top_p": self.top_p,
        }


class TokenSample(NamedTuple):
    """One completion: its token ids, stop token included, with their logprobs.

    Attributes:
        text: what the server decodes them to; None if it does not say.
    """

    tokens: array[int]
    logprobs: array[float]
    ending: Ending
    text: str | None = None


class TextSample(NamedTuple):
    """One completion as text.

    Attributes:
        reasoning: the thought if the server returns it in a field of its own.
        usage: tokens of prompt and completion as the server counts them.
        unknown_parts: types of its parts that may hold a reply or something else.
    """

    content: str
    reasoning: str | None
    ending: Ending
    usage: tuple[int, int] | None = None
    unknown_parts: tuple[str, ...] = ()


T = TypeVar("T")


class UncheckedSample(NamedTuple):
    """One completion before it is checked; `text` is as of `TokenSample`."""

    tokens: Sequence[int]
    logprobs: Sequence[float]
    finish_reason: Any
    text: str | None = None


class Dialect(ABC):
    """Format of one endpoint that returns token ids and logprobs.

    Attributes:
        path: below the server's root.
        processed_by: how to make the server return logprobs of the distribution it samples from.
        model: the wire model of a reply.
    """

    name: ClassVar[str]
    path: ClassVar[str]
    processed_by: ClassVar[str]
    model: ClassVar[Any]

    @abstractmethod
    def body(self, request: GenerationRequest) -> dict[str, Any]:
        """Return the request's JSON."""

    def rows(self, reply: Any, request: GenerationRequest) -> Iterable[UncheckedSample]:
        """Return a decoded reply's completions; raise ReplyError if it has another prompt."""
        parsed: Iterable[UncheckedSample] = reply.rows(request)
        return parsed

    @abstractmethod
    def has_tokens(self, reply: Any) -> bool:
        """Return whether a reply, as parsed JSON, has token ids and logprobs."""

    @abstractmethod
    def top_logprob(self, reply: Any) -> float:
        """Return the most probable first token's logprob from parsed JSON with candidates."""

    def samples(
        self, body: bytes | memoryview, request: GenerationRequest
    ) -> list[TokenSample]:
        """Decode a reply's completions; raise ReplyError if form, values or prompt are wrong."""
        reply = decode(self.model, body, self.name)
        try:
            return [_checked(row, request) for row in self.rows(reply, request)]
        except (LookupError, OverflowError, ValueError) as error:
            why = f"{type(error).__name__}: {error}"
            raise ReplyError(f"the reply to {self.name} is invalid: {why}") from error


def decode(model: Any, body: bytes | memoryview, name: str) -> Any:
    """Decode a reply's JSON into a wire model; raise ReplyError if it does not fit.

    The standard library's parser reads what msgspec's refuses: NaN, halves of surrogate pairs and
    duplicate keys.
    """
    try:
        return msgspec.json.decode(body, type=model)
    except (msgspec.DecodeError, OverflowError, RecursionError, ValueError):
        reply = parse(body, name)
    try:
        return msgspec.convert(reply, model)
    except (msgspec.DecodeError, OverflowError, RecursionError, ValueError) as error:
        raise ReplyError(f"the reply to {name} is invalid: {error}") from error


def parse(body: bytes | memoryview, name: str) -> Any:
    """Parse all of a reply's JSON; raise ReplyError if it is not valid."""
    try:
        return json.loads(bytes(body))
    except (RecursionError, ValueError) as error:
        excerpt = error_message(bytes(body).decode(errors="replace"))
        raise ReplyError(
            f"the reply to {name} is not valid JSON: {excerpt!r}; check --openai.base_url"
        ) from error


def _checked(row: UncheckedSample, request: GenerationRequest) -> TokenSample:
    """Return a completion with valid numbers, cut before an id beyond the vocabulary."""
    tokens = row.tokens
    ending = read_ending(row.finish_reason)
    if len(tokens) >= request.max_tokens:
        ending = ending.at_limit()
    if len(tokens) != len(row.logprobs):
        raise ReplyError(f"{len(tokens)} token ids with {len(row.logprobs)} logprobs")
    if len(tokens) > request.max_tokens:
        raise ReplyError(
            f"{len(tokens)} tokens, although max_tokens is {request.max_tokens}"
        )
    ids = np.asarray(tokens, np.int64)
    logprobs = np.asarray(row.logprobs, np.double)
    if (ids < 0).any():
        raise ReplyError(f"{ids.min()} is not a token id")
    odd = ~(np.isfinite(logprobs) & (logprobs <= 1e-3))
    if odd.any():  # kernels in bfloat16 round
        raise ReplyError(f"{logprobs[odd][0]} is not a logprob")
    outside = ids >= request.vocabulary
    if outside.any():
        valid = int(outside.argmax())
        ids = ids[:valid]
        logprobs = logprobs[:valid]
        ending = ending._replace(reason=INVALID_TOKEN)
    return TokenSample(
        array("i", ids.astype(np.intc).tobytes()),
        array("d", np.minimum(logprobs, 0.0).tobytes()),
        ending,
        row.text,
    )


def _require_prompt(prompt: Sequence[int], request: GenerationRequest) -> None:
    """Raise ReplyError if a server's prompt differs from the request's."""
    ours = request.prompt
    if list(prompt) == list(ours):
        return
    differ = (i for i, (a, b) in enumerate(zip(prompt, ours, strict=False)) if a != b)
    at = next(differ, min(len(prompt), len(ours)))
    raise ReplyError(
        f"the server's prompt of {len(prompt)} tokens differs from ours of {len(ours)} at token "
        f"{at}: its chat template is not that of tokenizer_name"
    )


_Ids = list[int] | msgspec.UnsetType


class _Entry(msgspec.Struct, gc=False):
    logprob: float


class _Logprobs(msgspec.Struct):
    """Logprobs: numbers of a completion, or entries of a chat."""

    token_logprobs: Sequence[float] | msgspec.UnsetType = msgspec.UNSET
    content: Sequence[_Entry] | msgspec.UnsetType = msgspec.UNSET

    def __post_init__(self) -> None:
        numbers = self.token_logprobs
        if isinstance(self.content, list):
            numbers = [entry.logprob for entry in self.content]
            self.content = ()
        self.token_logprobs = array("d", _first_set(numbers))


class _Choice(msgspec.Struct):
    logprobs: _Logprobs
    finish_reason: str | None = None
    text: str | None = None
    message: Any = None
    prompt_token_ids: _Ids = msgspec.UNSET
    token_ids: Sequence[int] | msgspec.UnsetType = msgspec.UNSET
    response_token_ids: _Ids = msgspec.UNSET

    def __post_init__(self) -> None:
        self.token_ids = array("q", _first_set(self.token_ids, self.response_token_ids))


class _Choices(msgspec.Struct):
    """Completions or chats with token ids; vLLM and SGLang differ in where they put them."""

    choices: list[_Choice]
    prompt_token_ids: _Ids = msgspec.UNSET

    def rows(self, request: GenerationRequest) -> Iterable[UncheckedSample]:
        for choice in self.choices:
            prompt = _first_set(choice.prompt_token_ids, self.prompt_token_ids)
            _require_prompt(prompt, request)
            logprobs = _first_set(choice.logprobs.token_logprobs)
            tokens = _first_set(choice.token_ids)
            text = choice.text or _whole_content(choice.message)
            yield UncheckedSample(tokens, logprobs, choice.finish_reason, text)


def _whole_content(message: Any) -> str | None:
    """Return a chat message's text; None if there is none, or the thought is apart from it."""
    if not isinstance(message, dict):
        return None
    content = message.get("content")
    is_whole = not (message.get("reasoning_content") or message.get("reasoning"))
    return content if isinstance(content, str) and is_whole else None


def _first_set(*values: Sequence[T] | msgspec.UnsetType) -> Sequence[T]:
    """Return the first value that is there; raise ReplyError if there is none."""
    for value in values:
        if not isinstance(value, msgspec.UnsetType):
            return value
    raise ReplyError("the reply has no prompt_token_ids, no token_ids or no logprobs")


class VllmCompletions(Dialect):
    """Stock `vllm serve`, from 0.10.2 on."""

    name = "vLLM's /v1/completions"
    path = "/v1/completions"
    processed_by = "start it with `vllm serve --logprobs-mode processed_logprobs`"
    model = _Choices

    def body(self, request: GenerationRequest) -> dict[str, Any]:
        return {
            **_with_token_ids(request),
            "prompt": list(request.prompt),
            "logprobs": request.candidates,
        }

    def has_tokens(self, reply: Any) -> bool:
        return _has_values(reply["choices"][0], "token_ids", "logprobs")

    def top_logprob(self, reply: Any) -> float:
        return float(max(reply["choices"][0]["logprobs"]["top_logprobs"][0].values()))


class _TokenEntry(msgspec.Struct, array_like=True, gc=False):
    logprob: float
    token: int


class _Meta(msgspec.Struct):
    finish_reason: dict[str, Any]
    output_token_logprobs: list[_TokenEntry]


class _Result(msgspec.Struct):
    meta_info: _Meta
    text: str | None = None


class SglangGenerate(Dialect):
    """SGLang's native `/generate`, which replies with an object if n is 1, else with a list."""

    name = "SGLang's /generate"
    path = "/generate"
    processed_by = "start it without SGLANG_RETURN_ORIGINAL_LOGPROB"
    model = list[_Result] | _Result

    def body(self, request: GenerationRequest) -> dict[str, Any]:
        sampling = {**_UNCHANGED, **request.sampling}
        sampling["max_new_tokens"] = sampling.pop("max_tokens")
        return {
            "input_ids": list(request.prompt),
            "sampling_params": sampling,
            "return_logprob": True,
            "return_text_in_logprobs": False,
            "top_logprobs_num": request.candidates,
        }

    def rows(
        self, reply: list[_Result] | _Result, request: GenerationRequest
    ) -> Iterable[UncheckedSample]:
        results = reply if isinstance(reply, list) else [reply]
        for result in results:
            entries = result.meta_info.output_token_logprobs
            reason = result.meta_info.finish_reason["type"]
            tokens = [entry.token for entry in entries]
            yield UncheckedSample(
                tokens, [entry.logprob for entry in entries], reason, result.text
            )

    def has_tokens(self, reply: Any) -> bool:
        return _has_values(self._first(reply), "output_token_logprobs")

    def top_logprob(self, reply: Any) -> float:
        return float(
            max(entry[0] for entry in self._first(reply)["output_top_logprobs"][0])
        )

    @staticmethod
    def _first(reply: Any) -> Any:
        return (reply[0] if isinstance(reply, list) else reply)["meta_info"]


class ChatTokens(Dialect):
    """Chat completions with token ids, which vLLM and SGLang return on request."""

    name = "/v1/chat/completions with token ids"
    path = "/v1/chat/completions"
    processed_by = "start it with `vllm serve --logprobs-mode processed_logprobs`"
    model = _Choices

    def body(self, request: GenerationRequest) -> dict[str, Any]:
        return {
            **_with_token_ids(request),
            **request.chat,
            "logprobs": True,
            # vLLM counts the sampled token among them, and puts it first
            "top_logprobs": request.candidates + 1 if request.candidates else 0,
        }

    def has_tokens(self, reply: Any) -> bool:
        choice = reply["choices"][0]
        ids = choice.get("token_ids", choice.get("response_token_ids"))
        return ids is not None and _has_values(choice, "logprobs")

    def top_logprob(self, reply: Any) -> float:
        first = reply["choices"][0]["logprobs"]["content"][0]
        return float(max(entry["logprob"] for entry in first["top_logprobs"]))


_REPLY_PARTS = (None, "text", "output_text")
_THOUGHT_PARTS = ("thinking", "reasoning", "reasoning_text", "summary_text")
"""Types of parts whose text is known to be of a reply, or of a thought."""


class _Part(msgspec.Struct):
    """A part of a message; a thought may be in its text, or in parts of its own.

    Mistral has those in `thinking`, where Anthropic has a text, and Databricks in `summary`.
    """

    type: Any = None
    text: str | None = None
    thinking: str | list[_Part] | None = None
    summary: list[_Part] | None = None

    @property
    def is_reply(self) -> bool:
        return self.type in _REPLY_PARTS

    @property
    def is_unknown(self) -> bool:
        return bool(self.text) and self.type not in (*_REPLY_PARTS, *_THOUGHT_PARTS)

    @property
    def thought(self) -> str:
        text = self.text if self.type in _THOUGHT_PARTS else None
        if isinstance(self.thinking, str):
            text = self.thinking
            parts = self.summary
        else:
            parts = self.thinking or self.summary
        return (text or "") + _joined(parts or [])


def _joined(parts: Iterable[_Part]) -> str:
    return "".join(part.text or "" for part in parts)


class _Message(msgspec.Struct):
    """A message, whose content may be a list of parts if there is a thought."""

    content: str | list[_Part] | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None

    @property
    def parts(self) -> list[_Part]:
        return self.content if isinstance(self.content, list) else []

    @property
    def text(self) -> str:
        """The reply. Parts of unknown types are it only if there is no other."""
        if isinstance(self.content, str):
            return self.content
        known = _joined(part for part in self.parts if part.is_reply)
        return known or _joined(part for part in self.parts if part.is_unknown)

    @property
    def thought(self) -> str | None:
        thinking = "".join(part.thought for part in self.parts)
        return self.reasoning_content or self.reasoning or thinking or None

    @property
    def unknown_parts(self) -> tuple[str, ...]:
        """The unknown types of parts that have text."""
        return tuple(str(part.type)[:40] for part in self.parts if part.is_unknown)


class _TextChoice(msgspec.Struct):
    message: _Message
    finish_reason: str | None = None


class _TextChat(msgspec.Struct):
    choices: list[_TextChoice] = []
    usage: WireUsage | None = None
    error: Any = None

    def is_at_limit(self, max_tokens: int) -> bool:
        """Return whether every choice has as many tokens as it may have.

        `usage` has the sum: of several choices it does not tell which one is at the limit.
        """
        tokens = (self.usage or WireUsage()).completion_tokens
        return tokens is not None and tokens >= max_tokens * len(self.choices)

    @property
    def counts(self) -> list[tuple[int, int] | None]:
        """Tokens by choice: `usage` has their sum, which is divided in proportion to the texts."""
        usage = self.usage or WireUsage()
        if usage.prompt_tokens is None or usage.completion_tokens is None:
            return [None] * len(self.choices)
        if len(self.choices) == 1:
            return [(usage.prompt_tokens, usage.completion_tokens)]
        messages = [choice.message for choice in self.choices]
        lengths = [
            len(message.text) + len(message.thought or "") for message in messages
        ]
        tokens = usage.completion_tokens
        total = sum(lengths) or 1
        return [
            (usage.prompt_tokens, round(tokens * length / total)) for length in lengths
        ]


@dataclass(frozen=True, kw_only=True, slots=True)
class ChatText:
    """Chat completions of any endpoint, as text without token ids.

    Attributes:
        limit: the name of the parameter that limits a completion's tokens.
        left_out: parameters that the endpoint refuses; without `n` it returns one completion.
    """

    name: ClassVar[str] = "/v1/chat/completions"
    path: ClassVar[str] = "/v1/chat/completions"

    limit: str = "max_tokens"
    left_out: frozenset[str] = frozenset()

    def body(self, request: GenerationRequest) -> dict[str, Any]:
        """Return the request's JSON."""
        sampling = request.sampling
        sampling[self.limit] = sampling.pop("max_tokens")
        sent = {
            name: value for name, value in sampling.items() if name not in self.left_out
        }
        return {"model": request.model, **request.chat, **sent}

    def without(self, name: str) -> ChatText:
        """Return this form without a parameter."""
        return replace(self, left_out=self.left_out | {name})

    def adapted_to(self, refusal: str) -> ChatText | None:
        """Return the form without what a server's message refuses; None if it names nothing.

        Example:
            >>> ChatText().adapted_to("Use 'max_completion_tokens' instead.").limit
            'max_completion_tokens'
        """
        if self.limit == "max_tokens" and "max_completion_tokens" in refusal:
            return replace(self, limit="max_completion_tokens")
        names = {
            "n": r"""['"`]n['"`]|\bn must\b|\bbody\W+n\b|(?i:\bcandidates?\b)""",
            "top_p": r"\btop_p\b",  # before temperature: some refuse the two together
            "temperature": r"\btemperature\b",
        }
        for name, pattern in names.items():
            if name not in self.left_out and re.search(pattern, refusal):
                return self.without(name)
        return None

    def samples(
        self, body: bytes | memoryview, request: GenerationRequest
    ) -> list[TextSample]:
        """Decode a reply's completions; raise ReplyError if it is malformed."""
        reply: _TextChat = decode(_TextChat, body, self.name)
        if not reply.choices:  # some report errors with status 200
            why = (
                error_message(json.dumps(reply.error))
                if reply.error
                else "it has no choices"
            )
            raise ReplyError(f"the reply to {self.name} is invalid: {why}")
        samples = []
        for choice, counts in zip(reply.choices, reply.counts, strict=True):
            message = choice.message
            ending = read_ending(choice.finish_reason)
            if reply.is_at_limit(request.max_tokens):
                ending = ending.at_limit()
            samples.append(
                TextSample(
                    message.text,
                    message.thought,
                    ending,
                    counts,
                    message.unknown_parts,
                )
            )
        return samples


def _with_token_ids(request: GenerationRequest) -> dict[str, Any]:
    return {
        "model": request.model,
        **_UNCHANGED,
        **request.sampling,
        "return_token_ids": True,
    }


def _has_values(part: Mapping[str, Any], *names: str) -> bool:
    return all(part.get(name) is not None for name in names)
