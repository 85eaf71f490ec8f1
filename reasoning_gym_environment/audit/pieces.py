r"""Takes a question apart: numbers, words, grids, lists, quotations, examples. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

_NUMBER = re.compile(r"(?<![\w.])-?\d+(?:,\d{3})*(?:\.\d+)?(?:[eE][+-]?\d{1,2})?(?![\w])")
_WORD = re.compile(r"[^\W\d_]+")
_QUOTED = re.compile(r"\"([^\"\n]+)\"|`([^`\n]+)`|'([^'\n]+)'")
_EXAMPLE = re.compile(r"(?:e\.g\.,?|ex\.?[,:]|[Ee]xample:?|like:?)[ \n]+(.+?)[])\".]*$", re.M)
_ITEM = re.compile(r"^\W{0,4}\d+[.:] *(.+)$", re.M)
_RUN = re.compile(r"[\w.+-]+(?:, *[\w.+-]+)+")
_MOST_CELL_CHARACTERS = 3

Grid = list[list[str]]


def numbers(text: str) -> list[str]:
    """Find the numbers, as they are written.

    Example:
        >>> numbers("Add -3 to 1,250.5 (or 2e3), not x2.")
        ['-3', '1,250.5', '2e3']
    """
    return _NUMBER.findall(text)


def words(text: str) -> list[str]:
    return _WORD.findall(text)


def lines(text: str) -> list[str]:
    """Split into lines, without the blank ones."""
    return [line.strip() for line in text.splitlines() if line.strip()]


def quotations(text: str) -> list[str]:
    return ["".join(parts) for parts in _QUOTED.findall(text)]


def examples(text: str) -> list[str]:
    """Find what follows "e.g.", "example" or "like", to the end of its line."""
    return _EXAMPLE.findall(text)


def items(text: str) -> list[str]:
    """Find the lines of a numbered list, without their numbers.

    Example:
        >>> items("1. P\\n.2. (P → Q)")
        ['P', '(P → Q)']
    """
    return _ITEM.findall(text)


def runs(text: str) -> list[list[str]]:
    """Find what is listed by commas: two or more words or numbers each."""
    return [re.split(r", *", run) for run in _RUN.findall(text)]


def grids(text: str) -> list[Grid]:
    """Find what is laid out in rows of short cells with blanks between.

    Example:
        >>> grids("Turn:\\n1 2\\n3 4\\nby 90 degrees")
        [[['1', '2'], ['3', '4']]]
    """
    found: list[Grid] = [[]]
    for line in text.splitlines():
        row = line.split()
        if len(row) > 1 and all(len(cell) <= _MOST_CELL_CHARACTERS for cell in row):
            found[-1].append(row)
        elif found[-1]:
            found.append([])
    return [grid for grid in found if grid]


def brackets(text: str) -> list[str]:
    """Find what stands in square brackets, the outermost ones.

    Example:
        >>> brackets("of [1, [2]] and [3]")
        ['[1, [2]]', '[3]']
    """
    return list(_outermost(text))


def _outermost(text: str) -> Iterator[str]:
    depth = begin = 0
    for place, character in enumerate(text):
        if character == "[":
            begin = place if depth == 0 else begin
            depth += 1
        elif character == "]" and depth:
            depth -= 1
            if depth == 0:
                yield text[begin : place + 1]


def elements(bracket: str) -> list[str]:
    """Split what stands in brackets at its commas, without quotation marks."""
    return [part.strip(" []'\"\n") for part in bracket.split(",")]


def written(rows: Sequence[Sequence[str]]) -> str:
    """Lay a grid out as text."""
    return "\n".join(" ".join(row) for row in rows)
