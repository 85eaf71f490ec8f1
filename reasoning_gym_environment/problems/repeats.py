"""How often training asks the same questions: counts by task and level, and warnings."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable

from ..records import Problem
from ..tasks.facts import DRAWS_OF_A_LEVEL, level_questions
from ..util.values import group_by
from .held_out import question_hash

logger = logging.getLogger(__name__)

LEAST_DISTINCT = 0.5
"""Share of distinct questions below which a task's level is warned of."""

WATCHED = 200
"""Problems of a level after which a stream judges how many differ."""


def _name(task: str, level: int | None) -> str:
    return f"{task} at {'its default' if level is None else f'level {level}'}"


def _advice(task: str, level: int | None) -> str:
    known = level_questions(task, level)
    has = f"{known} of {DRAWS_OF_A_LEVEL} draws of it differ; " if known else ""
    return f"{has}use a level with more questions, fewer problems, or a smaller evaluation set"


def repeat_warnings(problems: Iterable[Problem]) -> list[str]:
    """Return a line for each task and level of which less than LEAST_DISTINCT differ."""
    warnings = []
    parts = group_by(lambda one: (one.recipe.task, one.recipe.level), problems)
    for (task, level), own in parts.items():
        asked = Counter(problem.question for problem in own)
        if len(asked) < LEAST_DISTINCT * len(own):
            [(_, most)] = asked.most_common(1)
            warnings.append(
                f"few questions: {len(asked)} of the {len(own)} problems of {_name(task, level)} "
                f"differ, and one is there {most} times; {_advice(task, level)}"
            )
    return warnings


class RepeatWatch:
    """Warns once of each task and level of which a stream asks few different questions."""

    def __init__(self) -> None:
        self._asked: dict[tuple[str, int | None], list[bytes]] = {}

    def add(self, problem: Problem) -> None:
        """Count a fresh problem; after WATCHED of its level, warn if few of them differ."""
        recipe = problem.recipe
        asked = self._asked.setdefault((recipe.task, recipe.level), [])
        if len(asked) >= WATCHED:
            return
        asked.append(question_hash(problem.question))
        distinct = len(set(asked)) if len(asked) == WATCHED else WATCHED
        if distinct < LEAST_DISTINCT * WATCHED:
            logger.warning(
                "Few questions: %d of the first %d problems of %s differ; %s",
                distinct,
                WATCHED,
                _name(recipe.task, recipe.level),
                _advice(recipe.task, recipe.level),
            )
