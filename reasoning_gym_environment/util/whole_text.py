"""Text that UTF-8 can hold: JSON can carry halves of surrogate pairs, and models write them."""

from __future__ import annotations

import re

_LONE_SURROGATE = re.compile("[\ud800-\udfff]")


def made_whole(text: str) -> tuple[str, int]:
    """Put U+FFFD in the place of halves of surrogate pairs, and count them.

    Example:
        >>> made_whole("a" + chr(0xD800)) == ("a" + chr(0xFFFD), 1)
        True
    """
    try:
        text.encode()
    except UnicodeEncodeError:
        return _LONE_SURROGATE.subn("\ufffd", text)
    return text, 0
