"""What a model tries in its thought earns nothing, on every route and for every family."""

import json
from typing import Any

import pytest
from reward_requests import Post, row, spoken

from reasoning_gym_environment.records import Problem
from reasoning_gym_environment.scoring.channels import CHANNELS

pytestmark = pytest.mark.asyncio(loop_scope="session")

HARMONY = (
    "<|channel|>analysis<|message|>",
    "<|end|><|start|>assistant<|channel|>final<|message|>",
)
FAMILIES = {channel.name: (channel.opens, channel.closes) for channel in CHANNELS}
FAMILIES["harmony"] = HARMONY


def texts_of(problem: Problem, opens: str, closes: str) -> dict[str, tuple[str, str]]:
    """Completions by what they are, each with its status."""
    answer = f"<answer>{problem.oracle}</answer>"
    draft = "maybe <answer>-5</answer>, let me check"
    return {
        "truncated": (f"{opens}maybe {answer}, let me check", "no_answer"),
        "draft and reply": (f"{opens}{draft}{closes}{answer}", "solved"),
        "no thought": (answer, "solved"),
        "two thoughts": (
            f"{opens}{draft}{closes}so {opens}{draft}{closes}{answer}",
            "solved",
        ),
        "a wrong reply": (f"{opens}{answer}{closes}<answer>-5</answer>", "wrong"),
    }


@pytest.mark.parametrize("family", FAMILIES)
async def test_a_thought_is_left_out_on_every_route(
    family: str, post: Post, problem: Problem
) -> None:
    opens, closes = FAMILIES[family]
    texts = texts_of(problem, opens, closes)
    if family == "harmony":  # a second thought is a message of its own
        del texts["two thoughts"]
    recipe = problem.recipe.to_json()
    written = [text for text, _ in texts.values()]
    expected = [status for _, status in texts.values()]
    rewards = [float(status == "solved") for status in expected]
    reply = await post("/score", {"recipe": recipe, "completions": written})
    assert [score["status"] for score in reply.body["scores"]] == expected
    asked = {"prompts": ["?"], "labels": [json.dumps(recipe)]}
    for text, reward in zip(written, rewards, strict=True):
        slime = {"prompt": "?", "response": text, "label": recipe}
        assert (await post("/slime", slime)).body == reward
        openrlhf = await post("/openrlhf", {**asked, "query": [f"?{text}"]})
        assert openrlhf.body == {"rewards": [reward]}
        nemo = row(problem.question, text, recipe=recipe)
        assert (await post("/verify", nemo)).body["reward"] == reward


@pytest.mark.parametrize("family", FAMILIES)
async def test_a_thought_that_the_prompt_opens_is_one(
    family: str, post: Post, problem: Problem
) -> None:
    opens, closes = FAMILIES[family]
    answer = f"<answer>{problem.oracle}</answer>"
    recipe = problem.recipe.to_json()
    asked: dict[str, Any] = {"prompt": f"? {opens}\n", "label": recipe}
    draft = await post("/slime", {**asked, "response": f"maybe {answer}"})
    assert draft.body == 0.0
    reply = await post("/slime", {**asked, "response": f"maybe 5{closes}{answer}"})
    assert reply.body == 1.0


async def test_only_the_assistants_messages_are_scored(
    post: Post, problem: Problem
) -> None:
    answer = f"<answer>{problem.oracle}</answer>"
    asked = row(problem.question, answer, recipe=problem.recipe.to_json())
    response = spoken("hm")
    own = response["output"][1]
    for role in ("user", "system"):
        response["output"] = [{**own, "role": role, "content": answer}]
        reply = await post("/verify", {**asked, "response": response})
        assert (reply.status, reply.body["status"]) == (200, "no_answer")
    response["output"] = [
        {**own, "content": None},
        {**own, "content": answer},
    ]
    reply = await post("/verify", {**asked, "response": response})
    assert (reply.status, reply.body["reward"]) == (200, 1.0)
