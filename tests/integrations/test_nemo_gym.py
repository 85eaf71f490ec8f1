"""NeMo Gym's rows."""

import json

from stored_values import attempt, stored

from reasoning_gym_environment.inference.prompts import build_messages
from reasoning_gym_environment.integrations.nemo_gym import (
    nemo_gym_row,
    stored_nemo_gym_rows,
)
from reasoning_gym_environment.records import Problem, Recipe
from reasoning_gym_environment.storage.rows import StoredGroup

RECIPE = Recipe(task="gcd", seed=2, level=1, parameters={"max_value": 9})
PROBLEM = Problem(recipe=RECIPE, question="Of 4 and 8?", oracle="4", entry=b"")


def test_a_row_has_nemo_gyms_keys_and_the_recipe() -> None:
    messages = build_messages("Think.", PROBLEM.question)
    assert nemo_gym_row(PROBLEM, messages) == {
        "responses_create_params": {"input": messages},
        "question": "Of 4 and 8?",
        "answer": "4",
        "metadata": {"source_dataset": "gcd"},
        "recipe": json.dumps(RECIPE.to_json(), sort_keys=True),
    }


def test_a_task_with_several_right_answers_has_no_answer() -> None:
    free = Problem(
        recipe=Recipe(task="graph_color", seed=2), question="?", oracle=None, entry=b""
    )
    assert nemo_gym_row(free, [])["answer"] is None


def test_a_stored_group_gives_its_problems_row() -> None:
    [item] = stored_nemo_gym_rows(
        StoredGroup.from_json(stored(attempt(1.0), attempt(0.0)))
    )
    [other] = stored_nemo_gym_rows(StoredGroup.from_json(stored(attempt(0.3))))
    assert item == other
    assert item.row["question"] == "Question 2?"
    assert item.row["responses_create_params"]["input"] == build_messages(
        "Think.", "Question 2?"
    )
    assert Recipe.from_json(json.loads(item.row["recipe"])) == Recipe(
        task="gcd", seed=2
    )
