"""How a model's thoughts are marked: read from its tokenizer, and kept when tokens become text.

Markers are special tokens of many tokenizers, which decoding leaves out. Then an answer that a
model tries in its thought would count.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..errors import ConfigurationError
from ..scoring.channels import (
    CHANNELS,
    HARMONY_CHANNEL,
    HARMONY_TOKENS,
    THINK,
    Channel,
    in_think_tags,
    opened_thought,
)

LEAST_CHARACTERS = 4
"""Of a special token that can be the beginning of a marker."""

_ABOUT_THOUGHTS = re.compile("think|thought|reason", re.IGNORECASE)
_SWITCH = re.compile(
    r"no_?think|think_?(on|off|fast|slow)|^<\|think\|>$", re.IGNORECASE
)
"""Tokens such as `/no_think` and Gemma's `<|think|>`, which switch thoughts on or off."""

_IN_BRACKETS = re.compile(r"[<\[◁][^\s<>\[\]'\"{}()]+[>\]▷]")
"""What a template may write around a thought; a name in quotes is a key of a message."""


def special_tokens(tokenizer: Any) -> dict[int, str]:
    """Return the text of each token that decoding leaves out, by its id."""
    return {
        number: token.content
        for number, token in tokenizer.added_tokens_decoder.items()
        if token.special
    }


def added_tokens(tokenizer: Any) -> list[str]:
    """Return the texts of all tokens that were added to the vocabulary, special ones included."""
    return [token.content for token in tokenizer.added_tokens_decoder.values()]


def _markers(own: Channel | None) -> list[str]:
    """Return what opens and closes thoughts: of the table, and a pair of one's own."""
    channels = CHANNELS if own is None else (*CHANNELS, own)
    return [text for channel in channels for text in (channel.opens, channel.closes)]


def unknown_markers(tokenizer: Any, own: Channel | None) -> list[str]:
    """Return what looks like a marker of a thought and stands in no row of the table.

    Looks at the added tokens and at the words in brackets of the chat template.
    """
    known = {marker.lower() for marker in _markers(own)}
    candidates = [
        *added_tokens(tokenizer),
        *_IN_BRACKETS.findall(tokenizer.chat_template or ""),
    ]
    found = []
    for word in dict.fromkeys(candidates):
        is_about_thoughts = _ABOUT_THOUGHTS.search(word) and not _SWITCH.search(word)
        if is_about_thoughts and word.lower() not in known:
            found.append(word)
    return found


def require_known_markers(tokenizer: Any, own: Channel | None, name: str) -> None:
    """Raise ConfigurationError if thoughts of this model may be taken for its reply."""
    unknown = unknown_markers(tokenizer, own)
    if unknown:
        raise ConfigurationError(
            f"the tokenizer {name} has {' and '.join(unknown[:4])}, which may mark a thought that "
            "is not known here, so that answers in it would count: set --env.thought_markers to "
            "what opens and what closes it, such as '<a> </a>', or to '<think> </think>' if they "
            "mark none"
        )


class ThoughtFormat:
    """How the thoughts of one model are marked, in tokens and in text.

    Args:
        tokenizer: None where only texts come.
        own: a pair of markers that is not in the table; texts get think tags in their place.
    """

    def __init__(self, tokenizer: Any, own: Channel | None = None) -> None:
        self._tokenizer = tokenizer
        self._own = own
        special = {} if tokenizer is None else special_tokens(tokenizer)
        self._is_harmony = HARMONY_CHANNEL in special.values()
        kept = {
            number: text for number, text in special.items() if self._is_marker(text)
        }
        self._kept = np.array([*kept], np.intc)
        self.hidden_markers = [*kept.values()]

    def _is_marker(self, token: str) -> bool:
        """Return whether a special token is a marker of a thought, or the beginning of one."""
        if self._is_harmony and token in HARMONY_TOKENS:
            return True
        if len(token) < LEAST_CHARACTERS:
            return False
        return any(marker.startswith(token) for marker in _markers(self._own))

    def opened(self, prompt: str) -> str:
        """Return the marker with which a prompt opens a thought, or "": see `opened_thought`."""
        if self._own and prompt.rstrip().endswith(self._own.opens):
            return THINK.opens
        return opened_thought(prompt)

    def text(self, written: str, *, prompt: str = "") -> str:
        """Return a completion as it is graded and stored, from what the model wrote.

        It begins with the marker that the prompt opened. Markers of one's own and harmony's
        channels become think tags; those of the table stay.
        """
        if self._own:
            written = written.replace(self._own.opens, THINK.opens)
            written = written.replace(self._own.closes, THINK.closes)
        whole = self.opened(prompt) + written
        return in_think_tags(whole) if whole.startswith(HARMONY_CHANNEL) else whole

    def decode(self, tokens: Sequence[int]) -> str:
        """Return the text of token ids, with markers of thoughts and without other special ones."""
        ids = np.asarray(tokens, np.intc)
        places = np.flatnonzero(np.isin(ids, self._kept))
        pieces = []
        begin = 0
        for place in places.tolist():
            pieces.append(self.plain(ids[begin:place]))
            pieces.append(self.plain(ids[place : place + 1], skips=False))
            begin = place + 1
        pieces.append(self.plain(ids[begin:]))
        return "".join(pieces)

    def plain(self, ids: Any, *, skips: bool = True) -> str:
        """Return the text of token ids as it is; `skips` leaves out all special tokens."""
        if not len(ids):
            return ""
        # Some tokenizers of transformers 4 would change spaces: "a , b" becomes "a, b".
        text: str = self._tokenizer.decode(
            ids, skip_special_tokens=skips, clean_up_tokenization_spaces=False
        )
        return text
