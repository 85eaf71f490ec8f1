"""Untrusted text made safe to print: it can't move the cursor, colour, hide or reorder anything."""

from __future__ import annotations

import unicodedata

_UNSAFE = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})
"""Unicode categories of what is not itself seen, but changes what is."""


def visible(text: str) -> str:
    r"""Escape characters that change what is seen; line feeds and tabs stay.

    Example:
        >>> print(visible("\x1b[31mred\x07\u202e"))
        \x1b[31mred\x07\u202e
    """
    return "".join(_escaped(character) for character in text)


def _escaped(character: str) -> str:
    if character in "\n\t" or unicodedata.category(character) not in _UNSAFE:
        return character
    return character.encode("unicode_escape", "surrogatepass").decode()
