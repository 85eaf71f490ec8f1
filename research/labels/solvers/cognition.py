"""Solvers of tasks: cognition, pictures, grids and programs."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import product
from typing import Any

from .solution import Property, Solution, Solver, UnreadableQuestionError, exactly

_Cell = tuple[int, int]


def _search(pattern: str, question: str, flags: int = 0) -> re.Match[str]:
    """Return the match of a pattern.

    Raises:
        UnreadableQuestionError: there is none.
    """
    found = re.search(pattern, question, flags)
    if not found:
        raise UnreadableQuestionError(f"no match of {pattern!r} in {question[:80]!r}")
    return found


_TILTS = {
    "front": ("front", "top", "back", "bottom"),
    "back": ("back", "top", "front", "bottom"),
}
_TILTS |= {
    "right": ("right", "top", "left", "bottom"),
    "left": ("left", "top", "right", "bottom"),
}
_ROTATION = r"(?:before at the|bring the|place its|make the|, the) (\w+)\b[^.]*\b(?:top|top face)\."


def _tilt(cube: Mapping[str, str], side: str) -> dict[str, str]:
    """Return the cube after the quarter turn that brings a side to the top."""
    cycle = _TILTS[side]
    moved = {to: cube[of] for of, to in zip(cycle, (*cycle[1:], cycle[0]), strict=True)}
    return {**cube, **moved}


def _turns(cube: dict[str, str], side: str) -> list[dict[str, str]]:
    """Return the cubes that bringing a side to the top may mean: the bottom comes either way."""
    if side == "top":
        return [cube]
    if side == "bottom":
        return [_tilt(_tilt(cube, way), way) for way in ("front", "right")]
    return [_tilt(cube, side)]


def color_cube_rotation(question: str) -> Solution:
    """Solve by turning the cube; half a turn leaves open which sides change places."""
    first = {
        side: color for color, side in re.findall(r"- an? (\w+) (\w+) side", question)
    }
    asked = _search(r"color of the (\w+) side of the cube\?", question)[1]
    steps = question.split("\n\n")[1:-1]
    if len(first) != 6 or not steps:
        raise UnreadableQuestionError(f"no cube: {question[:80]}")
    cubes = [first]
    for step in steps:
        side = _search(_ROTATION, step)[1]
        cubes = [turned for cube in cubes for turned in _turns(cube, side)]
        cubes = [dict(each) for each in {tuple(sorted(cube.items())) for cube in cubes}]
    right = sorted({cube[asked] for cube in cubes})
    wrong = [color for color in first.values() if color not in right]
    reason = (
        "the bottom comes to the top about either of two axes" if len(right) > 1 else ""
    )
    return exactly(*right, wrong=[*wrong, ", ".join(first.values())], ambiguous=reason)


def needle_haystack(question: str) -> Solution:
    """Solve by looking for the sentences that end as the question does."""
    found = _search(r"^(.*)\nWho (.+)\? Reply only with a name\.", question, re.DOTALL)
    sentences = re.findall(r"(\S+) ([^.]+)\.", found[1])
    names = [name for name, rest in sentences if rest == found[2]]
    others = [name for name, _ in sentences if name not in names]
    reason = "several have this property" if len(set(names)) > 1 else ""
    return exactly(*dict.fromkeys(names), wrong=others[:2], ambiguous=reason)


def bf(question: str) -> Solution:
    """Solve by running the program."""
    program = _search(r"\n\n([^A-Za-z]+)\n\n", question)[1]
    output = _run_bf(program)
    return exactly(output, wrong=[output[:-1] or "0", output.upper() + "!", output * 2])


def _run_bf(program: str) -> str:
    """Translate a program into Python, with cells of one byte and no input, and run it.

    Raises:
        UnreadableQuestionError: it repeats loops more than a million times.
    """
    lines = ["def run(loops):", " tape, at, output = [0] * 30000, 0, []"]
    depth = 1
    for run in re.findall(r">+|<+|\++|-+|\.|\[|\]", program):
        pad, size = " " * depth, len(run)
        if run[0] in "<>":
            lines.append(f"{pad}at {'+' if run[0] == '>' else '-'}= {size}")
        elif run[0] in "+-":
            lines.append(f"{pad}tape[at] = (tape[at] {run[0]} {size}) % 256")
        elif run == ".":
            lines.append(f"{pad}output.append(chr(tape[at]))")
        elif run == "[":
            lines += [f"{pad}while tape[at]:", f"{pad} next(loops)"]
            depth += 1
        else:
            depth -= 1
    names: dict[str, Any] = {}
    exec("\n".join([*lines, " return ''.join(output)"]), names)
    try:
        return str(names["run"](iter(range(1_000_000))))
    except StopIteration as error:
        raise UnreadableQuestionError("the program does not end") from error


def rectangle_count(question: str) -> Solution:
    """Solve by taking outlines away, from the first corner on, in every way.

    Two outlines that cross at four points are also four that touch: the label has the fewest.
    """
    picture = _search(r"in the grid below\?\n(.*)$", question, re.DOTALL)[1].split("\n")
    marks = {
        (row, column): " #█".index(mark)
        for row, line in enumerate(picture)
        for column, mark in enumerate(line)
        if mark in "#█"
    }
    counts = {0}
    while marks:
        part = _connected_part(marks)
        budget = [3_000]
        more = set(_counts(part, sorted(part), budget))
        if not more and budget[0] <= 0:
            raise UnreadableQuestionError("too many rectangles to try")
        counts = {one + other for one in counts for other in more}
    if not counts:
        return exactly()
    near = {min(counts) + way for way in (1, -1)} - counts
    return Solution(
        accepts=lambda text: text.strip().removesuffix(".0") in map(str, counts),
        right=[*map(str, sorted(counts)), f"{min(counts)}.0"],
        wrong=[str(each) for each in near],
        ambiguous="outlines that cross are also more that touch"
        if len(counts) > 1
        else "",
    )


def _connected_part(marks: dict[_Cell, int]) -> dict[_Cell, int]:
    """Remove marks that touch one another by their sides, and return them."""
    reached = [next(iter(marks))]
    part = {}
    while reached:
        row, column = reached.pop()
        if (row, column) in marks:
            part[row, column] = marks.pop((row, column))
            reached += [(row + 1, column), (row - 1, column)]
            reached += [(row, column + 1), (row, column - 1)]
    return part


def _counts(
    marks: dict[_Cell, int], cells: Sequence[_Cell], budget: list[int]
) -> Iterator[int]:
    """Yield the number of outlines of each way to take all marks away.

    Args:
        marks: how many outlines each cell has; as before at the end.
        cells: in order, from the first that may have a mark.
        budget: steps that are left; the search ends with them.
    """
    first = next((place for place, cell in enumerate(cells) if marks[cell]), None)
    if first is None:
        yield 0
        return
    rest = cells[first:]
    for end in sorted(_ends(marks, rest[0]), reverse=True):
        budget[0] -= 1
        if budget[0] <= 0:
            return
        outline = _outline(rest[0], end)
        for cell in outline:
            marks[cell] -= 1
        yield from (1 + count for count in _counts(marks, rest, budget))
        for cell in outline:
            marks[cell] += 1


def _outline(corner: _Cell, end: _Cell) -> set[_Cell]:
    rows, columns = range(corner[0], end[0] + 1), range(corner[1], end[1] + 1)
    sides = {(row, column) for row in rows for column in (corner[1], end[1])}
    return sides | {(row, column) for row in (corner[0], end[0]) for column in columns}


def _line(marks: Mapping[_Cell, int], cell: _Cell, way: _Cell) -> int:
    """Return the number of marks on a line that begins at a cell."""
    length = 0
    while marks.get((cell[0] + length * way[0], cell[1] + length * way[1])):
        length += 1
    return length


def _ends(marks: Mapping[_Cell, int], corner: _Cell) -> Iterator[_Cell]:
    """Yield the far corners of the outlines of marks that begin at a corner and have an inside."""
    top, left = corner
    across, down = _line(marks, corner, (0, 1)), _line(marks, corner, (1, 0))
    for column in range(left + 2, left + across):
        height = min(down, _line(marks, (top, column), (1, 0)))
        for row in range(top + 2, top + height):
            if _line(marks, (row, left), (0, 1)) > column - left:
                yield row, column


_OPERATIONS: Mapping[str, Callable[[int, int, int], int]] = {
    "sum": lambda x, y, divisor: (x + y) % divisor,
    "difference": lambda x, y, divisor: abs(x - y) % divisor,
    "product": lambda x, y, divisor: x * y % divisor,
    "power": pow,
    "power of the column": lambda x, y, divisor: pow(y, x, divisor),
}
"""Results of a column and a row, modulo a divisor."""


def modulo_grid(question: str) -> Solution:
    """Solve by trying an operation on row and column, and a rest of its result."""
    rows = [
        line.strip()
        for line in question.split("\n")
        if set(line.strip()) & set("✅❌❔")
    ]
    if len(rows) < 2 or len({len(row) for row in rows}) > 1:
        raise UnreadableQuestionError(f"no grid: {question[:80]}")
    filled = dict.fromkeys("\n".join(grid) for grid in _patterns(rows))
    other = "\n".join(rows).replace("❔", "✅"), "\n".join(rows).replace("❔", "❌")
    reason = "several operations and rests give the grid" if len(filled) > 1 else ""
    wrong = [grid for grid in (*other, "\n".join(rows)) if grid not in filled]
    return exactly(*filled, wrong=wrong, ambiguous=reason)


def _patterns(rows: Sequence[str]) -> Iterator[list[str]]:
    """Yield the filled grids of the patterns that fit, those of small divisors first."""
    height, width = len(rows), len(rows[0])
    known = {
        (y, x): rows[y][x] == "✅"
        for y in range(height)
        for x in range(width)
        if rows[y][x] != "❔"
    }
    marked = [cell for cell, mark in known.items() if mark]
    largest = max(height, width) + 30
    for divisor, first, operation in product(
        range(1, largest), (0, 1), _OPERATIONS.values()
    ):
        targets = {operation(x + first, y + first, divisor) for y, x in marked}
        if len(targets) == 1 and all(
            (operation(x + first, y + first, divisor) in targets) == mark
            for (y, x), mark in known.items()
        ):
            yield [
                "".join(
                    "✅"
                    if operation(x + first, y + first, divisor) in targets
                    else "❌"
                    for x in range(width)
                )
                for y in range(height)
            ]


_Sticker = tuple[tuple[int, ...], tuple[int, ...]]
_FACES: Mapping[str, tuple[int, int]] = {
    "U": (1, 0), "L": (0, 1), "F": (1, 1), "R": (2, 1), "B": (3, 1), "D": (1, 2),
}  # fmt: skip
"""Column and row of each face in the net of a cube, in faces."""
_AXES: Mapping[str, tuple[int, int]] = {
    "U": (1, 1), "D": (1, -1), "F": (2, 1), "B": (2, -1), "R": (0, 1), "L": (0, -1),
}  # fmt: skip
"""Axis of each face, of x to the right, y up and z to the front, and its side."""


def _sticker(face: str, row: int, column: int, size: int) -> _Sticker:
    """Return the place and the normal of a sticker of the net, with the cube's center at 0."""
    low, high = 1 - size, size - 1
    x, y = low + 2 * column, high - 2 * row
    place = {
        "U": (x, high, -y), "D": (x, low, y), "F": (x, y, high),
        "B": (-x, y, low), "R": (high, y, -x), "L": (low, y, x),
    }[face]  # fmt: skip
    axis, side = _AXES[face]
    return place, tuple(side if each == axis else 0 for each in range(3))


def _read_cube(question: str) -> dict[_Sticker, str]:
    """Return the color of each sticker of the net that a question shows."""
    lines = [
        line
        for line in question.split("\n")
        if re.fullmatch(r"[ WYROGB]*[WYROGB] *", line)
    ]
    size = len(lines) // 3
    cube = {}
    for face, (column, row) in _FACES.items():
        for y, x in product(range(size), repeat=2):
            line = lines[row * size + y]
            cube[_sticker(face, y, x, size)] = line[3 * (column * size + x) + 1]
    return cube


def _turn(cube: Mapping[_Sticker, str], move: str) -> dict[_Sticker, str]:
    """Return the cube after a quarter turn of one face, as seen from that face."""
    axis, side = _AXES[move[0]]
    way = -side if "'" not in move else side
    outer = max(place[0] for place, _ in cube)
    one, two = (axis + 1) % 3, (axis + 2) % 3

    def turned(vector: tuple[int, ...]) -> tuple[int, ...]:
        parts = list(vector)
        parts[one], parts[two] = -way * vector[two], way * vector[one]
        return tuple(parts)

    return {
        (turned(place), turned(normal))
        if place[axis] == side * outer
        else (place, normal): color
        for (place, normal), color in cube.items()
    }


def _is_solved(cube: Mapping[Any, str]) -> bool:
    """Return whether each side of a cube has one color."""
    return len({(normal, color) for (_, normal), color in cube.items()}) == 6


def _unsolved_cube(entry: Mapping[str, Any]) -> str:
    """Return which way of the metadata leaves the cube unsolved, or that nothing is to solve."""
    scramble = str(entry["metadata"]["scramble_moves"])
    undo = [
        move[0] if "'" in move else f"{move}'" for move in reversed(scramble.split())
    ]
    example = str(entry["metadata"]["example_correct_answer"] or "").split()
    if _is_solved(_read_cube(entry["question"])):
        return "the cube is solved already"
    for name, moves in (("scramble backward", undo), ("example", example)):
        if all(re.fullmatch(r"[UDLRFB]'?", move) for move in moves) and moves:
            cube = _read_cube(entry["question"])
            for move in moves:
                cube = _turn(cube, move)
            if not _is_solved(cube):
                return f"the {name} does not solve the cube"
    return ""


def _alike_letters(entry: Mapping[str, Any]) -> str:
    """Return which letter of the word looks like another one in its font."""
    from pyfiglet import Figlet

    draw = Figlet(font=entry["metadata"]["font"]).renderText
    for letter in sorted(set(entry["answer"])):
        for other in "ABCDEFGHIJKLMNOPQRSTUVWXYZ":
            if other != letter and draw(other) == draw(letter):
                return f"{letter} and {other} look the same"
    return ""


def _broken_rule(entry: Mapping[str, Any]) -> str:
    """Return whether the sequence does not follow the rule of the metadata."""
    terms = [int(text) for text in entry["question"].removesuffix(", ?").split(", ")]
    terms.append(int(entry["answer"]))
    for place in range(len(terms) - 1):
        value = terms[place]
        for step in filter(None, entry["metadata"]["rule"].split(" then ")):
            number = int((re.findall(r"-?\d+", step) or [0])[0])
            if step == "add previous":
                value += terms[place - 1] if place else 0
            else:
                name = step.split(" ")[0]
                value = {
                    "add": value + number, "multiply": value * number, "square": value * value,
                    "double": value * 2, "halve": value // 2,
                }[name]  # fmt: skip
        if value != terms[place + 1]:
            return f"{terms[place + 1]} does not follow {terms[place]}"
    return ""


def _foreign_label(entry: Mapping[str, Any]) -> str:
    """Return whether the label is neither the input nor the output."""
    metadata = entry["metadata"]
    data = json.loads(json.dumps([metadata["input_data"], metadata["output_data"]]))
    known = json.loads(entry["answer"]) in data
    return "" if known else "the label is neither the input nor the output"


def _contradicting_examples(entry: Mapping[str, Any]) -> str:
    """Return whether examples and label contradict one another, or no example shows the rule."""
    grids = re.findall(r"put:\s*((?:\d[\d ]*\n?)+)", entry["question"])
    texts = [grid.strip() for grid in (*grids, entry["answer"])]
    pairs = list(zip(texts[::2], texts[1::2], strict=True))
    if len(pairs) < 2:
        return "no examples"
    *examples, (asked, label) = pairs
    if asked != label and all(before == after for before, after in examples):
        return "the label changes its grid and no example does"
    return "" if len(dict(pairs)) == len(set(pairs)) else "one input has two outputs"


SOLVERS: Mapping[str, Solver] = {
    "bf": bf,
    "color_cube_rotation": color_cube_rotation,
    "modulo_grid": modulo_grid,
    "needle_haystack": needle_haystack,
    "rectangle_count": rectangle_count,
}

_INDUCTION = "the rule has to be guessed from examples"
_EXAMPLES = "no two outputs of one input, and an example that changes something if the label does"

PROPERTIES: Mapping[str, Property] = {
    "arc_1d": Property(
        reason=_INDUCTION,
        checked=_EXAMPLES,
        violation=_contradicting_examples,
    ),
    "arc_agi": Property(
        reason=_INDUCTION,
        checked=_EXAMPLES,
        violation=_contradicting_examples,
    ),
    "codeio": Property(
        reason="a program has to be run that is not ours",
        checked="a label that is the input or output of the metadata",
        violation=_foreign_label,
    ),
    "figlet_font": Property(
        reason="a word has to be read from a picture",
        checked="no letter of the word that looks like another one in its font",
        violation=_alike_letters,
    ),
    "number_sequence": Property(
        reason=_INDUCTION,
        checked="a sequence that follows the rule of the metadata to the label",
        violation=_broken_rule,
    ),
    "rearc": Property(
        reason=_INDUCTION,
        checked=_EXAMPLES,
        violation=_contradicting_examples,
    ),
    "rubiks_cube": Property(
        reason="a solution of a large cube takes a solver of its own",
        checked="the scramble backward and the example, which solve the cube of the question",
        violation=_unsolved_cube,
    ),
}
