"""What a solver returns, what is checked where there is none, and the search that several use."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar


class UnreadableQuestionError(ValueError):
    """A question does not have the form that its solver reads."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Solution:
    """The answers that the text of a question admits.

    Attributes:
        accepts: returns whether an answer's text is right, under any defensible reading.
        right: right answers, in each form that the question allows; empty if none exists.
        wrong: answers that are nearly right.
        ambiguous: why the text has readings whose answers differ; empty if it has one reading.
    """

    accepts: Callable[[str], bool]
    right: Sequence[str]
    wrong: Sequence[str] = ()
    ambiguous: str = ""


Solver = Callable[[str], Solution]
"""Solves a question from its text alone; raises UnreadableQuestionError if it can't read it."""


def _unchecked(entry: Mapping[str, Any]) -> str:
    return ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Property:
    """What is checked of a task that no solver covers.

    Attributes:
        reason: why there is no solver.
        checked: the property, as a noun phrase; empty if nothing is checked.
        violation: of an entry of the library; returns what is wrong, empty if nothing.
    """

    reason: str
    checked: str = ""
    violation: Callable[[Mapping[str, Any]], str] = _unchecked


def exactly(*answers: str, wrong: Sequence[str] = (), ambiguous: str = "") -> Solution:
    """Return a solution that accepts these texts alone, but for surrounding white space."""
    known = {answer.strip() for answer in answers}
    return Solution(
        accepts=lambda text: text.strip() in known,
        right=answers,
        wrong=wrong,
        ambiguous=ambiguous,
    )


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
