"""Solvers of tasks: games."""

from __future__ import annotations

import ast
import json
import re
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from fractions import Fraction
from functools import cache, partial
from heapq import heappop, heappush
from itertools import combinations, islice, pairwise, product
from typing import Any, NamedTuple

from .solution import Property, Solution, Solver, UnreadableQuestionError

Square = tuple[int, int]
Grid = list[list[int]]

_SEVERAL = 3
"""Right answers that are sent to the verifier if there are more."""


def _match(pattern: str, question: str) -> re.Match[str]:
    found = re.search(pattern, question)
    if not found:
        raise UnreadableQuestionError(f"no match for {pattern!r}")
    return found


def _integers(text: str) -> list[int]:
    return [int(number) for number in re.findall(r"\d+", text)]


def _grid(text: str) -> Grid:
    """Return the rows of a grid; 0 stands for a blank."""
    lines = [
        line for line in text.splitlines() if re.fullmatch(r"[\d _]*[\d_] *", line)
    ]
    return [[int(cell) for cell in line.replace("_", "0").split()] for line in lines]


def _as_text(grid: Grid) -> str:
    return "\n".join(" ".join(map(str, row)) for row in grid)


def _columns(grid: Grid) -> Grid:
    return [list(column) for column in zip(*grid, strict=True)]


def _flat(grid: Sequence[Sequence[Any]]) -> list[Any]:
    return [cell for row in grid for cell in row]


def _shape(grid: Grid) -> list[int]:
    return [len(row) for row in grid]


def _fillings(
    puzzle: Grid, domain: Iterable[int], rules: Callable[[Any], Iterable[Any]]
) -> list[Grid]:
    """Return up to `_SEVERAL` grids that follow the rules and keep the cells that aren't 0."""
    import z3

    cells = [
        [z3.Int(f"{r} {c}") for c in range(len(row))] for r, row in enumerate(puzzle)
    ]
    solver = z3.Solver()
    solver.add(*rules(cells))
    for variable, given in zip(_flat(cells), _flat(puzzle), strict=True):
        solver.add(
            variable == given if given else z3.Or([variable == one for one in domain])
        )
    found: list[Grid] = []
    while len(found) < _SEVERAL and solver.check() == z3.sat:
        model = solver.model()
        found.append([[model.eval(cell).as_long() for cell in row] for row in cells])
        pairs = zip(_flat(cells), _flat(found[-1]), strict=True)
        solver.add(z3.Or([variable != value for variable, value in pairs]))
    return found


def _near_misses(puzzle: Grid, grid: Grid) -> Iterator[Grid]:
    """Yield the grid with one cell left blank, one cell changed, and two cells of a row swapped."""
    blanks = [
        (r, c) for r, row in enumerate(puzzle) for c, cell in enumerate(row) if not cell
    ]
    for row, column in blanks[-1:]:
        for value in (0, grid[row][column] % len(grid) + 1):
            changed = [list(each) for each in grid]
            changed[row][column] = value
            yield changed
    for (row, one), (same, other) in pairwise(blanks):
        if row == same and grid[row][one] != grid[row][other]:
            changed = [list(each) for each in grid]
            changed[row][one], changed[row][other] = (
                changed[row][other],
                changed[row][one],
            )
            yield changed
            return


# boxnet


_NO_COLOR = "beige"


class _Field(NamedTuple):
    squares: set[str]
    boxes: Counter[tuple[str, str]]
    targets: Counter[tuple[str, str]]


def boxnet(question: str) -> Solution:
    """Solve `boxnet`: each box is carried to a target of its color; few moves are an aim."""
    field = _read_field(question)
    plans = [
        _plan(field, color) for color in sorted({color for _, color in field.boxes})
    ]
    if None in plans:
        return Solution(accepts=lambda text: False, right=[])
    routes = [route for plan in plans for route in plan or []]
    one_by_one = [dict([move]) for route in routes for move in route]
    impossible = {routes[0][-1][0]: f"move(box_{_NO_COLOR}, target_{_NO_COLOR})"}
    return Solution(
        accepts=partial(_matches_all, field),
        right=[json.dumps(one_by_one), json.dumps(_together(routes))],
        wrong=[json.dumps(one_by_one[:-1]), json.dumps([impossible, *one_by_one])],
    )


def _read_field(question: str) -> _Field:
    seen = re.findall(
        r"Agent\[([\d., ]+)\]: I am in .*?, I can observe \[(.*?)\]", question
    )
    if not seen:
        raise UnreadableQuestionError("no agents")
    things = [
        (square, thing) for square, names in seen for thing in re.findall(r"\w+", names)
    ]
    return _Field(
        {square for square, _ in seen},
        Counter(
            (square, name[4:]) for square, name in things if name.startswith("box_")
        ),
        Counter(
            (square, name[7:]) for square, name in things if name.startswith("target_")
        ),
    )


def _distance(one: str, other: str) -> float:
    pairs = zip(one.split(", "), other.split(", "), strict=True)
    return sum(abs(float(a) - float(b)) for a, b in pairs)


def _plan(field: _Field, color: str) -> list[list[tuple[str, str]]] | None:
    """Return the moves of each box of a color, in an assignment with the fewest moves."""
    boxes = [square for square, of in field.boxes.elements() if of == color]
    targets = [square for square, of in field.targets.elements() if of == color]
    if len(boxes) > len(targets):
        return None

    @cache
    def best(index: int, free: frozenset[int]) -> tuple[float, tuple[int, ...]]:
        if index == len(boxes):
            return 0.0, ()
        options = []
        for target in sorted(free):
            cost, rest = best(index + 1, free - {target})
            options.append(
                (cost + _distance(boxes[index], targets[target]), (target, *rest))
            )
        return min(options)

    chosen = best(0, frozenset(range(len(targets))))[1]
    return [
        _route(box, targets[t], color) for box, t in zip(boxes, chosen, strict=True)
    ]


def _route(start: str, end: str, color: str) -> list[tuple[str, str]]:
    """Return the moves of a box to a target, as pairs of agent and action."""
    path, place, goal = (
        [start],
        *([float(x) for x in at.split(", ")] for at in (start, end)),
    )
    for axis in (0, 1):
        while place[axis] != goal[axis]:
            place[axis] += 1 if goal[axis] > place[axis] else -1
            path.append(f"{place[0]}, {place[1]}")
    steps = [
        (f"Agent[{a}]", f"move(box_{color}, square[{b}])") for a, b in pairwise(path)
    ]
    return [*steps, (f"Agent[{end}]", f"move(box_{color}, target_{color})")]


def _together(routes: Sequence[Sequence[tuple[str, str]]]) -> list[dict[str, str]]:
    """Return the same moves in as few steps as a simple schedule gives."""
    waiting, steps = [list(route) for route in routes], []
    while any(waiting):
        step: dict[str, str] = {}
        for route in waiting:
            if route and route[0][0] not in step:
                step.update([route.pop(0)])
        steps.append(step)
    return steps


def _matches_all(field: _Field, text: str) -> bool:
    """Return whether a plan matches all boxes, each agent moving what is there as a step starts."""
    boxes, targets = Counter(field.boxes), Counter(field.targets)
    try:
        for step in json.loads(text):
            before = Counter(boxes)
            for agent, action in step.items():
                _move_box(field.squares, before, boxes, targets, agent, action)
    except (ValueError, TypeError, AttributeError):
        return False
    return not +boxes


def _move_box(
    squares: set[str],
    before: Counter[tuple[str, str]],
    boxes: Counter[tuple[str, str]],
    targets: Counter[tuple[str, str]],
    agent: str,
    action: str,
) -> None:
    """Make one move on `boxes` and `targets`; `before` is where the step started."""
    here = re.fullmatch(r"Agent\[(.*)\]", agent)
    move = re.fullmatch(r"move\(box_(\w+), (?:square\[(.*)\]|target_(\w+))\)", action)
    if not here or not move:
        raise ValueError(f"no move: {agent} {action}")
    square, (color, there, target) = here[1], move.groups()
    before[square, color] -= 1
    if before[square, color] < 0:
        raise ValueError(f"no box {color} in {square}")
    boxes[square, color] -= 1
    if target:
        targets[square, color] -= 1
        if target != color or targets[square, color] < 0:
            raise ValueError(f"no free target {target} in {square}")
        return
    if there not in squares or _distance(square, there) != 1:
        raise ValueError(f"{there} isn't beside {square}")
    boxes[there, color] += 1


# countdown, puzzle24


def countdown(question: str) -> Solution:
    """Solve `countdown`: an expression with all numbers, each used once, reaches the target."""
    target = int(_match(r"(?:Calculate|make|equals) (\d+)", question)[1])
    numbers = _integers(_match(r"numbers:? ([\d, ]+\d)", question)[1])
    return _expressions(numbers, target, subsets=False)


def puzzle24(question: str) -> Solution:
    """Solve `puzzle24`: as `countdown`, but the text leaves open whether all are to be used."""
    found = _match(r"Make (\d+) using ([\d, ]+\d)\.", question)
    return _expressions(_integers(found[2]), int(found[1]), subsets=True)


def _expressions(numbers: Sequence[int], target: int, *, subsets: bool) -> Solution:
    """Return the expressions that reach a target; with `subsets`, those with fewer numbers too."""

    def accepts(text: str) -> bool:
        value, used = _evaluate(text)
        rest = Counter(numbers)
        rest.subtract(used)
        return value == target and all(
            n == 0 or (subsets and n > 0) for n in rest.values()
        )

    places = tuple(range(len(numbers)))
    found = _reach(tuple(numbers), places, Fraction(target))
    if not found:
        return Solution(accepts=accepts, right=[])
    beside = _reach(tuple(numbers), places, Fraction(target + 1))
    fewer = _reach(tuple(numbers), places[1:6], Fraction(target))
    again = f"{found}*{numbers[0]}/{numbers[0]}"
    return Solution(
        accepts=accepts,
        right=[found, found.replace(" ", ""), found[1:-1]],
        wrong=[
            text
            for text in (beside, fewer, again, f"{target}")
            if text and not accepts(text)
        ],
    )


_OPERATIONS: Mapping[type[ast.operator], Callable[[Fraction, Fraction], Fraction]] = {
    ast.Add: lambda a, b: a + b,
    ast.Sub: lambda a, b: a - b,
    ast.Mult: lambda a, b: a * b,
    ast.Div: lambda a, b: a / b,
}


def _evaluate(text: str) -> tuple[Fraction | None, list[int]]:
    """Return the value of an expression and the numbers in it; None if it isn't one."""
    used: list[int] = []

    def value(node: ast.expr) -> Fraction:
        if isinstance(node, ast.BinOp) and type(node.op) in _OPERATIONS:
            return _OPERATIONS[type(node.op)](value(node.left), value(node.right))
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
            return -value(node.operand)
        if isinstance(node, ast.Constant) and type(node.value) is int:
            used.append(node.value)
            return Fraction(node.value)
        raise ValueError(f"not arithmetic: {ast.dump(node)}")

    try:
        return value(ast.parse(text.strip(), mode="eval").body), used
    except (SyntaxError, ValueError, ZeroDivisionError, RecursionError, MemoryError):
        return None, used


@cache
def _table(numbers: tuple[int, ...], places: tuple[int, ...]) -> Mapping[Fraction, str]:
    """Return all values that up to three numbers reach, each with an expression."""
    if len(places) == 1:
        return {Fraction(numbers[places[0]]): str(numbers[places[0]])}
    found: dict[Fraction, str] = {}
    for part in _parts(places, sizes=range(1, len(places))):
        rest = tuple(place for place in places if place not in part)
        pairs = product(_table(numbers, part).items(), _table(numbers, rest).items())
        for (a, left), (b, right) in pairs:
            found.setdefault(a + b, f"({left} + {right})")
            found.setdefault(a - b, f"({left} - {right})")
            found.setdefault(a * b, f"({left} * {right})")
            if b:
                found.setdefault(a / b, f"({left} / {right})")
    return found


def _parts(
    places: tuple[int, ...], *, sizes: Iterable[int]
) -> Iterator[tuple[int, ...]]:
    for size in sizes:
        yield from combinations(places, size)


def _reach(numbers: tuple[int, ...], places: tuple[int, ...], goal: Fraction) -> str:
    """Return an expression of these numbers, each used once, with this value; empty if none."""
    if len(places) <= 3:
        return _table(numbers, places).get(goal, "")
    sizes = range(min(3, len(places) - 1), 0, -1)
    for part in _parts(places, sizes=sizes):
        rest = tuple(place for place in places if place not in part)
        for value, text in _table(numbers, part).items():
            for needed, form in _needed(goal, value):
                other = _reach(numbers, rest, needed)
                if other:
                    return form.format(text, other)
    return ""


def _needed(goal: Fraction, value: Fraction) -> Iterator[tuple[Fraction, str]]:
    """Yield the values that reach the goal together with this one, and the expression of both."""
    yield goal - value, "({0} + {1})"
    yield value - goal, "({0} - {1})"
    yield goal + value, "({1} - {0})"
    if value:
        yield goal / value, "({0} * {1})"
        yield goal * value, "({1} / {0})"
    if value and goal:
        yield value / goal, "({0} / {1})"


# grids of numbers

_SIGNS = "<>\N{LOGICAL AND}\N{LOGICAL OR}"


def futoshiki(question: str) -> Solution:
    """Solve `futoshiki`: a Latin square in which the signs between cells hold."""
    lines = _match(r"puzzle:\n\n((?:.*\n)+?)\nEnsure", question)[1].splitlines()
    puzzle = [_grid(re.sub("[<>]", " ", line))[0] for line in lines[::2]]
    signs = [
        (
            (r // 2, c // 4),
            (r // 2 + r % 2, c // 4 + 1 - r % 2),
            sign in "<\N{LOGICAL AND}",
        )
        for r, line in enumerate(lines)
        for c, sign in enumerate(line)
        if sign in _SIGNS
    ]

    def rules(cells: Any) -> Iterator[Any]:
        yield from _latin(cells)
        for (r, c), (below, right), rises in signs:
            small, large = (cells[r][c], cells[below][right])[:: 1 if rises else -1]
            yield small < large

    def accepts(text: str) -> bool:
        grid = _grid(re.sub(f"[{_SIGNS}]", " ", text))
        return _completes(puzzle, grid) and all(
            (grid[r][c] < grid[below][right]) == rises
            for (r, c), (below, right), rises in signs
        )

    def form(grid: Grid) -> str:
        return "\n".join(
            "".join(
                f"{v}{gap}" for v, gap in zip(grid[r // 2], _gaps(line), strict=True)
            )
            if r % 2 == 0
            else line
            for r, line in enumerate(lines)
        )

    found = _fillings(puzzle, range(1, len(puzzle) + 1), rules)
    texts = [form(grid) for grid in found]
    stripped = [
        "\n".join(line.rstrip() for line in text.splitlines()) for text in texts[:1]
    ]
    wrong = [
        form(grid).replace("0", "_")
        for each in found[:1]
        for grid in _near_misses(puzzle, each)
    ]
    ambiguous = "several grids are right" if len(found) > 1 else ""
    return Solution(
        accepts=accepts, right=[*texts, *stripped], wrong=wrong, ambiguous=ambiguous
    )


def _gaps(line: str) -> list[str]:
    """Return what follows each cell of a row of a futoshiki."""
    return [line[at + 1 : at + 4] for at in range(0, len(line), 4)]


def _latin(cells: Any) -> Iterator[Any]:
    import z3

    for line in (*cells, *zip(*cells, strict=True)):
        yield z3.Distinct(*line)


def _keeps(puzzle: Grid, grid: Grid) -> bool:
    return all(a in (0, b) for a, b in zip(_flat(puzzle), _flat(grid), strict=True))


def _completes(puzzle: Grid, grid: Grid) -> bool:
    """Return whether a grid keeps the given cells and has each number once in rows and columns."""
    if _shape(grid) != _shape(puzzle):
        return False
    numbers = set(range(1, len(puzzle) + 1))
    return _keeps(puzzle, grid) and all(
        set(line) == numbers for line in (*grid, *_columns(grid))
    )


def kakurasu(question: str) -> Solution:
    """Solve `kakurasu`: ones whose positions add up to the sums of rows and columns."""
    found = re.findall(
        r"(?:row|Row|column|Column) sums(?: are|:)? \[([\d, ]+)\]", question
    )
    if len(found) != 2:
        raise UnreadableQuestionError("no sums")
    rows, columns = _integers(found[0]), _integers(found[1])

    def rules(cells: Any) -> Iterator[Any]:
        for line, total in zip(
            (*cells, *zip(*cells, strict=True)), rows + columns, strict=True
        ):
            yield sum(place * cell for place, cell in enumerate(line, start=1)) == total

    def accepts(text: str) -> bool:
        grid = _grid(text)
        if _shape(grid) != [len(columns)] * len(rows) or set(_flat(grid)) - {0, 1}:
            return False
        return all(rules(grid))

    blank = [[0] * len(columns) for _ in rows]
    grids = _fillings(blank, (0, 1), rules)
    flipped = [[[1 - grid[0][0], *grid[0][1:]], *grid[1:]] for grid in grids[:1]]
    return Solution(
        accepts=accepts,
        right=[_as_text(g) for g in grids],
        wrong=[_as_text(g) for g in flipped],
    )


def mini_sudoku(question: str) -> Solution:
    """Solve `mini_sudoku`: the puzzle of four rows."""
    return _sudoku(question, box=2)


def sudoku(question: str) -> Solution:
    """Solve `sudoku`: each number once in each row, column and box."""
    return _sudoku(question, box=3)


def _sudoku(question: str, *, box: int) -> Solution:
    size = box * box
    puzzle = _grid(question)
    if _shape(puzzle) != [size] * size:
        raise UnreadableQuestionError(f"no grid of {size} rows")

    def boxes(grid: Any) -> list[list[Any]]:
        corners = product(range(0, size, box), repeat=2)
        return [
            [grid[r + i // box][c + i % box] for i in range(size)] for r, c in corners
        ]

    def rules(cells: Any) -> Iterator[Any]:
        yield from _latin(cells)
        yield from _latin_lines(boxes(cells))

    def accepts(text: str) -> bool:
        grid = _grid(text)
        return _completes(puzzle, grid) and all(
            len(set(each)) == size for each in boxes(grid)
        )

    found = _fillings(puzzle, range(1, size + 1), rules)
    wrong = [
        _as_text(g).replace("0", "_")
        for each in found[:1]
        for g in _near_misses(puzzle, each)
    ]
    right = [_as_text(grid) for grid in found]
    ambiguous = "several grids are right" if len(found) > 1 else ""
    return Solution(accepts=accepts, right=right, wrong=wrong, ambiguous=ambiguous)


def _latin_lines(lines: Iterable[Sequence[Any]]) -> Iterator[Any]:
    import z3

    for line in lines:
        yield z3.Distinct(*line)


def survo(question: str) -> Solution:
    """Solve `survo`: the numbers fill the zeros so that all rows and columns add up."""
    puzzle = _grid(question)
    numbers = Counter(
        _integers(_match(r"(?:numbers|set):? \[([\d, ]+)\]", question)[1])
    )
    gaps = [
        (r, c) for r, row in enumerate(puzzle) for c, cell in enumerate(row) if not cell
    ]
    if len(set(_shape(puzzle))) != 1:
        raise UnreadableQuestionError("no matrix")

    def sums(cells: Any) -> list[Any]:
        return [
            sum(line[:-1]) == line[-1] for line in (*cells, *zip(*cells, strict=True))
        ]

    def rules(cells: Any) -> Iterator[Any]:
        yield from sums(cells)
        for number, times in numbers.items():
            yield sum(_one_if(cells[r][c] == number) for r, c in gaps) <= times

    def accepts(text: str) -> bool:
        grid = _grid(text)
        if _shape(grid) != _shape(puzzle) or not all(sums(grid)):
            return False
        return _keeps(puzzle, grid) and Counter(grid[r][c] for r, c in gaps) <= numbers

    found = _fillings(puzzle, numbers, rules)
    wrong = [
        _as_text(grid) for each in found[:1] for grid in _near_misses(puzzle, each)
    ]
    ambiguous = "several matrices satisfy the sums" if len(found) > 1 else ""
    right = [_as_text(grid) for grid in found]
    return Solution(accepts=accepts, right=right, wrong=wrong, ambiguous=ambiguous)


def _one_if(condition: Any) -> Any:
    import z3

    return z3.If(condition, 1, 0)


# n_queens


def n_queens(question: str) -> Solution:
    """Solve `n_queens`: queens are added until each row has one and none attacks another."""
    board = re.findall(r"(?m)^((?:[_Q] )+[_Q])\s*$", question)
    missing = int(_match(r"place (\d+) queen", question)[1])
    given = {
        (r, line.split().index("Q")) for r, line in enumerate(board) if "Q" in line
    }
    size = len(board)
    if missing + len(given) != size:
        raise UnreadableQuestionError("a row stays without a queen")

    def form(queens: Iterable[int]) -> str:
        return "\n".join(
            " ".join("Q" if c == q else "_" for c in range(size)) for q in queens
        )

    def accepts(text: str) -> bool:
        rows = [line.split() for line in text.strip().splitlines()]
        if _shape([[0] * len(row) for row in rows]) != [size] * size:
            return False
        queens = {
            (r, c)
            for r, row in enumerate(rows)
            for c, cell in enumerate(row)
            if cell == "Q"
        }
        apart = all(not _attack(a, b) for a, b in combinations(queens, 2))
        return (
            {*_flat(rows)} <= {"_", "Q"}
            and len(queens) == size
            and apart
            and given <= queens
        )

    found = [form(each) for each in islice(_place_queens(size, given, ()), _SEVERAL)]
    others = [form(each) for each in islice(_place_queens(size, set(), ()), _SEVERAL)]
    wrong = [text for text in others if not accepts(text)]
    wrong += [text.replace("Q", "_", 1) for text in found[:1]]
    return Solution(accepts=accepts, right=found, wrong=wrong)


def _attack(one: Square, other: Square) -> bool:
    down, across = one[0] - other[0], one[1] - other[1]
    return not down or not across or abs(down) == abs(across)


def _place_queens(
    size: int, given: set[Square], placed: tuple[int, ...]
) -> Iterator[tuple[int, ...]]:
    """Yield the column of the queen of each row."""
    row = len(placed)
    if row == size:
        yield placed
        return
    fixed = [column for at, column in given if at == row]
    for column in fixed or range(size):
        if not any(_attack((row, column), queen) for queen in enumerate(placed)):
            yield from _place_queens(size, given, (*placed, column))


# knight_swap


class _Knights(NamedTuple):
    whites: frozenset[str]
    blacks: frozenset[str]
    white_moves: bool


def knight_swap(question: str) -> Solution:
    """Solve `knight_swap`: the shortest sequence of moves, or "No" if none swaps the knights."""
    header = _match(r"(?m)^ +((?:[A-Z] +)*[A-Z])\s*$", question)[1].split()
    rows = re.findall(r"(?m)^(\d+) \|(.*)\|\s*$", question)
    squares = {
        f"{column}{row}": cell.strip()
        for row, cells in rows
        for column, cell in zip(header, cells.split("|"), strict=True)
        if cell.strip()
    }
    start = _Knights(
        frozenset(square for square, cell in squares.items() if cell == "w"),
        frozenset(square for square, cell in squares.items() if cell == "B"),
        _match(r"(?m)^3\. ([wB]) moves first", question)[1] == "w",
    )
    reach = {a: [b for b in squares if _is_knight_move(a, b)] for a in squares}
    accepts = partial(_swaps, start, reach)
    moves = _shortest_swap(start, reach)
    if moves is None:
        return Solution(accepts=accepts, right=["No"], wrong=["[]"])
    longer = [*_there_and_back(start, reach), *moves]
    form = partial(_as_moves, start)
    return Solution(
        accepts=accepts,
        right=[form(moves), form(moves).replace(", ", ","), form(longer)],
        wrong=["No", form(moves[:-1]), form([*moves[2:], *moves[:2]])],
    )


def _is_knight_move(one: str, other: str) -> bool:
    across, down = ord(one[0]) - ord(other[0]), int(one[1:]) - int(other[1:])
    return {abs(across), abs(down)} == {1, 2}


def _as_moves(start: _Knights, moves: Sequence[tuple[str, str]]) -> str:
    sides = "wB" if start.white_moves else "Bw"
    return json.dumps(
        [f"{sides[index % 2]},{a},{b}" for index, (a, b) in enumerate(moves)]
    )


def _next(knights: _Knights, a: str, b: str) -> _Knights:
    """Return the position after a move of the side whose turn it is."""
    whites, blacks, white_moves = knights
    if white_moves:
        return _Knights(whites - {a} | {b}, blacks, False)
    return _Knights(whites, blacks - {a} | {b}, True)


def _knight_moves(
    knights: _Knights, reach: Mapping[str, Sequence[str]]
) -> Iterator[tuple[str, str]]:
    taken = knights.whites | knights.blacks
    for a in sorted(knights.whites if knights.white_moves else knights.blacks):
        yield from ((a, b) for b in reach[a] if b not in taken)


def _shortest_swap(
    start: _Knights, reach: Mapping[str, Sequence[str]]
) -> list[tuple[str, str]] | None:
    """Return the fewest moves that swap the knights, by breadth-first search."""
    queue = deque([start])
    paths: dict[_Knights, list[tuple[str, str]]] = {start: []}
    while queue:
        knights = queue.popleft()
        if (knights.whites, knights.blacks) == (start.blacks, start.whites):
            return paths[knights]
        for a, b in _knight_moves(knights, reach):
            after = _next(knights, a, b)
            if after not in paths:
                paths[after] = [*paths[knights], (a, b)]
                queue.append(after)
    return None


def _there_and_back(
    start: _Knights, reach: Mapping[str, Sequence[str]]
) -> list[tuple[str, str]]:
    """Return four moves after which the position is the same, if the first legal ones allow it."""
    for a, b in _knight_moves(start, reach):
        for c, d in _knight_moves(_next(start, a, b), reach):
            if d != a:
                return [(a, b), (c, d), (b, a), (d, c)]
    return []


def _swaps(start: _Knights, reach: Mapping[str, Sequence[str]], text: str) -> bool:
    """Return whether an answer swaps the knights by legal moves, or rightly says that none can."""
    if text.strip().strip('"').lower() == "no":
        return _shortest_swap(start, reach) is None
    try:
        moves = [re.fullmatch(r"([wB]),(\w+),(\w+)", move) for move in json.loads(text)]
    except (ValueError, TypeError):
        return False
    knights = start
    for move in moves:
        if not move or move[1] != ("w" if knights.white_moves else "B"):
            return False
        if (move[2], move[3]) not in _knight_moves(knights, reach):
            return False
        knights = _next(knights, move[2], move[3])
    return (knights.whites, knights.blacks) == (start.blacks, start.whites)


# sokoban

_STEPS = {"L": (0, -1), "R": (0, 1), "U": (-1, 0), "D": (1, 0)}
_MOST_POSITIONS = 100_000


class _Depot(NamedTuple):
    floor: frozenset[Square]
    goals: frozenset[Square]
    boxes: frozenset[Square]
    player: Square


def sokoban(question: str) -> Solution:
    """Solve `sokoban`: pushes, found by best-first search, bring each box to a goal."""
    depot = _read_depot(question)
    found = _push_all(depot)
    accepts = partial(_brings_home, depot)
    if found is None:
        return Solution(accepts=accepts, right=[])
    right = [found, found + _idle(depot, found)]
    wrong = [text for text in (found[:-1], found[::-1]) if not accepts(text)]
    return Solution(
        accepts=accepts,
        right=[text for text in right if text],
        wrong=wrong,
        ambiguous="" if found else "the board is solved before the first move",
    )


def _read_depot(question: str) -> _Depot:
    rows = [
        line.split()
        for line in question.splitlines()
        if re.fullmatch(r"([-+*%@X$] *)+", line)
    ]
    rows = [row for row in rows if len(row) > 1]
    cells = {(r, c): cell for r, row in enumerate(rows) for c, cell in enumerate(row)}
    players = [at for at, cell in cells.items() if cell in "*%"]
    if len(players) != 1:
        raise UnreadableQuestionError(f"{len(players)} players")
    return _Depot(
        frozenset(at for at, cell in cells.items() if cell != "+"),
        frozenset(at for at, cell in cells.items() if cell in "X$%"),
        frozenset(at for at, cell in cells.items() if cell in "@$"),
        players[0],
    )


def _beside(at: Square, letter: str, times: int = 1) -> Square:
    down, across = _STEPS[letter]
    return at[0] + times * down, at[1] + times * across


def _brings_home(depot: _Depot, text: str) -> bool:
    """Return whether moves bring all boxes to goals; one into a wall or two boxes does nothing."""
    boxes, player = set(depot.boxes), depot.player
    for letter in text.strip():
        if letter not in _STEPS:
            return False
        ahead, beyond = _beside(player, letter), _beside(player, letter, 2)
        if ahead in boxes and beyond in depot.floor and beyond not in boxes:
            boxes ^= {ahead, beyond}
        if ahead in depot.floor and ahead not in boxes:
            player = ahead
    return boxes <= depot.goals


def _walks(
    depot: _Depot, boxes: frozenset[Square], player: Square
) -> dict[Square, str]:
    """Return the squares that the player reaches without a push, each with the way to it."""
    ways, queue = {player: ""}, deque([player])
    while queue:
        at = queue.popleft()
        for letter in _STEPS:
            to = _beside(at, letter)
            if to in depot.floor and to not in boxes and to not in ways:
                ways[to] = ways[at] + letter
                queue.append(to)
    return ways


def _pushes_home(depot: _Depot) -> dict[Square, int]:
    """Return the fewest pushes from each square to a goal; unreachable ones are missing."""
    fewest, queue = dict.fromkeys(depot.goals, 0), deque(depot.goals)
    while queue:
        at = queue.popleft()
        for letter in _STEPS:
            box, player = _beside(at, letter, -1), _beside(at, letter, -2)
            if {box, player} <= depot.floor and box not in fewest:
                fewest[box] = fewest[at] + 1
                queue.append(box)
    return fewest


def _push_all(depot: _Depot) -> str | None:
    """Return moves that bring all boxes to goals; None if there are none."""
    far = _pushes_home(depot)
    heap = [(0, 0, "", depot.boxes, depot.player)]
    seen: set[tuple[frozenset[Square], Square]] = set()
    while heap and len(seen) < _MOST_POSITIONS:
        _, pushes, path, boxes, player = heappop(heap)
        if boxes <= depot.goals:
            return path
        ways = _walks(depot, boxes, player)
        if (boxes, min(ways)) in seen:
            continue
        seen.add((boxes, min(ways)))
        for box, letter in product(boxes, _STEPS):
            to, behind = _beside(box, letter), _beside(box, letter, -1)
            if to in far and to not in boxes and behind in ways:
                after = boxes - {box} | {to}
                cost = pushes + 1 + 3 * sum(far[each] for each in after if each in far)
                heappush(
                    heap, (cost, pushes + 1, path + ways[behind] + letter, after, box)
                )
    if heap:
        raise UnreadableQuestionError("the search is given up")
    return None


def _idle(depot: _Depot, moves: str) -> str:
    """Return two steps, forth and back, after which nothing else has changed; empty if none."""
    for pair in ("LR", "RL", "UD", "DU"):
        if _brings_home(depot, moves + pair) and _brings_home(depot, moves + pair[0]):
            return pair
    return ""


# tsumego


def tsumego(question: str) -> Solution:
    """Solve `tsumego`: the moves that capture stones at once, and the most if the text asks so."""
    header = _match(r"(?m)^ +((?:[A-Z] )*[A-Z])$", question)[1].split()
    rows = re.findall(r"(?m)^ *(\d+) ((?:[.XO] )*[.XO])$", question)
    board = {
        (column, int(row)): cell
        for row, cells in rows
        for column, cell in zip(header, cells.split(), strict=True)
    }
    captured = {
        at: len(_captured(board, at)) for at, cell in board.items() if cell == "."
    }
    most = max(captured.values())
    enough = most if "as many white stones as possible" in question else 1
    right = [
        f"{at[0]}{at[1]}" for at, stones in captured.items() if stones >= max(enough, 1)
    ]
    others = Counter(
        {at: stones for at, stones in captured.items() if stones < max(enough, 1)}
    )
    return Solution(
        accepts=lambda text: text.strip().upper() in right,
        right=[*right, *(move.lower() for move in right[:1])],
        wrong=[f"{at[0]}{at[1]}" for at, _ in others.most_common(_SEVERAL)],
        ambiguous=f"{len(right)} moves capture" if len(right) > 1 else "",
    )


def _captured(
    board: Mapping[tuple[str, int], str], at: tuple[str, int]
) -> set[tuple[str, int]]:
    """Return the white stones without a liberty after Black plays at a point."""
    after = {**board, at: "X"}
    taken: set[tuple[str, int]] = set()
    for start in _neighbors(after, at):
        group, queue = {start}, [start] if after[start] == "O" else []
        for stone in queue:
            more = [
                n
                for n in _neighbors(after, stone)
                if after[n] == "O" and n not in group
            ]
            group |= set(more)
            queue += more
        if queue and not any(
            after[n] == "." for s in group for n in _neighbors(after, s)
        ):
            taken |= group
    return taken


def _neighbors(
    board: Mapping[tuple[str, int], str], at: tuple[str, int]
) -> list[tuple[str, int]]:
    column, row = at
    beside = [(chr(ord(column) + step), row) for step in (-1, 1)]
    return [n for n in [*beside, (column, row - 1), (column, row + 1)] if n in board]


SOLVERS: Mapping[str, Solver] = {
    "boxnet": boxnet,
    "countdown": countdown,
    "futoshiki": futoshiki,
    "kakurasu": kakurasu,
    "knight_swap": knight_swap,
    "mini_sudoku": mini_sudoku,
    "n_queens": n_queens,
    "puzzle24": puzzle24,
    "sokoban": sokoban,
    "sudoku": sudoku,
    "survo": survo,
    "tsumego": tsumego,
}

PROPERTIES: Mapping[str, Property] = {}
