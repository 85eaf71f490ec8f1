"""Characters that look like a sign, a blank, a quote or a digit: one table, for readers and guards.

Models write minus signs, narrow blanks between thousands, curly quotes or full-width digits.
Verifiers and guards read ASCII. Normalizing twice changes nothing, and no two labels of a task
become one.
"""

from __future__ import annotations

import re
import unicodedata

from ..tasks.facts import PLAIN_NUMBERS

KEEPS_ITS_CHARACTERS = frozenset({"codeio", "emoji_mystery", "sentence_reordering"})
"""Tasks whose labels hold such characters: program output, and sentences of books with `“`."""

_SIGNS = {
    # Hyphens, dashes, and minus signs.
    **dict.fromkeys("\u2010\u2011\u2012\u2013\u2014\u2015\u2212\ufe58\ufe63", "-"),
    **dict.fromkeys("\u2018\u2019\u201a\u201b", "'"),
    **dict.fromkeys("\u201c\u201d\u201e\u201f", '"'),
    "\u3002": ".",
    # Arabic separators of decimals and thousands.
    "\u066b": ".",
    "\u066c": ",",
}

_BLANKS = re.compile("[\u00a0\u1680\u2000-\u200a\u202f\u205f\u3000]")

_FULL_WIDTH = range(0xFF01, 0xFF5F)
"""ASCII from `!` to `~`, as wide as Chinese characters."""

_FULL_WIDTH_OFFSET = 0xFEE0

_GROUPED_NUMBER = re.compile(
    r"(?<![\d.,])\d{1,3}(?P<blank>'|\{,\}|\\,|BLANK)\d{3}(?:(?P=blank)\d{3})*(?!\d)".replace(
        "BLANK", _BLANKS.pattern
    ),
    re.ASCII,
)
"""A number whose thousands are parted by something else than a comma."""


def plain_characters(text: str) -> str:
    r"""Return a text with ASCII's signs, quotes, digits and blanks, without invisible characters.

    Example:
        >>> plain_characters("\u22128\u202f\u2013 7i\u200b")
        '-8 - 7i'
    """
    if text.isascii():
        return text
    return _BLANKS.sub(" ", _plain_but_for_blanks(text))


def plain_answer(task: str, answer: str) -> str:
    r"""Return an answer to one of the library's tasks in plain characters.

    The thousands of a number get commas, where the task asks for a plain number.

    Example:
        >>> plain_answer("products", r"$1{,}850$"), plain_answer("products", "1'850")
        ('$1,850$', '1,850')
        >>> plain_answer("spiral_matrix", "1'850"), plain_answer("codeio", "\u2013 5") == "- 5"
        ("1'850", False)
    """
    if task in KEEPS_ITS_CHARACTERS:
        return answer
    if task not in PLAIN_NUMBERS:
        return plain_characters(answer)
    text = answer if answer.isascii() else _plain_but_for_blanks(answer)
    text = _GROUPED_NUMBER.sub(_with_commas, text)
    return plain_characters(text)


def _with_commas(number: re.Match[str]) -> str:
    return number[0].replace(number["blank"], ",")


def _plain_but_for_blanks(text: str) -> str:
    return re.sub(r"[^\x00-\x7f]", lambda character: _plain(character[0]), text)


def _plain(character: str) -> str:
    if character in _SIGNS:
        return _SIGNS[character]
    if ord(character) in _FULL_WIDTH:
        return chr(ord(character) - _FULL_WIDTH_OFFSET)
    # Zero-width blanks, direction marks, byte order marks.
    if unicodedata.category(character) == "Cf":
        return ""
    value = unicodedata.decimal(character, None)
    return character if value is None else str(value)
