"""How requests go to Atropos's API: as they are, or compressed."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from aiohttp import web
from scripted_server import serving

from reasoning_gym_environment.atropos.api_client import ApiClient
from reasoning_gym_environment.atropos.rows import pack


@asynccontextmanager
async def listening(
    host: str,
) -> AsyncIterator[tuple[str, list[web.Request], list[bytes]]]:
    """A server's URL by that host, and the requests that come to it with their bodies as sent."""
    requests: list[web.Request] = []
    bodies: list[bytes] = []

    async def keep(request: web.Request) -> web.Response:
        requests.append(request)
        bodies.append(await request.read())
        return web.json_response({"status": "received"})

    async with serving([web.post("/scored_data", keep)], client_max_size=2**26) as url:
        yield url.replace("127.0.0.1", host), requests, bodies


LONG = {"tokens": [list(range(300_000))], "scores": [1.0]}


async def test_an_api_on_this_machine_gets_groups_as_they_are() -> None:
    async with listening("127.0.0.1") as (url, _, bodies):
        await ApiClient(url).request("POST", "/scored_data", pack(LONG))
    assert [json.loads(body) for body in bodies] == [LONG]


async def test_an_api_elsewhere_gets_groups_compressed_but_not_what_is_short() -> None:
    async with listening("0.0.0.0") as (url, requests, bodies):
        client = ApiClient(url)
        await client.request("POST", "/scored_data", pack(LONG))
        await client.request("POST", "/scored_data", {"env_id": 1})
    assert [request.headers.get("Content-Encoding") for request in requests] == [
        "gzip",
        None,
    ]
    assert [json.loads(body) for body in bodies] == [LONG, {"env_id": 1}]
    assert int(requests[0].headers["Content-Length"]) < len(pack(LONG)) / 2
    assert {request.headers["Content-Type"] for request in requests} == {
        "application/json"
    }
