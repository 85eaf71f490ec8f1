"""Extra parameters choose items by the recipe alone, and never reach the library."""

import asyncio
import json
import warnings
from collections import Counter

import pytest

from reasoning_gym_environment.errors import GenerationError
from reasoning_gym_environment.records import Problem, Recipe
from reasoning_gym_environment.sandbox.pool import TaskPool
from reasoning_gym_environment.tasks.ladders import library_parameters, parameter_names

pytestmark = pytest.mark.asyncio(loop_scope="session")

SEEDS = [2 * seed for seed in range(100, 130)]


async def generate(pool: TaskPool, task: str, **parameters: object) -> list[Problem]:
    recipes = [Recipe(task=task, seed=seed, parameters=parameters) for seed in SEEDS]
    return await asyncio.gather(*map(pool.generate, recipes))


async def test_the_library_does_not_get_extra_parameters() -> None:
    parameters = {"rank": 0.5, "train": 0}
    assert library_parameters("acre", parameters) == {"train": 0}
    assert library_parameters("chain_sum", parameters) == parameters


async def test_parameter_names_include_the_extra_ones() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the library's own
        assert parameter_names("acre") == ("train", "rank")
        assert parameter_names("gsm_symbolic") == ("difficulty", "templates")
        assert parameter_names("coin_flip")[:2] == ("min_trials", "max_trials")


@pytest.mark.parametrize("task", ["acre", "self_reference"])
async def test_a_rank_does_not_change_the_answers(pool: TaskPool, task: str) -> None:
    low, high = (
        await generate(pool, task, rank=0.0),
        await generate(pool, task, rank=1.0),
    )
    assert [problem.oracle for problem in low] == [problem.oracle for problem in high]
    assert len({problem.oracle for problem in low}) > 2


async def test_each_answer_among_the_candidates_is_equally_likely(
    pool: TaskPool,
) -> None:
    most = []
    for candidates in (1, 64):
        made = await generate(
            pool, "gcd", min_value=1000, max_value=9999, candidates=candidates
        )
        most += [Counter(problem.oracle for problem in made).most_common(1)[0][1]]
    assert most[0] > 2 * most[1]


async def test_the_item_comes_from_one_of_the_chosen_generators(pool: TaskPool) -> None:
    copied = []
    for problem in await generate(pool, "list_functions", functions=[0, 8]):
        shown = problem.question.split("Input: ")[1].split("\n")[0]
        assert problem.oracle in (shown, f"[{len(json.loads(shown))}]")
        copied.append(problem.oracle == shown)
    assert set(copied) == {True, False}


@pytest.mark.parametrize(
    ("task", "parameters", "named"),
    [
        ("list_functions", {"functions": []}, "generators"),
        ("list_functions", {"functions": [3, 99]}, "99"),
        ("self_reference", {"rank": 1.5}, "1.5"),
        ("largest_island", {"rank": 1.0, "max_num_islands": 1}, "none of 16 items"),
        ("chain_sum", {"rank": 0.5}, "rank"),
        ("gcd", {"candidates": 0}, "candidates must be an integer ≥ 1, got 0"),
    ],
)
async def test_a_value_without_an_item_is_refused(
    pool: TaskPool, task: str, parameters: dict[str, object], named: str
) -> None:
    with pytest.raises(GenerationError, match=named):
        await pool.generate(Recipe(task=task, seed=2, parameters=parameters))


async def test_a_candidate_whose_output_json_lacks_is_left_out(pool: TaskPool) -> None:
    recipe = Recipe(task="codeio", seed=145820999513075, parameters={"rank": 0.0})
    assert (await pool.generate(recipe)).oracle
