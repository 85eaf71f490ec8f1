"""Suites are read with their hashes, and their questions are those of the file."""

import hashlib
import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from page_blocks import ROOT
from suite_values import RECIPES, manifest, write_suite

from reasoning_gym_environment.errors import ConfigurationError, FixableError
from reasoning_gym_environment.problems.identity import problem_identity
from reasoning_gym_environment.problems.split import belongs_to_evaluation
from reasoning_gym_environment.problems.suites import (
    EARLIER,
    FOLDER,
    NAMES,
    Suite,
    earlier_file,
    load_suite,
    question_sha256,
    require_same_questions,
)
from reasoning_gym_environment.records import Problem
from reasoning_gym_environment.sandbox.pool import TaskPool
from reasoning_gym_environment.tasks.facts import has_few_questions, ladder_heights
from research.make_suites import VERSIONS, encode_suite

PROBLEMS = [
    Problem(recipe=r, question=f"{r.task} {r.seed}?", oracle="1", entry=b"")
    for r in RECIPES
]
SHA256 = {
    "small": "7a8d43b65ef622fd5317245335e6a1c3020e4233fd5ce3c2ce615bcf88c16e3b",
    "medium": "2c089b8d5caf3aa9c5012a1007b761aeffc9435380d2a4bededbf352ae71edca",
    "full": "b414c3a378e352b19b2db3e73aab5b5aff1221dad6bff332d9e220dda2d6c6a3",
    "paper-easy": "e8c5528d183991d1318d0d1a311ea9b0526fa822dd7b598adb5ff8241b7a8e5f",
    "paper-hard": "8e4c2a8847fa146f0b409a6f441827cb19bffae6399ba7e59624ac91cf9af678",
    "small@2": "2f54096d346bc72b9f8ae25d8099799089ea49f0ee9f5c7059d2573f6fae198e",
    "medium@2": "ead90888adbeda35c2cfcb5ee488ecc86a5b2d172d0c716c02132f1906ed2940",
    "full@2": "03f66f23c3732d4b9d61c6cdb39838ab6ec157a1b69fea1295aea1d6864fee8c",
    "small@1": "e4756fe18ffb0fc675150388fb1ad2f6b8969b69d0c2b1cbd40234b1e84d777a",
    "medium@1": "fd8067fa03bfa3a84b760f8396ce3d4a9d75754e33cad6b005c9b0586e2e11ec",
    "full@1": "fd414687a659893fba7e6a921b8ee45025167b327f1c4b78689936b0af35544d",
    "paper-easy@1": "7131ee9328313d2ef89cabd149084a85fb0de1448cd6333b6a65aad9962e0bc5",
    "paper-hard@1": "0e5c9a38f5a98322f996b3222a28c17f2fc13afe526291986c0e8a2c0711d182",
}
"""What results on suites carry: none of these may change."""

EARLIER_NAMES = [name for name in SHA256 if "@" in name]


def file_of(name: str) -> str:
    """Return the name of a suite of the package, or the file of an earlier version."""
    return str(ROOT / EARLIER / f"{name}.json") if "@" in name else name


def test_the_package_has_the_newest_suites_and_the_repository_the_earlier_ones() -> (
    None
):
    assert {path.stem for path in FOLDER.iterdir()} == {*NAMES}
    assert {path.stem for path in (ROOT / EARLIER).iterdir()} == {*EARLIER_NAMES}
    assert {*NAMES, *EARLIER_NAMES} == SHA256.keys()


@pytest.mark.parametrize("name", SHA256)
def test_the_suites_are_whole(name: str) -> None:
    suite = load_suite(file_of(name))
    assert suite.sha256 == SHA256[name]
    recipes = [json.dumps(recipe.identity()) for recipe, _ in suite.recipes()]
    assert suite.name == name.partition("@")[0]
    assert len(set(recipes)) == len(recipes) == len(suite)
    assert suite.version == int(name.partition("@")[2] or VERSIONS[name])
    questions = {(recipe.task, digits) for recipe, _, digits in suite.items()}
    assert (len(questions) == len(suite)) == (not name.endswith("@1"))
    if not name.startswith("paper"):
        assert set(suite.tasks) == set(ladder_heights())
        assert all(recipe.seed % 2 for recipe, _ in suite.recipes())
    if name in ("medium", "full"):
        assert min(Counter(recipe.task for recipe, _ in suite.recipes()).values()) >= 20


@pytest.mark.asyncio(loop_scope="session")
async def test_our_suites_ask_what_training_does_not(pool: TaskPool) -> None:
    for name in ("small", "medium", "full"):
        recipes = [recipe for recipe, _ in load_suite(name).recipes()]
        for recipe in recipes[:: len(recipes) // 20]:
            problem = await pool.generate(recipe)
            is_small = has_few_questions(recipe)
            assert is_small or belongs_to_evaluation(problem_identity(problem)), recipe


@pytest.mark.asyncio(loop_scope="session")
async def test_some_questions_of_the_smallest_suite_are_made_again(
    pool: TaskPool,
) -> None:
    for recipe, _, expected in list(load_suite("small").items())[::40]:
        problem = await pool.generate(recipe)
        assert question_sha256(problem.question)[:8] == expected, recipe
        assert problem.fault is None


def loaded(folder: Path, rest: dict[str, Any]) -> Suite:
    """Return a suite that was written to a file and read."""
    return load_suite(write_suite(folder / "tiny.json", rest))


def test_a_suite_of_ones_own_is_read_from_its_file(tmp_path: Path) -> None:
    suite = loaded(tmp_path, manifest(PROBLEMS))
    assert suite.tasks == ["chain_sum", "gcd"]
    assert [recipe for recipe, _ in suite.recipes()] == RECIPES
    require_same_questions(suite, PROBLEMS)


def test_results_carry_one_hash_over_all_recipes_and_whole_questions(
    tmp_path: Path,
) -> None:
    rest = manifest(PROBLEMS)
    suite = loaded(tmp_path, rest)
    text = json.dumps(rest, sort_keys=True).encode()
    assert suite.identity["sha256"] == suite.sha256 == hashlib.sha256(text).hexdigest()
    for changed in (
        replace(suite, sha256="0" * 64),
        replace(suite, sets=suite.sets[::-1]),
        replace(suite, settings=replace(suite.settings, system_prompt="Other.")),
    ):
        with pytest.raises(FixableError, match="have another SHA-256 than the suite's"):
            require_same_questions(changed, PROBLEMS)


def test_another_question_or_a_missing_item_is_refused(tmp_path: Path) -> None:
    rest = manifest(PROBLEMS)
    rest["sets"][0]["items"][0][1] = "0" * 64
    with pytest.raises(FixableError) as raised:
        require_same_questions(loaded(tmp_path, rest), PROBLEMS[:-1])
    said = "1 of the 5 items of tiny have another question and 1 can't be generated"
    assert said in str(raised.value)
    assert "made with reasoning-gym 0.1.25" in str(raised.value)
    suite = loaded(tmp_path, manifest(PROBLEMS, made_with={}))
    with pytest.raises(
        FixableError, match="made with reasoning-gym of an unknown version"
    ):
        require_same_questions(suite, [])


SETTINGS = manifest([])["settings"]
GCD = manifest(PROBLEMS)["sets"][0]
BAD: list[tuple[dict[str, Any], str]] = [
    ({"name": "../up"}, "name"),
    ({"version": 0}, "version"),
    ({"more": 1}, "more"),
    ({"sets": []}, "sets"),
    ({"version": 10**400}, "version"),
    ({"settings": {**SETTINGS, "eval_attempts": 10**12}}, "eval_attempts"),
    ({"settings": {**SETTINGS, "eval_temperature": float("inf")}}, "eval_temperature"),
    ({"settings": {**SETTINGS, "max_token_length": 10**18}}, "max_token_length"),
    ({"settings": {**SETTINGS, "system_prompt": "\ud800"}}, "surrogates not allowed"),
    ({"sets": [{**GCD, "task": "\x1b]0;name\x07"}]}, "task"),
    ({"sets": [{**GCD, "level": 10**9}]}, "level"),
    ({"sets": [GCD, GCD]}, "an item is there twice"),
    ({"settings": {"system_prompt": "x"}}, "settings"),
    (
        {"sets": [{**GCD, "parameters": {"symbols": [["__import__('os')"] * 2000]}}]},
        "not a suite",
    ),
]


@pytest.mark.parametrize(("changes", "said"), BAD)
def test_an_invalid_suite_is_refused(
    tmp_path: Path, changes: dict[str, Any], said: str
) -> None:
    with pytest.raises(ConfigurationError, match=said):
        loaded(tmp_path, manifest(PROBLEMS, **changes))


def test_a_changed_file_is_refused(tmp_path: Path) -> None:
    path = Path(write_suite(tmp_path / "tiny.json", manifest(PROBLEMS)))
    text = path.read_text()
    own = load_suite(str(path)).sha256
    for old, new in (
        ('[[1, "', '[[7, "'),
        ("Answer.", "Answer!"),
        ("for tests", "for you"),
        (own, "0" * 64),
    ):
        path.write_text(text.replace(old, new, 1))
        with pytest.raises(ConfigurationError, match="was changed"):
            load_suite(str(path))


@pytest.mark.parametrize("name", ["smal", "small@0", "small@3", "smal@1"])
def test_an_unknown_name_gets_a_hint(name: str) -> None:
    with pytest.raises(ConfigurationError, match=f"'{name}'; did you mean small"):
        load_suite(name)


@pytest.mark.parametrize("name", EARLIER_NAMES)
def test_an_earlier_version_is_told_where_its_file_is(name: str) -> None:
    file = earlier_file(*name.split("@"))
    assert file is not None
    assert load_suite(str(ROOT / file)).sha256 == SHA256[name]
    with pytest.raises(ConfigurationError) as raised:
        load_suite(name)
    assert str(raised.value).startswith(name)
    assert file in str(raised.value)


def test_the_file_has_a_line_for_each_set() -> None:
    text = encode_suite(manifest(PROBLEMS))
    assert json.loads(text)["sets"][0]["task"] == "gcd"
    assert len(text.splitlines()) == 5 + 12
