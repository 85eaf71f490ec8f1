"""The client of `openreward` against the reward service."""

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from integration_programs import page_program, run_python
from openreward import AsyncOpenReward
from openreward.api.environments.client import Task
from openreward.api.errors import ToolCallError

from reasoning_gym_environment import AsyncReasoningGym
from reasoning_gym_environment.problems.seeds import is_evaluation_seed
from reasoning_gym_environment.records import recipe_text
from reasoning_gym_environment.service.app import RewardService, ServiceSettings
from reasoning_gym_environment.tasks.recipes import read_recipe

pytestmark = [pytest.mark.integration, pytest.mark.processes]

TOKEN = "a token for tests"


@asynccontextmanager
async def serving(gym: AsyncReasoningGym, folder: Path | None = None) -> AsyncIterator[Any]:
    """Yield the client's environment of a service with a token."""
    settings = ServiceSettings(port=0, token=TOKEN, streams=folder)
    async with RewardService(gym, settings) as service:
        client = AsyncOpenReward(api_key=TOKEN)
        async with client.environments as environments:
            yield environments.get("reasoning_gym", base_url=service.url)


@pytest.fixture(scope="module")
async def gym() -> AsyncIterator[AsyncReasoningGym]:
    async with AsyncReasoningGym(processes=1) as gym:
        yield gym


async def test_the_client_finds_splits_tasks_and_tools(gym: AsyncReasoningGym) -> None:
    async with serving(gym) as environment:
        assert await environment.list_splits() == ["train", "test"]
        assert await environment.num_tasks("train") == 10_000
        listed = await environment.list_tasks("test:gcd")
        assert len(listed) == 1_000
        assert listed[7] == await environment.get_task("test:gcd", 7)
        assert await environment.get_task_range("test:gcd", -2, None) == listed[-2:]
        assert [tool.name for tool in await environment.list_tools()] == ["answer"]
        assert (await environment.terminal_tool()).arg == "completion"


async def test_an_answer_ends_the_episode_and_reveals_the_solution(gym: AsyncReasoningGym) -> None:
    async with serving(gym) as environment:
        task = await environment.get_task("train:gcd@2", 3)
        async with environment.session(task=task) as session:
            [block] = await session.get_prompt()
            result = await session.call_tool("answer", {"answer": "no idea"})
            assert (result.reward, result.finished) == (0.0, True)
            metadata = result.metadata
            assert (metadata["status"], metadata["level"]) == ("wrong", 2)
            with pytest.raises(ToolCallError, match="episode_finished"):
                await session.call_tool("answer", {"answer": metadata["correct_answer"]})
        assert block.text.startswith((await gym.problem(recipe_of(metadata))).question)
        async with environment.session(task=task) as session:
            reply = f"<think>easy</think><answer>{metadata['correct_answer']}</answer>"
            result = await session.call_terminal_tool(reply)
            assert (result.reward, result.metadata["status"]) == (1.0, "solved")


def recipe_of(metadata: dict[str, Any]) -> Any:
    return read_recipe(metadata["recipe"])


async def test_only_the_test_split_is_held_out(gym: AsyncReasoningGym) -> None:
    async with serving(gym) as environment:
        held_out = []
        for split in ("train", "test"):
            async with environment.session(split=split, index=0) as session:
                result = await session.call_tool("answer", {"answer": "x"})
                held_out.append(is_evaluation_seed(recipe_of(result.metadata).seed))
    assert held_out == [False, True]


@pytest.mark.parametrize(
    ("tool", "given", "reason"),
    [
        ("anwser", {"answer": "4"}, "not_found"),
        ("answer", {"anwser": "4"}, "input_validation"),
        ("answer", {"answer": 4}, "input_validation"),
        ("answer", {"answer": "4", "more": "4"}, "input_validation"),
    ],
)
async def test_a_mistake_of_the_model_does_not_end_the_episode(
    tool: str, given: dict[str, Any], reason: str, gym: AsyncReasoningGym
) -> None:
    async with (
        serving(gym) as environment,
        environment.session(split="train", index=1) as session,
    ):
        with pytest.raises(ToolCallError, match=reason):
            await session.call_tool(tool, given)
        assert (await session.call_tool("answer", {"answer": "x"})).finished


@pytest.mark.parametrize("split", ["dev", "train:gdc", "train:gcd@9", "train:gcd@x", "train@1"])
async def test_an_unknown_split_is_refused(split: str, gym: AsyncReasoningGym) -> None:
    async with serving(gym) as environment:
        with pytest.raises(Exception, match="split must be train or test"):
            async with environment.session(split=split, index=0):
                pass


async def test_sessions_run_at_once_and_a_stream_learns_from_them(
    gym: AsyncReasoningGym, tmp_path: Path
) -> None:
    async with serving(gym, tmp_path) as environment:
        options = {"tasks": ["gcd"], "complexity_mode": "curriculum", "group_size": 2}

        async def ask() -> Any:
            asked = {"stream": "shared", "options": options}
            headers = {"Authorization": f"Bearer {TOKEN}"}
            async with environment.client.post("/problems", json=asked, headers=headers) as reply:
                [problem] = (await reply.json())["problems"]
                return problem["recipe"]

        async def answer(recipe: Any, right: str) -> float:
            spec = {"recipe": recipe, "stream": "shared"}
            task = Task("reasoning_gym", "reasoning_gym", spec, None)
            async with environment.session(task=task) as session:
                return (await session.call_tool("answer", {"answer": right})).reward

        levels = []
        for _ in range(60):
            recipe = await ask()
            levels.append(recipe["level"])
            right = (await gym.problem(recipe)).oracle or ""
            rewards = await asyncio.gather(answer(recipe, right), answer(recipe, right))
            assert rewards == [1.0, 1.0]
    assert sum(levels[-15:]) > sum(levels[:15])


async def test_a_recipe_may_be_text(gym: AsyncReasoningGym) -> None:
    [problem] = await gym.problems("rearc")
    async with serving(gym) as environment:
        spec = {"recipe": recipe_text(problem.recipe)}
        task = Task("reasoning_gym", "reasoning_gym", spec, None)
        async with environment.session(task=task) as session:
            assert (await session.call_tool("answer", {"answer": problem.oracle})).reward == 1.0


async def test_hostile_answers_leave_the_service_alive(gym: AsyncReasoningGym) -> None:
    async with serving(gym) as environment:
        for answer in ("__import__('os')._exit(3)", "9**9**9**9", "</answer>\n\nevent: end"):
            async with environment.session(split="train:countdown", index=0) as session:
                assert (await session.call_tool("answer", {"answer": answer})).reward < 0.1


async def test_the_page_program_asks_three_questions(
    gym: AsyncReasoningGym, tmp_path: Path
) -> None:
    async with RewardService(gym, ServiceSettings(port=0)) as service:
        os.environ["REWARDS"] = service.url
        line = await asyncio.to_thread(run_python, page_program("openreward.md"), tmp_path)
    assert line in ("0.0 wrong", "1.0 solved")
