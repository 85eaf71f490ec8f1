"""What the best constant answer and the best strategy solve.

The best of hundreds of strategies is partly the luckiest, so a floor is chosen on one set of items
and measured on another. Where the answers are a closed set of k, a floor is at least the share of
all items that have the most frequent one, which is 1/k or more.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from operator import attrgetter
from types import MappingProxyType
from typing import Any

from reasoning_gym_environment.evaluation.estimators import share
from reasoning_gym_environment.proof.answers import sample_problems
from reasoning_gym_environment.proof.findings import EMPTY, JUNK, constants_for
from reasoning_gym_environment.records import Problem
from reasoning_gym_environment.sandbox.pool import TaskPool
from reasoning_gym_environment.tasks.facts import (
    EXECUTES_ANSWERS,
    SLOW_ON_WRONG_ANSWERS,
    Floor,
    Floors,
    solved_score,
)

from .strategies import OWN_WORK, strategies

CLOSED_ANSWERS = frozenset(
    {
        *("acre", "circuit_logic", "color_cube_rotation", "course_schedule"),
        *("family_relationships", "game_of_life_halting", "isomorphic_strings"),
        *("mahjong_puzzle", "ransom_note", "self_reference", "syllogism"),
        "zebra_puzzles",
    }
)
"""Tasks whose answers are a closed set at each level: choices, names, colors, a few counts."""

OWN_CONSTANTS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "propositional_logic": (
            *("Q", "P ∧ Q", "Q ∧ R", "P ↔ Q", "Q ↔ R", "R → Q", "Q \N{LOGICAL OR} R"),
            *(
                "P \N{LOGICAL OR} Q \N{LOGICAL OR} R",
                "P \N{LOGICAL OR} ¬S \N{LOGICAL OR} R",
                "P \N{LOGICAL OR} Q \N{LOGICAL OR} R \N{LOGICAL OR} ¬S",
            ),
        )
    }
)
"""Constants of tasks that have no oracle to take them from."""

Answers = Mapping[str, str]
"""Answers to one item by the labels of constants or strategies."""


async def find_floors(
    pool: TaskPool,
    task: str,
    items: int,
    parameters: Mapping[str, Any] = MappingProxyType({}),
    *,
    choosing: int | None = None,
) -> Floors:
    """Measure which share of a task's items the best constant and strategy solve.

    Args:
        items: to measure on.
        choosing: how many others the answers are chosen on, at most; a third as many.
        parameters: of the task; its default configuration without any.
    """
    # Items of these take seconds to generate or score.
    slow = {"futoshiki": 2, "intermediate_integration": 3, "knight_swap": 3}
    items = math.ceil(items / slow.get(task, 1))
    # Answers of these take long to score.
    fewer = (
        15 if task in SLOW_ON_WRONG_ANSWERS else 8 if task in EXECUTES_ANSWERS else 1
    )
    choosing = math.ceil((choosing or items / 3) / fewer)
    problems = await sample_problems(pool, task, choosing + items, parameters)
    first, others = problems[:choosing], problems[choosing:]
    constants = constants_to_try(
        [one.oracle for one in first if one.oracle is not None],
        OWN_CONSTANTS.get(task, ()),
    )
    tried = [
        await scores_of(pool, one, constants, answers_without_reasoning(one))
        for one in first
    ]
    solved_from = solved_score(task)
    constant, strategy = (
        [best(own, solved_from) for own in zip(*tried, strict=True)]
        if tried
        else ("", "")
    )
    measured = [
        await scores_of(
            pool, one, {constant: constant}, answers_without_reasoning(one, strategy)
        )
        for one in others
    ]
    chance = floor(constant, [scores for scores, _ in measured], solved_from)
    oracles = [one.oracle for one in problems if one.oracle is not None]
    if task in CLOSED_ANSWERS and oracles:
        chance = max(most_frequent(oracles), chance, key=attrgetter("solved"))
    return Floors(
        chance=chance,
        no_reasoning=floor(strategy, [scores for _, scores in measured], solved_from),
    )


def answers_without_reasoning(problem: Problem, only: str | None = None) -> Answers:
    """Answer without reasoning, except by what the task itself asks for; `only` by one strategy."""
    own_work = OWN_WORK.get(problem.recipe.task, ())
    return {
        label: text
        for label, text in strategies(problem.question).items()
        if not label.startswith(own_work) and only in (None, label)
    }


def constants_to_try(
    oracles: Sequence[str], own_constants: Sequence[str] = ()
) -> Answers:
    """Return the constants to try, without blank ones, which are never extracted as an answer."""
    constants = (*EMPTY, *JUNK, *constants_for(oracles), *own_constants)
    return {text: text for text in constants if text.strip()}


def most_frequent(oracles: Sequence[str]) -> Floor:
    """Return the floor of the most frequent label, of at least one.

    Example:
        >>> most_frequent(["Yes", "No", "Yes", "Yes"])[:3]
        ('Yes', 4, 0.75)
    """
    [(label, _)] = Counter(oracles).most_common(1)
    return floor(label, [{oracle: 1.0} for oracle in oracles], 1.0)


async def scores_of(
    pool: TaskPool, problem: Problem, *tries: Answers
) -> list[dict[str, float]]:
    """Score several sets of answers in one call."""
    verdicts = await pool.verify(
        problem, [text for own in tries for text in own.values()]
    )
    scores = iter(verdict.score or 0.0 for verdict in verdicts)
    return [{label: next(scores) for label in own} for own in tries]


def best(scores: Sequence[Mapping[str, float]], solved_from: float) -> str:
    """Return the label that solves most items; the higher total score breaks ties.

    A label that an item's scores lack has 0.

    Example:
        >>> best([{"a": 0.4, "b": 1.0}, {"a": 0.4, "b": 0.0}, {"a": 0.4}], 1.0)
        'b'
    """
    totals: defaultdict[str, tuple[int, float]] = defaultdict(lambda: (0, 0.0))
    for item in scores:
        for label, score in item.items():
            solved, total = totals[label]
            totals[label] = (solved + (score >= solved_from), total + score)
    return max(totals, key=totals.__getitem__, default="")


def floor(
    label: str, scores: Sequence[Mapping[str, float]], solved_from: float
) -> Floor:
    """Estimate the share of items that a label solves; without items, the interval is [0, 1]."""
    if not scores:
        return Floor(label=label, items=0, solved=0.0, low=0.0, high=1.0)
    estimate = share([[float(item.get(label, 0.0) >= solved_from)] for item in scores])
    return Floor(
        label=label,
        items=len(scores),
        solved=estimate.value,
        low=estimate.low,
        high=estimate.high,
    )
