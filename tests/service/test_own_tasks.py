"""A service with a module of own tasks serves them; one without it names the option."""

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import pytest_asyncio
from reward_requests import Post, row

from reasoning_gym_environment import AsyncReasoningGym
from reasoning_gym_environment.service.app import RewardService, ServiceSettings

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.processes]

MODULE = Path(__file__).parents[1] / "support" / "programs" / "own_tasks.py"
OWN = {"task": "own_sums", "seed": 2, "level": 0, "parameters": {"digits": 1}}


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def own(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[RewardService]:
    settings = ServiceSettings(port=0, streams=tmp_path_factory.mktemp("streams"))
    async with AsyncReasoningGym(processes=1, task_modules=[MODULE]) as gym:
        await gym.start()
        async with RewardService(gym, settings) as service:
            yield service


async def test_problems_of_own_tasks_are_served_and_scored(
    own: RewardService, post: Post, session: aiohttp.ClientSession
) -> None:
    async with session.get(f"{own.url}/health") as reply:
        modules = (await reply.json())["modules"]
    assert list(modules) == ["own_tasks"]
    options: dict[str, Any] = {
        "tasks": ["own_sums", "gcd"],
        "complexity_mode": "curriculum",
    }
    asked = {"stream": "run", "count": 16, "options": options}
    served = (await post("/problems", asked, own.url)).body
    assert served["modules"] == modules
    mine = [each for each in served["problems"] if each["recipe"]["task"] == "own_sums"]
    assert 0 < len(mine) < 16  # mixed with the library's
    recipe, question = mine[0]["recipe"], mine[0]["question"]
    a, _, b, *_ = question.split()
    right = f"<answer>{int(a) + int(b)}</answer>"
    body = {
        "recipe": recipe,
        "completions": [right, "<answer>-1</answer>"],
        "stream": "run",
    }
    scores = (await post("/score", body, own.url)).body["scores"]
    assert [score["status"] for score in scores] == ["solved", "wrong"]
    nemo = row(question, right, recipe=json.dumps(recipe), question=question)
    assert (await post("/verify", nemo, own.url)).body["reward"] == 1.0
    slime = {"response": right, "label": json.dumps(recipe)}
    assert (await post("/slime", slime, own.url)).body == 1.0


async def test_a_service_without_the_module_names_the_option(
    post: Post, service: RewardService, session: aiohttp.ClientSession
) -> None:
    async with session.get(f"{service.url}/health") as health:
        assert (await health.json())["modules"] == {}
    asked = {"stream": "own", "options": {"tasks": ["own_tasks"]}}
    for route, body in (
        ("/score", {"recipe": OWN, "completions": ["<answer>4</answer>"]}),
        ("/verify", row("?", "<answer>4</answer>", recipe=OWN)),
        ("/problems", asked),
    ):
        reply = await post(route, body)
        assert reply.status == 422
        assert (
            "a task of your own needs its module in task_modules" in reply.body["error"]
        )
