"""Repeats: draws whose question was asked before, counted by task and level, with warnings.

A replay is something else: the same problem, asked again on purpose.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable

from ..records import Problem
from ..tasks.facts import DRAWS_OF_A_LEVEL, level_questions
from ..util.values import group_by
from .identity import question_hash

logger = logging.getLogger(__name__)

LEAST_DISTINCT = 0.5
"""Share of distinct questions below which a task's level is warned of."""

WATCHED = 200
"""Problems of a level after which a stream judges how many differ."""


def _name(task: str, level: int | None) -> str:
    return f"{task} at {'its default' if level is None else f'level {level}'}"


def _advice(task: str, level: int | None) -> str:
    distinct = level_questions(task, level)
    measured = ""
    if distinct:
        measured = f"{distinct} of {DRAWS_OF_A_LEVEL} draws of it differ; "
    return f"{measured}use a level with more questions, fewer problems, or a smaller evaluation set"


def repeat_warnings(problems: Iterable[Problem]) -> list[str]:
    """Return a line for each task and level of which less than LEAST_DISTINCT differ."""
    warnings = []
    levels = group_by(lambda p: (p.recipe.task, p.recipe.level), problems)
    for (task, level), of_level in levels.items():
        times_asked = Counter(problem.question for problem in of_level)
        if len(times_asked) < LEAST_DISTINCT * len(of_level):
            [(_, times)] = times_asked.most_common(1)
            warnings.append(
                f"few questions: {len(times_asked)} of the {len(of_level)} problems of "
                f"{_name(task, level)} differ, and one is there {times} times; "
                f"{_advice(task, level)}"
            )
    return warnings


class RepeatedQuestions:
    """Warns once of each task and level of which a stream asks few different questions."""

    def __init__(self) -> None:
        self._hashes: dict[tuple[str, int | None], list[bytes]] = {}

    def add(self, problem: Problem) -> None:
        """Count a fresh problem; after WATCHED of its level, warn if few of them differ."""
        recipe = problem.recipe
        hashes = self._hashes.setdefault((recipe.task, recipe.level), [])
        if len(hashes) >= WATCHED:
            return
        hashes.append(question_hash(problem.question))
        if len(hashes) < WATCHED:
            return
        distinct = len(set(hashes))
        if distinct < LEAST_DISTINCT * WATCHED:
            logger.warning(
                "Few questions: %d of the first %d problems of %s differ; %s",
                distinct,
                WATCHED,
                _name(recipe.task, recipe.level),
                _advice(recipe.task, recipe.level),
            )
