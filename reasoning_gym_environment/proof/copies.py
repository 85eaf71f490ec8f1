"""Ways to copy an answer from its question: from a place in it, or from behind a mark.

A way is chosen by the items whose answers are known, and tried on others.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import islice

Copy = Callable[[str], str | None]
"""Returns what it copies from a question, or None if there is nothing at that place."""

WORTH_TRYING = 0.5
"""Share of the known items on which a way has to be right to be tried on others."""

MOST_COPIES = 3

_NUMBER = r"-?\d+(?:\.\d+)?"
_WORD = r"\w+"
_BRACKET = r"[(\[{]([^()\[\]{}]*)[)\]}]"
_QUOTED = r"['\"]([^'\"\n]*)['\"]"

_ENDS = (_NUMBER, r"[^)\]}\"'\n]+(?=[)\]}\"'\n])", r"\S+", r".+")
"""Where a copied text may end: a number, a closing mark, a word or a line."""

_MARK_CHARACTERS = 12
_MARKED_ITEMS = 5
"""Items whose text before the answer is tried as a mark."""

_MARKED_PLACES = 3
"""Places of the answer in such an item."""


_MOST_CHARACTERS = 20_000


def excerpt(question: str) -> str:
    """Return a question of ordinary length, or the beginning and the end of a longer one."""
    if len(question) <= _MOST_CHARACTERS:
        return question
    half = _MOST_CHARACTERS // 2
    return question[:half] + question[-half:]


def _match(pattern: str, place: int, question: str) -> str | None:
    matches = re.findall(pattern, question)
    return matches[place] if matches else None


PLACES: Mapping[str, Copy] = {
    "first number": partial(_match, _NUMBER, 0),
    "last number": partial(_match, _NUMBER, -1),
    "first word": partial(_match, _WORD, 0),
    "last word": partial(_match, _WORD, -1),
    "first brackets": partial(_match, _BRACKET, 0),
    "last brackets": partial(_match, _BRACKET, -1),
    "first quotation": partial(_match, _QUOTED, 0),
    "last quotation": partial(_match, _QUOTED, -1),
    "last line": partial(_match, r"[^\n]+", -1),
}
"""The places of a question from which an answer may be copied."""


def copies_for(known_items: Sequence[tuple[str, str]]) -> dict[str, Copy]:
    """Return the best ways to copy an answer, by excerpts of known questions and their answers.

    Example:
        >>> items = [("2 + 3 [key=5]", "5"), ("4 + 4 [key=8]", "8")]
        >>> copies_for(items)["last number"]("7 + 2 [key=9]")
        '9'
    """
    shares = {
        name: (_share_right(copy, known_items), copy)
        for name, copy in [*PLACES.items(), *_marked(known_items)]
    }
    worth = {
        name: (share, copy)
        for name, (share, copy) in shares.items()
        if share > WORTH_TRYING
    }
    best = sorted(worth, key=lambda name: -worth[name][0])[:MOST_COPIES]
    return {name: worth[name][1] for name in best}


def _share_right(copy: Copy, known_items: Sequence[tuple[str, str]]) -> float:
    right = sum(
        (copy(question) or "").strip() == answer.strip()
        for question, answer in known_items
    )
    return right / max(1, len(known_items))


def _marked(known_items: Sequence[tuple[str, str]]) -> Iterator[tuple[str, Copy]]:
    """Yield the best way to copy from behind a mark that several questions share."""
    marks = dict.fromkeys(
        mark for item in known_items[:_MARKED_ITEMS] for mark in _marks_of(*item)
    )
    ways = [
        (_share_right(copy, known_items), mark, copy)
        for mark in marks
        for copy in (partial(_behind, mark, end) for end in _ENDS)
    ]
    if ways:
        _, mark, copy = max(ways, key=lambda way: way[0])
        yield f"behind {mark!r}", copy


def _marks_of(question: str, answer: str) -> Iterator[str]:
    """Yield what stands before each place of an answer in its question, the longest first."""
    places = re.finditer(rf"(?<!\w){re.escape(answer)}(?!\w)", question)
    for place in islice(places, _MARKED_PLACES):
        before = question[: place.start()]
        for length in range(min(_MARK_CHARACTERS, len(before)), 0, -1):
            yield before[-length:]


def _behind(mark: str, end: str, question: str) -> str | None:
    _, mark_found, text_behind = question.partition(mark)
    match = re.match(end, text_behind) if mark_found else None
    return match[0] if match else None
