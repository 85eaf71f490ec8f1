"""Checks of items of the category cognition."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from itertools import product

from ...records import Fault
from .faults import Entry, ambiguous, unanswerable


def figlet_font(entry: Entry) -> Fault | None:
    font = entry["metadata"]["font"]
    if font == "b_m__200":
        return unanswerable("the font b_m__200 draws other signs than letters")
    look_alike = {
        "runic": ["QXZ", "UV"],
        "smisome1": ["DO"],
        "stencil2": ["CI"],
        "test1": ["CE"],
    }
    for letters in look_alike.get(font, ()):
        unlike_letters = sorted(set(entry["answer"]) & set(letters))
        if unlike_letters:
            return ambiguous(
                f"{unlike_letters[0]} is one of {letters} in the font {font}"
            )
    return None


def modulo_grid(entry: Entry) -> Fault | None:
    """Search for another pattern that has the known cells and fills the blanks otherwise."""
    grid_rows = re.findall(r"^[✅❌❔]+$", entry["question"], re.MULTILINE)
    answer = entry["answer"].split("\n")
    cells: dict[str, list[tuple[int, int]]] = {"✅": [], "❌": [], "❔": []}
    for row, marks in enumerate(grid_rows):
        for column, mark in enumerate(marks):
            cells[mark].append((row, column))
    marked, unmarked, blanks = cells.values()
    if not marked:
        return ambiguous("no cell of the pattern is known")
    label = [answer[row][column] == "✅" for row, column in blanks]
    largest = max(len(grid_rows), len(grid_rows[0])) + 30
    operations: tuple[Callable[[int, int, int], int], ...] = (
        lambda row, column, divisor: (row + column) % divisor,
        lambda row, column, divisor: abs(row - column) % divisor,
        lambda row, column, divisor: row * column % divisor,
        pow,
        lambda row, column, divisor: pow(column, row, divisor),
    )

    # A pattern marks the cells whose numbers, counted from `start`, leave one remainder.
    def is_marked(
        operation: Callable[[int, int, int], int],
        divisor: int,
        start: int,
        remainder: int,
        cell: tuple[int, int],
    ) -> bool:
        return operation(cell[0] + start, cell[1] + start, divisor) == remainder

    row, column = marked[0]
    for operation, divisor, start in product(operations, range(1, largest), (0, 1)):
        remainder = operation(row + start, column + start, divisor)
        rule = partial(is_marked, operation, divisor, start, remainder)
        if (
            all(map(rule, marked))
            and not any(map(rule, unmarked))
            and list(map(rule, blanks)) != label
        ):
            return ambiguous(f"another pattern fits, modulo {divisor}")
    return None


def needle_haystack(entry: Entry) -> Fault | None:
    """Find questions that two persons answer."""
    text, _, question = entry["question"].rpartition("\n")
    clause = question.removeprefix("Who ").removesuffix("? Reply only with a name.")
    return (
        None
        if text.count(f" {clause}.") < 2
        else ambiguous(f"several persons: {clause}")
    )
