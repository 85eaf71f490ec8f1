"""Breadth-first search, for puzzles that are solved in moves."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Iterable
from typing import TypeVar

State = TypeVar("State", bound=Hashable)


def shortest_path(
    start: State,
    successors: Callable[[State], Iterable[tuple[str, State]]],
    is_goal: Callable[[State], bool],
) -> list[str] | None:
    """Return the moves of a shortest path from the start to a goal, or None if there is none."""
    came_by: dict[State, tuple[str, State] | None] = {start: None}
    queue = deque([start])
    while queue:
        state = queue.popleft()
        if is_goal(state):
            moves = []
            while (step := came_by[state]) is not None:
                move, state = step
                moves.append(move)
            return moves[::-1]
        for move, after in successors(state):
            if after not in came_by:
                came_by[after] = move, state
                queue.append(after)
    return None
