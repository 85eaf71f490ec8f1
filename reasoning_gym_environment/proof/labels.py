"""What a model writes for a label that holds characters or digits that nobody types."""

from __future__ import annotations

import re
import unicodedata

_INVISIBLE = re.compile("[\u00ad\u200b\u2060\ufeff]")
"""Soft hyphen, zero-width space, word joiner, byte order mark. Joiners of emoji count."""

_NOISE = re.compile(r"(?<!\d)-?\d+\.\d*?(?:0{6,}|9{6,})\d{1,3}(?!\d)")
"""A float whose last digits are an error of its arithmetic, such as 0.30000000000000004."""

_MOST_CHARACTERS = 1000
"""Of a label that is searched for such numbers; in a longer one it could take minutes."""

_PLACES = 9
"""Decimal places at which that error is gone."""


def written_forms(label: str) -> dict[str, str]:
    """Return how a model would write a label, by what is odd about it; empty if nothing is.

    Example:
        >>> written_forms("0.30000000000000004")
        {'float noise': '0.3'}
        >>> written_forms("42")
        {}
    """
    forms = {"unusual characters": _with_usual_characters(label)}
    if len(label) <= _MOST_CHARACTERS:
        forms["float noise"] = _NOISE.sub(_rounded, label)
    return {name: text for name, text in forms.items() if text != label}


def odd_character(label: str, written: str) -> str:
    """Return the name of a character, but for a digit, that only the label has; "" if none is.

    Example:
        >>> odd_character("1\\u00a0000", "1 000")
        'NO-BREAK SPACE'
    """
    odd = next(
        (letter for letter in label if letter not in written and not letter.isdigit()),
        "",
    )
    return unicodedata.name(odd, f"U+{ord(odd):04X}") if odd else ""


def _with_usual_characters(label: str) -> str:
    """Compose letters with their accents, replace odd blanks, and drop what can't be seen."""
    composed = unicodedata.normalize("NFC", _INVISIBLE.sub("", label))
    return "".join(
        " " if unicodedata.category(character) == "Zs" else character
        for character in composed
    )


def _rounded(number: re.Match[str]) -> str:
    text = f"{float(number[0]):.{_PLACES}f}".rstrip("0")
    return text.removesuffix(".")
