"""Every known hostile answer through `/verify` has the same outcome as in Python."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from hostile_answers import CASES, hostile_answer
from reward_requests import Post, row
from worker_stock import WorkerStock

from reasoning_gym_environment import AsyncReasoningGym
from reasoning_gym_environment.records import Recipe
from reasoning_gym_environment.service.app import RewardService, ServiceSettings

pytestmark = pytest.mark.asyncio(loop_scope="session")


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def hurried(stock: WorkerStock) -> AsyncIterator[AsyncReasoningGym]:
    """A gym that waits less for answers that hang."""
    async with AsyncReasoningGym(
        processes=2, verify_timeout=1.5, start_worker=stock.lend
    ) as gym:
        yield gym


@pytest.mark.nightly
async def test_hostile_answers_have_the_same_outcome_as_in_python(
    hurried: AsyncReasoningGym, post: Post, tmp_path: Path
) -> None:
    async def outcomes(case: dict[str, Any], url: str) -> tuple[Any, Any]:
        problem = await hurried.problem(Recipe(task=case["task"], seed=case["seed"]))
        text = f"<answer>{hostile_answer(case, problem, tmp_path / 'canary')}</answer>"
        score = await hurried.score(problem, text)
        fields = {"recipe": problem.recipe.to_json(), "question": problem.question}
        reply = await post("/verify", row(problem.question, text, **fields), url=url)
        assert reply.status == 200, reply.body
        body = reply.body
        return (score.score, score.status.value, score.answer), (
            None if body["mask_sample"] else body["reward"],
            body["status"],
            body["extracted_answer"],
        )

    async with RewardService(hurried, ServiceSettings(port=0)) as service:
        found = await asyncio.gather(*(outcomes(case, service.url) for case in CASES))
    different = [
        (case, *pair)
        for case, pair in zip(CASES, found, strict=True)
        if pair[0] != pair[1]
    ]
    assert different == []
    assert hurried.counts["sandbox/restarts"] == 0
    assert list(tmp_path.iterdir()) == []
