"""Replicas share the curriculum of a reward service, and go on without it."""

import asyncio
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from scripted_server import serving
from worker_stock import WorkerStock

from reasoning_gym_environment import AsyncReasoningGym, ReasoningGymEnv
from reasoning_gym_environment.atropos.shared_curriculum import BATCH, SharedCurriculum
from reasoning_gym_environment.demo.policy import ScriptedPolicy
from reasoning_gym_environment.demo.server import PolicyServer
from reasoning_gym_environment.errors import ConfigurationError
from reasoning_gym_environment.records import Problem
from reasoning_gym_environment.service.app import RewardService, ServiceSettings
from reasoning_gym_environment.util.outages import UnreachableError

WRONG = ScriptedPolicy(["<answer>no</answer>"])
CURRICULUM = {"complexity_mode": "curriculum", "sampling": "signal"}


async def finish(env: ReasoningGymEnv, groups: int) -> list[Problem]:
    problems = [await env.get_next_item() for _ in range(groups)]
    for problem in problems:
        await env.collect_trajectories(problem)
    return problems


async def test_replicas_ask_the_problems_of_one_stream_and_teach_it(
    bench: Any, tokenizer: Any, stock: WorkerStock, tmp_path: Path
) -> None:
    async with (
        AsyncReasoningGym(processes=1, start_worker=stock.lend) as gym,
        RewardService(gym, ServiceSettings(port=0, streams=tmp_path)) as service,
        PolicyServer(WRONG, tokenizer) as server,
    ):
        settings = {**CURRICULUM, "curriculum_url": f"{service.url}/run"}
        async with (
            bench.environment(server.url, replica="east", **settings) as east,
            bench.environment(server.url, replica="west", **settings) as west,
        ):
            first = [*await finish(east, BATCH), *await finish(west, BATCH)]
            later = [*await finish(east, 6 * BATCH), *await finish(west, BATCH)]
        seeds = [problem.recipe.seed for problem in (*first, *later)]
        assert len(set(seeds)) == len(seeds)
        assert first[0].recipe.level
        assert later[-1].recipe.level == 0
        assert service.app.state.streams._streams["run"].problems.levels()[
            "task_details"
        ]
        counts = east.statistics.counts
        assert counts["curriculum/shared_problems"] == 7 * BATCH
        assert not counts["curriculum/shared_results_refused"]


async def test_a_replica_asks_its_own_problems_while_the_service_is_gone(
    bench: Any,
    tokenizer: Any,
    stock: WorkerStock,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with (
        AsyncReasoningGym(processes=1, start_worker=stock.lend) as gym,
        PolicyServer(WRONG, tokenizer) as server,
    ):
        async with RewardService(
            gym, ServiceSettings(port=0, streams=tmp_path)
        ) as service:
            url = f"{service.url}/run"
            env = bench.environment(server.url, **CURRICULUM, curriculum_url=url)
            opened = await env.__aenter__()
        problems = await finish(opened, BATCH + 4)
        assert opened.statistics.counts["curriculum/shared_problems"] == BATCH
        assert len({problem.recipe.seed for problem in problems}) == BATCH + 4
        await env.__aexit__(None, None, None)
    said = [message for message in caplog.messages if "shared curriculum" in message]
    assert len(said) == 1
    assert f"{url} fails, using this replica's own: " in said[0]
    assert f"8 results did not reach {url}" in caplog.messages


async def test_results_wait_for_a_service_that_is_gone(
    stock: WorkerStock, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with AsyncReasoningGym(processes=1, start_worker=stock.lend) as gym:
        async with RewardService(
            gym, ServiceSettings(port=0, streams=tmp_path)
        ) as service:
            port = int(service.url.rpartition(":")[2])
            shared = SharedCurriculum(
                f"{service.url}/run",
                {"tasks": ["gcd"], **CURRICULUM},
                Counter(),
                pause=0.2,
            )
            await shared.start()
            asked = [await shared.next() for _ in range(BATCH)]
        assert await shared.next() is None
        for problem in asked:
            assert problem is not None
            shared.withdraw(problem[0])
        while shared._outage.lost < 2:  # a request for problems and a result
            await asyncio.sleep(0.01)
        async with RewardService(gym, ServiceSettings(port=port, streams=tmp_path)):
            while await shared.next() is None:
                await asyncio.sleep(0.1)
            await shared.close()
    assert any(
        "The shared curriculum is back after" in message for message in caplog.messages
    )
    assert not [message for message in caplog.messages if "did not reach" in message]


async def test_a_service_that_refuses_the_stream_or_is_absent_stops_the_start(
    bench: Any, tokenizer: Any, stock: WorkerStock, tmp_path: Path
) -> None:
    async with (
        AsyncReasoningGym(processes=1, start_worker=stock.lend) as gym,
        RewardService(gym, ServiceSettings(port=0)) as service,
        PolicyServer(WRONG, tokenizer) as server,
    ):
        for url, error, says in (
            (
                f"{service.url}/run",
                ConfigurationError,
                "streams are disabled: set --streams FOLDER",
            ),
            ("http://127.0.0.1:9/run", UnreachableError, "does not reply"),
        ):
            with pytest.raises(error, match=f"curriculum_url {url}: .*{says}"):
                async with bench.environment(server.url, curriculum_url=url):
                    pass


async def test_a_service_that_hangs_is_waited_for_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    replies, asked = asyncio.Event(), 0

    async def problems(request: web.Request) -> web.Response:
        nonlocal asked
        asked += 1
        if asked > 1:
            await replies.wait()
        seeds = range(asked * BATCH, (asked + 1) * BATCH)
        recipes = [{"task": "gcd", "seed": seed} for seed in seeds]
        listed = [
            {"recipe": each, "question": "?", "asked_again": False} for each in recipes
        ]
        return web.json_response({"problems": listed, "sampling": {}})

    async with serving([web.post("/problems", problems)]) as url:
        shared = SharedCurriculum(f"{url}/run", {}, Counter())
        await shared.start()
        assert all([await shared.next() for _ in range(BATCH)])
        assert not any([await shared.next() for _ in range(100)])
        assert caplog.messages == []  # the fetch has not failed yet
        assert asked == 2
        replies.set()
        while (problem := await shared.next()) is None:
            await asyncio.sleep(0.01)
        assert problem[0].seed == 2 * BATCH
        await shared.close()
