"""Solvers of tasks: puzzles among the games."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterator, Mapping

from .solution import (
    Property,
    Solution,
    Solver,
    UnreadableQuestionError,
    exactly,
    shortest_path,
)

_EMOJI_SELECTOR = "\x0f"
"""What the hint's code makes of U+FE0F, which some emoji have as their second character."""

Cars = tuple[int, ...]
"""The position of each car along its line."""


def _read(pattern: str, question: str) -> re.Match[str]:
    found = re.search(pattern, question, re.DOTALL)
    if not found:
        raise UnreadableQuestionError(f"no match for {pattern!r}")
    return found


def emoji_mystery(question: str) -> Solution:
    """Decode the variation selectors behind the emoji, as the hint's code does."""
    hidden = _read(r"from the emoji: .([^\n]+)\n\nHere is a hint", question)[1]
    codes = [ord(selector) for selector in hidden]
    values = [
        code - 0xFE00 if 0xFE00 <= code <= 0xFE0F else code - 0xE0100 + 16
        for code in codes
        if 0xFE00 <= code <= 0xFE0F or 0xE0100 <= code <= 0xE01EF
    ]
    try:
        sentence = bytes(values).decode()
    except UnicodeDecodeError:
        return Solution(accepts=lambda _: False, right=[])
    plain = sentence.removeprefix(_EMOJI_SELECTOR)
    words = plain.split()
    return exactly(
        *dict.fromkeys([plain, sentence]),
        wrong=[" ".join(words[:-1]), " ".join(words[1:]), plain.lower()],
        ambiguous="the emoji has a selector of its own" if plain != sentence else "",
    )


def mahjong_puzzle(question: str) -> Solution:
    """Keep the hand and judge the last card that is added."""
    hand = list(_read(r"initial cards ([A-Z]{13}),", question)[1])
    result = ""
    for number, added, removed in re.findall(
        r"Round (\d+): Add an? ([A-Z]) card and remove an? ([A-Z]) card\.", question
    ):
        offsets = {ord(card) - ord(added) for card in hand}
        if hand.count(added) >= 2:
            result = "Peng"
        elif any({low, high} <= offsets for low, high in ((-2, -1), (-1, 1), (1, 2))):
            result = "Chi"
        else:
            result = "Pass"
        hand.append(added)
        if removed not in hand:
            raise UnreadableQuestionError(
                f"round {number} removes a card that is not in hand"
            )
        hand.remove(removed)
    if not result:
        raise UnreadableQuestionError("no rounds")
    return exactly(result, wrong=sorted({"Peng", "Chi", "Pass"} - {result}))


def maze(question: str) -> Solution:
    """Search breadth first; a step goes to one of the four cells beside."""
    ends = _read(r"from '(.)' \(start\) to '(.)' \(goal\)", question)
    rows = _read(r"```\n(.+)\n```\nLegend", question)[1].splitlines()
    wall = _read(r"Legend: '(.)' = Wall", question)[1]
    cells = {(r, c): cell for r, row in enumerate(rows) for c, cell in enumerate(row)}
    starts = [at for at, cell in cells.items() if cell == ends[1]]
    if len(starts) != 1 or ends[2] not in cells.values():
        raise UnreadableQuestionError("no start or no goal")
    steps = {starts[0]: 0}
    queue = deque(starts)
    while queue:
        row, column = queue.popleft()
        if cells[row, column] == ends[2]:
            found = steps[row, column]
            return exactly(str(found), wrong=[str(found - 1), str(found + 1)])
        for at in (
            (row + 1, column),
            (row - 1, column),
            (row, column + 1),
            (row, column - 1),
        ):
            if cells.get(at, wall) != wall and at not in steps:
                steps[at] = steps[row, column] + 1
                queue.append(at)
    return Solution(accepts=lambda _: False, right=[])


def _hanoi(disks: int, pegs: list[int]) -> Iterator[str]:
    """Yield moves that bring disks from the first peg to the second, using three pegs."""
    if disks:
        start, goal, spare = pegs[:3]
        yield from _hanoi(disks - 1, [start, spare, goal])
        yield f"Move disk {disks} from Peg {start} to Peg {goal}"
        yield from _hanoi(disks - 1, [spare, goal, start])


def tower_of_hanoi(question: str) -> Solution:
    """Carry out the moves of an answer; any legal sequence that ends on the goal is right."""
    found = _read(
        r"with (\d+) disks and (\d+) pegs\.\nMove all disks from Peg (\d+) to Peg (\d+)",
        question,
    )
    disks, pegs, start, goal = map(int, found.groups())
    line = re.compile(
        r"\s*Move disk (\d+) from Peg (\d+) to Peg (\d+)\.?\s*", re.IGNORECASE
    )

    def accepts(text: str) -> bool:
        stacks = {
            peg: list(range(disks, 0, -1)) if peg == start else []
            for peg in range(1, pegs + 1)
        }
        for move in map(line.fullmatch, text.strip().splitlines()):
            disk, giver, taker = map(int, move.groups()) if move else (0, 0, 0)
            if stacks.get(giver, [])[-1:] != [disk] or taker not in stacks:
                return False
            if stacks[giver].pop() > (stacks[taker] or [disks + 1])[-1]:
                return False
            stacks[taker].append(disk)
        return len(stacks[goal]) == disks

    others = [peg for peg in range(1, pegs + 1) if peg not in (start, goal)]
    moves = list(_hanoi(disks, [start, goal, *others]))
    there = f"Move disk 1 from Peg {start} to Peg {others[0]}"
    back = f"Move disk 1 from Peg {others[0]} to Peg {start}"
    elsewhere = list(_hanoi(disks, [start, others[0], goal]))
    wrong = [
        moves[:-1],
        elsewhere,
        [f"Move disk {disks} from Peg {start} to Peg {goal}"],
        moves[1:],
    ]
    return Solution(
        accepts=accepts,
        right=["\n".join(moves), "\n".join([there, back, *moves])],
        wrong=["\n".join(each) for each in wrong],
    )


class _Board:
    """A board of Rush Hour: what stands still, and each car's line; cells are bits."""

    def __init__(self, rows: list[str]) -> None:
        cells = [
            (cell, r, c) for r, row in enumerate(rows) for c, cell in enumerate(row)
        ]
        spots = {
            name: [(r, c) for cell, r, c in cells if cell == name]
            for name in "".join(rows)
        }
        self.size = len(rows)
        self.walls = sum(1 << (r * self.size + c) for r, c in spots.get("x", []))
        self.names = sorted(name for name in spots if name.isupper())
        self.lengths = {name: len(spots[name]) for name in self.names}
        self.masks: dict[str, list[int]] = {}
        start = []
        for name in self.names:
            (row, column), (other, _) = spots[name][:2]
            first, step = (row * self.size, 1) if row == other else (column, self.size)
            car = sum(1 << (first + i * step) for i in range(self.lengths[name]))
            places = self.size - self.lengths[name] + 1
            self.masks[name] = [car << (i * step) for i in range(places)]
            start.append(column if row == other else row)
        self.start: Cars = tuple(start)

    def steps(self, cars: Cars, index: int, direction: int) -> Iterator[Cars]:
        """Yield the boards after a car moves one space, two, and so on, while it can."""
        taken, masks = self.walls, self.masks[self.names[index]]
        for other, (name, at) in enumerate(zip(self.names, cars, strict=True)):
            if other != index:
                taken |= self.masks[name][at]
        end = len(masks) if direction > 0 else -1
        for position in range(cars[index] + direction, end, direction):
            if masks[position] & taken:
                return
            yield (*cars[:index], position, *cars[index + 1 :])

    def successors(self, cars: Cars) -> Iterator[tuple[str, Cars]]:
        """Yield every move of a car and the board after it."""
        for index, name in enumerate(self.names):
            for direction, sign in ((1, "+"), (-1, "-")):
                for far, after in enumerate(self.steps(cars, index, direction), 1):
                    yield f"{name}{sign}{far}", after

    def is_solved(self, cars: Cars) -> bool:
        """Return whether the red car stands at the right edge."""
        return cars[0] == len(self.masks["A"]) - 1

    def solves(self, moves: list[str]) -> bool:
        """Return whether the moves can be made and bring the red car to the exit."""
        cars = self.start
        reached = self.is_solved(cars)
        for move in moves:
            found = re.fullmatch(r"([A-Z])([+-])(\d{1,2})", move)
            if not found or found[1] not in self.names:
                return False
            direction = 1 if found[2] == "+" else -1
            boards = list(self.steps(cars, self.names.index(found[1]), direction))
            if not 0 < int(found[3]) <= len(boards):
                return False
            cars = boards[int(found[3]) - 1]
            reached = reached or self.is_solved(cars)
        return reached


def rush_hour(question: str) -> Solution:
    """Search breadth first for the red car's way out."""
    board = _Board(_read(r"Board:\n([A-Zx.\n]+)", question)[1].split())
    moves = shortest_path(board.start, board.successors, board.is_solved)
    if moves is None:
        return Solution(accepts=lambda _: False, right=[])
    single = [f"{m[:2]}1" for m in moves for _ in range(int(m[2:]))]
    through = f"A+{len(board.masks['A']) - 1 - board.start[0]}"
    near = [moves[:-1], moves[1:], [through], [through, "A+1"]]
    return Solution(
        accepts=lambda text: board.solves(text.split()),
        right=[" ".join(moves), " ".join(single)],
        wrong=[" ".join(each) for each in near if not board.solves(each)],
    )


SOLVERS: Mapping[str, Solver] = {
    "emoji_mystery": emoji_mystery,
    "mahjong_puzzle": mahjong_puzzle,
    "maze": maze,
    "rush_hour": rush_hour,
    "tower_of_hanoi": tower_of_hanoi,
}

PROPERTIES: Mapping[str, Property] = {}
