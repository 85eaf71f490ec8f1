"""Sets of problems of a fixed size."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from ..errors import ConfigurationError, GenerationError
from ..records import Problem, Recipe
from ..sandbox.pool import Generate
from ..util.concurrency import gather_or_cancel
from .seeds import redrawn_seed, training_seed
from .stream import MAX_FAILED, give_up_on_hangs

logger = logging.getLogger(__name__)

MAX_REPEATS = 300
"""Draws in a row that repeat a set's questions, after which it has all that there are."""


def training_recipes(
    run_seed: int,
    task: str,
    level: int | None,
    parameters: Mapping[str, Any],
) -> Iterator[Recipe]:
    """Yield a task's training recipes without end."""
    for index in itertools.count():
        seed = training_seed(run_seed, "", task, index)
        yield Recipe(task=task, seed=seed, level=level, parameters=parameters)


async def make_all(
    generate: Generate, recipes: Sequence[Recipe]
) -> list[Problem | GenerationError]:
    """Make a problem for each recipe, or return the error of one that can't be made."""

    async def make(recipe: Recipe) -> Problem | GenerationError:
        try:
            return await generate(recipe)
        except GenerationError as error:
            return error

    return await gather_or_cancel(map(make, recipes))


async def make_distinct(
    generate: Generate,
    recipes: Sequence[Recipe],
    *,
    asked: Collection[str] = (),
) -> list[Problem | GenerationError | None]:
    """Make a problem for each recipe of a level; none repeats a question of those before it.

    A repeated one is drawn again with a seed that depends on its own alone, so that a longer set
    begins with the shorter one. After MAX_REPEATS draws that bring nothing new, the level has no
    other question, and further repeats are left out.

    Args:
        asked: questions that count as repeats too.

    Returns:
        For each recipe its problem, the error if it can't be made, or None if it was left out.
    """
    asked_questions = set(asked)

    def is_repeated(problem: Problem) -> bool:
        return problem.question in asked_questions

    async def another(problem: Problem) -> Problem | GenerationError | None:
        """Return the next one in the problem's place that repeats none."""
        tried: Problem | GenerationError = problem
        for _ in range(MAX_REPEATS):
            if not isinstance(tried, Problem) or not is_repeated(tried):
                return tried
            recipe = tried.recipe
            next_recipe = replace(recipe, seed=redrawn_seed(recipe.seed))
            [tried] = await make_all(generate, [next_recipe])
        return None

    results: list[Problem | GenerationError | None] = []
    has_others = True
    for first_draw in await make_all(generate, recipes):
        result: Problem | GenerationError | None = first_draw
        if isinstance(first_draw, Problem) and is_repeated(first_draw):
            result = await another(first_draw) if has_others else None
            has_others = result is not None
        if isinstance(result, Problem):
            asked_questions.add(result.question)
        results.append(result)
    return results


async def make_evaluation_problems(
    generate: Generate, recipes: Sequence[Recipe]
) -> list[Problem]:
    """Make the different problems of a level's evaluation recipes, in order, as `evaluate` does.

    There are fewer where some can't be made, with a warning, and where the level has no more.

    Raises:
        ConfigurationError: none can be made, or too many in a row hang.
    """
    results = await make_distinct(give_up_on_hangs(generate), recipes)
    problems = [result for result in results if isinstance(result, Problem)]
    errors = [result for result in results if isinstance(result, GenerationError)]
    if not problems:
        raise ConfigurationError(f"{len(recipes)} items can't be made: {errors[0]}")
    for error in errors:
        logger.warning("The evaluation set lacks an item: %s", error)
    return problems


async def make_problems(
    generate: Generate,
    recipes: Iterator[Recipe],
    count: int,
    *,
    on_made: Callable[[], None] = lambda: None,
) -> list[Problem]:
    """Make the first `count` problems that can be made, in order.

    Args:
        on_made: called once for each problem.

    Raises:
        ConfigurationError: too many items in a row can't be made, or hang.
    """

    generate_or_give_up = give_up_on_hangs(generate)

    async def make(recipe: Recipe) -> Problem | GenerationError:
        try:
            problem = await generate_or_give_up(recipe)
        except GenerationError as error:
            return error
        on_made()
        return problem

    problems: list[Problem] = []
    failed = 0  # in a row
    while len(problems) < count:
        batch = list(itertools.islice(recipes, count - len(problems)))
        for result in await gather_or_cancel(map(make, batch)):
            if isinstance(result, Problem):
                failed = 0
                problems.append(result)
                continue
            failed += 1
            if failed == MAX_FAILED:
                raise ConfigurationError(
                    f"{failed} items in a row can't be made: {result}"
                )
    return problems
