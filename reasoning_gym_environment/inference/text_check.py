"""Whether a server's token ids are those of its text: some completions are compared.

A server whose ids are shifted, or those of another tokenizer, would train the policy on tokens that
nobody sampled, and nothing else shows it.
"""

from __future__ import annotations

import re
from collections import Counter
from difflib import SequenceMatcher

from ..util.values import shorten
from .errors import ReplyError

FIRST_COMPLETIONS = 16
"""So many completions of each server are compared, then one of COMPARED_EVERY."""

COMPARED_EVERY = 64

COMPARED_CHARACTERS = 200

LEAST_SIMILARITY = 0.5
"""Detokenizers differ in spaces and in halves of characters; ids of other tokens have hardly a word
in common with the text."""

TOO_SHORT_TO_TELL = 4


def contradicts(text: str, decoded: str) -> bool:
    """Return whether a text and decoded token ids can't be the same completion.

    Example:
        >>> contradicts("It is 42 miles.", "It is 42 miles\ufffd")
        False
        >>> contradicts("It is 42 miles.", "")
        True
    """
    words = re.sub(r"\W", "", text)[:COMPARED_CHARACTERS]
    decoded_words = re.sub(r"\W", "", decoded)[:COMPARED_CHARACTERS]
    if max(len(words), len(decoded_words)) < TOO_SHORT_TO_TELL:
        return False
    matcher = SequenceMatcher(None, words, decoded_words, autojunk=False)
    return matcher.ratio() < LEAST_SIMILARITY


class TextCheck:
    """Compares texts and decoded ids for the first completions of each server, then now and then.

    Example:
        >>> check = TextCheck()
        >>> check.is_due("http://here")
        True
    """

    def __init__(self) -> None:
        self._completions: Counter[str] = Counter()

    def is_due(self, url: str) -> bool:
        """Count a completion of a server; return whether it is to be compared."""
        number = self._completions[url]
        self._completions[url] += 1
        return number < FIRST_COMPLETIONS or number % COMPARED_EVERY == 0

    def require_same(self, url: str, text: str, decoded: str) -> None:
        """Raise ReplyError if the server's ids are not those of its text."""
        if contradicts(text, decoded):
            raise ReplyError(
                f"the inference server at {url} contradicts itself: its token ids decode to "
                f"{shorten(decoded)} and its text is {shorten(text)}; check that tokenizer_name is "
                "its model's and that no proxy changes the ids"
            )
