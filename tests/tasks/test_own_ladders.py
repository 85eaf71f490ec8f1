"""Each of our own ladders really rises, and its levels give sound items."""

import ast
import asyncio
import itertools
import json
import pickle
import re
from collections.abc import Callable, Mapping
from statistics import mean

import pytest

from reasoning_gym_environment.core.records import Problem, Recipe, Status
from reasoning_gym_environment.runtime.task_pool import TaskPool
from reasoning_gym_environment.tasks.measures import MEASURES
from reasoning_gym_environment.tasks.own_ladders import OWN_LADDERS

pytestmark = pytest.mark.asyncio(loop_scope="session")

SEEDS = [2 * seed for seed in range(5, 25)]

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
"""The rules of `list_functions`, as short as Python says them."""


def size(rule: str) -> int:
    return sum(1 for _ in ast.walk(ast.parse(rule, mode="eval")))


def rule_size(problem: Problem) -> float:
    """The mean size of the rules that a problem's level may draw."""
    return mean(size(RULES[number]) for number in problem.recipe.parameters["functions"])


def moves(problem: Problem) -> float:
    return len(json.loads(str(problem.oracle)))


def measured(problem: Problem) -> float:
    return MEASURES[problem.recipe.task].of(problem.question)[0]


def operations(problem: Problem) -> float:
    """The arithmetic operations in the library's worked answer."""
    worked = pickle.loads(problem.entry)["metadata"]["answer_cot"]
    return len(re.findall(r"(?<=\S )[-+*/x\u00d7÷] |[\d)][-+*/x][\d(]|\d\(|%", worked))


RISES: Mapping[str, Callable[[Problem], float]] = {
    "gsm_symbolic": operations,
    "knight_swap": moves,
    "list_functions": rule_size,
} | dict.fromkeys(MEASURES, measured)
"""Task to what rises with its level."""


async def made(pool: TaskPool, task: str) -> list[list[Problem]]:
    """Problems of every level, of the same seeds."""
    return [
        await asyncio.gather(
            *(pool.generate(Recipe(task=task, seed=seed, parameters=level)) for seed in SEEDS)
        )
        for level in OWN_LADDERS[task].levels
    ]


@pytest.mark.parametrize("task", sorted(RISES))
async def test_what_makes_a_task_hard_rises_with_every_level(pool: TaskPool, task: str) -> None:
    means = [mean(map(RISES[task], problems)) for problems in await made(pool, task)]
    assert all(lower < higher for lower, higher in itertools.pairwise(means)), means


@pytest.mark.parametrize("task", sorted(OWN_LADDERS))
async def test_the_oracle_is_right_at_every_level(pool: TaskPool, task: str) -> None:
    for problems in await made(pool, task):
        known = [p for p in problems[:8] if p.oracle is not None]
        found = await asyncio.gather(*(pool.verify(p, [str(p.oracle)]) for p in known))
        for problem, [verdict] in zip(known, found, strict=True):
            assert (verdict.status, verdict.score) == (Status.SOLVED, 1.0), problem.recipe


@pytest.mark.parametrize("task", sorted(OWN_LADDERS))
async def test_neighbouring_levels_differ_for_equal_seeds(pool: TaskPool, task: str) -> None:
    levels = [[p.question for p in problems] for problems in await made(pool, task)]
    for lower, higher in itertools.pairwise(levels):
        same = sum(a == b for a, b in zip(lower, higher, strict=True))
        assert same <= len(SEEDS) // 4


@pytest.mark.parametrize("task", sorted(OWN_LADDERS))
async def test_a_recipe_from_json_gives_the_same_question(pool: TaskPool, task: str) -> None:
    for level in OWN_LADDERS[task].levels:
        recipe = Recipe(task=task, seed=8, parameters=level)
        stored = Recipe.from_json(json.loads(json.dumps(recipe.to_json())))
        assert (await pool.generate(stored)).question == (await pool.generate(recipe)).question


async def test_the_written_rules_are_those_of_the_library(pool: TaskPool) -> None:
    for number, rule in RULES.items():
        recipe = Recipe(task="list_functions", seed=6, parameters={"functions": [number]})
        problem = await pool.generate(recipe)
        examples = re.findall(r"Input \d: (.*)\nOutput \d: (.*)\n", problem.question)
        examples.append((re.findall(r"Input: (.*)\n", problem.question)[0], problem.oracle))
        for given, expected in examples:
            assert eval(rule, {"x": json.loads(given)}) == json.loads(expected), rule


async def test_list_functions_without_a_ladder_of_one_answer(pool: TaskPool) -> None:
    for left_out in (13, 14):
        recipes = [
            Recipe(task="list_functions", seed=seed, parameters={"functions": [left_out]})
            for seed in SEEDS
        ]
        made = await asyncio.gather(*map(pool.generate, recipes))
        assert len({problem.oracle for problem in made}) == 1
