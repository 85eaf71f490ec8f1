"""Checks of items of the category games."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product

from ...records import Fault, FaultKind
from .faults import Entry, ambiguous, false_label, unanswerable


def emoji_mystery(entry: Entry) -> Fault | None:
    if "\ufe0f" not in entry["metadata"]["emoji"]:
        return None
    return ambiguous(
        "the hint's code decodes the emoji's own selector as a control character"
    )


_Knights = tuple[frozenset[str], frozenset[str]]
"""Where the knights stand of the side to move, and those of the other side."""


def knight_swap(entry: Entry) -> Fault | None:
    """Search for a swap where the answer says that there is none."""
    if entry["answer"] != "No":
        return None
    pieces = entry["metadata"]["pieces"]
    first_color = entry["metadata"]["start_turn"]
    near = {
        at: [
            to
            for x, y in product((-2, -1, 1, 2), repeat=2)
            if abs(x) != abs(y)
            and (to := f"{chr(ord(at[0]) + x)}{int(at[1:]) + y}") in pieces
        ]
        for at in pieces
    }
    start = (
        frozenset(at for at, piece in pieces.items() if piece == first_color),
        frozenset(
            at for at, piece in pieces.items() if piece not in (first_color, None)
        ),
    )
    moves = _moves_to_swap(start, near)
    return (
        None
        if moves is None
        else false_label(f"{moves} moves swap the knights on this board")
    )


def _moves_to_swap(start: _Knights, near: Mapping[str, Sequence[str]]) -> int | None:
    """Return the fewest moves that swap the knights; None if none do."""
    turned = start[::-1]
    seen: tuple[set[_Knights], set[_Knights]] = set(), set()
    positions = {start}
    count = 0
    while positions:
        if (start if count % 2 else turned) in positions:
            return count
        seen[count % 2].update(positions)
        count += 1
        following = set()
        for moving, waiting in positions:
            for at in moving:
                for to in near[at]:
                    if to not in moving and to not in waiting:
                        # Then the other color moves.
                        following.add((waiting, moving - {at} | {to}))
        positions = following - seen[count % 2]
    return None


def mahjong_puzzle(entry: Entry) -> Fault | None:
    """Judge the last card that is added by the hand that it is added to."""
    last = entry["metadata"]["rounds"][-1]
    hand = last["cards"].replace(last["add"], "", 1) + last["remove"]
    below, low, high, above = (
        chr(ord(last["add"]) + i) in hand for i in (-2, -1, 1, 2)
    )
    if hand.count(last["add"]) >= 2:
        right = "Peng"
    elif (below and low) or (low and high) or (high and above):
        right = "Chi"
    else:
        right = "Pass"
    return (
        None
        if entry["answer"] == right
        else false_label(f"the last card makes {right}")
    )


def rubiks_cube(entry: Entry) -> Fault | None:
    """Find cubes that are solved: no move is the right answer, and no answer says so."""
    size = entry["metadata"]["cube_size"]
    lines = re.findall(r"^ *[A-Z](?: +[A-Z])* *$", entry["question"], re.MULTILINE)
    stickers = " ".join(lines).split()
    up = stickers[: size**2]
    down = stickers[-(size**2) :]
    # Each line between them shows a row of all four sides.
    rows = [
        stickers[begin : begin + size]
        for begin in range(size**2, len(stickers) - size**2, size)
    ]
    sides = [{color for row in rows[n::4] for color in row} for n in range(4)]
    if not all(len(set(face)) == 1 for face in (up, down, *sides)):
        return None
    return unanswerable("the cube is solved before the first move")


def sokoban(entry: Entry) -> Fault | None:
    """Find boards that are solved before the first move: any text without a push solves them."""
    if "@" in entry["metadata"]["gamestr"]:  # a box that is not on a goal
        return None
    return unanswerable("every box stands on a goal before the first move")


@dataclass(frozen=True, kw_only=True, slots=True)
class _Survo:
    """A puzzle that is being filled; a blank is its row and, counted after the rows, its column.

    Attributes:
        stock: how often each number is left.
        missing: what each row and column lacks to its sum.
        count: the blanks of each row and column.
    """

    blanks: set[tuple[int, int]]
    stock: Counter[int]
    missing: list[int]
    count: list[int]

    def put(self, blank: tuple[int, int], number: int, times: int = 1) -> None:
        """Fill a blank, or empty it again where `times` is -1."""
        self.stock[number] -= times
        for line in blank:
            self.missing[line] -= times * number
            self.count[line] -= times
        (self.blanks.discard if times == 1 else self.blanks.add)(blank)

    def allows(self, blank: tuple[int, int], number: int) -> bool:
        """Return whether a number is left and no row or column exceeds its sum or falls short."""
        return self.stock[number] > 0 and all(
            number == self.missing[line]
            if self.count[line] == 1
            else number < self.missing[line]
            for line in blank
        )


def survo(entry: Entry) -> Fault | None:
    """Search for a second matrix that satisfies the sums; the verifier takes the first alone."""
    puzzle = entry["metadata"]["puzzle"]
    solution = entry["metadata"]["solution"]
    size = len(puzzle) - 1
    lines = [*puzzle[:size], *[[row[c] for row in puzzle] for c in range(size)]]
    shown_cells = {
        (r, size + c): solution[r][c]
        for r in range(size)
        for c in range(size)
        if not puzzle[r][c]
    }
    board = _Survo(
        blanks=set(shown_cells),
        stock=Counter(shown_cells.values()),
        missing=[line[-1] - sum(line[:-1]) for line in lines],
        count=[line[:-1].count(0) for line in lines],
    )
    if _count_matrices(board, shown_cells) < 2:
        return None
    return ambiguous("several matrices satisfy the sums")


def _count_matrices(board: _Survo, solution: Mapping[tuple[int, int], int]) -> int:
    """Count the ways to fill the blanks up to two, beginning with the known one."""
    if not board.blanks:
        return 1
    blank = min(board.blanks, key=lambda at: sorted(board.count[line] for line in at))
    matrices = 0
    for number in sorted(
        board.stock, key=lambda candidate: candidate != solution[blank]
    ):
        if matrices < 2 and board.allows(blank, number):
            board.put(blank, number)
            matrices += _count_matrices(board, solution)
            board.put(blank, number, -1)
    return matrices


_Point = tuple[int, int]


def tsumego(entry: Entry) -> Fault | None:
    """Compare the answer with the moves that capture stones at once."""
    rows = entry["metadata"]["board"]
    size = len(rows)
    answer = entry["answer"]
    board: dict[_Point, str] = {}
    for r, row in enumerate(rows):
        for c, stone in enumerate(row):
            board[r, c] = stone
    last_liberties = _last_liberties(board)
    label = (size - int(answer[1:]), ord(answer[0]) - ord("A"))
    if label not in last_liberties:
        kind = FaultKind.FALSE_LABEL if last_liberties else FaultKind.UNANSWERABLE
        return Fault(kind=kind, detail=f"{answer} captures nothing")
    if len(last_liberties) == 1:
        return None
    captured = {at: len(set().union(*groups)) for at, groups in last_liberties.items()}
    best_capture = max(captured.values())
    if "as many white stones as possible" in entry["question"]:
        if captured[label] < best_capture:
            return false_label(f"another move captures {best_capture} stones")
        if list(captured.values()).count(best_capture) == 1:
            return None
    return ambiguous("several moves capture stones")


def _last_liberties(board: Mapping[_Point, str]) -> dict[_Point, list[set[_Point]]]:
    """Return the white groups in atari by the point where Black captures them."""
    points_by_liberty: dict[_Point, list[set[_Point]]] = {}
    unseen = {at for at, stone in board.items() if stone == "O"}
    while unseen:
        group = set()
        edge = {unseen.pop()}
        liberties = set()
        while edge:
            group |= edge
            around = set()
            for row, column in edge:
                around |= {(row, column + 1), (row, column - 1)}
                around |= {(row + 1, column), (row - 1, column)}
            liberties |= {at for at in around if board.get(at) == "."}
            edge = {at for at in around if board.get(at) == "O"} - group
        unseen -= group
        if len(liberties) == 1:
            points_by_liberty.setdefault(liberties.pop(), []).append(group)
    return points_by_liberty
