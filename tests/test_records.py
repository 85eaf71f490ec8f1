"""What the values promise to those who store and count them."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reasoning_gym_environment.records import (
    Attempt,
    Completion,
    GroupResult,
    Problem,
    Recipe,
    Reward,
    Status,
    Verdict,
    recipe_key,
    recipe_text,
)

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=4,
)
recipes = st.builds(
    Recipe,
    task=st.text(),
    seed=st.integers(0, 2**53 - 1),
    level=st.none() | st.floats(allow_nan=False, allow_infinity=False),
    parameters=st.dictionaries(st.text(), json_values),
    library_version=st.none() | st.just("0.1.24"),
)


@given(recipes)
def test_a_recipe_survives_json(recipe: Recipe) -> None:
    again = Recipe.from_json(json.loads(json.dumps(recipe.to_json())))
    assert again == recipe
    assert again.library_version == recipe.library_version


def test_the_version_that_made_a_recipes_problem_is_no_part_of_its_identity() -> None:
    old = Recipe.from_json({"task": "gcd", "seed": 2, "level": None, "parameters": {}})
    made = Recipe(task="gcd", seed=2, library_version="0.1.25")
    assert (old, recipe_key(old)) == (made, recipe_key(made))
    assert "library_version" not in old.to_json()
    assert json.loads(recipe_text(made))["library_version"] == "0.1.25"


@pytest.mark.parametrize(
    "data", [{"task": "gcd"}, {"task": "gcd", "seed": 2, "sede": 3}]
)
def test_a_recipe_refuses_missing_and_unknown_keys(data: dict[str, Any]) -> None:
    with pytest.raises(TypeError, match=r"seed|sede"):
        Recipe.from_json(data)


def completion(finish_reason: str = "stop") -> Completion:
    return Completion(
        text="4",
        tokens=(1, 2, 3, 4),
        masks=(-100, -100, 3, 4),
        logprobs=None,
        finish_reason=finish_reason,
    )


def test_a_completion_knows_its_own_tokens_and_whether_its_length_cut_it_off() -> None:
    assert completion("length").truncated
    assert not completion("stop").truncated
    assert completion().completion_tokens == 2, "that are not masked"


def test_a_group_keeps_its_order_and_knows_what_was_scored() -> None:
    verdicts = [
        Verdict(score=1.0, status=Status.SOLVED),
        Verdict(score=None, status=Status.UNSCORED),
        Verdict(score=0.0, status=Status.TIMEOUT),
    ]
    attempts = tuple(
        Attempt(
            completion=completion(),
            answer="4",
            verdict=verdict,
            reward=Reward(value=value),
        )
        for verdict, value in zip(verdicts, (0.9, 0.5, 0.0), strict=True)
    )
    problem = Problem(
        recipe=Recipe(task="gcd", seed=2), question="?", oracle=None, entry=b""
    )
    group = GroupResult(problem=problem, attempts=attempts)
    assert group.rewards == (0.9, 0.5, 0.0)
    assert group.scored == (attempts[0], attempts[2])


def test_a_stored_recipe_shares_nothing_with_the_recipe() -> None:
    recipe = Recipe(task="gcd", seed=2, parameters={"sizes": [1, 2]})
    recipe.to_json()["parameters"]["sizes"].append(3)
    assert recipe.parameters == {"sizes": [1, 2]}


def test_a_problem_is_represented_by_a_shortened_question_without_entry() -> None:
    recipe, question = Recipe(task="gcd", seed=2), "How\nmany? " * 99
    shown = repr(
        Problem(recipe=recipe, question=question, oracle="4", entry=b"\x80" * 99)
    )
    assert "task='gcd', seed=2" in shown
    assert "question='How many? How many?" in shown
    assert len(shown) < 250
    assert "x80" not in shown
