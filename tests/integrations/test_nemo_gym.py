"""NeMo Gym's rows, and its own servers beside our reward service."""

import asyncio
import json
import socket
import sys
from importlib import import_module
from pathlib import Path

import pytest
from integration_programs import environment, run
from stored_values import attempt, stored

from reasoning_gym_environment import AsyncReasoningGym
from reasoning_gym_environment.inference.prompts import build_messages
from reasoning_gym_environment.integrations.nemo_gym import (
    nemo_gym_row,
    stored_nemo_gym_rows,
)
from reasoning_gym_environment.proof.endpoint_proof import prove_endpoint
from reasoning_gym_environment.proof.endpoints import protocol_of
from reasoning_gym_environment.records import Problem, Recipe
from reasoning_gym_environment.service import endpoints
from reasoning_gym_environment.service.app import RewardService, ServiceSettings
from reasoning_gym_environment.storage.rows import StoredGroup
from reasoning_gym_environment.util.outages import require_reachable
from reasoning_gym_environment.util.retries import RetryPolicy

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


RUN = """
import asyncio
import json
import os
import socket
from pathlib import Path

import nemo_gym.rollout_collection as collection
import uvicorn
from environment_servers.single_agent_turn.app import SingleAgentTurnEnvironmentServerConfig
from environment_servers.single_agent_turn_legacy.app import SingleAgentTurnLegacyEnvironmentServer
from fastapi import FastAPI
from nemo_gym.config_types import BaseServerConfig
from nemo_gym.rollout_reverification import _check_reverify_mode
from nemo_gym.server_utils import ServerClient, get_response_json, raise_for_status
from omegaconf import OmegaConf
from responses_api_agents.simple_agent.app import SimpleAgent, SimpleAgentConfig

NAMES = ("model", "agent", "turn")
SOCKETS = {name: socket.create_server(("127.0.0.1", 0)) for name in NAMES}


def server(port, **more):
    return {"host": "127.0.0.1", "port": port, "entrypoint": "app.py", **more}


ports = {name: each.getsockname()[1] for name, each in SOCKETS.items()}
ours = {"type": "resources_servers", "name": "ours"}
agent = server(
    ports["agent"],
    resources_server=ours,
    model_server={"type": "responses_api_models", "name": "model"},
)
turn = server(
    ports["turn"],
    resources_server=ours,
    agent_server={"type": "responses_api_agents", "name": "agent"},
    max_concurrent_episodes=None,
    queue_timeout_seconds=None,
    default_episode_timeout_seconds=600,
    cleanup_timeout_seconds=60,
)
service = server(int(os.environ["SERVICE_PORT"]), domain="knowledge")
head = {"host": "127.0.0.1", "port": 1}
servers = {
    "ours": {"resources_servers": {"ours": service}},
    "model": {"responses_api_models": {"model": server(ports["model"])}},
    "agent": {"responses_api_agents": {"agent": agent}},
    "turn": {"environment_servers": {"turn": turn}},
    "head_server": head,
}
client = ServerClient(
    head_server_config=BaseServerConfig(**head), global_config_dict=OmegaConf.create(servers)
)
model = FastAPI()


@model.post("/v1/responses")
@model.post("/ng-rollout/{rollout}/v1/responses")
async def respond(body: dict):
    content = {"type": "output_text", "text": os.environ["REPLY"], "annotations": []}
    message = {"type": "message", "id": "m", "role": "assistant", "status": "completed"}
    return {
        "object": "response",
        "id": "r",
        "created_at": 0,
        "model": "m",
        "output": [{**message, "content": [content]}],
        "parallel_tool_calls": False,
        "tool_choice": "auto",
        "tools": [],
    }


async def start(name, app):
    server = uvicorn.Server(uvicorn.Config(app, log_level="warning"))
    serving = asyncio.create_task(server.serve(sockets=[SOCKETS[name]]))
    while not server.started:
        await asyncio.sleep(0.05)
    return serving


async def answer(name, path, body):
    response = await client.post(server_name=name, url_path=path, json=body)
    await raise_for_status(response)
    return await get_response_json(response)


class Collection(collection.RolloutCollectionHelper):
    def setup_server_client(self, *_):
        return client


async def main():
    simple_agent = SimpleAgent(
        config=SimpleAgentConfig(**agent, name="agent"), server_client=client
    )
    environment = SingleAgentTurnLegacyEnvironmentServer(
        config=SingleAgentTurnEnvironmentServerConfig(**turn, name="turn"), server_client=client
    )
    apps = {
        "model": model,
        "agent": simple_agent.setup_webserver(),
        "turn": environment.setup_webserver(),
    }
    serving = [await start(name, app) for name, app in apps.items()]
    rollouts, rewards = {}, {}
    for name in ("agent", "turn"):
        rollouts[name] = []
        for index, row in enumerate(json.loads(Path("rows.json").read_text())):
            indices = {"_ng_task_index": index, "_ng_rollout_index": 0}
            asked = {**row, **indices, "agent_ref": {"name": "agent"}}
            rollouts[name].append({**asked, **await answer(name, "/run", asked)})
        rewards[name] = [
            [rollout["reward"], rollout["mask_sample"], rollout["failure_kind"]]
            for rollout in rollouts[name]
        ]
    of_agent = await answer("agent", "/aggregate_metrics", {"verify_responses": rollouts["agent"]})
    collection.export_metrics = lambda metrics: None  # to Weights & Biases
    file = await Collection.model_construct()._call_aggregate_metrics(
        rollouts["turn"], rollouts["turn"], Path("rollouts.jsonl")
    )
    [collected] = json.loads(Path(file).read_text())
    refused = await _check_reverify_mode(client, {"agent": "ours"})
    metrics = [of_agent["key_metrics"], collected["key_metrics"]]
    print(json.dumps([rewards, *metrics, refused]), flush=True)
    os._exit(0)  # its servers hold connections


asyncio.run(main())
"""


@pytest.mark.integration
@pytest.mark.processes
async def test_its_agent_its_environment_server_and_its_collection_finish(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(endpoints, "RETRIES", RetryPolicy())
    sizes = {"min_board_size": 8, "max_board_size": 9}  # takes a second of work
    slow = {"task": "futoshiki", "seed": 9, "parameters": sizes}
    async with (
        AsyncReasoningGym(processes=1, generation_timeout=0.0001) as gym,
        RewardService(gym, ServiceSettings(port=0)) as service,
    ):
        problem = await gym.problem({"task": "gcd", "seed": 3})
        row = nemo_gym_row(problem, build_messages("Think.", problem.question))
        failing = {
            "responses_create_params": row["responses_create_params"],
            "recipe": json.dumps(slow),
        }
        (tmp_path / "rows.json").write_text(json.dumps([row, failing]))
        (tmp_path / "program.py").write_text(RUN)
        variables = {
            "SERVICE_PORT": service.url.rpartition(":")[2],
            "REPLY": f"<answer>{problem.oracle}</answer>",
        }
        printed = await run(
            sys.executable,
            "program.py",
            cwd=tmp_path,
            env={**environment(tmp_path), **variables},
        )
    rewards, *metrics, refused = json.loads(printed.strip().rpartition("\n")[2])
    rollouts = [[1.0, False, None], [0.0, True, "verifier_error"]]
    assert rewards == {"agent": rollouts, "turn": rollouts}
    for key_metrics in metrics:
        assert key_metrics["mean/reward"] == 1.0
        assert key_metrics["coverage/masked_rollouts"] == 1
    assert refused == []


SERVER = """
import sys

import uvicorn
from nemo_gym.config_types import BaseServerConfig
from nemo_gym.server_utils import ServerClient
from omegaconf import OmegaConf
from resources_servers.reasoning_gym.app import (
    ReasoningGymResourcesServer,
    ReasoningGymResourcesServerConfig,
)

place = {"host": "127.0.0.1", "port": int(sys.argv[1]), "entrypoint": "app.py"}
head = BaseServerConfig(host="127.0.0.1", port=1)
client = ServerClient(head_server_config=head, global_config_dict=OmegaConf.create({}))
config = ReasoningGymResourcesServerConfig(**place, name="reasoning_gym", domain="knowledge")
server = ReasoningGymResourcesServer(config=config, server_client=client)
uvicorn.run(server.setup_webserver(), host="127.0.0.1", port=place["port"])
"""


@pytest.mark.integration
@pytest.mark.processes
async def test_prove_judges_its_own_server_by_the_rows_that_it_ships(
    tmp_path: Path,
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    [folder] = import_module("resources_servers.reasoning_gym").__path__
    rows = (Path(folder) / "data" / "example.jsonl").read_text().splitlines()
    server = await asyncio.create_subprocess_exec(
        sys.executable, "-c", SERVER, str(port), env=environment(tmp_path)
    )
    url = f"http://127.0.0.1:{port}/verify"
    try:
        await require_reachable([url], what="server", hint="", seconds=120)
        result = await prove_endpoint(
            url, protocol_of(url, anywhere=False), rows, items=200, seconds=120
        )
    finally:
        server.terminate()
        await server.wait()
    # Its verifier of knights_knaves finds the names of the right answer in its denial.
    paid = {finding.kind for finding in result.findings}
    assert paid == {"text appended", "denied answer", "hedged answer"}
    assert (result.protocol, result.oracle) == ("NeMo Gym", 1.0)
