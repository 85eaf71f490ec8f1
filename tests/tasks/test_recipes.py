"""Validation of recipes before the library sees them."""

import contextlib
import json
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reasoning_gym_environment.records import Recipe
from reasoning_gym_environment.sandbox._screen import screen
from reasoning_gym_environment.tasks.datasets import (
    Datasets,
    known_parameters,
    require_allowed,
)
from reasoning_gym_environment.tasks.facts import known_categories
from reasoning_gym_environment.tasks.ladders import build_ladders
from reasoning_gym_environment.tasks.recipes import (
    leaves,
    read_recipe,
    require_parameters_of_level,
    require_valid_recipe,
)
from reasoning_gym_environment.util.values import shorten

pytestmark = pytest.mark.filterwarnings("ignore")  # the library's own, at its import

TASKS = sorted(known_categories())
RAN = "code ran"
CODE = f"__import__('builtins').exit({RAN!r})"
ITSELF: list[Any] = []
ITSELF += [ITSELF, ITSELF]


def nested(depth: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(depth):
        value = [value]
    return value


HOSTILE = {
    "code": CODE,
    "code in a list": [CODE],
    "code in a list of lists": [["x", CODE]],
    "a path": "../../../../etc/passwd",
    "a symbol of sympy's range syntax": ["x:999999999"],
    "two words": ["x exec"],
    "a dunder": ["__import__"],
    "a line break": ["x\ny"],
    "a foreign letter": ["\uff58"],
    "a lone surrogate": ["\ud800"],
    "a long text": "a" * 10**6,
    "a huge number": 10**300,
    "a number Python does not write": 10**5000,
    "a huge negative number": -(10**300),
    "a number beyond every level": 10**12,
    "infinity": float("inf"),
    "not a number": float("nan"),
    "bytes": b"x",
    "a mapping": {"a": 1},
    "a mapping in a list": [{"a": 1}],
    "an object": object(),
    "a class": Path,
    "deep": nested(5000),
    "long": [0] * 10**6,
    "a list that holds itself": ITSELF,
    "a list of nothing": [None],
}


def flat(value: Any) -> list[tuple[int, Any]]:
    return [] if isinstance(value, dict) else list(leaves(value))


def refusal(recipe: Recipe) -> str:
    """Return why a recipe is refused; empty if it is allowed."""
    try:
        require_allowed(recipe)
    except (ValueError, TypeError) as error:
        return str(error)
    return ""


@pytest.mark.parametrize("task", TASKS)
def test_hostile_values_are_refused_for_every_parameter_with_a_short_message(
    task: str,
) -> None:
    begin = time.process_time()
    for name in known_parameters(task):
        for what, value in HOSTILE.items():
            said = refusal(Recipe(task=task, seed=1, parameters={name: value}))
            assert name in said, what
            assert len(said) < 400, what
            assert said.isprintable(), what
    assert time.process_time() - begin < 10


@pytest.mark.parametrize(
    "value", [10**9, 1e9, "x", "", True, None, [], [[1]], {}, -1, 0.5]
)
def test_values_are_refused_or_of_a_known_kind(value: Any) -> None:
    """The check raises no other error for any value, and builds nothing."""
    for task in TASKS:
        for name, known in known_parameters(task).items():
            said = refusal(Recipe(task=task, seed=1, parameters={name: value}))
            plain = all(known.kinds & {type(leaf), float} for _, leaf in flat(value))
            assert name in said or (not said and plain)


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.just(CODE),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=6,
)


@given(st.sampled_from(TASKS), st.data())
def test_a_random_recipe_is_refused_or_plain(task: str, data: st.DataObject) -> None:
    names = st.sampled_from(sorted(known_parameters(task)) or [""]) | st.text(
        max_size=5
    )
    recipe = Recipe(
        task=task,
        seed=data.draw(st.integers(0, 2**53 - 1)),
        parameters=data.draw(st.dictionaries(names, anything, max_size=3)),
    )
    said = refusal(recipe)
    assert len(said) < 400
    assert said or CODE not in json.dumps(recipe.to_json())


@given(anything, anything, anything, anything, anything)
def test_any_json_is_refused_or_a_valid_recipe(
    task: Any, seed: Any, level: Any, parameters: Any, made: Any
) -> None:
    data = {"task": task, "seed": seed, "level": level, "parameters": parameters}
    data["library_version"] = made
    with contextlib.suppress(ValueError):
        recipe = read_recipe(data)
        require_valid_recipe(recipe)
        assert read_recipe(json.loads(json.dumps(recipe.to_json()))) == recipe


@pytest.mark.parametrize(
    "data",
    [
        None,
        [],
        "gcd",
        {"task": "gcd"},
        {"task": "gcd", "seed": 1, "sede": 1},
        {"task": ["gcd"], "seed": 1},
        {"task": "g" * 10**6, "seed": 1},
        {"task": "gcd", "seed": True},
        {"task": "gcd", "seed": 1.0},
        {"task": "gcd", "seed": -1},
        {"task": "gcd", "seed": 2**53},
        {"task": "gcd", "seed": 10**5000},
        {"task": "gcd", "seed": 1, "level": 10**300},
        {"task": "gcd", "seed": 1, "level": "1"},
        {"task": "gcd", "seed": 1, "level": float("nan")},
        {"task": "gcd", "seed": 1, "library_version": 1},
        {"task": "gcd", "seed": 1, "library_version": "v1"},
        {"task": "gcd", "seed": 1, "library_version": "0.1.25\n"},
        {"task": "gcd", "seed": 1, "library_version": "1" * 41},
        {"task": "gcd", "seed": 1, "parameters": None},
        {"task": "gcd", "seed": 1, "parameters": [1]},
        {"task": "gcd", "seed": 1, "parameters": {1: 1}},
        {"task": "gcd", "seed": 1, "parameters": {"max_value": nested(5000)}},
        {"task": "gcd", "seed": 1, "parameters": {str(n): n for n in range(1000)}},
    ],
)
def test_an_invalid_recipe_is_refused_with_a_short_message(data: Any) -> None:
    with pytest.raises(
        ValueError, match=r"recipe|task|seed|level|param|max_|version"
    ) as refused:
        read_recipe(data)
    assert len(str(refused.value)) < 400


def test_a_level_needs_parameters_unless_an_unknown_task_has_no_other() -> None:
    for level in (0, 3, 99):
        with pytest.raises(
            ValueError, match=f"level {level} of gcd lacks its parameters"
        ):
            require_parameters_of_level(Recipe(task="gcd", seed=1, level=level))
    require_parameters_of_level(Recipe(task="of_another_version", seed=1, level=0))


def test_every_level_of_every_task_is_allowed() -> None:
    ladders = build_ladders(TASKS)
    assert len(ladders) == 105
    for task, ladder in ladders.items():
        for level, parameters in enumerate(ladder.levels):
            stored = json.loads(json.dumps(parameters))
            require_allowed(Recipe(task=task, seed=1, level=level, parameters=stored))


@pytest.mark.parametrize(
    ("task", "parameters"),
    [
        ("chain_sum", {"min_terms": 2, "max_terms": 9}),
        ("chain_sum", {"min_digits": 1, "max_digits": 3}),
        ("simple_integration", {"symbols": ["t"], "operators": ["+"]}),
        ("polynomial_multiplication", {"variables": ["a", "b1"]}),
        ("intermediate_integration", {"symbols": "X"}),
        ("figlet_font", {"static_word": "HELLO", "static_font": None}),
        ("family_relationships", {"male_names": ["Otto"], "female_names": ["Ida"]}),
        ("boxnet", {"colour_list": ["cyan", "black"]}),
        ("basic_arithmetic", {"format_style": "natural", "whitespace": "no_space"}),
        ("calendar_arithmetic", {"tasks": ["is_leap_year"], "year": 1999}),
        ("codeio", {"difficulty": 7}),
        ("aiw", {"task_types": ["siblings"], "task_type_weights": [1.0]}),
        (
            "rearc",
            {"rng_difficulty_ranges": [[0.0, 0.5]], "rng_difficulty_weights": [1]},
        ),
        ("prime_factorization", {"max_value": 10**7}),
        ("number_format", {"min_n": 1, "max_n": 10**9}),
        ("gsm_symbolic", {"templates": [3, 1], "difficulty": 1}),
    ],
)
def test_reasonable_values_are_allowed(task: str, parameters: dict[str, Any]) -> None:
    require_allowed(Recipe(task=task, seed=1, parameters=parameters))


def test_an_allowed_symbol_can_be_used_in_an_answer() -> None:
    """Symbols allowed in a recipe must pass the screen, or no answer could be rewarded."""
    for task in TASKS:
        for name in {"symbols", "variables"} & known_parameters(task).keys():
            for symbol in ("t", "Q", "b12"):
                require_allowed(Recipe(task=task, seed=1, parameters={name: [symbol]}))
                assert screen(task, f"3*{symbol}**2 + 1") is None


@pytest.mark.parametrize("task", ["composite", "no_such_task", "", "os", "\ud800"])
def test_an_unknown_task_is_refused(task: str) -> None:
    assert "unknown task" in refusal(Recipe(task=task, seed=1))
    with pytest.raises(ValueError, match="unknown task"):
        Datasets().get(task, {})


@pytest.mark.parametrize(
    "name", ["seed", "size", "self", "__class__", "datasets", "x" * 10**6]
)
def test_an_unknown_parameter_is_refused(name: str) -> None:
    said = refusal(Recipe(task="gcd", seed=1, parameters={name: 1}))
    assert ("unknown parameter" if len(name) < 100 else "must be a short text") in said
    assert len(said) < 200


def test_no_dataset_is_built_for_a_refused_recipe() -> None:
    datasets = Datasets()
    recipe = Recipe(task="simple_integration", seed=1, parameters={"symbols": [CODE]})
    with pytest.raises(ValueError, match="symbols"):
        datasets.problem(recipe)
    with pytest.raises(ValueError, match="symbols"):
        datasets.get(recipe.task, recipe.parameters)


def test_values_are_shortened() -> None:
    for value in HOSTILE.values():
        assert len(shorten(value)) <= 100
