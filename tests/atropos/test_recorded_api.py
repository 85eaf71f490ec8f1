"""The protocol of atroposlib's `run-api`: each route's recorded reply is that of the real server.

`tests/recordings/atroposlib-0.4.0-api.json` has one exchange a line, in the order in which they are
sent to one server. To record the replies anew, after a look at what changed:

    python tests/atropos/test_recorded_api.py
"""

import asyncio
import gzip
import json
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from reasoning_gym_environment.atropos import api_client
from reasoning_gym_environment.demo.trainer import ApiServer
from reasoning_gym_environment.util.values import convert

RECORDING = (
    Path(__file__).resolve().parents[1] / "recordings" / "atroposlib-0.4.0-api.json"
)

PROTOCOL = {
    "POST /register",
    "POST /register-env",
    "POST /disconnect-env",
    "GET /info",
    "GET /wandb_info",
    "GET /batch",
    "POST /scored_data",
    "POST /scored_data_list",
    "GET /status",
    "GET /status-env",
}
"""The routes that trainers and environments use."""

Exchange = dict[str, Any]
"""A request (`request`, `body`, `gzip`) and its reply (`status`, `reply`)."""


def recorded() -> list[Exchange]:
    exchanges: list[Exchange] = json.loads(RECORDING.read_text(encoding="utf-8"))
    return exchanges


async def ask(session: aiohttp.ClientSession, exchange: Exchange) -> Exchange:
    """Send a recorded request; return it with the reply that comes now."""
    method, _, path = exchange["request"].partition(" ")
    body = json.dumps(exchange["body"]).encode() if "body" in exchange else None
    headers = {"Content-Type": "application/json"}
    if exchange.get("gzip"):
        assert body is not None
        body = gzip.compress(body)
        headers["Content-Encoding"] = "gzip"
    async with session.request(method, path, data=body, headers=headers) as response:
        now = {**exchange, "status": response.status}
        now.pop("reply", None)
        if response.ok:  # the texts of errors are FastAPI's
            now["reply"] = without_chance(await response.json())
    return now


def without_chance(reply: Any) -> Any:
    """Replace the random number that `/register` gives a trainer by its type."""
    if isinstance(reply, dict) and isinstance(reply.get("uuid"), int):
        return {**reply, "uuid": "an integer"}
    return reply


async def replayed(exchanges: list[Exchange]) -> list[Exchange]:
    """Return the exchanges with the replies of a fresh server."""
    one_each = aiohttp.TCPConnector(force_close=True)  # a reply of 500 ends its own
    async with (
        ApiServer() as api,
        aiohttp.ClientSession(api.url, connector=one_each) as session,
    ):
        return [await ask(session, exchange) for exchange in exchanges]


@pytest.mark.processes
async def test_the_real_server_replies_as_recorded() -> None:
    exchanges = recorded()
    for now, before in zip(await replayed(exchanges), exchanges, strict=True):
        assert now == before


def test_every_route_of_the_protocol_is_recorded_with_a_reply() -> None:
    answered = {each["request"] for each in recorded() if "reply" in each}
    assert answered == PROTOCOL


def test_our_client_accepts_the_recorded_replies() -> None:
    """It checks the types of those that it reads."""
    checked = set()
    for exchange in recorded():
        path = exchange["request"].partition(" ")[2]
        types = api_client._REPLIES.get(path, {})
        reply = exchange.get("reply", {})
        if reply.get("status", "success") != "success":
            continue
        for name in types.keys() & reply.keys():
            convert(reply[name], types[name])
            checked.add((path, name))
    assert checked == {
        (path, name) for path, types in api_client._REPLIES.items() for name in types
    }


if __name__ == "__main__":
    lines = ",\n".join(map(json.dumps, asyncio.run(replayed(recorded()))))
    RECORDING.write_text(f"[\n{lines}\n]\n", encoding="utf-8")
