"""Untrusted text: valid for UTF-8, and safe to print."""

from __future__ import annotations

import re
import unicodedata

_LONE_SURROGATE = re.compile("[\ud800-\udfff]")
_UNSAFE = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})
"""Unicode categories of characters that are invisible but change what is displayed."""


def replace_surrogates(text: str) -> tuple[str, int]:
    """Replace lone surrogates, which JSON can carry and models write, by U+FFFD; count them.

    Example:
        >>> replace_surrogates("a" + chr(0xD800)) == ("a" + chr(0xFFFD), 1)
        True
    """
    try:
        text.encode()
    except UnicodeEncodeError:
        return _LONE_SURROGATE.subn("\ufffd", text)
    return text, 0


def escape_control_characters(text: str) -> str:
    r"""Escape characters that could move the cursor, color, hide or reorder text.

    Line feeds and tabs stay.

    Example:
        >>> print(escape_control_characters("\x1b[31mred\x07\u202e"))
        \x1b[31mred\x07\u202e
    """
    return "".join(_escaped(character) for character in text)


def _escaped(character: str) -> str:
    if character in "\n\t" or unicodedata.category(character) not in _UNSAFE:
        return character
    return character.encode("unicode_escape", "surrogatepass").decode()
