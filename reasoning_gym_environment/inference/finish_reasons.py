"""Why a completion ended, from the word that its server uses.

Servers have many words for a normal end, so the words of the other ends are the closed set: what
cuts a completion, and what reports a failure. Any other word is a normal end, unless the completion
has as many tokens as it may have.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from types import MappingProxyType
from typing import Any, NamedTuple

from .errors import ReplyError

STOP = "stop"
"""The model has ended its completion."""

LENGTH = "length"
"""The completion has reached a limit of tokens."""

CONTENT_FILTER = "content_filter"
"""The server has withheld the completion, or the rest of it."""

TOOL_CALLS = "tool_calls"
"""The completion calls a tool, or tries to, in place of a reply."""

INVALID_TOKEN = "invalid_token"
"""A completion is cut before an id that the tokenizer lacks: a model's output layer may be wider
than its vocabulary. No server's word."""

CUT_WORDS = MappingProxyType(
    {
        # OpenAI, vLLM, SGLang, llama.cpp, TGI
        "length": LENGTH,
        "content_filter": CONTENT_FILTER,
        "tool_calls": TOOL_CALLS,
        "function_call": TOOL_CALLS,
        # vLLM: a pattern of tokens repeats
        "repetition": "repetition",
        # Mistral
        "model_length": LENGTH,
        # Anthropic, and Bedrock's Converse; gateways pass their words on
        "max_tokens": LENGTH,
        "model_context_window_exceeded": LENGTH,
        "compaction": LENGTH,
        "tool_use": TOOL_CALLS,
        "pause_turn": TOOL_CALLS,
        "refusal": CONTENT_FILTER,
        "guardrail_intervened": CONTENT_FILTER,
        "content_filtered": CONTENT_FILTER,
        "malformed_model_output": TOOL_CALLS,
        "malformed_tool_use": TOOL_CALLS,
        # OpenAI's Responses API
        "max_output_tokens": LENGTH,
        "incomplete": LENGTH,
        # Gemini
        "safety": CONTENT_FILTER,
        "recitation": CONTENT_FILTER,
        "language": CONTENT_FILTER,
        "blocklist": CONTENT_FILTER,
        "prohibited_content": CONTENT_FILTER,
        "spii": CONTENT_FILTER,
        "other": "other",
        "malformed_function_call": TOOL_CALLS,
        "malformed_response": TOOL_CALLS,
        "unexpected_tool_call": TOOL_CALLS,
        "too_many_tool_calls": TOOL_CALLS,
        "missing_thought_signature": TOOL_CALLS,
        # GLM
        "sensitive": CONTENT_FILTER,
        # Cohere
        "error_limit": LENGTH,
        "error_toxic": CONTENT_FILTER,
        "tool_call": TOOL_CALLS,
        # watsonx
        "token_limit": LENGTH,
        "time_limit": "timeout",
        "not_finished": "timeout",
        # TensorRT-LLM
        "timeout": "timeout",
    }
)
"""What is stored, by the server's word for a completion that the model has not ended."""

FAILURE_WORDS = frozenset(
    {
        "abort",  # vLLM, SGLang
        "aborted",
        "error",  # Mistral, Cohere, OpenRouter, watsonx; vLLM replies with status 500
        "cancelled",  # TensorRT-LLM, watsonx
        "canceled",
        "user_cancel",  # Cohere
        "insufficient_system_resource",  # DeepSeek
        "network_error",  # GLM: the model failed
    }
)
"""Words with which servers report, with status 200, that a request has failed."""

_MOST_CHARACTERS = 40
_MOST_UNKNOWN_WORDS = 8
"""Different words of one server that are returned as new: it may make them up."""


class Ending(NamedTuple):
    """How a completion ended.

    Attributes:
        reason: what is stored and compared: STOP, or why it is not complete.
        word: the server's own word; None if it gave none.
        is_presumed: whether the word is unknown, so that it is taken for a normal end.
    """

    reason: str
    word: str | None
    is_presumed: bool = False

    def at_limit(self) -> Ending:
        """Return the ending of a completion with as many tokens as it may have."""
        return self._replace(reason=LENGTH) if self.is_presumed else self


def read_ending(word: Any) -> Ending:
    """Return what a server's word says; raise ReplyError if it is none or reports a failure.

    Example:
        >>> read_ending("MAX_TOKENS").reason, read_ending("eos").reason
        ('length', 'stop')
    """
    if word is None or word == "":
        return Ending(STOP, None, is_presumed=True)
    if not isinstance(word, str):
        raise ReplyError(f"a completion has the finish reason {word!r:.80}")
    stored_word = re.sub(r"\W", "_", word)[:_MOST_CHARACTERS]
    # Gateways write MAX_TOKENS, content-filter and maxTokens, too.
    spaced = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", stored_word)
    key = spaced.lower()
    if key in FAILURE_WORDS:
        raise ReplyError(f"a completion has the finish reason {word!r:.80}")
    reason = CUT_WORDS.get(key, STOP)
    is_presumed = reason == STOP != key
    return Ending(reason, stored_word, is_presumed)


class UnknownWords:
    """The unknown words of one server, each of which is new once.

    Example:
        >>> words = UnknownWords()
        >>> words.new(["eos", "eos"])
        ['eos']
        >>> words.new(["eos"])
        []
    """

    def __init__(self) -> None:
        self._words: set[str] = set()

    def new(self, words: Iterable[str]) -> list[str]:
        """Return the words that are new, as long as there are few."""
        new_words = []
        for word in words:
            is_new = word not in self._words
            if is_new and len(self._words) < _MOST_UNKNOWN_WORDS:
                self._words.add(word)
                new_words.append(word)
        return new_words
