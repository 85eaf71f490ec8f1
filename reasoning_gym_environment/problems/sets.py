"""Sets of problems of a fixed size."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any

from ..errors import ConfigurationError, GenerationError
from ..records import Problem, Recipe
from ..sandbox.pool import Generate
from ..util.concurrency import gather_or_cancel
from .held_out import is_held_out
from .seeds import split_seed
from .stream import MAX_FAILED, MAX_SKIPPED, give_up_on_hangs


def set_recipes(
    split: str,
    run_seed: int,
    task: str,
    level: int | None,
    parameters: Mapping[str, Any],
) -> Iterator[Recipe]:
    """Yield a task's recipes for a set of "train" or "eval", without end."""
    for index in itertools.count():
        seed = split_seed(split, run_seed, task, index)
        yield Recipe(task=task, seed=seed, level=level, parameters=parameters)


async def make_problems(
    generate: Generate,
    recipes: Iterator[Recipe],
    count: int,
    *,
    excluded: Collection[bytes] = (),
    on_excluded: Callable[[], None] = lambda: None,
    on_made: Callable[[], None] = lambda: None,
) -> list[Problem]:
    """Make the first `count` problems that can be made and are not excluded, in order.

    Args:
        excluded: the `held_out_hashes` of the evaluation set.
        on_excluded, on_made: called once for each problem.

    Raises:
        ConfigurationError: too many items in a row can't be made, hang, or are excluded.
    """

    generate_or_give_up = give_up_on_hangs(generate)

    async def make(recipe: Recipe) -> Problem | GenerationError | None:
        try:
            problem = await generate_or_give_up(recipe)
        except GenerationError as error:
            return error
        if is_held_out(problem, excluded):
            on_excluded()
            return None
        on_made()
        return problem

    made: list[Problem] = []
    failed = refused = 0  # in a row
    while len(made) < count:
        batch = list(itertools.islice(recipes, count - len(made)))
        for recipe, tried in zip(
            batch, await gather_or_cancel(map(make, batch)), strict=True
        ):
            if isinstance(tried, Problem):
                made.append(tried)
                failed = refused = 0
            elif tried is None:
                refused += 1
                if refused == MAX_SKIPPED:
                    raise ConfigurationError(
                        f"{refused} items in a row can't be made: {recipe.task}: the question, or "
                        "the text that it disguises, is in the evaluation set: use fewer "
                        "evaluation items, or levels with more questions"
                    )
            else:
                failed += 1
                if failed == MAX_FAILED:
                    raise ConfigurationError(
                        f"{failed} items in a row can't be made: {tried}"
                    )
    return made
