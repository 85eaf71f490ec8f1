"""Contained functions of a service: registered at its start, called by their names."""

import asyncio
import sys
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import contained_functions
import pytest
import pytest_asyncio
from filter_attempts import where_filtered
from reward_requests import Post, require_rejections

from reasoning_gym_environment import AsyncReasoningGym, contain
from reasoning_gym_environment.commands.rewards import build_parser
from reasoning_gym_environment.errors import ConfigurationError, FixableError
from reasoning_gym_environment.service.app import RewardService, ServiceSettings, create_app

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.processes]


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def url(gym: AsyncReasoningGym) -> AsyncIterator[str]:
    options: Any = {"timeout": 1.0, "memory": "100MB", "processes": 2}
    functions = {
        "equal": contain(contained_functions.equal, **options),
        "mis.behave-1": contain(contained_functions.misbehave, bounds=(-2, 2), **options),
    }
    async with RewardService(gym, ServiceSettings(port=0), contained=functions) as service:
        await service.app.state.scorers.start()
        yield service.url
    for function in functions.values():
        function.close()


async def test_completions_are_scored_with_the_data(post: Post, url: str) -> None:
    body = {"completions": ["a", "b", "a"], "data": "a"}
    reply = await post("/contain/equal", body, url=url)
    assert reply.status == 200
    assert [score["score"] for score in reply.body["scores"]] == [1.0, 0.0, 1.0]
    assert {*reply.body["scores"][0]} == {"score", "status", "detail", "seconds"}
    body = {"completions": ["a"], "data": {"list": [1, 2.5, None, "x"]}}
    assert (await post("/contain/equal", body, url=url)).status == 200


@where_filtered
async def test_misbehavior_is_a_status(post: Post, url: str) -> None:
    names = ["loops", "allocates", "exits_at_once", "too much", "raises"]
    reply = await post("/contain/mis.behave-1", {"completions": names}, url=url)
    assert [(s["status"], s["score"]) for s in reply.body["scores"]] == [
        ("timeout", -2.0),
        ("out_of_memory", -2.0),
        ("crashed", -2.0),
        ("solved", 2.0),
        ("verifier_error", -2.0),
    ]


async def test_requests_for_the_same_data_are_answered_side_by_side(post: Post, url: str) -> None:
    bodies = [{"completions": [str(n % 3)], "data": str(n % 2)} for n in range(40)]
    replies = await asyncio.gather(*(post("/contain/equal", body, url=url) for body in bodies))
    expected = [float(body["completions"] == [body["data"]]) for body in bodies]
    assert [reply.body["scores"][0]["score"] for reply in replies] == expected


async def test_equal_completions_are_scored_once(gym: AsyncReasoningGym, post: Post) -> None:
    with contain(contained_functions.equal, processes=1) as function:
        settings = ServiceSettings(port=0)
        async with RewardService(gym, settings, contained={"equal": function}) as service:
            body = {"completions": ["a", "b"] * 100, "data": "a"}
            reply = await post("/contain/equal", body, url=service.url)
        assert [score["score"] for score in reply.body["scores"]] == [1.0, 0.0] * 100
        assert function.counts == {"solved": 1, "wrong": 1}


async def test_data_that_is_too_large_for_so_many_completions_is_refused(
    post: Post, url: str
) -> None:
    body = {"completions": ["a"] * 200, "data": [1] * 150_000}
    reply = await post("/contain/equal", body, url=url)
    assert (reply.status, reply.body["error"]) == (
        413,
        "data has 450000 characters as JSON, with 200 completions more than 67108864 in all: send "
        "fewer completions in one request",
    )
    assert (await post("/contain/equal", {**body, "completions": ["a"]}, url=url)).status == 200


@pytest.mark.filterwarnings("ignore:Sending a large body directly:ResourceWarning")
async def test_data_that_no_call_may_have_is_refused(gym: AsyncReasoningGym, post: Post) -> None:
    settings = ServiceSettings(port=0, max_body=2**25)
    with contain(contained_functions.equal, processes=1) as function:
        async with RewardService(gym, settings, contained={"equal": function}) as service:
            body = {"completions": ["a"], "data": "x" * 2**24}
            reply = await post("/contain/equal", body, url=service.url)
    assert (reply.status, reply.body["error"]) == (
        413,
        "data must have at most 16777216 characters as JSON",
    )


INVALID = """
404 /contain/other {"completions": ["a"]}
> POST /contain/other: Not Found
404 /contain/os:system {"completions": ["a"]}
> Not Found
422 /contain/equal {"completions": []}
> completions
422 /contain/equal {"completions": "a"}
> completions
422 /contain/equal {"completions": ["a"], "function": "os:system"}
> function
"""


async def test_no_request_brings_code(post: Post, url: str) -> None:
    await require_rejections(post, INVALID, url)


async def test_the_service_describes_them(url: str, session: Any) -> None:
    async with session.get(f"{url}/") as response:
        routes = (await response.json())["routes"]
    assert routes["POST /contain/equal"] == "Score completions with a contained function."
    assert "POST /contain/mis.behave-1" in routes
    async with session.get(f"{url}/health") as response:
        assert response.status == 200


@pytest.mark.parametrize("name", ["", "a/b", "{name}", "ä", ".x", "x" * 65])
async def test_names_that_no_route_has_are_refused(name: str) -> None:
    with pytest.raises(ConfigurationError, match="the name of a contained function must be"):
        create_app(
            AsyncReasoningGym(processes=1),
            ServiceSettings(),
            contained={name: contain("operator:eq")},
        )


async def command(*options: str, folder: Path) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "reasoning_gym_environment", "rewards"),
        *("--port", "0", "--processes", "1", *options),
        stderr=PIPE,
        cwd=folder,
        env={"PATH": "/usr/bin:/bin", "PYTHONPATH": str(Path(__file__).resolve().parents[2])},
    )


async def test_the_command_registers_them(tmp_path: Path, post: Post) -> None:
    (tmp_path / "my_rewards.py").write_text("def verify(text, data):\n    return text == data\n")
    process = await command("--contain", "mine=my_rewards:verify", folder=tmp_path)
    url = ""
    assert process.stderr is not None
    while line := (await process.stderr.readline()).decode():
        url = line.split("Listening on ")[1].strip() if "Listening on" in line else url
        if line.rstrip().endswith("Ready"):
            break
    reply = await post("/contain/mine", {"completions": ["4", "5"], "data": "4"}, url=url)
    assert [score["status"] for score in reply.body["scores"]] == ["solved", "wrong"]
    process.terminate()
    assert await process.wait() == 0


async def test_a_function_that_cannot_be_imported_stops_the_start(tmp_path: Path) -> None:
    process = await command("--contain", "mine=no_rewards:verify", folder=tmp_path)
    _, said = await process.communicate()
    assert process.returncode == 2
    assert "function: there is no module no_rewards: install it, or write its path" in said.decode()


@pytest.mark.parametrize("text", ["mine", "my_rewards:verify"])
async def test_a_function_without_a_name_is_refused(text: str) -> None:
    with pytest.raises(FixableError) as raised:
        build_parser().parse(["--contain", text])
    assert "must be NAME=package.module:function, got" in str(raised.value)
