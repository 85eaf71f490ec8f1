"""One problem of every task, made by a generator process."""

import asyncio

import pytest
import pytest_asyncio

from reasoning_gym_environment.core.records import Problem, Recipe
from reasoning_gym_environment.runtime.task_pool import TaskPool
from reasoning_gym_environment.tasks.catalogue import known_categories


@pytest.fixture(scope="session")
def all_tasks() -> list[str]:
    return sorted(known_categories())


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def problems(pool: TaskPool, all_tasks: list[str]) -> dict[str, list[Problem]]:
    """Task name to problems of two seeds."""
    recipes = [Recipe(task=task, seed=seed) for task in all_tasks for seed in (2**40, 2**52 + 6)]
    made = await asyncio.gather(*(pool.generate(recipe) for recipe in recipes))
    return {task: [p for p in made if p.recipe.task == task] for task in all_tasks}
