r"""Formatting around answers: `**…**`, `$…$`, `\boxed{…}`, a code fence, "Answer:", a full stop."""

from __future__ import annotations

import re

_BOX = "\\boxed{"
_PAIRED = re.compile(r"\*\*|\$\$?")
_FULL_STOP = re.compile(r"[^\s.]\.$")
"""One after a word, not an ellipsis. (So none follows another, which keeps it linear.)"""

_FENCE = re.compile(r"```(?:[\w+-]*\n)?")
_WORDS = r"(?:the\s+)?(?:final\s+)?answer"
_LEAD = re.compile(
    rf"\*\*{_WORDS}\s*:\s*\*\*|\*\*{_WORDS}\*\*\s*:|{_WORDS}\s*:|{_WORDS}\s+is\b\s*:?",
    re.IGNORECASE,
)


def strip_formatting(answer: str) -> str:
    r"""Remove the formatting around an answer; never return an empty one.

    Removes one mark after the other until nothing changes, in time linear in the length.

    Example:
        >>> strip_formatting(r"The answer is **$\boxed{42}$**.")
        '42'
        >>> strip_formatting("**a** and **b**")
        '**a** and **b**'
    """
    closings = _closing_braces(answer)
    whole = span = _trimmed(answer, 0, len(answer))
    while (inner := _inside(answer, *span, closings)) != span:
        span = inner
    return answer if span == whole else answer[slice(*span)]


def _inside(text: str, begin: int, end: int, closings: dict[int, int]) -> tuple[int, int]:
    """Return the span within one mark; the same span if there is no mark or nothing in it."""
    inner = begin, end
    if lead := _LEAD.match(text, begin, end):
        inner = lead.end(), end
    elif fence := _FENCE.match(text, begin, end):
        inner = _between(text, begin, end, fence[0], "```")
    elif mark := _PAIRED.match(text, begin, end):
        inner = _between(text, begin, end, mark[0], mark[0])
    elif text.startswith(_BOX, begin, end) and closings.get(begin + len(_BOX) - 1) == end - 1:
        inner = begin + len(_BOX), end - 1
    if inner == (begin, end) and _FULL_STOP.match(text, max(begin, end - 2), end):
        inner = begin, end - 1
    inner = _trimmed(text, *inner)
    return inner if inner[0] < inner[1] else (begin, end)


def _between(text: str, begin: int, end: int, opening: str, closing: str) -> tuple[int, int]:
    """Return the span between two marks if the first closing one ends the text."""
    start = begin + len(opening)
    stop = text.find(closing, start, end)
    return (start, stop) if stop == end - len(closing) else (begin, end)


def _trimmed(text: str, begin: int, end: int) -> tuple[int, int]:
    while begin < end and text[begin].isspace():
        begin += 1
    while begin < end and text[end - 1].isspace():
        end -= 1
    return begin, end


def _closing_braces(text: str) -> dict[int, int]:
    """Return where each opening brace is closed."""
    closings: dict[int, int] = {}
    open_braces: list[int] = []
    for brace in re.finditer(r"[{}]", text):
        if brace[0] == "{":
            open_braces.append(brace.start())
        elif open_braces:
            closings[open_braces.pop()] = brace.start()
    return closings
