"""What the user can put right: the command line prints these as one sentence."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class FixableError(Exception):
    """Something in the user's hands is wrong; the message names the value and the way out."""


class ConfigurationError(FixableError, ValueError):
    """A setting can't work."""


def did_you_mean(name: str, known: Iterable[str], *, otherwise: str) -> str:
    """The way out for a name that does not exist: the closest ones that do.

    Args:
        otherwise: what is said where none is close.

    Example:
        >>> did_you_mean("gdc", ["gcd", "lcm"], otherwise="see the docs")
        'did you mean gcd?'
    """
    close = difflib.get_close_matches(name, list(known), n=3)
    return f"did you mean {', '.join(close)}?" if close else otherwise
