"""A recipe gives the same problem in every process and after any history."""

import asyncio
import json
import pickle
import random

import pytest

from reasoning_gym_environment.errors import GenerationError
from reasoning_gym_environment.records import Problem, Recipe, Status
from reasoning_gym_environment.sandbox import _limits as limits
from reasoning_gym_environment.sandbox._fork_server import ForkServer
from reasoning_gym_environment.sandbox._protocol import LENGTH
from reasoning_gym_environment.sandbox.pool import TaskPool
from reasoning_gym_environment.tasks.datasets import Datasets

pytestmark = pytest.mark.asyncio(loop_scope="session")

HAS_NO_ORACLE = {
    "boxnet",
    "graph_color",
    "propositional_logic",
    "rubiks_cube",
    "rush_hour",
}


async def made_in_a_fresh_process(
    recipes: list[Recipe],
) -> dict[str, tuple[str, str | None]]:
    """Return questions and oracles by recipe key, made sequentially in this order."""
    server = ForkServer()
    try:
        generator = await server.start("generator")
        replies = [
            await generator.request(pickle.dumps(r), timeout=60.0) for r in recipes
        ]
        await generator.kill()
    finally:
        await server.close()
    headers = [r[LENGTH.size : LENGTH.size + LENGTH.unpack_from(r)[0]] for r in replies]
    made = [json.loads(header)["message"] for header in headers]
    keys = map(key, recipes)
    return {k: (m["question"], m["oracle"]) for k, m in zip(keys, made, strict=True)}


def key(recipe: Recipe) -> str:
    return json.dumps(recipe.to_json(), sort_keys=True)


def facts(problem: Problem) -> tuple[str, str | None]:
    return problem.question, problem.oracle


@pytest.mark.nightly
async def test_a_recipe_gives_the_same_problem_in_every_process_after_any_history(
    problems: dict[str, list[Problem]],
) -> None:
    expected = {
        key(p.recipe): facts(p) for of_task in problems.values() for p in of_task
    }
    recipes = [p.recipe for of_task in problems.values() for p in of_task]
    others = [Recipe(task=task, seed=11) for task in problems]
    shuffled = random.Random(5).sample(recipes + others, len(recipes) + len(others))
    digits = {
        "max_decimal_places": 8,
        "max_digits": 10,
        "min_decimal_places": 6,
        "min_digits": 8,
    }
    long = Recipe(task="decimal_chain_sum", seed=6321079149627059, parameters=digits)
    lowers_the_decimal_precision = Recipe(task="decimal_arithmetic", seed=3)
    forwards, backwards = await asyncio.gather(
        made_in_a_fresh_process([long, *shuffled]),
        made_in_a_fresh_process([*shuffled[::-1], lowers_the_decimal_precision, long]),
    )
    for recipe in (long, *shuffled):
        assert forwards[key(recipe)] == backwards[key(recipe)], recipe
    for recipe in recipes:
        assert forwards[key(recipe)] == expected[key(recipe)], recipe


async def test_a_generator_with_global_randomness_is_reproducible(
    pool: TaskPool,
) -> None:
    of_one_generator = Recipe(
        task="list_functions", seed=6, parameters={"functions": [14]}
    )
    for recipe in (
        Recipe(task="list_functions", seed=6697294830158392),
        of_one_generator,
    ):
        made = await asyncio.gather(*(pool.generate(recipe) for _ in range(4)))
        assert len({facts(problem) for problem in made}) == 1


@pytest.mark.nightly
async def test_no_task_gives_the_same_problem_for_every_seed(
    pool: TaskPool, problems: dict[str, list[Problem]]
) -> None:
    for task, made in problems.items():
        recipes = [Recipe(task=task, seed=seed) for seed in (3, 2**33, 2**51)]
        more = await asyncio.gather(*map(pool.generate, recipes))
        assert len(set(map(facts, [*made, *more]))) > 1, task


async def test_parameters_reach_the_dataset(pool: TaskPool) -> None:
    recipe = Recipe(
        task="chain_sum", seed=2, parameters={"min_terms": 9, "max_terms": 9}
    )
    problem = await pool.generate(recipe)
    assert problem.recipe == recipe
    assert problem.question.count("+") + problem.question.count(" - ") == 8


@pytest.mark.parametrize(
    ("task", "parameters"),
    [("chain_sum", {"min_terms": 9, "max_terms": 9}), ("codeio", {"difficulty": 8})],
)
async def test_datasets_with_different_parameters_are_separate(
    task: str, parameters: dict[str, int]
) -> None:
    datasets = Datasets()
    plain = Recipe(task=task, seed=2)
    before = datasets.problem(plain)
    other = datasets.problem(Recipe(task=task, seed=2, parameters=parameters))
    assert other.question != before.question
    assert datasets.problem(plain) == before


async def test_the_least_recently_used_datasets_are_evicted() -> None:
    datasets = Datasets(cache_size=2)
    first, second = (datasets.get(task, {}) for task in ("gcd", "lcm"))
    assert datasets.get("gcd", {}) is first
    datasets.get("bf", {})
    assert datasets.get("gcd", {}) is first
    assert datasets.get("lcm", {}) is not second


@pytest.mark.skipif(
    not limits.address_space(), reason="the system does not report memory"
)
async def test_datasets_are_evicted_by_their_memory() -> None:
    datasets, before, most = Datasets(), limits.address_space(), 32 * 2**20
    datasets.limit_memory(limits.address_space, before + most)
    for index in range(20):  # 8 MB each
        datasets.get("count_primes", {"max_n": 10**6 - index})
    assert limits.address_space() < before + 2 * most
    assert 1 <= len(datasets.cached()) < 10


async def test_a_problem_of_more_than_a_megabyte_is_refused(pool: TaskPool) -> None:
    long = {"min_string_length": 10000, "max_string_length": 50000}
    recipe = Recipe(task="string_manipulation", seed=2, parameters=long)
    with pytest.raises(
        GenerationError, match=r"the problem has 8\.5 MiB, more than .* 1 MiB"
    ):
        await pool.generate(recipe)


async def test_an_evicted_dataset_gives_the_same_problems_again() -> None:
    datasets = Datasets(cache_size=1)
    recipe = Recipe(task="gcd", seed=5)
    before = datasets.problem(recipe)
    datasets.problem(Recipe(task="gcd", seed=5, parameters={"max_numbers": 5}))
    assert datasets.problem(recipe) == before


async def test_shared_data_match_the_parameters(pool: TaskPool) -> None:
    one, other = (
        Recipe(task="codeio", seed=2, parameters={"difficulty": d}) for d in (7, 9)
    )
    made = [await pool.generate(recipe) for recipe in (one, other, one)]
    assert made[0] == made[2] != made[1]


async def test_a_dataset_recovers_after_a_seed_without_an_item(pool: TaskPool) -> None:
    rare = dict.fromkeys(("min_word_length", "max_word_length"), 4)
    rare |= dict.fromkeys(("min_chain_length", "max_chain_length"), 3)
    with pytest.raises(GenerationError, match="exhausted"):
        await pool.generate(Recipe(task="word_ladder", seed=6, parameters=rare))
    assert await pool.generate(Recipe(task="word_ladder", seed=10, parameters=rare))


async def test_exactly_the_five_known_tasks_have_no_oracle(
    problems: dict[str, list[Problem]],
) -> None:
    without = {
        task for task, made in problems.items() if any(p.oracle is None for p in made)
    }
    assert without == HAS_NO_ORACLE


async def test_every_oracle_earns_full_credit(
    pool: TaskPool, problems: dict[str, list[Problem]]
) -> None:
    with_oracle = [
        p for made in problems.values() for p in made if p.oracle is not None
    ]
    found = await asyncio.gather(
        *(pool.verify(p, [str(p.oracle)]) for p in with_oracle)
    )
    for problem, [verdict] in zip(with_oracle, found, strict=True):
        assert (verdict.status, verdict.score) == (Status.SOLVED, 1.0), (
            problem.recipe,
            verdict,
        )
