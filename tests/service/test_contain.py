"""Contained functions of a service: registered at its start, called by their names."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import contained_functions
import pytest
import pytest_asyncio
from filter_attempts import where_filtered
from reward_requests import Post, require_rejections

from reasoning_gym_environment import AsyncReasoningGym, contain
from reasoning_gym_environment.commands.rewards import build_parser
from reasoning_gym_environment.errors import ConfigurationError, FixableError
from reasoning_gym_environment.service.app import (
    RewardService,
    ServiceSettings,
    create_app,
)

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.processes]


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def url(gym: AsyncReasoningGym) -> AsyncIterator[str]:
    options: Any = {"timeout": 1.0, "memory": "100MB", "processes": 2}
    functions = {
        "equal": contain(contained_functions.equal, **options),
        "mis.behave-1": contain(
            contained_functions.misbehave, bounds=(-2, 2), **options
        ),
    }
    async with RewardService(
        gym, ServiceSettings(port=0), contained=functions
    ) as service:
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
    body = {"completions": names, "data": None}
    reply = await post("/contain/mis.behave-1", body, url=url)
    statuses = ["timeout", "out_of_memory", "crashed", "solved", "verifier_error"]
    assert [score["status"] for score in reply.body["scores"]] == statuses
    assert [score["score"] for score in reply.body["scores"]] == [
        -2.0,
        -2.0,
        -2.0,
        2.0,
        -2.0,
    ]


async def test_requests_for_the_same_data_are_answered_side_by_side(
    post: Post, url: str
) -> None:
    bodies = [{"completions": [str(n % 3)], "data": str(n % 2)} for n in range(40)]
    replies = await asyncio.gather(
        *(post("/contain/equal", body, url=url) for body in bodies)
    )
    expected = [float(body["completions"] == [body["data"]]) for body in bodies]
    assert [reply.body["scores"][0]["score"] for reply in replies] == expected


@pytest.mark.filterwarnings("ignore:Sending a large body directly:ResourceWarning")
async def test_equal_completions_are_scored_once_and_data_that_no_call_may_have_is_refused(
    gym: AsyncReasoningGym, post: Post
) -> None:
    settings = ServiceSettings(port=0, max_body=2**25)
    with contain(contained_functions.equal, processes=1) as function:
        async with RewardService(
            gym, settings, contained={"equal": function}
        ) as service:
            body = {"completions": ["a", "b"] * 100, "data": "a"}
            scored = await post("/contain/equal", body, url=service.url)
            body = {"completions": ["a"], "data": "x" * 2**24}
            refused = await post("/contain/equal", body, url=service.url)
        assert [score["score"] for score in scored.body["scores"]] == [1.0, 0.0] * 100
        assert function.counts == {"solved": 1, "wrong": 1}
    says = "data must have at most 16777216 characters as JSON"
    assert (refused.status, refused.body["error"]) == (413, says)


async def test_data_that_is_too_large_for_so_many_completions_is_refused(
    post: Post, url: str
) -> None:
    body = {"completions": ["a"] * 200, "data": [1] * 150_000}
    reply = await post("/contain/equal", body, url=url)
    says = "data has 450000 characters as JSON, with 200 completions more than 67108864 in all: "
    says += "send fewer completions in one request"
    assert (reply.status, reply.body["error"]) == (413, says)
    assert (
        await post("/contain/equal", {**body, "completions": ["a"]}, url=url)
    ).status == 200


INVALID = """
404 /contain/other {"completions": ["a"]}
> POST /contain/other: Not Found
404 /contain/os:system {"completions": ["a"]}
> Not Found
422 /contain/equal {"completions": ["a"]}
> data
422 /contain/equal {"completions": [], "data": "a"}
> completions
422 /contain/equal {"completions": "a", "data": "a"}
> completions
422 /contain/equal {"completions": ["a"], "data": "a", "function": "os:system"}
> function
"""


async def test_no_request_brings_code(post: Post, url: str) -> None:
    await require_rejections(post, INVALID, url)


async def test_the_service_describes_them(url: str, session: Any) -> None:
    async with session.get(f"{url}/") as response:
        routes = (await response.json())["routes"]
    assert (
        routes["POST /contain/equal"] == "Score completions with a contained function."
    )
    assert "POST /contain/mis.behave-1" in routes
    async with session.get(f"{url}/health") as response:
        assert response.status == 200


@pytest.mark.parametrize("name", ["", "a/b", "{name}", "ä", ".x", "x" * 65])
async def test_names_that_no_route_has_are_refused(name: str) -> None:
    contained = {name: contain("operator:eq")}
    with pytest.raises(
        ConfigurationError, match="the name of a contained function must be"
    ):
        create_app(
            AsyncReasoningGym(processes=1), ServiceSettings(), contained=contained
        )


@pytest.mark.parametrize("text", ["mine", "my_rewards:verify"])
async def test_a_function_without_a_name_is_refused(text: str) -> None:
    with pytest.raises(FixableError) as raised:
        build_parser().parse(["--contain", text])
    assert "must be NAME=package.module:function, got" in str(raised.value)
