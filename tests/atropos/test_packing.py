"""What is sent to Atropos's API says what the group says, whoever writes its JSON."""

import json
import math
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiohttp import web
from hypothesis import given
from hypothesis import strategies as st
from json_values import ODD, places, with_value

from reasoning_gym_environment.atropos.trainer_api import TrainerApi, pack
from reasoning_gym_environment.inference.columns import are_finite, are_ids

GROUP: dict[str, Any] = {
    "tokens": [[1, 2, 3], [1, 2, 2**70]],
    "masks": [[-100, -100, 3], [-100, 2, 4]],
    "inference_logprobs": [[1.0, 1.0, -0.0], [1.0, -5e-324, -1.7976931348623157e308]],
    "scores": [1.0, 0.25],
    "overrides": [{}, {"set_advantage_to_zero": True}],
    "generation_params": {"temperature": 0.7, "seed": 2**70},
    "messages": [[{"role": "user", "content": "\u65e5 \U0001f389 \x00\n"}]],
    "group_overrides": None,
    "env_id": 3,
}


def strict(body: Any) -> Any:
    """What the standard library reads of what it wrote; the kind of error where it can't."""
    try:
        return json.loads(json.dumps(body, allow_nan=False, ensure_ascii=False).encode())
    except (TypeError, ValueError) as error:
        return type(error).__name__


def packed(body: Any) -> Any:
    try:
        return json.loads(pack(body))
    except (TypeError, ValueError) as error:
        return type(error).__name__


def test_a_group_is_written_whole() -> None:
    assert packed(GROUP) == GROUP
    assert repr(packed(GROUP)["inference_logprobs"][0][2]) == "-0.0"


@pytest.mark.parametrize("name", ["tokens", "masks", "inference_logprobs"])
def test_a_column_may_be_all_there_is_or_empty(name: str) -> None:
    assert packed({name: GROUP[name]}) == {name: GROUP[name]}
    assert packed({**GROUP, name: []}) == {**GROUP, name: []}


@given(data=st.data())
def test_with_anything_in_any_place_it_is_written_as_the_standard_library_does(
    data: st.DataObject,
) -> None:
    columns = ("tokens", "masks", "inference_logprobs")
    inside = [place for place in places(GROUP) if place not in [(name,) for name in columns]]
    rows = [place for place in inside if place[0] in columns and len(place) == 2]
    place = data.draw(st.sampled_from([place for place in inside if place not in rows]))
    body = with_value(GROUP, place, data.draw(ODD))
    assert packed(body) == strict(body)


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize(
    "place",
    [("inference_logprobs", 1, 2), ("tokens", 0, 0), ("scores", 0), ("generation_params", "seed")],
)
def test_a_number_that_is_not_finite_is_refused_wherever_it_is(place: Any, bad: float) -> None:
    with pytest.raises(ValueError, match="not JSON compliant"):
        pack(with_value(GROUP, place, bad))


def test_half_of_a_surrogate_pair_is_refused_and_not_replaced() -> None:
    with pytest.raises(ValueError, match="surrogates not allowed"):
        pack(with_value(GROUP, ("messages", 0, 0, "content"), "a\ud800"))


@given(st.lists(ODD, max_size=4))
def test_no_column_passes_that_is_not_sound(column: list[Any]) -> None:
    if are_ids(column, 10):
        assert all(type(value) is int and 0 <= value < 10 for value in column)
    if are_finite(column):
        assert all(type(value) in (int, float) and math.isfinite(value) for value in column)


@given(st.lists(st.integers(0, 9)), st.lists(st.floats(-1e6, 0) | st.integers(-9, 0)))
def test_usual_columns_pass(ids: list[int], logprobs: list[float]) -> None:
    assert are_ids(ids, 10)
    assert are_finite(logprobs)


@asynccontextmanager
async def listening(host: str) -> AsyncIterator[tuple[str, list[web.Request], list[bytes]]]:
    """A server's URL by that host, and the requests that come to it with their bodies as sent."""
    requests: list[web.Request] = []
    bodies: list[bytes] = []

    async def keep(request: web.Request) -> web.Response:
        requests.append(request)
        bodies.append(await request.read())
        return web.json_response({"status": "received"})

    app = web.Application(client_max_size=2**26)
    app.add_routes([web.post("/scored_data", keep)])
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        yield f"http://{host}:{runner.addresses[0][1]}", requests, bodies
    finally:
        await runner.cleanup()


LONG = {"tokens": [list(range(300_000))], "scores": [1.0]}


async def test_an_api_on_this_machine_gets_groups_as_they_are() -> None:
    async with listening("127.0.0.1") as (url, _, bodies):
        await TrainerApi(url).request("POST", "/scored_data", pack(LONG))
    assert [json.loads(body) for body in bodies] == [LONG]


async def test_an_api_elsewhere_gets_groups_compressed_but_not_what_is_short() -> None:
    async with listening("0.0.0.0") as (url, requests, bodies):
        api = TrainerApi(url)
        await api.request("POST", "/scored_data", pack(LONG))
        await api.post("/scored_data", {"env_id": 1})
    assert [request.headers.get("Content-Encoding") for request in requests] == ["gzip", None]
    assert [json.loads(body) for body in bodies] == [LONG, {"env_id": 1}]
    assert int(requests[0].headers["Content-Length"]) < len(pack(LONG)) / 2
    assert {request.headers["Content-Type"] for request in requests} == {"application/json"}
