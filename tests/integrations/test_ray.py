"""The reward service as a deployment of Ray Serve, on a real cluster of two nodes."""

import asyncio
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from integration_programs import OWN_TASKS
from page_blocks import ROOT

from reasoning_gym_environment import ReasoningGym

PORT = 8123
URL = f"http://127.0.0.1:{PORT}"
AT_ONCE = 16
REQUESTS = 400
NO_STREAMS = "streams are disabled: set --streams FOLDER"

pytestmark = [
    pytest.mark.integration,
    pytest.mark.processes,
    pytest.mark.filterwarnings("ignore"),  # Ray uses what pydantic is going to remove
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A user's folder: the deployment with a module of tasks, as it says, and the module."""
    folder = tmp_path_factory.mktemp("deployed")
    shutil.copy(OWN_TASKS, folder / "my_tasks.py")
    with_tasks = 'processes=1, task_modules=["./my_tasks.py"]'
    text = (
        (ROOT / "deploy" / "ray_serve.py")
        .read_text()
        .replace("processes=1", with_tasks)
    )
    (folder / "ray_serve.py").write_text(text)
    return folder


@pytest.fixture(scope="module")
def cluster(folder: Path) -> Iterator[Any]:
    """Start two nodes with room for one replica each; the proxy is on the first."""
    sys.path.insert(0, str(folder))  # as `serve run` does with the folder it runs in
    import ray
    from ray import serve
    from ray.cluster_utils import Cluster
    from ray_serve import Rewards

    head = {"num_cpus": 2, "include_dashboard": False}
    cluster = Cluster(initialize_head=True, head_node_args=head)
    cluster.add_node(num_cpus=2)
    environment = {"working_dir": str(folder), "env_vars": {"PYTHONPATH": str(ROOT)}}
    ray.init(address=cluster.address, runtime_env=environment)
    try:
        serve.start(proxy_location="HeadOnly", http_options={"port": PORT})
        serve.run(Rewards.options(autoscaling_config=None, num_replicas=2).bind())
        yield cluster
    finally:
        serve.shutdown()
        ray.shutdown()
        cluster.shutdown()


@pytest.fixture(scope="module")
def asked(folder: Path) -> list[tuple[dict[str, Any], float]]:
    """Return requests with their rewards: the answer to another problem is wrong."""
    with ReasoningGym(processes=1, task_modules=[str(folder / "my_tasks.py")]) as gym:
        problems = gym.problems("chain_sum", level=2, count=10, seed=5)
        problems += gym.problems("due_date", level=2, count=10, seed=5)
    return [
        (
            {
                "recipe": problem.recipe.to_json(),
                "completions": [
                    f"<answer>{(problem if right else other).oracle}</answer>"
                ],
            },
            float(right),
        )
        for problem, other in zip(problems, [*problems[1:], problems[0]], strict=True)
        for right in (True, False)
    ]


async def test_refusals_pass_through_and_streams_are_not_offered(cluster: Any) -> None:
    unknown = {"recipe": {"task": "gdc", "seed": 1}, "completions": ["4"]}
    async with aiohttp.ClientSession(URL) as client:
        async with client.post("/score", json=unknown) as reply:
            assert reply.status == 422
        async with client.post("/problems", json={"stream": "a"}) as reply:
            assert (reply.status, await reply.json()) == (409, {"error": NO_STREAMS})
        async with client.get("/health") as reply:
            assert (await reply.json())["status"] == "ready"


async def test_a_killed_node_loses_only_its_own_requests(
    cluster: Any, asked: list[tuple[dict[str, Any], float]]
) -> None:
    numbers = iter(range(REQUESTS))
    tries: list[int] = []

    async def until_scored(
        client: aiohttp.ClientSession, body: dict[str, Any]
    ) -> tuple[float, int]:
        for attempt in range(1, 20):
            async with client.post("/score", json=body) as reply:
                if reply.status == 200:
                    [score] = (await reply.json())["scores"]
                    return score["score"], attempt
            await asyncio.sleep(0.5)
        raise AssertionError("no reply in 20 attempts")

    async def ask(client: aiohttp.ClientSession) -> None:
        for number in numbers:
            body, right = asked[number % len(asked)]
            reward, attempts = await until_scored(client, body)
            assert reward == right
            tries.append(attempts)

    async with aiohttp.ClientSession(URL) as client:
        load = [asyncio.create_task(ask(client)) for _ in range(AT_ONCE)]
        while len(tries) < REQUESTS // 4:
            await asyncio.sleep(0.01)
        [other] = cluster.worker_nodes
        await asyncio.to_thread(cluster.remove_node, other, allow_graceful=False)
        await asyncio.gather(*load)
    assert len(tries) == REQUESTS
    assert sum(attempts > 1 for attempts in tries) <= AT_ONCE
