"""Our own ladders get harder with every level, and their items are sound."""

import asyncio
import itertools
import json
import pickle
import re
from collections.abc import Callable, Mapping
from datetime import datetime
from statistics import mean
from typing import Any, TypeAlias

import pytest

from reasoning_gym_environment.records import Problem, Recipe, Status
from reasoning_gym_environment.sandbox.pool import TaskPool
from reasoning_gym_environment.tasks.item_orders import MEASURES
from reasoning_gym_environment.tasks.ladders import OWN_LADDERS

pytestmark = pytest.mark.asyncio(loop_scope="session")

Levels: TypeAlias = list[list[Problem]]
"""Problems of every level of a task, of the same seeds."""

SEEDS = [2 * seed for seed in range(5, 21)]


RULES = {
    0: "x",
    1: "[x[2]]",
    2: "x[::-1]",
    3: "[sum({n for n in x if n < 30})]",
    4: "[x.count(5)]",
    5: "[a for a, b in zip(x, x[1:]) if b % 2 == 0]",
    6: "[i + n for i, n in enumerate(x)]",
    7: "[x[x[-1]]]",
    8: "[len(x)]",
    9: "[sum(x)]",
    10: "sorted(x)",
    11: "sorted(x)[::-1]",
    12: "[x[0] + 1, *x[1:-1], x[-1] + 1]",
    15: "[2 * x[-1]]",
    16: "[2 * x[0] - 4]",
}
"""The shortest Python expressions of the rules of `list_functions`."""


def entry(problem: Problem) -> dict[str, Any]:
    found: dict[str, Any] = pickle.loads(problem.entry)
    return found


def measured(problem: Problem) -> float:
    return MEASURES[problem.recipe.task].difficulty(entry(problem))[0]


def operations(problem: Problem) -> float:
    """Return the number of arithmetic operations in the library's worked answer."""
    worked = entry(problem)["metadata"]["answer_cot"]
    return len(re.findall(r"(?<=\S )[-+*/x\u00d7÷] |[\d)][-+*/x][\d(]|\d\(|%", worked))


def elapsed(problem: Problem) -> float:
    """Return the length of a time interval in seconds."""
    facts = entry(problem)["metadata"]
    start, end = (
        datetime.fromisoformat(facts[name]) for name in ("start_time", "end_time")
    )
    return (end - start).total_seconds()


RISES: Mapping[str, Callable[[Problem], float]] = {
    "figlet_font": lambda problem: len(str(problem.oracle)),
    "game_of_life_halting": lambda problem: problem.question.split("board:")[1].count(
        "1"
    ),
    "gsm_symbolic": operations,
    "knight_swap": lambda problem: len(json.loads(str(problem.oracle))),
    "rush_hour": lambda problem: entry(problem)["metadata"]["min_moves"],
    "time_intervals": elapsed,
    "word_ladder": lambda problem: str(problem.oracle).count(","),
} | dict.fromkeys(MEASURES, measured)
"""Task to the measure that rises with its level."""

BY_PUBLISHED_SHARES = {"list_functions"}
"""Tasks whose levels are ordered by what published models solve of their rules."""


@pytest.mark.nightly
@pytest.mark.parametrize("task", sorted(OWN_LADDERS))
async def test_an_own_ladder_rises_and_its_items_are_sound(
    pool: TaskPool, task: str
) -> None:
    recipes = [
        [Recipe(task=task, seed=seed, parameters=level) for seed in SEEDS]
        for level in OWN_LADDERS[task].levels
    ]
    levels = [
        await asyncio.gather(*map(pool.generate, of_level)) for of_level in recipes
    ]
    if task not in BY_PUBLISHED_SHARES:
        every_level_is_harder(levels)
    neighboring_levels_differ(levels)
    await oracles_are_right(pool, levels)
    await stored_recipes_give_the_same_questions(pool, levels)
    if task == "game_of_life_halting":
        assert not any(
            "..." in problem.question for problem in itertools.chain(*levels)
        )


def every_level_is_harder(levels: Levels) -> None:
    rises = RISES[levels[0][0].recipe.task]
    means = [mean(map(rises, problems)) for problems in levels]
    assert all(lower < higher for lower, higher in itertools.pairwise(means)), means


def neighboring_levels_differ(levels: Levels) -> None:
    for lower, higher in itertools.pairwise(levels):
        same = sum(a.question == b.question for a, b in zip(lower, higher, strict=True))
        assert same <= len(SEEDS) // 4, lower[0].recipe.parameters


async def oracles_are_right(pool: TaskPool, levels: Levels) -> None:
    known = [p for problems in levels for p in problems[:8] if p.oracle is not None]
    found = await asyncio.gather(*(pool.verify(p, [str(p.oracle)]) for p in known))
    for problem, [verdict] in zip(known, found, strict=True):
        assert (verdict.status, verdict.score) == (Status.SOLVED, 1.0), problem.recipe


async def stored_recipes_give_the_same_questions(
    pool: TaskPool, levels: Levels
) -> None:
    for problem, *_ in levels:
        stored = Recipe.from_json(json.loads(json.dumps(problem.recipe.to_json())))
        assert (await pool.generate(stored)).question == problem.question


async def test_the_written_rules_match_the_library(pool: TaskPool) -> None:
    for number, rule in RULES.items():
        recipe = Recipe(
            task="list_functions", seed=6, parameters={"functions": [number]}
        )
        problem = await pool.generate(recipe)
        examples = re.findall(r"Input \d: (.*)\nOutput \d: (.*)\n", problem.question)
        examples.append(
            (re.findall(r"Input: (.*)\n", problem.question)[0], problem.oracle)
        )
        for given, expected in examples:
            assert eval(rule, {"x": json.loads(given)}) == json.loads(expected), rule


async def test_rules_that_are_left_out_have_a_single_answer(pool: TaskPool) -> None:
    for number in (13, 14):
        recipes = [
            Recipe(task="list_functions", seed=seed, parameters={"functions": [number]})
            for seed in SEEDS
        ]
        problems = await asyncio.gather(*map(pool.generate, recipes))
        assert len({problem.oracle for problem in problems}) == 1
