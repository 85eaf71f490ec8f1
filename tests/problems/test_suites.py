"""Suites are read with their hashes, and their questions are those of the file."""

import json
from pathlib import Path
from typing import Any

import pytest
from suite_values import RECIPES, manifest, problems_of, write_suite

from reasoning_gym_environment.errors import ConfigurationError
from reasoning_gym_environment.problems.suites import (
    UnequalItemsError,
    built_in,
    encode_suite,
    load_suite,
    question_sha256,
    require_same_questions,
)
from reasoning_gym_environment.sandbox.pool import TaskPool
from reasoning_gym_environment.tasks.catalogue import ladder_heights

pytestmark = pytest.mark.asyncio(loop_scope="session")


@pytest.mark.parametrize("name", built_in())
async def test_the_suites_of_the_package_are_whole(name: str) -> None:
    suite = load_suite(name)
    recipes = [json.dumps(recipe.identity()) for recipe, _ in suite.recipes()]
    assert suite.name == name
    assert len(set(recipes)) == len(recipes) == len(suite)
    if not name.startswith("paper"):
        assert set(suite.tasks) == set(ladder_heights())
        assert all(recipe.seed % 2 for recipe, _ in suite.recipes())


async def test_some_questions_of_the_smallest_suite_are_made_again(pool: TaskPool) -> None:
    for recipe, _, expected in list(load_suite("small").items())[::40]:
        problem = await pool.generate(recipe)
        assert question_sha256(problem.question) == expected, recipe
        assert problem.fault is None


async def test_a_suite_of_ones_own_is_read_from_its_file(pool: TaskPool, tmp_path: Path) -> None:
    problems = await problems_of(pool)
    suite = load_suite(write_suite(tmp_path / "tiny.json", manifest(problems)))
    assert suite.tasks == ["chain_sum", "gcd"]
    assert [recipe for recipe, _ in suite.recipes()] == RECIPES
    require_same_questions(suite, problems)


async def test_another_question_or_a_missing_item_is_refused(
    pool: TaskPool, tmp_path: Path
) -> None:
    problems = await problems_of(pool)
    rest = manifest(problems)
    rest["sets"][0]["items"][0][1] = "0" * 64
    suite = load_suite(write_suite(tmp_path / "tiny.json", rest))
    with pytest.raises(UnequalItemsError) as raised:
        require_same_questions(suite, problems[:-1])
    assert "1 of the 5 items of tiny have another question and 1 can't be generated" in str(
        raised.value
    )
    assert "made with reasoning-gym 0.1.25" in str(raised.value)


BAD: list[tuple[dict[str, Any], str]] = [
    ({"name": "../up"}, "name"),
    ({"version": 0}, "version"),
    ({"more": 1}, "more"),
    ({"sets": []}, "sets"),
    ({"sha256": "0" * 64}, "was changed"),
    ({"settings": {"system_prompt": "x"}}, "settings"),
]


@pytest.mark.parametrize(("changes", "said"), BAD)
async def test_an_invalid_or_changed_suite_is_refused(
    pool: TaskPool, tmp_path: Path, changes: dict[str, Any], said: str
) -> None:
    suite = manifest(await problems_of(pool), **changes)
    with pytest.raises(ConfigurationError, match=said):
        load_suite(write_suite(tmp_path / "tiny.json", suite))


async def test_hostile_parameters_are_refused(pool: TaskPool, tmp_path: Path) -> None:
    suite = manifest(await problems_of(pool))
    suite["sets"][0]["parameters"] = {"symbols": [["__import__('os')"] * 2000]}
    with pytest.raises(ConfigurationError, match="not a suite"):
        load_suite(write_suite(tmp_path / "tiny.json", suite))


async def test_an_unknown_name_gets_a_hint() -> None:
    with pytest.raises(ConfigurationError, match=r"'smal'; did you mean small"):
        load_suite("smal")


async def test_the_file_has_a_line_for_each_set(pool: TaskPool) -> None:
    text = encode_suite(manifest(await problems_of(pool)))
    assert json.loads(text)["sets"][0]["task"] == "gcd"
    assert len(text.splitlines()) == 5 + 11
