"""A demonstration has the form that the system prompt asks for, and its verifier's consent."""

import json

import pytest

from reasoning_gym_environment.inference.prompts import SYSTEM_PROMPTS, build_messages
from reasoning_gym_environment.integrations.shared import (
    demonstration,
    demonstration_row,
    problem_row,
)
from reasoning_gym_environment.records import Problem, Recipe
from reasoning_gym_environment.sandbox.pool import TaskPool
from reasoning_gym_environment.scoring.extraction import extract_answer

pytestmark = pytest.mark.asyncio(loop_scope="session")


@pytest.mark.parametrize(
    ("prompt", "text"),
    [
        ("think", "<think>\n\n</think>\n\n<answer>a b</answer>"),
        (SYSTEM_PROMPTS["think"], "<think>\n\n</think>\n\n<answer>a b</answer>"),
        ("direct", "<answer>a b</answer>"),
        ("", "<answer>a b</answer>"),
        ("Answer in tags.", "<answer>a b</answer>"),
    ],
)
async def test_the_form_is_the_one_asked_for(prompt: str, text: str) -> None:
    assert demonstration("a b", prompt) == text
    assert extract_answer(text).answer == "a b"


async def test_a_solved_problem_is_a_row_of_the_sft_layout(pool: TaskPool) -> None:
    problem = await pool.generate(Recipe(task="gcd", seed=2))
    row = await demonstration_row(problem, "direct", pool)
    assert row is not None
    assert list(row) == ["messages", "task", "recipe", "score"]
    reply = {"role": "assistant", "content": f"<answer>{problem.oracle}</answer>"}
    prompt = build_messages(SYSTEM_PROMPTS["direct"], problem.question)
    assert row["messages"] == [*prompt, reply]
    assert (row["task"], row["score"]) == ("gcd", 1.0)
    assert Recipe.from_json(json.loads(row["recipe"])) == problem.recipe


async def test_what_the_verifier_refuses_is_no_demonstration(pool: TaskPool) -> None:
    made = await pool.generate(Recipe(task="gcd", seed=2))
    for oracle in (None, "-1", "</answer>"):
        wrong = Problem(
            recipe=made.recipe, question=made.question, oracle=oracle, entry=made.entry
        )
        assert await demonstration_row(wrong, "direct", pool) is None


async def test_a_problems_row_has_the_messages_that_would_be_sent() -> None:
    recipe = Recipe(task="gcd", seed=2, level=0, parameters={"min_numbers": 2})
    row = problem_row(
        Problem(recipe=recipe, question="why?", oracle=None, entry=b""), ""
    )
    assert list(row) == ["prompt", "question", "oracle", "task", "recipe"]
    assert row["prompt"] == [{"role": "user", "content": "why?"}]
    assert (row["question"], row["oracle"], row["task"]) == ("why?", None, "gcd")
    assert Recipe.from_json(json.loads(row["recipe"])) == recipe
