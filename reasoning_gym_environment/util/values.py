"""Untrusted text and values: checked, valid for UTF-8, safe to print, short; tables; groups."""

from __future__ import annotations

import json
import re
import reprlib
import shutil
import sys
import textwrap
import traceback
import unicodedata
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

WITHHELD = "withheld"
"""Stands where an API key stood."""

_repr = reprlib.Repr()
_repr.maxlevel = 2
_repr.maxstring = _repr.maxother = 50


def replace_surrogates(text: str) -> tuple[str, int]:
    """Replace lone surrogates, which JSON can carry and models write, by U+FFFD; count them.

    Example:
        >>> replace_surrogates("a" + chr(0xD800)) == ("a" + chr(0xFFFD), 1)
        True
    """
    try:
        text.encode()
    except UnicodeEncodeError:
        return re.subn("[\ud800-\udfff]", "\ufffd", text)
    return text, 0


def escape_control_characters(text: str) -> str:
    r"""Escape characters that could move the cursor, color, hide or reorder text.

    Line feeds and tabs stay.

    Example:
        >>> print(escape_control_characters("\x1b[31mred\x07\u202e"))
        \x1b[31mred\x07\u202e
    """

    def escaped(character: str) -> str:
        unsafe = ("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp")  # invisible
        if character in "\n\t" or unicodedata.category(character) not in unsafe:
            return character
        return character.encode("unicode_escape", "surrogatepass").decode()

    return "".join(map(escaped, text))


def shorten(value: object) -> str:
    """Write a value of any size in at most 100 characters.

    Example:
        >>> shorten(10**300), shorten([1, 2]), shorten("a" * 80)[:9]
        ('a number of 997 bits', '[1, 2]', "'aaaaaaaa")
    """
    if isinstance(value, int) and value.bit_length() > 64:
        return f"a number of {value.bit_length()} bits"
    if type(value).__repr__ is object.__repr__:  # its module and place in memory
        return type(value).__name__
    try:
        return _repr.repr(value)[:100]
    except ValueError:  # Python writes no number of more than 4300 digits
        return "a list with a huge number"


def table(
    rows: Sequence[Sequence[str]],
    *,
    drop: Sequence[str] = (),
    legend: Mapping[str, str] | None = None,
) -> str:
    """Align the cells of rows below the first one, the header; a text is a line between them.

    On a terminal that is too narrow, columns are dropped by name, in order, and the last one wraps.

    Args:
        legend: what columns mean, by name; those that are shown are explained below the table.
    """
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else sys.maxsize
    shown = []
    for column in zip(*(row for row in rows if not isinstance(row, str)), strict=True):
        numeric = all(re.match(r"[-+]?\d|-|$", cell.strip()) for cell in column[1:])
        align = str.rjust if numeric else str.ljust
        size = max(map(len, column))
        shown.append([align(cell, size) for cell in column])
    for name in drop:
        if sum(len(column[0]) + 2 for column in shown) - 2 > width:
            shown = [column for column in shown if column[0].strip() != name]
    aligned = zip(*shown, strict=True)
    names = [column[0].strip() for column in shown]
    explained = [
        f"{name}: {text}" for name, text in (legend or {}).items() if name in names
    ]
    lines = []
    for row in [*rows, *(["", "; ".join(explained)] if explained else [])]:
        *first, last = [row] if isinstance(row, str) else next(aligned)
        margin = "".join(f"{cell}  " for cell in first)
        indent = " " * (len(margin) or len(last) - len(last.lstrip()))
        room = max(width, len(margin) + 20)
        text = textwrap.fill(
            margin + last,
            room,
            subsequent_indent=indent,
            break_on_hyphens=False,
        )
        lines.append(text.rstrip())
    return "\n".join(lines)


def describe_error(error: BaseException) -> str:
    """Return an error's type and its text, which may raise anything itself."""
    try:
        return f"{type(error).__name__}: {error}"
    except Exception:  # noqa: BLE001 - its own text may raise anything
        return type(error).__name__


def describe_origin(error: BaseException) -> str:
    """Return an error's type and text, and the line of a user's code that raised it."""
    frames = traceback.extract_tb(error.__traceback__)
    skipped = rf"^<frozen |/importlib/|^{re.escape(str(Path(__file__).parents[1]))}/"
    own_frames = [frame for frame in frames if not re.search(skipped, frame.filename)]
    where = (
        f" ({own_frames[-1].filename}, line {own_frames[-1].lineno})"
        if own_frames
        else ""
    )
    return describe_error(error) + where


T = TypeVar("T")
Key = TypeVar("Key", bound=Hashable)


def group_by(key: Callable[[T], Key], items: Iterable[T]) -> dict[Key, list[T]]:
    """Group items by a key; keys and items keep their order of appearance.

    Example:
        >>> group_by(len, ["a", "bb", "c"])
        {1: ['a', 'c'], 2: ['bb']}
    """
    groups: dict[Key, list[T]] = {}
    for thing in items:
        groups.setdefault(key(thing), []).append(thing)
    return groups


Model = TypeVar("Model")


def convert(value: Any, model: type[Model]) -> Model:
    """Convert plain JSON, as `json.loads` returns it, to a model.

    Raises:
        ValueError: it doesn't fit; the message is one sentence with the key and the bad value.

    Example:
        >>> convert([[1, 2], [3, "4"]], list[list[int]])
        Traceback (most recent call last):
        ValueError: [1][1] must be int, got '4'
    """
    import msgspec  # modules that need text alone import the standard library alone

    try:
        return msgspec.convert(value, model)
    except msgspec.ValidationError as error:
        raise ValueError(_describe(str(error), value)) from None
    except UnicodeEncodeError:  # a lone surrogate in a key or an enumeration's value
        text, _ = replace_surrogates(json.dumps(value, ensure_ascii=False))
        return convert(json.loads(text), model)


def _describe(error: str, value: Any) -> str:
    """Turn msgspec's message into a sentence; it names places as in `$.rollouts[0].score`."""
    message, _, path = error.partition(" - at `$")
    path = path.strip("`.")
    if message.startswith("Expected ") and "[...]" not in path:
        for key in re.findall(r"\w+", path):
            value = value[int(key)] if isinstance(value, list) else value[key]
        expected = (
            message.removeprefix("Expected ").partition(", got")[0].replace("`", "")
        )
        return f"{path or 'the value'} must be {expected}, got {value!r:.50}"
    message = message[0].lower() + message[1:]
    return f"{path}: {message}" if path else message
