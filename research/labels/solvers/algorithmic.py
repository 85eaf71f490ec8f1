"""Solvers of tasks: algorithmic."""

from __future__ import annotations

import json
import re
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from decimal import ROUND_HALF_EVEN, ROUND_HALF_UP, Decimal
from fractions import Fraction
from itertools import islice, pairwise, product
from typing import Any

from .solution import (
    Property,
    Solution,
    Solver,
    UnreadableQuestionError,
    exactly,
    shortest_path,
)

Matrix = tuple[tuple[Any, ...], ...]

_SIDES = ((-1, 0), (1, 0), (0, -1), (0, 1))
_NEIGHBORS = tuple(step for step in product((-1, 0, 1), repeat=2) if step != (0, 0))


def _read(pattern: str, question: str) -> re.Match[str]:
    found = re.search(pattern, question, re.DOTALL)
    if not found:
        raise UnreadableQuestionError(f"no match for {pattern!r}")
    return found


def _rows(text: str, number: Callable[[str], Any] = int) -> Matrix:
    """Return the matrix that a text shows, with brackets and commas or without."""
    lines = [
        line.split()
        for line in re.sub(r"[\[\],]", " ", text).splitlines()
        if line.strip()
    ]
    if "[" in text:
        lines = [
            row.replace(",", " ").split()
            for row in re.findall(r"[^\[\]]*[^\[\],\s]", text)
        ]
    rows = tuple(tuple(number(cell) for cell in line) for line in lines)
    if len({len(row) for row in rows}) > 1:
        raise ValueError("rows of different lengths")
    return rows


def _matrix(text: str) -> Matrix:
    """Return the matrix of a question."""
    try:
        rows = _rows(text)
    except ValueError as error:
        raise UnreadableQuestionError(str(error)) from error
    if not rows:
        raise UnreadableQuestionError("no matrix")
    return rows


def _shown(matrix: Iterable[Iterable[object]]) -> str:
    return "\n".join(" ".join(map(str, row)) for row in matrix)


def _is_matrix(text: str, *right: Matrix) -> bool:
    try:
        return _rows(text, Fraction) in right
    except (ValueError, ZeroDivisionError):
        return False


def _one_changed(matrix: Matrix) -> Matrix:
    """Return the matrix with its last cell greater by one."""
    return (*matrix[:-1], (*matrix[-1][:-1], matrix[-1][-1] + 1))


def _solution(
    accepts: Callable[[str], bool],
    right: Sequence[str],
    near: Iterable[str],
    ambiguous: str = "",
) -> Solution:
    """Return a solution whose wrong answers are those near misses that happen not to be right."""
    wrong = [text for text in near if not accepts(text)]
    return Solution(accepts=accepts, right=right, wrong=wrong, ambiguous=ambiguous)


def _whole_number(right: int, *wrong: int) -> Solution:
    """Return a solution that is an integer."""

    def accepts(text: str) -> bool:
        try:
            return Fraction(text.strip().replace(",", "")) == right
        except (ValueError, ZeroDivisionError):
            return False

    return Solution(
        accepts=accepts, right=[str(right)], wrong=[str(each) for each in wrong]
    )


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return None


def _distances(
    matrix: Matrix, sources: Iterable[tuple[int, int]]
) -> dict[tuple[int, int], int]:
    """Return the steps from the nearest source over the cells that aren't 0 to each of them."""
    found = dict.fromkeys(sources, 0)
    queue = deque(found)
    while queue:
        row, column = queue.popleft()
        for down, right in _SIDES:
            at = row + down, column + right
            inside = 0 <= at[0] < len(matrix) and 0 <= at[1] < len(matrix[0])
            if inside and at not in found and matrix[at[0]][at[1]] != 0:
                found[at] = found[row, column] + 1
                queue.append(at)
    return found


def _where(matrix: Matrix, value: int) -> list[tuple[int, int]]:
    return [
        (r, c)
        for r, row in enumerate(matrix)
        for c, cell in enumerate(row)
        if cell == value
    ]


def binary_matrix(question: str) -> Solution:
    """Measure the taxicab distance of each cell to each 0."""
    matrix = _matrix(_read(r"in the matrix below:\n(.+)", question)[1])
    zeros = _where(matrix, 0)
    if not zeros:
        return Solution(accepts=lambda _: False, right=[])

    def nearest(distance: Callable[[int, int], int]) -> Matrix:
        return tuple(
            tuple(
                min(distance(abs(r - y), abs(c - x)) for y, x in zeros)
                for c in range(len(row))
            )
            for r, row in enumerate(matrix)
        )

    right, diagonal = nearest(lambda down, across: down + across), nearest(max)
    return _solution(
        accepts=lambda text: _is_matrix(text, right),
        right=[_shown(right), json.dumps(right)],
        near=[_shown(each) for each in (diagonal, _one_changed(right), right[:-1])],
    )


def count_primes(question: str) -> Solution:
    """Count primes with a sieve."""
    found = _read(r"between (\d+) and (\d+) \(inclusive\)", question)
    low, high = int(found[1]), int(found[2])
    is_prime = [False, False, *[True] * max(0, high - 1)]
    for n in range(2, high + 1):
        if is_prime[n]:
            is_prime[n * n :: n] = [False] * len(is_prime[n * n :: n])
    count = sum(is_prime[low : high + 1])
    return _whole_number(count, count - 1, count + 1)


def _assignments(
    words: Sequence[str], total: str, *, leading_zero: bool = False
) -> Iterator[dict[str, int]]:
    """Yield the digits of the letters that make the sum true, the weightiest letter first."""
    weights: Counter[str] = Counter()
    for word, sign in [*((word, 1) for word in words), (total, -1)]:
        for place, letter in enumerate(reversed(word)):
            weights[letter] += sign * 10**place
    letters = sorted(weights, key=lambda letter: -abs(weights[letter]))
    leading = set() if leading_zero else {word[0] for word in (*words, total)}

    def solve(known: dict[str, int], reached: int) -> Iterator[dict[str, int]]:
        rest = [weights[letter] for letter in letters[len(known) :]]
        least, most = (
            9 * sum(pick(weight, 0) for weight in rest) for pick in (min, max)
        )
        if not -most <= reached <= -least:
            return
        if not rest:
            yield known
            return
        letter = letters[len(known)]
        for digit in range(letter in leading, 10):
            if digit not in known.values():
                yield from solve({**known, letter: digit}, reached + digit * rest[0])

    yield from solve({}, 0)


def cryptarithm(question: str) -> Solution:
    """Try digits for letters, column by column."""
    found = _read(r"cryptarithm:\n\n([A-Z+\s]+)\n-+\n\s*([A-Z]+)\n", question)
    words, total = re.findall("[A-Z]+", found[1]), found[2]
    letters = {*total, *"".join(words)}

    def solves(known: Mapping[str, int]) -> bool:
        if known.keys() != letters or len({*known.values()}) < len(letters):
            return False
        if not all(known[word[0]] for word in (*words, total)):
            return False
        numbers = [
            int("".join(str(known[each]) for each in word)) for word in (*words, total)
        ]
        return sum(numbers[:-1]) == numbers[-1]

    def accepts(text: str) -> bool:
        pairs = re.findall(r"\b([A-Z])\s*[=:]\s*(\d)\b", text)
        return len(pairs) == len(letters) and solves({k: int(v) for k, v in pairs})

    def shown(known: Mapping[str, int]) -> str:
        return ",".join(f"{letter}={known[letter]}" for letter in sorted(known))

    right = list(islice(_assignments(words, total), 5))
    first = right[0] if right else {}
    swapped = dict(
        zip(first, [*list(first.values())[1:], *list(first.values())[:1]], strict=True)
    )
    relaxed = islice(_assignments(words, total, leading_zero=True), 20)
    wrong = [swapped, dict([*first.items()][1:]), *relaxed]
    return _solution(
        accepts=accepts,
        right=[shown(each) for each in right],
        near=[shown(each) for each in wrong],
    )


def _next_board(board: Matrix, *, wraps: bool = True) -> Matrix:
    height, width = len(board), len(board[0])

    def lives(row: int, column: int) -> bool:
        around = ((row + down, column + right) for down, right in _NEIGHBORS)
        count = sum(
            board[r % height][c % width]
            for r, c in around
            if wraps or (0 <= r < height and 0 <= c < width)
        )
        return count == 3 or (count == 2 and bool(board[row][column]))

    return tuple(tuple(int(lives(r, c)) for c in range(width)) for r in range(height))


def _after(board: Matrix, steps: int, *, wraps: bool = True) -> Matrix:
    for _ in range(steps):
        board = _next_board(board, wraps=wraps)
    return board


def game_of_life(question: str) -> Solution:
    """Simulate the board on a torus."""
    steps = int(
        _read(r"after (\d+) steps? .*Moore neighborhood and wrapping", question)[1]
    )
    board = _matrix(_read(r"\n\n(\[\[.*\]\])", question)[1])
    right = _after(board, steps)

    def accepts(text: str) -> bool:
        return bool(_json(text) == [list(row) for row in right])

    extra = (*right, right[0])
    near = [_after(board, steps, wraps=False), _after(board, steps + 1), extra]
    return _solution(
        accepts=accepts,
        right=[json.dumps(right), json.dumps(right, indent=1)],
        near=[json.dumps(each) for each in near],
    )


def game_of_life_halting(question: str) -> Solution:
    """Simulate the board on a torus until no cell lives."""
    steps = int(_read(r"halt at or before (\d+) steps\?", question)[1])
    board = _matrix(_read(r"Initial board:\n(\[\[[\d\s\[\]]+\]\])", question)[1])
    right = str(not any(map(any, _after(board, steps))))
    wrong = str(right != "True")
    return exactly(right, wrong=[wrong, wrong.lower(), f"{right} {wrong}"])


def graph_color(question: str) -> Solution:
    """Color the vertices one after another, going back where no color is left."""
    found = _read(
        r"Vertices: (\[.*?\])\nEdges: (\[.*?\])\nPossible colors: (\[.*?\])", question
    )
    vertices, colors = json.loads(found[1]), json.loads(found[3])
    edges = [(int(a), int(b)) for a, b in re.findall(r"\((\d+), (\d+)\)", found[2])]

    def is_proper(known: Any) -> bool:
        return (
            isinstance(known, dict)
            and known.keys() == {str(vertex) for vertex in vertices}
            and all(type(color) is int and color in colors for color in known.values())
            and all(known[str(a)] != known[str(b)] for a, b in edges)
        )

    def color(known: dict[int, int]) -> Iterator[dict[str, int]]:
        if len(known) == len(vertices):
            yield {str(vertex): known[vertex] for vertex in vertices}
            return
        vertex = vertices[len(known)]
        taken = {
            known.get(b if a == vertex else a) for a, b in edges if vertex in (a, b)
        }
        for each in colors:
            if each not in taken:
                yield from color({**known, vertex: each})

    right = list(islice(color({}), 2))
    first = next(iter(right), {})
    wrong = [
        dict.fromkeys(first, colors[0]),
        dict(list(first.items())[1:]),
        {**first, str(vertices[-1]): max(colors) + 1},
    ]
    return _solution(
        accepts=lambda text: is_proper(_json(text)),
        right=[json.dumps(each) for each in right],
        near=[json.dumps(each) for each in wrong],
    )


def _moved_water(
    move: str, water: tuple[int, ...], sizes: Mapping[str, int]
) -> tuple[int, ...]:
    """Return the jugs' contents after a move; raise ValueError if it is none."""
    found = re.fullmatch(r"(?:(fill|empty) (\w+)|pour (\w+)\s*->\s*(\w+))", move)
    names = list(sizes)
    if not found or not {name for name in found.groups()[1:] if name} <= sizes.keys():
        raise ValueError(move)
    after = list(water)
    if found[1]:
        after[names.index(found[2])] = sizes[found[2]] if found[1] == "fill" else 0
    elif found[3] != found[4]:
        giver, taker = names.index(found[3]), names.index(found[4])
        poured = min(water[giver], sizes[found[4]] - water[taker])
        after[giver] -= poured
        after[taker] += poured
    return tuple(after)


def jugs(question: str) -> Solution:
    """Search the shortest sequence of moves, breadth first."""
    found = _read(r"litres of water: (.+?)\nAnd your target is: (\d+) litres", question)
    sizes = {name: int(size) for name, size in re.findall(r"(\w+):(\d+)", found[1])}
    target, empty = int(found[2]), (0,) * len(sizes)
    moves = [f"{verb} {jug}" for verb in ("fill", "empty") for jug in sizes]
    moves += [f"pour {a}->{b}" for a in sizes for b in sizes if a != b]

    def accepts(text: str) -> bool:
        listed, water = _json(text), empty
        if not isinstance(listed, list) or not all(
            isinstance(each, str) for each in listed
        ):
            return False
        reached = target in water
        for move in listed:
            try:
                water = _moved_water(move, water, sizes)
            except ValueError:
                return False
            reached = reached or target in water
        return reached

    def successors(water: tuple[int, ...]) -> Iterator[tuple[str, tuple[int, ...]]]:
        return ((move, _moved_water(move, water, sizes)) for move in moves)

    shortest = shortest_path(empty, successors, lambda water: target in water)
    if shortest is None:
        return Solution(accepts=accepts, right=[])
    a, b = list(sizes)[:2]
    longer = [f"fill {a}", f"empty {a}", *shortest]
    wrong = [shortest[:-1], [*shortest[:-1], "fill Z"], [f"fill {a}", f"fill {b}"]]
    return _solution(
        accepts=accepts,
        right=[json.dumps(shortest), json.dumps(longer)],
        near=[json.dumps(each) for each in wrong],
    )


def _turned(matrix: Matrix, quarters: int) -> Matrix:
    """Return the matrix rotated clockwise by quarter turns."""
    for _ in range(quarters % 4):
        matrix = tuple(zip(*matrix[::-1], strict=True))
    return matrix


def _crop(matrix: Matrix, top: int, bottom: int, left: int, right: int) -> Matrix:
    return tuple(row[left - 1 : right] for row in matrix[top - 1 : bottom])


def _without_rows(matrix: Matrix, n: int) -> Matrix:
    return tuple(row for i, row in enumerate(matrix, 1) if i % n)


def _with_cells(matrix: Matrix, value: Callable[[int], int]) -> Matrix:
    return tuple(tuple(map(value, row)) for row in matrix)


def _transposed(matrix: Matrix) -> Matrix:
    return tuple(zip(*matrix, strict=True))


_OPERATIONS: Mapping[str, Callable[..., Matrix]] = {
    r"Identity transformation, i\.e\. no change": lambda m: m,
    r"Horizontally mirror the matrix": lambda m: tuple(row[::-1] for row in m),
    r"Vertically mirror the matrix": lambda m: m[::-1],
    r"Mirror the matrix along the diagonal": _transposed,
    r"Mirror the matrix along the counterdiagonal": lambda m: _turned(
        _transposed(m), 2
    ),
    r"Map each occurrence of (\d+) to (\d+)": lambda m, old, new: _with_cells(
        m, lambda cell: new if cell == old else cell
    ),
    r"Set all elements divisible by (\d+) to zero": lambda m, n: _with_cells(
        m, lambda cell: cell if cell % n else 0
    ),
    r"Remove every (\d+)-\w\w row \(1-indexed\)": _without_rows,
    r"Remove every (\d+)-\w\w column \(1-indexed\)": lambda m, n: _transposed(
        _without_rows(_transposed(m), n)
    ),
    r"Crop the matrix to rows (\d+)-(\d+) and columns (\d+)-(\d+) \(1-indexed\)": _crop,
    r"Rotate the matrix (\d+) degrees": lambda m, degrees: _turned(m, degrees // 90),
}


def _operated(
    matrix: Matrix, operations: Sequence[str], *, clockwise: bool, sideways: bool
) -> Matrix:
    """Return the matrix after the operations.

    Args:
        matrix: to start from.
        operations: in the words of the question.
        clockwise: how a rotation is read.
        sideways: whether mirroring horizontally exchanges left and right.
    """
    other = {"Horizontally": "Vertically", "Vertically": "Horizontally"}
    for line in operations:
        verb, _, rest = line.removeprefix("- ").partition(" ")
        operation = f"{verb if sideways else other.get(verb, verb)} {rest}"
        readings = (
            (re.fullmatch(pattern, operation), do)
            for pattern, do in _OPERATIONS.items()
        )
        found, operate = next(
            ((match, do) for match, do in readings if match), (None, None)
        )
        if not found or not operate:
            raise UnreadableQuestionError(line)
        sign = -1 if verb == "Rotate" and not clockwise else 1
        matrix = operate(matrix, *[sign * int(each) for each in found.groups()])
    return matrix


def manipulate_matrix(question: str) -> Solution:
    """Do the operations; mirrors have two readings, and so have rotations without a direction."""
    found = _read(r"following matrix:\n(.+?)\n\nPerform .* in order:\n(.+)", question)
    matrix, operations = _matrix(found[1]), found[2].strip().splitlines()
    readings = [
        _operated(matrix, operations, clockwise=clockwise, sideways=sideways)
        for clockwise, sideways in product((True, False), repeat=2)
    ]
    right, turned, mirrored = readings[0], readings[2], readings[1]
    unclear = {"the axis of a mirror": mirrored, "the direction of a rotation": turned}
    near = (
        [_one_changed(right), _turned(right, 2), right[:-1]]
        if right and right[0]
        else []
    )
    return _solution(
        accepts=lambda text: _is_matrix(text, *readings),
        right=[*map(_shown, dict.fromkeys(readings)), json.dumps(right)],
        near=[_shown(each) for each in near],
        ambiguous=" and ".join(
            phrase for phrase, other in unclear.items() if other != right
        ),
    )


def rotate_matrix(question: str) -> Solution:
    """Rotate by quarter turns."""
    found = _read(
        r"Rotate the matrix below by (\d+) degrees clockwise:\n(.+)", question
    )
    matrix, quarters = _matrix(found[2]), int(found[1]) // 90
    right = _turned(matrix, quarters)
    near = [
        _turned(matrix, -quarters),
        _turned(matrix, quarters + 2),
        _one_changed(right),
    ]
    return _solution(
        accepts=lambda text: _is_matrix(text, right),
        right=[_shown(right)],
        near=[_shown(each) for each in near],
    )


def _pools(matrix: Matrix, size: int, *, partial: bool) -> list[list[list[int]]]:
    """Return the numbers of each pooling region, with or without those cut off at the edge."""
    height, width = len(matrix), len(matrix[0])
    ends = (height, width) if partial else (height - size + 1, width - size + 1)
    return [
        [
            [
                cell
                for row in matrix[top : top + size]
                for cell in row[left : left + size]
            ]
            for left in range(0, ends[1], size)
        ]
        for top in range(0, ends[0], size)
    ]


def _decimal(value: Fraction, places: str, rounding: str) -> str:
    exact = Decimal(value.numerator) / Decimal(value.denominator)
    return str(exact.quantize(Decimal(places), rounding))


def _pooled(matrix: Matrix, kind: str, size: int, *, partial: bool) -> Matrix:
    return tuple(
        tuple(
            Fraction(max(p)) if kind == "max" else Fraction(sum(p), len(p)) for p in row
        )
        for row in _pools(matrix, size, partial=partial)
    )


def _is_rounded(text: str, exact: Matrix) -> bool:
    """Return whether the text shows the matrix, correct to two decimal places."""
    try:
        given = _rows(text, Fraction)
    except (ValueError, ZeroDivisionError):
        return False
    return [len(row) for row in given] == [len(row) for row in exact] and all(
        abs(a - b) <= Fraction(1, 200)
        for row, other in zip(given, exact, strict=True)
        for a, b in zip(row, other, strict=True)
    )


def pool_matrix(question: str) -> Solution:
    """Pool the regions; those that the edge cuts off are kept or dropped."""
    pattern = r"Perform (max|average) pooling on .* kernel size of (\d+):\n(.+)"
    found = _read(pattern, question)
    kind, size, matrix = found[1], int(found[2]), _matrix(found[3])
    right = _pooled(matrix, kind, size, partial=True)
    whole = _pooled(matrix, kind, size, partial=False)
    readings = [right, whole] if whole and whole[0] and whole != right else [right]

    def shown(
        pooled: Matrix, places: str = "0.01", rounding: str = ROUND_HALF_EVEN
    ) -> str:
        return _shown(
            [[_decimal(cell, places, rounding) for cell in row] for row in pooled]
        )

    forms = [
        shown(right),
        shown(right, rounding=ROUND_HALF_UP),
        shown(right).replace(".00", ""),
    ]
    other_kind = _pooled(
        matrix, "average" if kind == "max" else "max", size, partial=True
    )
    near = [other_kind, _one_changed(right), _transposed(right)]
    return _solution(
        accepts=lambda text: any(_is_rounded(text, reading) for reading in readings),
        right=list(dict.fromkeys(forms)),
        near=[*map(shown, near), shown(right, "0.1")],
        ambiguous="regions at the edge are smaller than the kernel"
        if readings[1:]
        else "",
    )


def rotten_oranges(question: str) -> Solution:
    """Search breadth first from the rotten oranges."""
    matrix = _matrix(_read(r"grid below has a fresh orange:\n(.+)", question)[1])
    minutes = _distances(matrix, _where(matrix, 2))
    fresh = [minutes.get(at) for at in _where(matrix, 1)]
    known = [each for each in fresh if each is not None]
    if len(known) < len(fresh):
        return _whole_number(-1, max(known, default=0))
    right = max(known, default=0)
    return _whole_number(right, right + 1, right - 1)


def spiral_matrix(question: str) -> Solution:
    """Take the top row and turn the rest counterclockwise, again and again."""
    matrix = _matrix(_read(r"elements in spiral order\?\n(.+)", question)[1])

    def spiral(rest: Matrix) -> list[int]:
        return [*rest[0], *spiral(_turned(rest[1:], 3))] if rest and rest[0] else []

    right, other_way = spiral(matrix), spiral(_transposed(matrix))
    near = [other_way, right[:-1], [*right[:-1], right[-1] + 1]]
    return _solution(
        accepts=lambda text: _is_matrix(" ".join(text.split()), (tuple(right),)),
        right=[_shown([right])],
        near=[_shown([each]) for each in near],
    )


def _word_ladder(entry: Mapping[str, Any]) -> str:
    """Return what is wrong with the label's chain."""
    found = _read(
        r"ladder '(\w+)' to '(\w+)' by changing one letter", entry["question"]
    )
    chain = entry["answer"].split(",")
    if (chain[0], chain[-1]) != found.groups():
        return "the chain has other ends"
    for before, after in pairwise(chain):
        if len(before) != len(after) or sum(map(str.__ne__, before, after)) != 1:
            return f"{before} and {after} do not differ in one letter"
    return "" if len(set(chain)) == len(chain) else "a word occurs twice"


SOLVERS: Mapping[str, Solver] = {
    "binary_matrix": binary_matrix,
    "count_primes": count_primes,
    "cryptarithm": cryptarithm,
    "game_of_life": game_of_life,
    "game_of_life_halting": game_of_life_halting,
    "graph_color": graph_color,
    "jugs": jugs,
    "manipulate_matrix": manipulate_matrix,
    "pool_matrix": pool_matrix,
    "rotate_matrix": rotate_matrix,
    "rotten_oranges": rotten_oranges,
    "spiral_matrix": spiral_matrix,
}

PROPERTIES: Mapping[str, Property] = {
    "word_ladder": Property(
        reason="the question names no dictionary",
        checked="a chain between the words of the question, one letter a step, no word twice",
        violation=_word_ladder,
    )
}
